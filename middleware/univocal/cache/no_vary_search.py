"""No-Vary-Search names the parts of a query that do not matter (draft-ietf-httpbis-no-vary-search)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from univocal.http.fields import combined, structured
from univocal.http.grammar import unescape
from univocal.http.messages import Fields

# Bytes of the field that are read.
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True)
class NoVarySearch:
    """A variance other than the default: queries it cannot tell apart have the same `canonical` form.

    `ignored` None stands for every parameter but those in `kept`.
    """

    any_order: bool
    ignored: frozenset[bytes] | None
    kept: frozenset[bytes]

    @property
    def names(self) -> frozenset[bytes]:
        """The parameters it names."""
        return self.ignored or self.kept

    def canonical(self, query: bytes) -> bytes:
        """A query's parameters that matter, spelled injectively; it is read as a form (WHATWG URL §5.1)."""
        pieces = [piece for piece in query.split(b"&") if piece]
        if b"%" in query or b"+" in query:
            pairs = [_decoded(piece) for piece in pieces]
        else:
            pairs = [(name, value) for name, _, value in (piece.partition(b"=") for piece in pieces)]
        if self.ignored is None:
            pairs = [pair for pair in pairs if pair[0] in self.kept]
        else:
            pairs = [pair for pair in pairs if pair[0] not in self.ignored]
        if self.any_order:
            pairs.sort(key=lambda pair: pair[0])
        return b"".join(b"%d:%b%d:%b" % (len(name), name, len(value), value) for name, value in pairs)

    def equivalent(self, key: bytes, other: bytes) -> bool:
        """Two cache keys are of one path and of queries that this variance cannot tell apart."""
        (path, query), (other_path, other_query) = split_key(key), split_key(other)
        return path == other_path and self.canonical(query) == self.canonical(other_query)


def split_key(key: bytes) -> tuple[bytes, bytes]:
    """A cache key up to its query, and the query."""
    path, _, query = key.partition(b"?")
    return path, query


def _decoded(piece: bytes) -> tuple[bytes, bytes]:
    name, _, value = piece.replace(b"+", b" ").partition(b"=")
    return (unescape(name), unescape(value)) if b"%" in piece else (name, value)


def no_vary_search(fields: Fields) -> NoVarySearch | None:
    """The variance a response asks for; None for the default one and for what cannot be read (§3)."""
    value = combined(fields, b"no-vary-search")
    if value is None or len(value) > _LONGEST:
        return None
    parsed = structured(value, "dictionary")
    if parsed is None:
        return None
    bare = {name: item[0] for name, item in parsed.items() if isinstance(item, tuple)}
    any_order, params, exceptions = (
        bare.get("key-order", False),
        bare.get("params", False),
        bare.get("except"),
    )
    if not isinstance(any_order, bool):
        return None
    if isinstance(params, bool):
        kept = _strings([] if exceptions is None else exceptions)
        if kept is None or (exceptions is not None and not params):
            return None
        ignored: frozenset[bytes] | None = None if params else frozenset()
    else:
        # "except" makes sense only where all other parameters are ignored.
        ignored, kept = _strings(params), frozenset()
        if ignored is None or exceptions is not None:
            return None
    return NoVarySearch(any_order, ignored, kept) if any_order or ignored is None or ignored else None


def _strings(items: object) -> frozenset[bytes] | None:
    """The names in an inner list of Strings, read like a parameter's name."""
    if not isinstance(items, list) or not all(type(item[0]) is str for item in items):
        return None
    return frozenset(_decoded(item[0].encode())[0] for item in items)
