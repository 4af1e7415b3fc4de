"""Loans to slow clients: the bytes that the store need not have itself, and the clients that give way."""

import sys
from functools import partial

import pytest

from univocal.store.memory import Loans


class Lender:
    """Loans of at most 100 octets beside the store, and the names of those who had to do without."""

    def __init__(self):
        self.loans = Loans(100)
        self.recalled = []

    def lend(self, name, content, *, kept=False):
        loan = self.loans.lend(content, partial(self.recalled.append, name), kept=kept)
        self.loans.trim()
        return loan


def test_the_one_who_has_stood_longest_gives_way():
    lender = Lender()
    first, second, third = (bytes([number]) * 40 for number in range(3))
    lender.lend("stands", first)
    moving = lender.lend("moves", second)
    assert (lender.recalled, lender.loans.outside) == ([], 80)
    lender.lend("new", third)
    assert (lender.recalled, lender.loans.outside) == (["stands"], 80)
    lender.loans.taken(moving)
    lender.lend("newer", b"3" * 40)
    assert lender.recalled == ["stands", "new"]


def test_shared_content_counts_once_and_is_recalled_from_all():
    lender = Lender()
    same = b"s" * 60
    for name in "abc":
        lender.lend(name, same)
    assert (lender.recalled, lender.loans.outside) == ([], 60)
    lender.lend("d", b"d" * 60)
    assert (lender.recalled, lender.loans.outside) == (["a", "b", "c"], 60)


def test_loans_of_kept_content_cost_nothing_until_it_goes():
    lender = Lender()
    kept = [bytes([number]) * 60 for number in range(4)]
    loans = [lender.lend(str(number), content, kept=True) for number, content in enumerate(kept)]
    assert (lender.recalled, lender.loans.outside) == ([], 0)
    lender.loans.keep(kept[0], kept=False)
    lender.loans.keep(kept[0], kept=True)  # another stored response has the same content
    lender.loans.keep(kept[1], kept=False)
    lender.loans.keep(kept[2], kept=False)
    lender.loans.trim()
    assert (lender.recalled, lender.loans.outside) == (["1"], 60)
    for loan in (*loans, *loans):
        lender.loans.give_back(loan)
    assert lender.loans.outside == 0


@pytest.mark.pure("Python's steps are counted")
def test_a_recall_looks_through_no_stored_content():
    lender, steps = Lender(), 0
    kept = [b"%d" % number * 20 for number in range(1_000)]
    for content in kept:
        lender.lend("kept", content, kept=True)

    def count(*_):
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for number in range(3):
            lender.lend(str(number), bytes([number]) * 60)
    finally:
        sys.settrace(before)
    assert lender.recalled == ["0", "1"]
    assert steps < 500


def test_as_much_as_may_be_lent_is_not_too_much():
    lender = Lender()
    lender.lend("a", b"a" * 60)
    lender.lend("b", b"b" * 40)
    assert (lender.recalled, lender.loans.outside) == ([], 100)
