"""Frames as they come, before anything of them is believed: whole, of bounded size, at a price (RFC 9113 §4).

h2 waits for a frame of 16 MiB before it says that it is too long, and answers any number of PINGs. So each
frame is cut out here, and paid for from the client's `Credit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

LONGEST: Final = 16384
"""Bytes of a frame's payload at most: SETTINGS_MAX_FRAME_SIZE as it is without being said (§6.5.2)."""

FRAME_HEADER: Final = 9
"""Bytes of a frame before its payload (§4.1)."""

# A payload's length, in one byte and two, then kind, flags and stream (§4.1).
_PACKED: Final = Struct("!BHBBL")
_pack: Final = _PACKED.pack
_unpack_from: Final = _PACKED.unpack_from
_PREFACE: Final = 24  # bytes of the client's connection preface (§3.4)


class Kind(IntEnum):
    """The types of frames (§6)."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntEnum):
    """The flags that are read here (§6.1, §6.2)."""

    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


_OF_FIELDS: Final = (Kind.HEADERS, Kind.CONTINUATION)
_WITH_MORE: Final = (Kind.SETTINGS, Kind.WINDOW_UPDATE)  # they may have parts that are to be ignored
_SETTING: Final = 6  # bytes of a setting: its identifier in two, its value in four (§6.5.1)
_LATEST_SETTING: Final = 6  # SETTINGS_MAX_HEADER_LIST_SIZE; others mean nothing here
_RESERVED: Final = 0x80  # the first bit of a WINDOW_UPDATE

# The price of a frame of each type, in credits: work or memory of ours that the client does not
# share. A type that is not listed costs one.
_PRICES: Final = {
    Kind.DATA: 0,  # paid for by windows, but for empty ones
    Kind.HEADERS: 0,  # paid for by the number of streams
    Kind.RST_STREAM: 10,  # CVE-2023-44487: the request was begun
    Kind.SETTINGS: 10,  # each is acknowledged
    Kind.CONTINUATION: 20,  # CVE-2024-27316: a section of fields needs no more than a few
}


class FrameTooLongError(Exception):
    """A frame is longer than SETTINGS_MAX_FRAME_SIZE allows."""


class NoSettingsError(Exception):
    """The first frame behind the preface is not the client's SETTINGS (§3.4)."""


@dataclass(slots=True, init=False)
class Frame:
    """One frame; `octets` are all of it."""

    kind: int
    flags: int
    stream: int  # its stream's identifier; 0 is the connection
    length: int  # of its payload
    octets: bytes
    is_within_section: bool  # a section of fields has begun before it and not ended

    def __init__(
        self,
        kind: int,
        flags: int,
        stream: int,
        length: int,
        octets: bytes,
        is_within_section: bool = False,
    ) -> None:
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.length = length
        self.octets = octets
        self.is_within_section = is_within_section

    @property
    def number(self) -> int:
        """The number that a WINDOW_UPDATE or RST_STREAM frame of four bytes has (§6.4, §6.9)."""
        return int.from_bytes(self.octets[FRAME_HEADER:], "big")

    @property
    def content(self) -> int:
        """The bytes of content in a DATA frame, without its padding (§6.1)."""
        if self.flags & Flag.PADDED and self.length:
            return self.length - 1 - self.octets[FRAME_HEADER]
        return self.length

    @property
    def price(self) -> int:
        """Its cost, in credits."""
        if self.kind == Kind.DATA:
            return 0 if self.content > 0 or self.flags & Flag.END_STREAM else 1
        return _PRICES.get(self.kind, 1)  # type: ignore[call-overload, no-any-return]


def frame_of(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame's bytes."""
    length = len(payload)
    return _pack(length >> 16, length & 0xFFFF, kind, flags, stream) + payload


def _essential(kind: int, flags: int, stream: int, octets: bytes) -> bytes:
    """A SETTINGS or WINDOW_UPDATE frame without the parts that are to be ignored.

    h2 would keep a kilobyte for each setting that it does not know (§6.5.2), and refuses a reserved bit that
    is set (§6.9).
    """
    payload = octets[FRAME_HEADER:]
    if kind == Kind.WINDOW_UPDATE:
        if len(payload) == 4 and payload[0] & _RESERVED:
            return frame_of(kind, flags, stream, bytes((payload[0] & ~_RESERVED,)) + payload[1:])
    elif not (flags & Flag.ACK or len(payload) % _SETTING):
        settings = [payload[start : start + _SETTING] for start in range(0, len(payload), _SETTING)]
        known = [each for each in settings if each[0] == 0 and 0 < each[1] <= _LATEST_SETTING]
        if len(known) < len(settings):
            return frame_of(kind, flags, stream, b"".join(known))
    return octets


class FrameReader:
    """Cuts a client's bytes into frames; the preface is the first of them, of no kind."""

    __slots__ = ("_has_settings", "_in_fields", "_octets", "_start")

    def __init__(self) -> None:
        self._octets = b""
        self._start = -_PREFACE  # of the next frame; negative: the preface comes first
        self._in_fields = False  # a section of fields has begun and not ended
        self._has_settings = False  # the first frame has come

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if self._start > 0:
            self._octets, self._start = self._octets[self._start :], 0
        self._octets = self._octets + data if self._octets else data

    @property
    def is_empty(self) -> bool:
        """No byte is left."""
        return len(self._octets) <= max(self._start, 0)

    @property
    def awaits_fields(self) -> bool:
        """A section of fields has begun to arrive, and its end has not come."""
        octets, start = self._octets, self._start
        begun = start >= 0 and len(octets) > start + 3 and octets[start + 3] == Kind.HEADERS
        return self._in_fields or begun

    def preface(self) -> bytes | None:
        """The bytes in the place of the preface, once; None: they have not come, or were given before."""
        if self._start >= 0 or len(self._octets) < _PREFACE:
            return None
        self._start = _PREFACE
        return self._octets[:_PREFACE]

    def next(self) -> Frame | None:
        """The next frame, None if it is not complete. Raises FrameTooLongError and NoSettingsError."""
        octets, start = self._octets, self._start
        if start < 0 or len(octets) < start + FRAME_HEADER:
            return None
        high, low, kind, flags, stream = _unpack_from(octets, start)
        length = high << 16 | low
        if length > LONGEST:
            raise FrameTooLongError
        if not self._has_settings:
            if kind != Kind.SETTINGS or flags & Flag.ACK:
                raise NoSettingsError
            self._has_settings = True
        end = start + FRAME_HEADER + length
        if len(octets) < end:
            return None
        self._start = end
        within = self._in_fields
        if kind in _OF_FIELDS:
            self._in_fields = not flags & Flag.END_HEADERS
        if start == 0 and end == len(octets):
            self._octets, self._start = b"", 0
        else:
            octets = octets[start:end]
        stream &= 0x7FFFFFFF
        if kind in _WITH_MORE:
            octets = _essential(kind, flags, stream, octets)
        return Frame(kind, flags, stream, len(octets) - FRAME_HEADER, octets, within)


class Credit:
    """A client's account for frames that cost it nothing and us something, in credits.

    A new connection has `MOST`; seconds, answers and content that was sent bring some back. A client that
    asks for what it takes never comes near zero; a flood of PING or RST_STREAM does within `MOST` frames.

    Requests in vain (cancelled, refused, malformed) have an allowance beside it: `MOST_IN_VAIN` at first, and
    seconds alone bring some back. A hit costs less than a miss that is cancelled, and must not pay for one.
    """

    __slots__ = ("_left", "_left_in_vain", "_since", "_since_in_vain")

    MOST_IN_VAIN: Final = 600
    IN_VAIN_A_SECOND: Final = 10

    MOST: Final = 1000
    A_SECOND: Final = 10
    AN_ANSWER: Final = 12  # as much as cancelling a request costs, and two updates of windows
    A_PIECE: Final = 2  # a frame of content that was sent, for which a client may update two windows

    def __init__(self, now: float) -> None:
        self._left = float(self.MOST)
        self._left_in_vain = float(self.MOST_IN_VAIN)
        self._since = self._since_in_vain = now

    def spend(self, price: int, now: float) -> bool:
        """Pay for a frame; False: the client cannot."""
        if not price:
            return True
        self._left = min(self.MOST, self._left + (now - self._since) * self.A_SECOND) - price
        self._since = now
        return self._left >= 0

    def waste(self, price: int, now: float) -> bool:
        """Pay for a request in vain; False: the client cannot."""
        regained = (now - self._since_in_vain) * self.IN_VAIN_A_SECOND
        self._left_in_vain = min(self.MOST_IN_VAIN, self._left_in_vain + regained) - 1
        self._since_in_vain = now
        return self.spend(price, now) and self._left_in_vain >= 0

    def earn(self, gain: int) -> None:
        """Give some back."""
        self._left += gain
