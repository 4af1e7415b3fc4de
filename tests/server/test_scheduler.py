"""A connection has its part of a turn of the event loop, in steps and in seconds."""

import pytest

from univocal.server.scheduler import A_TURN, Pace, Scheduler


class Loop:
    """The next turn of an event loop, and its clock."""

    def __init__(self):
        self.now, self.soon, self.gone_on = 0.0, [], 0

    def call_soon(self, call):
        self.soon.append(call)

    def go_on(self):
        self.gone_on += 1

    def turn(self):
        soon, self.soon = self.soon, []
        for call in soon:
            call()


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def scheduler(loop):
    return Scheduler(loop, lambda: loop.now, 3, loop.go_on)


def test_steps_end_the_work_of_a_turn(scheduler):
    assert scheduler.begin()
    scheduler.spend(2)
    assert scheduler.has_time()
    scheduler.spend(1)
    assert not scheduler.has_time()
    scheduler.end()
    assert scheduler.begin()
    assert scheduler.has_time()


def test_time_ends_the_work_of_a_turn(scheduler, loop):
    scheduler.begin()
    loop.now = A_TURN - 0.0001
    assert scheduler.has_time()
    loop.now = A_TURN
    assert not scheduler.has_time()


def test_work_goes_on_once_in_the_next_turn(scheduler, loop):
    scheduler.begin()
    assert not scheduler.begin()  # it is under way
    scheduler.end()
    scheduler.go_on_later()
    scheduler.go_on_later()
    assert (scheduler.pace, scheduler.begin()) == (Pace.WAITING, False)
    loop.turn()
    assert (loop.gone_on, scheduler.pace) == (1, Pace.RESTING)


def test_a_stopped_scheduler_goes_on_no_more(scheduler, loop):
    scheduler.go_on_later()
    scheduler.stop()
    loop.turn()
    assert loop.gone_on == 0


@pytest.mark.parametrize(("first", "then"), [((), "end"), (("begin",), "go_on_later")])
def test_moves_out_of_turn_are_errors(scheduler, first, then):
    for each in first:
        getattr(scheduler, each)()
    with pytest.raises(KeyError):
        getattr(scheduler, then)()
