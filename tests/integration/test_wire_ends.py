"""Requests end when their clients have left, and each that is answered by us is answered with a problem."""

import asyncio
import contextlib
import json

import pytest

from examples import LONG, cases
from support import living
from tests.integration.conftest import direct
from tests.ports import free_port
from univocal import CacheMiddleware, MemoryStore, ReverseProxy
from univocal.cache.rules import Rules
from univocal.engine.exchange import Exchange
from univocal.engine.flight import Flight
from univocal.engine.recording import Recording
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.origin.client_library import OriginTransport

MIB = 1 << 20
SWR = b'Cache-Control: max-age=1, stale-while-revalidate=600\r\nETag: "1"\r\n'


class Endless:
    """Answers the first request for a path with a little, each other one without end, and counts."""

    def __init__(self, control=SWR):
        self.control = control
        self.requests = []
        self.sent = 0
        self.small = True  # the next answer
        self.left = asyncio.Event()  # the proxy has closed the connection of an endless answer

    async def __call__(self, reader, writer):
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                if self.small:
                    answer = b"small %d" % len(self.requests)
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b"
                    writer.write(head % (len(answer), self.control, answer))
                    continue
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%b\r\n" % self.control)
                try:
                    while self.sent < 512 * MIB:
                        writer.write(b"10000\r\n%b\r\n" % bytes(65536))
                        await writer.drain()
                        self.sent += 65536
                except OSError:
                    self.left.set()
        writer.close()


@pytest.fixture(params=["direct", "asgi"])
async def stack(request, serve, clock):
    """A proxy before an `Endless` origin: `front, origin = await stack(control)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(control=SWR):
            origin = Endless(control)
            listening = await asyncio.start_server(origin, "127.0.0.1", 0)
            stack.callback(listening.close)
            port = listening.sockets[0].getsockname()[1]
            proxy = ReverseProxy(f"http://127.0.0.1:{port}", OriginTransport())
            stack.push_async_callback(proxy.aclose)
            store = MemoryStore(max_bytes=16 * MIB, max_object_bytes=MIB)
            app = CacheMiddleware(proxy, store=store, clock=clock)
            settings = {"http": direct(app, proxy)} if request.param == "direct" else {}
            return await serve(app, **settings), origin

        yield start


async def ended(origin):
    async with asyncio.timeout(20):
        await origin.left.wait()
    assert origin.sent < 64 * MIB  # what is stored at most, and what sockets hold


async def test_a_refresh_ends_once_what_comes_cannot_be_stored(stack, clock):
    front, origin = await stack()
    await front.ask("/a")
    clock.now += 5
    origin.small = False
    stale = await front.ask("/a")
    assert stale.content == b"small 1"
    await ended(origin)
    origin.small = True
    assert (await front.ask("/a")).content == b"small 3"  # the refresh contradicted the first one
    assert len(origin.requests) == 3


async def test_a_refresh_brings_what_is_new(stack, clock):
    front, _ = await stack()
    await front.ask("/a")
    clock.now += 5
    assert (await front.ask("/a")).content == b"small 1"
    async with asyncio.timeout(10):
        while (await front.ask("/a")).content != b"small 2":
            pass


async def test_a_fetch_ends_whose_client_has_the_content_already(stack):
    front, origin = await stack()
    origin.small = False
    answer = await front.ask("/a", 'If-None-Match: "1"')
    assert answer.status == 304
    await ended(origin)


async def test_a_response_answered_with_304_is_stored_for_others(stack):
    front, origin = await stack()
    assert (await front.ask("/a", 'If-None-Match: "1"')).status == 304
    assert (await front.ask("/a")).content == b"small 1"
    assert len(origin.requests) == 1


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("control", [SWR, b"Cache-Control: no-store\r\n"], ids=["stored", "no-store"])
async def test_idle_connections_keep_nothing_of_what_they_carried(stack, control):
    kinds = Exchange, Flight, Recording
    front, origin = await stack(control)
    others = living(*kinds)
    for number in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: en.example\r\n\r\n" % number)
        assert (await reader.readuntil(b"small %d" % (number + 1))).startswith(b"HTTP/1.1 200")
        for _ in range(500):  # five seconds at most
            left = [each for each in living(*kinds) if each not in others]
            if not left:
                break
            await asyncio.sleep(0.01)
        writer.close()
        assert left == []
    assert len(origin.requests) == 3


@pytest.mark.parametrize("fields", ["", "Cache-Control: no-cache"], ids=["stored", "asked"])
@cases("method, content", ("GET", b""), ("GET", b"body"), ("POST", b"body"), ("DELETE", b""))
@pytest.mark.usefixtures("impatient")  # with content that streams, the processor is busy until it is noticed
async def test_a_client_that_leaves_is_noticed_every_time(stack, method, content, fields):
    front, origin = await stack(b"")
    origin.small = False
    for _ in range(20 if LONG else 7):
        origin.sent = 0
        origin.left.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(f"{method} /a HTTP/1.1\r\nHost: en.example\r\n{fields}".rstrip().encode())
        await asyncio.sleep(0)
        writer.write(b"\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        assert b" 200 " in await reader.readline()
        writer.transport.abort()
        async with asyncio.timeout(20):
            await origin.left.wait()


# Content that ends early


@cases(
    "raw",
    b"Content-Length: 10\r\n\r\nabcdefg",
    b"Content-Length: 10\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nab",
    b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
)
async def test_an_incomplete_response_is_neither_whole_nor_stored(front, origin, raw):
    proxy = await front()
    origin.closing = True
    origin.answer = lambda request: b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n" + raw
    with contextlib.suppress(asyncio.IncompleteReadError):  # nothing at all: not whole either
        answer = await proxy.ask("/a")
        assert answer.status == 502 or not answer.complete
    with contextlib.suppress(asyncio.IncompleteReadError):
        await proxy.ask("/a")
    assert len(origin.requests) >= 2
    assert proxy.app.store.stats.responses == 0


# An answer that comes before all of the request's content


@pytest.mark.parametrize("fields", ["", "Connection: close\r\n"], ids=["kept", "closed"])
@pytest.mark.parametrize("length", [2, MIB])
async def test_an_early_answer_reaches_a_client_that_sends_all_first(serve, fields, length):
    async def refusing(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%b" % (length, bytes(length)))
        while await reader.read(65536):
            pass
        writer.close()

    listening = await asyncio.start_server(refusing, "127.0.0.1", 0)
    proxy = ReverseProxy(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    front = await serve(proxy, http="univocal.protocol:ExactProtocol")
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=2 * MIB)
    writer.transport.set_write_buffer_limits(0)
    size = 32 * MIB
    writer.write(f"POST /a HTTP/1.1\r\nHost: en.example\r\n{fields}Content-Length: {size}\r\n\r\n".encode())
    async with asyncio.timeout(20):
        for _ in range(size // MIB):
            writer.write(bytes(MIB))
            await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 ")
        assert await reader.readexactly(length) == bytes(length)
    writer.close()
    await proxy.aclose()
    listening.close()


# Answers of our own: a page for a browser, with nothing of its request


BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PROGRAM = "Accept: */*"


@pytest.fixture(params=["direct", "asgi"])
async def proxy(request, serve):
    """A proxy whose origin server is not there."""
    forwarding = ReverseProxy(f"http://127.0.0.1:{free_port()}")
    app = CacheMiddleware(forwarding, runtime=Runtime.everywhere(builtin_profiles()["mediawiki"], Rules()))
    yield await serve(app, **({"http": direct(app, forwarding)} if request.param == "direct" else {}))
    await forwarding.aclose()


ERRORS = [("/<script>alert(1)</script>%00", 400, "control-character"), ("/away", 502, "origin-unreachable")]


@pytest.mark.parametrize(("target", "status", "reason"), ERRORS)
async def test_a_browser_gets_a_page_and_a_program_problem_details(proxy, target, status, reason):
    page = await proxy.ask(target, BROWSER)
    assert (page.status, page["content-type"]) == (status, "text/html; charset=utf-8")
    assert (page["vary"], page["cache-control"]) == ("Accept", "no-store")
    assert page["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert reason.encode() in page.content
    assert b"script" not in page.content
    assert b"alert" not in page.content
    details = await proxy.ask(target, PROGRAM)
    assert (details.status, details["content-type"]) == (status, "application/problem+json")
    assert details["vary"] == "Accept"
    assert json.loads(details.content)["reason"] == reason


async def test_a_head_gets_the_gets_answer_without_content(proxy):
    page, head = [await proxy.ask("/%00", BROWSER, method=method) for method in ("GET", "HEAD")]
    assert head["content-length"] == page["content-length"] == str(len(page.content))
    assert head.content == b""


async def nothing(scope, receive, send):
    """An application that answers nothing."""


class Slow:
    """An application that takes its time."""

    def __init__(self):
        self.calls = 0
        self.called_twice = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.calls += 1
        if self.calls == 2:
            self.called_twice.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("http", ["univocal.protocol:ExactProtocol", "h11", "httptools"])
async def test_a_silent_application_is_reported_as_a_problem(serve, http):
    front = await serve(CacheMiddleware(nothing), http=http)
    for method in ("GET", "POST"):
        answer = await front.ask("/a", method=method)
        assert (answer.status, answer["content-type"]) == (502, "application/problem+json")
        assert json.loads(answer.content)["reason"] == "origin-bad-response"


@pytest.mark.parametrize("http", ["univocal.protocol:ExactProtocol", "h11", "httptools"])
async def test_requests_cut_by_a_shutdown_end_as_without_a_cache(serve, http):
    ends = []
    for cached in (True, False):
        slow = Slow()
        front = await serve(CacheMiddleware(slow) if cached else slow, http=http, grace=0.2)
        asked = [asyncio.create_task(front.ask("/a")), asyncio.create_task(front.ask("/b", method="POST"))]
        await slow.called_twice.wait()
        front.server.ending.set()
        ends.append([(each.status, each["content-type"]) for each in await asyncio.gather(*asked)])
    assert ends[0] == ends[1] == [(500, "text/plain; charset=utf-8")] * 2
