"""One description of a profile's stages, from which the exports to every language are written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from univocal.http.errors import ProfileError, by_rank
from univocal.uri.charset import Charset
from univocal.uri.percent_encoding import DECODE, DecoderRing
from univocal.uri.profile import Profile
from univocal.uri.suspicious import SEGMENTS, SUB_DELIMITERS
from univocal.uri.target import MOST_ROUNDS, explain_target, is_restless

Constant: TypeAlias = "bool | int | str | bytes | tuple[Constant, ...]"
"""A value that every language can write."""


class Respelling(NamedTuple):
    """A function of the templates that respells one `part` of a target: "path", "query" or "target".

    Where `bare`, it sees the path without the slash that a later step adds.
    """

    part: str
    function: str
    bare: bool


@dataclass(frozen=True, slots=True)
class Description:
    """A profile as its steps in order, the `constants` that they read, and the `features` that they need."""

    profile: Profile
    steps: tuple[Respelling, ...]
    constants: Mapping[str, Constant]
    features: frozenset[str]


# The function for a stage of the pipeline, where there is only one.
_FUNCTIONS: Final[Mapping[str, str]] = {
    "parameters": "strip_parameters",
    "ring": "respell_path",
    "index-names": "remove_index_name",
    "rewrite": "rewrite",
    "query-allow": "allow_parameters",
    "query-drop": "drop_parameters",
    "query-defaults": "drop_defaults",
    "query-drop-empty": "drop_empty",
    "query-sort": "sort_parameters",
    "query-drop-empty-mark": "drop_empty_mark",
}
_READING_NAMES: Final = frozenset({"allow_parameters", "drop_parameters", "drop_defaults", "sort_parameters"})
_FILTERS: Final = frozenset({"allow_parameters", "drop_parameters", "drop_defaults", "drop_empty"})


def describe(profile: Profile) -> Description:
    """The description of `profile`. Raises ProfileError for settings that no export can have."""
    _refuse(profile)
    steps = tuple(_steps(profile))
    return Description(profile, steps, _constants(profile), frozenset(_features(profile, steps)))


def _refuse(profile: Profile) -> None:
    source = f"profile {profile.name}"
    if profile.charset != Charset():
        raise ProfileError(source, "charset", dict(profile.settings["charset"]), "no charset in an export")
    if profile.ring.unicode_escapes:
        raise ProfileError(source, "path.unicode_escapes", True, "false in an export")
    if profile.query.semicolon == "separates" and profile.query != profile.query.octets_alone:
        allowed = "data or begins in an export, beside other settings of [query]"
        raise ProfileError(source, "query.semicolon", "separates", allowed)
    if profile.mode != "enforce":
        raise ProfileError(source, "reject.mode", profile.mode, "enforce in an export")


def _steps(profile: Profile) -> Iterator[Respelling]:
    """The steps in the pipeline's own order, which it tells for any target."""
    stages, _ = explain_target(b"/", profile)
    adds = profile.trailing_slash == "add"
    for name in dict.fromkeys(stage.name for stage in stages):
        part = "target" if name == "rewrite" else "query" if name.startswith("query") else "path"
        yield Respelling(part, function_of(name, profile), adds and name in {"index-names", "rewrite"})


def function_of(name: str, profile: Profile) -> str:
    """The function of the templates for a step of the pipeline."""
    match name:
        case "slashes":
            if profile.merge_slashes == "leading":
                return "merge_leading_slashes"
            return "remove_empty_segments" if profile.reads_parameters else "merge_slashes"
        case "dot-segments":
            return (
                "remove_dot_segments" if profile.dot_segments == "rfc3986" else "remove_servlet_dot_segments"
            )
        case "trailing-slash":
            return "add_trailing_slash" if profile.trailing_slash == "add" else "remove_trailing_slash"
        case "query":
            return "encode_query" if profile.query.ring is None else "respell_query"
    return _FUNCTIONS[name]


def _constants(profile: Profile) -> Mapping[str, Constant]:
    query = profile.query
    dotted = SUB_DELIMITERS if "dot-segment-parameter" in profile.sequences else b""
    read = dict.fromkeys(b"/" + profile.parameter_delimiters + dotted)
    return {
        "name": profile.name,
        "reasons": by_rank({*profile.sequences, "bad-target", "no-leading-slash"}),
        "rounds": MOST_ROUNDS,
        "path_forms": _forms(profile.ring),
        "path_plus_is_space": profile.ring.plus_is_space,
        "query_forms": _forms(query.ring) if query.ring else "",
        "query_unreserved": query.decodes_unreserved,
        "query_plus_is_space": query.ring is not None and query.ring.plus_is_space,
        "delimiters": profile.parameter_delimiters,
        "sub_delimiters": SUB_DELIMITERS,
        "read_decoded": bytes(octet for octet in read if profile.ring.forms[octet] == DECODE),
        "index_names": profile.index_names,
        "rules": tuple((rule.pattern, rule.output, rule.at) for rule in profile.rewrites),
        "allowed": query.allow or (),
        "dropped": query.drop,
        "defaults": query.defaults,
    }


def _forms(ring: DecoderRing) -> str:
    return "".join(map(str, ring.forms))


def _features(profile: Profile, steps: Collection[Respelling]) -> Iterator[str]:
    """The sections of a template: functions by name, reasons by name, and what several of them need."""
    functions = {step.function for step in steps}
    yield from functions
    yield from profile.sequences
    shared = {
        "semicolon-begins": profile.query.semicolon == "begins",
        "refuses-raw": profile.raw == "refuse",
        "reads-parameters": profile.reads_parameters,
        "merges-slashes": profile.merge_slashes is True,
        "rounds": is_restless(profile),
        "bare": any(step.bare for step in steps),
        "segments": not SEGMENTS.isdisjoint(profile.sequences),
        "filters": bool(functions & _FILTERS),
        "names": bool(functions & _READING_NAMES),
        "globs": bool(functions & {"allow_parameters", "drop_parameters"}),
        "unescape": bool(functions & _READING_NAMES) or "bad-utf-8" in profile.sequences,
    }
    yield from (feature for feature, is_needed in shared.items() if is_needed)
