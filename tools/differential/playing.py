"""Sequences over sockets: a scripted origin server, a client, and the caches between them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import Cores, free_port, running
from benchmarks.servers import NGINX, Place, environment, filled
from tools.differential.oracle import Got, Said
from tools.differential.script import Answer, Ask, Fields, Step, reply, resolved

PATIENCE = 20.0  # seconds
SETTLING = 0.05  # seconds for what a cache does in the background to begin, and to be stored

UNIVOCAL = """
[server]
listen = "127.0.0.1:@port@"
admin = "127.0.0.1:@admin@"
access_log = "off"
[cache]
@settings@
[[sites]]
hosts = ["*"]
upstream = "http://127.0.0.1:@origin@"
"""
EXPLICIT = 'errors = "explicit"\nset_cookie = "explicit"\nheuristic = true'
# No freshness that the origin server did not say, and no grace: so that what is stale is stale.
VARNISH = ("default_ttl=0", "default_grace=0", "default_keep=60", "ping_interval=0")
VCL = 'vcl 4.1; backend default { .host = "127.0.0.1"; .port = "@origin@"; }\n'
PROXY_CACHE = """
    proxy_cache_path @folder@/cache levels=1:2 keys_zone=kept:16m inactive=1h use_temp_path=off;
    upstream origin { server 127.0.0.1:@origin@ max_fails=0; keepalive 32; }
    server { listen 127.0.0.1:@port@ backlog=4096; location / {
        proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection "";
        proxy_cache kept; proxy_cache_revalidate on; proxy_cache_background_update on;
    } }"""


def univocal(settings: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        names = {"port": place.port, "admin": free_port(), "origin": place.origin, "settings": settings}
        file = place.write("univocal.toml", filled(UNIVOCAL, **names))
        return [sys.executable, "-m", "univocal_app", "serve", "--config", file]

    return command


def shared(place: Place) -> list[str]:
    """`univocal serve` with a Redis of its own, which ends with it."""
    port = free_port()
    redis = f"redis-server --port {port} --bind 127.0.0.1 --save '' --maxmemory 64mb"
    patient = "redis = { timeout = 20 }"  # a busy machine is not to be taken for a Redis that is away
    serve = univocal(f'store = "redis://127.0.0.1:{port}/0"\n{patient}')(place)
    redis += " --maxmemory-policy allkeys-lru >redis.log"
    return ["sh", "-c", f"{redis} & sleep 1; exec {shlex.join(serve)}"]


def mounted(place: Place) -> list[str]:
    """CacheMiddleware around ReverseProxy, under uvicorn."""
    place.write("origin", f"http://127.0.0.1:{place.origin}")
    factory = ["--factory", "tools.differential.mounted:application", "--port", str(place.port)]
    return [sys.executable, "-m", "uvicorn", *factory, "--no-access-log", "--log-level", "warning"]


def varnish(place: Place) -> list[str]:
    options = [option for setting in VARNISH for option in ("-p", setting)]
    options += ["-j", "none", "-T", "none", "-n", str(place.folder / "work"), "-s", "malloc,256m"]
    listen = ["-a", f"127.0.0.1:{place.port}"]
    return [
        "varnishd",
        "-F",
        *options,
        *listen,
        "-f",
        place.write("own.vcl", filled(VCL, origin=place.origin)),
    ]


def nginx(place: Place) -> list[str]:
    names = {"log": "off", "folder": place.folder, "port": place.port, "origin": place.origin}
    file = place.write("nginx.conf", filled(NGINX, body=PROXY_CACHE, **names))
    return ["nginx", "-p", str(place.folder), "-c", file]


CACHES: dict[str, Callable[[Place], list[str]]] = {
    "univocal": univocal(""),
    "explicit": univocal(EXPLICIT),
    "shared": shared,
    "mounted": mounted,
    "varnish": varnish,
    "nginx": nginx,
}


# A client that closes its half has left, for the others.
SERVED = {"univocal", "explicit", "shared"}


def missing(name: str) -> bool:
    """Tell whether the program of a cache is not installed."""
    program = {"varnish": "varnishd", "nginx": "nginx", "shared": "redis-server"}.get(name)
    return program is not None and shutil.which(program) is None


# Messages --------------------------------------------------------------------------------------------------


async def read_head(reader: asyncio.StreamReader) -> tuple[str, Fields]:
    """The start line and the fields of a message; raises EOFError where the connection ends."""
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return start, tuple((name.lower(), value.strip()) for name, _, value in pairs)


async def read_content(reader: asyncio.StreamReader, fields: Fields, *, until_close: bool) -> bytes:
    """The content that these fields announce (RFC 9112 §6.3)."""
    named = dict(fields)
    if "chunked" in named.get("transfer-encoding", ""):
        content = b""
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
        return content
    if "content-length" in named:
        return await reader.readexactly(int(named["content-length"]))
    return await reader.read() if until_close else b""


def head_of(start: str, fields: Fields) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"{start}\r\n{lines}\r\n".encode("latin-1")


# The origin server -----------------------------------------------------------------------------------------


@dataclass
class Resource:
    """The resource behind one path: how it answers now, its version, and all that it has said."""

    answer: Answer = field(default_factory=Answer)
    version: int = 0
    log: list[Said] = field(default_factory=list)
    open: int = 0  # requests that are not answered yet
    touched: float = 0.0  # when a request last came or was answered

    def change(self, answer: Answer) -> None:
        self.version += answer.new
        self.answer = answer


@dataclass
class Behind:
    """The origin server behind one cache."""

    port: int = 0
    halves: bool = False  # the cache answers a client that has closed its half
    resources: dict[str, Resource] = field(default_factory=dict)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after another on a connection."""
        self.writers.add(writer)
        with contextlib.suppress(EOFError, OSError):
            while await self._answer(reader, writer):
                await writer.drain()
        self.writers.discard(writer)
        writer.close()

    async def close(self) -> None:
        """Close every connection."""
        for writer in self.writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self.writers), return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        start, fields = await read_head(reader)
        method, path, _ = start.split(" ")
        resource = self.resources.setdefault(path, Resource())
        came, answer = time.monotonic(), resource.answer
        resource.open += 1
        try:
            await read_content(reader, fields, until_close=False)
        finally:
            resource.open -= 1
            resource.touched = time.monotonic()
        serial, ask = len(resource.log), Ask(method, fields)
        if answer.dead:
            resource.log.append(Said(serial, ask, came, time.monotonic(), 0, (), resource.version, ""))
            return False
        said = reply(path, answer, resource.version, ask, time.time())
        sent = (*said.fields, ("x-serial", str(serial)))
        resource.log.append(
            Said(serial, ask, came, time.monotonic(), said.status, sent, said.version, said.label)
        )
        writer.write(framed(answer, said.status, sent, said.content, method))
        return True


def framed(answer: Answer, status: int, fields: Fields, content: bytes, method: str) -> bytes:
    """A response with its content in one chunk, or with its length."""
    start = f"HTTP/1.1 {status} X"
    if status == 304:
        return head_of(start, fields)
    if answer.chunked:
        head = head_of(start, (*fields, ("transfer-encoding", "chunked")))
        content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    else:
        head = head_of(start, (*fields, ("content-length", str(len(content)))))
    return head if method == "HEAD" else head + content


# A client --------------------------------------------------------------------------------------------------


@dataclass
class Client:
    """One client's connection to a cache, opened again where the cache has closed it."""

    port: int
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, path: str, ask: Ask, *, half: bool = False) -> Got:
        """Send a request, and read the response to it; after `half` nothing more is sent."""
        async with asyncio.timeout(PATIENCE):
            if half or self.streams is None or self.streams[0].at_eof():
                await self.close()
                self.streams = await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = self.streams
            length = (("content-length", "1"),) if ask.method == "POST" else ()
            fields = (("host", "sequences.example"), *ask.fields, *length)
            sent = time.monotonic()
            writer.write(head_of(f"{ask.method} {path} HTTP/1.1", fields) + b"x" * len(length))
            if half:
                writer.write_eof()
            start, received = await read_head(reader)
            status = int(start.split(" ")[1])
            bodiless = ask.method == "HEAD" or status in {204, 304}
            content = b"" if bodiless else await read_content(reader, received, until_close=True)
            if half or ("connection", "close") in received:
                await self.close()
            return Got(ask, sent, time.monotonic(), status, received, content)

    async def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


# A sequence ------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """The events of a sequence: each step's response, and what the origin server had said by then."""

    path: str
    log: Sequence[Said]
    got: list[Got] = field(default_factory=list)
    beside: list[list[Got]] = field(default_factory=list)  # by the requests beside each step
    known: list[int] = field(default_factory=list)  # how much of the log was there at each step's end


async def play(port: int, behind: Behind, path: str, steps: Sequence[Step]) -> Played:
    """Play the steps against one cache. Raises OSError, EOFError or TimeoutError if it does not answer."""
    resource = behind.resources.setdefault(path, Resource())
    played, client = Played(path, resource.log), Client(port)
    try:
        for step in steps:
            await asyncio.sleep(step.wait)
            if step.answer is not None:
                resource.change(step.answer)
            ask = resolved(step.ask, resource.answer, resource.version)
            beside = [resolved(each, resource.answer, resource.version) for each in step.beside]
            half = step.half and behind.halves
            got, *others = await asyncio.gather(
                client.exchange(path, ask, half=half), *(alone(port, path, each) for each in beside)
            )
            played.got.append(got)
            played.beside.append(others)
            await settled(resource)
            played.known.append(len(resource.log))
    finally:
        await client.close()
        del behind.resources[path]
    return played


async def alone(port: int, path: str, ask: Ask) -> Got:
    """Send a request over a connection of its own."""
    client = Client(port)
    try:
        return await client.exchange(path, ask)
    finally:
        await client.close()


async def settled(resource: Resource) -> None:
    """Wait until nothing is under way, so that what was fetched in the background is stored."""
    await asyncio.sleep(SETTLING)
    # A background request tells nobody when it begins, so that there is no event to wait for.
    while resource.open or time.monotonic() - resource.touched < SETTLING:  # noqa: ASYNC110
        await asyncio.sleep(SETTLING / 2)


@contextlib.asynccontextmanager
async def started(
    names: Sequence[str], *, halves: bool = False
) -> AsyncIterator[dict[str, tuple[int, Behind]]]:
    """The caches of these names: the port of each, and the origin server behind it.

    With `halves` some clients close their half behind a request.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        caches = {}
        for number, name in enumerate(names):
            behind = Behind(halves=halves and name in SERVED)
            server = await asyncio.start_server(behind.serve, "127.0.0.1", 0, backlog=4096)
            stack.callback(server.close)
            behind.port = server.sockets[0].getsockname()[1]
            place = Place(Path(folder) / name, free_port(), behind.port)
            await asyncio.to_thread(stack.enter_context, running_cache(name, number, place))
            caches[name] = (place.port, behind)
        yield caches
        await asyncio.gather(*(behind.close() for _, behind in caches.values()))


@contextlib.contextmanager
def running_cache(name: str, number: int, place: Place) -> Iterator[None]:
    cores = Cores.of_this_machine()
    core = cores.server if number % 2 == 0 else cores.load
    command = CACHES[name](place)
    with running(command, core, place.port, place.folder, environment(place.folder)):
        yield
