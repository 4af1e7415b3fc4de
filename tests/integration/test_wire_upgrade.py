"""A handshake by the direct door, octet for octet: who gets a tunnel, what passes through it, how it ends."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.integration.conftest import direct
from univocal import CacheMiddleware, ReverseProxy, Rules, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits
from univocal.origin.client_library import OriginTransport
from univocal.server.clients import Clients, ConnectionLimits

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 §1.3
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
SWITCHED = (
    f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
).encode()
OK = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok"


def handshake(target="/chat", *lines):
    said = lines or (*UPGRADE, "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {KEY}")
    head = [f"GET {target} HTTP/1.1", "Host: en.example", *said, "", ""]
    return "\r\n".join(head).encode()


HANDSHAKE = handshake()


@dataclass
class Peer:
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self):
        async with asyncio.timeout(20):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def message(self):
        """A response with a Content-Length."""
        head = await self.head()
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        return head, await self.exactly(length)

    async def exactly(self, count):
        async with asyncio.timeout(20):
            return await self.reader.readexactly(count)

    async def rest(self):
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
            return b""

    async def send(self, octets):
        self.writer.write(octets)
        await self.writer.drain()


@dataclass
class Stack:
    """A proxy on a port of its own, before an origin server whose connections the test plays."""

    port: int
    engine: Any
    server: Any
    clients: Clients
    upstream: Any
    arrived: asyncio.Queue[Peer]
    outcomes: list[Any] = field(default_factory=list)
    opened: list[asyncio.StreamWriter] = field(default_factory=list)

    async def client(self, octets=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.opened.append(writer)
        writer.write(octets)
        return Peer(reader, writer)

    async def origin(self):
        async with asyncio.timeout(20):
            return await self.arrived.get()

    async def asked(self, octets=HANDSHAKE):
        """A client, and the origin server that has read the head of its request."""
        client = await self.client(octets)
        origin = await self.origin()
        await origin.head()
        return client, origin

    async def tunnel(self):
        """The client and the origin server of a WebSocket that is open."""
        client, origin = await self.asked()
        await origin.send(SWITCHED)
        assert (await client.head()).startswith(b"HTTP/1.1 101 ")
        return client, origin

    async def told(self, number=1):
        """The last of so many outcomes."""
        async with asyncio.timeout(20):
            while len(self.outcomes) < number:  # noqa: ASYNC110 - a listener is a plain call
                await asyncio.sleep(0.01)
        assert len(self.outcomes) == number
        return self.outcomes[-1]


@pytest.fixture
async def stack(serve):
    async with contextlib.AsyncExitStack() as stack:

        async def start(rules=None, *, upgrades=(b"websocket",), **limits):
            arrived = asyncio.Queue()
            outcomes = []

            async def accept(reader, writer):
                stack.callback(writer.close)
                await arrived.put(Peer(reader, writer))

            listener = await asyncio.start_server(accept, "127.0.0.1", 0)
            stack.callback(listener.close)
            port = listener.sockets[0].getsockname()[1]
            proxy = ReverseProxy(f"http://127.0.0.1:{port}", OriginTransport(max_connections=10))
            stack.push_async_callback(proxy.aclose)
            profile = builtin_profiles()["mediawiki"]
            runtime = Runtime.everywhere(profile, rules or Rules(), limits=Limits(**limits))
            runtime = replace(runtime, upgrades=frozenset(upgrades))
            app = CacheMiddleware(proxy, runtime=runtime, listeners=[outcomes.append])
            clients, upstream = Clients(), proxy.upstream
            front = await serve(app, http=direct(app, proxy, clients=clients))
            made = Stack(front.port, app.engine, front.server, clients, upstream, arrived, outcomes)
            stack.callback(lambda: [writer.close() for writer in made.opened])
            return made

        yield start


@pytest.fixture
async def here(stack):
    return await stack()


# The handshake


async def test_a_handshake_is_canonicalized_and_answered_by_the_origin(here):
    fields = (
        *(*UPGRADE, f"Sec-WebSocket-Key: {KEY}", "Origin: https://en.example", "Cookie: a=b"),
        *("Authorization: Basic eA==", "Sec-WebSocket-Protocol: chat", "X-Forwarded-For: 192.0.2.1"),
    )
    client = await here.client(handshake("/wiki/A%28b%29?c", *fields))
    origin = await here.origin()
    head = await origin.head()
    assert head.startswith(b"GET /wiki/A(b)?c HTTP/1.1\r\nhost: en.example\r\n")
    lines = head.split(b"\r\n")
    for expected in (b"connection: Upgrade", b"upgrade: websocket", b"origin: https://en.example",
                     b"cookie: a=b", b"authorization: Basic eA==", b"sec-websocket-protocol: chat",
                     b"x-forwarded-for: 127.0.0.1", b"via: 1.1 univocal"):  # fmt: skip
        assert lines.count(expected) == 1
    await origin.send(SWITCHED)
    answer = (await client.head()).lower().split(b"\r\n")
    assert answer[0] == b"http/1.1 101 switching protocols"
    for expected in (b"connection: upgrade", b"upgrade: websocket", b"cache-status: univocal; fwd=bypass",
                     f"sec-websocket-accept: {ACCEPT}".lower().encode()):  # fmt: skip
        assert answer.count(expected) == 1


async def test_a_handshake_goes_on_where_fields_select_responses(stack):
    here = await stack(Rules(key=["header:X-Device"]))
    client, _ = await here.tunnel()
    assert client


async def test_a_101_has_no_tags_where_these_are_hidden(stack):
    here = await stack(Rules(strip_tags=True))
    client, origin = await here.asked()
    await origin.send(SWITCHED[:-2] + b"Surrogate-Key: a\r\n\r\n")
    assert b"surrogate-key" not in (await client.head()).lower()


@pytest.mark.parametrize(("target", "status"), [("/a%00", 400), ("/a#b", 400), ("https://en.example/", 421)])
async def test_a_handshake_is_judged_like_any_target(here, target, status):
    client = await here.client(handshake(target))
    assert (await client.head()).startswith(b"HTTP/1.1 %d " % status)
    assert here.arrived.empty()


async def test_bytes_pass_both_ways_as_they_are(here):
    client, origin = await here.tunnel()
    await client.send(b"\x81\x83abcd\0\xff")
    assert await origin.exactly(8) == b"\x81\x83abcd\0\xff"
    await origin.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await client.exactly(18) == b"GET / HTTP/1.1\r\n\r\n"


async def test_bytes_behind_the_101_are_the_clients(here):
    client, origin = await here.asked()
    await origin.send(SWITCHED + b"\x81\x02hi")
    await client.head()
    assert await client.exactly(4) == b"\x81\x02hi"


async def test_one_outcome_tells_of_the_tunnel_when_it_has_ended(stack):
    here = await stack(max_requests_per_client=1)
    client, origin = await here.tunnel()
    await origin.send(b"12345")
    await client.exactly(5)
    assert (len(here.outcomes), len(here.engine.under_way), len(here.clients)) == (0, 1, 1)
    assert (here.upstream.servers[0].connections, here.upstream.balance.members[0].under_way) == (1, 1)
    origin.writer.close()
    assert await client.rest() == b""
    client.writer.close()
    outcome = await here.told()
    assert (outcome.status, outcome.bytes, outcome.handling.fwd) == (101, 5, "bypass")
    assert (len(here.engine.under_way), here.upstream.balance.members[0].under_way) == (0, 0)
    async with asyncio.timeout(20):
        while here.clients or here.upstream.servers[0].connections:  # noqa: ASYNC110 - they are closed by plain calls
            await asyncio.sleep(0.01)


async def test_a_websocket_is_one_of_a_clients_connections(here):
    here.clients.limits = ConnectionLimits(per_client=1)
    client, _ = await here.tunnel()
    another = await here.client(b"GET / HTTP/1.1\r\nHost: en.example\r\n\r\n")
    assert (await another.head()).startswith(b"HTTP/1.1 429 ")
    client.writer.close()


async def test_a_websocket_gives_way_to_no_other_connection(here):
    here.clients.limits = ConnectionLimits(connections=1)
    client, origin = await here.tunnel()
    another = await here.client(b"GET / HTTP/1.1\r\nHost: en.example\r\n\r\n")
    assert (await another.head()).startswith(b"HTTP/1.1 503 ")
    await origin.send(b"12345")
    assert await client.exactly(5) == b"12345"


async def test_a_client_wanting_only_stored_responses_gets_no_websocket(here):
    lines = (*UPGRADE, f"Sec-WebSocket-Key: {KEY}", "Cache-Control: only-if-cached")
    client = await here.client(handshake("/chat", *lines))
    assert (await client.head()).startswith(b"HTTP/1.1 504 ")


async def test_a_client_with_a_websocket_has_one_request_under_way(stack):
    here = await stack(max_requests_per_client=1)
    client, _ = await here.tunnel()
    another = await here.client(HANDSHAKE)
    assert (await another.head()).startswith(b"HTTP/1.1 429 ")
    client.writer.close()


# Anything but 101


@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden", "426 Upgrade Required", "500 Broken"])
async def test_another_status_is_an_ordinary_response_and_never_stored(here, status):
    client = await here.client(HANDSHAKE)
    origin = await here.origin()
    for number in (1, 2):
        await origin.head()
        await origin.send(OK.replace(b"200 OK", status.encode()))
        head, content = await client.message()
        assert head.startswith(f"HTTP/1.1 {status[:3]} ".encode())
        assert b"\r\ncache-status: univocal; fwd=bypass" in head.lower()
        assert b"stored" not in head
        assert content == b"ok"
        if number == 1:
            await client.send(HANDSHAKE)  # over the same connection
    assert [outcome.status for outcome in here.outcomes] == [int(status[:3])] * 2


async def test_stored_responses_answer_no_handshake_even_for_errors(stack):
    here = await stack(Rules(grace=1000))
    client, origin = await here.asked(b"GET /chat HTTP/1.1\r\nHost: en.example\r\n\r\n")
    await origin.send(OK)
    assert (await client.message())[1] == b"ok"
    await client.send(HANDSHAKE)
    await origin.head()
    await origin.send(b"HTTP/1.1 503 Down\r\nContent-Length: 4\r\n\r\ndown")
    assert (await client.message())[1] == b"down"


# See tests/http/test_upgrade.py for handshakes, and for the 101 that answers each.


async def test_a_101_to_something_else_opens_no_tunnel(here):
    client, origin = await here.asked()
    await origin.send(SWITCHED.replace(b"s3p", b"aaa") + b"behind")
    assert (await client.head()).startswith(b"HTTP/1.1 502 ")
    assert await origin.rest() == b""
    outcome = await here.told()
    assert outcome.failure is not None
    assert (outcome.failure.origin, outcome.failure.reason) == (here.upstream.servers[0].url, "malformed")


# Hostile


async def test_a_handshake_that_is_none_goes_on_without_upgrade(here):
    lines = (*UPGRADE, f"Sec-WebSocket-Key: {KEY}", "Content-Length: 2")
    client = await here.client(handshake("/chat", *lines) + b"{}")
    origin = await here.origin()
    head = await origin.head()
    assert b"\r\nupgrade:" not in head.lower()
    assert b"\r\nconnection:" not in head.lower()
    assert await origin.exactly(2) == b"{}"
    await origin.send(SWITCHED)  # and so a 101 is no answer
    assert (await client.head()).startswith(b"HTTP/1.1 502 ")


async def test_without_a_name_in_upgrades_the_field_is_dropped(stack):
    here = await stack(upgrades=())
    client = await here.client(HANDSHAKE)
    origin = await here.origin()
    assert b"\r\nupgrade:" not in (await origin.head()).lower()
    await origin.send(OK)
    assert (await client.message())[1] == b"ok"


async def test_bytes_sent_ahead_wait_for_the_101(here):
    client, origin = await here.asked(handshake() + b"ahead ")
    await client.send(b"of it")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await origin.reader.read(1)
    await origin.send(SWITCHED)
    assert await origin.exactly(11) == b"ahead of it"


async def test_bytes_sent_ahead_are_a_request_after_other_answers(here):
    client, origin = await here.asked(handshake("/chat", *UPGRADE, "Sec-WebSocket-Version: 7"))
    await client.send(b"GET /a%00 HTTP/1.1\r\nHost: en.example\r\n\r\n")
    await origin.send(b"HTTP/1.1 426 No\r\nSec-WebSocket-Version: 13\r\nContent-Length: 0\r\n\r\n")
    head, _ = await client.message()
    assert head.startswith(b"HTTP/1.1 426 ")
    assert (await client.head()).startswith(b"HTTP/1.1 400 ")
    client.writer.close()
    await here.upstream.servers[0].aclose()
    assert await origin.rest() == b""  # not an octet of it


async def test_much_that_is_sent_ahead_waits_in_the_system(here):
    client, _ = await here.asked()
    sending = asyncio.create_task(client.send(b"x" * (64 << 20)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.shield(sending)
    sending.cancel()


# Pace and ends


@pytest.mark.parametrize("side", ["client", "origin"])
async def test_a_slow_reader_slows_the_sender_down(here, side):
    client, origin = await here.tunnel()
    source, sink = (client, origin) if side == "origin" else (origin, client)
    octets = bytes(range(256)) * (32 << 12)
    sending = asyncio.create_task(source.send(octets))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await asyncio.shield(sending)
    assert await sink.exactly(len(octets)) == octets
    await sending


@pytest.mark.parametrize("side", ["client", "origin"])
async def test_a_side_that_ended_its_half_still_receives(here, side):
    client, origin = await here.tunnel()
    first, second = (client, origin) if side == "client" else (origin, client)
    first.writer.write(b"last")
    first.writer.write_eof()
    assert await second.rest() == b"last"
    await second.send(b"answer")
    assert await first.exactly(6) == b"answer"
    assert here.outcomes == []
    second.writer.close()
    assert await first.rest() == b""
    assert (await here.told()).bytes == (6 if side == "client" else 4)


@pytest.mark.parametrize("side", ["client", "origin"])
async def test_when_one_side_is_gone_the_other_is_closed(here, side):
    client, origin = await here.tunnel()
    first, second = (client, origin) if side == "client" else (origin, client)
    first.writer.transport.abort()
    assert await second.rest() == b""
    second.writer.close()
    assert (await here.told()).status == 101


async def test_silence_ends_a_websocket_with_1001(stack):
    here = await stack(upgrade_timeout=0.2)
    client, origin = await here.tunnel()
    assert await client.rest() == b"\x88\x02\x03\xe9"
    assert await origin.rest() == b"\x88\x82\0\0\0\0\x03\xe9"
    assert (await here.told()).bytes == 4


async def test_at_a_shutdown_websockets_get_1001(here):
    client, origin = await here.tunnel()
    await origin.send(b"\x81\x02hi")
    await client.exactly(4)
    here.server.ending.set()
    assert await client.rest() == b"\x88\x02\x03\xe9"
    assert await origin.rest() == b"\x88\x82\0\0\0\0\x03\xe9"
    assert (await here.told()).bytes == 8
