"""Queues: a few at a time, in order; nothing is left of those who are done."""

from __future__ import annotations

from univocal.engine.queues import AT_ONCE, Place, Queues


class Line:
    """Those who want their turn; `gone` are those who had it."""

    def __init__(self, count: int, *, at_once: bool = False) -> None:
        self.queues = Queues()
        self.gone: list[int] = []
        self.all: list[Place] = []
        for number in range(count):
            self.all.append(self.queues.place("name", lambda number=number: self.go(number, at_once)))
            self.all[-1].begin()

    def go(self, number: int, at_once: bool) -> None:
        self.gone.append(number)
        if at_once:
            self.all[number].end()


def test_a_few_go_and_each_end_lets_the_next_go() -> None:
    line = Line(3 * AT_ONCE)
    assert line.gone == [*range(AT_ONCE)]
    line.all[3].end()
    line.all[3].end()
    assert line.gone == [*range(AT_ONCE + 1)]
    for place in line.all:
        place.end()
    assert len(line.queues) == 0


def test_whoever_leaves_while_it_waits_is_passed_over() -> None:
    line = Line(AT_ONCE + 3)
    line.all[AT_ONCE].end()
    line.all[0].end()
    assert line.gone == [*range(AT_ONCE), AT_ONCE + 1]


def test_lines_of_different_names_do_not_wait_for_one_another() -> None:
    line = Line(AT_ONCE + 1)
    line.queues.place("other", lambda: line.gone.append(-1)).begin()
    assert line.gone[-1] == -1
    assert len(line.queues) == 2


def test_ten_thousand_that_are_done_at_once_do_not_nest() -> None:
    line = Line(AT_ONCE)
    for number in range(AT_ONCE, 10_000):
        line.all.append(line.queues.place("name", lambda number=number: line.go(number, True)))
        line.all[-1].begin()
    line.all[0].end()
    assert line.gone == [*range(10_000)]
