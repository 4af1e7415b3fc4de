"""The timer that moves, and calls of many connections that are made together: no event loop, no waiting."""

import gc
import math
import weakref

import pytest

from support import Clock, Turns
from univocal.http.timer import Timer, batch_of


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


# Calls of many connections are made together, at the end of an event loop's iteration


class Loop(Turns):
    def __init__(self):
        super().__init__()
        self.errors = []

    def call_exception_handler(self, context):
        self.errors.append(context["exception"])


@pytest.fixture
def loop():
    return Loop()


def test_calls_are_made_in_order_as_the_turn_ends(loop):
    made = []
    for number in range(3):
        batch_of(loop).add(loop, lambda number=number: made.append(number))
    assert made == []
    loop.end_turn()
    assert made == [0, 1, 2]


def test_a_turn_costs_one_call_and_an_idle_one_none(loop):
    for _ in range(3):
        batch_of(loop).add(loop, lambda: None)
    assert len(loop.soon) == 1
    loop.end_turn()
    assert loop.soon == []


def test_a_call_that_a_call_adds_waits_a_turn(loop):
    made = []
    batch = batch_of(loop)
    batch.add(loop, lambda: batch.add(loop, lambda: made.append("later")))
    loop.end_turn()
    assert made == []
    loop.end_turn()
    assert made == ["later"]


def test_an_error_is_reported_and_the_other_calls_are_made(loop):
    made, error = [], ValueError("one")

    def fails():
        raise error

    batch_of(loop).add(loop, fails)
    batch_of(loop).add(loop, lambda: made.append(2))
    loop.end_turn()
    assert (made, loop.errors) == ([2], [error])


def test_each_loop_has_its_own_batch_and_takes_it_along():
    one, other = Loop(), Loop()
    assert batch_of(one) is batch_of(one) is not batch_of(other)

    def waiting():
        """Wait for a turn that never ends."""

    batch_of(one).add(one, waiting)
    held = weakref.ref(waiting)
    del one, waiting
    gc.collect()
    assert held() is None
