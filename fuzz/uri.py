"""Feeds random targets to random profiles and sites, and reports every law of canonicalization they break.

    python fuzz/uri.py --seconds 60 [--seed 7]

The canonical form of a canonical form is itself (1); no octet is decoded twice (2); what an origin gets is a
function of the key (4); a canonical target selects what produced it (5). Whether an origin takes for one what
has one key (3) is for the origins themselves to say: tests/integration/servers.
Exit status: 0 none broken, 1 some.
"""

# ruff: noqa: S311, T201

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from univocal.http.errors import ConfigurationError, ProfileError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.charset import CHARSETS
from univocal.uri.percent_encoding import RINGS, DecoderRing
from univocal.uri.profile import Profile, parse
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.suspicious import SEQUENCES
from univocal.uri.target import Canonical, canonical_target, explain_target, origin_target

# Targets. None holds a blank or a line break, which end a request line.

SHORT = rb"/ . .. %2f %2e a ; %5c".split()
NASTY = rb"""
    / / / // . .. ... /../ /./ /.. a A 1 ~ - _ foo bar admin x.php .do %61dmin f%6Fo foo/ a/b/c/ index.html
    %2f %2F %2e %2E %2e%2e .%2e %2E. %2f.. ..%2f %2e%2f ; ..; .; ..;a=b ;a=b ;jsessionid=1 %3b %3B ;/ /;
    \ %5c %5C ..\ ..%5c %25 %252e %2525 %25%32%65 % %2 %zz %00 %01 %09 %0a %0D %1f %7f %20 %3f %23 %c0%ae
    ( ) [ ] @ : ! $ & ' * + , = | < > " ^ ` { } %7c %3C %7b %22 %5E %60 # ,.. =. %2c.. ..%3d %2b %28 %5B %5d
    %26 %3D %40 %3a %21 %24 %27 %2A %2c %C3%A9 %c3%a9 %E2%82 %ED%A0%80 %F0%9F%98%80 %c2%85 %ff %E8%F0 %A4%CB
"""
PIECES = [*NASTY.split(), b"\xc3\xa9", b"\xff", b"\xef\xf0"]
QUERY_PIECES = rb"""
    a b c a= b=1 utm_x=2 & & = + %20 %2b %26 %3D %3b ; %25 %2541 %41 %61 %C3%A9 %ff %EF%F0 / %2f ? %3f /../
    [ %5B ' %27 % %zz < %3c " # %00 %0a
""".split()
STARTS = rb"/ / /foo /foo/ /foo/../ /shop /shop/ // /x/../ /foo/bar".split()
BASES = rb"""
    / /admin /admin/x /foo /foo/a(b) /foo/a/b /foo/ /foo/bar /a/b/c /shop/admin/x /shop/foo/bar /shop /x.php
    /foo/x.do /foo/[-] /a;b/c
""".split()
SLASHES = rb"// /./ /x/../ /x/y/../../ %2f %2F /%2e/ /z%2f../ /x/..;/ /;p/".split()


def short_targets(length: int) -> Iterator[bytes]:
    """Every path of at most `length` of the pieces that matter most."""
    for number in range(length + 1):
        for pieces in itertools.product(SHORT, repeat=number):
            yield b"/" + b"".join(pieces)


def random_target(chance: random.Random) -> bytes:
    """A path put together of nasty pieces, or another spelling of a decent one; often with a query."""
    if chance.random() < 0.6:
        pieces = (chance.choice(chance.choice((SHORT, PIECES))) for _ in range(chance.randrange(9)))
        path = chance.choice(STARTS) + b"".join(pieces)
    else:
        path = respelled(chance.choice(BASES), chance)
    match chance.randrange(4):
        case 0:
            return path + b"?" + b"".join(chance.choices(QUERY_PIECES, k=chance.randrange(9)))
        case 1:
            return path + chance.choice((b"?", b"?q", b"?a=%2f&b=c%3Cd", b"?a=<b>", b"?%zz"))
    return path


def respelled(path: bytes, chance: random.Random) -> bytes:
    """Another way to write `path`, which most servers take for the same and some for another."""
    often = chance.choice((0.05, 0.2, 0.6))
    spelled = b""
    for octet in path:
        if chance.random() >= often:
            spelled += b"%c" % octet
        elif octet == 0x2F:
            spelled += chance.choice(SLASHES if spelled else SLASHES[:3])
        else:
            spelled += chance.choice((b"%%%02x", b"%%%02X")) % octet
    return spelled


# Profiles and sites

Settings: TypeAlias = dict[str, dict[str, Any]]


def random_profile(chance: random.Random) -> tuple[str, Profile]:
    """The text of a profile that is accepted, and the profile."""
    while True:
        text = toml(random_settings(chance)) + chance.choice(("", *REWRITES))
        try:
            return text, parse({"random": text})["random"]
        except ProfileError:
            continue


def some(chance: random.Random, values: Any, most: int) -> list[Any]:
    return chance.sample(list(values), chance.randrange(most + 1))


def random_settings(chance: random.Random) -> Settings:
    reserved = ":/[]@!$&'()*+,;="
    decode = some(chance, reserved + "\\|", 17)
    encode = [octet for octet in some(chance, reserved, 8) if octet not in decode and octet != "/"]
    path: dict[str, Any] = {"decode": " ".join(decode), "encode": " ".join(encode)}
    if chance.random() < 0.3:
        path = {"ring": chance.choice(list(RINGS))}
    path |= {
        "merge_slashes": chance.random() < 0.5,
        "raw": chance.choice(("encode", "encode", "encode", "refuse")),
        "dot_segments": chance.choice(("rfc3986", "servlet", "keep")),
        "parameters": chance.choice(("keep", "strip")),
        "parameter_delimiters": chance.choice((";", ";", "; ,", "=", "! $ & ' ( ) * + , ; =")),
        "trailing_slash": chance.choice(("keep", "keep", "add", "remove")),
        "index_names": some(chance, ["index.html", "a", "x.php", "..a"], 2),
    }
    query = {
        "ring": chance.choice(("", "", *RINGS)),
        "sort": chance.random() < 0.3,
        "drop": some(chance, ["a", "utm_*", "?", "*=", "%"], 2),
        "defaults": {"b": 1} if chance.random() < 0.3 else {},
        "drop_empty": chance.random() < 0.3,
        "drop_empty_mark": chance.random() < 0.3,
    }
    if chance.random() < 0.2:
        query["allow"] = some(chance, ["a", "b", "c*"], 3)
    charset: dict[str, Any] = {}
    if chance.random() < 0.4:
        legacy = chance.choice(list(CHARSETS))
        charset = dict.fromkeys(some(chance, ["path", "query"], 2), legacy)
        charset |= {"origin": chance.choice(("utf-8", "legacy"))} if charset else {}
        charset["trust_encoding_fields"] = chance.random() < 0.5
    mode = chance.choice(("enforce", "enforce", "enforce", "observe"))
    reject = {"sequences": some(chance, sorted(SEQUENCES), chance.choice((0, 3, 8))), "mode": mode}
    return {"path": path, "query": query, "charset": charset, "reject": reject}


REWRITES = (
    '\n[[rewrite]]\nfrom = "/foo"\nto = "/shop"\nat = "start"\n',
    '\n[[rewrite]]\nfrom = "/admin"\nto = "?page="\n',
    '\n[[rewrite]]\nfrom = "bar"\nto = "y"\nat = "end"\n[[rewrite]]\nfrom = "%3C"\nto = "l"\n',
    '\n[[rewrite]]\nfrom = "a"\nto = "/z/"\n',
    '\n[[rewrite]]\nfrom = "//"\nto = "."\n',
    '\n[[rewrite]]\nfrom = "?"\nto = "/x?"\n',
)


def toml(settings: Settings) -> str:
    lines = []
    for table, values in settings.items():
        lines.append(f"[{table}]")
        for key, value in values.items():
            if isinstance(value, dict):
                lines += [f"{key}.{name} = {json.dumps(each)}" for name, each in value.items()]
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def random_sites(profiles: list[Profile], chance: random.Random) -> Sites:
    """One site with an alias and up to four routes, each with its own profile."""
    routes = []
    for prefix in [b"/", *some(chance, [b"/a", b"/foo", b"/foo/", b"/shop/admin/", b"/..a", b"/~"], 3)]:
        to = chance.choice(
            (b"", b"", b"/", b"/v1", b"/v1/", b"/v1{path}", b"/{path}/x", b"/{host}/v1/", b"/{host}{path}")
        )
        forward = chance.choice(("canonical", "canonical", "received")) if not to else "canonical"
        try:
            routes.append(Route(prefix, chance.choice(profiles), "origin", to, forward))
        except ConfigurationError:  # not as the profile spells it
            continue
    if all(route.prefix != b"/" for route in routes):  # its profile does not go with what was chosen
        routes.append(Route(b"/", chance.choice(profiles), "origin"))
    scheme = chance.choice((b"keep", b"keep", b"http", b"https"))
    answer = chance.choice((0, 301))
    return Sites(
        [Site("s", ("one.example", "*.many.example"), tuple(routes), ("alias.example",), answer, scheme)]
    )


# Laws. Each gives what is wrong, or "".


def law_1(target: bytes, profile: Profile, declared: tuple[str, str]) -> str:
    """Idempotent, whatever was declared of the received one; and fit for a request line."""
    canonical = canonical_target(target, profile, declared)
    if not isinstance(canonical, bytes):
        return ""
    if not re.fullmatch(rb"/[!-~]*", canonical) or re.search(
        rb"%(?![0-9A-F]{2})|#", canonical.partition(b"?")[0]
    ):
        return f"law 1: {canonical!r} is no origin-form in one spelling"
    again = canonical_target(canonical, profile)
    return "" if again == canonical else f"law 1: {canonical!r} ({declared}) becomes {again!r}"


def law_2(target: bytes, profile: Profile, declared: tuple[str, str]) -> str:
    """Each stage leaves what a reader has who decodes once, or takes something away."""
    stages, explained = explain_target(target, profile, declared)
    if explained != canonical_target(target, profile, declared):
        return f"law 2: explained as {explained!r}"
    for stage in stages:
        before, after = (read(text, profile) for text in (stage.before, stage.after))
        match stage.name:
            case "ring" | "query":
                same = before == after
            case "charset" | "query-charset":
                # A second octet may be one of ASCII, from 0x40 on, and no delimiter.
                delimiting = bytes(range(0x40, 0x100))
                same = before.translate(None, delimiting) == after.translate(None, delimiting)
            case _:
                same = not (escapes(stage.after) - escapes(stage.before))
        if not same:
            return f"law 2: {stage.name} makes {stage.after!r} of {stage.before!r}"
    return ""


def read(target: bytes, profile: Profile) -> bytes:
    """The target, decoded once, by a reader to whom "+" is a space where the profile says so."""
    path, mark, query = target.partition(b"?")
    rings: tuple[DecoderRing | None, ...] = (profile.ring, profile.query.ring)
    parts = [
        part.replace(b"+", b" ") if ring and ring.plus_is_space else part
        for part, ring in zip((path, query), rings, strict=True)
    ]
    return unquote_to_bytes(parts[0]) + mark + unquote_to_bytes(parts[1])


def escapes(target: bytes) -> Counter[bytes]:
    return Counter(re.findall(rb"%[0-9A-Fa-f]{2}", target))


def law_2_marked(target: bytes, profile: Profile, chance: random.Random) -> str:
    """An escaped escape stays one, wherever it stands, or goes altogether."""
    mark = b"Zw%%25%02XwZ" % chance.randrange(256)
    at = chance.randrange(1, len(target) + 1)
    canonical = canonical_target(target[:at] + mark + target[at:], profile)
    if isinstance(canonical, bytes) and canonical.count(b"Zw") != canonical.count(mark):
        return f"law 2: {mark!r} at {at} became a part of {canonical!r}"
    return ""


def laws_4_and_5(target: bytes, sites: Sites, sent: dict[bytes, object], chance: random.Random) -> str:
    """One key, one request to the origin; what is canonical comes back to where it was."""
    host = chance.choice((b"one.example", b"ONE.example.:80", b"a.many.example:443", b"alias.example:8080"))
    scheme = chance.choice((b"http", b"https"))
    encodings = chance.choice(((b"", b""), (b"", b""), (b"UTF-8", b"windows-1251")))
    found = resolve(target, [host], scheme, sites, encodings=encodings)
    if not isinstance(found, Canonical):
        return ""
    to_origin = origin_target(found)
    if re.search(rb"[\x00-\x20\x7f]", to_origin) or not to_origin.startswith(b"/"):
        return f"law 4: {to_origin!r} is sent"
    if found.observed:
        return ""
    if found.upstream_path:
        if leaves(to_origin.partition(b"?")[0], found):
            return f"law 4: {to_origin!r} is not under {found.upstream_path!r}"
    elif found.verbatim:  # as it came: each spelling has an answer of its own under the one key
        to_origin = found.target
    elif to_origin != found.target:
        return f"law 4: {to_origin!r} is sent for {found.target!r}"
    request = (to_origin, found.scheme, found.authority, found.route)
    if sent.setdefault(found.key, request) != request:
        return f"law 4: {found.key!r} is {request} and {sent[found.key]}"
    for again in (
        resolve(found.target, [found.authority], found.scheme, sites),
        resolve(found.url, [b"ignored.example"], found.scheme, sites),
    ):
        if not isinstance(again, Canonical) or (again.key, again.route) != (found.key, found.route):
            return f"law 5: {found.url!r} becomes {again}"
    return ""


DECLARED = (("", ""), ("utf-8", ""), ("windows-1251", "utf-8"), ("", "euc-jp"), ("koi8-r", "iso-8859-5"))


def leaves(path: bytes, found: Canonical) -> bool:
    """Tell whether a path has dot segments to be removed, or is outside its upstream's path without them."""
    segments: list[bytes] = []
    for segment in path.split(b"/")[1:]:
        if segment in {b".", b".."} and found.route.profile.dot_segments != "keep":
            return True
        if segment == b"..":
            segments = segments[:-1]
        elif segment != b".":
            segments.append(segment)
    under = [each for each in found.upstream_path.partition(b"{")[0].split(b"/") if each]
    return segments[: len(under)] != under


TARGETS_PER_PROFILE = 60

Finding: TypeAlias = tuple[str, bytes, str]  # the profile or site, the target, and what is wrong


def findings(
    seed: int, *, seconds: float = math.inf, targets: float = math.inf
) -> tuple[list[Finding], Counter[str]]:
    """The laws broken within so many seconds or targets, whichever are over first; and what was seen."""
    chance = random.Random(seed)
    built_in = [(f'extends = "{name}"', profile) for name, profile in builtin_profiles().items()]
    waiting = list(built_in)
    found: list[Finding] = []
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end and seen["targets"] < targets:
        text, profile = waiting.pop() if waiting else random_profile(chance)
        sites = random_sites([profile, chance.choice(built_in)[1]], chance)
        sent: dict[bytes, object] = {}
        for _ in range(TARGETS_PER_PROFILE):
            target = random_target(chance)
            found += [
                (text, target, wrong) for wrong in broken(target, profile, sites, sent, chance) if wrong
            ]
            seen["accepted"] += isinstance(canonical_target(target, profile), bytes)
        seen += Counter(profiles=1, targets=TARGETS_PER_PROFILE, keys=len(sent))
    return found, seen


def broken(
    target: bytes, profile: Profile, sites: Sites, sent: dict[bytes, object], chance: random.Random
) -> list[str]:
    """A text for each law, empty if it holds."""
    declared = chance.choice(DECLARED) if profile.charset.trust_encoding_fields else ("", "")
    return [
        law_1(target, profile, declared),
        law_2(target, profile, declared),
        law_2_marked(target, profile, chance),
        laws_4_and_5(target, sites, sent, chance),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    found, seen = findings(chosen.seed, seconds=chosen.seconds)
    for text, target, wrong in found[:20]:
        print(f"{target!r}\n    {wrong}\n    under {text!r}")
    print(", ".join(f"{name}: {number}" for name, number in seen.most_common()))
    print(f"{len(found)} laws broken")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
