"""From findings to a profile: its settings, why it has them, and a guard that none goes too far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from univocal.http.errors import ProfileError
from univocal.http.grammar import unescape
from univocal.uri.profile import Profile, parse
from univocal.uri.query import split
from univocal.uri.target import canonical_target
from univocal_app.terminal import printable
from univocal_app.terminal import written as as_toml
from univocal_learn.names import WWW, alias_of
from univocal_learn.questions import CUSTOMIZABLE
from univocal_learn.verdicts import CONFIDENCE, Evidence, Finding, verdict_of


@dataclass(frozen=True, slots=True)
class Settings:
    """A learned profile has these settings; each is at rest where nothing is known."""

    decode: bytes = b""
    encode: bytes = b""
    merge_slashes: bool = False
    dot_segments: str = "keep"
    parameters: str = "keep"
    trailing_slash: str = "keep"
    index_names: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    sort: bool = False
    drop_empty_mark: bool = False
    charset: str = ""
    rewrites: tuple[tuple[str, str, str], ...] = ()
    refused: tuple[str, ...] = ("control-character", "fragment", "bad-escape")


# Names that are neither globs nor hard to read.
_NAME: Final = re.compile(rb"[!-%'-)+-<>@-~]+")

_AT_REST: Final = Settings()
# In which order settings are given up where one goes too far.
_GIVEN_UP: Final = (
    *("index_names", "trailing_slash", "drop", "sort", "drop_empty_mark", "charset"),
    *("parameters", "merge_slashes", "dot_segments", "decode", "encode"),
)
# The settings in each table of a profile's file.
_TABLES: Final = {
    "path": (
        *("decode", "encode", "merge_slashes", "dot_segments"),
        *("parameters", "trailing_slash", "index_names"),
    ),
    "query": ("sort", "drop", "defaults", "drop_empty_mark"),
}


def settings_of(findings: Mapping[str, Finding]) -> Settings:
    """The settings that the findings carry, all of them surer than the confidence line."""
    settings = _of_the_path(findings)
    settings = replace(
        settings,
        sort=_same(findings, "query-order"),
        drop_empty_mark=_same(findings, "empty-query"),
        drop=tuple(
            dropped
            for name in findings
            if name.startswith("unused:")
            and name != "unused:zqunused"
            and _same(findings, name)
            and (dropped := parameter_name(name.removeprefix("unused:").encode()))
        ),
        charset=_charset(findings.get("charset")),
    )
    return _guarded(settings, findings)


def parameter_name(octets: bytes) -> str:
    """A parameter's name as `drop` and `defaults` have it, decoded; "" for one that they would misread."""
    name = unescape(octets.replace(b"+", b" "))
    return name.decode() if _NAME.fullmatch(name) else ""


def _same(findings: Mapping[str, Finding], name: str) -> bool:
    finding = findings.get(name)
    return finding is not None and finding.verdict == "same" and finding.confidence > CONFIDENCE


def _proven(findings: Mapping[str, Finding], name: str, part: str) -> bool:
    """A part that stands aside is "same" by itself."""
    return name in findings and verdict_of(findings[name].of(part))[0] == "same"


def _seen(findings: Mapping[str, Finding], name: str, part: str = "") -> bool:
    """Some pair of a part is "same"."""
    return name in findings and any(each.verdict == "same" for each in findings[name].of(part))


def _of_the_path(findings: Mapping[str, Finding]) -> Settings:
    refused = ["control-character", "fragment", "bad-escape"]
    merge, dots = _same(findings, "merge-slashes"), _dots(findings)
    if dots != "keep":
        refused += [
            reason
            for reason, part in (("above-root", "above-root"), ("encoded-dot-segment", "encoded"))
            if not _proven(findings, "dot-segments", part)
        ]
        if merge and not _proven(findings, "merge-slashes", "after-empty"):
            refused.append("dot-dot-after-empty-segment")
    else:
        refused.append("encoded-dot-segment")
    decode, encode = _rings(findings)
    if dots != "keep" and not merge and _seen(findings, "dot-segments", "network-path"):
        dots = "keep"  # behind two slashes they would make another host of a name
        refused.append("dot-segment")
    if b"/" in decode:
        # A slash that is decoded can make dot segments and empty segments: is it read before them or after?
        if merge and not _proven(findings, "merge-slashes", "encoded-slash"):
            decode = decode.replace(b"/", b"")
        elif dots == "keep" or not _proven(findings, "dot-segments", "encoded-slash"):
            dots = "keep"
            refused.append("dot-segment")
    strip = _same(findings, "parameters")
    if strip or dots == "servlet":
        refused += ["dot-segment-parameter", "empty-segment-parameter"]
        refused += [] if b"/" in decode else ["encoded-slash"]
    if strip or dots == "servlet" or _seen(findings, "parameters"):
        # Where ";" begins a parameter, if only one with a certain name, its escape does not.
        decode, encode = decode.replace(b";", b""), encode.replace(b";", b"")
    return Settings(
        decode=decode,
        encode=encode,
        merge_slashes=merge,
        dot_segments=dots,
        parameters="strip" if strip else "keep",
        trailing_slash=_trailing(findings.get("trailing-slash"), merge),
        index_names=_parts(findings.get("index-names")),
        refused=tuple(dict.fromkeys(refused)),
    )


def _dots(findings: Mapping[str, Finding]) -> str:
    if not _same(findings, "dot-segments"):
        return "keep"
    ways = {each.why for each in findings["dot-segments"].of("trailing") if each.verdict == "same"}
    if {"servlet", "rfc3986"} <= ways:
        return "keep"
    return next((way for way in ("servlet", "rfc3986") if way in ways), "rfc3986" if ways else "keep")


def _rings(findings: Mapping[str, Finding]) -> tuple[bytes, bytes]:
    decode, encode = bytearray(), bytearray()
    for octet in CUSTOMIZABLE:
        name = f"ring:{octet:02X}"
        if not _same(findings, name):
            continue
        # Where the origin redirects to one spelling, that one is canonical, lest clients go in circles.
        targets = {each.canonical for each in findings[name].evidence if each.canonical}
        bare = {octet in split(target)[0] for target in targets} if octet != 0x2F else set()
        if bare == {False}:
            encode.append(octet)
        elif len(bare) < 2:
            decode.append(octet)
    return bytes(decode), bytes(encode)


def _trailing(finding: Finding | None, merge: bool) -> str:
    if finding is None or finding.verdict != "same":
        return "keep"
    counted = [each for each in finding.evidence if each.verdict == "same" and each.pair.part != "doubled"]
    ends = {split(each.canonical)[0].endswith(b"/") for each in counted if each.canonical}
    if len(ends) > 1:
        return "keep"  # the origin redirects some pages this way and others that way
    with_slash = sum(split(each.pair.a)[0].endswith(b"/") for each in counted)
    adds = ends == {True} or (not ends and with_slash * 2 > len(counted))
    if adds:
        return "add"
    if any(each.verdict == "different" for each in finding.of("file")):
        return "keep"
    if merge or verdict_of(finding.of("doubled"))[0] == "same":
        return "remove"  # it takes all slashes at the end
    return "keep" if ends else "add"


def _parts(finding: Finding | None) -> tuple[str, ...]:
    """The parts of a question that are "same" by themselves."""
    if finding is None or finding.verdict != "same":
        return ()
    parts = dict.fromkeys(each.pair.part for each in finding.evidence)
    return tuple(part for part in parts if verdict_of(finding.of(part))[0] == "same")


def _charset(finding: Finding | None) -> str:
    """The one charset that fits: where the bytes are those of several, none is known."""
    names = _parts(finding)
    return names[0] if len(names) == 1 else ""


def _guarded(settings: Settings, findings: Mapping[str, Finding]) -> Settings:
    """The settings without those under which two targets become one that the origin tells apart.

    Nor does one stay that makes the spelling canonical from which the origin redirects to the other.
    """
    known = [each for finding in findings.values() for each in finding.evidence]
    for name in _GIVEN_UP:
        alone = replace(_AT_REST, **{name: getattr(settings, name)})
        if alone != _AT_REST and any(circles(each, alone) for each in known):
            settings = _without(settings, name)
    apart = [(each.pair.a, each.pair.b) for each in known if each.verdict == "different"]
    apart += [(each.pair.a, decoy) for each in known if each.verdict == "same" for decoy in each.pair.decoys]
    unavoidable = loaded(_AT_REST)
    apart = [pair for pair in apart if not folded(unavoidable, *pair)]

    def wronged(settings: Settings) -> int:
        profile = loaded(settings)
        return sum(folded(profile, *pair) for pair in apart)

    for name in _GIVEN_UP:
        wrong = wronged(settings)
        if wrong and wronged(without := _without(settings, name)) < wrong:
            settings = without
    return settings


def _without(settings: Settings, name: str) -> Settings:
    return replace(settings, **{name: getattr(_AT_REST, name)})


def folded(profile: Profile, one: bytes, other: bytes) -> bool:
    """The profile makes one of two targets."""
    first = canonical_target(one, profile)
    return isinstance(first, bytes) and first == canonical_target(other, profile)


def spelled(target: bytes, profile: Profile) -> bytes:
    """The target as the profile spells it; as it came where the profile refuses it."""
    canonical = canonical_target(target, profile)
    return canonical if isinstance(canonical, bytes) else target


def circles(evidence: Evidence, settings: Settings | None = None) -> bool:
    """The origin redirects from the canonical spelling of two targets to another, by these settings alone.

    None: by every profile.
    """
    source, target = evidence.pair.b, evidence.canonical
    if target is None or evidence.verdict != "same":
        return False
    plain = loaded(_AT_REST)
    profile = plain if settings is None else loaded(settings)
    if not folded(profile, source, target):
        return False
    canonical = canonical_target(target, profile)
    led_to = target if settings is None else canonical_target(target, plain)
    return canonical == canonical_target(source, plain) and canonical != led_to


def loaded(settings: Settings) -> Profile:
    """The profile of these settings. Raises ProfileError where the loader accepts no such one."""
    return parse({"learned": toml(settings, "learned", {})})["learned"]


def toml(settings: Settings, summary: str, remarks: Mapping[str, Sequence[str]]) -> str:
    """The settings as a profile's file; `remarks` are comments by dotted key, "" being the head."""
    lines = [*_comments(remarks.get("", ())), f"summary = {as_toml(summary)}"]
    tables = {table: {key: plain(settings, key) for key in keys} for table, keys in _TABLES.items()}
    tables |= {"charset": {"path": settings.charset}} if settings.charset else {}
    tables["reject"] = {"sequences": settings.refused}
    for table, values in tables.items():
        lines += ["", f"[{table}]"]
        for key, value in values.items():
            lines += [*_comments(remarks.get(f"{table}.{key}", ())), f"{key} = {as_toml(value)}"]
    for number, rule in enumerate(settings.rewrites):
        lines += ["", *_comments(remarks.get(f"rewrite[{number}]", ())), "[[rewrite]]"]
        lines += [f"{key} = {as_toml(value)}" for key, value in zip(("from", "to", "at"), rule, strict=True)]
    return "\n".join(lines) + "\n"


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"# {line}" for line in lines]


def plain(settings: Settings, key: str) -> object:
    """A setting as a profile's file has it: bytes as tokens between blanks."""
    value = getattr(settings, key)
    return " ".join(map(chr, value)) if isinstance(value, bytes) else value


_KEYS: Final = {
    "merge-slashes": "path.merge_slashes",
    "dot-segments": "path.dot_segments",
    "parameters": "path.parameters",
    "trailing-slash": "path.trailing_slash",
    "index-names": "path.index_names",
    "query-order": "query.sort",
    "empty-query": "query.drop_empty_mark",
    "charset": "charset.path",
    "ring": "path.decode",
    "unused": "query.drop",
    **dict.fromkeys(("unreserved", "escape-case", "case", "plus-space", WWW), ""),
}


def written(findings: Mapping[str, Finding], origin: str, requests: int) -> str:
    """The commented profile of an origin: each setting with its verdict and one pair that shows it."""
    remarks: dict[str, list[str]] = {
        "": [
            f"Written by `univocal probe {printable(origin.encode())}` after {requests} requests.",
            "Each line tells what was found: same, different or unknown. What is unknown became no rule.",
        ]
    }
    if WWW in findings and (names := alias_of(findings[WWW], origin)):
        remarks[""].append(f"Hosts: {names[0]} is {names[1]}: an entry of `aliases`.")
    for finding in findings.values():
        key = _KEYS[finding.name.partition(":")[0]]
        remarks.setdefault(key, []).append(_remark(finding))
    settings = settings_of(findings)
    if not settings.charset:
        remarks[""] += remarks.pop("charset.path", [])
    return toml(settings, f"Learned from {origin}", remarks)


def _remark(finding: Finding) -> str:
    example = next((each for each in finding.evidence if each.verdict == finding.verdict), None)
    sure = f" ({min(finding.confidence, 0.999):.3f})" if finding.verdict == "same" else ""
    remark = f"{finding.name}: {finding.verdict}{sure}"
    return f"{remark}; {_told(example)}" if example is not None else f"{remark}; no page of the sample tells"


def _told(evidence: Evidence) -> str:
    return f"{printable(evidence.pair.a)} and {printable(evidence.pair.b)}: {evidence.why}"


def is_accepted(settings: Settings) -> bool:
    """Tell whether the loader accepts a profile of these settings."""
    try:
        loaded(settings)
    except ProfileError:
        return False
    return True
