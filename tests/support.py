"""Helpers of several rooms' tests: a stored response, a clock, an event loop at rest."""

import asyncio
import gc
import os
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import pytest

from fuzz.exchanges.loop import LoopCalls
from univocal.cache.decide import Forward, Handling
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.engine.outcome import Outcome, Times
from univocal.http.messages import Field, Received, Request, Response
from univocal.store.memory import MemoryStore

NOW = 1_790_000_000.0  # September 2026
KEY = b"0123456789abcdef http en.example /a"
RULES = Rules()


@dataclass(eq=False)  # one that is cancelled again takes no other's place
class Timer:
    """A call that is to come at a time of a clock."""

    clock: "Clock"
    due: float
    callback: Callable[..., object]
    arguments: tuple[Any, ...]

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        with suppress(ValueError):
            self.clock.timers.remove(self)


class Clock:
    """A clock that a test sets, with timers: the part of an event loop that univocal uses.

    Somebody who sleeps lets time pass. Work takes `a_tick` by each look at the ticks.
    """

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.timers: list[Timer] = []
        self.armed = 0  # timers so far
        self.ticked, self.a_tick = 0.0, 0.0

    def time(self) -> float:
        return self.now

    __call__ = time

    def tick(self) -> float:
        self.ticked += self.a_tick
        return self.ticked

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def call_at(self, due: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        timer = Timer(self, due, callback, arguments)
        self.timers.append(timer)
        self.armed += 1
        return timer

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(callback, *arguments)

    def pass_to(self, end: float) -> None:
        """Set the clock, and call all that is due by then, each in its own time."""
        while due := [timer for timer in self.timers if timer.due <= end]:
            timer = min(due, key=Timer.when)
            timer.cancel()
            self.now = max(self.now, timer.due)
            timer.callback(*timer.arguments)
        self.now = end

    def pass_time(self, seconds: float) -> None:
        self.pass_to(self.now + seconds)


class Turns(Clock):
    """The same, and a test makes the loop's next turn."""

    def __init__(self, now: float = 0.0) -> None:
        super().__init__(now)
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Any:
        self.soon.append((callback, arguments))

    def end_turn(self) -> None:
        """Make the calls of the loop's next iteration now."""
        calls, self.soon = self.soon, []
        for callback, arguments in calls:
            callback(*arguments)


class Transport(asyncio.Transport):
    """A connection without a socket: it keeps what is written, and is read until it is `paused`."""

    def __init__(self, *, half_close: bool = True, **extra: Any) -> None:
        super().__init__({"peername": ("192.0.2.1", 4711), "sockname": ("192.0.2.2", 80), **extra})
        self.sent = bytearray()
        self.closed = self.ended = self.aborted = self.paused = False
        self.half_close = half_close
        self.pauses = 0
        self.waiting = 0  # octets that the client has not taken

    def write(self, data: Any) -> None:
        if not self.closed:
            assert not self.ended, "a write after the end"
            self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def can_write_eof(self) -> bool:
        return self.half_close

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.paused, self.pauses = True, self.pauses + 1

    def resume_reading(self) -> None:
        self.paused = False


async def idle() -> None:
    """Have all go on that can without octets and without time: at most 50 turns of the event loop.

    The loop rests where nothing is to be called for three turns: a timer that is due is called in the second.
    """
    quiet = 0
    with LoopCalls.watched() as calls:
        for _ in range(50):
            quiet = 0 if await calls.come() else quiet + 1
            if quiet == 3:
                return


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for what another process or thread does; what the condition is then."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "it does not come to pass"
        time.sleep(0.02)
    return found


async def eventually(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for what another task or process does; what the condition is then."""
    async with asyncio.timeout(seconds):
        while not (found := condition()):  # noqa: ASYNC110  (what it waits for says nothing)
            await asyncio.sleep(0.001)
    return found


def hurry(patches: pytest.MonkeyPatch, seconds: float, sooner: float = 0.0) -> None:
    """Have the running event loop call sooner what is to be called in exactly so many seconds."""
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def hurried(delay: float, *call: Any, **context: Any) -> asyncio.TimerHandle:
        return call_later(sooner if delay == seconds else delay, *call, **context)

    patches.setattr(loop, "call_later", hurried)


def living(*kinds: type) -> list[Any]:
    """The objects of these classes that are not freed; compiled ones, too, which have no weak references."""
    return [each for each in gc.get_objects() if issubclass(type(each), kinds)]


class Stopwatch:
    """Seconds by its own ticks: where the machine stands still or is slow, they go on as slowly.

    `stood_still` are those of the wall that had no tick.
    """

    TICK = 0.01

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        while not self._ends.wait(self.TICK):
            self.seconds += self.TICK

    def __enter__(self) -> "Stopwatch":
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self.stood_still = time.monotonic() - self._began - self.seconds


def open_files() -> set[str]:
    """This process's open files. Garbage of other tests may be closed at any time: only new names tell."""
    names = set[str]()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it was the directory's own
            names.add(os.readlink(f"/proc/self/fd/{number}"))
    return names


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Have a server of the standard library serve, in a thread, until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def origin_server(
    answer: Callable[[bytes, bytes], bytes | Iterable[bytes]],
    file: Path | None = None,
    port: int = 0,
    connected: set[socket.socket] | None = None,
) -> Iterator[str]:
    """Answer requests, of which `answer` gets head and content; the URL of a port or of this socket.

    An answer is sent as it comes; a ConnectionError ends its connection. `connected` are those that are open.
    """
    there = set[socket.socket]() if connected is None else connected

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = file is None

        def handle(self) -> None:
            there.add(self.connection)
            with suppress(ConnectionError):
                while head := head_of(self.rfile):
                    answered = answer(head, content_of(head, self.rfile))
                    for piece in [answered] if isinstance(answered, bytes) else answered:
                        self.wfile.write(piece)
            there.discard(self.connection)

    kind = socketserver.ThreadingUnixStreamServer if file else socketserver.ThreadingTCPServer
    settings = {"daemon_threads": True, "block_on_close": False, "request_queue_size": 512}
    settings["allow_reuse_address"] = port != 0
    place: Any = str(file) if file else ("127.0.0.1", port)
    with type("Server", (kind,), settings)(place, Handler) as server, serving(server):
        yield f"unix://{file}" if file else f"http://127.0.0.1:{server.server_address[1]}"


def response_with(content: bytes = b"", fields: bytes = b"", status: bytes = b"200 OK") -> bytes:
    """A response with a length, behind these field lines, each with its CRLF."""
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, fields, len(content), content)


def head_of(stream: IO[bytes]) -> bytes:
    """The lines until the next empty one of a stream, without that; b"" if it does not come.

    At its end a stream gives empty lines for ever, without CRLF.
    """
    lines = list[bytes]()
    while line := stream.readline():
        if line == b"\r\n":
            return b"".join(lines)
        lines.append(line)
    return b""


def content_of(head: bytes, stream: IO[bytes]) -> bytes:
    """The content of a request behind its head."""
    if re.search(rb"(?im)^transfer-encoding: *chunked", head):
        return b"".join(iter(lambda: stream.read(int(stream.readline(), 16) + 2)[:-2], b""))
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    return stream.read(int(length[1])) if length else b""


def stored_response(
    *fields: Field,
    name: bytes = KEY,
    request: Sequence[Field] | None = None,
    method: bytes = b"GET",
    status: int = 200,
    body: bytes = b"0123456789",
    at: float = NOW,
    **rules: Any,
) -> Stored:
    """The response with these fields, fresh for a minute unless they say otherwise; `rules` are settings."""
    told = any(field[0] == b"cache-control" for field in fields)
    lines = [*fields] if told else [(b"cache-control", b"max-age=60"), *fields]
    asked = Request(method, b"/a", list(request or []))
    settings = Rules(**rules) if rules else RULES
    begun = may_store(name, Fetched(asked, Response(status, lines), at, at), settings)
    assert isinstance(begun, Stored), begun
    done = complete(begun, body)
    assert done is not None
    return done


def an_outcome(
    target: bytes = b"/a", start: float = 1_700_000_000.0, seconds: float = 0.002, **others: Any
) -> Outcome:
    """A hit of 12 bytes, unless `others` say otherwise."""
    made = Outcome(
        site="en.example",
        received=Received(b"GET", target),
        canonical=None,
        decision=Forward("uri-miss", may_store=False, fallback=None),
        status=200,
        bytes=12,
        times=Times(start, 0.0, seconds),
        client=None,
        handling=Handling(hit=True),
    )
    return replace(made, **others)


def put(store: MemoryStore, stored: Stored) -> bool:
    """Store a response as what has been fetched just now."""
    lease = store.leases.begin(stored.key, NOW)
    try:
        return store.commit(lease, stored)
    finally:
        store.leases.release(lease)


LONG_URL = b"o" * 40_000


def store_long_urls(store: MemoryStore, count: int) -> list[bytes]:
    """Store so many responses whose URLs a sweep tests one at a time against a slow pattern; their keys."""
    keys = [KEY + b"%b%d" % (LONG_URL, number) for number in range(count)]
    assert all(put(store, stored_response(name=key)) for key in keys)
    return keys


class RevalidatedPage:
    """An application with one page, whose entity-tag stays the same whatever its content is.

    `asked` are the values of If-None-Match, None for none. An error's `status` is never stored.
    """

    def __init__(self, fields: list[Field]) -> None:
        self.fields, self.content, self.status = fields, b"old", 200
        self.asked: list[bytes | None] = []

    async def turn(self, fields: dict[bytes, bytes]) -> None:
        """Wait until a test lets the answer to a request with these fields go."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        fields = dict(scope["headers"])
        self.asked.append(fields.get(b"if-none-match"))
        await self.turn(fields)
        unchanged = b"if-none-match" in fields and self.status == 200
        told = self.fields if self.status == 200 else [(b"cache-control", b"no-store")]
        status = 304 if unchanged else self.status
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": b"" if unchanged else self.content})


@contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """An address that answers no SYN: the kernel drops what a full backlog has no room for."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket(family))
        listening.bind((address, port))
        listening.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket(family))
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect((address, port))
        yield


async def hello(peer: Any) -> None:
    """Answer each request with a greeting."""
    while await peer.head():
        await peer.answer(b"hello")


async def echo(peer: Any) -> None:
    """Answer each request with itself."""
    while True:
        head = await peer.head()
        await peer.answer(head + await peer.content())


class Handshake:
    """A client that opens a WebSocket."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(
        self,
        target: str,
        fields: Sequence[tuple[bytes, bytes]] = (),
        *,
        denial: bool = True,
        root_path: str = "",
        host: bytes = b"en.example",
    ) -> list[dict[str, Any]]:
        path = target.encode().partition(b"?")[0]
        scope = {
            "type": "websocket",
            "scheme": "ws",
            "http_version": "1.1",
            "path": unquote(target.partition("?")[0]),
            "raw_path": path,
            "query_string": target.encode().partition(b"?")[2],
            "root_path": root_path,
            "headers": [(b"host", host), (b"connection", b"upgrade"), (b"upgrade", b"websocket"), *fields],
            "client": ("198.51.100.7", 1),
            "subprotocols": ["chat"],
            "extensions": {"websocket.http.response": {}} if denial else {},
        }
        received: list[dict[str, Any]] = [{"type": "websocket.connect"}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return received.pop(0) if received else {"type": "websocket.disconnect", "code": 1000}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent


def metric_of(figures: Any, name: str) -> float:
    """The sum of a metric over all its labels, as Prometheus is told it: by figures, or in their text."""
    text = figures if isinstance(figures, bytes) else figures.exposition()[0]
    found = re.findall(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", text.decode())
    return sum(map(float, found))
