"""The timer that moves: no event loop, no waiting."""

import gc
import math
import weakref

import pytest

from univocal.http.timer import Timer


class Scheduled:
    """A clock that a test sets, and what it is to call: a `Loop`, as far as timers use it."""

    def __init__(self):
        self.now, self.armed = 0.0, 0
        self.timers, self.due = [], []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        self.armed += 1
        handle = Handle(self, when, callback)
        self.timers.append(handle)
        return handle

    def pass_to(self, now):
        while due := [timer for timer in self.timers if timer.when <= now]:
            timer = min(due, key=lambda timer: timer.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.when)
            timer.callback()
        self.now = now


class Handle:
    def __init__(self, schedule, when, callback):
        self.schedule, self.when, self.callback = schedule, when, callback

    def cancel(self):
        self.schedule.timers.remove(self)


@pytest.fixture
def clock():
    return Scheduled()


@pytest.fixture
def due(clock):
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


def test_a_closed_timer_leaves_nothing_scheduled(clock, due):
    due.close()
    due.set(5)
    due.close()
    assert clock.timers == []
    clock.pass_to(math.inf)
    assert clock.due == []


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
