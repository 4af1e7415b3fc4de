"""New connections that wait for their first answer: which of them the origin server does not serve yet."""

import math

import pytest

from univocal.origin.pool import LONGEST, SHORTEST, FirstAnswers


def known(seconds):
    """What is known once a first answer has taken so long."""
    answers = FirstAnswers()
    answers.sent("first", 0)
    answers.answered("first", seconds)
    return answers


def test_nobody_is_held_up_before_any_answer_is_known():
    answers = FirstAnswers()
    answers.sent("a", 0)
    assert (answers.due, answers.held_up(1e9)) == (math.inf, 0)


@pytest.mark.parametrize(
    ("seconds", "patience"), [(0, SHORTEST), (0.004, SHORTEST), (0.05, 0.1), (0.5, LONGEST), (60, LONGEST)]
)
def test_patience_is_twice_the_usual_time_within_bounds(seconds, patience):
    answers = known(seconds)
    assert answers.patience == patience
    answers.sent("a", 100)
    assert answers.due == 100 + patience
    assert answers.held_up(100 + patience) == 1


def test_those_that_wait_too_long_are_counted():
    answers = known(0.05)
    for number in range(10):
        answers.sent(number, number)
    assert [answers.held_up(now) for now in (0.09, 0.11, 4.11, 99)] == [0, 1, 5, 10]


def test_an_answer_shows_that_the_server_has_all_older_connections():
    answers = known(0.05)
    for name in "abcd":
        answers.sent(name, 0)
    answers.answered("c", 0.05)
    assert list(answers.waiting) == ["d"]
    answers.answered("a", 30)  # it was only slow
    assert (list(answers.waiting), answers.patience) == (["d"], pytest.approx(0.1))


def test_an_answer_after_a_closing_took_the_time_since_that():
    answers = known(0.05)
    for round_ in range(1, 100):
        answers.sent(round_, round_)
        answers.relieved(round_ + 0.7)
        answers.answered(round_, round_ + 0.75)
    assert answers.patience == pytest.approx(0.1)


@pytest.mark.parametrize("relieved", [False, True], ids=["nothing closed", "closed in vain"])
def test_permanently_slower_answers_become_usual(relieved):
    answers = known(0.01)
    for round_ in range(1, 200):
        answers.sent(round_, round_)
        if relieved:
            answers.relieved(round_ + 0.2999)
        answers.answered(round_, round_ + 0.3)
    assert answers.patience > 0.3
