"""An origin server that is asked over real sockets, by its own transport and by a foreign one."""

import asyncio
import contextlib
import gc

import httpx
import pytest

from examples import cases
from neighbours import PlayedAnswer
from tests.integration.conftest import NO_AUTHORITY
from univocal.asgi.reverse_proxy import Origins, ReverseProxy
from univocal.forward.upstream import Upstream
from univocal.http.errors import RefusedError
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin.servers import OriginServer

HOST = (b"host", b"en.example")


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
    told.asked = server.ask(
        OriginRequest(method, target, [HOST, *fields], Received(method, target), content), told
    )
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


@cases("target, fields", (b"/a b", ()), (b"/", [(b"a", b"b\r\nc: d")]), (b"/", [(b"host", b"b")]))
async def test_an_invalid_request_fails_at_once(serve, target, fields):
    server = OriginServer(str((await serve(echo)).url))
    told = asked(server, target, fields=fields)
    told.asked.pause()
    told.asked.resume()
    told.asked.cancel()
    assert told.error.reason == "bad-target"
    await server.aclose()


# Old origin servers


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
