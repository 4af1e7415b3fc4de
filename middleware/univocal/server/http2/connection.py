"""A client's connection by HTTP/2: what asyncio calls, and what each event of its session does (RFC 9113)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from univocal.http.errors import by_rank
from univocal.http.intermediary import HOP_BY_HOP, Line
from univocal.http.messages import Fields, Received, values, without
from univocal.http.problem import Problem
from univocal.http.tables import moves
from univocal.http.timer import NEVER, Timer
from univocal.judge.hits import Hit
from univocal.server.clients import MIN_RATE, ReadLimits, Scheduler, SchedulerState
from univocal.server.http2.fields import Head, block_of, block_of_hit
from univocal.server.http2.frames import LONGEST, ErrorCode
from univocal.server.http2.session import (
    MOST_STREAMS,
    ContentCame,
    Event,
    RequestCame,
    Session,
    SessionState,
    StreamLost,
    WindowOpened,
)
from univocal.server.listener import COMPLAINTS, ClientConnection, Listener
from univocal.server.turn import RequestContent, Turn, Uvicorn

# Bytes that wait for the client's window before the turn is told to write no more.
_AHEAD: Final = 16 * 1024


class Backlog:
    """Content of a response that waits for the client's window; `octets` are its bytes."""

    def __init__(self) -> None:
        self.octets = 0
        self._chunks: deque[memoryview] = deque()
        self._sent: int | None = None  # bytes since the last look, if something waited then

    def add(self, chunk: bytes | memoryview) -> None:
        """Take content that is not empty."""
        self._chunks.append(memoryview(chunk))
        self.octets += len(chunk)

    def take(self, room: int) -> memoryview:
        """The next content, of so many bytes at most."""
        content = self._chunks[0]
        if len(content) > room:
            self._chunks[0] = content[room:]
            content = content[:room]
        else:
            self._chunks.popleft()
        self.octets -= len(content)
        if self._sent is not None:
            self._sent += len(content)
        return content

    def is_stuck(self) -> bool:
        """Look at what waits: since the last look nothing of it was sent."""
        sent, self._sent = self._sent, 0 if self.octets else None
        return self.octets > 0 and sent == 0


class ResponseState:
    """A state of a stream's response, with the data that it alone has."""


class Unanswered(ResponseState):
    """No head was sent."""


class HeadSent(ResponseState):
    """The head was sent; once it `has_ended`, the end of the response, too."""

    def __init__(self, backlog: Backlog, has_ended: bool) -> None:
        self.backlog = backlog
        self.has_ended = has_ended


class Started(HeadSent):
    """Content may follow; `is_full`: the turn was told to write no more."""

    is_full = False


class Finished(HeadSent):
    """All of it was given; the last of it may wait for the client's window."""


class Over(ResponseState):
    """Its end was sent, or it was reset: nothing follows."""


MOVES: Final[Mapping[type[ResponseState], Mapping[type[ResponseState], str]]] = {
    Unanswered: {Started: "the turn answers", Over: "the stream is reset, by the client or here"},
    Started: {Finished: "the turn has given all of it", Over: "the turn cuts it, or the stream is reset"},
    Finished: {Over: "its end was sent, or the stream is reset"},
    Over: {},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)


class Http2Stream:
    """A stream that a client has opened. `number` is its identifier; `turn` is set once it is made.

    The turn calls `interim`, `start`, `write`, `finish`, `cut`, `pause`, `resume` (see server.turn); the
    connection calls `receive`, `complete`, `send` and `lose`.
    """

    def __init__(
        self, number: int, wire: Http2Connection, *, is_complete: bool, is_malformed: bool = False
    ) -> None:
        self.number = number
        self.peer = wire.peer
        self.is_complete = is_complete  # the request is
        self.is_malformed = is_malformed  # its stream ends with an error whatever it is answered
        self.state: ResponseState = Unanswered()
        self.turn: Turn | None = None
        self._wire = wire
        self._arrived: int | None = None  # bytes since the last look, if they were waited for all the time
        self._flows = False  # the request's content is taken as it comes
        self._unread = 0  # bytes of its frames for which the client has no new window

    # The request's content

    def receive(self, content: bytes, octets: int) -> None:
        """Take content, and the number of bytes that it took of the windows."""
        if isinstance(self.state, Over):
            self._wire.session.consumed(self.number, octets)
            return
        self._unread += octets
        if self._arrived is not None:
            self._arrived += len(content)
        if self.turn is not None:
            self.turn.receive(content)
        self._give_window()

    def complete(self) -> None:
        """Handle the end of the request."""
        self.is_complete = True
        if self.turn is not None:
            self.turn.complete()

    def pause(self) -> None:
        self._flows, self._arrived = False, None

    def resume(self) -> None:
        self._flows = True
        self._give_window()

    def _give_window(self) -> None:
        if self._flows and self._unread:
            octets, self._unread = self._unread, 0
            self._wire.session.consumed(self.number, octets)
            self._wire.flush_soon()

    @property
    def awaits_content(self) -> bool:
        """The client is the one who does not go on: it has a window, and need not wait for 100 (Continue)."""
        turn = self.turn
        if self.is_complete or turn is None or turn.content is None:
            return False
        return not turn.content.awaits_continue and (self._flows or not self._unread)

    def is_slow(self, least: int) -> bool:
        """Look at the content that comes: since the last look it was waited for, and less has come."""
        arrived = self._arrived
        waits = self.awaits_content
        self._arrived = 0 if waits else None
        return waits and arrived is not None and arrived < least

    # The response

    @property
    def awaits_window(self) -> bool:
        """Content waits for the client, or for others' content before it."""
        state = self.state
        return isinstance(state, HeadSent) and state.backlog.octets > 0

    def is_stuck(self) -> bool:
        """Look at the content that waits: since the last look nothing of it was sent."""
        state = self.state
        return isinstance(state, HeadSent) and state.backlog.is_stuck()

    def interim(self, status: int, fields: Fields) -> None:
        self._wire.session.head(self.number, status, block_of(without(fields, HOP_BY_HOP)))
        self._wire.flush_soon()

    def start(
        self,
        turn: Turn,  # noqa: ARG002
        status: int,
        fields: Fields,
        names: Collection[bytes],
        has_content: bool,
    ) -> None:
        ends = not (has_content or self.is_malformed)
        _MOVES[type(self.state), Started]
        self.state = Started(Backlog(), ends)
        if not HOP_BY_HOP.isdisjoint(names):  # §8.2.2
            fields = without(fields, HOP_BY_HOP)
        self._wire.session.head(self.number, status, block_of(fields), ends=ends)
        self._wire.flush_soon()

    def write(self, chunk: bytes | memoryview) -> bool:
        state = self.state
        if not isinstance(state, Started):
            return True
        if chunk:
            state.backlog.add(chunk)
            self._wire.send_soon(self)
        state.is_full = state.backlog.octets > _AHEAD
        return not state.is_full

    def finish(self) -> None:
        state = self.state
        if isinstance(state, Started):
            _MOVES[Started, Finished]
            self.state = Finished(state.backlog, state.has_ended)
            self._wire.send_soon(self)

    def cut(self) -> None:
        state = self.state
        if isinstance(state, Started):
            while self.send():
                pass
            if state.has_ended:
                self._end(state)  # its head was all of it
            else:
                self.reset(ErrorCode.INTERNAL_ERROR)

    def upgrade(self, fields: Fields | None) -> Line:  # noqa: ARG002
        raise RuntimeError("HTTP/2 has no 101 (RFC 9113 §8.6).")

    def send(self) -> bool:
        """Send a frame of what waits, within the client's window; True: more may be sent at once."""
        session, state = self._wire.session, self.state
        if not isinstance(state, HeadSent):
            return False
        backlog = state.backlog
        room = min(session.window(self.number), LONGEST) if backlog.octets else 0
        if room > 0:
            content = backlog.take(room)
            is_last = isinstance(state, Finished) and not backlog.octets
            state.has_ended = is_last and not self.is_malformed
            session.content(self.number, content, ends=state.has_ended)
        if isinstance(state, Finished) and not backlog.octets:
            self._end(state)
        elif isinstance(state, Started) and state.is_full and backlog.octets <= _AHEAD:
            state.is_full = False
            if self.turn is not None:
                self.turn.resume()
        return room > 0 and self.awaits_window

    def _end(self, state: HeadSent) -> None:
        """End the response; content of the request that still comes is of no use (§8.1)."""
        if self.is_malformed:
            self.reset(ErrorCode.PROTOCOL_ERROR)
            return
        session = self._wire.session
        if not state.has_ended:
            session.end(self.number)
        if session.is_answered(self.number):
            self._let_go()
        else:
            self.reset(ErrorCode.NO_ERROR)

    # The end

    def reset(self, code: ErrorCode, reasons: tuple[str, ...] = ()) -> None:
        """End the stream at once."""
        if not isinstance(self.state, Over):
            self._wire.session.reset(self.number, code)
            self._let_go(reasons)

    def lose(self, reasons: tuple[str, ...] = ()) -> None:
        """Handle a client's reset, its leaving, or faulty content."""
        if not isinstance(self.state, Over):
            self._let_go(reasons)

    def _let_go(self, reasons: tuple[str, ...] = ()) -> None:
        _MOVES[type(self.state), Over]
        self.state = Over()
        turn, self.turn = self.turn, None  # objects in a circle wait for the garbage collector
        if turn is not None and not turn.is_over:
            turn.end(reasons)
        octets, self._unread = self._unread, 0
        self._wire.session.consumed(self.number, octets)
        self._wire.close_stream(self)


logger: Final = logging.getLogger("univocal")

# Bytes of content that are written at once.
_BATCH: Final = 128 * 1024
# Frames of one connection that are read before others have their turn (see `Scheduler`).
_AT_ONCE: Final = 64
_CHUNKED: Final = (b"transfer-encoding", b"chunked")
_TIMEOUT: Final = ("request-timeout",)


class Http2Connection(ClientConnection):
    """A connection to a listener, made by uvicorn or by `TlsConnection`, and the Evictable that it is there.

    The order of calls is asyncio's; `shutdown` is uvicorn's, and lets what is under way finish. Streams call
    `send_soon`, `flush_soon` and `close_stream`. Content waits for the end of the loop's iteration. Then
    streams send in turn, frame by frame, as the windows and the transport allow.

    Streams are looked at every `content_timeout` seconds (see framing): awaited content must come in that
    time, MIN_RATE bytes for each second. Where a response waits for the client's window, they are looked at
    as often as `Delivery` looks: it must send something. While the transport takes nothing, nothing is read
    either, and no stream is to blame. Floods of frames end by another rule: `Credit` in `frames.py`, which
    `Session` spends.
    """

    session: Session

    def __init__(self, listener: Listener, uvicorn: Uvicorn) -> None:
        super().__init__(listener, uvicorn)
        self._limits = listener.bounds.limits  # those that the client was told
        self._streams: dict[int, Http2Stream] = {}
        self._gathered: dict[Http2Stream, list[ContentCame]] = {}  # content of the frames that are read
        self.scheduler = Scheduler(self._loop, listener.ticks, _AT_ONCE, self._read_frame, self._read_on)
        self._timer = Timer(self._loop, self._late)
        self._content_timer = Timer(self._loop, self._look_at_content)
        self._window_timer = Timer(self._loop, self._look_at_windows)
        self._ready: dict[Http2Stream, None] = {}  # streams that may send, in order
        self._flushes: asyncio.Handle | None = None  # later in this iteration of the event loop
        self._is_blocked = False  # the transport takes no more for now

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.session = Session(self.rested, _header_octets(self._limits))
        self._timer.set(self._limits.header_timeout or self._keep_alive)
        self.flush_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.scheduler.stop()
        for timer in (self._timer, self._content_timer, self._window_timer):
            timer.close()
        self._lose_streams()
        self._ready.clear()
        if self._flushes is not None:
            self._flushes.cancel()
            self._flushes = None

    def pause_writing(self) -> None:
        self._is_blocked = True
        self.transport.pause_reading()
        self._delivery.watch(self._forsake)

    def resume_writing(self) -> None:
        self._is_blocked = False
        self._delivery.moved()
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.flush_soon()
        if not self.session.is_read:
            self.scheduler.go_on_later()

    def _forsake(self) -> None:
        """Give a client up that takes nothing."""
        self._lose_streams(_TIMEOUT)
        self.transport.abort()

    def _lose_streams(self, reasons: tuple[str, ...] = ()) -> None:
        for stream in list(self._streams.values()):
            stream.lose(reasons)

    # A client among others

    def is_resting(self) -> bool:
        """Tell whether no stream is open."""
        return not self._streams

    def evict(self) -> None:
        """Close, for another client that has come."""
        self.session.part()
        self._lose_streams()
        self._close_transport()

    def shutdown(self) -> None:
        """Close after what is under way (§6.8)."""
        self.session.leave()
        self.flush_soon()

    # Frames

    def data_received(self, data: bytes) -> None:
        if self.session.state is SessionState.ENDED:
            return
        self.session.feed(data)
        self._read()

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self._read()

    def _read(self) -> None:
        """Read frames, until none is left, or others have their turn, or the client takes no answers."""
        if self.scheduler.state is not SchedulerState.RESTING:
            return
        more = False
        try:
            more = not self.scheduler.run() and not self._is_blocked
            self._hand_over()
        except Exception:
            logger.exception("internal error on an HTTP/2 connection: closed")
            self.session.fail(ErrorCode.INTERNAL_ERROR)
        if self.session.state is SessionState.ENDED:
            self._break_off()
            return
        if more:
            self.transport.pause_reading()
            self.scheduler.go_on_later()
        elif not self._is_blocked:
            self.transport.resume_reading()
        since = self.session.fields_since
        if since is not None and self._limits.header_timeout:
            self._timer.set(since + self._limits.header_timeout - self._loop.time())
        self.flush_soon()

    def _read_frame(self) -> int:
        """Heed the event of the next frame (see `Scheduler`)."""
        if self._is_blocked:
            return -1
        now = self._loop.time()
        event = self.session.next(now)
        if event is None:
            return 0
        self._heed(event, now)
        return 1

    def _heed(self, event: Event, now: float) -> None:
        if isinstance(event, RequestCame):
            self._hand_over()
            self._begin(event.stream, event.head, now, is_complete=event.is_complete)
        elif isinstance(event, ContentCame):
            stream = self._streams.get(event.stream)
            if stream is None:
                self.session.consumed(event.stream, event.octets)
                return
            self._gathered.setdefault(stream, []).append(event)
            if event.ends:
                self._hand_over()
                stream.complete()
        elif isinstance(event, WindowOpened):
            named = self._streams.get(event.stream)
            for each in (named,) if event.stream else self._streams.values():
                if each is not None and each.awaits_window:
                    self.send_soon(each)
        elif isinstance(event, StreamLost):
            lost = self._streams.get(event.stream)
            if lost is not None:
                # Content that has come for a stream that has ended.
                self.session.consumed(lost.number, _octets(self._gathered.pop(lost, [])))
                lost.lose(event.reasons)
            if not event.by_client:  # who has paid for the frame (`Credit.waste`)
                self.session.charge(now)

    def _hand_over(self) -> None:
        """Hand over the content that has come, each stream's in one: frames may be of one byte."""
        gathered, self._gathered = self._gathered, {}
        for stream, events in gathered.items():
            stream.receive(b"".join([event.content for event in events]), _octets(events))

    # Requests

    def _begin(self, number: int, head: Head, now: float, *, is_complete: bool) -> None:
        """Answer a request, or refuse it a stream."""
        session = self.session
        if session.state is SessionState.PARTED or len(self._streams) >= MOST_STREAMS:
            session.reset(number, ErrorCode.REFUSED_STREAM)
            if session.state is not SessionState.PARTED:
                session.charge(now)
            return
        if self.listener.bounds.limits is not self._limits:
            session.leave()  # what it was told holds no longer: its next connection is told anew
            self._suited = None
        if self._streams:
            session.ask_to_leave()
        self._timer.clear()
        received = self._received(head.method, head.target, b"2")
        if is_complete and head.method == b"GET" and self._at_a_glance(number, head, received, now):
            return
        if is_complete and head.length:
            head = head.malformed()
        self._answer(number, head, received, is_complete=is_complete, now=now)

    def _at_a_glance(self, number: int, head: Head, received: Received, now: float) -> bool:
        """Answer an ordinary GET; False: it is none, and nothing was done."""
        listener, contents = self.listener, head.values
        if head.reasons or head.target[:1] != b"/" or head.octets > listener.bounds.longest_glance:
            return False
        ticks, service = time.perf_counter(), listener.service
        plan, find = self._plan(head.names, contents), service.at_a_glance
        if plan is None or find is None:
            return False
        begun = service.clock()
        found = find(received, plan, contents, begun)
        if isinstance(found, Hit):
            if self._reply(number, found, now):
                service.tell(found, received, begun, ticks)
                return True
            found = None
        stream = self._open(number, is_complete=True)
        stream.turn = Turn(stream, service, received, plan.fields(contents), plan=plan, lookup=found)
        stream.turn.begin()
        return True

    def _reply(self, number: int, hit: Hit, now: float) -> bool:
        """Send a stored response at once; False: the client does not take all of it now."""
        stored = hit.stored
        block = block_of_hit(hit.head, hit.age, hit.hit_fields.lines)
        if self.session.unwritten >= _BATCH:
            self._write()
        if self._is_blocked or not self.session.answer(number, stored.status, block, stored.body):
            return False
        self._state.total_requests += 1
        self.rested = now
        return True

    def _answer(self, number: int, head: Head, received: Received, *, is_complete: bool, now: float) -> None:
        """Have the service answer, or refuse."""
        fields = head.fields
        stream = self._open(number, is_complete=is_complete, is_malformed=head.is_malformed)
        refusal = self._refusal(head, received)
        if refusal is not None or is_complete:
            content = None
        else:
            if head.length is None:
                # Its end is the stream's; towards the origin server it is chunked.
                fields = [*fields, _CHUNKED]
            expects = any(value.lower() == b"100-continue" for value in values(fields, b"expect"))
            content = RequestContent(stream, expects_continue=expects)
            if self._content_timer.when == NEVER:
                self._content_timer.set(self.listener.bounds.limits.content_timeout or None)
        if head.is_malformed:
            self.session.charge(now)
        stream.turn = Turn(stream, self.listener.service, received, fields, content=content, refusal=refusal)
        stream.turn.begin()

    def _refusal(self, head: Head, received: Received) -> Problem | None:
        """The answer to a request that no responder gets."""
        reasons = list(head.reasons)
        if not head.is_malformed:
            reasons += self.listener.faults(received, head.fields, self.peer)
        reasons += self._refusal_reasons()
        if not reasons:
            return None
        return self.listener.refuse_head(received, head.fields, by_rank(reasons))

    def _open(self, number: int, *, is_complete: bool, is_malformed: bool = False) -> Http2Stream:
        stream = Http2Stream(number, self, is_complete=is_complete, is_malformed=is_malformed)
        self._streams[number] = stream
        return stream

    # What is sent

    def send_soon(self, stream: Http2Stream) -> None:
        """Send a stream's data, with that of all others in this iteration of the event loop."""
        self._ready[stream] = None
        self.flush_soon()

    def flush_soon(self) -> None:
        """Write what the session has to say in this iteration of the event loop."""
        if self._flushes is None:
            self._flushes = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes = None
        ready = self._ready
        while ready and not self._is_blocked:
            stream = next(iter(ready))
            del ready[stream]
            if stream.send():
                ready[stream] = None
            elif stream.awaits_window and stream not in ready and self._window_timer.when == NEVER:
                self._window_timer.set(self._delivery.seconds)
            if self.session.unwritten >= _BATCH:
                self._write()
        self._write()
        self._settle()

    def _write(self) -> None:
        """Write what there is."""
        octets = self.session.take()
        if octets and not self.transport.is_closing():
            self.transport.write(octets)

    def close_stream(self, stream: Http2Stream) -> None:
        """Forget a stream whose response is over."""
        self._streams.pop(stream.number, None)
        self._ready.pop(stream, None)
        self._state.total_requests += 1
        self.rested = self._loop.time()
        if self._refusal_reason:
            self.session.part()  # one connection too many: this was its last word
        self.flush_soon()

    # Time, and the end

    def _settle(self) -> None:
        """See to it that a connection without streams has an end, once all is written."""
        if (
            self.transport.is_closing()
            or self._streams
            or self.scheduler.state is not SchedulerState.RESTING
            or self._is_blocked
        ):
            return
        ends = self.session.is_left or self.session.state is not SessionState.OPEN
        if ends and self.session.is_read:
            self._close()
        elif self._timer.when == NEVER:
            self._timer.set(self._keep_alive)

    def _close(self) -> None:
        self.session.part()
        self._close_transport()

    def _close_transport(self) -> None:
        """Close once the client has taken all that was written, and see to it that it takes it."""
        self._write()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._delivery.watch(self.transport.abort)

    def _late(self) -> None:
        """End a connection on which nothing was asked, or not all of it."""
        self._timer.clear()
        if self.session.fields_since is not None:
            self.listener.refuse(self._nothing(), _TIMEOUT)
        elif self._streams:
            return
        self._lose_streams(_TIMEOUT)
        self._close()

    def _look_at_content(self) -> None:
        """End streams whose content does not come."""
        self._content_timer.clear()
        seconds = self.listener.bounds.limits.content_timeout
        for stream in list(self._streams.values()):
            if stream.is_slow(int(MIN_RATE * seconds)) and not self._is_blocked:
                self._give_up(stream)
        if any(not stream.is_complete for stream in self._streams.values()):
            self._content_timer.set(seconds or None)

    def _look_at_windows(self) -> None:
        """End streams that wait for a window which does not open."""
        self._window_timer.clear()
        for stream in list(self._streams.values()):
            if stream.is_stuck() and not self._is_blocked:
                self._give_up(stream)
        if any(stream.awaits_window for stream in self._streams.values()):
            self._window_timer.set(self._delivery.seconds)

    def _give_up(self, stream: Http2Stream) -> None:
        """End a stream whose client does not go on; say why, if nothing was answered."""
        turn = stream.turn
        if turn is None or not isinstance(stream.state, Unanswered):
            stream.reset(ErrorCode.CANCEL, _TIMEOUT)
        else:
            turn.give_up(_TIMEOUT)

    def _break_off(self) -> None:
        """End a connection in which there was an error (§5.4.1)."""
        error = self.session.error
        if error == ErrorCode.ENHANCE_YOUR_CALM:
            self.listener.refuse(self._nothing(), ("too-many-requests",))
        COMPLAINTS.note(f"Ended an HTTP/2 connection: {error.name if error else error}")
        self._lose_streams()
        self._close_transport()

    def _nothing(self) -> Received:
        """The request line, as far as it is known, of a request that has not come."""
        return Received(b"", b"", self.peer.scheme, self.peer.address, b"2")


def _octets(events: Iterable[ContentCame]) -> int:
    """The bytes of windows that content took."""
    return sum([event.octets for event in events])


def _header_octets(limits: ReadLimits) -> int:
    """The size of a request's fields that is allowed, as HPACK counts it (RFC 7541 §4.1)."""
    octets = (limits.max_target or 65536) + (limits.max_field_bytes or 1024 * 1024)
    return octets + 32 * (limits.max_fields or 1000)
