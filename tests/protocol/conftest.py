"""A client's end of a connection without sockets: what is written is kept, time passes on demand."""

import asyncio
import json
from dataclasses import dataclass, field

import h11
import pytest
import pytest_asyncio
import uvicorn
from uvicorn.server import ServerState

from support import idle
from univocal.asgi.application import Application
from univocal.cache.rules import Rules
from univocal.engine.engine import Engine
from univocal.http.extensions import EARLY_HINT, INTERIM
from univocal.http.framing import ReadLimits
from univocal.judge.admission import Gate
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits, Runtime
from univocal.server.http1.connection import ConnectionState, Http1Connection
from univocal.server.listener import Listener
from univocal.server.protocol import ExactProtocol
from univocal.server.service import EngineService
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of


class Timer:
    def __init__(self, due, callback, arguments):
        self.due, self.callback, self.arguments, self.cancelled = due, callback, arguments, False

    def cancel(self):
        self.cancelled = True

    def when(self):
        return self.due


class Clock:
    """The part of an event loop that the protocol uses, with a time of its own."""

    def __init__(self):
        self.now = 0.0
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, due, callback, *arguments):
        timer = Timer(due, callback, arguments)
        self.timers.append(timer)
        return timer

    def call_later(self, seconds, callback, *arguments):
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_soon(self, callback, *arguments):
        return asyncio.get_running_loop().call_soon(callback, *arguments)

    def create_task(self, coroutine, **named):
        return asyncio.get_running_loop().create_task(coroutine, **named)

    def pending(self):
        return [timer for timer in self.timers if not timer.cancelled]

    def pass_time(self, seconds):
        end = self.now + seconds
        while due := [timer for timer in self.pending() if timer.due <= end]:
            timer = min(due, key=lambda timer: timer.due)
            self.timers.remove(timer)
            self.now = timer.due
            timer.callback(*timer.arguments)
        self.now = end


class Transport(asyncio.Transport):
    def __init__(self, *, half_close=True):
        super().__init__({"peername": ("192.0.2.1", 4711), "sockname": ("192.0.2.2", 80)})
        self.sent = bytearray()
        self.closed = self.ended = self.aborted = self.paused = False
        self.half_close = half_close
        self.pauses = 0
        self.waiting = 0  # octets that the client has not taken

    def write(self, data):
        if not self.closed:
            assert not self.ended, "a write after the end"
            self.sent += data

    def get_write_buffer_size(self):
        return self.waiting

    def can_write_eof(self):
        return self.half_close

    def write_eof(self):
        self.ended = True

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True

    def is_closing(self):
        return self.closed

    def set_protocol(self, protocol):
        self.protocol = protocol

    def pause_reading(self):
        self.paused, self.pauses = True, self.pauses + 1

    def resume_reading(self):
        self.paused = False


@dataclass
class Answer:
    status: int
    fields: list
    body: bytes
    interim: list = field(default_factory=list)

    def field(self, name):
        values = [value for key, value in self.fields if key == name]
        assert len(values) < 2, f"{name} twice"
        return values[0] if values else None

    @property
    def problem(self):
        assert self.field(b"content-type") == b"application/problem+json"
        return json.loads(self.body)


class Recorder:
    """An application that keeps what it is asked and answers 200 with the target and the content."""

    def __init__(self):
        self.scopes, self.bodies, self.cut = [], [], 0

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        body, more = b"", True
        while more:
            try:
                message = await receive()
            except asyncio.CancelledError:  # so the engine tells it
                self.cut += 1
                raise
            if message["type"] == "http.disconnect":
                self.cut += 1
                return
            body, more = body + message["body"], message["more_body"]
        self.bodies.append(body)
        content = scope["extensions"]["univocal.target"]["target"] + b"|" + body
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(content))],
            }
        )
        await send({"type": "http.response.body", "body": content})

    @property
    def targets(self):
        return [scope["extensions"]["univocal.target"]["target"] for scope in self.scopes]


class Behind:
    """An ASGI application as the origin server of an `EngineService` (an `Origin`)."""

    def __init__(self, app, gate):
        self.app, self.gate = app, gate

    def ask(self, request, content, answer):
        scope = {"type": "http", "http_version": "1.1", "client": ("192.0.2.1", 4711)}
        scope["extensions"] = {INTERIM: {}, EARLY_HINT: {}}
        admission = self.gate.admit(request.received, request.fields, 0.0)
        return Application(self.app, scope, admission).ask(request, content, answer)


def works(app, limits, clock):
    """An engine that passes everything on to an application."""
    bounds = Limits(max_target=limits.max_target, max_fields=limits.max_fields)
    profile = builtin_profiles()["asgi"]
    runtime = Runtime.everywhere(profile, Rules(bypass=("*",)), limits=bounds, cache_status="off")
    gate = Gate(runtime, tiers_of(MemoryStore()))
    return EngineService(
        Engine(gate, clock=lambda: 1_790_000_000.0 + clock.now, call_later=clock.call_later),
        Behind(app, gate),
    )


class Wire:
    """The client's end of a connection; `direct`: to an engine, which `app` stands behind."""

    def __init__(
        self,
        app,
        *,
        direct=False,
        limits=None,
        tell=None,
        half_close=True,
        default_headers=(),
        works=works,
        clients=None,
        **settings,
    ):
        self.clock = Clock()
        settings = {"lifespan": "off", "log_config": None, "timeout_keep_alive": 5, "ws": "none"} | settings
        self.config = uvicorn.Config(app, http=ExactProtocol, **settings)
        self.config.load()
        self.state = ServerState()
        self.state.default_headers = list(default_headers)
        self.transport = Transport(half_close=half_close)
        limits = limits or ReadLimits()
        told = {"limits": limits, "tell": tell, "clients": clients}
        if direct:
            self.works = works(app, limits, self.clock)
            self.protocol = Http1Connection(
                Listener(self.works, **told), self.config, self.state, {}, self.clock
            )
        else:
            self.protocol = ExactProtocol(self.config, self.state, {}, self.clock, **told)
        self.protocol.connection_made(self.transport)

    async def settle(self):
        await idle()

    async def feed(self, *chunks):
        """Hand over these chunks, waiting with each while reading is paused; all that was sent so far."""
        for chunk in chunks:
            if self.transport.paused:
                await self.settle()
            assert not self.transport.paused, "nobody reads"
            if not self.transport.closed:
                self.protocol.data_received(bytes(chunk))
        await self.settle()
        return bytes(self.transport.sent)

    @property
    def open(self):
        return not self.transport.closed and not self.transport.ended

    def answers(self, *methods):
        """What was sent, read by h11 as a client would that had sent these methods (default: GETs)."""
        return read_answers(bytes(self.transport.sent), methods, closed=not self.open)

    def hang_up(self, exc=None):
        self.transport.closed = True
        self.protocol.connection_lost(exc)


def read_answers(data, methods=(), *, closed=False):
    answers, rest = [], data
    while rest:
        method = methods[len(answers)] if len(answers) < len(methods) else b"GET"
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"a")]))
        client.send(h11.EndOfMessage())
        client.receive_data(rest)
        if closed:
            client.receive_data(b"")
        interim, head, body = [], None, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            match event:
                case h11.InformationalResponse():
                    interim.append((event.status_code, list(event.headers)))
                case h11.Response():
                    head = event
                case h11.Data():
                    body += bytes(event.data)
                case _:
                    raise AssertionError(f"{event} after {rest[:200]!r}")
        answers.append(Answer(head.status_code, list(head.headers), body, interim))
        rest = client.trailing_data[0] if client.their_state is not h11.CLOSED else b""
    return answers


@pytest.fixture
def recorder():
    return Recorder()


@pytest_asyncio.fixture
async def connect():
    """Makes connections that end with the test: connect(app, direct=…, limits=…, **uvicorn's settings)."""
    made = []

    def connected(app, **settings):
        made.append(Wire(app, **settings))
        return made[-1]

    yield connected
    for each in made:
        if each.protocol.life is not ConnectionState.LOST:
            each.hang_up()


@pytest.fixture
def scoped(connect):
    """The client's end of a connection to an application that reads its scope."""
    return connect


@pytest.fixture(params=[False, True], ids=["exact", "direct"])
def wire(connect, request):
    """The client's end of a connection to an application, once by its scope and once behind the engine."""

    def connected(app, **settings):
        return connect(app, direct=request.param, **settings)

    connected.direct = request.param
    return connected


@pytest.fixture
def parse_answers():
    return read_answers
