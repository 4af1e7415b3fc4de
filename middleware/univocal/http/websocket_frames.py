"""WebSocket's frames are counted, not read: where one ends, a close frame may stand (RFC 6455 §5.2). Pure."""

from __future__ import annotations

from typing import Final

GOING_AWAY: Final = 1001  # RFC 6455 §7.4.1: a server goes down

_CLOSE: Final = 0x8
_MASKED: Final = 0x80
_LONGEST_HEAD: Final = 14  # bytes: two, eight of length, four of the mask
_MOST: Final = 4096  # frames that are counted in one go: some milliseconds' work


class FrameCounter:
    """Follows one direction of a WebSocket, however its frames are cut into pieces."""

    def __init__(self) -> None:
        self._head = b""  # of a frame, while it is not whole
        self._left = 0  # bytes of the frame's payload that are to come
        self.closing = False  # a close frame has passed, behind which there is none (§5.5.1)

    @property
    def between(self) -> bool:
        """True where a frame may begin."""
        return not (self._head or self._left or self.closing)

    def count(self, octets: bytes) -> None:
        """Count `octets` that pass."""
        place, size = self._left, len(octets)
        if place >= size or self.closing:
            self._left -= size
            return
        if self._head:
            place = self._complete(octets)
        for _ in range(_MOST):
            if place + _LONGEST_HEAD > size:
                break
            # Nearly all frames begin here: nothing is called, as there may be thousands of them.
            second = octets[place + 1]
            length = second & 0x7F
            if octets[place] & 0x0F == _CLOSE:
                self.closing = True
            if length > 125:
                place += _head_length(octets[place : place + 2]) + _payload(octets[place : place + 10])
            else:
                place += length + 6 if second & _MASKED else length + 2
        else:
            self.closing = True  # whoever sends so many in one go is not told goodbye
            return
        while place < size:
            place = self._begin(octets, place)
        self._left = place - size

    def _complete(self, octets: bytes) -> int:
        """Go on with a head that was cut; the place behind its frame."""
        before = self._head
        self._head = b""
        return self._begin(before + octets[:_LONGEST_HEAD], 0) - len(before)

    def _begin(self, octets: bytes, place: int) -> int:
        """Begin with a frame whose head may be cut; the place behind it, which may be yet to come."""
        head = octets[place : place + _LONGEST_HEAD]
        length = _head_length(head)
        if not length or len(head) < length:
            self._head = head
            return place + len(head)
        self.closing = self.closing or head[0] & 0x0F == _CLOSE
        return place + length + _payload(head)


def close_frame(code: int, *, masked: bool) -> bytes:
    """A close frame; a client's is masked (§5.3), with a key of zeros, since nothing in it is secret."""
    payload = code.to_bytes(2)
    mask = bytes(4) if masked else b""
    return bytes((0x80 | _CLOSE, (_MASKED if masked else 0) | len(payload))) + mask + payload


def _head_length(head: bytes) -> int:
    """The bytes of a frame's head that begins so; 0: not known yet."""
    if len(head) < 2:
        return 0
    length = head[1] & 0x7F
    return 2 + (8 if length == 127 else 2 if length == 126 else 0) + (4 if head[1] & _MASKED else 0)


def _payload(head: bytes) -> int:
    length = head[1] & 0x7F
    if length < 126:
        return length
    return int.from_bytes(head[2 : 4 if length == 126 else 10])
