"""The fields of responses as HPACK writes them (RFC 7541), without a table that a connection would keep.

Most fields of a response are the same from one to the next, and the head of a stored response is the same
each time: each is encoded once, for all connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import hpack

from univocal.cache.stored import head_fields
from univocal.http.messages import Field

NO_TABLE: Final = b"\x20"
"""A new maximum of 0 for the dynamic table (§6.3), which a connection's first section of fields begins with.

Nothing is ever found in that table, so it has no state. A client that lowers the size of its table must be
told of a new one (§4.2), and 0 is within all sizes.
"""

# Bytes of a field that is remembered.
_SHORT: Final = 128
# Bytes of a head that is remembered.
_LONG: Final = 2048


def _tableless() -> hpack.Encoder:
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    encoder.encode([])  # says so; each connection says it by itself
    return encoder


_ENCODER: Final = _tableless()


@lru_cache(maxsize=4096)
def _remembered(field: Field) -> bytes:
    return _ENCODER.encode([field])


def _encoded(field: Field) -> bytes:
    if len(field[0]) + len(field[1]) <= _SHORT:
        return _remembered(field)
    return _ENCODER.encode([field], huffman=False)


def block_of(fields: Iterable[Field]) -> bytes:
    """These fields, encoded."""
    return b"".join([_encoded(field) for field in fields])


@lru_cache(maxsize=64)
def block_of_status(status: int) -> bytes:
    """The pseudo-header field of a response (RFC 9113 §8.3.2), encoded."""
    return _encoded((b":status", b"%d" % status))


def block_of_head(head: bytes) -> bytes:
    """The fields of a stored response's head (see cache.stored), encoded."""
    return _remembered_head(head) if len(head) <= _LONG else block_of(head_fields(head))


@lru_cache(maxsize=512)
def _remembered_head(head: bytes) -> bytes:
    return block_of(head_fields(head))


def block_of_hit(head: bytes, age: int, lines: bytes) -> bytes:
    """The fields of a hit, encoded: its stored head, its age in seconds, and the lines of its `HitFields`."""
    rest = _remembered_lines(lines) if len(lines) <= _LONG else _block_of_lines(lines)
    return block_of_head(head) + _block_of_age(age) + rest


@lru_cache(maxsize=1024)
def _block_of_age(age: int) -> bytes:
    return _ENCODER.encode([(b"age", b"%d" % age)])


def _block_of_lines(lines: bytes) -> bytes:
    return block_of(head_fields(b"\r\n" + lines))


_remembered_lines: Final = lru_cache(maxsize=512)(_block_of_lines)
