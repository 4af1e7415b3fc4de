"""A client's connection by HTTP/1.1: what asyncio calls (RFC 9112)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from univocal.http.bonds import Bond
from univocal.http.errors import RefusedError
from univocal.http.framing import split_target
from univocal.http.grammar import of_socket
from univocal.http.intermediary import Line, Switched
from univocal.http.messages import Fields, Received, values
from univocal.http.problem import FAULT, Problem
from univocal.http.tables import moves
from univocal.http.timer import NEVER, Timer
from univocal.judge.hits import Hit
from univocal.server.clients import LINGER, LINGER_BYTES, MIN_RATE, Scheduler, SchedulerState, is_gone
from univocal.server.http1.messages import (
    BEGINNING,
    END,
    JOINED,
    Glance,
    Glimpse,
    IncomingHead,
    RequestReader,
    RequestState,
    ResponseWriter,
    interim_head,
)
from univocal.server.listener import COMPLAINTS, ClientConnection, Listener
from univocal.server.turn import RequestContent, Turn, TurnState, Uvicorn

# Seconds before the end of a shutdown's time at which tunnels are ended, so that clients can hear of it.
FAREWELL: Final = 1.0

# Content of a request that still comes when its answer was sent is read for so many seconds, as by nginx's
# lingering_time and lingering_timeout, and so many bytes: many clients send all of it before they read.
EARLY_TIME: Final = 30.0
EARLY_PAUSE: Final = 5.0
EARLY_BYTES: Final = 256 * 1024 * 1024

# Seconds between two looks at a client that sends no more, and may have left.
_LOOK: Final = 0.5

# Steps that one connection may take before others have their turn (see `Scheduler`). A hit is one step; a
# request that takes the long way is 16, and a piece of content is 32.
_AT_ONCE: Final = 128
_LONG: Final = 16
_CONTENT: Final = 32
_BLANK_LINE: Final = b"\r\n\r\n"
_perf_counter: Final = time.perf_counter


class Flow:
    """Pauses reading, which two have a say in: a request's content, and the connection that holds more.

    The connection is read once neither keeps it paused.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.held = self._full = False
        self.read_paused = False

    def pause_reading(self) -> None:
        """Stop reading: the content is full."""
        self._full = True
        self._settle()

    def resume_reading(self) -> None:
        """Read on, unless held: the content takes more."""
        self._full = False
        self._settle()

    def hold(self, held: bool) -> None:
        """Stop reading until the hold is given up, and the content takes more."""
        self.held = held
        self._settle()

    def _settle(self) -> None:
        paused = self.held or self._full
        if paused is not self.read_paused:
            self.read_paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class Incoming:
    """A request whose content is being read, and what was seen of it since its client was given time."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.arrived = 0  # bytes
        self.paused = False  # reading was
        self.until = NEVER  # the end of the time for content behind an early answer, once that was sent
        self.behind = 0  # bytes of such content


class ConnectionState:
    """A state of a connection, with the data that it alone has."""


class Open(ConnectionState):
    """Requests are read and answered."""


class HalfClosed(ConnectionState):
    """The client sends no more; what it has asked is answered, and that is the end."""

    __slots__ = ("since",)

    def __init__(self, since: float) -> None:
        self.since = since  # the loop's time


class Undecided(ConnectionState):
    """A handshake waits for its answer: what comes may be another protocol's."""


class Refusing(ConnectionState):
    """Nothing more is read; a refusal is the last answer."""

    __slots__ = ("discarded",)

    def __init__(self) -> None:
        self.discarded = 0  # bytes that came and were not read


class Lingering(ConnectionState):
    """The last answer was sent, and the client may still read it: see `_linger`."""

    __slots__ = ("left", "pause", "until")

    def __init__(self, until: float, pause: float, most: int) -> None:
        self.until = until  # the loop's time
        self.pause = pause  # seconds without a byte from the client
        self.left = most  # bytes that may come and are not read


class GivenAway(ConnectionState):
    """The connection is another protocol's."""


class Lost(ConnectionState):
    """There is no connection any more."""


_OPEN: Final = Open()
_UNDECIDED: Final = Undecided()
_GIVEN_AWAY: Final = GivenAway()
_LOST: Final = Lost()

MOVES: Final[dict[type[ConnectionState], dict[type[ConnectionState], str]]] = {
    Open: {
        HalfClosed: "the client sends no more",
        Undecided: "a request asks for another protocol",
        Refusing: "a request is refused",
        Lingering: "the last answer was sent before its request had come",
        Lost: "the connection is lost",
    },
    HalfClosed: {Lost: "the connection is lost"},
    Undecided: {
        Open: "the handshake has an ordinary response",
        GivenAway: "the handshake is accepted",
        Lost: "the connection is lost",
    },
    Refusing: {
        HalfClosed: "the client sends no more",
        Lingering: "the refusal was sent",
        Lost: "the connection is lost",
    },
    Lingering: {Lost: "the connection is lost"},
    GivenAway: {Lost: "the connection is lost"},
    Lost: {Lost: "it is told twice: by the protocol that had it, and by asyncio"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)

_BETWEEN: Final = RequestState.BETWEEN
_HEAD: Final = RequestState.HEAD
_STOPPED: Final = RequestState.STOPPED
_WAITING: Final = TurnState.WAITING
_RESTING: Final = SchedulerState.RESTING


class Http1Connection(ClientConnection):
    """Reads requests, gives each its turn, and frames their responses: a `Stream` for the turn that is first.

    asyncio calls `connection_made`, then `data_received`, `pause_writing` and `resume_writing` in any order,
    and `connection_lost`. uvicorn calls `shutdown`. Each of them ends in `_work`, which begins the first
    turn. It reads on while no more than one request waits for another's answer. The first turn calls back:
    `interim`, `start`, `write`, and `finish` or `cut`, which takes it out of the queue.

    `state` moves as `MOVES` says. The reader's says what it reads next. A request is under way as long
    as there are `turns`; the last one's content, if any, may still come.
    """

    def __init__(self, listener: Listener, uvicorn: Uvicorn) -> None:
        super().__init__(listener, uvicorn)
        loop = self._loop
        self._is_limited: bool = self._config.limit_concurrency is not None
        self._reader = RequestReader(listener.bounds)
        self._timer = Timer(loop, self._late)
        self._flow: Flow
        self._writer: ResponseWriter
        # The writer's own, for the turn that is first (`Stream`).
        self.start: Callable[[Turn, int, Fields, Collection[bytes], bool], None]
        self.write: Callable[[bytes | memoryview], bool]
        self._glance: Glance | None = None
        self._limits = listener.bounds.limits  # those under which the glance has read
        self._glances = True  # heads may be read at a glance; else that was tried
        self._incoming: Incoming | None = None
        self._scheduler = Scheduler(loop, listener.ticks, _AT_ONCE, self._step, self._work_on)
        self.state: ConnectionState = _OPEN
        self.turns: deque[Turn] = deque()  # that are not answered: one at a time, the first first

    # Called by asyncio and uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        listener = self.listener
        self._flow = Flow(transport)
        self._writer = writer = ResponseWriter(transport, self._loop)
        self.start, self.write = writer.start, writer.write
        self._bond = None if self.peer.address is None or self._is_proxy else Bond()
        self._timer.set(listener.bounds.limits.header_timeout or None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._move(_LOST)
        super().connection_lost(exc)
        self._timer.close()
        self._scheduler.stop()
        self._reader.stop()
        turns, self._incoming = [*self.turns], None
        self.turns.clear()
        for turn in turns:
            turn.end()
        self._glance = None  # circles wait for the garbage collector
        if self._bond is not None:
            self._bond.end()

    def data_received(self, data: bytes) -> None:
        # Most of what comes is one head that is all of its request, on a connection that rests.
        rests, glance = not self._reader.octets, self._glance
        known = glance.recall(data) if rests and glance is not None else None
        alone = rests and (known is not None or data.find(_BLANK_LINE) == len(data) - 4)
        if alone and self._glance_at(data, known):
            return
        if self._reader.state is _STOPPED:
            self._discard(len(data))
        else:
            self._reader.push(data)
            self._work(glances=not alone)

    def eof_received(self) -> bool:
        """Handle the end of the client's half (RFC 9112 §9.6); True: it is answered all the same."""
        state = self.state
        if isinstance(state, HalfClosed):
            return True
        self._writer.flush()  # what is answered, if nothing is asked any more
        asks = bool(self.turns) and self._incoming is None and isinstance(state, Open | Refusing)
        if not (asks and self.listener.bounds.limits.half_closed_timeout) or is_gone(self.transport):
            return False
        self._reader.stop()
        self.turns[-1].keep_alive = False
        self.rested = self._timer.set(_LOOK)
        self._move(HalfClosed(self.rested))
        return True

    def pause_writing(self) -> None:
        self._writer.write_paused = True
        self._delivery.watch(self._forsake)

    def resume_writing(self) -> None:
        self._delivery.moved()
        self._writer.write_paused = False
        if self.turns:
            self.turns[0].resume()
        self._work()

    def shutdown(self) -> None:
        """Close after what is under way; a tunnel, which has no end, before the time for that is over."""
        if not self.turns:
            self._writer.flush()
            self.transport.close()
            return
        self.turns[-1].keep_alive = False
        if self.turns[0].received.upgrade:
            seconds = self._config.timeout_graceful_shutdown or 0
            self._loop.call_later(max(0, seconds - FAREWELL), self.turns[0].send_away)

    # A client among others (`Evictable`)

    def is_resting(self) -> bool:
        """Tell whether no request is under way; one whose head is not complete is not.

        A client that sends no more may have left: its request keeps no other out.
        """
        return isinstance(self.state, HalfClosed) or not (self.turns or self._reader.octets)

    def evict(self) -> None:
        """Close, for another client that has come; say why, if a request has begun to arrive."""
        if self.state is _OPEN and self._reader.state is _HEAD:
            self._refuse(("request-timeout",))
            self._work()
        self._writer.flush()
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # Work: turns begin, and requests are read

    def _work(self, *, glances: bool = True) -> None:
        """Begin the turn that is first, and read on, for as long as others may wait.

        `glances`: heads may be read at a glance; else that was tried.
        """
        working = self._scheduler.state
        if working is SchedulerState.WAITING:  # uvloop reads up to 32 times in one iteration
            self._hold(held=bool(self._reader.octets))
        if working is not _RESTING:
            return
        reader, self._glances, starved = self._reader, glances, False
        try:
            starved = self._scheduler.run()
        finally:
            if reader.octets:
                reader.drop()
        rests = starved and not self.turns and reader.state is _BETWEEN and not self._flow.held
        if self.state is _OPEN or self.state is _UNDECIDED:
            if not rests:
                self._pause(starved)
        elif self.turns and not starved:  # a refusal, behind so many steps that others had their turn
            self._scheduler.go_on_later()

    def _step(self) -> int:
        """Begin a turn, or read on (see `Scheduler`)."""
        if self.turns and self.turns[0].state is _WAITING and not self._writer.write_paused:
            self.turns[0].begin()
            return _LONG
        if not (self._reader.octets or self._incoming):
            return 0
        if not self._takes_more():
            return -1
        if self._glances and not self.turns and self._glance_on():
            return 1
        if not self._read():
            return 0
        return _LONG if self._incoming is None else _CONTENT

    def _work_on(self) -> None:
        if not self.transport.is_closing():
            self._work()

    def _takes_more(self) -> bool:
        """Tell whether what comes next may be read: one that waits for another's response is enough."""
        waits = len(self.turns) > 1 and self._incoming is None
        return self.state is _OPEN and not (waits or self.transport.is_closing())

    def _hold(self, *, held: bool) -> None:
        """Stop reading until the bytes at hand are parsed, or read on; the client is not slow meanwhile."""
        if held is not self._flow.held:
            self._flow.hold(held)
            if held and self._incoming is not None:
                self._incoming.paused = True

    def _pause(self, starved: bool) -> None:
        """Work is done for now: see to it that it goes on, and that the client does."""
        reader, timer = self._reader, self._timer
        has_more = bool(reader.octets) or self._incoming is not None  # the end of content has no bytes
        begins = bool(self.turns) and self.turns[0].state is _WAITING and not self._writer.write_paused
        if not starved and (begins or (has_more and self._takes_more())):
            self._scheduler.go_on_later()
        held = len(self.turns) > 1 or (not starved and bool(reader.octets))
        self._hold(held=held)
        limits = self.listener.bounds.limits
        if self._incoming is not None:
            is_early = self._incoming.until != NEVER and self._incoming.arrived > 0
            enough = self._incoming.arrived >= MIN_RATE * limits.content_timeout
            if timer.when == NEVER or enough or is_early:
                self._await_content(self._incoming)
        elif reader.state is _HEAD and timer.when == NEVER:
            timer.set(limits.header_timeout or None)

    def _read(self) -> bool:
        """Read on by one step; False: more bytes are needed."""
        reader = self._reader
        before = reader.state
        try:
            event = reader.next()
            if isinstance(event, bytes):
                if self._incoming is not None:
                    self._receive(self._incoming, event)
            elif isinstance(event, IncomingHead):
                self._take(event)
            elif event is END:
                self._complete()
            elif before is _BETWEEN and reader.state is _HEAD:
                self._timer.clear()  # its time begins with its first byte
        except RefusedError as refused:
            self._refuse(refused.reasons)
            return True
        except Exception as error:
            turn = self._refusal(FAULT) if self._incoming is None else self._incoming.turn
            self._end_with(turn)
            turn.fail(error)
            return True
        return event is not None

    def _take(self, head: IncomingHead) -> None:
        """Judge a head, and give its request a turn."""
        listener, peer = self.listener, self.peer
        if self._limits is not self.listener.bounds.limits:
            self._note_reload()
        received = self._received(head.method, head.target, head.version.encode())
        fields = _fields(head)
        octets = head.octets + len(fields)  # each line is counted with a blank behind its colon
        reasons = listener.faults(received, fields, peer, head.watched, octets)
        reasons.extend(self._refusal_reasons())
        if reasons:
            raise RefusedError(reasons[0], reasons)
        if received.version == b"1.0" and peer.server is not None:
            received.server = of_socket(*peer.server)
        if head.upgrades and not self.turns:
            received.upgrade = listener.service.upgrade(received, fields)
            if received.upgrade:
                self._move(_UNDECIDED)
        content = None
        self._timer.clear()
        if self._reader.accept():
            # RFC 9110 §10.1.1: HTTP/1.0 knows no such expectation.
            expects = any(value.lower() == b"100-continue" for value in values(head.watched, b"expect"))
            content = RequestContent(self, expects_continue=expects and received.version == b"1.1")
        turn = Turn(self, listener.service, received, fields, content=content, keep_alive=head.keep_alive)
        self._incoming = None if content is None else Incoming(turn)
        self.turns.append(turn)

    def _refusal_reasons(self) -> tuple[str, ...]:
        if self._refusal_reason and (reasons := super()._refusal_reasons()):
            return reasons
        state, limit = self._state, self._config.limit_concurrency
        if limit is None or max(len(state.connections), len(state.tasks)) < limit:
            return ()
        COMPLAINTS.note("Exceeded concurrency limit.")
        return ("overloaded",)

    def _receive(self, incoming: Incoming, content: bytes) -> None:
        """Take content; behind an early answer it is dropped, so that the next request can be read."""
        incoming.arrived += len(content)
        if incoming.until == NEVER:
            incoming.turn.receive(content)
            return
        incoming.behind += len(content)
        if incoming.behind > EARLY_BYTES:
            self.close()

    def _complete(self) -> None:
        """Handle the end of a request's content."""
        incoming, self._incoming = self._incoming, None
        self._timer.clear()
        if incoming is None:
            return
        turn = incoming.turn
        is_over = turn.is_over
        turn.keep_alive = turn.keep_alive and self._reader.head.keep_alive
        turn.complete()
        if is_over and not turn.keep_alive:
            self._writer.flush()
            self.transport.close()
        elif is_over:
            self._timer.set(self._keep_alive)

    # Hits, at a glance

    def _glance_on(self) -> bool:
        """Answer the next request at a glance, if its head is there and ordinary."""
        head, glance = self._reader.whole_head(self.listener.bounds.longest_glance), self._glance
        known = glance.recall(head) if glance is not None else None
        if not head or not self._glance_at(head, known):
            return False
        self._reader.skip(len(head))
        return True

    def _note_reload(self) -> None:
        """Forget what was read before: hosts may be others, and a peer may be a proxy of many clients now."""
        listener, peer = self.listener, self.peer
        self._limits, self._glance, self._suited = listener.bounds.limits, None, None
        if self._bond is not None and listener.is_proxy(peer.address, introduced=peer.introduced):
            self._bond.end()
            self._bond = None

    def _glance_at(self, data: bytes, read: Glimpse | None) -> bool:
        """Answer an ordinary GET whose head is all of these bytes, or begin its turn.

        It may have been `read` by the connection's glance. False: nothing has been done, and the bytes are
        to be read like any others.
        """
        listener = self.listener
        find = listener.service.at_a_glance
        if (
            find is None
            or len(data) > listener.bounds.longest_glance
            or self.turns
            or self._reader.state is not _BETWEEN
            or self.state is not _OPEN
            or self._writer.write_paused
            or self.transport.is_closing()
            or self._is_limited
            or (self._bond is not None and self._bond.holds)
        ):
            return False
        ticks = _perf_counter()
        service, peer = listener.service, self.peer
        if self._limits is not listener.bounds.limits:
            self._note_reload()
            read = None
        if read is None:
            if not data.startswith(BEGINNING):
                return False  # the glance stays as it is
            glance = self._glance or Glance(self._plan)
            read = glance.read(data)
            # Its parser may wait for more of a message that it does not take.
            self._glance = None if read is None else glance
        if read is None:
            return False
        received = Received(  # as `_received` makes it, without one more call for each hit
            b"GET",
            read.target,
            peer.scheme,
            peer.address,
            introduced=peer.introduced,
            bond=self._bond,
            certificate=peer.certificate,
            listener=listener.name,
        )
        begun = service.clock()
        found = find(received, read.plan, read.values, begun)
        if isinstance(found, Hit):
            self._send(found)
            service.tell(found, received, begun, ticks)
        else:
            self._timer.when = NEVER
            fields = read.plan.fields(read.values)
            turn = Turn(self, service, received, fields, plan=read.plan, lookup=found)
            self.turns.append(turn)
            if self._scheduler.state is _RESTING and not self._flow.held:
                turn.begin()  # nothing else is left to do
            else:
                self._work()
        return True

    def _send(self, hit: Hit) -> None:
        stored = hit.stored
        if self._writer.unsent:
            self._writer.flush()
        last = b"age: %d\r\n%b\r\n" % (hit.age, hit.hit_fields.lines)
        if len(stored.body) > JOINED:
            self.transport.writelines((hit.head + last, stored.body))
        else:
            self.transport.write(b"".join((hit.head, last, stored.body)))
        self._state.total_requests += 1
        self.rested = self._timer.set(self._keep_alive)

    # Refusals, and the end

    def _refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem once all before it is answered, and end the connection."""
        if self._incoming is not None:
            turn = self._incoming.turn
            self.listener.complain(reasons)
            self._end_with(turn)
            turn.give_up(reasons)
        else:
            head = self._reader.head
            known = self._received(head.method, head.target, head.version.encode() or b"1.1")
            fields = head.fields if known.target else []
            self._end_with(self._refusal(self.listener.refuse_head(known, fields, reasons)))

    def _refusal(self, answer: Problem) -> Turn:
        """The turn of a request without a responder."""
        fields = [*self._state.default_headers, *answer.fields]
        refusal = Problem(answer.status, fields, answer.body)
        nobody = Received(b"", b"")  # whatever its method and version are, the connection ends behind it
        return Turn(self, self.listener.service, nobody, [], refusal=refusal)

    def _end_with(self, turn: Turn) -> None:
        """Read nothing more: the answer of this turn is the last one."""
        self._incoming, turn.keep_alive = None, False
        self._reader.stop()
        self._timer.clear()
        self._flow.hold(False)
        self._move(Refusing())
        if turn.is_over:
            self.close()  # the client sees that it is not to send the rest
        elif turn not in self.turns:
            self.turns.append(turn)

    def _linger(self, time: float, pause: float, most: int) -> None:
        """Leave the client time to read the last answer, and drop what it still sends (RFC 9112 §9.6).

        Closing on bytes that were not read resets the connection, and the client may lose the answer. It has
        `time` in all, and a `pause` without a byte, in seconds, and `most` bytes.
        """
        transport, is_refused = self.transport, self.state is not _OPEN
        self._writer.flush()
        # A client that goes on sending needs no end of the connection to know that of a framed answer.
        is_silent = not transport.can_write_eof() and (is_refused or self._writer.closes)
        if is_silent or isinstance(self.state, HalfClosed):
            self.close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        self._incoming = None
        self._reader.stop()
        self._flow.hold(False)
        self._flow.resume_reading()
        self._move(Lingering(self._timer.set(pause) + time, pause, most))

    def _discard(self, octets: int) -> None:
        """Drop a bounded number of bytes behind the last answer, so that the client can read it."""
        state = self.state
        if isinstance(state, Lingering):
            state.left -= octets
            if state.left < 0:
                self.close()
            else:
                self._wait(state.pause, state.until)
        elif isinstance(state, Refusing):
            state.discarded += octets
            if state.discarded > LINGER_BYTES:
                self._flow.hold(True)  # until those before it are answered

    def close(self) -> None:
        """Close once the client has taken all that was written, and see to it that it takes it."""
        self._writer.flush()
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._delivery.watch(self._forsake)

    def _forsake(self) -> None:
        """Give a client up that takes nothing."""
        reasons = ("request-timeout",)
        turn = self.turns[0] if self.turns else None
        if turn is not None and turn.state is not _WAITING:
            turn.end(reasons)
        elif self.listener.tell is not None:
            nobody = Received(b"", b"", self.peer.scheme, self.peer.address)
            self.listener.tell(nobody if turn is None else turn.received, reasons)
        self.transport.abort()

    def _late(self) -> None:
        """Handle a client that has not gone on in time."""
        limits = self.listener.bounds.limits
        reading, flow, incoming, state = self._reader.state, self._flow, self._incoming, self.state
        if self.transport.is_closing():
            return
        if isinstance(state, Lingering):
            if self.transport.get_write_buffer_size() and state.pause > LINGER:
                self.close()  # once it has the answer
            else:
                self.transport.abort()
        elif isinstance(state, HalfClosed):
            self._look_after(state.since)
        elif self._scheduler.state is SchedulerState.WAITING:
            self._timer.set(self._keep_alive)  # requests have come that are still to be read
        elif reading is _BETWEEN or (incoming is not None and incoming.until != NEVER):
            self.close()  # nothing was asked, or what was asked is answered
        # It is the client that waits, for us to read or to ask.
        elif reading is _HEAD and flow.read_paused:
            self._timer.set(limits.header_timeout or None)
        elif incoming and (flow.read_paused or incoming.paused or _awaits_continue(incoming.turn)):
            self._await_content(incoming)
        else:
            self._refuse(("request-timeout",))
            self._work()

    def _look_after(self, since: float) -> None:
        """See to it that a client that sends no more is not answered too long, nor once it has left."""
        now = self._timer.set(_LOOK)
        turn = self.turns[0]
        if is_gone(self.transport):
            self.transport.abort()
        elif now >= since + self.listener.bounds.limits.half_closed_timeout:
            if turn.state is _WAITING:
                self._forsake()
            else:
                turn.give_up(("origin-timeout",))

    def _await_content(self, incoming: Incoming) -> None:
        """Give the client its time for the next bytes of content."""
        incoming.arrived, incoming.paused = 0, self._flow.read_paused
        if incoming.until == NEVER:
            self._timer.set(self.listener.bounds.limits.content_timeout or None)
        else:
            self._wait(EARLY_PAUSE, incoming.until)

    def _wait(self, pause: float, until: float) -> None:
        """Wait for so many seconds for the client's next bytes, and no longer than `until`."""
        self._timer.set(max(0.0, min(pause, until - self._loop.time())))

    def _move(self, state: ConnectionState) -> None:
        _MOVES[type(self.state), type(state)]  # a KeyError, if it may not follow
        self.state = state

    # Called by the turn that is first (`Stream`)

    def interim(self, status: int, fields: Fields) -> None:
        self._writer.write(interim_head(status, fields))

    def finish(self) -> None:
        turn = self.turns.popleft()
        transport = self.transport
        if self._writer.is_chunked:
            self._writer.end()
        self._state.total_requests += 1
        if isinstance(self.state, Refusing) and not self.turns:
            self._linger(LINGER, LINGER, LINGER_BYTES)
            return
        if self.state is _UNDECIDED:
            self._move(_OPEN)
        if self._incoming is not None and self._answered_early(self._incoming, turn):
            return
        if not turn.keep_alive:
            self._writer.flush()
            transport.close()
        if transport.is_closing():
            if transport.get_write_buffer_size():
                self._delivery.watch(self._forsake)
            return
        if self._flow.read_paused:
            self._flow.resume_reading()
        reader = self._reader
        rests = not self.turns and self._incoming is None and reader.state is _BETWEEN
        self.rested = self._timer.set(self._keep_alive) if rests else self._loop.time()
        if self._scheduler.state is _RESTING and not (rests and not reader.octets and not self._flow.held):
            self._work()

    def _answered_early(self, incoming: Incoming, turn: Turn) -> bool:
        """Bound the content that still comes behind an answer; True: the connection ends with that."""
        if incoming.turn is not turn:
            return False
        if turn.keep_alive:
            incoming.until = self._loop.time() + EARLY_TIME
            self._await_content(incoming)
        else:
            self._linger(EARLY_TIME, EARLY_PAUSE, EARLY_BYTES)
        return not turn.keep_alive

    def cut(self) -> None:
        self.turns.popleft()
        self._writer.flush()
        if self._writer.closes or self._writer.write_paused:
            # An orderly end would say that this was all, or wait for a client that reads nothing.
            self.transport.abort()
        else:
            self.close()

    def pause(self) -> None:
        if self._incoming is not None:
            self._incoming.paused = True
        self._flow.pause_reading()

    def resume(self) -> None:
        self._flow.resume_reading()

    def upgrade(self, fields: Fields | None) -> Line:
        if fields is not None:
            self._writer.write(interim_head(101, fields))
        return self

    # A connection that may be given away (`Line`)

    def switch(self, end: asyncio.Protocol) -> Switched:
        """Give the connection to `end`, with what the client has sent behind its handshake."""
        early = self._reader.rest()
        self._writer.flush()
        self._move(_GIVEN_AWAY)
        self._reader.stop()
        self._timer.clear()
        self._scheduler.stop()
        self._delivery.stop()
        self.transport.set_protocol(end)
        return Switched(self.transport, early, full=self._writer.write_paused)


def _fields(head: IncomingHead) -> Fields:
    """The header fields; an absolute-form's authority replaces Host (RFC 9112 §3.2.2)."""
    if head.target[:1] == b"/" or (authority := split_target(head.target).authority) is None:
        return head.fields
    return [(b"host", authority), *(field for field in head.fields if field[0] != b"host")]


def _awaits_continue(turn: Turn) -> bool:
    return turn.content is not None and turn.content.awaits_continue
