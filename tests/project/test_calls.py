"""The ceilings of `python -m benchmarks.calls` hold: a regression guard without a clock."""

from collections import Counter

import pytest

from benchmarks.calls import CEILINGS, Ceiling, Counted, measured


@pytest.fixture(scope="module")
def counts():
    return measured()


@pytest.mark.parametrize("kind", CEILINGS)
def test_a_request_takes_no_more_calls_than_it_did(kind, counts):
    assert counts[kind].calls
    assert counts[kind].excess(CEILINGS[kind]) == ""


@pytest.mark.parametrize("ceiling", [Ceiling(2, 2, 1), Ceiling(3, 1, 1), Ceiling(3, 2, 0)])
def test_an_excess_is_told_with_its_functions(ceiling):
    counted = Counted(Counter({"store/memory.py: MemoryStore.lookup": 1, "judge/hits.py: Hits.find": 2}))
    assert counted.excess(Ceiling(3, 2, 1)) == ""
    assert "   2 judge/hits.py: Hits.find" in counted.excess(ceiling)
