"""A connection that is closed is freed at once: what waits for the garbage collector may wait for hours."""

import asyncio
from collections import deque

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from support import living
from tests.asgi.conftest import respond
from tests.server.conftest import COMPRESSING, origin_of_pages
from univocal.engine.exchange import Engine
from univocal.judge.admission import Gate
from univocal.server.asgi_service import ExactProtocol
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService, Uvicorn
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of

pytestmark = pytest.mark.usefixtures("all_frozen")

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HOST = b" HTTP/1.1\r\nHost: a.example\r\n"

# Clients send these, read as many octets as are named (all, if none), and leave.
VISITS = {
    "hit": (b"GET /fresh" + HOST + b"\r\n") * 3,
    "miss": b"GET /no-store" + HOST + b"Connection: close\r\n\r\n",
    "content": b"POST /no-store" + HOST + b"Content-Length: 3\r\n\r\nabc",
    "refused": b"GET /%zz%00" + HOST + b"\r\n",
    "no request": b"\x00\x01\r\n\r\n",
    "nothing": b"",
    "half a head": b"GET /fresh HTT",
    "half of its content": b"POST /no-store" + HOST + b"Content-Length: 30\r\n\r\nabc",
    "not waited for": b"GET /held" + HOST + b"\r\n",
    "compressed": b"GET /text" + HOST + b"Accept-Encoding: gzip\r\nConnection: close\r\n\r\n",
    "one behind another": (b"GET /no-store" + HOST + b"\r\n") * 2,
}


async def application(scope, receive, send):
    if scope["path"] == "/held":
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    await receive()
    await respond(send, b"ok", [(b"content-length", b"2")])


def maker(door):
    """Makes protocols of one door."""
    config, state = uvicorn.Config(application, lifespan="off", ws="none", log_config=None), ServerState()
    config.load()
    if door == "exact":
        return lambda: ExactProtocol(config, state, {})
    engine = Engine(Gate(COMPRESSING, tiers_of(MemoryStore())), (lambda _outcome: None,))
    origin = origin_of_pages()
    origin.asked = deque(maxlen=0)  # it keeps nothing of what it was asked
    listener = Listener(EngineService(engine, origin))
    return lambda: Http1Connection(listener, Uvicorn(config, state, {}, asyncio.get_running_loop()))


async def visit(port, sent):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    if b"/held" not in sent and sent.endswith(b"\r\n\r\n"):
        await reader.read(1)
    writer.close()
    await writer.wait_closed()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("sent", VISITS.values(), ids=list(VISITS))
@pytest.mark.parametrize("door", ["exact", "direct"])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_closed_connection_leaves_nothing_to_the_collector(loop, door, sent):
    others, made = living(Http1Connection), []

    async def served():
        make = maker(door)

        def protocol():
            made.append(door)
            return make()

        def left():
            return [each for each in living(Http1Connection) if each not in others]

        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        for _ in range(2):
            await visit(server.sockets[0].getsockname()[1], sent)
        for _ in range(500):  # five seconds at most
            if len(made) == 2 and not left():
                break
            await asyncio.sleep(0.01)
        server.close()
        return left()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(served()) == []
    assert made == [door] * 2
