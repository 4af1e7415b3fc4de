"""Traffic Server's remap rules with two sets of octets, as Wikimedia's normalize-path script has them.

    map http://en.example http://127.0.0.1:9000 @plugin=tslua.so \\
        @pparam=normalize-path.lua @pparam="3A 2F 40" @pparam="5B 5D"

The first set is decoded, the second encoded; octets are two hexadecimal digits. Rules are read from
remap.config, or from YAML with a line each for `type`, `target`, `replacement` and every parameter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from univocal.http.authority import DEFAULT_PORTS
from univocal.http.grammar import Absolute, split_absolute
from univocal.uri.profile import parse
from univocal.uri.ring import DECODE, ENCODE, RINGS, DecoderRing
from univocal_app.importers.imported import Imported, Note, Source
from univocal_app.importers.rings import corrected, path_settings
from univocal_app.importers.sites import Mapped, SiteWriter
from univocal_app.terminal import printable

__all__ = ["read"]

_KINDS: Final = frozenset(
    {"map", "map_with_recv_port", "map_with_referer", "reverse_map", "redirect", "redirect_temporary"}
)
_WORD: Final = re.compile(r"""(?:[^\s"'\\]|\\.?|"[^"]*"?|'[^']*'?)+""")
_FIELD: Final = re.compile(r"-?\s*(type|target|replacement):\s*(\S.*)")
_SET: Final = re.compile(r"\s*(?:[0-9A-Fa-f]{2}(?:\s+|\Z))*")
_SCRIPT: Final = "normalize-path"
_UNWELCOME: Final = re.compile(r"[?#\s]")

_ALWAYS: Final = (
    "unreserved octets are decoded, too (%41 is A), and octets that may not stand bare are escaped",
    "dot segments, slashes, parameters and fragments are as in the profile rfc3986: the sets are of octets",
)
_HOST: Final = 'the Host sent is the upstream\'s; where pristine_host_hdr is on, set origin_host = "site"'


@dataclass(slots=True)
class _Rule:
    line: int
    kind: str = ""
    target: str = ""
    replacement: str = ""
    options: list[tuple[int, str]] = field(default_factory=list)
    parameters: list[tuple[int, str]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.target or f"line {self.line}"


@dataclass(frozen=True, slots=True)
class _Sets:
    decode: bytes
    encode: bytes
    lines: dict[int, int]  # of each octet in them


def read(source: Source) -> Imported:
    """The profile of the pair of sets in `source`, and the sites of its rules. Raises ConfigurationError."""
    rules = [(rule, _sets(source, rule)) for rule in _rules(source.text)]
    chosen = _chosen(source, [(rule, sets) for rule, sets in rules if sets])
    (first, sets), *_ = chosen
    ring, notes = _ring(sets)
    profile = parse({"imported": f"[path]\nring = {list(ring.forms)}\n"})["imported"]
    writer = SiteWriter(profile)
    others = [str(rule.line) for rule, sets in rules if not any(rule is each for each, _ in chosen)]
    if others:
        notes.append(Note(0, f"rules without these sets are left out: lines {', '.join(others)}"))
    _write(writer, [rule for rule, _ in chosen])
    if writer.sites:
        notes.append(Note(0, _HOST))
    return Imported(
        summary=f"Imported from a remap rule: {printable(first.name.encode())}",
        extends="rfc3986",
        path=path_settings(ring),
        notes=[*(Note(0, text) for text in _ALWAYS), *notes, *writer.notes],
        sites=writer.sites,
    )


def _rules(text: str) -> Iterator[_Rule]:
    rule: _Rule | None = None
    continued = False
    for number, line in enumerate(text.splitlines(), start=1):
        # The script's own documentation shows a rule behind Lua's comment signs.
        words = list(_words(line.strip().removeprefix("--").strip()))
        named = _FIELD.match(" ".join(words))
        starts = words[:1] and not continued and (words[0] in _KINDS or words[0].startswith("regex_"))
        if (
            starts
            or (named and named[1] == "type")
            or (rule is None and any("@pparam=" in word for word in words))
        ):
            if rule is not None:
                yield rule
            rule = _Rule(number)
        if rule is not None and words:
            _read_into(rule, number, words, named, starts=bool(starts))
        continued = line.rstrip().endswith("\\")
    if rule is not None:
        yield rule


def _words(line: str) -> Iterator[str]:
    """Words between blanks, with their quotation marks; what follows a "#" is a comment."""
    for word in _WORD.findall(line):
        if word.startswith("#"):
            return
        if word != "\\":
            yield word


def _read_into(
    rule: _Rule, line: int, words: list[str], named: re.Match[str] | None, *, starts: bool
) -> None:
    if named:
        slot = "kind" if named[1] == "type" else named[1]
        setattr(rule, slot, named[2].strip("'\""))
        return
    if starts:
        rule.kind, rule.target, rule.replacement = ([word.strip("'\"") for word in words] + ["", ""])[:3]
        words = words[3:]
    for word in words:
        text = word.strip("'").removeprefix("@")
        key, _, value = text.partition("=")
        if key == "pparam":
            rule.parameters.append((line, value.strip("\"'")))
        elif key != "plugin" and word.strip("'").startswith("@"):
            rule.options.append((line, word))


def _sets(source: Source, rule: _Rule) -> _Sets | None:
    """The two sets of a rule: those behind the script's name, else the first two that follow one another."""
    parameters = rule.parameters
    for number, (line, value) in enumerate(parameters):
        if _SCRIPT in value:
            pair = parameters[number + 1 : number + 3]
            wrong = [(at, text) for at, text in pair if not _SET.fullmatch(text)]
            if wrong or len(pair) < 2:
                at, text = wrong[0] if wrong else (line, f"{len(pair)} set after {value}")
                raise source.error(
                    at, text, "two sets of octets, each two hexadecimal digits, between blanks"
                )
            return _sets_of(*pair)
    for first, second in pairwise(parameters):
        texts = (first[1], second[1])
        if all(_SET.fullmatch(text) for text in texts) and any(text.strip() for text in texts):
            return _sets_of(first, second)
    return None


def _sets_of(decode: tuple[int, str], encode: tuple[int, str]) -> _Sets:
    octets = {at: bytes.fromhex(text) for at, text in ((0, decode[1]), (1, encode[1]))}
    lines = {octet: line for (line, _), key in ((decode, 0), (encode, 1)) for octet in octets[key]}
    return _Sets(octets[0], octets[1], lines)


def _chosen(source: Source, rules: list[tuple[_Rule, _Sets]]) -> list[tuple[_Rule, _Sets]]:
    """Rules that share one pair of sets."""
    if not rules:
        raise source.error(
            0,
            "no rule with two sets",
            'two @pparam of hexadecimal octets, such as @pparam="3A 2F" @pparam="5B 5D"',
        )
    names = ", ".join(dict.fromkeys(rule.name for rule, _ in rules[:40]))
    picked = [(rule, sets) for rule, sets in rules if source.pick in (None, rule.name, f"line {rule.line}")]
    if not picked:
        raise source.error(0, f"no rule {source.pick}", f"--pick with one of: {names}")
    if len({(frozenset(sets.decode), frozenset(sets.encode)) for _, sets in picked}) > 1:
        raise source.error(0, "rules with different sets", f"--pick with one of: {names}")
    return picked


def _ring(sets: _Sets) -> tuple[DecoderRing, list[Note]]:
    forms = bytearray(RINGS["rfc3986"].forms)
    for octet in sets.decode:
        forms[octet] = DECODE
    for octet in sets.encode:
        forms[octet] = ENCODE
    ring, notes = corrected(bytes(forms), lambda octet: sets.lines.get(octet, 0))
    for octet in sorted(set(sets.decode) & set(sets.encode)):
        text = f"{octet:02X} is in both sets: encoded, since the script encodes last"
        notes.append(Note(sets.lines[octet], text))
    return ring, notes


def _url(text: str) -> Absolute | None:
    """An http or https URL with a host, and at most a path."""
    url = split_absolute(text.encode())
    if url is None or url.scheme not in DEFAULT_PORTS or not url.authority:
        return None
    return None if _UNWELCOME.search(text) else url


def _write(writer: SiteWriter, rules: list[_Rule]) -> None:
    """A site for each host that rules map, with a route for each of their paths."""
    sites: dict[str, tuple[int, list[Mapped]]] = {}
    for rule in rules:
        writer.notes += [
            Note(line, f"{word}: not part of a profile or a route") for line, word in rule.options
        ]
        target, to = _url(rule.target), _url(rule.replacement)
        if not rule.target:
            continue
        if rule.kind != "map" or target is None or to is None:
            text = f"{rule.kind} {rule.target}: only `map` from one http(s) URL to another becomes a route"
            writer.notes.append(Note(rule.line, text))
            continue
        path = target.rest.decode() or "/"
        _, routes = sites.setdefault(target.authority.decode(), (rule.line, []))
        routes.append(Mapped(path, rule.replacement, "canonical", rule.line))
        if path != "/" and path.endswith("/") != rule.replacement.endswith("/"):
            text = f"{path} and {rule.replacement} do not both end with '/': here whole segments are replaced"
            writer.notes.append(Note(rule.line, text))
        if not path.endswith("/"):
            text = f"{path} is a prefix of octets there; here of whole segments: not of {path}x"
            writer.notes.append(Note(rule.line, text))
    for host, (line, routes) in sites.items():
        writer.add(line, [host], routes, "upstream")
