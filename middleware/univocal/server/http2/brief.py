"""Brief streams: a request in one frame, answered as it is read, so that h2 never hears of it.

A stream that opens and closes in one step needs no state but these: its identifier is used (RFC 9113 §5.1.1),
its content took of the connection's window (§6.9.1), and frames may still come for it (§5.1). h2 keeps the
state of all other streams.
"""

from __future__ import annotations

from typing import Final

from h2.errors import ErrorCodes

from univocal.server.http2.frames import Flag, Frame, Kind

LARGEST: Final = 2**31 - 1
"""The largest identifier of a stream, and the largest window in bytes."""

_INITIAL: Final = 65535  # bytes of a window, before a client says otherwise (§6.9.2)
# Streams whose end is remembered at most; of the identifiers, which are odd, half as many are kept at a time.
_REMEMBERED: Final = 1000
_WHOLE: Final = Flag.END_STREAM | Flag.END_HEADERS
_FOUR_OCTETS: Final = (Kind.RST_STREAM, Kind.WINDOW_UPDATE)


def is_whole(frame: Frame) -> bool:
    """Tell whether a HEADERS frame is all of a request, and has no padding."""
    return frame.flags & (_WHOLE | Flag.PADDED) == _WHOLE and not frame.is_within_section


class BriefStreams:
    """The identifiers of a connection's streams, and its window towards the client, in bytes.

    Call `enter` for each stream that h2 opens, `sent` for its content, `answer` for each brief stream.
    h2's own count of the connection's window is higher: the content of brief streams is missing in it. So
    `raised` keeps their part of each WINDOW_UPDATE from h2.
    """

    __slots__ = ("_answered", "_entered", "_last", "_owed", "_window", "highest", "initial_window")

    def __init__(self) -> None:
        self.highest = 0  # the identifier of the latest stream
        self.initial_window = _INITIAL  # of each new stream (§6.9.2)
        self._entered = 0  # the identifier of the latest stream that h2 knows
        self._last: int | None = None  # the last stream that a GOAWAY has named
        self._answered: set[int] = set()  # the latest brief streams
        self._window = _INITIAL  # of the connection
        self._owed = 0  # bytes of brief streams' content for which no WINDOW_UPDATE has come

    def is_next(self, stream: int) -> bool:
        """Tell whether a client may open this stream now (§5.1.1)."""
        return stream > self.highest and stream & 1 == 1

    def is_idle(self, stream: int) -> bool:
        """Tell whether nothing was sent on this stream yet: an even one is the server's to open (§5.1)."""
        return stream > self.highest or stream & 1 == 0

    def last(self) -> int:
        """The last stream that is answered, as GOAWAY names it: it rises no more from now on (§6.8)."""
        if self._last is None:
            self._last = self.highest
        return self._last

    def enter(self, stream: int) -> None:
        """Take note of a stream that h2 has opened."""
        self.highest = self._entered = stream

    def answer(self, stream: int, octets: int) -> None:
        """Take note of a brief stream, with so many bytes of content."""
        self.highest = stream
        self._window -= octets
        self._owed += octets
        self._answered.add(stream)
        if len(self._answered) > _REMEMBERED:
            self._answered = {number for number in self._answered if number > stream - _REMEMBERED}

    # The connection's window

    def room(self, window: int | None = None) -> int:
        """The bytes that a stream may send whose own window is `window`; None: that of a new stream."""
        return min(self._window, self.initial_window if window is None else window)

    def sent(self, octets: int) -> None:
        """Take note of content that h2 has sent."""
        self._window -= octets

    def raised(self, increment: int) -> int:
        """Raise the connection's window; the part of the increment that h2 must hear of."""
        self._window += increment
        kept = min(increment, self._owed)
        self._owed -= kept
        return increment - kept

    # Frames that come late

    def is_late(self, stream: int) -> bool:
        """Tell whether a stream is over without h2's knowing how."""
        return stream in self._answered or (self._entered < stream <= self.highest and stream & 1 == 1)

    def fault(self, frame: Frame) -> ErrorCodes | None:
        """The connection error of a frame for a stream that `is_late`; None: it does no harm (§5.1)."""
        match frame.kind:
            case Kind.HEADERS:
                known = frame.stream in self._answered
                return ErrorCodes.STREAM_CLOSED if known else ErrorCodes.PROTOCOL_ERROR
            case Kind.DATA if frame.content < 0:
                return ErrorCodes.PROTOCOL_ERROR
            case kind if kind in _FOUR_OCTETS and frame.length != 4:
                return ErrorCodes.FRAME_SIZE_ERROR
            case Kind.WINDOW_UPDATE if not 0 < frame.number <= LARGEST:
                return ErrorCodes.PROTOCOL_ERROR
        return None
