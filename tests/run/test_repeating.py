"""A call that is repeated, by a clock that the test sets."""

import pytest

from support import Clock
from univocal_app.run.serve import Repeating


@pytest.fixture
def clock():
    return Clock(0.0)


def test_it_calls_again_and_again_until_its_end(clock):
    calls = []
    repeating = Repeating(5, lambda: calls.append(clock.now), clock.call_later)
    repeating.begin()
    clock.pass_to(4.9)
    assert calls == []
    clock.pass_to(16)
    assert calls == [5, 10, 15]
    repeating.end()
    clock.pass_to(100)
    assert (calls, clock.timers) == ([5, 10, 15], [])


def test_beginning_twice_calls_no_more_often(clock):
    calls = []
    repeating = Repeating(5, lambda: calls.append(clock.now), clock.call_later)
    repeating.begin()
    clock.pass_to(3)
    repeating.begin()
    clock.pass_to(14)
    assert calls == [8, 13]


def test_an_action_that_fails_is_not_the_last(clock):
    def fail():
        raise ValueError("no")

    Repeating(5, fail, clock.call_later).begin()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            clock.pass_to(clock.now + 5)


def test_an_action_may_end_it(clock):
    calls = []

    def once():
        calls.append(clock.now)
        repeating.end()

    repeating = Repeating(5, once, clock.call_later)
    repeating.begin()
    clock.pass_to(100)
    assert calls == [5]


async def test_without_a_clock_of_its_own_the_event_loop_calls():
    repeating = Repeating(600, lambda: None)
    repeating.begin()
    assert repeating._next is not None
    repeating.end()
    assert repeating._next is None
