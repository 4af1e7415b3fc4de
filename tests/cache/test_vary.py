"""Selecting header fields and their normalization (RFC 9111 §4.1), and the codings that clients take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from support import NOW, stored_response
from univocal.cache.rules import Rules
from univocal.cache.storing import Fetched, may_store
from univocal.cache.vary import matches, selecting_fields, selection, vary_names
from univocal.http.messages import LONGEST, Request, Response, reduce_codings, weights


def stored(vary, request, *more):
    public = (b"cache-control", b"public, max-age=60")
    return stored_response(public, (b"vary", vary), *more, request=request, body=b"")


def lines(*pairs):
    return [
        (name.encode(), value.encode("latin-1")) for name, value in (pair.split(":", 1) for pair in pairs)
    ]


def asking(fields, verbatim=b""):
    return Request(b"GET", b"/a", fields, verbatim=verbatim)


@cases(
    "vary, first, second, same",
    ("foo", ["foo:1"], ["foo:1"], True),
    ("Foo", ["foo:1"], ["foo:1", "bar:2"], True),
    ("foo", ["foo:1"], ["foo:2"], False),
    ("foo", [], ["foo:1"], False),
    ("foo", ["foo:1"], [], False),
    ("foo", [], [], True),
    ("foo", [], ["foo:"], False),
    ("foo, bar", ["foo:1", "bar:a"], ["bar:a", "foo:1"], True),
    ("foo, bar", ["foo:1", "bar:a"], ["foo:1", "bar:b"], False),
    ("foo, bar", ["foo:1"], ["bar:1"], False),
    ("foo", ["foo:1, 2"], ["foo:1", "foo:2"], True),
    ("foo", ["foo:1,2"], ["foo: 1, 2 "], True),
    ("foo", ["foo:1,2"], ["foo:2,1"], False),
    ("foo", ['foo:"a, b"'], ['foo:"a,b"'], False),
    ("foo", ["foo:A"], ["foo:a"], False),
    # fields that are no lists are compared to the letter
    ("cookie", ["cookie:a=1, b"], ["cookie:a=1,b"], False),
    ("cookie", ["cookie:a, b"], ["cookie:a", "cookie:b"], False),
    ("user-agent", ["user-agent:a, b"], ["user-agent:a,b"], False),
    ("authorization", ["authorization:x"], ["authorization:x"], True),
    # weighted lists have no order
    ("accept-encoding", ["accept-encoding:gzip, br"], ["accept-encoding:BR,gzip;q=1.0"], True),
    ("accept-encoding", ["accept-encoding:gzip;q=0.50"], ["accept-encoding:gzip; q=.5"], False),
    ("accept-encoding", ["accept-encoding:gzip;q=0.50"], ["accept-encoding:gzip ; Q=0.5"], True),
    ("accept-encoding", ["accept-encoding:gzip;q=0"], ["accept-encoding:gzip"], False),
    ("accept-encoding", ["accept-encoding:gzip;q=0.0"], ["accept-encoding:gzip;q=0"], True),
    ("accept-encoding", ["accept-encoding:gzip, gzip"], ["accept-encoding:gzip"], True),
    ("accept-encoding", ["accept-encoding:gzip"], ["accept-encoding:"], False),
    ("accept-encoding", ["accept-encoding:"], [], False),
    ("accept-encoding", ["accept-encoding:br;v=1,gzip"], ["accept-encoding:gzip,br;v=1"], False),
    ("accept-language", ["accept-language:en, de"], ["accept-language: de ,   eN"], True),
    ("accept-language", ["accept-language:en, de"], ["accept-language:en, de;q=0.9"], False),
    ("accept", ["accept:text/html, */*"], ["accept:*/*, text/html"], False),
)
def test_requests_match_by_the_fields_that_vary_names(vary, first, second, same):
    one, other = lines(*first), lines(*second)
    assert matches(stored(vary.encode(), one), asking(other)) is same
    assert matches(stored(vary.encode(), other), asking(one)) is same
    assert matches(stored(vary.encode(), one), asking(one))


@cases(
    "language, accepted, selected",
    (b"de", "fr;q=0.5, de;q=1.0", True),
    (b"DE", "fr;q=0.5, de", True),
    (b"de", "fr, de", False),
    (b"de", "fr, de;q=0.9", False),
    (b"de", "de-AT, de;q=0.9", False),
    (b"de-at", "de", False),
    (b"de, fr", "de, fr;q=0.5", False),
    (b"de", "de;q=0", False),
    (b"de", "de;q=x", False),
    (b"de", "*", False),
)
def test_a_response_in_the_language_preferred_above_all_is_selected(language, accepted, selected):
    response = stored(b"accept-language", lines("accept-language:en, de"), (b"content-language", language))
    assert matches(response, asking(lines(f"accept-language:{accepted}"))) is selected


def test_a_preferred_language_does_not_outdo_the_other_selecting_fields():
    response = stored(
        b"accept-language, foo", lines("accept-language:en, de", "foo:1"), (b"content-language", b"de")
    )
    assert matches(response, asking(lines("accept-language:de", "foo:1")))
    assert not matches(response, asking(lines("accept-language:de", "foo:2")))


def test_names_are_sorted_and_once():
    assert vary_names([(b"vary", b"B, a"), (b"vary", b", b,")]) == (b"a", b"b")
    assert vary_names([(b"vary", b"Accept-Encoding User-Agent")]) == (b"accept-encoding", b"user-agent")
    assert vary_names([(b"vary", b"a *")]) is None
    assert vary_names([]) == ()


def test_long_values_are_normalized_but_not_remembered():
    value = ", ".join(f"x{number}" for number in range(400))
    reverse = ", ".join(f"x{number}" for number in reversed(range(400)))
    one = selecting_fields((b"accept-encoding",), asking(lines(f"accept-encoding:{value}")))
    assert one == selecting_fields((b"accept-encoding",), asking(lines(f"accept-encoding:{reverse}")))


@pytest.mark.parametrize("name", [b"cookie", b"user-agent", b"authorization", b"x-other"])
def test_no_single_line_looks_like_two(name):
    two = selecting_fields((name,), asking([(name, b"a"), (name, b"b")]))
    assert all(
        selecting_fields((name,), asking([(name, line)])) != two
        for line in (b"1:a,1:b,", b"a;b", b"a b", b"2:ab")
    )


@pytest.mark.parametrize(("one", "other"), [(b"/%61", b"/a"), (b"/%61", b""), (b"", b"/a")])
def test_the_target_that_the_origin_got_selects(one, other):
    response = Response(200, [(b"cache-control", b"max-age=60"), (b"vary", b"foo")])
    begun = may_store(b"k", Fetched(asking([(b"foo", b"1")], one), response, NOW, NOW), Rules())
    assert begun.vary == ((b":target", one), (b"foo", b"1"))[not one :]
    assert matches(begun, asking([(b"foo", b"1")], one))
    assert matches(begun, asking([(b"foo", b"1")], other)) is (not one)
    assert not matches(begun, asking([(b"foo", b"2")], one))


def test_a_field_is_no_received_target():
    begun = stored(b"foo", [(b"foo", b"1"), (b":target", b"/a")])
    assert begun.vary == ((b"foo", b"1"),)
    received = selection([(b"vary", b"foo")], asking([], b"/a"))
    assert received == ((b":target", b"/a"), (b"foo", None))
    assert selecting_fields((b":target",), asking([(b":target", b"/a")])) == ((b":target", None),)


NAME = b"accept-encoding"

# Clients write these: Chrome and Firefox, Safari and older ones, curl --compressed, Python, wget, Go, Java.
CLIENTS = {
    b"gzip, deflate, br, zstd": b"zstd, br, gzip",
    b"zstd,br , gzip;q=1.0": b"zstd, br, gzip",
    b"gzip, deflate, br": b"br, gzip",
    b"gzip,deflate": b"gzip",
    b"gzip": b"gzip",
    b"x-gzip": b"gzip",
    b"identity": b"identity",
    b"": b"identity",
    b"deflate, compress": b"identity",
    b"*": b"zstd, br, gzip",
    b"*;q=0": b"identity",
    b"*;q=0.1, br;q=0": b"zstd, gzip",
    b"gzip;q=0": b"identity",
    b"br;q=0.001, GZIP;q=0.000": b"br",
    b"br;q=1.0, gzip;q=0.8, *;q=0": b"br, gzip",
    b"dcb, dcz, gzip": b"gzip",
}


@pytest.mark.parametrize(("value", "reduced"), CLIENTS.items())
def test_accept_encoding_of_known_clients_is_reduced(value, reduced):
    fields = [(b"a", b"1"), (NAME, value), (b"b", b"2")]
    assert sorted(reduce_codings(fields)) == sorted([(b"a", b"1"), (NAME, reduced), (b"b", b"2")])


def test_several_lines_are_one_list():
    assert reduce_codings([(NAME, b"gzip"), (b"a", b"1"), (NAME, b"br")]) == [
        (b"a", b"1"),
        (NAME, b"br, gzip"),
    ]


@cases(
    "fields",
    [],
    [(b"a", b"1")],
    [(NAME, b"br, gzip")],
    [(NAME, b"gzip;q=2")],
    [(NAME, b"gzip; q=high")],
    [(NAME, b"gzip" + b",a" * LONGEST)],
)
def test_a_reduced_malformed_or_very_long_accept_encoding_stays(fields):
    assert reduce_codings(fields) is fields


CODINGS = any_of(b"gzip", b"x-gzip", b"br", b"zstd", b"identity", b"deflate", b"*", b"GZip")
QVALUES = any_of(b"", b";q=0", b";q=0.0", b"; q=0.5", b";Q=1")
MEMBERS = st.lists(st.builds(lambda coding, weight: coding + weight, CODINGS, QVALUES), max_size=6)


@given(st.one_of(MEMBERS.map(b", ".join), st.binary(max_size=40)))
def test_reducing_is_idempotent_and_names_nothing_that_is_refused(value):
    once = reduce_codings([(NAME, value)])
    assert reduce_codings(once) is once
    read = weights(value)
    if read is not None:
        refused = {coding for coding, weight in read if weight == b"0"} - {b"identity"}
        assert refused.isdisjoint(once[0][1].split(b", "))
