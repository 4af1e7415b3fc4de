"""The journal: a response is valid as long as no later purge means it; the forgotten count as purged."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import NOW, stored_response
from univocal.store.codec import decode_purge, encode_parts, encode_purge, pieces_of
from univocal.store.leases import MOST_LISTED, Journal
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Purge, Tags, Variants

KEYS = [b"0123456789abcdef http %b %b" % pair for pair in [(b"a", b"/"), (b"a", b"/x?b=1"), (b"b", b"/x")]]


def pattern(expression):
    search = re.compile(expression.encode()).search
    return Pattern(expression, lambda url: search(url) is not None)


def response(key=KEYS[0], tags=b"", accept=b"", at=NOW):
    fields = [(b"vary", b"accept")] if accept else []
    return stored_response(
        *fields, *([(b"xkey", tags)] if tags else []), name=key, request=[(b"accept", accept)], at=at
    )


RESPONSES = [
    response(key, tags, accept)
    for key in KEYS
    for tags in (b"", b"t", b"t u")
    for accept in (b"", b"text/html", b"image/png")
]
keys = st.frozensets(st.sampled_from(KEYS), min_size=1)
tags = st.frozensets(st.sampled_from([b"t", b"u", b"v"]), min_size=1)
selectors = st.one_of(
    st.builds(Keys, keys, st.booleans()),
    st.builds(Tags, tags, st.booleans(), st.sampled_from([b"", b"http a", b"http b"])),
    st.builds(Prefix, st.frozensets(st.sampled_from([b"http a /", b"http a /x", b"http b "])), st.booleans()),
    st.sampled_from([pattern("x"), replace(pattern("b=1"), soft=True)]),
    st.builds(
        Variants,
        st.frozensets(st.sampled_from([(one.key, one.vary) for one in RESPONSES]), min_size=1),
        st.sampled_from([NOW - 1, NOW, NOW + 1]),
        st.booleans(),
    ),
    st.builds(Everything, st.booleans()),
)


def journal_of(purges, **bounds):
    journal = Journal(**bounds)
    for number, selector in enumerate(purges, journal.last + 1):
        journal.add(Purge(number, NOW, selector))
    return journal


def means(journal, number, stored):
    """Tell whether a purge after a number means a response, to remove it or to mark it stale."""
    return journal.surviving(number, stored) is not stored


@given(st.lists(selectors, max_size=12), st.data())
def test_exactly_what_later_purges_mean_is_purged(purges, data):
    journal = journal_of(purges)
    for stored in data.draw(st.lists(st.sampled_from(RESPONSES), min_size=1, max_size=4)):
        number = data.draw(st.integers(0, len(purges)))
        later = [each for each in purges[number:] if each.means(stored)]
        # Of several purges of one variant the latest time of receipt is kept: that may remove too much.
        if later or not any(isinstance(each, Variants) for each in purges):
            assert means(journal, number, stored) is bool(later)
        left = journal.surviving(number, stored)
        if any(not each.soft for each in later):
            assert left is None
        elif later:
            assert left is None or left.fresh_until <= NOW


@given(st.lists(selectors, max_size=30), st.integers(0, 2_000), st.data())
def test_a_full_journal_purges_more_never_less(purges, limit, data):
    journal = journal_of(purges, limit=limit)
    stored, number = data.draw(st.sampled_from(RESPONSES)), data.draw(st.integers(0, len(purges)))
    if any(each.means(stored) for each in purges[number:]):
        assert means(journal, number, stored)


@given(st.lists(selectors, max_size=12), selectors, st.data())
def test_a_purge_removes_all_up_to_its_covered_number(purges, selector, data):
    journal = journal_of(purges)
    stored = data.draw(st.sampled_from([one for one in RESPONSES if selector.means(one)] or RESPONSES))
    covered = journal.covered(selector)
    if covered and selector.means(stored):
        assert journal.surviving(covered - 1, stored) is None


def test_numbers_only_rise():
    journal = journal_of([Everything()])
    with pytest.raises(ValueError, match="purge 1 comes after 1"):
        journal.add(Purge(1, NOW, Everything()))


def test_the_oldest_pattern_is_dropped_for_all_that_is_older():
    journal = journal_of([pattern(f"never{number}") for number in range(MOST_LISTED + 1)])
    assert journal.surviving(0, response()) is None
    assert journal.surviving(1, response()) is not None


def test_a_journal_of_one_memory_lists_each_purge_once():
    journal = journal_of([Everything(), Tags(frozenset((b"t",))), pattern("x"), Everything()], lists_all=True)
    assert [each.number for each in journal.between(0, 4)] == [2, 3, 4]
    journal.trim(2, 0)
    assert [each.number for each in journal.between(0, 3)] == [3]
    assert (journal.horizon, journal.last, len(journal.listed)) == (0, 4, 2)


def test_patterns_that_take_too_long_mean_the_response():
    slow = Pattern("slow", lambda _: False, steps=10**6)
    assert means(journal_of([slow]), 0, response())


def test_a_purge_of_a_url_includes_no_vary_search_members():
    stored = stored_response((b"no-vary-search", b'params=("b")'), name=KEYS[1])
    other = KEYS[1].replace(b"b=1", b"b=2")
    assert means(journal_of([Keys(frozenset((other,)))]), 0, stored)


@given(selectors, st.floats(0, 2e9), st.binary(max_size=8), st.integers(1, 9))
def test_a_purge_is_read_as_it_was_written(selector, time, cause, number):
    purge = decode_purge(number, encode_purge(selector, time, cause), pattern)
    assert purge == Purge(number, time, selector, cause)


@given(selectors, st.floats(0, 2e9), st.binary(max_size=8))
def test_a_purge_and_its_parts_are_read_as_written(selector, time, cause):
    whole, parts = encode_parts(selector, time, cause)
    assert decode_purge(1, whole, pattern) == Purge(1, time, selector, cause)
    read = [decode_purge(1, octets, pattern) for _, octets in parts]
    assert read == [Purge(1, time, one, cause) for one in selector.divided(1)]
    assert len({name for name, _ in parts}) == len(parts)


@given(
    st.binary(max_size=60)
    | st.builds(lambda one, at: encode_purge(one, NOW, b"")[:at], selectors, st.integers(0, 50))
)
def test_any_other_bytes_are_a_purge_that_means_no_less(octets):
    purge = decode_purge(1, octets, pattern)
    assert purge.number == 1
    if octets in {b"", b"1:a", b"x" * 9}:
        assert purge.selector == Everything()


def test_a_purge_of_many_names_is_several():
    many = Keys(frozenset(b"0 http a /%d" % number for number in range(200)), soft=True)
    parts = pieces_of(many)
    assert len(parts) == 4
    assert {name for part in parts for name in part.names()} == set(many.names())
    assert all(part.soft for part in parts)


LONG = b"http a /" + b"x" * 2_000


@pytest.mark.parametrize(
    ("selector", "pieces"),
    [
        (Keys(frozenset((KEYS[0], KEYS[1]))), [Keys(frozenset((KEYS[0], KEYS[1])))]),
        (
            Keys(frozenset(key + letter * 900 for key in KEYS[:1] for letter in (b"x", b"y"))),
            [Keys(frozenset((KEYS[0] + letter * 900,))) for letter in (b"x", b"y")],
        ),
        (
            Keys(frozenset((b"0 http a /b?" + LONG,)), soft=True),
            [Prefix(frozenset((b"http a /b",)), soft=True)],
        ),
        (Keys(frozenset((b"0 " + LONG,))), [Prefix(frozenset((LONG[:1024],)))]),
        (Variants(frozenset(((b"0 http a /", ((b"a", LONG),)),)), NOW), [Prefix(frozenset((b"http a /",)))]),
        (Prefix(frozenset((LONG,))), [Prefix(frozenset((LONG[:1024],)))]),
        (Tags(frozenset((LONG,)), origin=b"http a"), [Prefix(frozenset((b"http a ",)))]),
        (Tags(frozenset((LONG,)), soft=True), [Everything(soft=True)]),
    ],
    ids=["fits", "several", "query", "path", "variant", "prefix", "tag of an origin", "tag"],
)
def test_a_long_purge_is_several_or_means_more(selector, pieces):
    assert sorted(pieces_of(selector, 1_500), key=repr) == sorted(pieces, key=repr)
