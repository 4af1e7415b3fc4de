"""The retries that there may be within ten seconds."""

from __future__ import annotations

from univocal.origin.balance import RetryBudget


def granted(budget: RetryBudget, now: float) -> int:
    number = 0
    while budget.spend(now):
        number += 1
    return number


def test_ten_seconds_count():
    budget = RetryBudget(0.5)
    for _ in range(100):
        budget.earn(7.5)
    assert granted(budget, 16.9) == 50
    assert granted(budget, 17.0) == 0  # the retries of a moment ago, and the requests are forgotten
    assert granted(budget, 25.9) == 0
    assert granted(budget, 26.0) == 3
    assert granted(budget, 1e9) == 3
