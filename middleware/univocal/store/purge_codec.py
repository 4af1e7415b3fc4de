"""A purge as bytes, for a journal: netstrings, and a purge of everything if they cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Final

from univocal.cache.stored import Selecting
from univocal.store.codec import netstring, netstrings, read_optional
from univocal.store.journal import Purge
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Selector, Tags, Variants

PatternCompiler = Callable[[str], Pattern]
"""Makes a selector of an expression; raises ValueError."""

# Names of one entry of a journal: a purge of more is several entries.
_MOST_NAMES: Final = 64
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
    pieces = selector.pieces()
    first = b"%b%b%d" % (_KINDS[type(selector)], b"s" if selector.soft else b"h", len(pieces))
    return b"".join(map(netstring, [first, repr(float(time)).encode(), cause, *pieces]))


def decode_purge(number: int, octets: bytes, compiler: PatternCompiler | None) -> Purge:
    """Read a purge. One that cannot be read, or whose pattern cannot be compiled, is of everything."""
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


def pieces_of(selector: Selector) -> list[Selector]:
    """The same purge as several, each with a limited number of names."""
    return selector.divided(_MOST_NAMES)
