"""Accept-Encoding in few spellings: which of the common codings a client takes (RFC 9110 §12.5.3)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from univocal.cache.vary import LONGEST, weights
from univocal.http.messages import Fields

# In the order in which servers that go by the order are to choose.
_COMMON: Final = (b"zstd", b"br", b"gzip")
_FIELD: Final = b"accept-encoding"


def reduce_codings(fields: Fields) -> Fields:
    """`fields` with an Accept-Encoding that names which of zstd, br and gzip the client takes, or "identity".

    A malformed value, or one above the limit, stays unchanged.
    """
    lines = [value for name, value in fields if name == _FIELD]
    if not lines:
        return fields
    value = b",".join(lines)
    if len(value) > LONGEST:
        return fields
    reduced = _short(value) if len(value) <= 256 else _reduced(value)
    if reduced is None or lines == [reduced]:
        return fields
    return [*[field for field in fields if field[0] != _FIELD], (_FIELD, reduced)]


def codings_taken(value: bytes) -> list[bytes]:
    """The common codings that an Accept-Encoding of this value takes; none if it is malformed."""
    return (_short(value) or b"").split(b", ")


def _reduced(value: bytes) -> bytes | None:
    """The codings of a value that are common; None if it is malformed."""
    read = weights(value)
    if read is None:
        return None
    acceptable: dict[bytes, bool] = {}
    for coding, weight in read:
        name = b"gzip" if coding == b"x-gzip" else coding
        acceptable[name] = acceptable.get(name, True) and weight != b"0"
    others = acceptable.get(b"*", False)
    return b", ".join([coding for coding in _COMMON if acceptable.get(coding, others)]) or b"identity"


_short: Final = lru_cache(maxsize=1024)(_reduced)
