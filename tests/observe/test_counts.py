"""Numbers in a process's own memory, or in a file that others read while it counts."""

import math

import pytest

from univocal_app.observe.counts import CELL, STEP, Counts, grouped, numbers, numbers_of


@pytest.mark.parametrize("shared", [True, False])
def test_numbers_stay_when_the_memory_grows(tmp_path, shared):
    file = tmp_path / "1.counts" if shared else None
    counts = Counts(file)
    for number in range(5000):
        place = counts.place(("name", str(number)), 2)
        counts.cells[place] += number
        counts.cells[place + 1] += 0.5
    expected = [(("name", str(number)), [number, 0.5]) for number in range(5000)]
    assert list(counts) == expected
    assert file is None or file.stat().st_size > STEP
    assert file is None or list(Counts(file)) == expected


@pytest.mark.parametrize("size", [0, 3, 8, STEP, STEP + 3])
def test_a_file_whose_process_was_killed_early_is_used(tmp_path, size):
    file = tmp_path / "1.counts"
    file.write_bytes(bytes(size))
    assert list(numbers_of(file)) == []
    counts = Counts(file)
    counts.cells[counts.place(("a",))] += 1
    assert list(Counts(file)) == list(numbers_of(file)) == [(("a",), [1.0])]


def test_a_record_that_was_cut_off_is_none(tmp_path):
    counts = Counts(tmp_path / "1.counts")
    counts.cells[counts.place(("a",))] = math.pi
    place = counts.place(("b",))
    memoryview(counts.cells).cast("B").cast("q")[place - 3] = 0  # its length, which is written last
    again = Counts(tmp_path / "1.counts")
    assert list(again) == [(("a",), [math.pi])]
    assert again.place(("longer than b",)) > place
    assert [name for name, _ in again] == [("a",), ("longer than b",)]


def test_a_reader_that_mapped_less_sees_whole_records():
    counts = Counts()
    for name in ("a", "much longer than b", "c"):
        counts.place((name,), 2)
    expected, cells = list(counts), memoryview(counts.cells).cast("B").cast("Q")
    mapped = [list(numbers(cells[:count])) for count in range(20)]
    assert mapped == sorted(mapped, key=len)
    assert all(some == expected[: len(some)] for some in mapped)
    assert {len(some) for some in mapped} == {0, 1, 2, 3}


def test_numbers_are_found_by_the_first_word_of_their_names(tmp_path):
    counts = Counts(tmp_path / "1.counts")
    for name in (("bytes", "a"), ("bytes", "b"), ("purges", "tag")):
        counts.cells[counts.place(name)] += len(name[1])
    expected = [(("a",), [1.0]), (("b",), [1.0])]
    for of in (counts.of, Counts(tmp_path / "1.counts").of, grouped(dict(numbers_of(tmp_path / "1.counts")))):
        assert [(rest, list(numbers)) for rest, numbers in of("bytes")] == expected
        assert list(of("none")) == []


def test_a_reader_sees_what_another_counts_at_once(tmp_path):
    file = tmp_path / "1.counts"
    counts = Counts(file)
    place = counts.place(("a",), 2)
    assert list(numbers_of(file)) == [(("a",), [0.0, 0.0])]
    counts.cells[place + 1] += 7
    assert list(numbers_of(file)) == [(("a",), [0.0, 7.0])]
    assert file.stat().st_size % CELL == 0


def test_numbers_and_histograms_go_on_from_what_is_there(tmp_path):
    file = tmp_path / "1.counts"
    for runs in (1.0, 2.0):
        counts = Counts(file)
        counts.number(("a",)).add(2)
        counts.number(("a",)).add()
        counts.histogram(("b",), (0.5, 1.0)).add(0.5, 2)
        counts.histogram(("b",), (0.5, 1.0)).add(1.5)
        assert list(numbers_of(file)) == [
            (("a",), [3.0 * runs]),
            (("b",), [2.5 * runs, 2.0 * runs, 0.0, 1.0 * runs]),
        ]
