"""Content on its way: streamed while it is stored, bounded in memory, none kept that is not read."""

import asyncio
import random
import tracemalloc

import httpx
import pytest

from tests.asgi.conftest import DISCONNECT, Side, content, respond, scope_of
from univocal import CacheMiddleware, MemoryStore, ReverseProxy, Rules

OPEN = [(b"cache-control", b"max-age=60")]
CHUNK = b"x" * 65536


class Producer:
    """An application that counts how much of its content it has been able to send."""

    def __init__(self, chunks, fields=OPEN):
        self.chunks, self.fields = chunks, fields
        self.sent = self.ended = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": list(self.fields)})
        await self.gate.wait()
        try:
            for _ in range(self.chunks):
                await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
                self.sent += 1
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.ended += 1


class SlowClient:
    """Takes one message for every permit."""

    def __init__(self):
        self.permits = asyncio.Semaphore(0)
        self.octets = 0
        self.complete = False

    async def receive(self):
        await asyncio.Event().wait()

    async def send(self, message):
        await self.permits.acquire()
        self.octets += len(message.get("body", b""))
        self.complete = message["type"] == "http.response.body" and not message.get("more_body")


def small(**settings):
    return MemoryStore(max_bytes=8 << 20, max_object_bytes=1 << 20, **settings)


@pytest.mark.parametrize("fields", [OPEN, [(b"cache-control", b"no-store")]])
async def test_a_slow_reader_holds_back_what_is_not_stored(clock, idle, fields):
    producer, reader = Producer(200, fields), SlowClient()
    door = CacheMiddleware(producer, store=small(), clock=clock)
    waiting = asyncio.create_task(door(scope_of(b"/a", "GET", "en.example", ()), reader.receive, reader.send))
    await idle()
    # A response that is to be stored is held up to max_object_bytes; beyond them, one window is held.
    assert producer.sent * len(CHUNK) <= (1 << 20) + (512 << 10)
    reader.permits = None
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.usefixtures("impatient")
async def test_a_leaving_client_is_noticed_behind_untaken_content():
    left = asyncio.Event()
    app = CacheMiddleware(ReverseProxy("http://origin.example", Silent(left)))
    side = Side(content(b"abc"), DISCONNECT)
    async with asyncio.timeout(10):
        await side.call(app, scope_of(b"/a", "POST", "en.example", [("content-length", "3")]))
        assert await left.wait()
    assert (side.messages, side.sent) == ([], [])


class Silent(httpx.AsyncBaseTransport):
    """An origin server that takes no content and does not answer; `left` is set when no client waits."""

    def __init__(self, left):
        self.left = left

    async def handle_async_request(self, request):
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


@pytest.mark.usefixtures("no_collector")
async def test_content_that_has_been_answered_is_held_once(clock):
    """What stays of it is what is stored, and nothing that no budget counts."""
    reader, mebibyte = SlowClient(), 1 << 20
    reader.permits = asyncio.Semaphore(100)
    door = CacheMiddleware(Varied(mebibyte // 16), clock=clock)
    tracemalloc.start()
    await door(scope_of(b"/a", "GET", "en.example", ()), reader.receive, reader.send)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (reader.octets, reader.complete) == (mebibyte, True)
    assert mebibyte < held < 1.5 * mebibyte


class Varied:
    """An application whose content comes in 16 pieces, each made for it."""

    def __init__(self, size):
        self.size = size

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        for _ in range(16):
            await send({"type": "http.response.body", "body": bytes(self.size), "more_body": True})
        await send({"type": "http.response.body"})


async def test_an_application_may_watch_for_its_client_to_leave(cached):
    """A request that is made for all who wait goes on while one does."""

    async def application(scope, receive, send):
        first = await receive()
        assert first == {"type": "http.request", "body": b"", "more_body": False}
        watching = asyncio.create_task(receive())
        await respond(send, b"%d" % watching.done(), OPEN)
        watching.cancel()

    assert (await cached(app=application)("/a")).body == b"0"


async def test_an_application_waits_for_a_client_of_compressed_content():
    noise = [random.Random(number).randbytes(65536) for number in range(40)]
    fields, sent = [(b"content-type", b"text/plain"), (b"cache-control", b"private")], []

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for piece in noise:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent.append(piece)
        await send({"type": "http.response.body"})

    client = SlowClient()
    cache = CacheMiddleware(application, rules=Rules(compress=["gzip"]))
    call = asyncio.create_task(
        cache(scope_of(b"/a", "GET", "a.example", [("accept-encoding", "gzip")]), client.receive, client.send)
    )
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert len(sent) < 20
    while not client.complete:
        client.permits.release()
        await asyncio.sleep(0)
    await call
    assert len(sent) == len(noise)
