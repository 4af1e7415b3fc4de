"""WebSocket's frames are counted, not read: where one ends, a close frame may stand (RFC 6455 §5.2). Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["GOING_AWAY", "FrameCounter", "close_frame"]

GOING_AWAY: Final = 1001  # RFC 6455 §7.4.1: a server goes down

_CLOSE: Final = 0x8
_MASKED: Final = 0x80
_LONGEST_HEAD: Final = 14  # octets: two, eight of length, four of the mask


class FrameCounter:
    """Follows one direction of a WebSocket, however its frames are cut into pieces."""

    __slots__ = ("_head", "_left", "closing")

    def __init__(self) -> None:
        self._head = b""  # of a frame, while it is not whole
        self._left = 0  # octets of the frame's payload that are to come
        self.closing = False  # a close frame has passed: no other frame may follow (§5.5.1)

    @property
    def between(self) -> bool:
        """True where a frame may begin."""
        return not (self._head or self._left or self.closing)

    def count(self, octets: bytes) -> None:
        """Take note that `octets` pass."""
        place, size = 0, len(octets)
        while place < size:
            if self._left:
                passed = min(self._left, size - place)
                self._left -= passed
                place += passed
                continue
            before = len(self._head)
            head = self._head + octets[place : place + _LONGEST_HEAD - before]
            length = _head_length(head)
            if not length or len(head) < length:
                self._head = head
                return
            place += length - before
            self._head = b""
            self._left = _payload(head)
            self.closing = self.closing or head[0] & 0x0F == _CLOSE


def close_frame(code: int, *, masked: bool) -> bytes:
    """A close frame; a client's is masked (§5.3), with a key of zeros, since nothing in it is secret."""
    payload = code.to_bytes(2)
    mask = bytes(4) if masked else b""
    return bytes((0x80 | _CLOSE, (_MASKED if masked else 0) | len(payload))) + mask + payload


def _head_length(head: bytes) -> int:
    """The octets of a frame's head that begins so; 0: not known yet."""
    if len(head) < 2:
        return 0
    length = head[1] & 0x7F
    return 2 + (8 if length == 127 else 2 if length == 126 else 0) + (4 if head[1] & _MASKED else 0)


def _payload(head: bytes) -> int:
    length = head[1] & 0x7F
    if length < 126:
        return length
    return int.from_bytes(head[2 : 4 if length == 126 else 10])
