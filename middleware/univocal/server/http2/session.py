"""One connection's state by RFC 9113: bytes in, events out, bytes to send. No socket, no clock.

hpack codes the fields. Beside the rules of the RFC, these hold:

- Streams under way finish behind a GOAWAY, sent or received (§6.8).
- Frames for a stream that was reset here are dropped, whatever they are (§5.4.2).
- Too many streams, or content of another length than announced, end one stream and not the connection.
- Cheap frames are limited: see `Credit`.
- Nothing is written behind the GOAWAY of an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, TypeAlias

from hpack.exceptions import HPACKError, OversizedHeaderListError

from univocal.http.tables import moves
from univocal.server.http2.fields import NO_TABLE, FieldDecoder, Head, block_of_status, is_trailer_section
from univocal.server.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    LARGEST,
    LONGEST,
    PING,
    PRIORITIZED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ConnectionFaultError,
    Credit,
    ErrorCode,
    Frame,
    FrameReader,
    frame_header,
    frame_of,
)

MOST_STREAMS: Final = 100
"""Streams at the same time: SETTINGS_MAX_CONCURRENT_STREAMS."""

STREAM_WINDOW: Final = 65535
"""Bytes of a request's content that may come before any of it is taken: the initial window (§6.9.2)."""

# Bytes that are taken before the client hears of it.
_STEP: Final = STREAM_WINDOW // 2
# Streams whose end is remembered at least: frames for them may still be under way.
_REMEMBERED: Final = 1000
# The price, in credits, of a section of fields for a stream that was reset, …
_TRAILERS_IN_VAIN: Final = 10
# … and of a request that is refused a stream or is malformed.
_IN_VAIN: Final = 10
# Bytes of a piece of content for which a client earns credit: one that lets its window grow byte by byte
# earns nothing (CVE-2019-9511).
_A_PIECE: Final = 1024
_FAREWELL: Final = b"farewell"  # a PING whose acknowledgement says that the client has read the first GOAWAY
_PRIORITY: Final = 5  # bytes of a priority (§6.2)
_SETTING: Final = 6  # bytes of a setting: its identifier in two, its value in four (§6.5.1)
_MALFORMED: Final = ("bad-framing",)

# Settings (§6.5.2), and the values that each may have; others mean nothing here.
_MAX_CONCURRENT_STREAMS: Final = 3
_INITIAL_WINDOW_SIZE: Final = 4
_MAX_HEADER_LIST_SIZE: Final = 6
_SETTINGS: Final = {
    2: (0, 1, ErrorCode.PROTOCOL_ERROR),  # SETTINGS_ENABLE_PUSH
    _INITIAL_WINDOW_SIZE: (0, LARGEST, ErrorCode.FLOW_CONTROL_ERROR),
    5: (LONGEST, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),  # SETTINGS_MAX_FRAME_SIZE
}
# Where a client's frame of each type may stand (True: on a stream, False: on the connection, None: on both),
# and the bytes that its payload has (-1: any number). CONTINUATION stands behind HEADERS alone (§6.10), and a
# client cannot push (§8.4).
_SHAPES: Final[dict[int, tuple[bool | None, int]]] = {
    DATA: (True, -1),
    HEADERS: (True, -1),
    PRIORITY: (True, _PRIORITY),
    RST_STREAM: (True, 4),
    SETTINGS: (False, -1),
    PING: (False, 8),
    GOAWAY: (False, -1),
    WINDOW_UPDATE: (None, 4),
}


class SessionState(Enum):
    """The states of a connection."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    OPEN = "requests are answered"
    LEAVING = "the connection ends once nothing is under way; what comes until then is answered (§6.8)"
    ASKED = "as before, and the client was asked to send no more requests"
    PARTED = "the client knows the last request that is answered; later ones are refused"
    ENDED = "there was an error: nothing more is read or written"


SESSION_MOVES: Final[Mapping[SessionState, Mapping[SessionState, str]]] = {
    SessionState.OPEN: {
        SessionState.LEAVING: "the server ends, or its limits are not those that the client was told",
        SessionState.PARTED: "the client rests for too long, gives way to another, or is one too many",
        SessionState.ENDED: "there is an error",
    },
    SessionState.LEAVING: {
        SessionState.ASKED: "the client goes on to send requests",
        SessionState.PARTED: "nothing is under way any more",
        SessionState.ENDED: "there is an error",
    },
    SessionState.ASKED: {
        SessionState.PARTED: "the client has heard that, or nothing is under way any more",
        SessionState.ENDED: "there is an error",
    },
    SessionState.PARTED: {SessionState.ENDED: "there is an error"},
    SessionState.ENDED: {},
}
"""The states that may follow each state, and what causes the move."""

_SESSION_MOVES: Final = moves(SESSION_MOVES)
_ENDED: Final = SessionState.ENDED


class StreamState(IntEnum):
    """The states of a stream that a client has opened (§5.1); "closed" is three, by what closed it."""

    OPEN = 0  # both sides may send
    REMOTE = 1  # half-closed (remote): the request has ended
    LOCAL = 2  # half-closed (local): the response has ended
    ENDED = 3  # both have ended
    RESET = 4  # reset here: its client may not know for a while
    CANCELLED = 5  # reset by the client


class Cause(IntEnum):
    """The frames that move a stream from one state to another."""

    END_RECEIVED = 0
    END_SENT = 1
    RESET_SENT = 2
    RESET_RECEIVED = 3


STREAM_MOVES: Final = {
    (StreamState.OPEN, Cause.END_RECEIVED): StreamState.REMOTE,
    (StreamState.OPEN, Cause.END_SENT): StreamState.LOCAL,
    (StreamState.OPEN, Cause.RESET_SENT): StreamState.RESET,
    (StreamState.OPEN, Cause.RESET_RECEIVED): StreamState.CANCELLED,
    (StreamState.REMOTE, Cause.END_SENT): StreamState.ENDED,
    (StreamState.REMOTE, Cause.RESET_SENT): StreamState.RESET,
    (StreamState.REMOTE, Cause.RESET_RECEIVED): StreamState.CANCELLED,
    (StreamState.LOCAL, Cause.END_RECEIVED): StreamState.ENDED,
    (StreamState.LOCAL, Cause.RESET_SENT): StreamState.RESET,
    (StreamState.LOCAL, Cause.RESET_RECEIVED): StreamState.CANCELLED,
}
# Looking up an enumeration's member costs a call in Python 3.11.
_END_RECEIVED: Final = Cause.END_RECEIVED
_END_SENT: Final = Cause.END_SENT
_OPEN: Final = StreamState.OPEN
_REMOTE: Final = StreamState.REMOTE
_LOCAL: Final = StreamState.LOCAL
_RESET: Final = StreamState.RESET


class Window:
    """A window that this side gives: bytes that may come, and taken ones that are not given back (§5.2)."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.taken = 0

    def use(self, octets: int) -> None:
        """Count bytes against the window. Raises ConnectionFaultError."""
        self.left -= octets
        if self.left < 0:
            raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR)

    def take(self, octets: int) -> int:
        """Return this many bytes to the window; returns the increment to send now, or 0."""
        self.taken += octets
        if self.taken < _STEP:
            return 0
        increment, self.taken = self.taken, 0
        self.left += increment
        return increment


class IncomingContent:
    """The content of a request that has not ended; `left` bytes of it are to come, None: not known."""

    def __init__(self, left: int | None) -> None:
        self.left = left
        self.window = Window(STREAM_WINDOW)


class OpenStream:
    """A stream that is open on one side at least: `window` is what the client lets this side send."""

    def __init__(self, state: StreamState, window: int, incoming: IncomingContent | None) -> None:
        self.state = state
        self.window = window
        self.incoming = incoming


# Events


class RequestCame:
    """A request's head has come; `is_complete`: it has no content."""

    __slots__ = ("head", "is_complete", "stream")

    def __init__(self, stream: int, head: Head, *, is_complete: bool) -> None:
        self.stream = stream
        self.head = head
        self.is_complete = is_complete


class ContentCame:
    """Content of a request has come, or its end; `octets` is how much it took of the windows."""

    __slots__ = ("content", "ends", "octets", "stream")

    def __init__(self, stream: int, content: bytes, octets: int, *, ends: bool) -> None:
        self.stream = stream
        self.content = content
        self.octets = octets
        self.ends = ends


class WindowOpened:
    """The client takes more, of one stream, or of all (0)."""

    __slots__ = ("stream",)

    def __init__(self, stream: int) -> None:
        self.stream = stream


class StreamLost:
    """A stream was reset, by the client or for its faults; `reasons` if its request is malformed."""

    __slots__ = ("by_client", "reasons", "stream")

    def __init__(self, stream: int, reasons: tuple[str, ...] = (), *, by_client: bool = False) -> None:
        self.stream = stream
        self.reasons = reasons
        self.by_client = by_client


class NothingCame:
    """A frame that concerns the session alone."""

    __slots__ = ()


Event: TypeAlias = RequestCame | ContentCame | WindowOpened | StreamLost | NothingCame
_NOTHING: Final = NothingCame()


class Session:
    """A server's side of one HTTP/2 connection.

    Each time data comes, call `feed`, then `next` until it returns None. Between them, call `head`,
    `content`, `end`, `reset` and `consumed` for streams, or `answer` for a request that has just come.
    `take` returns the bytes to write.
    """

    def __init__(self, now: float, header_octets: int) -> None:
        self.state = SessionState.OPEN
        self.is_left = False  # the client opens no more streams: it has sent GOAWAY
        self.error: ErrorCode | None = None  # for which we have ended the connection
        # When a section of fields began of which there is more to come.
        self.fields_since: float | None = None
        self.highest = 0  # the identifier of the latest stream
        self._last: int | None = None  # the last stream that a GOAWAY has named
        self._now = now
        self._frames = FrameReader()
        self._credit = Credit(now)
        self._decoder = FieldDecoder(2 * header_octets)
        self._section: Frame | None = None  # a HEADERS frame that goes on in CONTINUATION frames (§6.10)
        self._streams: dict[int, OpenStream] = {}
        self._closed: dict[int, StreamState] = {}  # the latest of them
        self._unended: dict[int, None] = {}  # answered requests whose last content or END_STREAM may come
        self._initial_window = STREAM_WINDOW  # of each new stream towards the client (§6.9.2)
        self._window = STREAM_WINDOW  # of the connection towards the client
        # Streams bound what waits here, and the connection's window holds none of them up.
        self.incoming = Window(2 * MOST_STREAMS * STREAM_WINDOW)
        self._is_greeted = False  # a section of fields was sent
        self._out: list[bytes | memoryview] = [_greeting(header_octets)]
        self.unwritten = 0  # bytes of content that `take` will give

    # Incoming

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        self._frames.feed(data)

    def next(self, now: float) -> Event | None:
        """The event of the next frame; None: no whole frame is left, or the connection has ended."""
        if self.state is _ENDED:
            return None
        try:
            frame = self._frames.next()
            if frame is None:
                waits = self._section is not None or self._frames.begins(HEADERS)
                self.fields_since = (self.fields_since or now) if waits else None
                return None
            self._now = now
            if price := frame.price:
                self._pay(price, in_vain=frame.kind == RST_STREAM)
            return self._read(frame)
        except ConnectionFaultError as fault:
            self.fail(fault.code)
        except OversizedHeaderListError:
            self.fail(ErrorCode.ENHANCE_YOUR_CALM)
        except (HPACKError, IndexError):
            self.fail(ErrorCode.COMPRESSION_ERROR)
        return None

    @property
    def is_read(self) -> bool:
        """Nothing of what came is left."""
        return self._frames.is_empty

    def _pay(self, price: int, *, in_vain: bool = False) -> None:
        credit = self._credit
        if not (credit.waste(price, self._now) if in_vain else credit.spend(price, self._now)):
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM)

    def _read(self, frame: Frame) -> Event:
        kind, number, section = frame.kind, frame.stream, self._section
        if section is not None:
            if kind != CONTINUATION or number != section.stream:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
            return self._read_on(section, frame)
        if kind > CONTINUATION:
            return _NOTHING  # an extension (§5.5)
        shape = _SHAPES.get(kind)
        if shape is None or (shape[0] is not None and shape[0] != (number > 0)):
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
        if 0 <= shape[1] != len(frame.payload):
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR)
        if kind == HEADERS:
            return self._read_headers(frame)
        if kind == PRIORITY:
            _check_priority(frame)
            return _NOTHING
        if number and (number > self.highest or not number & 1):  # it is idle (§5.1)
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
        if kind == DATA:
            return self._read_data(frame)
        if kind == WINDOW_UPDATE:
            return self._read_window_update(frame)
        if kind == RST_STREAM:
            return self._read_reset(number)
        return self._read_of_connection(frame)

    def _read_headers(self, frame: Frame) -> Event:
        number, flags, octets = frame.stream, frame.flags, frame.content
        if flags & PRIORITIZED:
            _check_priority(frame)
            octets = octets[_PRIORITY:]
        if number <= self.highest or not number & 1:
            self._check_fields(number, ends=flags & END_STREAM > 0)
        if flags & END_HEADERS:
            return self._read_section(number, octets, ends=flags & END_STREAM > 0)
        self._section = Frame(HEADERS, flags, number, octets)
        return _NOTHING

    def _check_fields(self, number: int, *, ends: bool) -> None:
        """Find the connection's error in fields for a stream that is not new (§5.1, §8.1)."""
        closed = self._closed.get(number)
        if closed is _RESET:
            self._pay(_TRAILERS_IN_VAIN)
        elif closed is StreamState.ENDED:
            raise ConnectionFaultError(ErrorCode.STREAM_CLOSED)
        elif closed is None:
            opened = self._streams.get(number)
            if opened is None or (opened.incoming is not None and not ends):
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)

    def _read_on(self, section: Frame, frame: Frame) -> Event:
        section.payload += frame.payload
        if not frame.flags & END_HEADERS:
            return _NOTHING
        self._section = None
        return self._read_section(section.stream, section.payload, ends=section.flags & END_STREAM > 0)

    def _read_section(self, number: int, octets: bytes, *, ends: bool) -> Event:
        if number <= self.highest:
            return self._read_trailers(number, octets)
        head = self._decoder.head(octets)
        self.highest = number
        incoming = None if ends else IncomingContent(head.length)
        self._streams[number] = OpenStream(_REMOTE if ends else _OPEN, self._initial_window, incoming)
        return RequestCame(number, head, is_complete=ends)

    def _read_trailers(self, number: int, octets: bytes) -> Event:
        fields = self._decoder.fields(octets)  # whatever they are, the table changes
        opened = self._streams.get(number)
        if opened is None or opened.incoming is None:
            return self._refuse(number)
        if opened.incoming.left or not is_trailer_section(fields):
            return self._end_malformed(number, opened, ends=True)
        return self._end_request(number, opened, b"", 0)

    def _refuse(self, number: int) -> Event:
        """End a stream whose request has ended, since more of it came (§5.1)."""
        if number in self._streams:
            self.reset(number, ErrorCode.STREAM_CLOSED)
            return StreamLost(number)
        if self._closed.get(number) is not _RESET:
            self._send(_rst_stream(number, ErrorCode.STREAM_CLOSED))
            self._remember(number, _RESET)
        return _NOTHING

    def _read_data(self, frame: Frame) -> Event:
        number, octets, content = frame.stream, len(frame.payload), frame.content
        self.incoming.use(octets)
        opened = self._streams.get(number)
        if opened is None or opened.incoming is None:
            self.consumed(number, octets)
            return self._refuse(number)
        incoming, ends = opened.incoming, frame.flags & END_STREAM > 0
        incoming.window.use(octets)
        if incoming.left is not None:
            incoming.left -= len(content)
            if incoming.left < 0 or (ends and incoming.left):  # §8.1.1
                self.consumed(number, octets)
                return self._end_malformed(number, opened, ends=ends)
        if ends:
            return self._end_request(number, opened, content, octets)
        return ContentCame(number, content, octets, ends=False)

    def _end_request(self, number: int, opened: OpenStream, content: bytes, octets: int) -> Event:
        opened.incoming = None
        self._move(number, opened, _END_RECEIVED)
        return ContentCame(number, content, octets, ends=True)

    def _end_malformed(self, number: int, opened: OpenStream, *, ends: bool) -> Event:
        """End a stream whose content is not what its request said; nothing follows what both have ended."""
        if ends and opened.state is _LOCAL:
            self._move(number, opened, _END_RECEIVED)
        else:
            self.reset(number, ErrorCode.PROTOCOL_ERROR)
        return StreamLost(number, _MALFORMED)

    def _read_window_update(self, frame: Frame) -> Event:
        number, increment = frame.stream, frame.number
        if not increment:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
        if not number:
            self._window += increment
            if self._window > LARGEST:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR)
            return WindowOpened(0)
        opened = self._streams.get(number)
        if opened is None:
            return _NOTHING
        opened.window += increment
        if opened.window > LARGEST:
            self.reset(number, ErrorCode.FLOW_CONTROL_ERROR)
            return StreamLost(number)
        return WindowOpened(number)

    def _read_reset(self, number: int) -> Event:
        opened = self._streams.get(number)
        if opened is None:
            return _NOTHING
        self._move(number, opened, Cause.RESET_RECEIVED)
        return StreamLost(number, by_client=True)

    def _read_of_connection(self, frame: Frame) -> Event:
        kind, payload, is_ack = frame.kind, frame.payload, frame.flags & ACK > 0
        if kind == PING and is_ack:
            if payload == _FAREWELL:
                self.part()
        elif kind == PING:
            self._send(frame_of(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            if len(payload) < 8:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR)
            self.is_left = True
        elif len(payload) % _SETTING or (is_ack and payload):
            raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR)
        elif not is_ack:
            self._read_settings(payload)
            self._send(frame_of(SETTINGS, ACK, 0, b""))
            return WindowOpened(0)
        return _NOTHING

    def _read_settings(self, payload: bytes) -> None:
        before = highest = self._initial_window
        for place in range(0, len(payload), _SETTING):
            identifier = int.from_bytes(payload[place : place + 2], "big")
            value = int.from_bytes(payload[place + 2 : place + _SETTING], "big")
            least, most, code = _SETTINGS.get(identifier, (0, value, ErrorCode.NO_ERROR))
            if not least <= value <= most:
                raise ConnectionFaultError(code)
            if identifier == _INITIAL_WINDOW_SIZE:
                self._initial_window, highest = value, max(highest, value)
        if self._initial_window == highest == before:
            return
        for opened in self._streams.values():  # once, however often one frame names it
            if opened.window + highest - before > LARGEST:
                raise ConnectionFaultError(ErrorCode.FLOW_CONTROL_ERROR)
            opened.window += self._initial_window - before

    def consumed(self, number: int, octets: int) -> None:
        """Return taken bytes of a stream's frames to its window."""
        if octets:
            self._grant(0, self.incoming, octets)
            opened = self._streams.get(number)
            if opened is not None and opened.incoming is not None:
                self._grant(number, opened.incoming.window, octets)

    def _grant(self, number: int, window: Window, octets: int) -> None:
        increment = window.take(octets)
        if increment:
            self._send(frame_of(WINDOW_UPDATE, 0, number, increment.to_bytes(4, "big")))

    # Outgoing

    def head(self, number: int, status: int, block: bytes, *, ends: bool = False) -> None:
        """Send a response's head, or an interim response; its fields are those of `block`."""
        self._send_head(number, status, block, ends=ends)
        if ends:
            self._end_response(number)

    def _send_head(self, number: int, status: int, block: bytes, *, ends: bool) -> None:
        octets = block_of_status(status) + block
        if not self._is_greeted:
            self._is_greeted, octets = True, NO_TABLE + octets
        kind, flags, frames = HEADERS, END_STREAM if ends else 0, b""
        while len(octets) > LONGEST:
            piece, octets = octets[:LONGEST], octets[LONGEST:]
            frames += frame_of(kind, flags, number, piece)
            kind, flags = CONTINUATION, 0
        self._send(frames + frame_of(kind, flags | END_HEADERS, number, octets))

    def answer(self, number: int, status: int, block: bytes, body: bytes) -> bool:
        """Send the whole response to a request that is complete; False: there is no window for it."""
        if len(body) > self.window(number):
            return False
        self._send_head(number, status, block, ends=not body)
        if not body:
            self._end_response(number)
        elif len(body) <= LONGEST:
            self.content(number, body, ends=True)
        else:
            whole = memoryview(body)
            for start in range(0, len(body), LONGEST):
                ends = start + LONGEST >= len(body)
                self.content(number, whole[start : start + LONGEST], ends=ends)
        self._credit.earn(Credit.AN_ANSWER)
        return True

    def window(self, number: int) -> int:
        """The bytes of content that the client takes now."""
        return min(self._window, self._streams[number].window)

    def content(self, number: int, content: bytes | memoryview, *, ends: bool) -> None:
        """Send content, at most a frame's, which is within the window."""
        length = len(content)
        self.unwritten += length
        self._window -= length
        self._streams[number].window -= length
        if length >= _A_PIECE:
            self._credit.earn(Credit.A_PIECE)
        self._send(frame_header(DATA, END_STREAM if ends else 0, number, length))
        self._send(content)
        if ends:
            self._end_response(number)

    def end(self, number: int) -> None:
        """End a response whose content is all sent."""
        self._send(frame_of(DATA, END_STREAM, number, b""))
        self._end_response(number)

    def _end_response(self, number: int) -> None:
        self._move(number, self._streams[number], _END_SENT)

    def is_answered(self, number: int) -> bool:
        """Tell whether a stream whose response is over ends by itself: its client may send what is left.

        Some clients take RST_STREAM for a failure. They send END_STREAM in a frame of its own, and content
        in spite of an early answer. More than the window takes needs RST_STREAM (§8.1).
        """
        opened = self._streams.get(number)
        if opened is not None:
            incoming = opened.incoming
            if incoming is None or incoming.left is None or incoming.left > incoming.window.left:
                return False
            self._unended[number] = None
            if len(self._unended) > MOST_STREAMS:
                self.reset(next(iter(self._unended)), ErrorCode.NO_ERROR)
        self._credit.earn(Credit.AN_ANSWER)
        return True

    def reset(self, number: int, code: ErrorCode) -> None:
        """End a stream at once, if it has not ended; its client may not know for a while."""
        opened = self._streams.get(number)
        if opened is not None and self.state is not _ENDED:
            self._send(_rst_stream(number, code))
            self._move(number, opened, Cause.RESET_SENT)

    def charge(self, now: float) -> None:
        """Charge the client for a request in vain that no frame of its own has paid for."""
        if not self._credit.waste(_IN_VAIN, now):
            self.fail(ErrorCode.ENHANCE_YOUR_CALM)

    def _move(self, number: int, opened: OpenStream, cause: Cause) -> None:
        """Move a stream; a move that is not in the table is a KeyError."""
        state = opened.state = STREAM_MOVES[opened.state, cause]
        if state > _LOCAL:
            del self._streams[number]
            self._unended.pop(number, None)
            self._remember(number, state)

    def _remember(self, number: int, state: StreamState) -> None:
        self._closed[number] = state
        if len(self._closed) > 2 * _REMEMBERED:
            self._closed = dict([*self._closed.items()][_REMEMBERED:])

    # The end

    def leave(self) -> None:
        """Close the connection once nothing is under way."""
        if self.state is SessionState.OPEN:
            self._go(SessionState.LEAVING)

    def ask_to_leave(self) -> None:
        """Ask a client that goes on to send no more requests; those that it has sent by then are answered.

        Many clients take a GOAWAY for the end of all streams, so it is not sent before it is needed.
        """
        if self.state is SessionState.LEAVING:
            self._go(SessionState.ASKED)
            self._go_away(LARGEST, ErrorCode.NO_ERROR)
            self._send(frame_of(PING, 0, 0, _FAREWELL))

    def part(self) -> None:
        """Tell the client which request was the last that is answered."""
        if self.state is not SessionState.PARTED and self.state is not _ENDED:
            self._go(SessionState.PARTED)
            self._go_away(self._last_answered(), ErrorCode.NO_ERROR)

    def fail(self, code: ErrorCode) -> None:
        """End the connection with an error (§5.4.1)."""
        if self.state is not _ENDED:
            self.error = code
            self._go_away(self._last_answered(), code)
            self._go(_ENDED)

    def _last_answered(self) -> int:
        """The last stream that is answered, as GOAWAY names it: it rises no more from now on (§6.8)."""
        if self._last is None:
            self._last = self.highest
        return self._last

    def _go_away(self, last: int, code: ErrorCode) -> None:
        self._send(frame_of(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big")))

    def _go(self, state: SessionState) -> None:
        self.state = _SESSION_MOVES[self.state, state]

    # Bytes to write

    def _send(self, octets: bytes | memoryview) -> None:
        if self.state is not _ENDED:
            self._out.append(octets)

    def take(self) -> bytes:
        """All that is to be written now."""
        out, self._out, self.unwritten = self._out, [], 0
        return b"".join(out)


def _greeting(header_octets: int) -> bytes:
    """Our settings, and the window of the connection: twice what all streams may have under way."""
    settings = (
        (_MAX_CONCURRENT_STREAMS, MOST_STREAMS),
        (_INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (_MAX_HEADER_LIST_SIZE, header_octets),
    )
    payload = b"".join([each.to_bytes(2, "big") + value.to_bytes(4, "big") for each, value in settings])
    increment = (2 * MOST_STREAMS - 1) * STREAM_WINDOW
    return frame_of(SETTINGS, 0, 0, payload) + frame_of(WINDOW_UPDATE, 0, 0, increment.to_bytes(4, "big"))


def _rst_stream(number: int, code: ErrorCode) -> bytes:
    return frame_of(RST_STREAM, 0, number, code.to_bytes(4, "big"))


def _check_priority(frame: Frame) -> None:
    """Find an error in a priority, of which nothing else is read (RFC 7540 §5.3.1)."""
    priority = frame.content if frame.kind == HEADERS else frame.payload
    if len(priority) < _PRIORITY:
        raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR)
    if int.from_bytes(priority[:4], "big") & LARGEST == frame.stream:
        raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR)
