"""WebSockets by the ASGI door: uvicorn's own implementations, with the library websockets at both ends."""

import asyncio
import contextlib

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve as serve_websockets
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.utils import accept_key

from examples import cases
from support import Transport
from tests.ports import free_port
from univocal import CacheMiddleware, ReverseProxy
from univocal.http.intermediary import Switched
from univocal.origin.websocket import HIGH_WATER, OriginSocket, WebSocketClose

IMPLEMENTATIONS = ["websockets-sansio", "wsproto"]
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request):
    return request.param


class Application:
    """An origin server: it sends back what it is sent, and closes as it is told."""

    def __init__(self):
        self.connections = []
        self.closed = asyncio.Queue()

    async def __call__(self, connection):
        self.connections.append(connection)
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                if isinstance(message, str) and message.startswith("close "):
                    await connection.close(int(message.split()[1]), "as you like")
                elif message == "drop":
                    connection.transport.abort()
                elif message == "much":
                    for number in range(500):
                        await connection.send(bytes([number % 256]) * 10_000)
                else:
                    await connection.send(message)
        await connection.wait_closed()
        self.closed.put_nowait((connection.close_code, connection.close_reason))

    def judge(self, connection, request):
        return connection.respond(401, "not you\n") if request.path.startswith("/private") else None


@pytest.fixture
async def application():
    made = Application()
    async with serve_websockets(
        made, "127.0.0.1", 0, process_request=made.judge, subprotocols=["chat", "better"],
        select_subprotocol=lambda _, offered: offered[-1] if offered else None,
    ) as server:  # fmt: skip
        made.port = next(iter(server.sockets)).getsockname()[1]
        yield made


@pytest.fixture
async def front(serve, implementation):
    """A proxy in front: `front(port)`; with `cache=False` without the middleware."""
    proxies = []

    async def start(port, *, cache=True, **settings):
        proxy = ReverseProxy(f"http://127.0.0.1:{port}")
        proxies.append(proxy)
        return await serve(CacheMiddleware(proxy) if cache else proxy, ws=implementation, **settings)

    yield start
    for proxy in proxies:
        await proxy.aclose()


def at(front, path="/chat", **settings):
    return connect(f"ws://127.0.0.1:{front.port}{path}", proxy=None, open_timeout=20, **settings)


@pytest.mark.parametrize("http", ["univocal.protocol:ExactProtocol", "httptools"])
async def test_messages_pass_both_ways(front, application, http):
    async with at(await front(application.port, http=http)) as socket:
        for message in ("text", b"\0\xff", "ü" * 100_000, "", b""):
            await socket.send(message)
            assert await socket.recv() == message
        await socket.send(["in ", "pieces"])
        assert await socket.recv() == "in pieces"


async def test_the_application_sees_one_spelling_and_the_clients_fields(front, application):
    here = await front(application.port)
    fields = {"Cookie": "a=b", "Authorization": "Basic eA==", "X-Forwarded-For": "192.0.2.1"}
    async with at(here, "/a%7Eb?c", additional_headers=fields, origin="https://en.example"):
        (behind,) = application.connections
        assert behind.request.path == "/a~b?c"
        seen = behind.request.headers
        assert (seen["Cookie"], seen["Authorization"]) == ("a=b", "Basic eA==")
        assert (seen["Origin"], seen["X-Forwarded-For"]) == ("https://en.example", "127.0.0.1")
        assert seen.get_all("Host") == [f"127.0.0.1:{here.port}"]
        assert len(seen.get_all("Sec-WebSocket-Key")) == 1
        assert "Sec-WebSocket-Extensions" not in seen


async def test_the_application_chooses_the_subprotocol(front, application):
    here = await front(application.port)
    async with at(here, subprotocols=["chat", "better"]) as socket:
        assert socket.subprotocol == "better"
    async with at(here) as socket:
        assert socket.subprotocol is None


@cases(
    "told, expected",
    ("close 1000", (1000, "as you like")),
    ("close 4711", (4711, "as you like")),
    ("drop", (1014, "")),
)
async def test_the_applications_close_reaches_the_client(front, application, told, expected):
    async with at(await front(application.port)) as socket:
        await socket.send(told)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert (socket.close_code, socket.close_reason) == expected


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (3999, "had enough")])
async def test_the_clients_close_reaches_the_application(front, application, code, reason):
    async with at(await front(application.port)) as socket:
        await socket.close(code, reason)
    async with asyncio.timeout(20):
        assert await application.closed.get() == (code, reason)


async def test_a_client_that_is_gone_is_away(front, application):
    async with at(await front(application.port)) as socket:
        socket.transport.abort()
    async with asyncio.timeout(20):
        code, _ = await application.closed.get()
    assert code in {1001, 1005}


async def test_a_slow_reader_gets_every_message(front, application):
    async with at(await front(application.port), max_queue=1) as socket:
        await socket.send("much")
        await asyncio.sleep(0.3)
        for number in range(500):
            assert await socket.recv() == bytes([number % 256]) * 10_000


@pytest.mark.parametrize("cache", [True, False])
async def test_a_handshake_that_the_application_refuses(front, application, cache):
    here = await front(application.port, cache=cache)
    with pytest.raises(InvalidStatus) as refused:
        await at(here, "/private")
    assert refused.value.response.status_code == 401
    assert refused.value.response.body == b"not you\n"


async def test_a_handshake_that_the_middleware_refuses(front, application):
    with pytest.raises(InvalidStatus) as refused:
        await at(await front(application.port), "/%00")
    assert refused.value.response.status_code == 400
    assert application.connections == []


async def test_an_application_that_is_not_there(front):
    with pytest.raises(InvalidStatus) as refused:
        await at(await front(free_port()))
    assert refused.value.response.status_code == 502


@pytest.mark.parametrize("answer", [SWITCHED + b"\r\n", b"nonsense\r\n\r\n"], ids=["no key", "no response"])
async def test_an_answer_that_opens_no_websocket(front, origin, answer):
    origin.answer = lambda request: answer
    with pytest.raises(InvalidStatus) as refused:
        await at(await front(origin.port))
    assert refused.value.response.status_code == 502


async def test_other_requests_pass_as_ever(front, origin):
    here = await front(origin.port)
    assert (await here.ask("/a")).content == b"answer 1"
    assert (await here.ask("/a")).content == b"answer 1"


async def test_http_1_0_opens_no_websocket(front, origin):
    here = await front(origin.port, http="univocal.protocol:ExactProtocol")
    handshake = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n"
    (answer,) = await here.talk(b"GET /a HTTP/1.0\r\nHost: en.example\r\n" + handshake + b"\r\n")
    assert (answer.status, answer.content) == (200, b"answer 1")


class Scripted:
    """An ASGI server that has these messages, and keeps what it is sent."""

    def __init__(self, *messages, extensions=()):
        self.scope = {
            "type": "websocket", "scheme": "ws", "path": "/a", "raw_path": b"/a", "query_string": b"",
            "headers": [(b"host", b"en.example")], "subprotocols": [], "client": ("192.0.2.1", 1),
            "extensions": {each: {} for each in extensions},
        }  # fmt: skip
        self._messages = [{"type": "websocket.connect"}, *messages]
        self.sent = []

    async def receive(self):
        if self._messages:
            return self._messages.pop(0)
        return await asyncio.get_running_loop().create_future()

    async def send(self, message):
        self.sent.append(message)


async def test_without_the_extension_a_refusal_is_the_servers(application):
    server = Scripted()
    server.scope |= {"path": "/private", "raw_path": b"/private"}
    proxy = ReverseProxy(f"http://127.0.0.1:{application.port}")
    await proxy(server.scope, server.receive, server.send)
    await proxy.aclose()
    assert server.sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_client_that_leaves_early_ends_the_handshake(origin):
    origin.gate = asyncio.Event()
    server = Scripted({"type": "websocket.disconnect", "code": 1006})
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}")
    await proxy(server.scope, server.receive, server.send)
    await proxy.aclose()
    assert server.sent == []


async def test_a_leaving_client_is_heard_though_the_origin_stalls():
    gone = asyncio.Event()

    async def silent(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(line[19:] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key:"))
        writer.transport.pause_reading()
        writer.write(SWITCHED + b"Sec-WebSocket-Accept: %b\r\n\r\n" % accept_key(key).encode())
        await gone.wait()
        writer.transport.abort()

    messages = [
        {"type": "websocket.receive", "bytes": bytes(15 << 20)},  # more than the kernel keeps
        {"type": "websocket.receive", "text": "one that waits"},
        {"type": "websocket.disconnect", "code": 1001},
    ]
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as origin, asyncio.timeout(50):
        proxy = ReverseProxy(f"http://127.0.0.1:{origin.sockets[0].getsockname()[1]}")
        sent, accepted, connects = [], asyncio.Event(), Scripted()

        async def receive():
            if accepted.is_set():
                return messages.pop(0)
            first = asyncio.ensure_future(connects.receive())
            await asyncio.wait((first, asyncio.ensure_future(accepted.wait())), return_when="FIRST_COMPLETED")
            return first.result() if first.done() else messages.pop(0)

        async def send(message):
            sent.append(message["type"])
            accepted.set()

        await proxy(connects.scope, receive, send)
        assert (sent, messages) == (["websocket.accept"], [])
        gone.set()
        await proxy.aclose()


async def test_by_another_transport_there_are_none():
    server = Scripted()
    proxy = ReverseProxy("http://127.0.0.1:9", httpx.AsyncHTTPTransport())
    await proxy(server.scope, server.receive, server.send)
    await proxy.aclose()
    assert server.sent == [{"type": "websocket.close", "code": 1011}]


# The connection behind a 101, played


class PlayedLine:
    def __init__(self):
        self.transport = Transport()

    def switch(self, end):
        return Switched(self.transport)

    def connection_lost(self, exc):
        pass


@pytest.fixture
def line():
    return PlayedLine()


@pytest.fixture
async def socket(line):
    made = OriginSocket(line)
    yield made
    made.connection_lost(None)


async def test_unreceived_messages_pause_the_reading(socket, line):
    for _ in range(2 * HIGH_WATER // 4096):
        socket.data_received(b"\x82\x7e\x10\x00" + b"x" * 4096)
    assert line.transport.paused
    while line.transport.paused:
        assert await socket.receive() == b"x" * 4096


async def test_empty_messages_count(socket, line):
    for _ in range(2000):
        socket.data_received(b"\x81\x00")
    assert line.transport.paused


@cases(
    "octets, end",
    (b"\x88\x02\x0f\xa1", WebSocketClose(4001)),
    (b"\x88\x00", WebSocketClose(1005)),
    (b"\x81\x81abcdx", WebSocketClose(1006)),  # masked, by a server
    (b"\x81\x01\xff", WebSocketClose(1006)),  # no UTF-8
    (b"\x82\x7f\0\0\0\0\x01\0\0\x01", WebSocketClose(1009)),  # more than 16 MiB
    (b"\x83\x00", WebSocketClose(1006)),  # an opcode that is none,
)
async def test_the_end_is_told_for_ever(socket, octets, end):
    socket.data_received(b"\x81\x01a" + octets)
    assert await socket.receive() == "a"
    assert await socket.receive() == end
    assert await socket.receive() == end
    await socket.send("to nobody")


async def test_a_ping_is_answered_here(socket, line):
    socket.data_received(b"\x89\x01a")
    assert line.transport.sent[:2] == b"\x8a\x81"


async def test_sending_waits_for_who_takes_no_more(socket, line):
    socket.pause_writing()
    sending = asyncio.create_task(socket.send("a"))
    await asyncio.sleep(0)
    assert line.transport.sent == b""
    socket.resume_writing()
    await sending
    assert line.transport.sent[:2] == b"\x81\x81"


async def test_sending_does_not_wait_for_who_is_gone(socket):
    socket.pause_writing()
    sending = asyncio.create_task(socket.send("a"))
    await asyncio.sleep(0)
    assert not sending.done()
    socket.connection_lost(None)
    async with asyncio.timeout(30):
        await sending
