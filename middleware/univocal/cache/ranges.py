"""Byte ranges: asked for, and held (RFC 9110 §14).

`represent.py` answers with them; `combine` in `validation.py` adds one to what is stored (RFC 9111 §3.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from univocal.cache.stored import Part, Stored
from univocal.http.messages import Fields, Response, coding_of, http_date, values, without

# Requests for more ranges than this are answered as if they had asked for all (RFC 9110 §14.2 allows it).
MAX_RANGES: Final = 32

# (first, last), both inclusive; last None: to the end; first None: the last `last` bytes.
RangeSet: TypeAlias = list[tuple[int | None, int | None]]

_SPEC: Final = re.compile(rb"([0-9]{0,18})-([0-9]{0,18})")
_CONTENT_RANGE: Final = re.compile(rb"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.IGNORECASE)


class Slice(NamedTuple):
    """Bytes of a body with their place in the representation, both inclusive."""

    first: int
    last: int
    start: int  # where they begin in the body
    stop: int  # and where they end


def requested_ranges(fields: Fields) -> RangeSet | None:
    """The ranges of a Range field in bytes; None if it is absent, invalid or too long: then it is ignored."""
    lines = values(fields, b"range")
    if len(lines) != 1:
        return None
    unit, _, spec = lines[0].partition(b"=")
    if unit.strip(b" \t").lower() != b"bytes" or spec.count(b",") >= MAX_RANGES:
        return None
    ranges: RangeSet = []
    for piece in spec.split(b","):
        read = _SPEC.fullmatch(piece.strip(b" \t"))
        if read is None or not (read[1] or read[2]):
            return None
        start, end = int(read[1]) if read[1] else None, int(read[2]) if read[2] else None
        if start is not None and end is not None and end < start:
            return None
        ranges.append((start, end))
    return ranges


def excessive(fields: Fields) -> bool:
    """A request asks for so many ranges that its Range is better not passed on."""
    return sum(line.count(b",") for line in values(fields, b"range")) >= MAX_RANGES


def is_strong_match(stored: Stored, validator: bytes) -> bool:
    """Tell whether an If-Range names just this representation: by its entity-tag or date (§13.1.5).

    A date is strong if it is at least a second before the Date (§8.8.2.2).
    """
    validator = validator.strip(b" \t")
    if validator == stored.strong:
        return True
    if validator != stored.last_modified or is_doubted(stored):
        return False
    date = http_date(stored.line(b"date"), stored.response_time)
    return date is not None and stored.modified < date


def has_two_codings(stored: Stored, variants: Sequence[Stored]) -> bool:
    """Tell whether a range of a response may be of other bytes than the origin server's.

    Its entity-tag was seen with two codings, or its content has a coding and others of its key have not.
    """
    if is_doubted(stored):
        return True
    if len(variants) == 1:
        return False
    coding = coding_of(stored.fields)
    others = [one for one in variants if one is not stored and coding_of(one.fields) != coding]
    return bool(others) and (bool(coding) or any(one.etag == stored.etag is not None for one in others))


def is_doubted(stored: Stored) -> bool:
    """Tell whether a strong entity-tag was seen with two codings: it is no strong validator any longer."""
    return stored.strong is None and stored.etag is not None and not stored.etag.startswith(b"W/")


def within(ranges: RangeSet, length: int) -> list[Slice]:
    """The satisfiable ranges of a whole body, those that overlap or touch made one.

    They come in the order in which they were asked for first (RFC 9110 §15.3.7.2).
    """
    spans: list[tuple[int, int]] = []
    for start, end in ranges:
        if start is None:
            begin, stop = max(0, length - (end or 0)), length
        else:
            begin, stop = start, length if end is None else min(end + 1, length)
        if begin < stop:
            spans.append((begin, stop))
    merged: list[tuple[int, int]] = []
    for begin, stop in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((begin, stop))
    if len(merged) > 1:
        merged.sort(
            key=lambda piece: next(i for i, (begin, _) in enumerate(spans) if piece[0] <= begin < piece[1])
        )
    return [Slice(begin, stop - 1, begin, stop) for begin, stop in merged]


def content_range(fields: Fields) -> Part | None:
    """The bytes that a 206 says it holds; None without one valid Content-Range (RFC 9110 §14.4)."""
    lines = values(fields, b"content-range")
    read = _CONTENT_RANGE.fullmatch(lines[0].strip(b" \t")) if len(lines) == 1 else None
    if read is None:
        return None
    part = Part(int(read[1]), int(read[2]), None if read[3] == b"*" else int(read[3]))
    valid = part.first <= part.last and (part.complete is None or part.last < part.complete)
    return part if valid else None


def unified(response: Response) -> Response:
    """The response, but a 206 that has all bytes of its representation is the 200."""
    part = content_range(response.fields) if response.status == 206 else None
    if part is None or part.first or part.complete is None or part.last + 1 != part.complete:
        return response
    bare = without(response.fields, [b"content-range", b"content-length"])
    return replace(response, status=200, fields=[*bare, (b"content-length", b"%d" % part.complete)])


def cut(ranges: RangeSet, part: Part, held: int) -> Slice | None:
    """The part of a 206 with `held` bytes that answers the one range asked for; None if it lacks any of it.

    An origin may have sent fewer bytes than its Content-Range says: places are counted from its first byte,
    or from its last if the representation ends there and the range is a suffix.
    """
    if len(ranges) != 1:
        return None
    start, end = ranges[0]
    at_end = part.complete is not None and part.last == part.complete - 1
    if start is None:
        length = end or 0
        if not at_end or part.complete is None or not 0 < length <= held:
            return None
        return Slice(part.complete - length, part.complete - 1, held - length, held)
    begin = start - part.first
    if not 0 <= begin < held:
        return None
    stop = held if at_end else 0
    if end is not None and (end <= part.last or not at_end):
        stop = end - part.first + 1
    return Slice(start, part.first + stop - 1, begin, stop) if begin < stop <= held else None


def missing(part: Part, held: int) -> tuple[int, int | None] | None:
    """The one range that would make a 206 complete, None if there is no such one."""
    if part.complete is None or part.last - part.first + 1 != held:
        return None
    if part.first == 0 and part.last < part.complete - 1:
        return part.last + 1, None
    if part.first > 0 and part.last == part.complete - 1:
        return 0, part.first - 1
    return None
