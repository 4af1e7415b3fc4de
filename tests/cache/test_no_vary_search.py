"""No-Vary-Search: the parts of a query that do not matter."""

import pytest

from univocal.cache.no_vary_search import NoVarySearch, no_vary_search, split_key

NONE = frozenset[bytes]()


@pytest.mark.parametrize(
    ("value", "variance"),
    [
        (b"key-order", NoVarySearch(True, NONE, NONE)),
        (b"params", NoVarySearch(False, None, NONE)),
        (b'params=("a" "b+c")', NoVarySearch(False, frozenset((b"a", b"b c")), NONE)),
        (b'params, except=("a%41")', NoVarySearch(False, None, frozenset((b"aA",)))),
        (b"", None),
        (b"params=?0", None),
        (b"params=()", None),
        (b'params=("a"), except=("b")', None),
        (b'except=("b")', None),
        (b"params=(a)", None),
        (b"key-order=1", None),
        (b"(", None),
    ],
)
def test_the_variance_that_a_response_asks_for(value, variance):
    assert no_vary_search([(b"no-vary-search", value)]) == variance


def test_without_the_field_every_part_matters():
    assert no_vary_search([]) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"k /a?x=1&utm=2", b"k /a?x=1", True),
        (b"k /a?%75tm=2&x=1", b"k /a?x=1&utm", True),
        (b"k /a?x=1&x=2", b"k /a?x=2&x=1", False),
        (b"k /a?x=1", b"k /b?x=1", False),
        (b"k /a", b"k /a?", True),
    ],
)
def test_two_keys_that_a_variance_cannot_tell_apart(one, other, same):
    variance = no_vary_search([(b"no-vary-search", b'params=("utm")')])
    assert variance is not None
    assert variance.equivalent(one, other) is same


def test_a_key_has_its_query_after_the_first_question_mark():
    assert split_key(b"k /a?b?c") == (b"k /a", b"b?c")
    assert split_key(b"k /a") == (b"k /a", b"")
