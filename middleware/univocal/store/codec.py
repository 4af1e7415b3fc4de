"""Stored responses and purges as bytes, for a store behind memory.

A response is compact, versioned, and a miss if it cannot be read. Its description is one line that the
scripts in Redis read, the tags as netstrings, and netstrings that only this module reads:

    FORMAT w|p fresh_until response_time usable_until number-of-tags LF
    tag… numbers etag last_modified strong language (name value)… head

An optional value is "-", or "+" and the value. The content stands beside the description, not in it.

A purge is netstrings alone. One that cannot be read is a purge of everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from math import inf, isfinite
from typing import Final

from univocal.cache.stored import Part, Selecting, Stored
from univocal.store.purge_selectors import (
    Everything,
    Keys,
    Pattern,
    Prefix,
    Purge,
    Selector,
    Tags,
    Variants,
    compiled,
)

FORMAT: Final = 2
# Seconds for which a response is kept beyond its freshness because it may be validated, or served when the
# origin server cannot be reached; and seconds for which anything is kept at most.
KEEP: Final = 3_600.0
LIMIT: Final = 30 * 86_400.0

# A greater number is none of ours: to calculate with it, or to write it, could fail.
_GREATEST: Final = 2.0**53
_UNTAGGED: Final = frozenset[bytes]()  # one for all: each would take 216 bytes
_UNVARIED: Final = sha256().digest()[:16]
# Digits of a netstring's length.
_LENGTH: Final = 9
_TIME: Final = rb"(-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?)"
_FIRST_LINE: Final = re.compile(rb"%d [wp] %b %b \S+ ([0-9]{1,4})\n" % (FORMAT, _TIME, _TIME))
_NUMBERS: Final = re.compile(
    b" ".join((*[b"([01])"] * 4, *[b"([0-9]{1,16})"] * 4, b"(-1|[0-9]{1,16})", *[_TIME] * 4))
)
# A head is written as it is: what stands in it must be lines, none of them empty.
_HEAD: Final = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [^\r\n\0]*\r\n(?:[^\r\n\0:]+: [^\r\n\0]*\r\n)*")


def usable_until(stored: Stored) -> float:
    """The time until which a response can be of use, fresh or stale (seconds since the epoch)."""
    stale = stored.stale_usable or stored.etag is not None or stored.last_modified is not None
    window = max(stored.stale_while_revalidate, stored.stale_if_error, KEEP if stale else 0.0)
    return min(max(stored.fresh_until, stored.response_time) + window, stored.response_time + LIMIT)


def variant(vary: Selecting) -> bytes:
    """A digest of the selecting header fields, 16 bytes, which tells the responses of one key apart."""
    if not vary:
        return _UNVARIED
    selecting = [piece for name, value in vary for piece in (name, optional(value))]
    return sha256(b"".join(map(netstring, selecting))).digest()[:16]


def encode(stored: Stored) -> bytes:
    """The description of a response that has its content; a No-Vary-Search is not told."""
    part = stored.part
    span = f"{part.first} {part.last}" if part is not None else "0 0"
    complete = -1 if part is None or part.complete is None else part.complete
    times = (stored.born, stored.stale_while_revalidate, stored.stale_if_error, stored.modified)
    numbers = (
        f"{stored.no_cache:d} {stored.stale_usable:d} {stored.bodiless:d} {part is not None:d} "
        f"{stored.cost} {len(stored.body)} {span} {complete} "
    ) + " ".join(repr(float(value)) for value in times)
    pieces = [
        *sorted(stored.tags),
        numbers.encode(),
        *map(optional, (stored.etag, stored.last_modified, stored.strong, stored.language)),
        *(piece for name, value in stored.vary for piece in (name, optional(value))),
        stored.head,
    ]
    return _first_line(stored) + b"".join(map(netstring, pieces))


def encode_softened(described: bytes, stored: Stored) -> bytes:
    """The description of a response, with the freshness that a soft purge has left it."""
    return _first_line(stored) + described[described.index(b"\n") + 1 :]


def _first_line(stored: Stored) -> bytes:
    whole, until = "w" if stored.whole else "p", usable_until(stored)
    line = f"{FORMAT} {whole} {stored.fresh_until!r} {stored.response_time!r} {until!r} {len(stored.tags)}\n"
    return line.encode()


def decode(key: bytes, described: bytes, body: bytes | None) -> Stored | None:
    """The response that was encoded, or all but its content; None for any other bytes."""
    try:
        return _decoded(key, described, body)
    except ValueError:
        return None


def _decoded(key: bytes, described: bytes, body: bytes | None) -> Stored:
    first = _FIRST_LINE.match(described)
    if first is None:
        raise ValueError
    fresh_until, response_time, tagged = first.groups()
    pieces, at = netstrings(described, first.end()), int(tagged)
    if len(pieces) < at + 6:
        raise ValueError
    tags, vary, head = pieces[:at], pieces[at + 5 : -1], pieces[-1]
    numbers, status = _NUMBERS.fullmatch(pieces[at]), _HEAD.fullmatch(head)
    if numbers is None or status is None:
        raise ValueError
    no_cache, stale_usable, bodiless, partial, cost, length, start, last, complete, *times = numbers.groups()
    born, stale_while_revalidate, stale_if_error, modified = times
    of_all = None if complete == b"-1" else int(complete)
    if int(cost) < len(head) + int(length) or (body is not None and len(body) != int(length)):
        raise ValueError
    return Stored(
        key=key,
        status=int(status[1]),
        head=head,
        body=body or b"",
        vary=tuple(zip(vary[::2], map(read_optional, vary[1::2]), strict=True)),
        response_time=_time(response_time),
        born=_time(born),
        fresh_until=_time(fresh_until),
        no_cache=no_cache == b"1",
        stale_usable=stale_usable == b"1",
        stale_while_revalidate=_time(stale_while_revalidate),
        stale_if_error=_time(stale_if_error),
        etag=read_optional(pieces[at + 1]),
        last_modified=read_optional(pieces[at + 2]),
        modified=_time(modified),
        strong=read_optional(pieces[at + 3]),
        part=Part(int(start), int(last), of_all) if partial == b"1" else None,
        bodiless=bodiless == b"1",
        language=read_optional(pieces[at + 4]),
        search=None,
        tags=frozenset(tags) if tags else _UNTAGGED,
        reusable=True,
        cost=int(cost),
    )


def netstring(piece: bytes) -> bytes:
    """A piece behind its length."""
    return b"%d:%b" % (len(piece), piece)


def netstrings(octets: bytes, position: int) -> list[bytes]:
    """The netstrings from a position to the end. Raises ValueError."""
    pieces = []
    while position < len(octets):
        begin = octets.find(b":", position, position + _LENGTH + 1) + 1
        length = octets[position : begin - 1] if begin else b""
        if not length.isdigit() or (length[:1] == b"0" and length != b"0"):
            raise ValueError
        position = begin + int(length)
        pieces.append(octets[begin:position])
    if position != len(octets):
        raise ValueError
    return pieces


def _time(text: bytes) -> float:
    value = float(text)
    if abs(value) > _GREATEST:
        raise ValueError
    return value


def optional(value: bytes | None) -> bytes:
    """A value that may be missing, as one that is not."""
    return b"-" if value is None else b"+" + value


def read_optional(piece: bytes) -> bytes | None:
    """The value that `optional` wrote. Raises ValueError."""
    if piece[:1] == b"+":
        return piece[1:]
    if piece != b"-":
        raise ValueError
    return None


# Purges, for a journal

PatternCompiler = Callable[[str], Pattern]
"""Makes a selector of an expression; raises ValueError."""

# Names of one entry of a journal: a purge of more is several entries.
_MOST_NAMES: Final = 64
# Bytes of an entry at most, besides those of its names: a kind, a time, a cause.
_AROUND: Final = 128
_KINDS: Final[dict[type, bytes]] = {
    Keys: b"k",
    Tags: b"t",
    Prefix: b"p",
    Pattern: b"r",
    Variants: b"v",
    Everything: b"a",
}


def encode_purge(selector: Selector, time: float, cause: bytes) -> bytes:
    """Write all of a purge but its number."""
    return _written(selector, time, cause, list(map(netstring, selector.pieces())))


def encode_parts(selector: Selector, time: float, cause: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Write a purge, and each of its parts as a purge of its own, by the name that a later purge of it has.

    Each piece is written once.
    """
    kind = type(selector).__name__.encode() + (b" soft " if selector.soft else b" hard ")
    parts, written = list[tuple[bytes, bytes]](), list[bytes]()
    for one in selector.divided(1):
        pieces = list(map(netstring, one.pieces()))
        name, *_ = one.names() or one.pieces() or [b""]
        parts.append((kind + name, _written(one, time, cause, pieces)))
        written += pieces[one.common :] if written else pieces
    return parts[0][1] if len(parts) == 1 else _written(selector, time, cause, written), parts


def _written(selector: Selector, time: float, cause: bytes, pieces: list[bytes]) -> bytes:
    first = b"%b%b%d" % (_KINDS[type(selector)], b"s" if selector.soft else b"h", len(pieces))
    return b"".join((*map(netstring, (first, repr(float(time)).encode(), cause)), *pieces))


def decode_purge(number: int, octets: bytes, compiler: PatternCompiler | None = compiled) -> Purge:
    """Read a purge. One that cannot be read, or whose pattern cannot be compiled, is of everything.

    Without a compiler none can be: it takes time, and RE2.
    """
    try:
        first, written, cause, *pieces = netstrings(octets, 0)
        time = float(written)
        if int(first[2:]) != len(pieces) or not isfinite(time):
            raise ValueError
        selector = _selector(first[:1], pieces, compiler)
    except (ValueError, IndexError):
        return Purge(number, 0.0, Everything())
    return Purge(number, time, selector.softened() if first[1:2] == b"s" else selector, cause)


def _selector(kind: bytes, pieces: list[bytes], compiler: PatternCompiler | None) -> Selector:
    match kind:
        case b"k":
            return Keys(frozenset(pieces))
        case b"t":
            return Tags(frozenset(pieces[1:]), origin=pieces[0])
        case b"p":
            return Prefix(frozenset(pieces))
        case b"r" if compiler is not None:
            return compiler(pieces[0].decode())
        case b"v":
            return Variants(frozenset(_variants(pieces[1:])), float(pieces[0]))
        case _:
            return Everything()


def _variants(pieces: list[bytes]) -> Iterator[tuple[bytes, Selecting]]:
    while pieces:
        key, count = pieces[0], int(pieces[1])
        values, pieces = pieces[2 : 2 + 2 * count], pieces[2 + 2 * count :]
        if len(values) != 2 * count:
            raise ValueError
        yield key, tuple(zip(values[::2], map(read_optional, values[1::2]), strict=True))


def pieces_of(selector: Selector, most: float = inf) -> list[Selector]:
    """The same purge as several, each with a limited number of names, and with so many bytes at most.

    A name that is longer than that is purged by a shorter one, which means more.
    """
    pieces = list[Selector]()
    for some in selector.divided(_MOST_NAMES):
        if _size(some) <= most:
            pieces.append(some)
        else:
            pieces += [one if _size(one) <= most else one.broader() for one in some.divided(1)]
    return pieces


def _size(selector: Selector) -> int:
    """The bytes that an entry of a journal takes at most for a purge."""
    return _AROUND + sum(_LENGTH + 1 + len(piece) for piece in selector.pieces())
