"""The timer that moves: no event loop, no waiting."""

import math

import pytest

from univocal.origin.timeouts import Timer


@pytest.fixture
def due(clock):
    clock.due = []
    return Timer(clock, lambda: clock.due.append(clock.now))


def test_a_timer_is_due_once(clock, due):
    due.set(5)
    clock.pass_to(4.9)
    assert clock.due == []
    clock.pass_to(100)
    assert clock.due == [5]


def test_a_timer_moves_and_costs_nothing_in_the_event_loop(clock, due):
    for second in range(100):
        clock.pass_to(second)
        due.set(60)
    assert clock.armed <= 3
    clock.pass_to(1000)
    assert clock.due == [159]


def test_a_timer_moves_nearer(clock, due):
    due.set(60)
    due.set(1)
    clock.pass_to(100)
    assert clock.due == [1]


@pytest.mark.parametrize("how", [Timer.clear, lambda due: due.set(None)])
def test_a_cleared_timer_is_not_due(clock, due, how):
    due.set(5)
    how(due)
    clock.pass_to(10)
    assert clock.due == []
    due.set(5)
    clock.pass_to(20)
    assert clock.due == [15]


def test_a_closed_timer_leaves_nothing_in_the_event_loop(clock, due):
    due.close()
    due.set(5)
    due.close()
    assert clock.timers == []
    clock.pass_to(math.inf)
    assert clock.due == []
