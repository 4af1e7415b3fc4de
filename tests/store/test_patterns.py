"""Patterns of URLs: what RE2 may take for one, in memory and in time."""

import random
from pathlib import Path

import pytest

from examples import cases, examples
from univocal.store.purge_selectors import compiled

pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")


def resident():
    """The process's resident size in octets."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@cases(
    "expression",
    "",
    "a" * 1025,
    *("(", "a{0,900}b|c", "(?:abcdefghijklmnopqrst){0,900}", "(?:[^a]{20}b){50}"),
    "(?:(?:a{10}){10}){9}b{300}",
)
def test_invalid_and_costly_patterns_are_refused(expression):
    with pytest.raises(ValueError, match="pattern"):
        compiled(expression)


@pytest.mark.parametrize(
    "expression",
    ["a" * 1024, "|".join(f"/wiki/Page_{number}" for number in range(60)), "[ab]{500}", "(?i)/a.*/b$"],
)
def test_ordinary_patterns_are_accepted(expression):
    assert not compiled(expression).search(b"http://en.example/")


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the resident size is read as Linux tells it"
)
@pytest.mark.parametrize(
    "expression",
    ["(?:a|b)*a(?:a|b){12}c%d", "[ab]*a[ab]{300}c%d", "a?" * 500 + "%d", r"\w[aeiou]\pL[^a]" * 60 + "%d"],
)
def test_no_pattern_takes_more_than_70_kib(expression):
    draw = random.Random(1)
    urls = [bytes(draw.choices(b"ab", k=length)) for length in (200, 800, 2000, 8000)]
    urls += [bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz/%.", k=900))]
    before = resident()
    patterns = [compiled(expression % number) for number in range(examples(300))]
    for pattern in patterns:
        for url in urls:
            pattern.search(url)
    assert (resident() - before) / len(patterns) < 70 << 10


def test_a_url_too_costly_for_a_pattern_counts_as_found():
    large = compiled("[ab]*a[ab]{900}c")
    assert not large.search(b"http://en.example/" + b"x" * 1_000)
    assert large.search(b"http://en.example/" + b"x" * 1_200)
    assert not compiled("/wiki/.*foo$").search(b"http://en.example/" + b"x" * 8_192)
