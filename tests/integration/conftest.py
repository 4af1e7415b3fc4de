"""The whole on real sockets: a uvicorn server in front, raw sockets as its origin and its client."""

import asyncio
import contextlib
import ssl
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from authority import Authority
from support import Clock, hurry
from tests.inside import Ended, commands
from univocal import CacheMiddleware, ReverseProxy, Rules, Runtime
from univocal.asgi.client import PATIENCE
from univocal.asgi.reverse_proxy import Origins
from univocal.judge.profiles import builtin_profiles
from univocal.judge.trust import networks
from univocal.origin.client_library import OriginTransport
from univocal.origin.servers import Timeouts
from univocal.server.clients import Clients
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService
from univocal_app.config.tables import validate
from univocal_app.run.configured import runtime_of
from univocal_app.run.origins import Ways

Fields = list[tuple[bytes, bytes]]

# These origins have no TLS, and reading every authority's certificate for each test takes long.
NO_AUTHORITY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's certificate for origin.example and 127.0.0.1, a client's certificate."""
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    authority.issue("server", "DNS:origin.example,IP:127.0.0.1")
    authority.issue("client", "DNS:client.example")
    return authority.folder


@dataclass
class Message:
    """A request or a response as it was on the wire."""

    head: bytes
    content: bytes = b""
    complete: bool = True

    @property
    def start(self) -> bytes:
        return self.head.partition(b"\r\n")[0]

    @property
    def target(self) -> bytes:
        return self.start.split(b" ")[1]

    @property
    def status(self) -> int:
        return int(self.start.split(b" ")[1])

    @property
    def fields(self) -> Fields:
        lines = self.head.split(b"\r\n")[1:-2]
        return [(line.partition(b": ")[0].lower(), line.partition(b": ")[2]) for line in lines]

    def __getitem__(self, name: str) -> str:
        return ", ".join(value.decode("latin-1") for key, value in self.fields if key == name.encode())


def length_of(head: bytes) -> int | None:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return None


async def chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while size := int(await reader.readline(), 16):
        content += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return content


async def read_message(reader: asyncio.StreamReader, *, to: str = "GET", response: bool) -> Message:
    """The next message; for a response its request's method says whether content follows."""
    head = await reader.readuntil(b"\r\n\r\n")
    message = Message(head)
    none = response and (to == "HEAD" or message.status in {204, 304} or message.status < 200)
    try:
        if none:
            return message
        if b"\r\ntransfer-encoding: chunked" in head.lower():
            message.content = await chunks(reader)
        elif (length := length_of(head)) is not None:
            message.content = await reader.readexactly(length)
        elif response:
            message.content = await reader.read()
    except (asyncio.IncompleteReadError, ValueError) as cut:
        message.content = getattr(cut, "partial", b"")
        message.complete = False
    return message


def reply(content: bytes = b"", *lines: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


class Origin:
    """A listening socket that keeps every request; `answer` makes each response's octets, b"" hangs up."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.answer: Callable[[Message], bytes] = lambda request: reply(
            b"answer %d" % len(self.requests), "Cache-Control: max-age=60"
        )
        self.gate: asyncio.Event | None = None
        self.connections = 0
        self.closing = False  # after each response
        self.left = asyncio.Event()  # the other end closed a connection that still had an answer to get
        self.arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def targets(self) -> list[bytes]:
        return [request.target for request in self.requests]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(EOFError, OSError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read_message(reader, response=False)
        self.requests.append(request)
        self.arrived.set()
        if self.gate is not None:
            opened, gone = asyncio.create_task(self.gate.wait()), asyncio.create_task(reader.read(1))
            await asyncio.wait([opened, gone], return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                opened.cancel()
                self.left.set()
                return False
            gone.cancel()
        answer = self.answer(request)
        writer.write(answer)
        await writer.drain()
        return bool(answer) and not self.closing


class Server(uvicorn.Server):
    """A server that hears at once that it is to end; uvicorn's own looks ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def main_loop(self) -> None:
        await self.ending.wait()


@dataclass
class Front:
    """A served application and how to talk to it."""

    port: int
    app: Any
    server: Server

    async def talk(
        self, data: bytes, *methods: str, then_leave: asyncio.Event | None = None
    ) -> list[Message]:
        """Send octets; one final response for each of the methods, interim ones before it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answers = []
        try:
            writer.write(data)
            if then_leave is not None:
                await then_leave.wait()
                return []
            for method in methods or ("GET",):
                final = False
                while not final:
                    async with asyncio.timeout(30):
                        answers.append(await read_message(reader, to=method, response=True))
                    final = answers[-1].status >= 200
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        return answers

    async def ask(
        self,
        target: str | bytes,
        *lines: str,
        method: str = "GET",
        host: str = "en.example",
        body: bytes = b"",
    ) -> Message:
        raw = target if isinstance(target, bytes) else target.encode()
        said = [f"Host: {host}", "Connection: close", *lines]
        head = method.encode() + b" " + raw + b" HTTP/1.1\r\n" + "\r\n".join(said).encode() + b"\r\n\r\n"
        return (await self.talk(head + body, method))[-1]


@pytest.fixture
def univocal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run `univocal` with these arguments to its end."""
    return commands(monkeypatch, capsys)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def origin() -> Any:
    origin = Origin()
    await origin.start()
    yield origin
    await origin.stop()


@pytest.fixture
async def serve() -> Any:
    """Serve an application by uvicorn: `front = await serve(app, http=…, root_path=…)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            app: Any, http: str = "univocal.protocol:ExactProtocol", grace: float = 1, **settings: Any
        ) -> Front:
            config = uvicorn.Config(
                app,
                host="127.0.0.1",
                port=0,
                http=http,
                proxy_headers=False,
                date_header=False,
                server_header=False,
                log_config=None,
                lifespan="off",
                timeout_graceful_shutdown=grace,
                **settings,
            )
            server = Server(config)
            task = asyncio.create_task(server.serve())
            while not server.started:
                assert not task.done(), task
                await asyncio.sleep(0)
            stack.push_async_callback(stop, server, task)
            return Front(server.servers[0].sockets[0].getsockname()[1], app, server)

        yield start


async def stop(server: Server, task: asyncio.Task[None]) -> None:
    with pytest.MonkeyPatch.context() as patches:
        hurry(patches, 0.1, 0.005)  # its looks whether connections are closed
        server.ending.set()
        await task


def direct(
    app: CacheMiddleware, proxy: ReverseProxy, clients: Clients | None = None, trusted: Sequence[str] = ()
) -> Any:
    """The HTTP of a server at whose direct door the cache stands, instead of its ASGI."""
    listener = Listener(EngineService(app.engine, proxy.upstream), clients=clients)
    listener.proxies = lambda: networks(trusted)
    return Http1Connection.of(listener)


@pytest.fixture(params=[OriginTransport, None], ids=["univocal's transport", "httpx's"])
def transport(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
async def front(serve: Any, origin: Origin, clock: Clock, transport: Any) -> Any:
    """A proxy before the origin: `front = await front(profile, rules)`."""
    proxies = []

    async def start(profile: str = "mediawiki", rules: Rules | None = None, **settings: Any) -> Front:
        proxy = ReverseProxy(
            f"http://127.0.0.1:{origin.port}",
            transport() if transport else httpx.AsyncHTTPTransport(verify=NO_AUTHORITY),
            timeouts=Timeouts(read=settings.pop("read_timeout", 10)),
        )
        proxies.append(proxy)
        runtime = Runtime.everywhere(builtin_profiles()[profile], rules or Rules(), cache_status="key")
        return await serve(CacheMiddleware(proxy, runtime=runtime, clock=clock), **settings)

    yield start
    for proxy in proxies:
        await proxy.aclose()


@pytest.fixture
async def configured(serve: Any) -> Any:
    """The proxy that a file describes: `front = await configured(text)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(text: str) -> Front:
            configuration = validate(tomllib.loads(text), "univocal.toml")
            proxies = Ways.of(configuration).proxies
            for each in proxies.values():
                stack.push_async_callback(each.aclose)
            runtime = runtime_of(configuration, proxies)
            return await serve(CacheMiddleware(Origins(proxies), runtime=runtime))

        yield start


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting client is watched from the first moment on, not only after a while."""
    hurry(monkeypatch, PATIENCE)


@pytest.fixture(name="reply")
def reply_fixture() -> Callable[..., bytes]:
    return reply
