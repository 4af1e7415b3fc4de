"""The retries that there may be within ten seconds."""

import pytest

from univocal.origin.balance import RetryBudget


def granted(budget, now):
    number = 0
    while budget.spend(now):
        number += 1
    return number


@pytest.mark.parametrize(
    ("share", "requests", "retries"),
    [(0.2, 0, 3), (0.2, 15, 3), (0.2, 19, 3), (0.2, 20, 4), (0.2, 1000, 200), (0, 1000, 3), (1, 50, 50)],
)
def test_a_share_of_the_requests_and_always_three(share, requests, retries):
    budget = RetryBudget(share)
    for _ in range(requests):
        budget.earn(1000)
    assert granted(budget, 1000) == retries


def test_ten_seconds_count():
    budget = RetryBudget(0.5)
    for _ in range(100):
        budget.earn(7.5)
    assert granted(budget, 16.9) == 50
    assert granted(budget, 17.0) == 0  # the retries of a moment ago, and the requests are forgotten
    assert granted(budget, 25.9) == 0
    assert granted(budget, 26.0) == 3
    assert granted(budget, 1e9) == 3
