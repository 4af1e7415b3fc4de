"""An origin server that authenticates the connection: no client is taken for another."""

import asyncio
import contextlib
from dataclasses import replace

import httpx
import pytest

from examples import cases
from tests.integration.conftest import direct
from univocal import CacheMiddleware, ReverseProxy, Rules
from univocal.engine.outcome import Outcome
from univocal.forward.upstream import Upstream
from univocal.origin.client_library import OriginTransport
from univocal.origin.servers import OriginServer


class Domain:
    """An origin server as IIS is one with NTLM: three steps, after which the connection is a user's."""

    def __init__(self, scheme=b"NTLM"):
        self.scheme = scheme
        self.connections = self.requests = 0
        self.tasks = set[asyncio.Task[None]]()

    async def __call__(self, reader, writer):
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        number, user, challenged = self.connections, b"", False
        with contextlib.suppress(EOFError, OSError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                credentials = _credentials(head)
                if credentials.startswith(b"type-1"):
                    challenged = True
                elif challenged and credentials.startswith(b"type-3 "):
                    user = credentials.removeprefix(b"type-3 ")
                public = b" /public" in head
                if user or public:
                    said = b"%b on %d" % (user or b"nobody", number)
                    lines = b"Cache-Control: public, max-age=60\r\nContent-Length: %d\r\n" % len(said)
                    writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (lines, said))
                else:
                    token = self.scheme + (b" type-2" if challenged else b"")
                    writer.write(
                        b"HTTP/1.1 401 Unauthorized\r\nCache-Control: public, max-age=60\r\n"
                        b"WWW-Authenticate: %b\r\nContent-Length: 0\r\n\r\n" % token
                    )
        writer.close()


def _credentials(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b": ")
        if name.lower() == b"authorization":
            return value.partition(b" ")[2]
    return b""


class Caller:
    """One connection of a client."""

    def __init__(self, port, scheme="NTLM"):
        self.port, self.scheme = port, scheme

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_):
        self.writer.close()

    async def ask(self, target, credentials=""):
        line = f"Authorization: {self.scheme} {credentials}\r\n" if credentials else ""
        self.writer.write(f"GET {target} HTTP/1.1\r\nHost: en.example\r\n{line}\r\n".encode())
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return int(head.split(b" ")[1]), await self.reader.readexactly(length)

    async def log_in(self, user):
        return [(await self.ask("/me", credentials))[0] for credentials in ("", "type-1", f"type-3 {user}")]


@pytest.fixture
async def stack(serve):
    """A proxy before a domain: `domain, front, outcomes = await stack(door, transport, trusted)`."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(door="direct", transport=OriginTransport, trusted=(), scheme=b"NTLM", servers=1):
            domain, outcomes = Domain(scheme), list[Outcome]()
            urls = []
            for _ in range(servers):
                listening = await asyncio.start_server(domain, "127.0.0.1", 0)
                stack.callback(listening.close)
                urls.append(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            upstream = Upstream.of([OriginServer(url, transport()) for url in urls])
            proxy = ReverseProxy(upstream)
            stack.push_async_callback(proxy.aclose)
            rules = Rules(errors="explicit")
            app = CacheMiddleware(proxy, rules=rules, trusted_proxies=trusted, listeners=[outcomes.append])
            settings = {} if door == "asgi" else {"http": direct(app, proxy, trusted=trusted)}
            return domain, await serve(app, **settings), outcomes

        yield start


@pytest.mark.parametrize("scheme", ["NTLM", "Negotiate", "negotiate"])
async def test_a_strangers_request_is_never_answered_as_anothers(stack, scheme):
    domain, front, outcomes = await stack(scheme=scheme.encode())
    async with Caller(front.port, scheme) as alice, Caller(front.port, scheme) as bob:
        assert await alice.log_in("Alice") == [401, 401, 200]
        assert await bob.ask("/me") == (401, b"")
        assert await alice.ask("/me") == (200, b"Alice on 1")  # without credentials: it is her connection
        assert await bob.log_in("Bob") == [401, 401, 200]
        assert await bob.ask("/other") == (200, b"Bob on 2")
        assert await alice.ask("/other") == (200, b"Alice on 1")
    assert domain.connections == 2
    assert not any(outcome.handling.stored for outcome in outcomes)


async def test_a_handshake_stays_at_one_of_several_origin_servers(stack):
    _, front, _ = await stack(servers=3)
    async with Caller(front.port) as alice, Caller(front.port) as bob:
        for _ in range(2):
            assert (await alice.ask("/me"))[0] == 401
            assert (await bob.ask("/public"))[0] == 200
        assert (await alice.log_in("Alice"))[2] == 200
        assert (await bob.log_in("Bob"))[2] == 200
        for number in range(6):
            assert (await alice.ask(f"/{number}"))[1].startswith(b"Alice on ")


async def test_a_connection_goes_with_its_clients(stack):
    domain, front, _ = await stack()
    async with Caller(front.port) as alice:
        await alice.log_in("Alice")
    async with Caller(front.port) as other:
        assert await other.ask("/me") == (401, b"")
    assert domain.connections == 2
    async with asyncio.timeout(10):
        while front.app.app.upstream.servers[0].connections:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_public_pages_are_stored_of_strangers_alone(stack):
    domain, front, outcomes = await stack()
    async with Caller(front.port) as alice, Caller(front.port) as bob:
        await alice.log_in("Alice")
        assert await alice.ask("/public") == (200, b"Alice on 1")
        assert await bob.ask("/public") == (200, b"nobody on 2")
        assert await bob.ask("/public") == (200, b"nobody on 2")
        assert await alice.ask("/public") == (200, b"Alice on 1")
    assert [outcome.handling.stored for outcome in outcomes].count(True) == 1
    assert domain.connections == 2


@cases("door, trusted", ("asgi", ()), ("direct", ("127.0.0.0/8",)), ("asgi", ("127.0.0.0/8",)))
@pytest.mark.parametrize("transport", [OriginTransport, httpx.AsyncHTTPTransport])
async def test_where_a_connection_is_everybodys_none_is_authenticated(stack, door, trusted, transport):
    _, front, outcomes = await stack(door, transport, trusted)
    async with Caller(front.port) as proxy:
        assert (await proxy.log_in("Alice"))[0] == 401
        assert await proxy.ask("/me") == (401, b"")
        assert (await proxy.ask("/public"))[0] == 200
    assert not any(outcome.status == 401 and outcome.handling.stored for outcome in outcomes)


async def test_a_handshake_is_not_answered_by_a_stored_page(stack):
    domain, front, _ = await stack()
    async with Caller(front.port) as alice, Caller(front.port) as bob:
        for _ in range(2):
            assert await bob.ask("/public") == (200, b"nobody on 1")
        assert (await alice.ask("/public", "type-1"))[0] == 200
    assert domain.requests == 2


async def test_a_peer_that_becomes_a_proxy_has_no_connection(stack):
    trusted = []
    _, front, _ = await stack(trusted=trusted)
    async with Caller(front.port) as proxy:
        assert await proxy.log_in("Alice") == [401, 401, 200]
        trusted.append("127.0.0.0/8")
        (connection,) = front.server.server_state.connections
        bounds = connection.listener.bounds
        bounds.change(replace(bounds.limits))
        assert await proxy.ask("/me") == (401, b"")
