"""An origin server's name that leads to several addresses: each is an origin server of its own."""

import asyncio
import contextlib
import ssl

import pytest

from authority import Authority
from neighbours import PlayedAnswer
from support import hello, silent
from tests.ports import free_port
from univocal.forward.upstream import Upstream
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin.addresses import resolved
from univocal.origin.servers import Balance, Balancing, Member, MemberState, OriginServer, Timeouts
from univocal.origin.upkeep import HealthRule, Upkeep


def page(method=b"GET"):
    return OriginRequest(method, b"/", [(b"host", b"en.example")], Received(method, b"/"))


class Name:
    """The name app.example, which leads to `addresses`, as an upstream."""

    def __init__(self, transport, port, *addresses, scheme="http", rule=None, **settings):
        self.addresses = addresses
        timeouts = Timeouts(connect=None, read=20.0, write=20.0, pool=20.0)
        server = OriginServer(f"{scheme}://app.example:{port}", transport, timeouts)
        balance = Balance([Member(server, server.url)], Balancing(**settings))
        self.upkeep = Upkeep(balance, rule, resolve=self.resolve)
        self.upstream = Upstream(balance, b"", self.upkeep)

    async def resolve(self, host, port):
        assert host == "app.example"
        return [found for address in self.addresses for found in await resolved(address, port)]

    async def begin(self):
        self.upstream.begin()
        for _ in range(20):
            await asyncio.sleep(0)

    async def ask(self, method=b"GET"):
        told = PlayedAnswer()
        self.upstream.ask(page(method), told)
        async with asyncio.timeout(30):
            await told.over.wait()
        return told.head[0] if told.head else 0

    def member(self, address):
        (member,) = [each for each in self.upstream.balance.members if each.server.address == address]
        return member


@pytest.fixture
async def name(make_transport):
    """Begin with a name that leads to these addresses."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(port, *addresses, ssl_context=None, **settings):
            named = Name(make_transport(ssl_context=ssl_context), port, *addresses, **settings)
            stack.push_async_callback(named.upstream.aclose)
            await named.begin()
            return named

        yield begin


async def test_one_of_two_addresses_refuses(serve, name):
    origin = await serve(hello)  # at 127.0.0.1 alone
    named = await name(origin.port, "127.0.0.1", "127.0.0.2", choice="round-robin")
    assert [await named.ask() for _ in range(8)] == [200] * 8
    assert named.member("127.0.0.2").state is MemberState.EJECTED
    assert named.member("127.0.0.2").failures == 3
    assert named.member("127.0.0.1").failures == 0


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("other", ["::1", "127.0.0.2"])
async def test_an_unsent_request_goes_to_another_address(serve, name, method, other):
    origin = await serve(hello)
    named = await name(origin.port, other, "127.0.0.1")
    assert [await named.ask(method) for _ in range(2)] == [200] * 2


async def test_a_family_that_says_nothing_loses_the_race(serve, name):
    """Without retries and without a time for connecting: the race alone brings an answer."""
    origin = await serve(hello)
    with silent("::1", origin.port):
        named = await name(origin.port, "::1", "127.0.0.1", retries=0, choice="round-robin")
        assert [await named.ask() for _ in range(6)] == [200] * 6
        assert named.member("::1").state is MemberState.EJECTED
        assert named.member("127.0.0.1").requests == 6
    # A connection that has won is kept, and its address's own: the other three requests needed none.
    assert origin.accepted == 3


@pytest.mark.parametrize("other", ["::1", "127.0.0.2"])
async def test_over_tls_the_name_is_asked_for_at_each_address(serve, name, tmp_path, eventually, other):
    """By requests, after a race too, and by checks."""
    authority = Authority(tmp_path)
    certificate, key = (tmp_path / file for file in authority.issue("app", "DNS:app.example"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    asked = []
    context.sni_callback = lambda _socket, server_name, _context: asked.append(server_name)
    origin = await serve(hello, ssl=context)
    rule = HealthRule(b"/healthz", interval=60.0, timeout=60.0)
    how = {"ssl_context": authority.client(), "scheme": "https", "rule": rule}
    named = await name(origin.port, other, "127.0.0.1", **how)
    assert [await named.ask() for _ in range(2)] == [200] * 2
    await eventually(lambda: any(head.startswith(b"GET /healthz ") for head in origin.heads))
    assert set(asked) == {"app.example"}


async def test_an_address_that_is_down_is_not_raced(serve, name):
    origin = await serve(hello)
    with silent("::1", origin.port):
        named = await name(origin.port, "::1", "127.0.0.1", retries=0)
        named.upstream.balance.mark(named.member("127.0.0.1"), 0, up=False)
        asked = asyncio.ensure_future(named.ask())
        done, _ = await asyncio.wait([asked], timeout=0.6)
        assert not done
        asked.cancel()
    assert origin.accepted == 0


async def test_where_both_families_refuse_that_is_one_failure(name):
    named = await name(free_port(), "::1", "127.0.0.1", retries=0)
    assert await named.ask() == 0
    assert sum(member.failures for member in named.upstream.balance.members) == 1


async def test_addresses_move(serve, name, eventually):
    """A container that is made anew has another address, which is asked for once the old one refuses."""
    origin = await serve(hello)
    named = await name(origin.port, "127.0.0.2")
    named.addresses = ("127.0.0.1",)
    assert await named.ask() == 0
    await eventually(lambda: named.upstream.balance.members[0].server.address == "127.0.0.1")
    assert await named.ask() == 200


async def test_requests_at_a_removed_address_end_well(serve, name, eventually):
    goes_on = asyncio.Event()

    async def slowly(peer):
        await peer.head()
        await goes_on.wait()
        await peer.answer(b"at last")

    origin = await serve(slowly)
    named = await name(origin.port, "127.0.0.1")
    asked = asyncio.ensure_future(named.ask())
    await eventually(lambda: origin.heads)
    named.addresses = ("127.0.0.2",)
    named.upkeep._watches[0].begin()
    await eventually(lambda: named.upstream.balance.members[0].server.address == "127.0.0.2")
    goes_on.set()
    assert await asked == 200
    await named.upstream.aclose()
    await eventually(lambda: origin.open == 0)


async def test_failures_at_a_lost_address_name_it(serve, name, eventually):
    goes_on = asyncio.Event()

    async def resets(peer):
        await peer.head()
        await goes_on.wait()
        peer.reset()

    origin = await serve(resets)
    named = await name(origin.port, "127.0.0.1", retries=0)
    told = PlayedAnswer()
    named.upstream.ask(page(), told)
    await eventually(lambda: origin.heads)
    named.addresses = ("127.0.0.2",)
    named.upkeep._watches[0].begin()
    await eventually(lambda: named.upstream.balance.members[0].server.address == "127.0.0.2")
    goes_on.set()
    async with asyncio.timeout(20):
        await told.over.wait()
    assert told.error.failure.address == f"127.0.0.1:{origin.port}"
