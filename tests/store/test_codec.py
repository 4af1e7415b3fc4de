"""A stored response as octets: what comes back is what went in, or a miss."""

from dataclasses import fields as attributes
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from support import stored_response
from univocal.cache.stored import Part
from univocal.store.codec import KEEP, LIMIT, decode, encode, usable_until, variant

NOW = 1_790_000_000.25
KEY = b"0123456789abcdef http en.example /wiki/A?b=\xc3\xa9"


def stored(more, asked=None, **settings):
    fields = [(b"cache-control", b"max-age=60"), *more]
    return stored_response(*fields, name=KEY, request=asked, at=NOW, **{"body": b"content", **settings})


RESPONSES = [
    stored([]),
    stored([(b"etag", b'"a"'), (b"last-modified", b"Tue, 15 Sep 2026 10:00:00 GMT")]),
    stored([(b"vary", b"foo, bar")], [(b"foo", b""), (b"x", b"y")]),
    stored([(b"xkey", b"a b"), (b"cache-tag", b"c d,e:\xff"), (b"content-language", b"De")]),
    stored([(b"content-range", b"bytes 0-6/9")], status=206),
    stored([(b"content-range", b"bytes 0-6/*")], status=206),
    stored([(b"x", b""), (b"x", b"a: b"), (b"y", b"\xff\t1")], status=299),
    stored([(b"cache-control", b"must-revalidate, stale-if-error=5, stale-while-revalidate=7")]),
    stored([], body=b""),
    replace(stored([(b"etag", b'W/"a"')]), bodiless=True, no_cache=True, fresh_until=NOW - 1),
]

octets = st.binary(max_size=20)
seconds = st.floats(-1e12, 1e12)
positions = st.integers(0, 2**50)
anything = st.builds(
    replace,
    st.sampled_from(RESPONSES),
    body=octets,
    vary=st.lists(st.tuples(octets, st.none() | octets), max_size=3).map(tuple),
    response_time=seconds,
    born=seconds,
    fresh_until=seconds,
    stale_while_revalidate=seconds,
    stale_if_error=seconds,
    modified=seconds,
    no_cache=st.booleans(),
    stale_usable=st.booleans(),
    bodiless=st.booleans(),
    etag=st.none() | octets,
    last_modified=st.none() | octets,
    strong=st.none() | octets,
    language=st.none() | octets,
    part=st.none() | st.builds(Part, positions, positions, st.none() | positions),
    tags=st.frozensets(octets, max_size=4),
    cost=st.integers(10_000, 2**40),
)


def facts(one):
    """All but what a memory works out again."""
    return {each.name: getattr(one, each.name) for each in attributes(one) if each.name != "small"}


@pytest.mark.parametrize("one", RESPONSES)
def test_an_encoded_response_decodes_to_itself(one):
    read = decode(KEY, encode(one), one.body)
    assert read is not None
    assert facts(read) == facts(one)


@given(anything)
def test_facts_of_any_response_come_back(one):
    read = decode(KEY, encode(one), one.body)
    assert read is not None
    assert facts(read) == facts(one)


@pytest.mark.parametrize("one", RESPONSES)
def test_a_description_cut_short_anywhere_is_a_miss(one):
    described = encode(one)
    assert all(decode(KEY, described[:length], one.body) is None for length in range(len(described)))


@cases(
    "found, other",
    (b"2 w", b"1 w"),  # another version
    (b"2 w", b"2 x"),
    *((b"60", each) for each in (b"nan", b"1e999", b"-1e999", b"1e16", b"inf", b"1_0")),
    (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 O\n\r\n"),
    (b"cache-control: max-age=60\r\n", b"\r\ncontrol: max-age=600000\r\n"),  # a body within the head
    (b"+", b"*"),
)
def test_an_altered_entry_is_a_miss(found, other):
    one = stored([(b"etag", b'"a"')])
    described = encode(replace(one, born=60.0))
    assert found in described
    assert decode(KEY, described.replace(found, other, 1), one.body) is None


def test_content_of_another_length_is_a_miss():
    one = stored([])
    assert decode(KEY, encode(one), one.body[:-1]) is None


@given(st.sampled_from(RESPONSES), st.data())
def test_altered_bytes_are_no_error(one, data):
    described = bytearray(encode(one))
    for _ in range(data.draw(st.integers(1, 3))):
        described[data.draw(st.integers(0, len(described) - 1))] = data.draw(st.integers(0, 255))
    read = decode(KEY, bytes(described), one.body)
    assert read is None or b"\r\n\r\n" not in read.head


@given(octets)
def test_bytes_of_others_are_no_entry(described):
    assert decode(KEY, described, b"") is None


def test_variants_differ_by_their_selecting_fields_alone():
    vary = [(b"vary", b"foo")]
    alike = {
        variant(one.vary)
        for one in (stored(vary, [(b"foo", b"1")]), stored(vary, [(b"foo", b"1")], body=b"x"))
    }
    assert len(alike) == 1
    others = (stored(vary, []), stored(vary, [(b"foo", b"")]), stored(vary, [(b"foo", b"-")]), stored([]))
    assert len({variant(one.vary) for one in others} | alike) == 5


@cases(
    "one, seconds",
    (replace(stored([]), stale_usable=False), 60),
    (stored([]), 60 + KEEP),
    (replace(stored([(b"etag", b'"a"')]), stale_usable=False), 60 + KEEP),
    (replace(stored([]), stale_usable=False, stale_while_revalidate=7200.0), 60 + 7200),
    (replace(stored([]), fresh_until=NOW - 5, stale_usable=False), 0),
    (stored([(b"cache-control", b"s-maxage=99999999")]), LIMIT),
)
def test_a_response_is_useful_while_fresh_stale_or_validatable(one, seconds):
    assert usable_until(one) == NOW + seconds
