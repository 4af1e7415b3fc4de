"""The fields by which responses are purged together (RFC 9875)."""

from examples import cases
from univocal.cache.directives import TAGGING, groups, tags


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
