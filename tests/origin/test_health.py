"""Whether an origin server is up: so many checks in a row say so."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.origin.upkeep import HealthJudge, HealthRule, statuses


def judged(checks, rises=2, falls=3):
    """The state after each check; "+" is one that passes."""
    judge = HealthJudge(HealthRule(b"/", rises=rises, falls=falls))
    said = ""
    for check in checks:
        before = judge.up
        changed = judge.hear(passed=check == "+")
        assert changed == (judge.up is not before)
        said += "u" if judge.up else "d"
    return said


@pytest.mark.parametrize(
    ("checks", "states", "settings"),
    [
        ("", "", {}),
        ("+++", "uuu", {}),
        ("---", "uud", {}),
        ("--+--+---", "uuuuuuuud", {}),
        ("---+-++", "uuddddu", {}),
        ("---++---", "uudduuud", {}),
        ("-+-+", "dudu", {"rises": 1, "falls": 1}),
        ("-+++", "dddu", {"rises": 3, "falls": 1}),
    ],
)
def test_rises_and_falls(checks, states, settings):
    assert judged(checks, **settings) == states


@given(st.text("+-", max_size=40), st.integers(1, 5), st.integers(1, 5))
def test_a_state_ends_after_exactly_so_many_in_a_row(checks, rises, falls):
    states = "u" + judged(checks, rises, falls)
    for number, (before, after) in enumerate(pairwise(states), 1):
        row = falls if before == "u" else rises
        against = ("-" if before == "u" else "+") * row
        # Those before the last change belong to the state that it ended.
        since = max((at for at in range(1, number) if states[at] != states[at - 1]), default=0)
        assert (after != before) == checks[since:number].endswith(against)


@pytest.mark.parametrize(
    ("text", "some", "none"),
    [
        ("200-399", {200, 301, 399}, {199, 400, 500}),
        ("200", {200}, {201}),
        ("200, 204,301-308", {200, 204, 301, 308}, {201, 300, 309}),
        ("100-599", {100, 599}, {600}),
    ],
)
def test_statuses_are_listed_by_number_and_range(text, some, none):
    assert some <= statuses(text)
    assert not none & statuses(text)


@pytest.mark.parametrize(
    "text", ["", "2xx", "200-", "-200", "399-200", "99", "600", "200 204", "200,,204", "٢٠٠"]
)
def test_what_lists_no_statuses(text):
    with pytest.raises(ValueError, match="status codes and ranges"):
        statuses(text)
