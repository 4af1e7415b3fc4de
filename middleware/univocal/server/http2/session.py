"""One connection's state by RFC 9113, kept by h2: bytes in, events out, bytes to send. No socket, no clock.

h2 decodes, encodes, counts windows and knows what each stream may do. This module differs from h2 in these
points, since it serves many clients:

- h2 ends the connection at its first GOAWAY, sent or received; here streams under way finish (§6.8).
- h2 answers each frame for a stream that was reset; here such frames are dropped (§5.4.2).
- h2 ends the connection when a client opens too many streams; here that is the one stream's error (§5.1.2).
- h2 ends it too when content has another length than announced; here that is the one stream's error (§8.1.1).
- h2 ends it too at a length that is no number, or a request with an interim status: see
  `univocal.server.http2.section`.
- h2 accepts any number of cheap frames; here they are limited: see `univocal.server.http2.frames`.
- h2 keeps settings that it does not know, and refuses some reserved bits; here they are left out: see there.
- h2 accepts requests before SETTINGS (§3.4) and RST_STREAM on idle streams (§6.4); here they are errors.
- h2 finds faults in ALTSVC frames; here all extensions are ignored (§5.5).

A request in one frame comes as a `WholeRequest`, before h2 has heard of it. `answer` sends its response, and
h2 never hears of it (see `univocal.server.http2.brief`). Otherwise `enter` lets h2 open its stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple, cast

import hpack
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import DenialOfServiceError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from hpack.exceptions import HPACKError
from hyperframe.frame import GoAwayFrame, WindowUpdateFrame

from univocal.server.http2.block import NO_TABLE, block_of_status
from univocal.server.http2.brief import LARGEST, BriefStreams, is_whole
from univocal.server.http2.frames import (
    FRAME_HEADER,
    LONGEST,
    Credit,
    Flag,
    Frame,
    FrameReader,
    FrameTooLongError,
    Kind,
    NoSettingsError,
    frame_of,
)
from univocal.server.http2.head import Head, is_trailer_section
from univocal.server.http2.section import FieldDecoder

MOST_STREAMS: Final = 100
"""Streams at the same time: SETTINGS_MAX_CONCURRENT_STREAMS."""

STREAM_WINDOW: Final = 65535
"""Bytes of a request's content that may come before any of it is taken: the initial window (§6.9.2)."""

# Streams whose last frames may still be under way after they were reset, or that h2 remembers as closed.
_REMEMBERED: Final = 1000
_GOAWAY: Final = 17  # bytes of the frame that h2 ends a connection with
# The price of a section of fields for a stream that was reset, in credits: h2 resets it again.
_TRAILERS_IN_VAIN: Final = 10
# Bytes of a piece of content for which a client earns credit: one that lets its window grow byte by byte
# earns nothing (CVE-2019-9511).
_A_PIECE: Final = 1024
_PRIORITY: Final = 5  # bytes of a priority (§6.2)
_OF_A_STREAM: Final = (Kind.DATA, Kind.HEADERS, Kind.RST_STREAM, Kind.WINDOW_UPDATE)
_KNOWN: Final = frozenset(Kind)
_STREAM_CLOSED: Final = ErrorCodes.STREAM_CLOSED.to_bytes(4, "big")
_FAREWELL: Final = b"farewell"  # a PING whose acknowledgement says that the client has read the first GOAWAY

# h2's own setting: else each connection remembers 65,536. Compiled code cannot assign to another's class.
setattr(H2Connection, "MAX_CLOSED_STREAMS", _REMEMBERED)  # noqa: B010


class SessionState(Enum):
    """The stages of a connection; `_NEXT` has the moves between them."""

    OPEN = "requests are answered"
    LEAVING = "the connection ends once nothing is under way; what comes until then is answered (§6.8)"
    ASKED = "as before, and the client was asked to send no more requests"
    PARTED = "the client knows the last request that is answered; later ones are refused"
    ENDED = "nothing more is read"


_NEXT: Final = {
    SessionState.OPEN: frozenset((SessionState.LEAVING, SessionState.PARTED, SessionState.ENDED)),
    SessionState.LEAVING: frozenset((SessionState.ASKED, SessionState.PARTED, SessionState.ENDED)),
    SessionState.ASKED: frozenset((SessionState.PARTED, SessionState.ENDED)),
    SessionState.PARTED: frozenset((SessionState.ENDED,)),
    SessionState.ENDED: frozenset[SessionState](),
}


class Faulty(NamedTuple):
    """An event that h2 has not: a stream was reset, since its content is not as long as its request said."""

    stream_id: int


class WholeRequest:
    """An event that h2 has not: a request without content, on a stream that h2 has not opened yet."""

    __slots__ = ("head", "stream_id")

    def __init__(self, stream_id: int, head: Head) -> None:
        self.stream_id = stream_id
        self.head = head


class Session:
    """A server's side of one HTTP/2 connection.

    Each time data comes, call `feed`, then `next` until it returns None. After a `WholeRequest`, call
    `answer` or `enter` first. Between them, call `head`, `content`, `end`, `reset` and `consumed` for
    streams. `take` returns the bytes to write.
    """

    __slots__ = (
        "_brief",
        "_credit",
        "_decoder",
        "_dropped",
        "_frames",
        "_h2",
        "_is_greeted",
        "_lengths",
        "_out",
        "_unended",
        "_unread",
        "_whole",
        "error",
        "fields_since",
        "is_left",
        "state",
        "unwritten",
    )

    def __init__(self, now: float, header_octets: int) -> None:
        self.state = SessionState.OPEN
        self.is_left = False  # the client opens no more streams: it has sent GOAWAY
        self.error: ErrorCodes | None = None  # for which we have ended the connection
        self.fields_since: float | None = (
            None  # when a section of fields began of which there is more to come
        )
        self._frames = FrameReader()
        self._credit = Credit(now)
        # Bytes of content that are to come, by stream: those alone that the client has not ended.
        self._lengths: dict[int, int] = {}
        self._dropped: OrderedDict[int, None] = OrderedDict()  # streams that were reset here
        self._unread = 0  # bytes of content for these
        self._unended: OrderedDict[int, None] = OrderedDict()  # answered streams whose end may come
        self._is_greeted = False  # a section of fields was sent
        self._out: list[bytes] = []  # what was written beside h2
        self.unwritten = 0  # bytes of content that `take` will give
        self._brief = BriefStreams()
        self._whole: Frame | None = None  # a request's, of which h2 has not heard yet
        self._decoder = FieldDecoder(2 * header_octets)
        self._h2 = _h2(header_octets, self._decoder)

    # Incoming

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        self._frames.feed(data)
        preface = self._frames.preface()
        if preface is not None:
            try:
                self._h2.receive_data(preface)
            except ProtocolError:
                self.fail(ErrorCodes.PROTOCOL_ERROR)

    def next(self, now: float) -> Sequence[Event | Faulty | WholeRequest] | None:
        """The events of the next frame, perhaps none; None: no frame is left."""
        if self.state is SessionState.ENDED:
            return None
        try:
            frame = self._frames.next()
        except FrameTooLongError:
            self.fail(ErrorCodes.FRAME_SIZE_ERROR)
            return None
        except NoSettingsError:
            self.fail(ErrorCodes.PROTOCOL_ERROR)
            return None
        if frame is None:
            waits = self._frames.awaits_fields
            self.fields_since = (self.fields_since or now) if waits else None
            return None
        late = frame.kind == Kind.HEADERS and frame.stream in self._dropped
        pay = self._credit.waste if frame.kind == Kind.RST_STREAM else self._credit.spend
        if not pay(frame.price + _TRAILERS_IN_VAIN * late, now):
            self.fail(ErrorCodes.ENHANCE_YOUR_CALM)
            return None
        return self._read(frame)

    @property
    def is_read(self) -> bool:
        """Nothing of what came is left."""
        return self._frames.is_empty

    def _read(self, frame: Frame) -> Sequence[Event | Faulty | WholeRequest]:
        if frame.is_within_section:
            return self._let_read(frame)  # an error, unless it is CONTINUATION
        if not frame.stream:
            return self._read_of_connection(frame)
        match frame.kind:
            case Kind.HEADERS if self._brief.is_next(frame.stream):
                if self.state is SessionState.OPEN and is_whole(frame):
                    return self._read_whole(frame)
            case Kind.PUSH_PROMISE | Kind.CONTINUATION:
                # A client cannot push, and h2 would wait for its fields; no section goes on here (§6.10), and
                # h2 takes one of a stream that was reset for one that comes late.
                self.fail(ErrorCodes.PROTOCOL_ERROR)
                return ()
            case Kind.RST_STREAM if self._brief.is_idle(frame.stream):
                self.fail(ErrorCodes.PROTOCOL_ERROR)  # h2 takes it for one that comes late (§6.4)
                return ()
            case Kind.DATA if frame.stream in self._dropped:
                self._drop(frame)
                return ()
            case Kind.DATA if frame.stream in self._lengths and not self._fits(frame):
                self.reset(frame.stream, ErrorCodes.PROTOCOL_ERROR)
                self._drop(frame)
                return (Faulty(frame.stream),)
            case kind if kind in _OF_A_STREAM and self._brief.is_late(frame.stream):
                self._read_late(frame)
                return ()
            case kind if kind not in _KNOWN:
                return ()  # an extension (§5.5): h2 knows some, and finds faults in them
        return self._let_read(frame)

    def _read_of_connection(self, frame: Frame) -> Sequence[Event | Faulty | WholeRequest]:
        """Read a frame that is no stream's."""
        match frame.kind:
            case Kind.SETTINGS if frame.flags & Flag.ACK and frame.length:
                self.fail(ErrorCodes.FRAME_SIZE_ERROR)
                return ()
            case Kind.GOAWAY if frame.length >= 8:
                self.is_left = True
                return ()
            case Kind.WINDOW_UPDATE if frame.length == 4:
                return self._raise_window(frame)
            case kind if kind not in _KNOWN:
                return ()
        return self._let_read(frame)

    def _read_whole(self, frame: Frame) -> Sequence[Event | Faulty | WholeRequest]:
        """Read a request's fields without h2, as far as they are in order."""
        start = FRAME_HEADER
        if frame.flags & Flag.PRIORITY:
            start += _PRIORITY
            if frame.length < _PRIORITY or _depends_on_itself(frame):
                return self._let_read(frame)
        head = self._decoder.decode_ahead(frame.octets[start:])
        if head is None:
            return self._let_read(frame)
        self._whole = frame
        return (WholeRequest(frame.stream, head),)

    def enter(self) -> None:
        """Let h2 open the stream of the request that was read last, if it has not."""
        frame, self._whole = self._whole, None
        if frame is not None:
            self._let_read(frame)
            if self.state is SessionState.ENDED:
                raise RuntimeError("h2 refuses a request that is in order")

    def _raise_window(self, frame: Frame) -> Sequence[Event | Faulty | WholeRequest]:
        """Raise the connection's window; h2 hears of the part that its own content took."""
        increment = frame.number
        if not 0 < increment <= LARGEST:
            return self._let_read(frame)
        rest = self._brief.raised(increment)
        if rest == increment:
            return self._let_read(frame)
        if rest:
            self._let_read(Frame(frame.kind, 0, 0, 4, frame_of(frame.kind, 0, 0, rest.to_bytes(4, "big"))))
        return (WindowUpdated(stream_id=0, delta=increment),)

    def _read_late(self, frame: Frame) -> None:
        """Read a frame for a stream that is over, and of which h2 has not heard."""
        error = self._brief.fault(frame)
        if error is not None:
            self.fail(error)
        elif frame.kind == Kind.DATA:
            self._write(frame_of(Kind.RST_STREAM, 0, frame.stream, _STREAM_CLOSED))
            self._remember(frame.stream)
            self._drop(frame)

    def _let_read(self, frame: Frame) -> Sequence[Event | Faulty]:
        """Let h2 read a frame."""
        try:
            events = self._h2.receive_data(frame.octets)
        except ProtocolError as error:
            self._move(SessionState.ENDED)
            denied = isinstance(error, DenialOfServiceError)
            undecodable = isinstance(error.__context__, HPACKError | IndexError) and not denied  # §4.3
            code = ErrorCodes.COMPRESSION_ERROR if undecodable else ErrorCodes(error.error_code)
            self._say_otherwise(code)
            return ()
        if events and isinstance(events[0], RequestReceived):
            self._brief.enter(frame.stream)
            return events
        return list(self._heeded(events))

    def _heeded(self, events: Sequence[Event]) -> Iterator[Event | Faulty]:
        for event in events:
            if isinstance(event, PingAckReceived):
                if event.ping_data == _FAREWELL:
                    self.part()
            elif isinstance(event, RemoteSettingsChanged):
                changed = event.changed_settings.get(SettingCodes.INITIAL_WINDOW_SIZE)
                if changed is not None:
                    self._brief.initial_window = changed.new_value
                yield event
            elif isinstance(event, TrailersReceived) and self._is_faulty(event):
                self.reset(event.stream_id, ErrorCodes.PROTOCOL_ERROR)
                yield Faulty(event.stream_id)
                return
            else:
                if isinstance(event, StreamReset):
                    self._lengths.pop(event.stream_id, None)
                    if not event.remote_reset:
                        self._remember(event.stream_id)
                yield event

    def _say_otherwise(self, error: ErrorCodes) -> None:
        """Replace the GOAWAY that h2 has just written: it does not know of all streams."""
        self.error = error
        self._out.append(self._h2.data_to_send()[:-_GOAWAY])
        self._go_away(self._brief.last(), error)

    def _is_faulty(self, trailers: TrailersReceived) -> bool:
        """Content is missing before trailers, or they are none."""
        left = self._lengths.pop(trailers.stream_id, 0)
        return left > 0 or not is_trailer_section(trailers.headers)

    def _fits(self, frame: Frame) -> bool:
        """Count content; False: it is not as long as its request said (§8.1.1)."""
        if frame.content < 0:
            return True  # more padding than payload: h2 ends the connection
        left = self._lengths.pop(frame.stream) - frame.content
        if frame.flags & Flag.END_STREAM:
            return left == 0
        self._lengths[frame.stream] = left
        return left >= 0

    def _drop(self, frame: Frame) -> None:
        """Give back the connection's window that content took which nobody reads (§5.1)."""
        self._unread += frame.length
        if self._unread >= LONGEST:
            self._return_window()

    def _return_window(self) -> None:
        self._write(WindowUpdateFrame(0, window_increment=self._unread).serialize())
        self._unread = 0

    def expect(self, stream: int, length: int) -> None:
        """Take note of the length of a request's content."""
        self._lengths[stream] = length

    def consumed(self, stream: int, octets: int) -> None:
        """Let as much content come again: these bytes of a stream's frames are taken."""
        if octets and self.state is not SessionState.ENDED:
            self._h2.acknowledge_received_data(octets, stream)

    # Outgoing

    def head(self, stream: int, status: int, block: bytes, *, ends: bool = False) -> None:
        """Send a response's head, or an interim response; its fields are those of `block`.

        h2 would encode each field anew for each connection: a head goes beside it, and it hears of content.
        """
        self._write(self._frames_of_head(stream, status, block, ends=ends))
        if ends:
            self._h2.end_stream(stream)
            self._out.append(self._h2.data_to_send()[:-FRAME_HEADER])  # an empty frame: the flag has said it

    def _frames_of_head(self, stream: int, status: int, block: bytes, *, ends: bool) -> bytes:
        octets = block_of_status(status) + block
        if not self._is_greeted:
            self._is_greeted, octets = True, NO_TABLE + octets
        kind, flags, frames = Kind.HEADERS, int(Flag.END_STREAM) if ends else 0, b""
        while len(octets) > LONGEST:
            piece, octets = octets[:LONGEST], octets[LONGEST:]
            frames += frame_of(kind, flags, stream, piece)
            kind, flags = Kind.CONTINUATION, 0
        return frames + frame_of(kind, flags | Flag.END_HEADERS, stream, octets)

    def answer(self, status: int, block: bytes, body: bytes) -> bool:
        """Send the whole response to the request that was read last; False: there is no window for it."""
        frame, octets = self._whole, len(body)
        if frame is None or octets > self._brief.room():
            return False
        self._whole = None
        self._decoder.skip()
        stream = frame.stream
        self._write(self._frames_of_head(stream, status, block, ends=not body))
        for start in range(0, octets, LONGEST):
            piece = body[start : start + LONGEST]
            self._earn(len(piece))
            ends = start + LONGEST >= octets
            self._out.append(frame_of(Kind.DATA, int(Flag.END_STREAM) if ends else 0, stream, piece))
        self.unwritten += octets
        self._brief.answer(stream, octets)
        self._credit.earn(Credit.AN_ANSWER)
        return True

    def window(self, stream: int) -> int:
        """The bytes of content that the client takes now."""
        return self._brief.room(self._h2.local_flow_control_window(stream))

    def content(self, stream: int, content: memoryview, *, ends: bool) -> None:
        """Send content, which is within the window."""
        self.unwritten += len(content)
        self._brief.sent(len(content))
        while True:
            piece, content = content[:LONGEST], content[LONGEST:]
            self._earn(len(piece))
            self._h2.send_data(stream, bytes(piece), end_stream=ends and not content)
            if not content:
                return

    def _earn(self, octets: int) -> None:
        if octets >= _A_PIECE:
            self._credit.earn(Credit.A_PIECE)

    def end(self, stream: int) -> None:
        """End a response whose content is all sent."""
        self._h2.end_stream(stream)

    def answered(self, stream: int) -> None:
        """Take note that a stream is over on both sides."""
        self._lengths.pop(stream, None)
        self._credit.earn(Credit.AN_ANSWER)

    def awaits_end(self, stream: int) -> bool:
        """Take note that a response is over; True: its request is whole but for END_STREAM.

        Some clients send that in a frame of its own, and take RST_STREAM for a failure.
        """
        if self._lengths.get(stream, -1) != 0:
            return False
        self._credit.earn(Credit.AN_ANSWER)
        self._unended[stream] = None
        if len(self._unended) > MOST_STREAMS:
            oldest, _ = self._unended.popitem(last=False)
            if oldest in self._lengths:
                self.reset(oldest, ErrorCodes.NO_ERROR)
        return True

    def reset(self, stream: int, code: ErrorCodes) -> None:
        """End a stream at once; its client may not know for a while."""
        self._lengths.pop(stream, None)
        if self.state is SessionState.ENDED:
            return
        try:
            self._h2.reset_stream(stream, code)
        except StreamClosedError:
            return  # both sides have ended it (§5.1)
        self._remember(stream)

    def _remember(self, stream: int) -> None:
        self._dropped[stream] = None
        if len(self._dropped) > _REMEMBERED:
            self._dropped.popitem(last=False)

    def charge(self, price: int, now: float) -> None:
        """Let the client pay for a request in vain; 0: it has paid."""
        if price and not self._credit.waste(price, now):
            self.fail(ErrorCodes.ENHANCE_YOUR_CALM)

    # The end

    def leave(self) -> None:
        """Let the connection end once nothing is under way."""
        if self.state is SessionState.OPEN:
            self._move(SessionState.LEAVING)

    def ask_to_leave(self) -> None:
        """Ask a client that goes on to send no more requests; those that it has sent by then are answered.

        Clients that use h2 take a GOAWAY for the end of all streams, so it is not sent before it is needed.
        """
        if self.state is SessionState.LEAVING:
            self._move(SessionState.ASKED)
            self._go_away(LARGEST)
            self._h2.ping(_FAREWELL)

    def part(self) -> None:
        """Tell the client which request was the last that is answered."""
        if self.state is not SessionState.PARTED and self.state is not SessionState.ENDED:
            self._move(SessionState.PARTED)
            self._go_away(self._brief.last())

    def fail(self, code: ErrorCodes) -> None:
        """End the connection with an error (§5.4.1)."""
        if self.state is not SessionState.ENDED:
            self._move(SessionState.ENDED)
            self.error = code
            self._h2.close_connection(code, last_stream_id=self._brief.last())

    def forget(self) -> None:
        """Let go of h2's connection, a circle that would wait for the garbage collector."""
        if self.state is not SessionState.ENDED:
            self._move(SessionState.ENDED)
        vars(self._h2).clear()

    def _go_away(self, last: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        frame = GoAwayFrame(0, last_stream_id=last, error_code=code)
        self._write(frame.serialize())

    def _move(self, state: SessionState) -> None:
        assert state in _NEXT[self.state], (self.state, state)
        self.state = state

    # Bytes to write

    def _write(self, octets: bytes) -> None:
        self._out += (self._h2.data_to_send(), octets)

    def take(self) -> bytes:
        """All that is to be written now."""
        self.unwritten = 0
        if self._unread:
            self._return_window()
        if not self._out:
            return self._h2.data_to_send()
        out, self._out = self._out, []
        out.append(self._h2.data_to_send())
        return b"".join(out)


def _depends_on_itself(frame: Frame) -> bool:
    """Tell whether the priority of a HEADERS frame names its own stream (RFC 7540 §5.3.1)."""
    return int.from_bytes(frame.octets[FRAME_HEADER : FRAME_HEADER + 4], "big") & LARGEST == frame.stream


def _h2(header_octets: int, decoder: FieldDecoder) -> H2Connection:
    """h2's connection, with our settings sent."""
    config = H2Configuration(
        client_side=False,
        header_encoding=None,
        # Fields are judged by http2.head, and those that are sent come from there or from the engine.
        validate_inbound_headers=False,
        normalize_inbound_headers=False,
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
    )
    connection = H2Connection(config)
    settings = {
        SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
        SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        SettingCodes.MAX_HEADER_LIST_SIZE: header_octets,
    }
    connection.local_settings = Settings(client=False, initial_values=settings)
    connection.initiate_connection()
    # Streams bound what waits here, and the connection's window holds none of them up: twice what all of them
    # may have under way, since h2 gives back half of it at a time.
    connection.increment_flow_control_window((2 * MOST_STREAMS - 1) * STREAM_WINDOW)
    # h2 ends the connection at once for what is more than is said here: streams too many, which a client
    # may open before it has read this, and fields too large, which are refused with 431.
    settings[SettingCodes.MAX_CONCURRENT_STREAMS] = LARGEST
    connection.local_settings = Settings(client=False, initial_values=settings)
    connection.decoder = cast("hpack.Decoder", decoder)
    return connection
