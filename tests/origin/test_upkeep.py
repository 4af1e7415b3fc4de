"""Every address of a name is a member of the balance, and each member's health is checked."""

import asyncio
import logging

import pytest

from univocal.http.errors import RefusedError
from univocal.http.messages import Response
from univocal.origin.balance import Balance, Balancing, Member, MemberState
from univocal.origin.resolving import resolved
from univocal.origin.server import OriginServer
from univocal.origin.upkeep import HealthRule, Upkeep


class Server(OriginServer):
    """An origin server whose health is what the test says, by address; `checks` are the hosts asked."""

    def __init__(self, name, address="", world=None, transport=None):
        super().__init__(f"http://{name}", transport)
        self.host, self.place = name, address
        self.world = {"checks": [], "forgotten": [], "sick": set()} if world is None else world

    @property
    def address(self):
        return self.place

    @property
    def name(self):
        return None if self.address or self.host[0].isdigit() else (self.host, 80)

    def at(self, address):
        return Server(self.host, address, self.world, self.transport)

    def for_checks(self):
        return self

    def forget(self):
        self.world["forgotten"].append(self.address)

    def ask(self, request, answer):
        self.world["checks"].append((self.address, dict(request.fields)[b"host"]))
        if self.address in self.world["sick"]:
            answer.fail(RefusedError("origin-unreachable"))
        else:
            answer.start(Response(200, []))
            answer.finish()


class World:
    """A balance of names, its upkeep, and what the names lead to."""

    def __init__(self, clock, *names, rule=None, host=b"", weight=1, transports=()):
        self.clock, self.addresses = clock, {}
        self.origins = [Member(Server(name), f"http://{name}", weight) for name in names]
        for origin, transport in zip(self.origins, transports, strict=False):
            origin.server.transport = transport
        self.balance = Balance(self.origins, Balancing())
        self.upkeep = Upkeep(
            self.balance, rule, host, self.resolve, clock=clock.time, share=lambda: 1.0, loop=clock
        )

    async def resolve(self, host, port):
        if not self.addresses.get(host):
            raise OSError("no such name")
        return [found for address in self.addresses[host] for found in await resolved(address, port)]

    async def at(self, *times):
        for time in times:
            self.clock.pass_to(time)
            for _ in range(10):
                await asyncio.sleep(0)

    @property
    def places(self):
        return [member.server.address or member.server.host for member in self.balance.members]

    def member(self, address):
        (member,) = [each for each in self.balance.members if each.server.address == address]
        return member


@pytest.fixture
def world(clock):
    def make(*names, **settings):
        return World(clock, *names, **settings)

    return make


async def test_every_address_of_a_name_is_a_member(world):
    there = world("a.example", "192.0.2.9", "b.example", weight=3)
    there.addresses = {"a.example": ["192.0.2.1", "2001:db8::1"], "b.example": ["192.0.2.5"]}
    there.upkeep.begin()
    assert there.places == ["a.example", "192.0.2.9", "b.example"]  # until the names are resolved
    await there.at(0)
    assert there.places == ["192.0.2.1", "2001:db8::1", "192.0.2.9", "192.0.2.5"]
    assert [member.weight for member in there.balance.members] == [3] * 4
    # By its name a member is told apart, in every process alike.
    assert there.balance.members[1].name == "http://a.example 2001:db8::1"


async def test_who_stays_keeps_what_is_known_of_it(world):
    there = world("a.example")
    there.addresses = {"a.example": ["192.0.2.1", "192.0.2.2"]}
    there.upkeep.begin()
    await there.at(0)
    second = there.member("192.0.2.2")
    for _ in range(3):
        there.balance.failed(second, 1.0)
    assert second.state is MemberState.EJECTED
    there.addresses = {"a.example": ["192.0.2.2", "192.0.2.3"]}
    await there.at(30)
    assert there.places == ["192.0.2.2", "192.0.2.3"]
    assert there.member("192.0.2.2") is second
    assert second.state is MemberState.EJECTED
    assert there.origins[0].server.world["forgotten"][1:] == ["192.0.2.1"]
    there.addresses = {}
    await there.at(60)
    assert there.places == ["192.0.2.2", "192.0.2.3"]


async def test_what_was_counted_before_the_name_was_resolved_counts(world):
    there = world("a.example")
    there.addresses = {"a.example": ["192.0.2.1", "192.0.2.2"]}
    asker = object()
    early = there.balance.take(asker, b"", 0.0)
    there.upkeep.begin()
    await there.at(0)
    assert early is there.member("192.0.2.1")
    there.balance.answered(early, 0.0)
    there.balance.ended(asker, early)
    assert [member.requests for member in there.balance.members] == [1, 0]
    assert [member.under_way for member in there.balance.members] == [0, 0]


async def test_a_member_that_was_not_reached_has_its_name_resolved(world):
    there = world("a.example")
    there.addresses = {"a.example": ["192.0.2.1"]}
    there.upkeep.begin()
    await there.at(0, 10)
    there.addresses = {"a.example": ["192.0.2.2"]}
    there.member("192.0.2.1").server.unreached()
    await there.at(10)
    assert there.places == ["192.0.2.2"]


async def test_a_name_that_cannot_be_resolved_stays_a_member(world):
    there = world("a.example")
    there.upkeep.begin()
    await there.at(0, 30)
    assert there.places == ["a.example"]
    there.origins[0].server.unreached()
    there.addresses = {"a.example": ["192.0.2.1"]}
    await there.at(31)
    assert there.places == ["192.0.2.1"]


RULE = HealthRule(b"/healthz", interval=5, rises=2, falls=3)


async def test_checks_take_a_member_down_and_bring_it_back(world, caplog):
    caplog.set_level(logging.WARNING, "univocal")
    there = world("192.0.2.8", "a.example", rule=RULE)
    there.addresses = {"a.example": ["192.0.2.1", "192.0.2.2"]}
    there.upkeep.begin()
    await there.at(0)
    sick = there.origins[1].server.world["sick"]
    first, second = there.member("192.0.2.1"), there.member("192.0.2.2")
    sick.add("192.0.2.1")
    await there.at(5, 10)
    assert first.state is MemberState.UP
    await there.at(15)
    assert (first.state, first.since, second.state) == (MemberState.DOWN, 15, MemberState.UP)
    sick.clear()
    await there.at(20)
    assert first.state is MemberState.DOWN
    await there.at(25)
    assert (first.state, first.since) == (MemberState.UP, 25)
    assert [record.getMessage() for record in caplog.records] == [
        "http://a.example (192.0.2.1) is down, as its health checks say: origin-unreachable",
        "http://a.example (192.0.2.1) is up, as its health checks say: status 200",
    ]


async def test_a_single_server_that_fails_is_said_with_its_reason(world, caplog):
    caplog.set_level(logging.WARNING, "univocal")
    there = world("192.0.2.8")
    there.upkeep.begin()
    (only,) = there.balance.members
    for reason in ("refused", "refused", "timeout", "timeout"):
        there.balance.failed(only, there.clock.time(), reason)
    said = ["http://192.0.2.8 is failing: timeout"]
    assert [record.getMessage() for record in caplog.records] == said
    await there.at(20)
    there.balance.answered(only, 20.0)
    said.append("http://192.0.2.8 is up again: it has answered")
    assert [record.getMessage() for record in caplog.records] == said


async def test_a_flapping_server_is_logged_once_in_ten_seconds(world, caplog):
    caplog.set_level(logging.WARNING, "univocal")
    there = world("192.0.2.8")
    there.upkeep.begin()
    (only,) = there.balance.members
    for second in range(9):
        await there.at(second / 2)
        for _ in range(3):
            there.balance.failed(only, second / 2, "refused")
        there.balance.answered(only, second / 2)
    assert len(caplog.records) == 1
    await there.at(30)
    assert [record.getMessage() for record in caplog.records] == [
        "http://192.0.2.8 is failing: refused",
        "http://192.0.2.8 is up again: it has answered",
    ]
    for _ in range(3):
        there.balance.failed(only, 30.0, "refused")
    there.balance.answered(only, 30.0)
    there.upkeep.close()
    assert there.clock.timers == []


@pytest.mark.parametrize(("host", "sent"), [(b"", b"192.0.2.8"), (b"en.example", b"en.example")])
async def test_the_host_of_a_check(world, host, sent):
    there = world("192.0.2.8", rule=RULE, host=host)
    there.upkeep.begin()
    assert there.origins[0].server.world["checks"] == [("", sent)]


async def test_nothing_is_resolved_or_checked_after_the_end(world, clock):
    there = world("a.example", "192.0.2.8", rule=RULE)
    there.addresses = {"a.example": ["192.0.2.1"]}
    there.upkeep.begin()
    await there.at(0)
    checks = there.origins[0].server.world["checks"]
    there.upkeep.close()
    checks.clear()
    await there.at(5, 100)
    assert (checks, clock.timers) == ([], [])


async def successor(world, there, *names, **settings):
    """Another upkeep in the place of one, whose servers at the same places of the list are the same."""
    after = world(*names, transports=[each.server.transport for each in there.origins], **settings)
    after.addresses = there.addresses
    after.upkeep.succeed(there.upkeep)
    there.upkeep.close()
    after.upkeep.begin()
    await after.at(after.clock.time())
    return after


async def test_a_successor_knows_all_that_was_known(world):
    there = world("a.example", "192.0.2.9", "192.0.2.7", rule=RULE)
    there.addresses = {"a.example": ["192.0.2.1", "2001:db8::1"]}
    there.upkeep.begin()
    await there.at(0)
    first, third, down, gone = there.balance.members
    there.origins[0].server.world["sick"].add("192.0.2.1")
    down.server.world["sick"].add("")
    await there.at(5, 10)
    for _ in range(3):
        there.balance.failed(third, 11.0)
    await there.at(15)
    after = await successor(world, there, "a.example", "192.0.2.9", rule=RULE, weight=5)
    # One that has gone, and its neighbours, who do not notice.
    assert after.balance.members == (first, third, down)
    assert gone not in after.balance.members
    assert [each.state for each in after.balance.members] == [
        MemberState.DOWN,
        MemberState.EJECTED,
        MemberState.DOWN,
    ]
    assert (third.failures, {each.weight for each in after.balance.members}) == (3, {5})
    # It is checked, and its name resolved, as before.
    down.server.world["sick"].clear()
    await after.at(20, 25)
    assert (first.state, down.state) == (MemberState.DOWN, MemberState.UP)
    there.origins[0].server.world["sick"].clear()
    await after.at(30, 35)
    assert first.state is MemberState.UP
    after.addresses = {"a.example": ["192.0.2.1", "192.0.2.3", "2001:db8::3"]}
    await after.at(45)
    assert after.places == ["192.0.2.1", "192.0.2.3", "2001:db8::3", "192.0.2.9"]
    assert after.balance.members[0] is first
    assert [each.address for each in first.server.rivals()] == ["2001:db8::3"]


async def test_a_successor_without_checks_takes_nobody_for_down(world):
    there = world("192.0.2.8", "192.0.2.9", rule=RULE)
    for origin in there.origins:
        origin.server.world["sick"].add("")
    there.upkeep.begin()
    await there.at(5, 10)
    assert [each.state for each in there.balance.members] == [MemberState.DOWN] * 2
    after = await successor(world, there, "192.0.2.8", "192.0.2.9")
    assert after.balance.members == there.balance.members
    assert [each.state for each in after.balance.members] == [MemberState.UP] * 2


async def test_a_successor_of_others_begins_anew(world):
    there = world("192.0.2.8", rule=RULE)
    there.origins[0].server.world["sick"].add("")
    there.upkeep.begin()
    await there.at(5, 10)
    after = world("192.0.2.8", rule=RULE)
    after.upkeep.succeed(there.upkeep)
    assert after.balance.members == tuple(after.origins)
    assert after.balance.members[0].state is MemberState.UP


async def test_it_begins_once(world):
    there = world("192.0.2.8", rule=RULE)
    there.upkeep.begin()
    there.upkeep.begin()
    assert len(there.origins[0].server.world["checks"]) == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://origin.example", ("origin.example", 80)),
        ("https://origin.example:8443/a", ("origin.example", 8443)),
        ("http://192.0.2.7", None),
        ("http://[2001:db8::7]:80", None),
        ("unix:///run/app.sock", None),
    ],
)
def test_what_is_a_name(url, name):
    assert OriginServer(url).name == name
    assert OriginServer(url).at("192.0.2.1").name is None
