"""Every address of a name is a member of the balance; when members are checked, and who is up."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from tests.origin.conftest import turns
from univocal.http.errors import RefusedError
from univocal.http.messages import Response
from univocal.origin.addresses import resolved
from univocal.origin.servers import Balance, Balancing, Member, MemberState, OriginServer
from univocal.origin.upkeep import Check, HealthRule, HealthTally, Upkeep, statuses


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
            await turns(10)

    @property
    def places(self):
        return [member.server.address or member.server.host for member in self.balance.members]

    @property
    def states(self):
        return [each.state.value for each in self.balance.members]

    def member(self, address):
        (member,) = [each for each in self.balance.members if each.server.address == address]
        return member


@pytest.fixture
def world(clock):
    def make(*names, **settings):
        return World(clock, *names, **settings)

    return make


@pytest.fixture
def begun(world):
    async def begin(*names, addresses, **settings):
        there = world(*names, **settings)
        there.addresses = addresses
        there.upkeep.begin()
        await there.at(0)
        return there

    return begin


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


async def test_an_address_that_stays_keeps_its_state(begun, world):
    there = await begun("a.example", addresses={"a.example": ["192.0.2.1", "192.0.2.2"]})
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


async def test_requests_before_the_name_was_resolved_are_counted(world):
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


async def test_a_member_that_was_not_reached_has_its_name_resolved(begun):
    there = await begun("a.example", addresses={"a.example": ["192.0.2.1"]})
    await there.at(10)
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


async def test_checks_take_a_member_down_and_bring_it_back(begun, world, caplog):
    caplog.set_level(logging.WARNING, "univocal")
    there = await begun(
        "192.0.2.8", "a.example", rule=RULE, addresses={"a.example": ["192.0.2.1", "192.0.2.2"]}
    )
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
    assert caplog.messages == [
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
    assert caplog.messages == said
    await there.at(20)
    there.balance.answered(only, 20.0)
    said.append("http://192.0.2.8 is up again: it has answered")
    assert caplog.messages == said


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
    assert caplog.messages == [
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


async def test_nothing_is_resolved_or_checked_after_the_end(begun, world, clock):
    there = await begun("a.example", "192.0.2.8", rule=RULE, addresses={"a.example": ["192.0.2.1"]})
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


async def test_a_successor_knows_all_that_was_known(begun, world):
    there = await begun(
        "a.example",
        "192.0.2.9",
        "192.0.2.7",
        rule=RULE,
        addresses={"a.example": ["192.0.2.1", "2001:db8::1"]},
    )
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
    assert after.states == ["down", "ejected", "down"]
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
    assert there.states == ["down"] * 2
    after = await successor(world, there, "192.0.2.8", "192.0.2.9")
    assert after.balance.members == there.balance.members
    assert after.states == ["up"] * 2


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


@cases(
    "url, name",
    ("http://origin.example", ("origin.example", 80)),
    ("https://origin.example:8443/a", ("origin.example", 8443)),
    ("http://192.0.2.7", None),
    ("http://[2001:db8::7]:80", None),
    ("unix:///run/app.sock", None),
)
def test_hosts_that_are_no_addresses_are_names(url, name):
    assert OriginServer(url).name == name
    assert OriginServer(url).at("192.0.2.1").name is None


# An origin server is up or down after so many checks in a row


def judged(checks, rises=2, falls=3):
    """The state after each check; "+" is one that passes."""
    tally = HealthTally(HealthRule(b"/", rises=rises, falls=falls))
    said = ""
    for check in checks:
        before = tally.up
        changed = tally.hear(passed=check == "+")
        assert changed == (tally.up is not before)
        said += "u" if tally.up else "d"
    return said


@cases(
    "checks, states, settings",
    ("", "", {}),
    ("+++", "uuu", {}),
    ("---", "uud", {}),
    ("--+--+---", "uuuuuuuud", {}),
    ("---+-++", "uuddddu", {}),
    ("---++---", "uudduuud", {}),
    ("-+-+", "dudu", {"rises": 1, "falls": 1}),
    ("-+++", "dddu", {"rises": 3, "falls": 1}),
)
def test_rises_and_falls(checks, states, settings):
    assert judged(checks, **settings) == states


@given(st.text("+-", max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_a_state_ends_after_exactly_so_many_in_a_row(checks, rises, falls):
    states = "u" + judged(checks, rises, falls)
    for number, (before, after) in enumerate(pairwise(states), 1):
        row = falls if before == "u" else rises
        against = ("-" if before == "u" else "+") * row
        # Those before the last change belong to the state that it ended.
        since = max((at for at in range(1, number) if states[at] != states[at - 1]), default=0)
        assert (after != before) == checks[since:number].endswith(against)


@cases(
    "text, some, none",
    ("200-399", {200, 301, 399}, {199, 400, 500}),
    ("200", {200}, {201}),
    ("200, 204,301-308", {200, 204, 301, 308}, {201, 300, 309}),
    ("100-599", {100, 599}, {600}),
)
def test_statuses_are_listed_by_number_and_range(text, some, none):
    assert some <= statuses(text)
    assert not none & statuses(text)


@cases("text", "", "2xx", "200-", "-200", "399-200", "99", "600", "200 204", "200,,204", "٢٠٠")
def test_an_invalid_list_of_statuses_is_refused(text):
    with pytest.raises(ValueError, match="status codes and ranges"):
        statuses(text)


# The times of checks, and the answers that pass: no event loop, no waiting


class Checked:
    """An origin server that answers a check with its `status`, with a failure (0), or not at all (None)."""

    def __init__(self, clock):
        self.clock, self.status, self.asked, self.cancelled = clock, 200, [], 0

    def ask(self, request, answer):
        asked = request.method, request.target, request.fields, request.content
        self.asked.append((self.clock.now, *asked))
        self.answer = answer
        if self.status == 0:
            answer.fail(RefusedError("origin-unreachable"))
        elif self.status is not None:
            answer.start(Response(self.status, []))
            answer.write(b"well")
            answer.finish()
        return self

    def pause(self): ...
    def resume(self): ...

    def cancel(self):
        self.cancelled += 1

    @property
    def times(self):
        return [asked[0] for asked in self.asked]


@pytest.fixture
def checked(clock):
    return Checked(clock)


@pytest.fixture
def told():
    return []


@pytest.fixture
def reasons():
    return []


@pytest.fixture
def begin(clock, checked, told, reasons):
    def heard(passed, reason):
        told.append(passed)
        reasons.append(reason)

    def begin(share=1.0, **settings):
        check = Check(checked.ask, HealthRule(b"/healthz?a", **settings), b"en.example", heard, clock, share)
        check.begin()
        return check

    return begin


def test_checks_are_spread_in_time(begin, checked, clock):
    begin(share=0.25)
    clock.pass_to(12)
    assert checked.times == [0, 1.25, 6.25, 11.25]


def test_late_responses_fail_and_are_given_up(begin, checked, clock, told, reasons):
    checked.status = None
    begin()
    clock.pass_to(1.9)
    assert (told, checked.cancelled) == ([], 0)
    clock.pass_to(4)
    assert (told, checked.cancelled) == ([False], 1)
    clock.pass_to(7)
    assert (told, checked.times) == ([False] * 2, [0, 5])
    assert reasons == ["timeout"] * 2


def test_content_without_end_is_given_up_and_the_head_counts(begin, checked, clock, told):
    checked.status = None
    begin()
    checked.answer.start(Response(200, []))
    assert told == [True]
    checked.answer.write(bytes(40_000))
    assert checked.cancelled == 0
    checked.answer.write(bytes(40_000))
    assert (told, checked.cancelled) == ([True], 1)
    clock.pass_to(6)
    assert checked.times == [0, 5]


def test_content_that_never_ends_is_given_up_in_time(begin, checked, clock, told):
    checked.status = None
    begin()
    checked.answer.start(Response(503, []))
    clock.pass_to(6)
    assert (told, checked.cancelled, checked.times) == ([False], 1, [0, 5])


def test_a_check_is_cancelled_at_the_end_and_none_follows(begin, checked, clock, told):
    checked.status = None
    check = begin()
    check.close()
    clock.pass_to(100)
    assert (told, checked.cancelled, checked.times, clock.timers) == ([], 1, [0], [])


def test_the_listener_of_a_check_may_close_it(checked, clock):
    def told(passed, reason):
        check.close()

    check = Check(checked.ask, HealthRule(b"/"), b"a", told, clock)
    check.begin()
    clock.pass_to(100)
    assert (checked.times, clock.timers) == ([0], [])
