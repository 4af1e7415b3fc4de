"""A stored response is sent whole, in part, or as the news that nothing changed (RFC 9110 §13, §14)."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from univocal.cache.ranges import RangeSet, Slice, cut, is_strong_match, requested_ranges, within
from univocal.cache.stored import Stored
from univocal.cache.validation import CLIENT_CONDITIONS
from univocal.http.messages import (
    RETRIEVAL,
    Fields,
    Request,
    Response,
    combined,
    content_length,
    entity_tag,
    entity_tags,
    first,
    http_date,
    opaque_tag,
    values,
    without,
)

# Metadata that a 304 leaves out: it would describe content that is not sent (RFC 9110 §15.4.5).
_OF_CONTENT: Final = frozenset(
    {
        b"accept-ranges",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-md5",
        b"content-range",
        b"content-type",
    }
)

# More than this is not put together anew for one client that asks for several ranges: it gets everything.
_JOINED_LIMIT: Final = 1_048_576


class Representation(NamedTuple):
    """A final response made from a stored one; its fields are complete but for Via and Cache-Status.

    A range is a view of the stored content: however slow the clients that read it, its bytes are there once.
    """

    status: int
    fields: Fields
    body: bytes | memoryview


def represent(request: Request, stored: Stored, age: int, now: float) -> Representation:
    """The answer to a GET or HEAD from a stored response: its own status, 304, 206 or 416."""
    fields = [*stored.fields, (b"age", b"%d" % age)]
    if 200 <= stored.status < 300 and _unmodified(request.fields, stored.etag, stored.modified, now):
        return Representation(304, without(fields, _OF_CONTENT), b"")
    if request.method == b"HEAD":
        return Representation(stored.status, fields, b"")
    ranges = requested_ranges(request.fields)
    if ranges is None or stored.status not in {200, 206} or not _if_range(request.fields, stored):
        return Representation(stored.status, fields, stored.body)
    if stored.part is not None:
        piece = cut(ranges, stored.part, len(stored.body))
        return _one(stored, fields, piece, stored.part.complete) if piece else _all(stored, fields)
    return _ranges(stored, fields, ranges)


def represent_ahead(request: Request, stored: Stored, fields: Fields) -> tuple[Fields, Slice] | None:
    """The fields of a 206, and its place in a 200 whose content is still coming; None: all of it is sent.

    A server may ignore Range (RFC 9110 §14.2): so it is where the length is not known, or for several ranges.
    """
    ranges, length = requested_ranges(request.fields), content_length(stored.fields)
    if ranges is None or length is None or stored.status != 200 or not _if_range(request.fields, stored):
        return None
    pieces = within(ranges, length)
    return (_placed(fields, pieces[0], length), pieces[0]) if len(pieces) == 1 else None


def not_modified(request: Request, response: Response, now: float) -> Response | None:
    """A 304 in place of a 200 that has just come and has what the client holds already; else None.

    The client's conditions are kept from the origin where its response is to be stored, and applied here.
    """
    if request.method not in RETRIEVAL or not 200 <= response.status < 300:
        return None
    if CLIENT_CONDITIONS.isdisjoint(request.names):
        return None
    modified = http_date(first(response.fields, b"last-modified"), now)
    date = http_date(first(response.fields, b"date"), now)
    since = now if modified is None and date is None else modified if modified is not None else date
    etag = entity_tag(first(response.fields, b"etag"))
    if not _unmodified(request.fields, etag, since or 0, now):
        return None
    return Response(304, without(response.fields, _OF_CONTENT))


def _unmodified(fields: Fields, etag: bytes | None, modified: float, now: float) -> bool:
    """A client's conditions say that it has this representation (RFC 9110 §13.2.2, 9111 §4.3.2)."""
    # When recipient is a cache and If-None-Match is present, evaluate it: "*" is any current representation
    known = combined(fields, b"if-none-match")
    if known is not None:
        if known.strip(b" \t") == b"*":
            return True
        opaque = opaque_tag(etag or b"")
        # The list may have thousands of members: it is taken apart only if the bytes are in it.
        return etag is not None and opaque in known and opaque in map(opaque_tag, entity_tags(known))
    # When If-None-Match is not present, and If-Modified-Since is present, evaluate that; without
    # Last-Modified the Date of the stored response is used, or when it was received
    lines = values(fields, b"if-modified-since")
    since = http_date(lines[0], now) if len(lines) == 1 else None
    return since is not None and modified <= since


def _if_range(fields: Fields, stored: Stored) -> bool:
    """The ranges are wanted of just this representation (RFC 9110 §13.1.5): a strong, exact match."""
    validator = first(fields, b"if-range")
    return validator is None or is_strong_match(stored, validator)


def _all(stored: Stored, fields: Fields) -> Representation:
    return Representation(stored.status, fields, stored.body)


def _ranges(stored: Stored, fields: Fields, ranges: RangeSet) -> Representation:
    length = len(stored.body)
    pieces = within(ranges, length)
    bare = without(fields, [b"content-length", b"content-range"])
    if not pieces:
        unsatisfied = (b"content-range", b"bytes */%d" % length)
        kept = without(
            bare, [b"content-type", b"content-encoding", b"content-language", b"etag", b"last-modified"]
        )
        return Representation(416, [*kept, unsatisfied, (b"content-length", b"0")], b"")
    if len(pieces) == 1:
        return _one(stored, fields, pieces[0], length)
    if sum(piece.stop - piece.start for piece in pieces) > _JOINED_LIMIT:
        # a server MAY ignore the Range header field (RFC 9110 §14.2)
        return _all(stored, fields)
    return _several(stored, bare, pieces)


def _one(stored: Stored, fields: Fields, piece: Slice, complete: int | None) -> Representation:
    body = memoryview(stored.body)[piece.start : piece.stop]
    return Representation(206, _placed(fields, piece, complete), body)


def _placed(fields: Fields, piece: Slice, complete: int | None) -> Fields:
    """The fields of a 206 with one part."""
    bare = without(fields, [b"content-length", b"content-range"])
    length = (b"content-length", b"%d" % (piece.stop - piece.start))
    return [*bare, (b"content-range", _content_range(piece, complete)), length]


def _several(stored: Stored, bare: Fields, pieces: list[Slice]) -> Representation:
    """Several parts as multipart/byteranges (RFC 9110 §14.6)."""
    boundary = _boundary(stored.body)
    content_type = first(bare, b"content-type")
    typed = b"content-type: %b\r\n" % content_type if content_type is not None else b""
    parts = [
        b"--%b\r\n%bcontent-range: %b\r\n\r\n%b\r\n"
        % (boundary, typed, _content_range(piece, len(stored.body)), stored.body[piece.start : piece.stop])
        for piece in pieces
    ]
    body = b"".join([*parts, b"--%b--\r\n" % boundary])
    kind = (b"content-type", b"multipart/byteranges; boundary=%b" % boundary)
    return Representation(
        206, [*without(bare, [b"content-type"]), kind, (b"content-length", b"%d" % len(body))], body
    )


def _content_range(piece: Slice, complete: int | None) -> bytes:
    return b"bytes %d-%d/%b" % (piece.first, piece.last, b"*" if complete is None else b"%d" % complete)


def _boundary(body: bytes) -> bytes:
    """A boundary that does not occur in the body."""
    boundary = blake2b(body[:4096], digest_size=12).hexdigest().encode()
    while boundary in body:
        boundary = blake2b(boundary, digest_size=12).hexdigest().encode()
    return boundary
