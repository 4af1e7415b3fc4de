"""Cache-Control, targeted fields, Pragma, tags (RFC 9875) and No-Vary-Search: what a response says."""

from dataclasses import asdict

from examples import cases
from univocal.cache.directives import (
    TAGGING,
    NoVarySearch,
    RequestDirectives,
    groups,
    no_vary_search,
    request_directives,
    response_directives,
    tags,
)
from univocal.http.messages import MAX_DELTA, firsts

NOTHING = {
    **dict.fromkeys(
        ("no_store", "no_cache", "private", "public", "must_revalidate", "proxy_revalidate"), False
    ),
    **dict.fromkeys(("max_age", "s_maxage", "stale_while_revalidate", "stale_if_error")),
    "must_understand": False,
    "withheld": frozenset(),
    "malformed": False,
    "targeted": False,
}


def told(*fields):
    lines = list(fields)
    found = asdict(response_directives(lines, firsts(lines), (b"cdn-cache-control",)))
    return {name: value for name, value in found.items() if value != NOTHING[name]}


@cases(
    "line, expected",
    (b"", {}),
    (b"No-Store, MAX-AGE=5", {"no_store": True, "max_age": 5}),
    (b'max-age="5"', {"max_age": 5}),
    (b"max-age=x", {"max_age": 0}),
    (b"max-age=1, max-age=2", {"max_age": 1}),
    (b"s-maxage=99999999999", {"s_maxage": MAX_DELTA}),
    (b'no-cache="A, b"', {"withheld": frozenset((b"a", b"b"))}),
    (b'no-cache, no-cache="a"', {"no_cache": True}),
    (b'private="a"', {"withheld": frozenset((b"a",))}),
    (b"stale-if-error=x, must-understand", {"must_understand": True}),
    (b"no-store no-cache", {"no_store": True, "no_cache": True, "malformed": True}),
    (b'ext="no-store, private"', {}),
    (b"x, " * 2000, {"no_store": True, "no_cache": True, "private": True, "malformed": True}),
)
def test_directives_of_a_response(line, expected):
    """On one line, on two, and on one that is too long to be remembered."""
    assert told((b"cache-control", line)) == expected
    assert told((b"cache-control", line), (b"x", b"1"), (b"cache-control", b"")) == expected
    assert told((b"cache-control", line + b" " * 300)) == expected


@cases(
    "line, expected",
    (b"max-age=9", {"max_age": 9, "targeted": True}),
    (b"no-store", {"no_store": True, "targeted": True}),
    (b'no-cache="a"', {"no_cache": True, "targeted": True}),
    (b"private=?0, max-age=9", {"max_age": 9, "targeted": True}),
    (b"max-age=9" + b", x" * 2000, {"no_store": True, "no_cache": True, "private": True, "targeted": True}),
    *((each, {"max_age": 1}) for each in (b"", b"max-age=x", b'max-age="9"', b"public=1", b"(")),
)
def test_a_valid_targeted_field_takes_the_place_of_cache_control(line, expected):
    assert told((b"cache-control", b"max-age=1"), (b"cdn-cache-control", line)) == expected


@cases(
    "value, is_forbidden", (b"0", True), (b"@0", True), (b"@99999999999", True), (b"60", False), (b"", False)
)
def test_nginxs_time_that_is_over_forbids_to_store(value, is_forbidden):
    expected = {"no_store": True, "targeted": True} if is_forbidden else {"max_age": 1}
    assert told((b"cache-control", b"max-age=1"), (b"x-accel-expires", value)) == expected


@cases(
    "fields, expected",
    ([], RequestDirectives()),
    ([(b"pragma", b"no-cache")], RequestDirectives(no_cache=True)),
    ([(b"pragma", b"no-cache"), (b"cache-control", b"max-age=1")], RequestDirectives(max_age=1)),
    ([(b"cache-control", b"no-store")], RequestDirectives(no_store=True)),
    ([(b"cache-control", b"max-stale")], RequestDirectives(max_stale=MAX_DELTA)),
    ([(b"cache-control", b"max-stale=3, min-fresh=x")], RequestDirectives(max_stale=3)),
    (
        [(b"cache-control", b"only-if-cached"), (b"cache-control", b"min-fresh=2, stale-if-error=4")],
        RequestDirectives(only_if_cached=True, min_fresh=2, stale_if_error=4),
    ),
)
def test_directives_of_a_request(fields, expected):
    assert request_directives(fields) == expected
    longer = [(name, value + b" " * 300) for name, value in fields]
    assert request_directives(longer) == expected


@cases(
    "fields, expected",
    ([], set()),
    ([(b"xkey", b"a  b\tc"), (b"surrogate-key", b"a d")], {b"a", b"b", b"c", b"d"}),
    ([(b"cache-tag", b"a b, c ,, d"), (b"cache-tag", b"e")], {b"a", b"b", b"c", b"d", b"e"}),
    ([(b"xkey", b"a, b"), (b"surrogate-key", b"/x, /x/1")], {b"a", b"b", b"/x", b"/x/1"}),
    ([(b"cache-groups", b'"a b", "c";x=1'), (b"cache-groups", b'"d"')], {b"a b", b"c", b"d"}),
    ([(b"cache-groups", b'"a", b, 3'), (b"xkey", b"x")], {b"a", b"x"}),
    ([(b"cache-groups", b'"a'), (b"xkey", b"x")], {b"x"}),
    ([(b"x-key", b"a")], set()),
)
def test_names_of_a_response(fields, expected):
    assert tags(fields) == expected
    assert not expected or not TAGGING.isdisjoint(name for name, _ in fields)


def test_groups_are_strings_of_a_list():
    assert groups([(b"cache-group-invalidation", b'"a";x=1, ("b")')], b"cache-group-invalidation") == {b"a"}
    assert groups([], b"cache-groups") == frozenset()


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
