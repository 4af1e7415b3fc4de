"""The choice among several origin servers, their times out of service, and the bound of retries."""

from collections import Counter

import pytest

from examples import cases
from univocal.origin.servers import Balance, Balancing, Member, RetryBudget

ASKER = "a request"
KEYS = [b"http://en.example/%d" % number for number in range(2000)]


def balance(*weights, **settings):
    """Origin servers a, b, c … with these weights."""
    names = "abcdef"[: len(weights)]
    return Balance([Member(name, name, weight) for name, weight in zip(names, weights, strict=True)],
                   Balancing(**settings))  # fmt: skip


def names(found, number, now=0, *, end=True):
    """The servers asked by so many requests, one after the other or, without `end`, at once."""
    told = ""
    for each in range(number):
        member = found.take(each, b"", now)
        assert member is not None
        told += member.server
        if end:
            found.ended(each, member)
    return told


def fail(found, name, times=1, now=0):
    member = named(found, name)
    for _ in range(times):
        found.failed(member, now)


def named(found, name):
    return next(member for member in found.members if member.name == name)


def states(found):
    return [member.state.value for member in found.members]


@cases(
    "choice, weights, asked",
    ("round-robin", (1, 1, 1), "abcabc"),
    ("round-robin", (2, 1), "abaaba"),
    ("round-robin", (5, 1, 1), "aabacaa"),
    ("least-requests", (1, 1), "abab"),
    ("least-requests", (3, 1), "aabaaaba"),
    ("hash", (1,), "aaa"),
)
def test_sequential_requests_are_spread_by_choice_and_weight(choice, weights, asked):
    assert names(balance(*weights, choice=choice), len(asked)) == asked


@cases(
    "choice, weights, asked",
    ("round-robin", (1, 1), "aabb"),
    ("least-requests", (1, 1, 1), "aabbcc"),
    ("least-requests", (2, 1), "aaaabb"),
)
def test_concurrent_requests_are_spread_by_choice_and_weight(choice, weights, asked):
    told = names(balance(*weights, choice=choice), len(asked), end=False)
    assert "".join(sorted(told)) == asked


def chosen(found, now=0):
    told = {}
    for key in KEYS:
        member = found.take(ASKER, key, now)
        assert member is not None
        told[key] = member.server
        found.ended(ASKER, member)
    return told


def test_a_hash_spreads_keys_by_weight_and_always_alike():
    found = balance(1, 2, 1, choice="hash")
    told = chosen(found)
    numbers = Counter(told.values())
    assert 0.4 < numbers["b"] / len(KEYS) < 0.6
    assert 0.2 < numbers["a"] / len(KEYS) < 0.3
    again = balance(1, 2, 1, choice="hash")
    again.change(reversed(again.members), 0)
    assert chosen(again) == told


def test_a_hash_member_that_leaves_moves_only_its_keys():
    found = balance(1, 1, 1, choice="hash")
    before = chosen(found)
    fail(found, "b", 3)
    after = chosen(found, now=5)
    assert {key for key in KEYS if before[key] != after[key]} == {key for key in KEYS if before[key] == "b"}
    found.answered(named(found, "b"), 6)
    assert chosen(found, now=6) == before


def test_an_ejected_hash_member_is_tried_by_its_keys():
    found = balance(1, 1, choice="hash")
    before = chosen(found)
    fail(found, "b", 3)
    others = next(key for key in KEYS if before[key] == "a")
    own = next(key for key in KEYS if before[key] == "b")
    asked = [found.take(number, key, 10) for number, key in enumerate([others, own, own])]
    assert [member and member.name for member in asked] == ["a", "b", "a"]


# Events and the states then: `a` fails, `A` answers, a figure is so many seconds.
@cases(
    "events, told",
    ("", "up up"),
    ("aa", "up up"),
    ("aaa", "ejected up"),
    ("aaAaa", "up up"),  # in a row
    ("aaabbb", "ejected failing"),  # never the last one
    ("aaabbbbbb", "ejected failing"),
    ("aaaB", "ejected up"),
    ("aaa9", "ejected up"),
    ("aaaA", "up up"),  # an answer to one that was under way
    ("aaabbbA", "up ejected"),  # b was spared as the last one, which it is no more
    ("aaabbA", "up up"),
    ("aaabbbAbB", "up up"),
    ("aaabbbB", "ejected up"),
)
def test_failures_in_a_row_eject_all_but_the_last(events, told):
    found, now = balance(1, 1), 0
    for event in events:
        if event.isdigit():
            now += int(event)
        elif event.isupper():
            found.answered(named(found, event.lower()), now)
        else:
            fail(found, event, now=now)
    assert " ".join(states(found)) == told


def test_an_ejected_server_rests_then_gets_single_requests():
    found = balance(1, 1, fails=1, eject=10)
    fail(found, "a", now=100)
    assert names(found, 5, now=109.9) == "bbbbb"
    member = found.take("a trial", b"", 110)
    assert member is named(found, "a")
    assert names(found, 3, now=110) == "bbb"
    assert names(found, 3, now=200) == "bbb"  # as long as it takes
    found.failed(member, 210)
    found.ended("a trial", member)
    assert (states(found), names(found, 3, now=219.9)) == (["ejected", "up"], "bbb")
    assert names(found, 1, now=220) == "a"  # its client left: it is nobody's word
    again = found.take("a trial", b"", 220)
    assert again is named(found, "a")
    found.answered(again, 221)
    assert (states(found), again.since) == (["up", "up"], 221)
    assert set(names(found, 2, now=221, end=False)) == {"a", "b"}


def test_with_none_up_all_are_tried():
    found = balance(1, 1, 1, fails=1, choice="round-robin")
    for name in "abc":
        fail(found, name)
    assert states(found) == ["ejected", "ejected", "failing"]
    assert sorted(names(found, 6, now=1, end=False)) == sorted("abcabc")
    found.answered(named(found, "b"), 1)
    assert (states(found), names(found, 3, now=1)) == (["ejected", "up", "ejected"], "bbb")


def test_a_single_server_fails_and_returns_with_a_reason():
    found, heard = balance(1), []
    found.changed = lambda member: heard.append((member.state.value, member.since, member.reason))
    member = named(found, "a")
    for now, reason in ((1, "refused"), (2, "refused"), (3, "timeout"), (4, "reset")):
        found.failed(member, now, reason)
    assert (heard, member.reason) == ([("failing", 3, "timeout")], "reset")
    assert names(found, 2, now=5) == "aa"
    found.answered(member, 6)
    found.answered(member, 7)
    assert heard[1:] == [("up", 6, "")]


def test_health_checks_take_one_out_and_bring_it_back():
    found = balance(1, 1)
    member = named(found, "a")
    found.mark(member, 5, up=True)
    assert (states(found), member.since) == (["up", "up"], 0)
    found.mark(member, 6, up=False)
    assert (states(found), member.since, names(found, 3, now=9)) == (["down", "up"], 6, "bbb")
    found.answered(member, 7)
    fail(found, "a", 5)
    assert states(found) == ["down", "up"]
    found.mark(member, 8, up=True)
    assert (states(found), member.since, set(names(found, 2, now=9))) == (["up", "up"], 8, {"a", "b"})


@pytest.mark.parametrize(("weights", "state"), [((1,), "failing"), ((1, 1), "ejected")])
def test_a_health_check_ends_what_failures_have_found(weights, state):
    found = balance(*weights, fails=1)
    fail(found, "a")
    assert states(found)[0] == state
    found.mark(found.members[0], 1, up=False)
    assert states(found)[0] == "down"


def test_a_retry_that_nobody_pays_for_tries_nobody():
    found = balance(1, 1, fails=1, retry_budget=0)
    fail(found, "a")
    for number in range(3):
        assert found.another(number, b"", 1, [named(found, "b")]) is named(found, "a")
        found.ended(number, named(found, "a"))
    assert found.another(ASKER, b"", 10, [named(found, "b")]) is None
    assert names(found, 1, now=10) == "a"  # it waits for its trial still


# The retries that there may be within ten seconds


def granted(budget, now):
    number = 0
    while budget.spend(now):
        number += 1
    return number


@cases(
    "share, requests, retries",
    (0.2, 0, 3),
    (0.2, 15, 3),
    (0.2, 19, 3),
    (0.2, 20, 4),
    (0.2, 1000, 200),
    (0, 1000, 3),
    (1, 50, 50),
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
