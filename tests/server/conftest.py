"""A client's end of a connection without sockets: what is written is kept, time passes on demand."""

import asyncio
import json
import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache

import h11
import pytest
import pytest_asyncio
import uvicorn
from uvicorn.server import ServerState

from neighbours import everywhere, two_sites
from support import Transport, Turns, idle
from tests.asgi.conftest import respond
from tests.pages import Origin, Page
from univocal.asgi.messages import fields_of
from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.asgi.scope import respell
from univocal.cache.rules import Rules
from univocal.engine.broadcast import CutShortError
from univocal.engine.exchange import Engine
from univocal.http.errors import RefusedError
from univocal.http.intermediary import framed_anew, one_length
from univocal.http.messages import EARLY_HINT, INTERIM, Response
from univocal.http.pipe import HIGH_WATER
from univocal.judge.admission import Gate
from univocal.judge.runtime import Limits
from univocal.judge.trust import networks
from univocal.server.asgi_service import ExactProtocol
from univocal.server.clients import ReadLimits
from univocal.server.http1.connection import Http1Connection, Lost
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Uvicorn
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of


def whole(data):
    return [data]


def octets(data):
    return [data[i : i + 1] for i in range(len(data))]


def thirds(data):
    return [data[i : i + 3] for i in range(0, len(data), 3)]


SPLITS = (whole, octets, thirds)
splits = pytest.mark.parametrize("split", SPLITS)


class EachTurn(Turns):
    """A loop whose next turn a test may make before it comes."""

    def call_soon(self, callback, *arguments):
        super().call_soon(callback, *arguments)
        return asyncio.get_running_loop().call_soon(self.end_turn)

    def create_task(self, coroutine, **named):
        return asyncio.get_running_loop().create_task(coroutine, **named)


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
        await respond(send, content, [(b"content-length", b"%d" % len(content))])

    @property
    def targets(self):
        return [scope["extensions"]["univocal.target"]["target"] for scope in self.scopes]


class Behind:
    """An ASGI application, each call a task, as the origin server of an `EngineService` (an `Origin`)."""

    def __init__(self, app, gate):
        self.app, self.gate = app, gate

    def ask(self, request, answer):
        scope = {"type": "http", "http_version": "1.1", "client": ("192.0.2.1", 4711)}
        scope["extensions"] = {INTERIM: {}, EARLY_HINT: {}}
        admission = self.gate.admit(request.received, request.fields, 0.0)
        scope = respell(scope, admission, request.method, framed_anew(request.fields))
        return Called(self.app, scope, request.content, answer)


class Called:
    """One call of the application (an `UnderWay`), which takes the content as it is received."""

    def __init__(self, app, scope, content, answer):
        self.content, self.answer = content, answer
        self.chunks, self.is_whole, self.is_told, self.is_over = deque(), content is None, False, False
        self.news, self.room = asyncio.Event(), asyncio.Event()
        self.room.set()
        self.task = asyncio.get_running_loop().create_task(self.run(app, scope))

    async def run(self, app, scope):
        error = CutShortError()
        try:
            await app(scope, self.receive, self.send)
        except Exception as raised:
            error = raised
        if not self.is_over:
            self.end()
            self.answer.fail(error)

    def end(self):
        self.is_over = True
        if self.content is not None:
            self.content.detach()
        self.news.set()
        self.room.set()

    def pause(self):
        self.room.clear()

    def resume(self):
        self.room.set()

    def cancel(self):
        if not self.is_over:
            self.end()

    def write(self, chunk):
        self.chunks.append(chunk)
        self.news.set()
        return sum(map(len, self.chunks)) < HIGH_WATER

    def finish(self):
        self.is_whole = True
        self.news.set()

    async def receive(self):
        if not self.is_whole:
            self.content.attach(self)
        while not self.chunks and (not self.is_whole or self.is_told):
            if self.is_over:
                return {"type": "http.disconnect"}
            self.news.clear()
            await self.news.wait()
        body = b"".join(self.chunks)
        self.chunks.clear()
        self.is_told = self.is_whole
        if not (self.is_whole or self.is_over):
            self.content.resume()
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def send(self, message):
        await self.room.wait()
        if self.is_over:
            return
        match message["type"]:
            case "http.response.start":
                fields = one_length(fields_of(message))
                if fields is None:
                    raise RefusedError("origin-bad-response")
                self.answer.start(Response(message["status"], fields))
            case "http.response.body":
                if message.get("body", b"") and not self.answer.write(bytes(message["body"])):
                    self.pause()
                if not (message.get("more_body", False) or self.is_over):
                    self.end()
                    self.answer.finish()
            case kind if kind == INTERIM:
                self.answer.interim(message["status"], fields_of(message))
            case kind if kind == EARLY_HINT:
                self.answer.interim(103, [(b"link", bytes(link)) for link in message["links"]])


def works(app, limits, clock):
    """An engine that passes everything on to an application."""
    bounds = Limits(max_target=limits.max_target, max_fields=limits.max_fields)
    runtime = everywhere(rules=Rules(bypass=("*",)), limits=bounds, cache_status="off")
    gate = Gate(runtime, tiers_of(MemoryStore()))
    return EngineService(
        Engine(gate, clock=lambda: 1_790_000_000.0 + clock.now, call_later=clock.call_later),
        Behind(app, gate),
    )


@cache
def config_of(app, **settings):
    """The configuration by which uvicorn serves an application."""
    usual = {"lifespan": "off", "log_config": None, "timeout_keep_alive": 5, "ws": "none"}
    config = uvicorn.Config(app, http=ExactProtocol, **usual | settings)
    config.load()
    return config


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
        self.clock = EachTurn()
        self.config = config_of(None if direct else app, **settings)
        self.state = ServerState()
        self.state.default_headers = list(default_headers)
        self.transport = Transport(half_close=half_close)
        limits = limits or ReadLimits()
        told = {"limits": limits, "tell": tell, "clients": clients, "ticks": self.clock.tick}
        if direct:
            self.works = works(app, limits, self.clock)
            of = Uvicorn(self.config, self.state, {}, self.clock)
            self.protocol = Http1Connection(Listener(self.works, **told), of)
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
        """The answers of this turn, read by h11 as a client would after these methods (default: GETs)."""
        self.clock.end_turn()
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
        if not isinstance(each.protocol.state, Lost):
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
def client(wire, recorder):
    """The client's end of a connection to a `Recorder`."""
    return wire(recorder)


@pytest.fixture
def parse_answers():
    return read_answers


NOW = 1_790_000_000.0  # September 2026
WARM = NOW - 30  # when what is stored came
DATE = b"Mon, 21 Sep 2026 14:12:50 GMT"  # thirty seconds before NOW
HOUR = (b"cache-control", b"max-age=3600")
TEN = b"max-age=10"

EARLY = ((103, ((b"link", b"</a.css>"),)),)


def stored(content, *fields, status=200, **how):
    """A page that may be stored for an hour."""
    return Page(status, (HOUR, *fields), content, **how)


def unstored(content, *fields, **how):
    return Page(200, ((b"cache-control", b"no-store"), *fields), content, **how)


def tagged(control, tag, content, **how):
    return Page(200, ((b"cache-control", control), (b"etag", tag)), content, **how)


IN_TWO = {"has_length": False, "size": 3}
PAGES = {
    b"/fresh": stored(b"0123456789", (b"content-type", b"text/plain"), (b"etag", b'"f"')),
    b"/a/b": stored(b"a/b", interims=EARLY),
    b"/stale": tagged(TEN, b'"s"', b"stale", interims=EARLY),
    b"/swr": Page(200, ((b"cache-control", TEN + b", stale-while-revalidate=600"),), b"swr"),
    b"/no-cache": tagged(b"no-cache", b'"n"', b"no-cache"),
    b"/vary": stored(b"vary", (b"vary", b"Accept-Encoding, Accept-Language, Cookie")),
    b"/lang": stored(b"lang", (b"vary", b"Accept-Language"), (b"content-language", b"de")),
    b"/search": stored(b"search", (b"no-vary-search", b'params=("utm")')),
    b"/tags": stored(b"tags", (b"cache-tag", b"a, b"), (b"xkey", b"c")),
    b"/no-tags": stored(b"no tags", (b"cache-tag", b""), (b"cache-groups", b"(")),
    b"/404": stored(b"none", status=404),
    b"/301": stored(b"", (b"location", b"/fresh"), status=301),
    b"/204": stored(b"", status=204),
    b"/empty": stored(b""),
    b"/big": stored(b"x" * 262144 + b"y" * 45056),
    b"/large": stored(b"z" * 9000),
    b"/streamed": stored(b"in two", **IN_TWO),
    b"/aged": stored(b"aged", (b"age", b"100"), (b"set-cookie", b"a=b")),
    b"/no-store": unstored(b"never"),
    b"/no-store-streamed": unstored(b"in two", interims=EARLY, **IN_TWO),
    b"/text": unstored(b"text " * 200, (b"content-type", b"text/plain")),
    b"/error": Page(500, (), b"broken"),
    b"/held": unstored(b"held", interims=EARLY, is_held=True),
}


def origin_of_pages():
    return Origin(PAGES, Page(404, (), b"unknown"), DATE)


class Proxy(ReverseProxy):
    """A `ReverseProxy` whose origin server is played, which the middleware asks without a detour by ASGI."""

    def __init__(self, origin):
        self.upstream = origin


class Door:
    """An engine behind one of the two doors, with a store of its own."""

    def __init__(self, connect, runtime, *, direct):
        self.now = NOW
        self.origin, self.outcomes = origin_of_pages(), []
        store, listeners = MemoryStore(), (self.outcomes.append,)
        if direct:
            gate = Gate(runtime, tiers_of(store))
            self.engine = Engine(gate, listeners, lambda: self.now)
        else:
            self._app = CacheMiddleware(
                Proxy(self.origin), runtime=runtime, store=store, listeners=listeners, clock=lambda: self.now
            )
            self.engine = self._app.engine
        self._connect, self._direct = connect, direct

    def client(self, **settings):
        if self._direct:
            works = EngineService(self.engine, self.origin)
            return self._connect(None, direct=True, works=lambda *_: works, **settings)
        return self._connect(self._app, **settings)

    async def warm(self, requests):
        """Have what these requests bring stored, thirty seconds ago."""
        self.now = WARM
        for data in requests:
            client = self.client()
            await client.feed(data)
            client.hang_up()
        self.now = NOW
        self.outcomes.clear()
        self.origin.asked.clear()


@pytest.fixture
def door(connect):
    """Makes a door: door(runtime, direct=…)."""

    def made(runtime, *, direct):
        return Door(connect, runtime, direct=direct)

    return made


RUNTIMES = {
    "plain": everywhere(),
    "key": everywhere(cache_status="key"),
    "off": everywhere(cache_status="off"),
    "trusted": everywhere(trusted=networks(["192.0.2.0/24"])),
    "bypass": everywhere(rules=Rules(bypass=("/fresh", "/a/*"), bypass_cookies=("session",))),
    "strips": everywhere(rules=Rules(strip_cookies=("_*",), strip_tags=True)),
    "ignores": everywhere(rules=Rules(client_directives="ignore", grace=100)),
    "sites": two_sites("/a/*"),
    **{name: everywhere(name) for name in ("mediawiki", "nginx", "rfc3986", "servlet")},
}

PASSING = everywhere(rules=Rules(bypass=("*",)))
COMPRESSING = everywhere(rules=Rules(compress=["gzip"]))


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


@pytest.fixture
def passing():
    """Passes everything on to the origin server."""
    return PASSING


_DATES = re.compile(rb"\r\ndate: [^\r]*")
_PHRASES = re.compile(rb"HTTP/1.1 416 [A-Za-z ]*")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
def comparable():
    """The octets sent, without that in which the doors may differ.

    That is where a Date of their own stands, the phrase of 416, which Python's library and RFC 9110 have
    differently, and a 100 to who has sent content already, which may be left out (§10.1.1).
    """
    return lambda sent: _PHRASES.sub(b"HTTP/1.1 416", _DATES.sub(b"", sent)).replace(_CONTINUE, b"")
