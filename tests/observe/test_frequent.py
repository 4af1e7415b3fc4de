"""The most frequent of many keys, in bounded memory."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from univocal_app.observe.top import Frequent

MOST = 5


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=300))
def test_sums_are_never_too_small_nor_much_too_large(added):
    frequent, exact = Frequent[int](MOST), Counter[int]()
    for key, weight in added:
        frequent.add(key, weight)
        exact[key] += weight
    sums = dict(frequent)
    assert len(sums) <= 2 * MOST
    for key, number in sums.items():
        assert exact[key] <= number <= exact[key] + exact.total() / MOST
    for key, number in exact.items():
        if number > exact.total() / MOST:
            assert key in sums


@given(st.lists(st.integers(0, 2 * MOST - 1)))
def test_few_keys_are_counted_exactly(keys):
    frequent = Frequent[int](MOST)
    for key in keys:
        frequent.add(key)
    assert dict(frequent) == Counter(keys)
