"""Ways in for a client: HTTP/1.1 and HTTP/2 by bytes, ASGI messages, the engine's plain calls.

Each asks in a world of the fuzzer (fuzz/exchanges), whose origin server reads and writes bytes.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hpack
from uvicorn.server import ServerState

from fuzz.exchanges.grammar import HOST
from fuzz.exchanges.messages import responses
from fuzz.exchanges.wires import Wire
from fuzz.exchanges.world import CONFIG, World
from http2_client import HEADERS, PREFACE, Client, data, headers, settings
from neighbours import PlayedClient
from tests.asgi.conftest import scope_of
from univocal import CacheMiddleware
from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.engine.exchange import Exchange
from univocal.http.messages import Fields, Received
from univocal.http.pipe import Pipe
from univocal.server.clients import ReadLimits
from univocal.server.http2.connection import Http2Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Uvicorn

SURPLUS = b"/-surplus"
ADDRESS = "192.0.2.1"


class Sent(NamedTuple):
    """A client's request."""

    target: bytes
    method: bytes
    fields: Fields
    content: bytes | None


@dataclass
class Seen:
    """A response as its client has it; `complete` says that all of it is there."""

    status: int = 0
    fields: Fields = field(default_factory=list)
    content: bytes = b""
    complete: bool = False
    interims: tuple[int, ...] = ()


def send(client: Any, octets: bytes, *, pieces: bool) -> None:
    """Have a client send these bytes, one by one or at once; what is not read now waits."""
    client.outbox.extend([octets[at : at + 1] for at in range(len(octets))] if pieces else [octets])
    while pieces and client.outbox and client.open and not client.wire.paused:
        client.wire.protocol.data_received(client.outbox.popleft())


class Http1:
    """A connection of HTTP/1.1."""

    def __init__(self, world: World) -> None:
        self._client = world.connect(ADDRESS)
        self._methods: list[bytes] = []

    def ask(self, sent: Sent, *, pieces: bool, surplus: bool) -> None:
        lines = [b"%b %b HTTP/1.1" % (sent.method, sent.target), b"Host: " + HOST]
        lines += [b"%b: %b" % each for each in sent.fields]
        if sent.content is not None:
            lines.append(b"Content-Length: %d" % len(sent.content))
        octets = b"\r\n".join([*lines, b"", sent.content or b""])
        self._methods = [sent.method]
        if surplus:
            octets += b"GET %b HTTP/1.1\r\nHost: %b\r\n\r\n" % (SURPLUS, HOST)
            self._methods.append(b"GET")
        send(self._client, octets, pieces=pieces)

    def say(self, octets: bytes, *methods: bytes) -> None:
        """Send these bytes, in which there are requests with these methods."""
        self._methods += methods
        self._client.outbox.append(octets)

    @property
    def heard(self) -> bytes:
        return bytes(self._client.wire.sent)

    @property
    def is_open(self) -> bool:
        return self._client.open

    def _responses(self) -> list[Any]:
        return responses(self.heard, self._methods, closed=not self.is_open)[0]

    def seen(self) -> Seen:
        if not (found := self._responses()):
            return Seen()
        first = found[0]
        return Seen(first.status, first.fields, first.content, first.complete, first.interims)

    def leave(self) -> None:
        self._client.left = True
        self._client.wire.lose()

    def surplus_is_answered(self) -> bool:
        return [each.content for each in self._responses()[1:]] == [b"surplus"]


class Http2(Client):
    """A connection of HTTP/2."""

    def __init__(self, world: World) -> None:
        service = EngineService(world.engine, world.upstream)
        listener = Listener(service, ReadLimits(), ticks=lambda: 0.0)
        self._client = world.connect(ADDRESS)
        self.transport = self._client.wire = Wire(world.clock, ADDRESS)
        self.connection = Http2Connection(listener, Uvicorn(CONFIG, ServerState(), {}, world.clock))
        self._client.wire.protocol = self.connection
        self.connection.connection_made(self._client.wire)
        self.decoder = hpack.Decoder()
        self.frames, self._unread, self._section = [], b"", b""
        self._client.outbox.append(PREFACE + settings())

    def ask(self, sent: Sent, *, pieces: bool, surplus: bool) -> None:
        pseudo = [
            (b":method", sent.method),
            (b":scheme", b"http"),
            (b":path", sent.target),
            (b":authority", HOST),
        ]
        fields = [(name.lower(), value) for name, value in sent.fields]
        octets = headers(1, [*pseudo, *fields], ends=sent.content is None)
        if sent.content is not None:
            octets += data(1, sent.content, ends=True)
        if surplus:
            octets += headers(3, [*pseudo[1:2], (b":method", b"GET"), (b":path", SURPLUS), pseudo[3]])
        send(self._client, octets, pieces=pieces)

    def seen(self) -> Seen:
        self._read()
        interims = tuple(int(each[b":status"]) for each in self.interims(1))
        if self.head(1) is None:
            return Seen(interims=interims)
        final = next(each.payload for each in self.of(1, HEADERS) if each.payload[0][1] >= b"200")
        return Seen(int(final[0][1]), final[1:], self.content(1), self.has_ended(1), interims)

    def _read(self) -> None:
        self._unread += bytes(self.transport.sent)
        self.transport.sent.clear()
        self._parse()

    def leave(self) -> None:
        self._client.left = True
        self._client.wire.lose()

    def surplus_is_answered(self) -> bool:
        self._read()
        return (self.content(3), self.has_ended(3)) == (b"surplus", True)


class Asgi:
    """A call of the middleware, mounted on a `ReverseProxy`."""

    def __init__(self, world: World) -> None:
        app, gate = self.application(ReverseProxy(world.upstream)), world.engine.gate
        self._app = CacheMiddleware(app, runtime=gate.runtime, store=world.tiers, clock=world.clock)
        # All clients of a world have one engine.
        self._app.engine = self._app._mounted.engine = world.engine
        self._app.gate = gate
        self._seen = Seen()
        self._left = asyncio.Event()
        self._messages: deque[dict[str, Any]] = deque()

    def ask(self, sent: Sent, *, pieces: bool, surplus: bool) -> None:
        fields = [(name.lower().decode(), value.decode("latin-1")) for name, value in sent.fields]
        scope = scope_of(sent.target, sent.method.decode(), HOST.decode(), fields)
        scope |= {"client": (ADDRESS, 4711), "server": ("192.0.2.80", 80)}
        content = sent.content or b""
        if sent.content is not None:
            scope["headers"].append((b"content-length", b"%d" % len(content)))
        size = 1 if pieces else max(1, len(content))
        for at in range(0, max(1, len(content)), size):
            more = at + size < len(content)
            message = {"type": "http.request", "body": content[at : at + size], "more_body": more}
            self._messages.append(message)
        self._task = asyncio.create_task(self._app(scope, self._receive, self._send))

    def application(self, proxy: Any) -> Any:
        """The application on which the middleware is mounted."""
        return proxy

    async def _receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.popleft()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        seen = self._seen
        if message["type"] == "http.response.start":
            seen.status, seen.fields = message["status"], list(message["headers"])
        elif message["type"] == "http.response.body":
            seen.content += message.get("body", b"")
            seen.complete = not message.get("more_body", False)
        else:
            seen.interims += (message["status"],)

    def seen(self) -> Seen:
        return self._seen

    def leave(self) -> None:
        self._left.set()


class Mounted(Asgi):
    """The same, mounted on an application that is nothing but one."""

    def application(self, proxy: Any) -> Any:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            await proxy(scope, receive, send)

        return application


class Plain:
    """An exchange of the engine, without a wire."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = PlayedClient()

    def ask(self, sent: Sent, *, pieces: bool, surplus: bool) -> None:
        engine = self._world.engine
        fields = [(b"host", HOST), *((name.lower(), value) for name, value in sent.fields)]
        content = None
        if sent.content is not None:
            content = played(sent.content, 1 if pieces else max(1, len(sent.content)))
            fields.append((b"content-length", b"%d" % len(sent.content)))
        received = Received(sent.method, sent.target, b"http", ADDRESS)
        now = engine.clock()
        admission = engine.gate.admit(received, fields, now)
        exchange = Exchange(engine, self._client, admission, self._world.upstream, content, (now, now))
        self._client.exchange = exchange
        exchange.begin()

    def seen(self) -> Seen:
        client, ended = self._client, self._client.state == "finished"
        return Seen(client.status, client.fields, client.body, ended, tuple(client.interims))

    def leave(self) -> None:
        self._client.leave()


def played(octets: bytes, size: int) -> Pipe:
    """A request's content in pieces of one size, given as they are taken."""
    pieces = deque(octets[at : at + size] for at in range(0, len(octets), size))

    def go_on() -> None:
        while pieces:
            if not pipe.write(pieces.popleft()):
                return
        pipe.finish()

    pipe = Pipe(go_on)
    return pipe
