"""The clients that are connected: who gives way to whom, whose turn it is, what is logged of them."""

import logging

import pytest

from examples import cases
from support import Turns
from univocal.server.clients import ITERATION_SHARE, Clients, ConnectionLimits, Scheduler, SchedulerState
from univocal.server.listener import MOST, SPAN, Complaints


class Connection:
    """A connection, at rest since a time or under way."""

    def __init__(self, clients, rested, address="192.0.2.1", *, is_proxy=False):
        self.clients = clients
        self.rested = rested
        self.busy = self.gone = False
        self.objection = clients.enter(self, address, is_proxy=is_proxy)

    def is_resting(self):
        return not self.busy

    def evict(self):
        assert not self.gone
        self.gone = True
        self.clients.leave(self)  # as the transport does, later


def connected(clients, *times):
    return [Connection(clients, time) for time in times]


def test_the_connection_idle_the_longest_gives_way():
    clients = Clients(ConnectionLimits(3))
    one, two, three = connected(clients, 1, 2, 3)
    one.rested, two.rested = 9, 7  # each has been answered a request since
    four = Connection(clients, 10)
    assert [each.gone for each in (one, two, three)] == [False, False, True]
    Connection(clients, 11)
    assert [each.gone for each in (one, two, four)] == [False, True, False]
    Connection(clients, 12)
    assert (one.gone, four.gone, len(clients)) == (True, False, 3)


def test_a_newcomer_waits_until_a_busy_one_leaves():
    clients = Clients(ConnectionLimits(2))
    one, two = connected(clients, 1, 2)
    one.busy = two.busy = True
    late = Connection(clients, 3)
    assert late.objection == "overloaded"
    later = Connection(clients, 4)  # the one that is to be refused is the first to go
    assert (late.gone, later.objection, len(clients)) == (True, "overloaded", 3)
    clients.leave(two)
    assert clients.refusal_reason(later) == ""


def test_a_busy_connection_gives_way_once_it_is_answered():
    clients = Clients(ConnectionLimits(2))
    one, two = connected(clients, 1, 2)
    one.busy = two.busy = True
    clients.leave(Connection(clients, 3))
    one.busy, one.rested, two.busy, two.rested = False, 5, False, 4
    assert (Connection(clients, 6).objection, one.gone, two.gone) == ("", False, True)


def test_one_beyond_the_limit_makes_no_room_for_another():
    clients = Clients(ConnectionLimits(2))
    one, two = connected(clients, 1, 2)
    one.busy = two.busy = True
    late = Connection(clients, 3)
    one.busy, one.rested = False, 4
    later = Connection(clients, 5)
    assert (late.gone, one.gone, later.objection, len(clients)) == (True, True, "", 2)


def test_a_newcomer_asks_a_bounded_number_of_busy_ones():
    clients = Clients(ConnectionLimits(3_000))
    for one in connected(clients, *range(3_000)):
        one.busy = True
    asked = 0

    def is_resting(_):
        nonlocal asked
        asked += 1
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "is_resting", is_resting)
        assert Connection(clients, 5_000).objection == "overloaded"
    assert asked <= 1_000


def test_memory_of_closed_connections_is_bounded():
    clients = Clients(ConnectionLimits(3))
    for number in range(10_000):
        clients.leave(Connection(clients, number))
    assert len(clients._noted) < 1_000


@cases(
    "address, is_proxy, objections",
    ("192.0.2.1", False, ["", "", "too-many-requests"]),
    ("2001:db8::1", False, ["", "", "too-many-requests"]),
    ("10.0.0.1", True, ["", "", ""]),  # it stands for many
    (None, False, ["", "", ""]),
)
def test_each_client_has_so_many_connections(address, is_proxy, objections):
    clients = Clients(ConnectionLimits(0, 2))
    each = [Connection(clients, number, address, is_proxy=is_proxy) for number in range(3)]
    assert [one.objection for one in each] == objections
    other = Connection(clients, 4, "198.51.100.7")
    assert other.objection == ""
    clients.leave(each[0])
    assert clients.refusal_reason(each[2]) == ""


def test_one_that_is_to_be_refused_gives_way_before_others():
    clients = Clients(ConnectionLimits(3, 1))
    one = Connection(clients, 1, "192.0.2.1")
    Connection(clients, 2, "192.0.2.2")
    extra = Connection(clients, 3, "192.0.2.1")
    Connection(clients, 4, "192.0.2.3")
    assert (one.gone, extra.gone) == (False, True)


# A connection has its part of an iteration of the event loop, in steps and in seconds


class Loop(Turns):
    """An event loop, and a connection that works `costs`, one after the other."""

    def __init__(self):
        super().__init__()
        self.gone_on, self.costs, self.takes = 0, [], 0.0
        self.scheduler = Scheduler(self, self.time, 4, self.step, self.go_on)

    def step(self):
        self.now += self.takes
        assert self.scheduler.state is SchedulerState.WORKING
        return self.costs.pop(0)

    def go_on(self):
        self.gone_on += 1


@pytest.fixture
def loop():
    return Loop()


@cases(
    "costs, takes, is_done, left",
    ([1, 1, 0], 0.0, True, 0),  # nothing is left
    ([0], 0.0, True, 0),
    ([1, -1], 0.0, False, 0),  # what is left waits
    ([1, 1, 1, 1, 1, 1], 0.0, False, 2),  # so many steps
    ([3, 3, 3, 0], 0.0, False, 2),
    ([1, 1, 1, 1], ITERATION_SHARE / 2, False, 2),  # so many seconds
    ([1, 1, 0], ITERATION_SHARE / 4, True, 0),
)
def test_work_ends_with_its_steps_or_seconds(loop, costs, takes, is_done, left):
    loop.costs, loop.takes = [*costs], takes
    assert loop.scheduler.run() is is_done
    assert (len(loop.costs), loop.scheduler.state) == (left, SchedulerState.RESTING)


def test_work_goes_on_once_in_the_next_turn(loop):
    loop.scheduler.go_on_later()
    loop.scheduler.go_on_later()
    assert loop.scheduler.state is SchedulerState.WAITING
    loop.end_turn()
    assert (loop.gone_on, loop.scheduler.state) == (1, SchedulerState.RESTING)


def test_a_stopped_scheduler_works_no_more(loop):
    loop.scheduler.go_on_later()
    loop.scheduler.stop()
    loop.end_turn()
    assert loop.gone_on == 0
    assert not loop.scheduler.run()


def test_work_out_of_turn_is_an_error(loop):
    loop.scheduler.go_on_later()
    with pytest.raises(KeyError):
        loop.scheduler.run()


def test_a_step_that_fails_ends_the_work(loop):
    with pytest.raises(IndexError):
        loop.scheduler.run()
    assert loop.scheduler.state is SchedulerState.RESTING


# Complaints: a flood of faulty requests writes a few lines, and the next one says how many there were


def complaints(clock):
    return Complaints(logging.getLogger("uvicorn.error"), lambda: clock[0])


def test_a_few_are_written_as_they_come(caplog):
    told = complaints([5.0])
    for number in range(MOST - 1):
        told.note(f"no {number}")
    assert caplog.messages == [f"no {number}" for number in range(MOST - 1)]


def test_of_a_flood_the_rest_is_counted(caplog):
    clock = [5.0]
    told = complaints(clock)
    for _ in range(MOST + 1000):
        told.note("no")
    assert len(caplog.messages) == MOST
    assert "counted" in caplog.messages[-1]
    caplog.clear()
    clock[0] += SPAN
    told.note("again")
    assert caplog.messages == ["1000 more like these were not written", "again"]
    clock[0] += SPAN
    told.note("once more")
    assert caplog.messages[2:] == ["once more"]
