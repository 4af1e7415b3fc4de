"""Frames as they come, before anything of them is believed: whole, bounded, at a price (RFC 9113 §4)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

LONGEST: Final = 16384
"""Bytes of a frame's payload at most: SETTINGS_MAX_FRAME_SIZE as it is without being said (§6.5.2)."""

LARGEST: Final = 2**31 - 1
"""The largest identifier of a stream, and the largest window in bytes."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a client (§3.4)."""

# A payload's length, in one byte and two, then kind, flags and stream (§4.1).
_PACKED: Final = Struct("!BHBBL")
_pack: Final = _PACKED.pack
_unpack_from: Final = _PACKED.unpack_from
_HEADER: Final = 9

# The types of frames (§6).
DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

# Flags (§6.1, §6.2, §6.5).
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

# The price of a frame of each type, in credits: work or memory of ours that the client does not
# share. A type that is not listed costs one.
_PRICES: Final = {
    HEADERS: 0,  # paid for by the number of streams
    RST_STREAM: 10,  # CVE-2023-44487: the request was begun
    SETTINGS: 10,  # each is acknowledged
    CONTINUATION: 20,  # CVE-2024-27316: a section of fields needs no more than a few
}


class ErrorCode(IntEnum):
    """The reasons for which a stream or a connection ends (§7); others that clients send mean nothing."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFaultError(Exception):
    """Bytes that end the connection (§5.4.1), with the error's code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class Frame:
    """One frame; stream 0 is the connection."""

    __slots__ = ("flags", "kind", "payload", "stream")

    def __init__(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.payload = payload

    @property
    def number(self) -> int:
        """The number that is all of the payload, without its reserved bit (§6.9)."""
        return int.from_bytes(self.payload, "big") & LARGEST

    @property
    def content(self) -> bytes:
        """The payload without its padding (§6.1). Raises ConnectionFaultError."""
        if not self.flags & PADDED:
            return self.payload
        end = len(self.payload) - self.payload[0] if self.payload else 0
        if end < 1:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
        return self.payload[1:end]

    @property
    def price(self) -> int:
        """Its cost, in credits; windows pay for DATA, but for empty frames."""
        if self.kind == DATA:
            is_empty = len(self.payload) <= (
                1 + self.payload[0] if self.flags & PADDED and self.payload else 0
            )
            return 1 if is_empty and not self.flags & END_STREAM else 0
        return _PRICES.get(self.kind, 1)


def frame_header(kind: int, flags: int, stream: int, length: int) -> bytes:
    """The bytes before a payload of so many bytes."""
    return _pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame_of(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame's bytes."""
    return frame_header(kind, flags, stream, len(payload)) + payload


class FrameReader:
    """Cuts a client's bytes into frames, behind the preface."""

    def __init__(self) -> None:
        self._octets = b""
        self._start = -len(PREFACE)  # of the next frame; negative: the preface comes first

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        if self._start > 0:
            self._octets, self._start = self._octets[self._start :], 0
        self._octets = self._octets + data if self._octets else data

    @property
    def is_empty(self) -> bool:
        """No byte is left."""
        return len(self._octets) <= max(self._start, 0)

    def begins(self, kind: int) -> bool:
        """Tell whether a frame of this type has begun to arrive."""
        octets, start = self._octets, self._start
        return start >= 0 and len(octets) > start + 3 and octets[start + 3] == kind

    def next(self) -> Frame | None:
        """The next frame, None if it is not complete. Raises ConnectionFaultError."""
        octets, start = self._octets, self._start
        is_first = start < 0
        if is_first:
            if not octets.startswith(PREFACE[: len(octets)]):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
            start = len(PREFACE)
        if len(octets) < start + _HEADER:
            return None
        high, low, kind, flags, stream = _unpack_from(octets, start)
        length = high << 16 | low
        if length > LONGEST:
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR)
        if is_first and (kind != SETTINGS or flags & ACK):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
        end = start + _HEADER + length
        if len(octets) < end:
            return None
        if end == len(octets):
            self._octets, self._start = b"", 0
        else:
            self._start = end
        return Frame(kind, flags, stream & LARGEST, octets[start + _HEADER : end])


class Credit:
    """A client's account for frames that cost it nothing and us something, in credits.

    A new connection has `MOST`; seconds, answers and content that was sent bring some back. A client that
    asks for what it takes never comes near zero; a flood of PING or RST_STREAM does within `MOST` frames.

    Requests in vain (cancelled, refused, malformed) are paid from an allowance, too: `MOST_IN_VAIN` at first,
    and seconds alone bring some back. A hit costs less than a cancelled miss, and must not pay for one.
    `Session.next` pays for each frame, for RST_STREAM by `waste`.
    """

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
