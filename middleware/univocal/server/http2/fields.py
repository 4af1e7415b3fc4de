"""Sections of fields as HPACK has them (RFC 7541): hpack codes them, and what it said is remembered.

Most fields of a response are the same from one to the next, and the head of a stored response is the same
each time: each is encoded once, for all connections, without a table that a connection would keep.

Most fields of a client's request are those of the one before, each in one byte. hpack takes microseconds for
each of them; here a byte is looked up, as long as the connection's table is the same. So is a section without
a change of the table. Other pseudo-header fields, as :path, are looked up among those of all connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import hpack
from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError

from univocal.cache.stored import head_fields
from univocal.http.messages import Field, Fields
from univocal.http.remembering import remember
from univocal.server.http2.head import Head, head_of

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


_OVERHEAD: Final = 32  # bytes that each field counts beside its own (§4.1)
# Whole sections that are remembered, how many bytes one may have, and how many its head.
_MOST: Final = 16
_LONGEST: Final = 128
_LARGEST: Final = 4096
# The first byte of a literal whose name's index takes more bytes. Between 0 and it, the name is that of a
# pseudo-header field: never one that holds a secret, which another client could guess by the time it takes.
_LONG_INDEX: Final = 0x0F


class FieldDecoder:
    """Decodes for one connection, whose table it keeps. Each call raises HPACKError or IndexError."""

    def __init__(self, max_header_list_size: int) -> None:
        self._most = max_header_list_size
        self._decoder = hpack.Decoder(max_header_list_size)
        # Fields by the one byte that stands for each (§6.1), until the table changes.
        self._known: dict[int, Field] = {}
        # Heads by their sections, of those that do not change the table, until it changes.
        self._sections: dict[bytes, Head] = {}

    def head(self, data: bytes) -> Head:
        """The head of a request."""
        known = self._sections.get(data)
        if known is not None:
            return known
        fields, is_fixed = self._read(data)
        head = head_of(fields)
        if is_fixed and len(data) <= _LONGEST and head.octets <= _LARGEST:
            remember(self._sections, data, head, _MOST)
        return head

    def fields(self, data: bytes) -> Fields:
        """The fields of a section."""
        return self._read(data)[0]

    def _read(self, data: bytes) -> tuple[Fields, bool]:
        """The fields of a section; True: the table is as it was."""
        fields: Fields = []
        place, size, known = 0, 0, self._known
        while place < len(data):
            first = data[place]
            if 0x80 < first < 0xFF:
                field = known.get(first) or self._learn(first)
                place += 1
            else:
                end = _literal_end(data, place) if first < 0x20 else 0
                if not end:
                    return fields + self._rest(data[place:], is_first=not fields, size=size), False
                if 0 < first < _LONG_INDEX:
                    field = _literal(data[place:end])
                else:
                    (field,) = self._decoder.decode(data[place:end], raw=True)
                place = end
            fields.append(field)
            size += len(field[0]) + len(field[1]) + _OVERHEAD
            if size > self._most:
                raise OversizedHeaderListError
        return fields, True

    def _learn(self, first: int) -> Field:
        (field,) = self._decoder.decode(bytes((first,)), raw=True)
        self._known[first] = field
        return field

    def _rest(self, data: bytes, *, is_first: bool, size: int) -> Fields:
        """The fields from one on that may change the table."""
        if 0x20 <= data[0] < 0x40 and not is_first:
            raise HPACKDecodingError("A size of the table stands before all fields (§4.2).")
        self._known.clear()
        self._sections.clear()
        fields: Fields = list(self._decoder.decode(data, raw=True))
        size += sum([len(name) + len(value) + _OVERHEAD for name, value in fields])
        if size > self._most:
            raise OversizedHeaderListError
        return fields


_STATELESS: Final = hpack.Decoder()


@lru_cache(maxsize=4096)
def _literal(data: bytes) -> Field:
    """The field of a literal whose name is from the static table, and that enters none (§6.2.2)."""
    (field,) = _STATELESS.decode(data, raw=True)
    return field


def _literal_end(data: bytes, place: int) -> int:
    """The end of a literal that enters no table (§6.2.2, §6.2.3); 0: it is long, or cut, or no such."""
    index = data[place] & 0x0F
    place += 1
    if index == _LONG_INDEX:
        if place >= len(data) or data[place] & 0x80:
            return 0
        place += 1
    for _ in range(1 if index else 2):
        if place >= len(data) or data[place] & 0x7F == 0x7F:
            return 0
        place += 1 + (data[place] & 0x7F)
    return place if place <= len(data) else 0
