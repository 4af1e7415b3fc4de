"""The timer that moves: no event loop, no waiting."""

import gc
import math
import weakref

import pytest

from support import Clock
from univocal.http.timer import Timer


@pytest.fixture
def clock():
    return Clock(0.0)


@pytest.fixture
def calls():
    """The times at which the timer was due."""
    return []


@pytest.fixture
def due(clock, calls):
    return Timer(clock, lambda: calls.append(clock.now))


def test_a_timer_is_due_once(clock, due, calls):
    due.set(5)
    clock.pass_to(4.9)
    assert calls == []
    clock.pass_to(100)
    assert calls == [5]


def test_a_timer_moves_and_costs_nothing_in_the_event_loop(clock, due, calls):
    for second in range(100):
        clock.pass_to(second)
        due.set(60)
    assert clock.armed <= 3
    clock.pass_to(1000)
    assert calls == [159]


def test_a_timer_that_was_due_keeps_nothing_of_its_call(clock, due, calls):
    due.set(5)
    call = weakref.ref(clock.timers[0])
    clock.pass_to(5)
    assert (calls, call()) == ([5], None)


def test_a_timer_moves_nearer(clock, due, calls):
    due.set(60)
    due.set(1)
    clock.pass_to(100)
    assert calls == [1]


@pytest.mark.parametrize("how", [Timer.clear, lambda due: due.set(None)])
def test_a_cleared_timer_is_not_due(clock, due, calls, how):
    due.set(5)
    how(due)
    clock.pass_to(10)
    assert calls == []
    due.set(5)
    clock.pass_to(20)
    assert calls == [15]


def test_a_closed_timer_leaves_nothing_scheduled(clock, due, calls):
    due.close()
    due.set(5)
    due.close()
    assert clock.timers == []
    clock.pass_to(math.inf)
    assert calls == []


def test_a_closed_timer_lets_its_owner_go(clock):
    class Owner:
        def __init__(self):
            self.timer = Timer(clock, self.look)
            self.timer.set(5)

        def look(self):
            pass

    owner = Owner()
    gone = weakref.ref(owner)
    owner.timer.close()
    gc.disable()
    try:
        del owner
        assert gone() is None
    finally:
        gc.enable()
