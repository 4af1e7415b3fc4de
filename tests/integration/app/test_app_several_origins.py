"""Several origin servers of one site, which refuse, reset, hang, send garbage, die and come back."""

import asyncio
import contextlib
import socket
import struct
import time

import httpx
import pytest

from tests.ports import free_port
from univocal_app.config.tables import validate
from univocal_app.config.values import Address
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound, bind

RESET = struct.pack("ii", 1, 0)


class Server:
    """An origin server that does as `mode` says with each request whose head it has read."""

    def __init__(self, name):
        self.name = name
        self.mode = "answer"
        self.fields = ["Cache-Control: no-store"]
        self.requests = []  # their heads
        self.port = free_port()
        self._server = None
        self._writers = set()

    async def start(self):
        """Listen, again on the same port after `die`."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def die(self):
        """Close the listener and every connection."""
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    @property
    def lines(self):
        return [head.partition(b"\r\n")[0].decode() for head in self.requests]

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, EOFError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, reader, writer):
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        match self.mode:
            case "reset":
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()
                return False
            case "close":
                return False
            case "hang":
                await reader.read()
                return False
            case "half":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-")
                await reader.read()
                return False
            case "garbage":
                writer.write(b"220 mail.example ESMTP\r\n\r\n")
                return False
            case "interim":
                writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
                return False
            case "error":
                status = "503 Service Unavailable"
            case _:
                status = "200 OK"
        content = self.name.encode()
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *self.fields]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
        return True


class Site:
    """The proxy before these origin servers."""

    def __init__(self, proxy, front, admin, servers):
        self.proxy, self.front, self.admin, self.servers = proxy, front, admin, servers

    async def get(self, target="/a", *lines, method="GET", body=b""):
        return await self.front.ask(target, *lines, method=method, body=body)

    async def names(self, number):
        """Who answered so many requests, one after the other."""
        told = ""
        for each in range(number):
            answer = await self.get(f"/{each}")
            assert answer.status == 200
            told += answer.content.decode()
        return told

    async def states(self):
        transport = httpx.ASGITransport(self.admin, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.get("/-/origins")).json()

    async def told(self, *keys):
        return [tuple(each[key] for key in keys) for each in await self.states()]

    async def until(self, expected, *keys):
        async with asyncio.timeout(20):
            while await self.told(*keys) != expected:  # noqa: ASYNC110 - it is the view that is tested
                await asyncio.sleep(0.01)


@pytest.fixture
async def site(serve):
    """Start `number` origin servers a, b, c … and the proxy before them: `await site(2, fails=1)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(number=2, cache=None, **origin):
            servers = [Server(name) for name in "abcd"[:number]]
            for server in servers:
                await server.start()
                stack.push_async_callback(server.die)
            settings = {
                "server": {"access_log": "off"},
                "origin": {"choice": "round-robin", "read_timeout": 5, **origin},
                "cache": cache or {},
                "sites": [{
                    "hosts": ["en.example"],
                    "upstream": [f"http://127.0.0.1:{server.port}" for server in servers],
                }],
            }  # fmt: skip
            proxy = Proxy(validate(settings, "univocal.toml"))
            stack.push_async_callback(proxy.aclose)
            with bind(Address("127.0.0.1", 0), "", "") as unused:
                front = await serve(proxy.cache, proxy.front(Bound(unused)).protocol)
                admin = proxy.back(Bound(unused)).app
            return Site(proxy, front, admin, servers)

        yield begin


async def test_one_that_is_alone_is_always_tried(site):
    one = await site(1, fails=1, eject=1000)
    await one.servers[0].die()
    assert [(await one.get(f"/{number}")).status for number in range(3)] == [502, 502, 502]
    assert await one.told("state", "requests", "failures") == [("failing", 3, 3)]
    await one.servers[0].start()
    assert await one.names(2) == "aa"
    assert await one.told("state", "reason") == [("up", None)]


async def test_retries_are_bounded_for_a_request_and_for_all(site):
    four = await site(4, retries=1, fails=1000, retry_budget=0)
    for server in four.servers:
        server.mode = "close"
    for number in range(5):
        assert (await four.get(f"/{number}")).status == 502
    assert sum(len(server.requests) for server in four.servers) == 5 + 3


async def test_with_all_servers_gone_stale_hits_and_purges_continue(site):
    two = await site(2, fails=1)
    for server in two.servers:
        server.fields = ["Cache-Control: max-age=0, stale-if-error=1000", 'ETag: "1"']
    assert (await two.get("/stale")).status == 200
    for server in two.servers:
        server.fields = ["Cache-Control: max-age=1000"]
    assert (await two.get("/fresh")).status == 200
    for server in two.servers:
        server.fields = ["Cache-Control: max-age=0, must-revalidate", 'ETag: "1"']
    assert (await two.get("/strict")).status == 200
    for server in two.servers:
        await server.die()
    for _ in range(3):
        assert (await two.get("/stale")).status == 200
        assert "hit" in (await two.get("/fresh"))["cache-status"]
        assert (await two.get("/strict")).status in {502, 504}
        assert (await two.get("/new")).status == 502
    assert b'"purged": 1' in (await two.get("/stale", method="PURGE")).content
    assert (await two.get("/stale")).status == 502


async def test_with_all_checks_failing_nobody_is_asked(site):
    two = await site(2)
    two.servers[0].fields = two.servers[1].fields = [
        "Cache-Control: max-age=0, stale-if-error=1000",
        'ETag: "1"',
    ]
    assert (await two.get("/stale")).status == 200
    for server in two.servers:
        server.mode = "hang"
    (origin,) = two.proxy.origins.proxies.values()
    balance = origin.upstream.balance
    for member in balance.members:
        balance.mark(member, time.monotonic(), up=False)
    asked = [len(server.requests) for server in two.servers]
    assert (await two.get("/stale")).status == 200
    assert (await two.get("/new")).status == 502
    assert [len(server.requests) for server in two.servers] == asked
    assert await two.told("state") == [("down",), ("down",)]


async def test_metrics_tell_what_came_of_each(site):
    two = await site(2, fails=1)
    two.servers[0].mode = "error"
    for number in range(4):
        await two.get(f"/{number}")
    await two.servers[0].die()
    assert await two.names(2) == "bb"
    told = set(two.proxy.figures.exposition()[0].decode().splitlines())
    one, other = (f'origin="http://127.0.0.1:{server.port}"' for server in two.servers)
    assert {
        f'univocal_origin_requests_total{{{one},site="en.example",status="5xx"}} 2.0',
        f'univocal_origin_requests_total{{{one},site="en.example",status="none"}} 1.0',
        f'univocal_origin_requests_total{{{other},site="en.example",status="2xx"}} 4.0',
        f'univocal_origin_errors_total{{{one},reason="refused",site="en.example"}} 1.0',
        f'univocal_origin_up{{{one},site="en.example"}} 0.0',
        f'univocal_origin_up{{{other},site="en.example"}} 1.0',
    } <= {_sorted(line) for line in told}


def _sorted(line):
    """A line of the exposition, its labels in order."""
    name, brace, rest = line.partition("{")
    labels, _, value = rest.partition("}")
    return name + brace + ",".join(sorted(labels.split(","))) + "}" + value
