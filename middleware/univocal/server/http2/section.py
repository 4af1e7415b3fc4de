"""Sections of fields of requests as HPACK has them (RFC 7541): hpack decodes, and what it said is remembered.

Most fields of a client's request are those of the one before, each in one byte. hpack takes microseconds for
each of them; here a byte is looked up, as long as the connection's table is the same. So is a section without
a change of the table. Other pseudo-header fields, as :path, are looked up among those of all connections.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import hpack
from hpack.exceptions import HPACKDecodingError, HPACKError, OversizedHeaderListError

from univocal.http.fields import content_length_value
from univocal.http.messages import Field, Fields
from univocal.http.remembering import remember
from univocal.server.http2.head import Head, head_of

_OVERHEAD: Final = 32  # bytes that each field counts beside its own (§4.1)
_LENGTH: Final = b"content-length"
# Fields for which h2 ends the connection, and names for them that no request may have (RFC 9113 §8.2.1).
_MALFORMED: Final = {_LENGTH: b"Content-Length", b":status": b":Status"}
# Whole sections that are remembered, how many bytes one may have, and how many its head.
_MOST: Final = 16
_LONGEST: Final = 128
_LARGEST: Final = 4096
# The first byte of a literal whose name's index takes more bytes. Between 0 and it, the name is that of a
# pseudo-header field: never one that holds a secret, which another client could guess by the time it takes.
_LONG_INDEX: Final = 0x0F


class FieldDecoder:
    """Decodes for one connection, in the place of hpack's decoder; h2 calls it."""

    __slots__ = (
        "_ahead",
        "_changes",
        "_decoder",
        "_known",
        "_sections",
        "max_allowed_table_size",
        "max_header_list_size",
    )

    def __init__(self, max_header_list_size: int) -> None:
        self.max_header_list_size = max_header_list_size
        self._decoder = hpack.Decoder(max_header_list_size)
        self.max_allowed_table_size = self._decoder.max_allowed_table_size  # h2's; it never changes here
        # Fields by the one byte that stands for each (§6.1), until the table changes.
        self._known: dict[int, Field] = {}
        # Heads and fields by their sections, of those that do not change the table, until it changes.
        self._sections: dict[bytes, tuple[Head, Fields]] = {}
        self._changes = 0  # of the table
        self._ahead: Fields | HPACKError | IndexError | None = None  # of the section that h2 decodes next

    def decode_ahead(self, data: bytes) -> Head | None:
        """The head of a request, before h2 decodes the same section; None: it is faulty.

        Call `decode` next, which gives h2 the same and changes no table again, or `skip`.
        """
        known = self._sections.get(data)
        if known is not None:
            self._ahead = known[1]
            return known[0]
        changes = self._changes
        try:
            self._ahead = fields = self._read(data)
        except (HPACKError, IndexError) as error:
            self._ahead = error
            return None
        head = head_of(fields)
        if changes == self._changes and len(data) <= _LONGEST and head.octets <= _LARGEST:
            remember(self._sections, data, (head, fields), _MOST)
        return head

    def skip(self) -> None:
        """Take note that h2 does not decode the section that was decoded ahead."""
        self._ahead = None

    def decode(self, data: bytes, raw: bool = True) -> Fields:  # noqa: ARG002 - h2 wants bytes
        """The fields of a section. Raises HPACKError.

        h2 would end the connection at lengths that are no number, or differ, and at the status of an interim
        response. Their names are changed to those that make the request malformed, so that its stream alone
        ends (RFC 9113 §8.1.1).
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self._read(data)
        if isinstance(ahead, HPACKError | IndexError):
            raise ahead
        return ahead

    def _read(self, data: bytes) -> Fields:
        fields = self._fields(data)
        lengths = {
            content_length_value(value) if name == _LENGTH else None
            for name, value in fields
            if name in _MALFORMED
        }
        if len(lengths) > 1 or None in lengths:
            return [(_MALFORMED.get(name, name), value) for name, value in fields]
        return fields

    def _fields(self, data: bytes) -> Fields:
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
                    return fields + self._rest(data[place:], is_first=not fields, size=size)
                if 0 < first < _LONG_INDEX:
                    field = _literal(data[place:end])
                else:
                    (field,) = self._decoder.decode(data[place:end], raw=True)
                place = end
            fields.append(field)
            size += len(field[0]) + len(field[1]) + _OVERHEAD
            if size > self.max_header_list_size:
                raise OversizedHeaderListError
        return fields

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
        self._changes += 1
        fields: Fields = list(self._decoder.decode(data, raw=True))
        size += sum([len(name) + len(value) + _OVERHEAD for name, value in fields])
        if size > self.max_header_list_size:
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
