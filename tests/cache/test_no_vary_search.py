"""No-Vary-Search: what a response may say of its query (draft-ietf-httpbis-no-vary-search)."""

from examples import cases
from univocal.cache.directives import NoVarySearch, no_vary_search


@cases(
    "told, variance",
    (b"key-order", NoVarySearch(True, frozenset(), frozenset())),
    (b'params=("a%20b" "c")', NoVarySearch(False, frozenset((b"a b", b"c")), frozenset())),
    (b"params", NoVarySearch(False, None, frozenset())),
    (b'params, except=("a")', NoVarySearch(False, None, frozenset((b"a",)))),
)
def test_a_variance_is_read(told, variance):
    assert no_vary_search([(b"no-vary-search", told)]) == variance


@cases(
    "told",
    *(b"", b"(", b"key-order=?0", b"key-order=1", b"params=?0", b"params=1", b"params=()"),
    *(b'params=("a" 1)', b'params=("a"), except=("b")', b'params=?0, except=("b")'),
    *(b'except=("a")', b"params, except=(1)", b"key-order, " + b"x, " * 1400 + b"x"),
)
def test_a_malformed_or_default_variance_is_none(told):
    assert no_vary_search([(b"no-vary-search", told)]) is None
