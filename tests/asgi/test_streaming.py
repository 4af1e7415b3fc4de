"""Content on its way: streamed while it is stored, bounded in memory, none kept that nobody reads."""

import asyncio
import zlib

import httpx
import pytest

from tests.asgi.conftest import scope_of
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


async def test_the_first_octets_arrive_before_the_last_are_made(cached, idle):
    gate = asyncio.Event()

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"early", "more_body": True})
        await gate.wait()
        await send({"type": "http.response.body", "body": b"late"})

    messages = []

    async def send(message):
        messages.append(message)

    client = cached(app=application)
    scope = SCOPE | {"headers": [(b"host", b"en.example")]}
    waiting = asyncio.create_task(client.app(scope, SlowClient().receive, send))
    await idle()
    assert [message.get("body") for message in messages] == [None, b"early"]
    gate.set()
    await waiting
    assert b"".join(message.get("body", b"") for message in messages) == b"earlylate"


SCOPE = {
    "type": "http",
    "method": "GET",
    "scheme": "http",
    "path": "/a",
    "raw_path": b"/a",
    "query_string": b"",
    "headers": [(b"host", b"en.example")],
    "client": ("127.0.0.1", 1),
}


@pytest.mark.parametrize("fields", [OPEN, [(b"cache-control", b"no-store")]])
async def test_a_slow_reader_holds_back_what_is_not_stored(clock, idle, fields):
    producer, reader = Producer(200, fields), SlowClient()
    door = CacheMiddleware(producer, store=small(), clock=clock)
    waiting = asyncio.create_task(door(dict(SCOPE), reader.receive, reader.send))
    await idle()
    # What is to be stored is held up to max_object_bytes; past that, a window.
    assert producer.sent * len(CHUNK) <= (1 << 20) + (512 << 10)
    reader.permits = None
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_every_interim_response_is_passed_on_in_order(cached, idle):
    gates = [asyncio.Event(), asyncio.Event()]

    async def application(scope, receive, send):
        for number, gate in enumerate(gates):
            link = [(b"link", b"</%d.css>; rel=preload" % number)]
            await send({"type": "http.response.informational", "status": 103, "headers": link})
            await gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b""})

    waiting = asyncio.create_task(cached(app=application)("/a"))
    for gate in gates:
        await idle()
        gate.set()
    answer = await waiting
    assert [(status, fields[0][1][:3]) for status, fields in answer.interims] == [
        (103, b"</0"),
        (103, b"</1"),
    ]


async def test_interim_responses_stay_without_a_way_to_send(cached):
    async def application(scope, receive, send):
        assert "http.response.informational" not in scope["extensions"]
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b""})

    assert (await cached(app=application)("/a", extensions={})).status == 200


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("size", [0, 5, 1_000_000])
async def test_content_waits_for_an_application_that_takes_its_time(cached, idle, size):
    """After a while the client is watched, which is to receive; what is received so is not lost."""
    go, got = asyncio.Event(), []

    async def application(scope, receive, send):
        await go.wait()
        more = True
        while more:
            message = await receive()
            got.append(message["body"])
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    pieces = [b"x" * (size // 5)] * 5
    asking = asyncio.create_task(cached(app=application)("/a", "POST", body=pieces))
    await idle()
    go.set()
    assert (await asking).status == 200
    assert b"".join(got) == b"".join(pieces)


@pytest.mark.usefixtures("impatient")
async def test_a_leaving_client_is_noticed_behind_untaken_content():
    left = asyncio.Event()
    app = CacheMiddleware(ReverseProxy("http://origin.example", Silent(left)))
    parts = [{"type": "http.request", "body": b"abc", "more_body": False}, {"type": "http.disconnect"}]

    async def receive():
        return parts.pop(0)

    async def send(message):
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "scheme": "http", "path": "/a", "query_string": b""}
    async with asyncio.timeout(10):
        await app(scope | {"headers": [(b"host", b"en.example"), (b"content-length", b"3")]}, receive, send)
        assert await left.wait()
    assert parts == []


class Silent(httpx.AsyncBaseTransport):
    """An origin server that takes no content and does not answer; `left` is set when nobody waits."""

    def __init__(self, left):
        self.left = left

    async def handle_async_request(self, request):
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()


async def test_an_application_may_watch_for_its_client_to_leave(cached):
    """Nobody leaves a request that is made on behalf of all who wait."""

    async def application(scope, receive, send):
        first = await receive()
        assert first == {"type": "http.request", "body": b"", "more_body": False}
        watching = asyncio.create_task(receive())
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"%d" % watching.done()})
        watching.cancel()

    assert (await cached(app=application)("/a")).body == b"0"


@pytest.mark.parametrize("size", [1_000, 200_000])
async def test_a_client_that_leaves_is_heard_behind_much_content(size):
    heard, begun = [], asyncio.Event()

    async def application(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": OPEN})
        await send({"type": "http.response.body", "body": b"data: 1", "more_body": True})
        begun.set()
        heard.append((await receive())["type"])

    arrived: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    arrived.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": False})

    async def send(message):
        pass

    scope = {"type": "http", "method": "POST", "scheme": "http", "path": "/a", "query_string": b""}
    fields = [(b"host", b"en.example"), (b"content-length", b"%d" % size)]
    async with asyncio.timeout(10):
        asking = asyncio.create_task(
            CacheMiddleware(application)(scope | {"headers": fields}, arrived.get, send)
        )
        await begun.wait()
        arrived.put_nowait({"type": "http.disconnect"})
        await asking
    assert heard == ["http.disconnect"]


async def test_a_background_fetch_that_is_too_large_leaves_nothing_behind(cached, application, clock, idle):
    application.fields = [(b"cache-control", b"max-age=60, stale-while-revalidate=60")]
    client = cached(store=MemoryStore(max_bytes=100_000, max_object_bytes=5000))
    await client("/a")
    clock.now += 70
    application.body = b"x" * 50_000
    await client("/a")
    await idle()
    assert client.app.store.stats.reserved == 0
    assert application.count == 2


class Reader:
    """A client that undoes gzip as messages come."""

    def __init__(self):
        self._decoder = zlib.decompressobj(31)
        self.content, self.complete = b"", False

    async def receive(self):
        await asyncio.Event().wait()

    async def send(self, message):
        await asyncio.sleep(0)
        self.content += self._decoder.decompress(message.get("body", b""))
        self.complete = message["type"] == "http.response.body" and not message.get("more_body")


@pytest.mark.parametrize("size", [100, 3_000_000])
async def test_a_compressed_stream_waits_for_nothing_behind_it(size):
    gate, fields = asyncio.Event(), [(b"content-type", b"text/plain"), (b"cache-control", b"private")]
    pieces = [b"%d " % number * (size // 2) for number in range(3)]

    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await gate.wait()
            gate.clear()
        await send({"type": "http.response.body"})
        await gate.wait()  # as a task in the background does

    async def has(octets, complete=False):
        while (len(client.content), client.complete) != (octets, complete):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        gate.set()

    client = Reader()
    cache = CacheMiddleware(application, rules=Rules(compress=["gzip"]))
    async with asyncio.timeout(20):
        call = asyncio.create_task(
            cache(
                scope_of(b"/a", "GET", "a.example", [("accept-encoding", "gzip")]),
                client.receive,
                client.send,
            )
        )
        for number in range(1, 4):
            await has(sum(map(len, pieces[:number])))
        await has(sum(map(len, pieces)), complete=True)
        await call
    assert client.content == b"".join(pieces)


async def test_an_application_waits_for_a_client_of_compressed_content(idle):
    noise = [bytes(hash((number, each)) & 255 for each in range(65536)) for number in range(40)]
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
