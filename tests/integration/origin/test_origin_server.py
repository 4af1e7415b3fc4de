"""An origin server that is asked over real sockets, by its own transport and by a foreign one."""

import asyncio
import contextlib
import gc
import ssl

import httpx
import pytest

from neighbours import PlayedAnswer
from univocal.asgi.reverse_proxy import Origins, ReverseProxy
from univocal.forward.upstream import Upstream
from univocal.http.errors import ConfigurationError, RefusedError
from univocal.origin.failures import TransportError
from univocal.origin.server import OriginServer, Timeouts
from univocal.origin.transport import OriginTransport

OK = b"HTTP/1.1 200 OK\r\n"
HOST = (b"host", b"en.example")


class Pushed:
    """Content that pushes its pieces as far as the sink takes them."""

    def __init__(self, *pieces):
        self.pieces, self.sink, self.detached = list(pieces), None, False

    def when_begun(self, call):
        raise AssertionError("nothing waits for 100 (Continue)")

    def attach(self, sink):
        self.sink = sink
        self.resume()

    def resume(self):
        while self.pieces and not self.detached:
            if not self.sink.write(self.pieces.pop(0)):
                return
        if not self.detached:
            self.sink.finish()

    def detach(self):
        self.detached = True


# These origins have no TLS, and reading every authority's certificate for each test takes long.
NO_AUTHORITY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@pytest.fixture(params=[False, True], ids=["univocal's transport", "httpx's"])
def server_of(request):
    """Make an origin server by either transport: `server_of(origin)`."""

    def make(origin, **settings):
        transport = httpx.AsyncHTTPTransport(verify=NO_AUTHORITY) if request.param else None
        return OriginServer(str(origin.url), transport, **settings)

    return make


@pytest.fixture
async def server(serve, server_of):
    """Serve a script and give the origin server that asks it: `await server(script)`."""
    made = []

    async def start(script, **settings):
        made.append(server_of(await serve(script), **settings))
        return made[-1]

    yield start
    for each in made:
        await each.aclose()


def asked(server, target=b"/", method=b"GET", fields=(), content=None):
    told = PlayedAnswer()
    told.asked = server.ask(method, target, [HOST, *fields], content, told)
    return told


async def echo(peer):
    while True:
        head = await peer.head()
        await peer.answer(head + await peer.content(), b"X-A: b", b"x-a: c")


async def test_the_answer_is_pushed(server):
    origin = await server(echo)
    for _ in range(3):
        told = await asked(origin, b"/a/../%2e?b", b"GeT").end()
        assert told.error is None
        assert told.head[0] == 200
        assert told.head[1][1:] == [(b"x-a", b"b"), (b"x-a", b"c")]
        assert told.content.startswith(b"GeT /a/../%2e?b HTTP/1.1\r\n")
        assert b"\r\nhost: en.example\r\n" in told.content.lower()


@pytest.mark.parametrize(
    "field", [(b"content-length", b"1000000"), (b"transfer-encoding", b"chunked")], ids=["counted", "chunked"]
)
async def test_content_is_pushed_on(server, field):
    async def script(peer):
        await peer.head()
        await peer.answer(await peer.content())

    content = Pushed(*[b"x" * 100_000] * 10)
    told = await asked(await server(script), b"/", b"PUT", [field], content).end()
    assert (told.error, len(told.content), content.pieces) == (None, 1_000_000, [])


async def test_a_response_that_comes_early_wants_no_more_content(serve):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await peer.forever()

    content = Pushed(*[b"x" * 10_000] * 10_000)
    server = OriginServer(str((await serve(script)).url))
    told = await asked(server, b"/", b"PUT", [(b"content-length", b"100000000")], content).end()
    assert (told.head[0], told.error) == (413, None)
    assert content.pieces
    assert content.detached
    await server.aclose()


async def test_who_takes_no_more_gets_no_more(server, eventually):
    async def script(peer):
        await peer.head()
        await peer.send(OK + b"Content-Length: 50000000\r\n\r\n")
        for _ in range(50):
            await peer.send(b"x" * 1_000_000)

    told = asked(await server(script))
    told.takes = False
    await eventually(lambda: told.calls == 1)
    await asyncio.sleep(0.02)
    assert told.calls == 1
    told.asked.resume()
    await eventually(lambda: told.calls == 2)
    await asyncio.sleep(0.02)
    assert told.calls == 2
    told.takes = True
    told.asked.resume()
    await told.end()
    assert (told.error, len(told.content)) == (None, 50_000_000)


async def test_pause_and_resume(server, eventually):
    async def script(peer):
        await peer.head()
        await peer.send(OK + b"\r\nx")
        while True:
            await peer.send(b"x" * 100_000)

    told = asked(await server(script))
    await eventually(lambda: told.calls > 3)
    told.asked.pause()
    await asyncio.sleep(0.02)
    before = told.calls
    await asyncio.sleep(0.02)
    assert told.calls == before
    told.asked.resume()
    await eventually(lambda: told.calls > before)
    told.asked.cancel()


@pytest.mark.parametrize("said", [b"", OK + b"Content-Length: 10\r\n\r\nhello"])
async def test_a_cancelled_request_closes_its_connection(server, eventually, said):
    async def script(peer):
        peers.append(peer.origin)
        await peer.head()
        await peer.send(said)
        await peer.forever()

    peers = []
    told = asked(await server(script))
    await eventually(lambda: peers and peers[0].heads and (told.content or not said))
    told.asked.cancel()
    told.asked.cancel()
    await eventually(lambda: peers[0].open == 0)
    assert not told.over.is_set()


async def test_cancelled_while_connecting(server):
    origin = await server(echo)
    before = len(asyncio.all_tasks())
    told = asked(origin)
    told.asked.pause()
    told.asked.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not told.over.is_set()
    assert len(asyncio.all_tasks()) == before


def says(*pieces):
    async def script(peer):
        await peer.head()
        for piece in pieces:
            await peer.send(piece)

    return script


async def hangs(peer):
    await peer.forever()


FAILURES = {
    "closes before the head": (says(), "origin-bad-response"),
    "closes in the content": (says(OK + b"Content-Length: 10\r\n\r\nhello"), "origin-bad-response"),
    "sends garbage": (says(b"garbage\r\n\r\n"), "origin-bad-response"),
    "sends a status that is none": (
        says(b"HTTP/1.1 600 A\r\nContent-Length: 0\r\n\r\n"),
        "origin-bad-response",
    ),
    "says nothing": (hangs, "origin-timeout"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_failures_have_their_names(server, failure):
    script, reason = FAILURES[failure]
    told = await asked(await server(script, timeouts=Timeouts(read=0.05))).end()
    assert isinstance(told.error, RefusedError)
    assert told.error.reason == reason
    assert isinstance(told.error.__cause__, TransportError)


async def test_nobody_listens(server_of):
    class Nobody:
        url = "http://127.0.0.1:1/"

    told = await asked(server_of(Nobody)).end()
    assert (told.error.reason, told.head) == ("origin-unreachable", None)


@pytest.mark.parametrize(
    ("target", "fields"), [(b"/a b", ()), (b"/", [(b"a", b"b\r\nc: d")]), (b"/", [(b"host", b"b")])]
)
async def test_what_cannot_be_sent_fails_at_once(serve, target, fields):
    server = OriginServer(str((await serve(echo)).url))
    told = asked(server, target, fields=fields)
    told.asked.pause()
    told.asked.resume()
    told.asked.cancel()
    assert told.error.reason == "bad-target"
    await server.aclose()


async def test_a_full_pool_is_overloaded(serve):
    origin = await serve(hangs)
    server = OriginServer(str(origin.url), OriginTransport(max_connections=1), Timeouts(pool=0.02))
    first = asked(server)
    assert (await asked(server).end()).error.reason == "overloaded"
    await server.aclose()
    assert (await first.end()).error.reason == "origin-unreachable"


async def test_interim_responses_are_pushed(serve):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await peer.answer(b"abc")

    server = OriginServer(str((await serve(script)).url))
    told = await asked(server).end()
    assert (told.interims, told.content) == ([(103, [(b"link", b"</a>")])], b"abc")
    await server.aclose()


async def test_a_second_request_needs_no_task(serve):
    server = OriginServer(str((await serve(echo)).url))
    await asked(server).end()
    before = len(asyncio.all_tasks())
    told = asked(server)
    assert len(asyncio.all_tasks()) == before
    await told.end()
    await server.aclose()


async def test_a_foreign_transports_own_error_is_told_as_it_is():
    def broken(request):
        raise LookupError("a test's own")

    told = await asked(OriginServer("http://origin.example", httpx.MockTransport(broken))).end()
    assert isinstance(told.error, LookupError)


async def test_a_foreign_transport_is_told_what_to_send():
    requests = []

    async def answer(request):
        requests.append(request)
        assert await request.aread() == b"hello"
        return httpx.Response(200, headers=[("X-A", "b")], content=b"abc")

    server = OriginServer("http://origin.example:81/base", httpx.MockTransport(answer), Timeouts(read=7))
    told = await asked(
        server, server.mapped(b"/a|b"), b"pUt", [(b"content-length", b"5")], Pushed(b"hello")
    ).end()
    assert (told.error, told.content, told.head[1][0]) == (None, b"abc", (b"x-a", b"b"))
    [request] = requests
    assert request.method == "pUt"
    assert request.extensions["target"] == b"/base/a|b"
    assert request.extensions["timeout"] == {"connect": 5, "read": 7, "write": 60, "pool": 5}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "origin",
        "ftp://a",
        "http://",
        "http://a?b",
        "http://a#b",
        "http://u@a",
        "http://a:0",
        "http://a:65536",
        "http://[:::]",
        "http://999.1.1.1",
        "http://xn--zz",  # no A-label (RFC 5891 §4.2)
    ],
)
def test_urls_that_name_no_origin_server(url):
    with pytest.raises(ConfigurationError, match="an http or https URL"):
        OriginServer(url)


# What an origin server sends where there is no content


EVIL = OK + b"Content-Length: 4\r\n\r\nevil"


@pytest.mark.parametrize("moment", ["in the same write", "at once", "later", "under way"])
@pytest.mark.parametrize(
    ("method", "head"),
    [
        (b"HEAD", OK + b"Content-Length: 42\r\n\r\n"),
        (b"HEAD", OK + b"\r\n"),
        (b"HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 42\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 42\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    ],
)
async def test_content_where_there_is_none_is_never_the_next_response(server, method, head, moment):
    """It comes with the head, behind it, while the connection is idle, or once the next request was sent."""
    second = asyncio.Event()

    async def script(peer):
        while b" /next " in await peer.head():
            await second.wait()
            await peer.answer(b"good")
        if moment == "in the same write":
            await peer.send(head + EVIL)
        else:
            await peer.send(head)
            await second.wait()
            await peer.send(EVIL)
        await peer.head()
        await peer.answer(b"good")

    origin = await server(script)
    for _ in range(3):
        second.clear()
        empty = await asked(origin, b"/empty", method).end()
        assert (empty.error, empty.head[0], empty.content) == (None, int(head[9:12]), b"")
        if moment != "under way":
            second.set()
        if moment == "later":
            await asyncio.sleep(0.01)
        following = asked(origin, b"/next")
        await asyncio.sleep(0.01)
        second.set()
        await following.end()
        assert (following.error, following.head[0], bytes(following.content)) == (None, 200, b"good")


async def test_a_response_with_content_leaves_its_connection_to_the_next(serve, server_of):
    async def script(peer):
        while True:
            await peer.head()
            await peer.answer(b"good")

    listening = await serve(script)
    origin = server_of(listening)
    for _ in range(5):
        await asked(origin).end()
    assert listening.accepted == 1
    await origin.aclose()


# What origin servers of old write


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\nContent-Length: 4\nX: y\n\ngood",
        OK + b"Content-Length: 4\r\nX: y\r\nContent-Length: 4\r\n\r\ngood",
        OK + b"Content-Length: 4, 4\r\nX: y\r\n\r\ngood",
        OK + b"X: y\r\nTransfer-Encoding: chunked\r\n\r\n4 \r\ngood\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n" + OK
        + b"Content-Length: 4\r\nX: y\r\n\r\ngood",
        b"HTTP/1.2 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\ngood",
    ],
)  # fmt: skip
async def test_what_can_be_read_in_one_way_alone_is_taken(server, response):
    async def script(peer):
        await peer.head()
        await peer.send(response)

    told = await asked(await server(script)).end()
    assert (told.error, told.head[0], bytes(told.content)) == (None, 200, b"good")
    assert (b"x", b"y") in told.head[1]
    assert [value for name, value in told.head[1] if name == b"content-length"] in ([], [b"4"])


@pytest.mark.parametrize(
    "response",
    [
        b"RTSP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        OK + b"Transfer-Encoding: foo\r\n\r\nevil",
        OK + b"Transfer-Encoding: identity\r\n\r\nevil",
        OK + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nevil!",
        OK + b"Content-Length: 4, 5\r\n\r\nevil!",
    ],
)
async def test_what_can_be_read_in_two_is_not(server, response):
    async def script(peer):
        await peer.head()
        await peer.send(response)

    told = await asked(await server(script)).end()
    assert (told.head, bytes(told.content)) == (None, b"")
    assert isinstance(told.error, RefusedError)
    assert told.error.reason == "origin-bad-response"


async def test_a_retired_one_finishes_and_keeps_no_connection(server):
    held, closed = asyncio.Event(), []

    async def script(peer):
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                await peer.head()
                if len(closed) == 0 and not held.is_set():
                    await held.wait()
                await peer.answer(b"abc")
        closed.append(peer)

    origin = await server(script)
    begun = asked(origin)
    await asyncio.sleep(0.05)
    origin.retire()
    late = asked(origin)  # of the configuration before
    await asyncio.sleep(0.05)
    assert (begun.head, closed) == (None, [])
    held.set()
    assert [(await each.end()).content for each in (begun, late)] == [b"abc", b"abc"]
    async with asyncio.timeout(30):
        while len(closed) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert origin.connections == 0


async def test_a_replaced_server_counts_while_it_answers_then_closes(serve):
    held = asyncio.Event()

    async def script(peer):
        await peer.head()
        await held.wait()

    before = OriginServer(str((await serve(script)).url))
    origins = Origins({"": ReverseProxy(Upstream.of([before]))})
    begun = asked(before)
    async with asyncio.timeout(30):
        while origins.connections == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for _ in range(3):
        origins.change({"": ReverseProxy("http://127.0.0.1:9")})
        gc.collect()
        assert origins.connections == 1
    await origins.aclose()
    assert origins.connections == 0
    assert isinstance((await begun.end()).error, RefusedError)
