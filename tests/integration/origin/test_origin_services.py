"""An origin server that SRV records name (RFC 2782), told by a real name server on loopback."""

import asyncio
import contextlib
import ssl
from collections import Counter
from functools import partial

import pytest

from authority import Authority
from name_server import name_server
from neighbours import PlayedAnswer
from support import hello
from univocal.forward.upstream import Upstream
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.http.roles import OriginRequest
from univocal.origin import addresses
from univocal.origin.addresses import SERVICES, service_of
from univocal.origin.servers import Balance, Balancing, Member, MemberState, OriginServer
from univocal.origin.upkeep import Upkeep

SRV = ("_http._tcp.app.example", "SRV")
HERE = {("here.example", "A"): ["127.0.0.1"], ("there.example", "A"): ["127.0.0.2"]}


@pytest.fixture
def names(monkeypatch):
    with name_server() as server:
        server.records.update(HERE)
        monkeypatch.setattr("dns.resolver.Resolver", server.resolver)
        yield server


def record(port, *, priority=0, weight=1, target="here.example"):
    return f"{priority} {weight} {port} {target}."


class Service:
    """The service as an upstream."""

    def __init__(self, names, transport, scheme="srv+http", weight=1, **settings):
        self.names = names
        server = OriginServer(f"{scheme}://_http._tcp.app.example", transport)
        balance = Balance([Member(server, server.url, weight)], Balancing(**settings))
        self.upstream = Upstream(balance, None, Upkeep(balance))

    @property
    def members(self):
        return self.upstream.balance.members

    async def settled(self, count):
        async with asyncio.timeout(30):
            while [bool(each.server.address) for each in self.members] != [True] * count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def ask(self):
        told = PlayedAnswer()
        fields = [(b"host", b"en.example")]
        self.upstream.ask(OriginRequest(b"GET", b"/", fields, Received(b"GET", b"/")), told)
        async with asyncio.timeout(20):
            await told.over.wait()
        return told.head[0] if told.head else 0


@pytest.fixture
async def service(names, make_transport):
    async with contextlib.AsyncExitStack() as stack:

        def make(ssl_context=None, **settings):
            made = Service(names, make_transport(ssl_context=ssl_context), **settings)
            stack.push_async_callback(made.upstream.aclose)
            return made

        yield make


async def test_a_service_is_reached_at_the_ports_of_its_records(serve, names, service):
    first, second = await serve(hello), await serve(hello)
    names.records[SRV] = [record(first.port), record(second.port)]
    app = service(choice="round-robin")
    assert await app.ask() == 200  # before its records are known to the balance
    await app.settled(2)
    assert [await app.ask() for _ in range(8)] == [200] * 8
    assert min(len(first.heads), len(second.heads)) >= 4
    assert b"host: app.example\r\n" in first.heads[0].lower()
    assert {each.name for each in app.members} == {
        f"srv+http://_http._tcp.app.example 127.0.0.1:{port}" for port in (first.port, second.port)
    }


async def test_weights_are_shares_and_priorities_are_backups(serve, names, service):
    big, small, spare = [await serve(hello) for _ in range(3)]
    names.records[SRV] = [
        record(big.port, priority=10, weight=3),
        record(small.port, priority=10, weight=0),
        record(spare.port, priority=20, weight=100),
        record(1, priority=30, target="there.example"),
    ]
    app = service(choice="round-robin", weight=2)
    app.upstream.begin()
    await app.settled(4)
    conditions = Counter(each.condition for each in app.members)
    assert conditions == {MemberState.UP: 2, MemberState.BACKUP: 2}
    assert [await app.ask() for _ in range(8)] == [200] * 8
    assert [len(each.heads) for each in (big, small, spare)] == [6, 2, 0]
    for member in app.members:
        member.is_drained = member.rank == 0
    assert [await app.ask() for _ in range(4)] == [200] * 4
    assert len(spare.heads) == 4  # the next priority alone


async def test_records_are_asked_for_again_and_failures_change_nothing(serve, names, service):
    first, second = await serve(hello), await serve(hello)
    names.records[SRV] = [record(first.port)]
    app = service(resolve=0.05)
    app.upstream.begin()
    await app.settled(1)
    kept = app.members[0]
    assert await app.ask() == 200
    names.records[SRV] = [record(first.port, weight=5), record(second.port, priority=1)]
    await app.settled(2)
    assert kept in app.members
    assert (kept.weight, kept.requests) == (5, 1)
    for trouble in ({"fails": True}, {"records": {}}, {"records": {SRV: ["0 0 0 ."]}}):
        for key, value in trouble.items():
            setattr(names, key, value)
        asked = len(names.asked)
        async with asyncio.timeout(30):
            while len(names.asked) < asked + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(app.members) == 2
        assert await app.ask() == 200
        names.fails = False


async def test_records_are_asked_for_when_their_time_is_over(names, service, monkeypatch):
    monkeypatch.setattr(addresses, "SOONEST", 0.02)
    names.records[SRV], names.ttl = [record(1)], 0
    app = service(resolve=3600)
    app.upstream.begin()
    async with asyncio.timeout(30):
        while names.asked.count("_http._tcp.app.example SRV") < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("subject", "status"), [("app.example", 200), ("here.example", 0)])
async def test_a_certificate_is_for_the_domain_not_the_target(
    serve, names, service, tmp_path, subject, status
):
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*(tmp_path / file for file in authority.issue("app", f"DNS:{subject}")))
    origin = await serve(hello, ssl=context)
    names.records[SRV] = [record(origin.port)]
    app = service(scheme="srv+https", ssl_context=authority.client())
    assert await app.ask() == status


async def test_a_service_without_servers_is_unreachable(names, service):
    app = service()
    assert await app.ask() == 0
    assert app.members[0].failures == 1


async def test_a_target_has_all_of_its_addresses(names):
    names.records[SRV] = [record(80), record(81, target="nowhere.example")]
    names.records["here.example", "AAAA"] = ["::1"]
    found = await service_of("_http._tcp.app.example")
    assert found.shares.keys() == {"127.0.0.1:80", "[::1]:80"}
    assert found.seconds == 60


async def test_a_configuration_read_again_keeps_shares(serve, names, service):
    origin = await serve(hello)
    names.records[SRV] = [record(origin.port, weight=4), record(1, priority=7)]
    before = service(weight=2)
    before.upstream.begin()
    await before.settled(2)
    after = Service(names, before.members[0].server.transport, weight=3)
    names.fails = True
    after.upstream.succeed(before.upstream)
    assert [(each.weight, each.rank) for each in after.members] == [(12, 0), (3, 1)]
    assert {*after.members} == {*before.members}


def test_a_missing_library_is_named(monkeypatch):
    find = addresses.find_spec
    monkeypatch.setattr(addresses, "find_spec", lambda name: None if name == "dns" else find(name))
    make = partial(OriginServer, "srv+http://_http._tcp.app.example")
    with pytest.raises(ConfigurationError, match=r"univocal\[srv\]") as refused:
        make()
    assert SERVICES in str(refused.value)
