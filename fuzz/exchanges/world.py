"""A proxy in memory between played clients and a played origin server, which carries a scenario out."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import uvicorn
from uvicorn.server import ServerState

from fuzz.exchanges.grammar import HOST, SPELLINGS, Ask, Reply, Scenario, Step, mutated, pieces
from fuzz.exchanges.loop import LoopCalls
from fuzz.exchanges.messages import Message, UnreadableError, requests, responses
from fuzz.exchanges.replies import Sending, sending
from fuzz.exchanges.wires import Clock, PlayedTransport, Wire
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.engine.exchange import Engine
from univocal.forward.upstream import Upstream
from univocal.http.messages import Fields, Received
from univocal.judge.admission import Gate
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.origin.servers import Balance, OriginServer, Timeouts
from univocal.server.clients import ReadLimits
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Responder, Turn, Uvicorn
from univocal.store.memory import MemoryStore
from univocal.store.tiers import MemoryTier, TierLease

PROFILE = builtin_profiles()["asgi"]
PATIENT = Timeouts(None, 60, 60, None)
CONFIG = uvicorn.Config(
    None,  # type: ignore[arg-type]
    interface="asgi3",
    lifespan="off",
    ws="none",
    log_config=None,
    timeout_keep_alive=20,
)
CONFIG.load()
ROUNDS = 3000  # of settling: what goes on for longer goes on for ever
QUIET = 3  # rounds without news between two steps


class WrongError(Exception):
    """A law is broken."""


class Client:
    """A client's connection, and what it asks."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.asked: list[tuple[int, Ask, int]] = []  # with the oldest version that may answer it
        self.outbox: deque[bytes] = deque()
        self.left = self.full = False
        self.half = False  # it sends no more, and is to be answered
        self.stood = False  # it has read nothing for a time, and may have been given up

    @property
    def mutated(self) -> bool:
        return any(ask.mutation for _, ask, _ in self.asked)

    @property
    def open(self) -> bool:
        return not (self.left or self.wire.closed or self.wire.ended)


class Served:
    """A request at the origin server, and what it is answered."""

    def __init__(self, number: int, wire: Wire, request: Message, asked: float) -> None:
        self.number, self.wire, self.request, self.asked = number, wire, request, asked
        self.received = asked  # when the final response's head was there
        self.headed = False
        self.headed_at = self.done_at = 0  # of all that happens, the number
        self.sending: Sending | None = None
        self.pieces: deque[bytes] = deque()
        self.octets = b""  # all that was sent so far
        self.ended = False  # the connection, in good order

    @property
    def over(self) -> bool:
        return self.wire.closed or (self.sending is not None and not self.pieces)

    def response(self) -> Message | None:
        """The response by all that was sent so far; None if that is none."""
        try:
            read, _ = responses(self.octets, [self.request.method], closed=self.ended)
        except UnreadableError:
            return None
        return read[0] if read else None


class OriginWire:
    """A connection at the origin server."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.heard = 0  # octets
        self.continued = -1  # where the request began that was let come last
        self.served: list[Served] = []


class Kept(MemoryTier):
    """Keeps all that is ever stored, and how far the origin server was then, for the law about it."""

    def __init__(self, max_object_bytes: int) -> None:
        super().__init__(MemoryStore(60_000, max_object_bytes=max_object_bytes))
        self.committed: list[Stored] = []

    def commit(self, lease: TierLease, stored: Stored) -> bool:
        kept = super().commit(lease, stored)
        if kept:
            self.committed.append(stored)
        return kept


class _Service:
    """An engine's service (a `Service`) that keeps who answers: each has the error by which it failed."""

    dates = True

    def __init__(self, service: EngineService, responders: list[Responder]) -> None:
        self._service, self._responders = service, responders
        self.clock, self.at_a_glance, self.tell = service.clock, service.at_a_glance, service.tell

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        return self._service.upgrade(received, fields)

    def respond(self, turn: Turn) -> Responder:
        responder = self._service.respond(turn)
        self._responders.append(responder)
        return responder


def address(client: int) -> str:
    return f"192.0.2.{client}" if client else "127.0.0.1"


def runtime_of(rules: dict[str, Any]) -> Runtime:
    """The settings of a proxy with these rules for every host."""
    return Runtime.everywhere(PROFILE, Rules(**rules))


class World:
    """Everything that one scenario happens to."""

    def __init__(self, scenario: Scenario, runtime: Runtime | None = None) -> None:
        self.scenario = scenario
        self.clock = Clock()
        self.tiers = Kept(scenario.max_object)
        self.store = self.tiers.memory
        runtime = runtime or runtime_of(scenario.rules)
        self.rules = runtime.settings["*"].rules
        self.heeds = self.rules.client_directives == "honour"
        self.engine = Engine(Gate(runtime, self.tiers), (), self.clock, self.clock.call_later)
        server = OriginServer("http://origin.example", PlayedTransport(self.clock, self._reached), PATIENT)
        self.upstream = Upstream(Balance.alone(server))
        self.clients: dict[int, Client] = {}
        self.all_clients: list[Client] = []
        self.origins: list[OriginWire] = []
        self.served: list[Served] = []
        self.asks: dict[bytes, Ask] = {}
        self.began: dict[bytes, float] = {}  # when each was asked
        self.versions = dict.fromkeys(SPELLINGS.values(), 1)
        self.least = dict.fromkeys(SPELLINGS.values(), 1)
        self.errors: list[BaseException | str] = []  # that were raised to the event loop, or logged
        self.responders: list[Responder] = []
        self.happened = 0
        self.asked_at: dict[bytes, int] = {}

    # Steps

    async def run(self) -> None:
        """Carry every step out, and let everything come to its end."""
        for step in self.scenario.steps:
            await self._step(step)
            await self.settle()
        await self._end()

    async def _step(self, step: Step) -> None:
        match step:
            case Ask():
                self._ask(step)
            case Reply():
                await self._reply(step)
            case ("more", number) if live := self._live(answered=True):
                self._deliver(live[number % len(live)])
            case ("break", number) if live := self._live(answered=False):
                live[number % len(live)].wire.lose(ConnectionResetError("reset"))
            case ("wait", seconds):
                await self.wait(seconds)
            case ("change", target):
                self.versions[target] += 1
            case ("purge", target):
                await self._purge(target)
            case ("leave" | "end" | "full" | "drain" as what, number) if client := self.clients.get(number):
                self._turn(client, what)

    def _ask(self, ask: Ask) -> None:
        client = self.clients.get(ask.client)
        if client is None or not client.open or client.mutated or client.half:
            client = self.clients[ask.client] = self.connect(address(ask.client))
        name = b"%d" % len(self.asks)
        self.asks[name], self.began[name] = ask, self.clock.now
        self.happened += 1
        self.asked_at[name] = self.happened
        head = [
            b"%b %b HTTP/1.%d" % (ask.method, ask.target, not ask.old),
            b"Host: " + HOST,
            b"X-Id: " + name,
        ]
        head += [b"%b: %b" % field for field in ask.fields]
        if ask.content is not None:
            head.append(b"Content-Length: %d" % len(ask.content))
        octets = b"\r\n".join([*head, b"", ask.content or b""])
        if ask.mutation:
            octets = mutated(octets, ask.mutation)
        client.asked.append((int(name), ask, self.least[SPELLINGS[ask.target]]))
        client.outbox.extend(pieces(octets, ask.cuts, random.Random(len(self.asks))))  # noqa: S311

    def is_mutated(self, target: bytes) -> bool:
        """Some response about this target was changed on its way: it may say anything."""
        return any(
            each.sending is not None and each.sending.mutated and each.request.target == target
            for each in self.served
        )

    def connect(self, peer: str) -> Client:
        client = Client(Wire(self.clock, peer))
        service = _Service(EngineService(self.engine, self.upstream), self.responders)
        limits = ReadLimits(half_closed_timeout=60)
        listener = Listener(service, limits, ticks=lambda: 0.0)  # a scenario plays alike on every machine
        protocol = Http1Connection(listener, Uvicorn(CONFIG, ServerState(), {}, self.clock))  # type: ignore[arg-type]
        client.wire.protocol = protocol
        protocol.connection_made(client.wire)
        self.all_clients.append(client)
        return client

    async def _reply(self, reply: Reply) -> None:
        if not (live := self._live(answered=False)):
            return
        served = live[reply.which % len(live)]
        served.sending = sending(reply, served.number, served.request, self.versions, heeds=self.heeds)
        served.pieces.extend(served.sending.pieces)
        for _ in range(reply.at_once):
            self._deliver(served)
            await self.settle()

    def _live(self, *, answered: bool) -> list[Served]:
        return [each for each in self.served if not each.over and (each.sending is not None) == answered]

    def _deliver(self, served: Served) -> None:
        """Send one piece of a response; where the proxy does not read for now, later."""
        wire, sent = served.wire, served.sending
        if wire.closed or wire.paused or not served.pieces:
            return
        assert sent is not None
        piece = served.pieces.popleft()
        if piece:
            served.octets += piece
            if not served.headed and served.response() is not None:
                served.headed, served.received = True, self.clock.now
                self.happened += 1
                served.headed_at = self.happened
            wire.protocol.data_received(piece)
            ours = served.request.field(b"host") == HOST  # a changed request may be for another
            if served.headed and sent.changes and not sent.mutated and ours:
                self.least[sent.of.target] = max(self.least.get(sent.of.target, 0), sent.of.version)
        if served.pieces or wire.closed:
            return
        self.happened += 1
        served.done_at = self.happened
        if sent.end == "reset":
            wire.lose(ConnectionResetError("reset"))
        elif sent.end == "close":
            served.ended = True
            wire.protocol.eof_received()
            wire.lose()
        elif sent.surplus and self._alone(served):
            wire.protocol.data_received(sent.surplus)

    def _alone(self, served: Served) -> bool:
        """Tell whether this was the last request on its connection: no answer can be for another.

        Behind a response without content this is for the proxy to see to.
        """
        sent, (origin,) = served.sending, [each for each in self.origins if each.wire is served.wire]
        assert sent is not None
        bodiless = served.request.method == b"HEAD" or sent.status in {204, 304}
        alone = origin.served[-1] is served and len(origin.wire.sent) == origin.heard
        return not served.wire.closed and (bodiless or alone)

    async def wait(self, seconds: float) -> None:
        end = self.clock.now + seconds
        await self.rest()
        while self.clock.due(end):
            await self.rest()
        self.clock.now = end

    async def _purge(self, target: bytes) -> None:
        """Change something, then purge it from the proxy's own machine: nothing older may be seen again."""
        self.versions[target] += 1
        client = self.connect("127.0.0.1")
        client.outbox.append(b"PURGE %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (target, HOST))
        await self.settle()
        if not client.wire.sent.startswith(b"HTTP/1.1 200 "):
            raise WrongError(f"purge: {bytes(client.wire.sent)!r}")
        self.least[target] = self.versions[target]
        client.left = True
        client.wire.lose()
        self.all_clients.remove(client)

    def _turn(self, client: Client, what: str) -> None:
        if not client.open:
            return
        if what == "leave":
            client.left = True
            client.outbox.clear()
            client.wire.lose()
        elif what == "end":
            # A half that ends in the middle of a request, or without one, is the end of the client.
            if not (client.half or client.outbox or client.wire.paused):
                client.half = True
                client.left = not client.wire.protocol.eof_received()
                if client.left:
                    client.wire.lose()
        elif client.full != (what == "full"):
            client.full = not client.full
            client.stood = client.stood or client.full
            client.wire.waiting = 100 * client.full
            (client.wire.protocol.pause_writing if client.full else client.wire.protocol.resume_writing)()

    # The origin server

    def _reached(self, wire: Wire) -> None:
        self.origins.append(OriginWire(wire))

    def _heard(self) -> bool:
        """Take what was sent to the origin server."""
        news = False
        for origin in self.origins:
            if len(origin.wire.sent) == origin.heard:
                continue
            begun = origin.heard
            for request in requests(bytes(origin.wire.sent[begun:])):
                if not request.complete:
                    news = self._let_come(origin, request) or news
                    break
                origin.heard = begun + request.end
                asked = origin.wire.written(begun + request.at)
                served = Served(len(self.served), origin.wire, request, asked)
                origin.served.append(served)
                self.served.append(served)
                news = True
        return news

    def _let_come(self, origin: OriginWire, request: Message) -> bool:
        """Ask for content that waits for that (RFC 9110 §10.1.1); now and then let it come by itself."""
        waits = request.field(b"expect") is not None and request.content == b"" and len(self.asks) % 3
        if not waits or origin.continued == origin.heard:
            return False
        origin.continued = origin.heard
        origin.wire.protocol.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    # Time and end

    async def settle(self, calls: LoopCalls | None = None) -> None:
        """Run the event loop until a few rounds have brought no news. Its `calls` are news, too."""
        quiet, called = 0, False
        for _ in range(ROUNDS):
            quiet = 0 if self._stir() or called else quiet + 1
            if quiet > QUIET:
                return
            if calls is None:
                await asyncio.sleep(0)
            else:
                called = await calls.come()
        raise WrongError("end: it goes on and on")

    async def rest(self) -> None:
        """Run the event loop until it has nothing to call."""
        with LoopCalls.watched() as calls:
            await self.settle(calls)

    def _stir(self) -> bool:
        stirred = False
        for client in self.all_clients:
            wire = client.wire
            if client.outbox and client.open and not wire.paused:
                wire.protocol.data_received(client.outbox.popleft())
                stirred = True
            elif (wire.closed or wire.ended) and not wire.lost:
                stirred = wire.lose()
        for origin in self.origins:
            if origin.wire.closed and not origin.wire.lost:
                stirred = origin.wire.lose() or stirred
        return self._heard() or stirred

    async def _end(self) -> None:
        """Have every response sent and taken, until no request waits."""
        plain = Reply(0, "honest", (), False, "", "length", False, (), 1, 9, 0)
        for _ in range(ROUNDS):
            for client in self.all_clients:
                self._turn(client, "drain")
            await self.settle()
            if live := self._live(answered=True):
                moved = [each for each in live if not each.wire.paused]
                for each in moved or live[:1]:
                    self._deliver(each)
                if not moved:
                    await self.wait(1)
            elif self._live(answered=False):
                await self._reply(plain)
            else:
                await self.wait(2)  # content that nobody asks for comes
                if not self._live(answered=False) and not any(
                    each.outbox and each.open for each in self.all_clients
                ):
                    break
            await self.settle()
        else:
            raise WrongError("end: somebody waits for ever")
        # Deadlines of what is incomplete: of content, twice its time where reading was paused meanwhile.
        await self.wait(150)
        await self.settle()

    async def close(self) -> None:
        for client in self.all_clients:
            client.wire.lose()
        await self.upstream.aclose()
        for origin in self.origins:
            origin.wire.lose()
        for _ in range(3):
            await asyncio.sleep(0)

    def failures(self) -> list[BaseException | str]:
        """The errors that are not expected: those of the event loop, of the log, and of who answers."""
        return [*self.errors, *(each.error[0] for each in self.responders if each.error is not None)]

    def told(self) -> str:
        """All bytes of every wire, to read."""
        lines = []
        for client in self.all_clients:
            peer = client.wire.get_extra_info("peername")[0]
            lines.append(f"    client {peer} got {brief(bytes(client.wire.sent))}")
        for served in self.served:
            lines.append(f"    origin {served.number} got {served.request.start!r} {served.request.fields}")
            lines.append(f"    origin {served.number} sent {brief(served.octets)}")
        return "\n".join(lines)


def brief(octets: bytes) -> str:
    """The octets, without what content repeats."""
    return repr(re.sub(rb"(\[[^]]*\])\1+", rb"\1 ... ", octets))


class _Errors(logging.Handler):
    """Keeps what the program logs as an error."""

    def __init__(self, errors: list[BaseException | str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.append(record.getMessage())


@contextmanager
def played(world: World) -> Iterator[None]:
    """Give the program a world's clock, and note whatever it raises or logs."""

    def raised(_: object, context: dict[str, Any]) -> None:
        world.errors.append(context.get("exception") or context["message"])

    asyncio.get_running_loop().set_exception_handler(raised)
    handler = _Errors(world.errors)
    logger = logging.getLogger("univocal")
    uvicorns = logging.getLogger("uvicorn")
    with ExitStack() as stack:
        stack.callback(uvicorns.setLevel, uvicorns.level)
        uvicorns.setLevel(logging.CRITICAL)
        # In the module itself: compiled code has its own reference to it. The event loop goes by `monotonic`.
        stack.enter_context(patch("time.time", world.clock))
        stack.enter_context(patch("time.perf_counter", world.clock))
        stack.enter_context(patch("univocal.forward.upstream.time", world.clock))
        # With these, little content is much; compiled code has its own copies, and goes by its own bounds.
        stack.enter_context(patch("univocal.engine.flight.WINDOW", 120))
        stack.enter_context(patch("univocal.engine.broadcast.FAR_BEHIND", 400))
        stack.enter_context(patch("univocal.engine.exchange.WINDOW", 100))
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        yield
