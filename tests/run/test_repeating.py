"""A call that is repeated, by a clock that the test sets."""

import pytest

from univocal_app.run.serve import Repeating


class Later:
    """Calls that are to come, in the order of their times."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def __call__(self, seconds, call):
        self.calls.append(Call(self, self.now + seconds, call))
        return self.calls[-1]

    def pass_to(self, now):
        while due := [each for each in self.calls if each.when <= now]:
            self.calls.remove(due[0])
            self.now = due[0].when
            due[0].call()
        self.now = now


class Call:
    def __init__(self, later, when, call):
        self.later, self.when, self.call = later, when, call

    def cancel(self):
        if self in self.later.calls:
            self.later.calls.remove(self)


def test_it_calls_again_and_again_until_its_end():
    later, calls = Later(), []
    repeating = Repeating(5, lambda: calls.append(later.now), later)
    repeating.begin()
    later.pass_to(4.9)
    assert calls == []
    later.pass_to(16)
    assert calls == [5, 10, 15]
    repeating.end()
    later.pass_to(100)
    assert (calls, later.calls) == ([5, 10, 15], [])


def test_beginning_twice_calls_no_more_often():
    later, calls = Later(), []
    repeating = Repeating(5, lambda: calls.append(later.now), later)
    repeating.begin()
    later.pass_to(3)
    repeating.begin()
    later.pass_to(14)
    assert calls == [8, 13]


def test_an_action_that_fails_is_not_the_last():
    later = Later()

    def fail():
        raise ValueError("no")

    Repeating(5, fail, later).begin()
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            later.pass_to(later.now + 5)


def test_an_action_may_end_it():
    later, calls = Later(), []

    def once():
        calls.append(later.now)
        repeating.end()

    repeating = Repeating(5, once, later)
    repeating.begin()
    later.pass_to(100)
    assert calls == [5]


async def test_without_a_clock_of_its_own_the_event_loop_calls():
    repeating = Repeating(600, lambda: None)
    repeating.begin()
    assert repeating._next is not None
    repeating.end()
    assert repeating._next is None
