"""Dot segments, slashes and path parameters: the meaning of a path's segments.

Every function takes a path that begins with "/" and gives the same object back if nothing changes.
"""

from __future__ import annotations

import re
from typing import Final

from univocal.uri.percent_encoding import RINGS

_SLASHES: Final = re.compile(rb"/{2,}")
_DOTS: Final = (b".", b"..")


def remove_dot_segments(path: bytes) -> bytes:
    """`path` without "." and ".." segments; a last one leaves its slash: /a/b/.. is /a/ (RFC 3986 §5.2.4)."""
    if path.find(b"/.") < 0:
        return path
    segments = path[1:].split(b"/")
    kept = _walk(segments, segments)
    if segments[-1] in _DOTS:
        kept.append(b"")
    resolved = b"/" + b"/".join(kept)
    return path if resolved == path else resolved


def remove_servlet_dot_segments(path: bytes, parameter: re.Pattern[bytes]) -> bytes:
    """`path` without "." and ".." segments, whatever their parameters: /a/b/.. is /a (Servlet 6.1 §3.5.2)."""
    if path.find(b"/.") < 0:
        return path
    segments = path[1:].split(b"/")
    kept = _walk(segments, [parameter.sub(b"", segment) for segment in segments])
    resolved = b"/" + b"/".join(kept)
    return path if resolved == path else resolved


def _walk(segments: list[bytes], names: list[bytes]) -> list[bytes]:
    kept: list[bytes] = []
    for segment, name in zip(segments, names, strict=True):
        if name == b"..":
            if kept:  # above the root there is nothing to leave: `above-root` refuses that
                kept.pop()
        elif name != b".":
            kept.append(segment)
    return kept


def merge_slashes(path: bytes) -> bytes:
    """`path` with each run of slashes as one."""
    return _SLASHES.sub(b"/", path) if path.find(b"//") >= 0 else path


def merge_leading_slashes(path: bytes) -> bytes:
    """`path` with the slashes at its beginning as one."""
    return b"/" + path.lstrip(b"/") if path.startswith(b"//") else path


def remove_empty_segments(path: bytes, parameter: re.Pattern[bytes]) -> bytes:
    """`path` without empty segments other than the last; one that has only parameters is empty, too."""
    if path.find(b"//") < 0 and not parameter.search(path):
        return path
    segments = path[1:].split(b"/")
    kept = [segment for segment in segments[:-1] if parameter.sub(b"", segment)]
    return path if len(kept) == len(segments) - 1 else b"/" + b"/".join([*kept, segments[-1]])


def strip_parameters(path: bytes, parameter: re.Pattern[bytes]) -> bytes:
    """`path` with the parameters cut off each segment."""
    return parameter.sub(b"", path) if parameter.search(path) else path


def remove_index_name(path: bytes, names: frozenset[bytes]) -> bytes:
    """`path` without a last segment that is one of `names`; the slash before it stays."""
    end = path.rfind(b"/") + 1
    return path[:end] if path[end:] in names else path


def add_trailing_slash(path: bytes) -> bytes:
    """`path` with a slash at its end, unless its last segment has a dot: that is a file's name."""
    last = path[path.rfind(b"/") + 1 :]
    return path if not last or b"." in last else path + b"/"


def remove_trailing_slash(path: bytes) -> bytes:
    """`path` without slashes at its end."""
    return path.rstrip(b"/") or b"/" if path.endswith(b"/") and path != b"/" else path


def routing_view(path: bytes) -> bytes:
    """Routes are chosen by this view: unreserved bytes decoded, no dot segments, the rest untouched."""
    return remove_dot_segments(RINGS["rfc3986"].canonical(path))


def is_under(path: bytes, prefix: bytes) -> bool:
    """`path` begins with the whole segments of `prefix`: /a holds /a and /a/b, /a/ only that."""
    if not path.startswith(prefix):
        return False
    return prefix.endswith(b"/") or len(path) == len(prefix) or path[len(prefix)] == 0x2F
