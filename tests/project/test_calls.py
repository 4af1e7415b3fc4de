"""The ceilings of `python -m benchmarks.calls` hold: a regression guard without a clock."""

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.calls import CEILINGS, Ceiling, Counted, measured


@pytest.fixture(scope="module")
def counts():
    return measured()


@pytest.mark.parametrize("kind", CEILINGS)
def test_a_request_takes_no_more_calls_than_it_did(kind, counts):
    assert counts[kind].calls
    assert counts[kind].excess(CEILINGS[kind]) == ""


def test_the_page_names_the_modules_of_a_stored_miss(counts):
    page = Path(__file__).parents[2].joinpath("docs", "architecture.md").read_text("utf-8")
    section = page.partition("### A stored miss, module by module\n")[2].partition("\n## ")[0]
    called = {place.partition(":")[0] for place in counts["miss that is stored"].calls}
    assert called == set(re.findall(r"(?m)^\| `([\w/]+\.py)` \|", section))


@pytest.mark.parametrize("ceiling", [Ceiling(2, 2, 1), Ceiling(3, 1, 1), Ceiling(3, 2, 0)])
def test_an_excess_is_told_with_its_functions(ceiling):
    counted = Counted(Counter({"store/memory.py: MemoryStore.lookup": 1, "judge/hits.py: Hits.find": 2}))
    assert counted.excess(Ceiling(3, 2, 1)) == ""
    assert "   2 judge/hits.py: Hits.find" in counted.excess(ceiling)
