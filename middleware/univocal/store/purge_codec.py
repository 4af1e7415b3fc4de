"""A purge as bytes, for a journal: netstrings, and a purge of everything if they cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isfinite
from typing import Final

from univocal.cache.stored import Selecting
from univocal.store.codec import netstring, netstrings, optional, read_optional
from univocal.store.journal import Purge
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Selector, Tags, Variants

PatternCompiler = Callable[[str], Pattern]
"""Makes a selector of an expression; raises ValueError."""

# Names of one entry of a journal: a purge of more is several entries.
_MOST_NAMES: Final = 64


def encode_purge(selector: Selector, time: float, cause: bytes) -> bytes:
    """Write all of a purge but its number."""
    soft = b"s" if selector.soft else b"h"
    match selector:
        case Keys(names):
            kind, pieces = b"k", sorted(names)
        case Tags(names, _, origin):
            kind, pieces = b"t", [origin, *sorted(names)]
        case Prefix(names):
            kind, pieces = b"p", sorted(names)
        case Pattern(expression):
            kind, pieces = b"r", [expression.encode()]
        case Variants(variants, until):
            kind, pieces = b"v", [repr(float(until)).encode()]
            for key, vary in variants:
                values = [piece for name, value in vary for piece in (name, optional(value))]
                pieces += [key, b"%d" % len(vary), *values]
        case Everything():
            kind, pieces = b"a", []
    first = b"%b%b%d" % (kind, soft, len(pieces))
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
    return Purge(number, time, replace(selector, soft=True) if first[1:2] == b"s" else selector, cause)


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
    match selector:
        case Keys(names) if len(names) > _MOST_NAMES:
            return [replace(selector, names=some) for some in _parts(names)]
        case Tags(names) if len(names) > _MOST_NAMES:
            return [replace(selector, names=some) for some in _parts(names)]
        case Prefix(names) if len(names) > _MOST_NAMES:
            return [replace(selector, names=some) for some in _parts(names)]
        case Variants(variants) if len(variants) > _MOST_NAMES:
            listed = list(variants)
            parts = [listed[at : at + _MOST_NAMES] for at in range(0, len(listed), _MOST_NAMES)]
            return [replace(selector, names=frozenset(part)) for part in parts]
        case _:
            return [selector]


def _parts(names: frozenset[bytes]) -> list[frozenset[bytes]]:
    listed = sorted(names)
    return [frozenset(listed[at : at + _MOST_NAMES]) for at in range(0, len(listed), _MOST_NAMES)]
