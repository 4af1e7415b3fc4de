"""Byte ranges: asked for, held, missing (RFC 9110 §14)."""

import pytest

from univocal.cache.ranges import (
    MAX_RANGES,
    Slice,
    content_range,
    cut,
    excessive,
    missing,
    requested_ranges,
    within,
)
from univocal.cache.stored import Part


@pytest.mark.parametrize(
    ("value", "ranges"),
    [
        (b"bytes=0-4", [(0, 4)]),
        (b"Bytes = 0-4, 6-,-2", [(0, 4), (6, None), (None, 2)]),
        (b"bytes=4-0", None),
        (b"bytes=-", None),
        (b"bytes=a-b", None),
        (b"items=0-4", None),
        (b"bytes=" + b"0-0," * MAX_RANGES + b"1-1", None),
    ],
)
def test_ranges_that_are_asked_for(value, ranges):
    assert requested_ranges([(b"range", value)]) == ranges
    assert requested_ranges([(b"range", value), (b"range", value)]) is None


def test_so_many_ranges_are_not_passed_on():
    assert excessive([(b"range", b"bytes=" + b"0-0," * MAX_RANGES)])
    assert not excessive([(b"range", b"bytes=" + b"0-0," * (MAX_RANGES - 1))])


def test_ranges_that_touch_are_one():
    assert within([(0, 1), (2, 3), (None, 2), (20, None)], 10) == [Slice(0, 3, 0, 4), Slice(8, 9, 8, 10)]
    assert within([(None, 0)], 10) == []


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (b"bytes 0-4/10", Part(0, 4, 10)),
        (b"BYTES 0-4/*", Part(0, 4, None)),
        (b"bytes 4-0/10", None),
        (b"bytes 0-10/10", None),
        (b"bytes */10", None),
    ],
)
def test_the_octets_that_a_206_says_it_holds(value, part):
    assert content_range([(b"content-range", value)]) == part
    assert content_range([(b"content-range", value), (b"content-range", value)]) is None


@pytest.mark.parametrize(
    ("ranges", "part", "held", "piece"),
    [
        ([(2, 3)], Part(0, 4, 10), 5, Slice(2, 3, 2, 4)),
        ([(2, 5)], Part(0, 4, 10), 5, None),
        ([(6, None)], Part(5, 9, 10), 5, Slice(6, 9, 1, 5)),
        ([(6, None)], Part(5, 8, 10), 4, None),
        ([(None, 2)], Part(5, 9, 10), 5, Slice(8, 9, 3, 5)),
        ([(None, 2)], Part(0, 4, 10), 5, None),
        ([(0, 1), (3, 4)], Part(0, 4, 10), 5, None),
    ],
)
def test_the_part_that_answers_a_range(ranges, part, held, piece):
    assert cut(ranges, part, held) == piece


@pytest.mark.parametrize(
    ("part", "held", "lacking"),
    [
        (Part(0, 4, 10), 5, (5, None)),
        (Part(5, 9, 10), 5, (0, 4)),
        (Part(2, 4, 10), 3, None),
        (Part(0, 9, 10), 10, None),
        (Part(0, 4, 10), 4, None),
        (Part(0, 4, None), 5, None),
    ],
)
def test_the_one_range_that_is_missing(part, held, lacking):
    assert missing(part, held) == lacking
