"""Sums by second, among the counts of a process."""

import pytest

from univocal_app.observe.counts import Counts
from univocal_app.observe.families import BYTES, ENTRIES, SECONDS
from univocal_app.observe.series import (
    COARSE,
    FINE,
    FINE_BOUNDS,
    Series,
    Sums,
    held_by_step,
    stored_of,
    sums_by_step,
    sums_of,
)

KEPT = FINE.kept


def counted(counts, sent):
    counts.cells[counts.place((BYTES, "a"))] += sent
    counts.cells[counts.place((SECONDS, "hit"), 2 + len(FINE_BOUNDS)) + 1] += 1


def test_a_second_has_the_counts_until_the_next():
    counts = Counts()
    series = Series(counts)
    for second in (7, 8, 11):
        series.begin(second)
        counted(counts, second)
    found = {second: sums[Sums.BYTES] for second, sums in sums_by_step(counts.of)}
    assert found == {7: 7, 8: 8, 11: 11}
    assert sums_of(counts.of)[Sums.HITS] == 3


def test_the_oldest_seconds_give_way(tmp_path):
    counts = Counts(tmp_path / "1.counts")
    series = Series(counts)
    for second in range(KEPT):
        series.begin(second)
        counted(counts, 1)
    series = Series(Counts(tmp_path / "1.counts"))  # another goes on
    for second in range(KEPT, KEPT + 5):
        series.begin(second)
        counted(counts, 1)
    seconds = [second for second, _ in sums_by_step(counts.of)]
    assert seconds == list(range(5, KEPT + 5))


def test_a_coarse_step_has_what_was_counted_in_15_seconds(tmp_path):
    counts = Counts(tmp_path / "1.counts")
    fine, coarse = Series(counts), Series(counts, COARSE)
    for second in (30, 31, 44, 45, 60, 74):
        for series in (fine, coarse):
            series.begin(second)
        counted(counts, second)
    coarse = Series(Counts(tmp_path / "1.counts"), COARSE)  # another goes on
    coarse.begin(75)
    found = {second: sums[Sums.BYTES] for second, sums in sums_by_step(counts.of, COARSE)}
    assert found == {30: 30 + 31 + 44, 45: 45, 60: 60 + 74, 75: 0}
    assert len(list(sums_by_step(counts.of))) == 6


def test_a_row_holds_what_was_stored_when_its_second_began():
    counts = Counts()
    series = Series(counts)
    for second, responses in ((5, 1), (7, 4)):
        counts.cells[counts.place((ENTRIES,))] = responses
        series.begin(second)
    counts.cells[counts.place((ENTRIES,))] = 9
    held = held_by_step(counts.of, 3, 8)
    assert [numbers[0] for numbers in held] == [1, 1, 4, 4, 9, 9]


@pytest.mark.parametrize("left", [float("nan"), 0.0])
def test_a_process_that_has_ended_holds_nothing(left):
    counts = Counts()
    counts.cells[counts.place((ENTRIES,))] = left
    assert stored_of(counts.of) == [0.0, 0.0, 0.0, 0.0]
