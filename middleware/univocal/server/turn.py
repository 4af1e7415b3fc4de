"""A request's turn and its content, whatever version of HTTP it came by, and the roles around it (RFC 9110).

A connection of any version makes a `Turn` of each request. The turn is the client of its responder. It stands
between these neighbours, and all calls are plain and return at once:

    Connection   begin · receive · complete · resume · end · fail      calls of the turn
    Stream       interim · start · write · finish · cut · pause · resume    what the turn writes to
    Responder    begin · resume · cancel · refuse · give_up            who answers: an Exchange, an ASGI cycle
    Service      respond · upgrade · at_a_glance · tell                what makes responders for a listener

In this order, `a*` any number of times:

    Turn(stream, service, received, fields, …)   a request's head is complete and has no fault
    turn.begin()                                 it is the request's turn: the service makes a responder
    turn.receive(chunk)*  turn.complete()        its content comes, before or after `begin`
    stream.interim()*  stream.start()  stream.write()*  stream.finish()      its response
    turn.resume()*                               the client takes more of it

`turn.end()` (the client has left, or its content is faulty) may replace the rest. So may `stream.cut()` (the
response is incomplete). After `finish`, `cut` and `end` the turn writes nothing more.

`Turn.start` decides about the framing once: whether there is content, that no coding is the origin server's,
and that there is a Date. A stream writes that by its version's rules. Interim responses, the content's
bounds, 100 (Continue), faults and problem details are the turn's, for every version.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from univocal.engine.exchange import Engine, Exchange
from univocal.http.errors import lacks_memory
from univocal.http.intermediary import Line, requested_upgrade
from univocal.http.messages import FRAMING, Fields, Received, imf_fixdate
from univocal.http.pipe import NO_CONTENT, Pipe
from univocal.http.problem import Problem, fault, problem
from univocal.http.roles import Origin
from univocal.http.tables import moves
from univocal.judge.admission import Lookup, Plan
from univocal.judge.hits import Hit
from univocal.server.clients import ClientPeer


class ServerState(Protocol):
    """The state that uvicorn shares with the connections of a server: it waits for them at its end."""

    total_requests: int
    connections: set[Any]
    tasks: set[Any]
    default_headers: list[tuple[bytes, bytes]]


class Uvicorn(NamedTuple):
    """All that uvicorn gives a connection: its configuration and state, the lifespan's, and the loop."""

    config: Any  # uvicorn.Config
    state: ServerState
    app_state: dict[str, Any]
    loop: asyncio.AbstractEventLoop


def under_uvicorn(make: Callable[[Uvicorn], asyncio.Protocol]) -> type[asyncio.Protocol]:
    """The connections that are made so, as uvicorn's setting `http` takes them, and protocols do."""
    return cast("type[asyncio.Protocol]", partial(_made, make))


def _made(
    make: Callable[[Uvicorn], asyncio.Protocol],
    config: Any,
    server_state: ServerState,
    app_state: dict[str, Any],
    _loop: asyncio.AbstractEventLoop | None = None,
) -> asyncio.Protocol:
    return make(Uvicorn(config, server_state, app_state, _loop or asyncio.get_running_loop()))


class Stream(Protocol):
    """Where a turn's response goes and its content comes from: one response of a connection, or a stream."""

    peer: ClientPeer

    def interim(self, status: int, fields: Fields) -> None:
        """Send a 1xx response other than 101; `fields` have no framing among them."""

    def start(
        self, turn: Turn, status: int, fields: Fields, names: Collection[bytes], has_content: bool
    ) -> None:
        """Send the head of the turn's final response.

        `fields` are in lower case, without Transfer-Encoding, and with a Content-Length only where it is the
        content's; `names` are theirs. `Connection: close` among them ends the connection after this
        response, where its version knows that. `has_content`: `write` may follow, else `finish` alone.
        """

    def write(self, chunk: bytes | memoryview) -> bool:
        """Send content; False: no more until `Turn.resume`."""
        ...

    def finish(self) -> None:
        """End the response; the turn is over."""

    def cut(self) -> None:
        """End a response that has begun, so that the client sees that it is incomplete; the turn is over."""

    def pause(self) -> None:
        """Ask the client for no more content for now."""

    def resume(self) -> None:
        """Resume reading."""

    def upgrade(self, fields: Fields | None) -> Line:
        """Send a 101, behind which the connection is another protocol's; None: that will send its own.

        It is called only where `received.upgrade` names a protocol.
        """
        ...


class Responder(Protocol):
    """The one who answers a turn's request: it calls the turn as its client."""

    error: tuple[BaseException, TracebackType | None] | None  # why a response is cut that has not begun

    def begin(self) -> None:
        """Answer."""

    def resume(self) -> None:
        """Send more: the client takes it."""

    def cancel(self) -> None:
        """Give up: the client has left."""

    def refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem; in the middle of a response, cut it."""

    def give_up(self, status: int) -> None:
        """Give up: the turn itself answers, because of a fault of ours."""


class RequestContent(Pipe):
    """The content of one request: its turn writes, its responder takes it.

    While what has come is not taken, the stream is paused. `octets` have come so far.
    """

    def __init__(self, stream: Stream, *, expects_continue: bool = False) -> None:
        super().__init__(stream.resume)
        self._stream = stream
        self.awaits_continue = expects_continue  # RFC 9110 §10.1.1
        self.octets = 0

    def begin(self) -> None:
        """Ask a client that waits for 100 (Continue) to go on (RFC 9110 §10.1.1)."""
        if self.awaits_continue:
            self.awaits_continue = False
            if not (self.is_complete or self._chunks):
                self._stream.interim(100, [])


logger: Final = logging.getLogger("univocal")

_LENGTH: Final = frozenset((b"content-length",))
_CODING: Final = frozenset((b"transfer-encoding",))
_CLOSE: Final = (b"connection", b"close")


class TurnState(Enum):
    """The states of a turn."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    WAITING = "the requests before it are answered first"
    BEGUN = "its responder is asked"
    STARTED = "the response's head was sent"
    ANSWERED = "the response has ended"
    GONE = "the client has left, or its content was faulty: nothing more is sent"


# Looking up an enumeration's member costs a call in Python 3.11.
_WAITING: Final = TurnState.WAITING
_BEGUN: Final = TurnState.BEGUN
_STARTED: Final = TurnState.STARTED
_ANSWERED: Final = TurnState.ANSWERED
_GONE: Final = TurnState.GONE

MOVES: Final[Mapping[TurnState, Mapping[TurnState, str]]] = {
    TurnState.WAITING: {TurnState.BEGUN: "those before it are answered", TurnState.GONE: "the client leaves"},
    TurnState.BEGUN: {
        TurnState.STARTED: "its responder answers",
        TurnState.GONE: "the client leaves, or its content is faulty",
    },
    TurnState.STARTED: {
        TurnState.ANSWERED: "the response is complete, or cut",
        TurnState.GONE: "the client leaves, or its content is faulty",
    },
    TurnState.ANSWERED: {},
    TurnState.GONE: {TurnState.GONE: "the connection is lost behind a client that was given up"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)

Find: TypeAlias = Callable[[Received, Plan, tuple[bytes, ...], float], Hit | Lookup | None]
Tell: TypeAlias = Callable[[Hit, Received, float, float], None]


class Service(Protocol):
    """The one that answers the requests of a listener: an engine, or an ASGI application."""

    clock: Callable[[], float]  # seconds since the epoch
    dates: bool  # a response without a Date gets one (RFC 9110 §6.6.1)
    # A stored response for an ordinary GET with such a plan, at such a time, or a lookup in vain: see
    # `judge.hits`. The long way gives the same answer. None: nothing is ever stored.
    at_a_glance: Find | None
    # Hears of a hit that was sent: see `Audience.announce_hit`.
    tell: Tell

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        """The protocol that a request asks to switch to, b"" where it gets none. Raises RefusedError."""
        ...

    def respond(self, turn: Turn) -> Responder:
        """Make the one who answers a turn, whose time has come."""
        ...


class Turn:
    """One request of a connection: a `Client` (see http.roles), whose response goes to a `Stream`.

    The order of its calls is that of `univocal.server.turn`. `content` is None where the request has none:
    its head is all of it. `refusal` answers in a responder's place. `keep_alive`: another request may follow
    on this connection; where a stream is all that ends, it means nothing.
    """

    def __init__(
        self,
        stream: Stream,
        service: Service,
        received: Received,
        fields: Fields,
        *,
        plan: Plan | None = None,
        lookup: Lookup | None = None,
        content: RequestContent | None = None,
        keep_alive: bool = True,
        refusal: Problem | None = None,
    ) -> None:
        self._stream = stream
        self._service = service
        self.received = received
        self.fields = fields
        self.plan = plan
        self.lookup = lookup
        self.content = content
        self.keep_alive = keep_alive
        self.refusal = refusal
        self.max_content = 0  # bytes of the request's content, once its responder says so; 0 is no limit
        # Sends content; False: no more until the responder's `resume`. While none is due, it is dropped.
        self.write: Callable[[bytes | memoryview], bool] = _drop
        self.state = _WAITING
        self._responder: Responder | None = None
        self._faults: Sequence[str] = ()  # the reasons for which its responder is to refuse it

    @property
    def peer(self) -> ClientPeer:
        """The client at the other end of the connection."""
        return self._stream.peer

    @property
    def is_over(self) -> bool:
        """Nothing more of the response is sent."""
        return self.state is _ANSWERED or self.state is _GONE

    # Called by the connection

    def begin(self) -> None:
        """Have the service answer: it is this request's turn."""
        self.state = _MOVES[self.state, _BEGUN]
        if self.refusal is not None:
            self.answer(self.refusal)
            return
        try:
            responder = self._responder = self._service.respond(self)
            content = self.content
            if content is not None and 0 < self.max_content < content.octets:
                self._faults = ("body-too-large",)  # it has come while others were answered
            if self._faults:
                responder.refuse(self._faults)
            else:
                responder.begin()
        except Exception as error:
            self.fail(error)

    def resume(self) -> None:
        """Resume the response: the client takes more."""
        if self._responder is not None:
            self._responder.resume()

    def receive(self, chunk: bytes) -> None:
        """Take content that has come."""
        content = self.content
        if content is None or self.state is _ANSWERED or content.is_unwanted:
            return
        content.octets += len(chunk)
        if 0 < self.max_content < content.octets and self._responder is not None:
            self._responder.refuse(("body-too-large",))
        elif not content.write(chunk):
            self._stream.pause()

    def complete(self) -> None:
        """Handle the end of the content."""
        if self.content is not None:
            self.content.finish()

    def end(self, reasons: Sequence[str] = ()) -> None:
        """Give up: the client has left, or its connection ends."""
        if self.state is _ANSWERED:
            return
        self.state, self.write = _MOVES[self.state, _GONE], _drop
        content, responder, self._responder = self.content, self._responder, None
        if content is not None:
            content.forget()
        if responder is not None and reasons:
            responder.refuse(reasons)
        elif responder is not None:
            responder.cancel()
        if content is not None:
            content.drop()

    def give_up(self, reasons: Sequence[str]) -> None:
        """Make the responder answer with a problem, or cut its response, once it is the request's turn.

        The content is faulty or too slow, or the responder is.
        """
        if self._responder is not None:
            self._responder.refuse(reasons)
        elif self.state is _WAITING:
            self._faults = reasons

    def send_away(self) -> None:
        """End what has no end of its own, since this server goes down."""
        if isinstance(self._responder, Exchange):
            self._responder.send_away()

    def fail(self, error: BaseException | None) -> None:
        """Answer that there is a fault here, or cut an answer that has begun."""
        no_memory = lacks_memory(error)
        if not no_memory:
            logger.error("internal error while answering a request", exc_info=error)
        fields, name = self.fields, self.received.request_id
        answer = problem(("overloaded",), fields, "", name) if no_memory else fault(fields, name)
        responder, self._responder = self._responder, None
        if responder is not None:
            responder.give_up(answer.status)
        if self.state is _STARTED:
            self.cut()
        elif self.state is _BEGUN:
            self.answer(answer, _CLOSE)
        elif self.state is _WAITING:
            self.refusal = answer

    def answer(self, problem: Problem, *more: tuple[bytes, bytes]) -> None:
        """Answer with a problem, without a responder."""
        self.start(problem.status, [*problem.fields, *more])
        self.write(problem.body)
        self.finish()

    # The response: what the responder calls

    def interim(self, status: int, fields: Fields) -> None:
        """Send a 1xx response (RFC 9110 §15.2); HTTP/1.0 has none, and a 100 is for who waits for one."""
        if self.state is not _BEGUN or self.received.version == b"1.0":
            return
        if status == 100:
            content = self.content
            if content is None or not content.awaits_continue:
                return
            content.awaits_continue = False
        self._stream.interim(status, [field for field in fields if field[0] not in FRAMING])

    def start(self, status: int, fields: Fields) -> None:
        """Send the final response's head, and decide whether it has content."""
        if self.state is _GONE:
            return
        self.state = _MOVES[self.state, _STARTED]
        has_content = not (self.received.method == b"HEAD" or status in {204, 304})
        names = {name for name, _ in fields}
        kept = fields
        if b"transfer-encoding" in names or (status == 204 and b"content-length" in names):
            dropped = self._foreign_framing(status, has_content=has_content)
            kept = [field for field in fields if field[0] not in dropped]
            names -= dropped
        if b"date" not in names and self._service.dates:
            kept = [*kept, (b"date", imf_fixdate(time.time()))]
        content = self.content
        if content is not None and content.awaits_continue:
            content.awaits_continue = False
            if not content.is_complete and b"connection" not in names:
                # RFC 9110 §10.1.1: without a 100 the client may leave its content out, and what comes next on
                # this connection could be either.
                kept = [*kept, _CLOSE]
                names.add(b"connection")
        if has_content:
            self.write = self._stream.write
        self._stream.start(self, status, kept, names, has_content)

    def _foreign_framing(self, status: int, *, has_content: bool) -> frozenset[bytes]:
        """The names of framing that is not the response's, of one that has some.

        The coding is the stream's own, and goes before a length (RFC 9112 §6.3); a 204 has no length
        (RFC 9110 §8.6). The answer to HEAD may say what that to GET would have (RFC 9112 §6.1).
        """
        if has_content or status == 204:
            return FRAMING
        return _CODING if status == 304 or self.received.version == b"1.0" else _LENGTH

    def finish(self) -> None:
        """End the response."""
        if self.state is _STARTED:
            self.state, self.write, self._responder = _MOVES[self.state, _ANSWERED], _drop, None
            if self.content is not None:
                self.content.drop()
            self._stream.finish()

    def cut(self) -> None:
        """End the response where it is, so that the client sees it; one that has not begun is a fault."""
        if self.state is _STARTED:
            # Objects in a circle wait for the garbage collector.
            self.state, self.write, self._responder = _MOVES[self.state, _ANSWERED], _drop, None
            if self.content is not None:
                self.content.drop()
            self._stream.cut()
        elif self.state is _BEGUN:
            responder = self._responder
            self.fail(None if responder is None or responder.error is None else responder.error[0])

    def switch(self, fields: Fields | None) -> Line:
        """Send a 101, behind which the connection is another protocol's; None: that will send its own."""
        self.state = _MOVES[self.state, _STARTED]
        return self._stream.upgrade(fields)


def _drop(_chunk: bytes | memoryview) -> bool:
    """Take content that is not sent."""
    return True


class EngineService:
    """Lets an engine answer, at a glance or by an exchange; `origin` answers what is not stored."""

    def __init__(self, engine: Engine, origin: Origin) -> None:
        self.engine = engine
        self.origin = origin
        self.clock = engine.clock
        self.dates = True
        self.at_a_glance: Find | None = engine.hits.find
        self.tell: Tell = engine.audience.announce_hit

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        """The protocol that a request asks to switch to, if it is one of those that are passed on."""
        allowed = self.engine.gate.runtime.upgrades
        return requested_upgrade(received.method, received.version.decode(), fields, allowed)

    def respond(self, turn: Turn) -> Responder:
        """Judge a request, and make the exchange that answers it."""
        engine, received = self.engine, turn.received
        begun = engine.clock(), time.perf_counter()
        admission = engine.gate.admit(received, turn.fields, begun[0], turn.plan, None, turn.lookup)
        content = turn.content or NO_CONTENT
        if turn.content is not None:
            turn.max_content = admission.max_body
        return Exchange(engine, turn, admission, self.origin, content, begun)
