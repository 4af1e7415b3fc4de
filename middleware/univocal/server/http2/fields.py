"""Sections of fields: hpack codes them (RFC 7541), and a request's has a head (RFC 9113 §8.2, §8.3). Pure.

A head's fields come as they were decoded, unchecked. A *malformed* head ends its stream with an error; other
faults are refused with a problem, as over HTTP/1.1. Conclusions from the names alone are cached for each
list of names: most clients send the same few.

Most fields of a response are the same from one to the next, and the head of a stored response is the same
each time: each is encoded once, for all connections, without a table that a connection would keep.

Most fields of a client's request are those of the one before, each in one byte. hpack takes microseconds for
each of them; here a byte is looked up, as long as the connection's table is the same. So is a section without
a change of the table. Other pseudo-header fields, as :path, are looked up among those of all connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import hpack
from hpack.exceptions import HPACKDecodingError, OversizedHeaderListError

from univocal.cache.stored import head_fields
from univocal.http.grammar import split_absolute
from univocal.http.messages import Field, Fields, content_length_value
from univocal.http.tables import remember

# A name in capitals is malformed (§8.2.1), and so is one that is no token; a comma is in none.
_NAMES: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+(?:,[!#$%&'*+\-.^_`|~0-9a-z]+)*")
# A control character, or a blank at either end of a value; values are joined by line feeds.
_FAULTY_VALUE: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|(?:\A|\n)[ \t]|[ \t](?:\n|\Z)")
_METHOD: Final = re.compile(rb"[A-Z][A-Z_-]{0,31}")
# With one of these a message is malformed (§8.2.2); TE may say "trailers".
_OF_A_CONNECTION: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_PSEUDO: Final = (b":method", b":scheme", b":path", b":authority", b":protocol")
_LONGEST_NAMES: Final = 2048  # bytes of a list of names that is remembered
_MALFORMED: Final = ("bad-framing",)


@dataclass(slots=True, init=False)
class Head:
    """A request's head as HTTP/1.1 would have it; `reasons` are faults that only this version can have."""

    method: bytes
    target: bytes
    names: tuple[bytes, ...]  # of the fields: Host first, the cookies in one
    values: tuple[bytes, ...]
    octets: int  # of the target, the names and the values
    reasons: tuple[str, ...]
    is_malformed: bool

    def __init__(
        self,
        method: bytes,
        target: bytes,
        names: tuple[bytes, ...],
        values: tuple[bytes, ...],
        reasons: tuple[str, ...] = (),
        is_malformed: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.names = names
        self.values = values
        self.octets = len(target) + sum(map(len, names)) + sum(map(len, values))
        self.reasons = reasons
        self.is_malformed = is_malformed

    def malformed(self) -> Head:
        """The same head, which ends its stream with an error."""
        return Head(self.method, self.target, self.names, self.values, _MALFORMED, True)

    @property
    def fields(self) -> Fields:
        """The header fields."""
        return list(zip(self.names, self.values, strict=True))

    @property
    def length(self) -> int | None:
        """The Content-Length, if there is one that is a number."""
        if b"content-length" not in self.names:
            return None
        return content_length_value(self.values[self.names.index(b"content-length")])


class _Shape(NamedTuple):
    """The conclusions from the names of a section of fields."""

    pseudo: tuple[int, ...]  # the place of each of `_PSEUDO`, -1 if it is not there
    start: int  # the number of pseudo-header fields, which come first
    names: tuple[bytes, ...]  # of the fields, behind Host
    is_malformed: bool
    is_plain: bool  # there is an authority, no Host and no TE, and one Cookie at most
    has_length: bool  # Content-Length is among them


def head_of(section: Sequence[Field]) -> Head:
    """The head that these fields make, pseudo-header fields among them."""
    names = tuple([name for name, _ in section])
    values = tuple([value for _, value in section])
    shape = _known_shape(names) if sum(map(len, names)) <= _LONGEST_NAMES else _shape(names)
    method, scheme, path, authority, protocol = [
        values[place] if place >= 0 else None for place in shape.pseudo
    ]
    malformed = shape.is_malformed or _lacks(method, scheme, path, authority, protocol) or _are_faulty(values)
    malformed = malformed or (shape.has_length and not _has_one_length(section))
    target = (authority if method == b"CONNECT" and path is None else path) or b""
    if shape.is_plain and not malformed and target[:1] == b"/" and protocol is None:
        return Head(
            method or b"", target, (b"host", *shape.names), (authority or b"", *values[shape.start :])
        )
    fields = [field for field in section if field[0][:1] != b":"]
    if any(name == b"te" and value.lower() != b"trailers" for name, value in fields):
        malformed = True
    reasons = list(_MALFORMED) if malformed else []
    if split_absolute(target) is not None or protocol is not None:
        reasons.append("bad-target")  # no :path is absolute (§8.3.1), and no extended CONNECT was offered
    fields, hosts = _for_everybody(fields, authority)
    if len(hosts) > 1:
        reasons.append("bad-host")
    own, contents = tuple([name for name, _ in fields]), tuple([value for _, value in fields])
    return Head(method or b"", target, own, contents, tuple(reasons), malformed)


def is_trailer_section(fields: Sequence[Field]) -> bool:
    """Tell whether these fields may stand behind content (§8.1): no pseudo-header field is among them."""
    names = tuple([name for name, _ in fields])
    return _are_names(names) and (b"content-length" not in names or _has_one_length(fields))


def _shape(names: tuple[bytes, ...]) -> _Shape:
    count = next((place for place, name in enumerate(names) if name[:1] != b":"), len(names))
    first, others = names[:count], names[count:]
    pseudo = tuple([first.index(name) if name in first else -1 for name in _PSEUDO])
    strange = len(set(first)) < count or not set(first).issubset(_PSEUDO)
    plain = b":authority" in first and b"host" not in others and b"te" not in others
    return _Shape(
        pseudo,
        count,
        others,
        strange or not _are_names(others),
        plain and others.count(b"cookie") < 2 and others.count(b"content-length") < 2,
        b"content-length" in others,
    )


_known_shape: Final = lru_cache(maxsize=1024)(_shape)


def _lacks(
    method: bytes | None,
    scheme: bytes | None,
    path: bytes | None,
    authority: bytes | None,
    protocol: bytes | None,
) -> bool:
    """A pseudo-header field is missing, or has a value that it cannot have (§8.3.1)."""
    if method is None or _METHOD.fullmatch(method) is None:
        return True
    if method == b"CONNECT" and protocol is None:
        return scheme is not None or path is not None or authority is None
    return not (scheme and path) or (protocol is not None and method != b"CONNECT")


def _are_faulty(values: tuple[bytes, ...]) -> bool:
    joined = b"\n".join(values)
    return joined.count(b"\n") >= len(values) > 0 or _FAULTY_VALUE.search(joined) is not None


def _has_one_length(fields: Iterable[Field]) -> bool:
    """Tell whether all Content-Length fields say the same number (§8.1.1)."""
    lengths = {content_length_value(value) for name, value in fields if name == b"content-length"}
    return len(lengths) == 1 and None not in lengths


def _are_names(names: tuple[bytes, ...]) -> bool:
    """Tell whether these are field names, and none of them a connection's."""
    if not names:
        return True
    joined = b",".join(names)
    return (
        joined.count(b",") == len(names) - 1
        and _NAMES.fullmatch(joined) is not None
        and _OF_A_CONNECTION.isdisjoint(names)
    )


def _for_everybody(fields: Fields, authority: bytes | None) -> tuple[Fields, set[bytes]]:
    """The fields with one Host and one Cookie, and the hosts that are named (§8.2.3, §8.3.1)."""
    hosts = {value.lower() for name, value in fields if name == b"host"}
    if authority is not None:
        hosts.add(authority.lower())
        fields = [(b"host", authority), *[field for field in fields if field[0] != b"host"]]
    cookies = [value for name, value in fields if name == b"cookie"]
    if len(cookies) > 1:
        place = [name for name, _ in fields].index(b"cookie")
        fields = [field for field in fields if field[0] != b"cookie"]
        fields.insert(place, (b"cookie", b"; ".join(cookies)))
    return fields, hosts


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


@lru_cache(maxsize=512)
def _remembered_head(head: bytes) -> bytes:
    return block_of(head_fields(head))


def block_of_hit(head: bytes, age: int, lines: bytes) -> bytes:
    """The fields of a hit, encoded: its stored head, its age in seconds, and the lines of its `HitFields`."""
    first = _remembered_head(head) if len(head) <= _LONG else block_of(head_fields(head))
    rest = _remembered_lines(lines) if len(lines) <= _LONG else _block_of_lines(lines)
    return first + _block_of_age(age) + rest


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
        """The fields of a section; True: the table is as it was.

        One that is longer than its fields may be is not decoded: Huffman codes may take four times the bytes.
        """
        if len(data) > self._most:
            raise OversizedHeaderListError
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
