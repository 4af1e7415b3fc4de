"""The stages that a profile puts a target through: one pipeline to canonicalize and to explain."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from univocal.errors import by_rank
from univocal.uri import query as queries
from univocal.uri import segments
from univocal.uri.profile import Profile
from univocal.uri.ring import spellings
from univocal.uri.suspicious import UTF_8, Inspector

__all__ = ["Rejected", "Stage", "canonical_target", "explain_target", "rejected", "split"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a profile: the target before and after it; `lossy` if it drops what an origin may read."""

    name: str
    before: bytes
    after: bytes
    lossy: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a target is refused; `reason` is the first of `reasons`."""

    reason: str
    reasons: tuple[str, ...]


def canonical_target(target: bytes, profile: Profile) -> bytes | Rejected:
    """The canonical form of an origin-form `target`, the same object if it is canonical already."""
    pipeline = _pipeline(profile)
    if pipeline.plain.fullmatch(target):
        return target
    return pipeline.run(target, None)


def explain_target(target: bytes, profile: Profile) -> tuple[list[Stage], bytes | Rejected]:
    """What `canonical_target` gives, and each stage on the way, even of a target that is rejected."""
    stages: list[Stage] = []
    result = _pipeline(profile).run(target, stages)
    return stages, result


# The path and the query of a target; the query is b"" or begins with "?".
_Parts: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    respell: Callable[[bytes, bytes], _Parts]
    lossy: bool = False


def _on_path(respell: Callable[[bytes], bytes]) -> Callable[[bytes, bytes], _Parts]:
    return lambda path, query: (respell(path), query)


class _Pipeline:
    """What a profile does to a target, in order; `plain` matches targets to which it does nothing."""

    __slots__ = ("_inspect", "_refuses_fragment", "_steps", "plain")

    def __init__(self, profile: Profile) -> None:
        self.plain = _plain(profile)
        self._steps = tuple(_steps(profile))
        self._refuses_fragment = "fragment" in profile.sequences
        self._inspect = Inspector(
            frozenset(profile.sequences),
            profile.ring.decoded,
            profile.parameter_delimiters,
            reads_parameters=profile.reads_parameters,
            merges=profile.merge_slashes,
        )

    def run(self, target: bytes, stages: list[Stage] | None) -> bytes | Rejected:
        received, fragment, _ = target.partition(b"#")
        path, query = split(received)
        reasons = self._inspect(path)
        if fragment:
            if self._refuses_fragment:
                reasons.add("fragment")
            if stages is not None:
                stages.append(Stage("fragment", target, received, lossy=True))
        if not path.startswith(b"/"):
            return rejected("no-leading-slash", *reasons)
        if not reasons or stages is not None:
            path, query = self._respelled(path, query, stages)
        if reasons:
            return rejected(*reasons)
        respelled = path + query
        return target if respelled == target else respelled

    def _respelled(self, path: bytes, query: bytes, stages: list[Stage] | None) -> _Parts:
        for step in self._steps:
            before = path + query if stages is not None else b""
            path, query = step.respell(path, query)
            if stages is not None:
                stages.append(Stage(step.name, before, path + query, step.lossy))
        return path, query


def _steps(profile: Profile) -> list[_Step]:
    parameter = segments.parameter_pattern(profile.parameter_delimiters)
    steps = []
    if profile.parameters == "strip":
        steps.append(
            _Step("parameters", _on_path(lambda path: segments.strip_parameters(path, parameter)), lossy=True)
        )
    steps.append(_Step("ring", _on_path(profile.ring.canonical)))
    if profile.merge_slashes and profile.reads_parameters:
        steps.append(_Step("slashes", _on_path(lambda path: segments.remove_empty_segments(path, parameter))))
    elif profile.merge_slashes:
        steps.append(_Step("slashes", _on_path(segments.merge_slashes)))
    # After the ring, since decoding can create dot segments.
    if profile.dot_segments == "rfc3986":
        steps.append(_Step("dot-segments", _on_path(segments.remove_dot_segments)))
    elif profile.dot_segments == "servlet":
        steps.append(
            _Step(
                "dot-segments", _on_path(lambda path: segments.remove_servlet_dot_segments(path, parameter))
            )
        )
    steps.append(_Step("query", lambda path, query: (path, queries.encode_disallowed(query))))
    return steps


def _plain(profile: Profile) -> re.Pattern[bytes]:
    """What matches canonical targets only, most of them: no dot begins a segment, nothing is suspicious."""
    ring = profile.ring
    bare = set(ring.bare) - set(b"/?#\\") - set(profile.parameter_delimiters)
    escaped = set(ring.escaped) - set(b"/\\") - set(range(0x20)) - {0x7F}
    unit = spellings(bare, escaped)
    if "bad-utf-8" in profile.sequences:
        unit = b"(?:%b|%b)" % (spellings(bare, escaped - set(range(0x80, 0x100))), UTF_8)
    segment = b"/(?![./])" if profile.merge_slashes else b"/(?!\\.)"
    query = b"(?:\\?(?:[%b]++|%%[0-9A-Fa-f]{2})*+)?+" % re.escape(queries.BARE)
    return re.compile(b"(?:%b%b*+)++%b" % (segment, unit, query))


@lru_cache(maxsize=1024)
def _pipeline(profile: Profile) -> _Pipeline:
    return _Pipeline(profile)


def split(target: bytes) -> tuple[bytes, bytes]:
    """A target's path and its query, which is b"" or begins with "?"."""
    mark = target.find(b"?")
    return (target, b"") if mark < 0 else (target[:mark], target[mark:])


def rejected(*reasons: str) -> Rejected:
    """Refused for `reasons`, in their order of precedence."""
    ranked = by_rank(reasons)
    return Rejected(ranked[0], ranked)
