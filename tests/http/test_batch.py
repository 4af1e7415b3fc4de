"""Calls of many connections are made together, at the end of an event loop's iteration."""

import gc
import weakref

import pytest

from univocal.http.timer import batch_of


class Loop:
    def __init__(self):
        self.soon, self.errors = [], []

    def call_soon(self, callback, *arguments):
        self.soon.append((callback, arguments))

    def call_exception_handler(self, context):
        self.errors.append(context["exception"])

    def turn(self):
        calls, self.soon = self.soon, []
        for callback, arguments in calls:
            callback(*arguments)


@pytest.fixture
def loop():
    return Loop()


def test_calls_are_made_in_order_as_the_turn_ends(loop):
    made = []
    for number in range(3):
        batch_of(loop).add(loop, lambda number=number: made.append(number))
    assert made == []
    loop.turn()
    assert made == [0, 1, 2]


def test_a_turn_costs_one_call_and_an_idle_one_none(loop):
    for _ in range(3):
        batch_of(loop).add(loop, lambda: None)
    assert len(loop.soon) == 1
    loop.turn()
    assert loop.soon == []


def test_a_call_that_a_call_adds_waits_a_turn(loop):
    made = []
    batch = batch_of(loop)
    batch.add(loop, lambda: batch.add(loop, lambda: made.append("later")))
    loop.turn()
    assert made == []
    loop.turn()
    assert made == ["later"]


def test_an_error_is_reported_and_the_other_calls_are_made(loop):
    made, error = [], ValueError("one")

    def fails():
        raise error

    batch_of(loop).add(loop, fails)
    batch_of(loop).add(loop, lambda: made.append(2))
    loop.turn()
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
