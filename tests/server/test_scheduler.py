"""A connection has its part of an iteration of the event loop, in steps and in seconds."""

import pytest

from univocal.server.clients import ITERATION_SHARE, Scheduler, SchedulerState


class Loop:
    """The next turn of an event loop, its clock, and a connection that works `costs`, one after the other."""

    def __init__(self):
        self.now, self.soon, self.gone_on, self.costs, self.takes = 0.0, [], 0, [], 0.0
        self.scheduler = Scheduler(self, lambda: self.now, 4, self.step, self.go_on)

    def call_soon(self, call):
        self.soon.append(call)

    def step(self):
        self.now += self.takes
        assert self.scheduler.state is SchedulerState.WORKING
        return self.costs.pop(0)

    def go_on(self):
        self.gone_on += 1

    def turn(self):
        soon, self.soon = self.soon, []
        for call in soon:
            call()


@pytest.fixture
def loop():
    return Loop()


@pytest.mark.parametrize(
    ("costs", "takes", "is_done", "left"),
    [
        ([1, 1, 0], 0.0, True, 0),  # nothing is left
        ([0], 0.0, True, 0),
        ([1, -1], 0.0, False, 0),  # what is left waits
        ([1, 1, 1, 1, 1, 1], 0.0, False, 2),  # so many steps
        ([3, 3, 3, 0], 0.0, False, 2),
        ([1, 1, 1, 1], ITERATION_SHARE / 2, False, 2),  # so many seconds
        ([1, 1, 0], ITERATION_SHARE / 4, True, 0),
    ],
)
def test_work_ends_with_its_steps_or_seconds(loop, costs, takes, is_done, left):
    loop.costs, loop.takes = [*costs], takes
    assert loop.scheduler.run() is is_done
    assert (len(loop.costs), loop.scheduler.state) == (left, SchedulerState.RESTING)


def test_work_goes_on_once_in_the_next_turn(loop):
    loop.scheduler.go_on_later()
    loop.scheduler.go_on_later()
    assert loop.scheduler.state is SchedulerState.WAITING
    loop.turn()
    assert (loop.gone_on, loop.scheduler.state) == (1, SchedulerState.RESTING)


def test_a_stopped_scheduler_works_no_more(loop):
    loop.scheduler.go_on_later()
    loop.scheduler.stop()
    loop.turn()
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
