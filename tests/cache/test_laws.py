"""Laws of the policy: whatever is received, ages, freshness, variants and ranges keep their promises."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples import any_of
from support import KEY, NOW
from univocal.cache.decide import Forward, Refuse, Reuse, Validate, decide, forwarded_fields, reuse_on_error
from univocal.cache.directives import no_vary_search, tags
from univocal.cache.ranges import content_range, requested_ranges, within
from univocal.cache.represent import represent
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.cache.validation import combine, freshen
from univocal.cache.vary import matches, selecting_fields
from univocal.http import messages as reading
from univocal.http.messages import Request, Response, values

# Pieces that mean something to a cache, and what has gone wrong with them somewhere.
DIRECTIVE = any_of(
    *("max-age=0", "max-age=1", "max-age=60", "max-age=99999999999", "max-age=-1"),
    *('max-age="5"', "max-age=x"),
    *("s-maxage=0", "s-maxage=60", "no-store", "no-cache", 'no-cache="a"', "private"),
    *('private="a"', "public"),
    *("must-revalidate", "proxy-revalidate", "must-understand", "stale-while-revalidate=5"),
    *("stale-while-revalidate=x", "stale-if-error=5", "max-stale", "max-stale=3", "min-fresh=9"),
    *("only-if-cached", 'ext="no-store,max-age=1"', "ext=", "=", "", '"'),
)
DIRECTIVES = st.lists(DIRECTIVE, max_size=4).map(lambda found: ", ".join(found).encode())
MOMENT = st.integers(-400_000, 400_000).map(lambda late: reading.imf_fixdate(NOW + late))
DATE = MOMENT | any_of(b"0", b"", b"Thursday, 18-Aug-50 02:01:18 GMT", b"Sun Nov  6 08:49:37 1994")
AGE = st.integers(0, 2**40).map(lambda age: b"%d" % age) | any_of(b"x", b"-1", b"3, 4", b"")
TAG = any_of(b'"1"', b'W/"1"', b'"2"', b"bare", b"*", b'"1", "2"', b"")
SPEC = st.from_regex(rb"\Abytes=([0-9]{0,3}-[0-9]{0,3},?){1,4}\Z") | st.binary(max_size=12)
NAMES = any_of(b"foo", b"Foo, bar", b"accept-encoding", b"accept-language, cookie", b"*", b"")
FREE = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=12).map(
    lambda text: text.encode("latin-1")
)


def field(name, value):
    return value.map(lambda read: (name, read))


RESPONSE = st.lists(
    field(b"cache-control", DIRECTIVES)
    | field(b"cdn-cache-control", DIRECTIVES)
    | field(b"expires", DATE)
    | field(b"date", DATE)
    | field(b"last-modified", DATE)
    | field(b"age", AGE)
    | field(b"etag", TAG)
    | field(b"vary", NAMES)
    | field(b"set-cookie", FREE)
    | field(b"content-language", any_of(b"de", b"de, fr"))
    | field(b"content-range", any_of(b"bytes 0-4/10", b"bytes 4-9/10", b"bytes 0-4/*", b"x"))
    | field(b"no-vary-search", any_of(b"params", b'params=("x")', b"key-order", b"("))
    | field(b"surrogate-key", FREE)
    | field(b"connection", any_of(b"close", b"etag, vary")),
    max_size=7,
)
REQUEST = st.lists(
    field(b"cache-control", DIRECTIVES)
    | field(b"pragma", any_of(b"no-cache", b"x"))
    | field(b"if-none-match", TAG)
    | field(b"if-modified-since", DATE)
    | field(b"if-range", TAG | DATE)
    | field(b"range", SPEC)
    | field(b"foo", FREE)
    | field(b"accept-encoding", FREE)
    | field(b"accept-language", any_of(b"de", b"en;q=0.5, de", b"*", b"x;q=9"))
    | field(b"cookie", FREE)
    | field(b"authorization", FREE)
    | field(b"content-length", any_of(b"0", b"1", b"x")),
    max_size=6,
)
RULES = st.builds(
    Rules,
    ttl=any_of(0, 30),
    heuristic=st.booleans(),
    set_cookie=any_of("public", "explicit", "never"),
    errors=any_of("safe", "explicit"),
    grace=any_of(0, 10),
    client_directives=any_of("honour", "ignore"),
)
STATUS = any_of(200, 200, 200, 206, 204, 301, 404, 503, 599)
METHOD = any_of(b"GET", b"GET", b"HEAD", b"POST")
LATE = st.floats(-100_000, 1_000_000, allow_nan=False)
BODY = b"0123456789"


def store(request, status, response, rules, delay=0.0):
    begun = may_store(
        KEY, Fetched(Request(b"GET", b"/a", request), Response(status, response), NOW - delay, NOW), rules
    )
    if not isinstance(begun, Stored):
        return None
    return complete(begun, b"" if status == 204 else BODY[:5] if status == 206 else BODY)


@given(REQUEST, STATUS, RESPONSE, RULES, st.floats(0, 100), LATE)
def test_no_age_and_no_lifetime_is_negative(request, status, response, rules, delay, late):
    found = store(request, status, response, rules, delay)
    if found is not None:
        assert found.lifetime >= 0
        assert found.initial_age >= delay - 1e-6
        assert found.age(NOW + late) >= 0
        assert found.age(NOW + late + 10) >= found.age(NOW + late)
        assert values(found.fields, b"age") == []
        assert found.cost >= len(found.head) + len(found.body) + len(found.key)


@given(REQUEST, STATUS, RESPONSE, REQUEST, METHOD, RULES, LATE)
def test_nothing_is_reused_stale_unless_somebody_allowed_it(
    one, status, response, other, method, rules, late
):
    found = store(one, status, response, rules)
    request, now = Request(method, b"/a", other), NOW + late
    variants = [found] if found is not None else []
    decision = decide(request, variants, rules, now)
    for reused in (decision, reuse_on_error(decision, request, rules, None, now)):
        if not isinstance(reused, Reuse):
            continue
        assert reused.stored is found
        assert matches(found, Request(b"GET", b"/a", other))
        assert not found.no_cache
        assert method in {b"GET", b"HEAD"}
        if now >= found.fresh_until:
            assert found.stale_usable or found.stale_while_revalidate or found.stale_if_error
            assert reused.reason != "hit"
        assert reused.revalidate_in_background is (reused.reason == "stale-while-revalidate")
        answer = represent(request, found, reused.age, now)
        assert answer.status in {status, 206, 304, 416}
        assert method != b"HEAD" or answer.body == b""
    assert isinstance(decision, Reuse | Validate | Forward | Refuse)
    if isinstance(decision, Validate | Forward) and decision.fallback is not None:
        assert decision.fallback.stale_usable or decision.fallback.stale_if_error or now < found.fresh_until
    forwarded = forwarded_fields(request, decision)
    if isinstance(decision, Validate):
        assert set(decision.fields) <= set(forwarded)
        assert {name for name, _ in forwarded} - {name for name, _ in other} <= {
            n for n, _ in decision.fields
        }


@given(REQUEST, RESPONSE, REQUEST, RESPONSE, RULES)
def test_a_304_never_changes_the_content(one, response, other, news, rules):
    found = store(one, 200, response, rules)
    if found is None:
        return
    fresh = freshen(
        found, Fetched(Request(b"GET", b"/a", other), Response(304, news), NOW + 1, NOW + 2), rules
    )
    if fresh is not None:
        assert (fresh.status, fresh.body, fresh.key) == (found.status, found.body, found.key)
        for name in (b"content-length", b"content-range"):
            assert values(fresh.fields, name) == values(found.fields, name)
        assert fresh.age(NOW + 2) >= 1


@given(st.lists(field(b"foo", FREE) | field(b"cookie", FREE), max_size=3), REQUEST)
def test_a_variant_is_for_its_own_selecting_fields(one, other):
    found = store(one, 200, [(b"cache-control", b"public, max-age=60"), (b"vary", b"foo, cookie")], Rules())
    if found is None:
        return
    assert matches(found, Request(b"GET", b"/a", one))
    if matches(found, Request(b"GET", b"/a", other)):
        assert values(one, b"cookie") == values(other, b"cookie")
        assert _bare(one, b"foo") == _bare(other, b"foo")


def _bare(fields, name):
    """A field's value without what normalization may drop: blanks, and the difference of one line and two."""
    found = values(fields, name)
    return b",".join(found).replace(b" ", b"").replace(b"\t", b"") if found else None


@given(any_of(b"accept-encoding", b"accept-language", b"foo", b"cookie"), FREE)
def test_a_normalized_value_is_its_own_normal_form(name, value):
    ((_, once),) = selecting_fields((name,), Request(b"GET", b"/a", [(name, value)]))
    assert once is not None
    assert selecting_fields((name,), Request(b"GET", b"/a", [(name, once)])) == ((name, once),)


@given(st.binary(max_size=40), SPEC)
def test_a_range_is_what_a_slice_is(body, spec):
    ranges = requested_ranges([(b"range", spec)])
    covered = set()
    for start, end in ranges or []:
        if start is None:
            covered |= set(range(len(body))[-end:] if end else [])
        else:
            covered |= set(range(len(body))[start : len(body) if end is None else end + 1])
    pieces = within(ranges or [], len(body))
    assert [place for piece in pieces for place in range(piece.start, piece.stop)] == sorted(covered)


@given(st.binary(min_size=2, max_size=30), st.data())
def test_a_part_and_the_rest_are_the_whole(body, data):
    middle = data.draw(st.integers(1, len(body) - 1))
    overlap = data.draw(st.integers(0, middle - 1))
    halves = [(0, body[:middle]), (middle - overlap, body[middle - overlap :])]
    if data.draw(st.booleans()):
        halves.reverse()
    responses = [
        Response(
            206,
            [
                (b"cache-control", b"max-age=60"),
                (b"etag", b'"1"'),
                (b"content-range", b"bytes %d-%d/%d" % (start, start + len(half) - 1, len(body))),
            ],
        )
        for start, half in halves
    ]
    asked = Request(b"GET", b"/a", [])
    begun = may_store(KEY, Fetched(asked, responses[0], NOW, NOW), Rules())
    assert isinstance(begun, Stored)
    found = complete(begun, halves[0][1])
    assert found is not None
    whole = combine(found, Fetched(asked, responses[1], NOW, NOW), halves[1][1], Rules())
    assert (whole.status, whole.body, whole.whole) == (200, body, True)


QUERY = st.lists(
    st.tuples(any_of("a", "b", "%61", "c+d", "c%20d"), any_of("1", "%31", "2", "")), max_size=5
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs).encode())


@given(QUERY, QUERY, any_of(b"key-order", b'params=("b")', b"params", b'params, except=("a")'))
def test_queries_are_the_same_if_what_counts_is_the_same(one, other, told):
    variance = no_vary_search([(b"no-vary-search", told)])

    def read(query):
        pairs = [piece.split("=") for piece in query.decode().split("&") if piece]
        plain = [tuple(part.replace("+", " ").replace("%20", " ") for part in pair) for pair in pairs]
        plain = [(name.replace("%61", "a"), value.replace("%31", "1")) for name, value in plain]
        if told.startswith(b"params"):
            kept = {b'params=("b")': {"a", "c d"}, b"params": set(), b'params, except=("a")': {"a"}}[told]
            return [pair for pair in plain if pair[0] in kept]
        return sorted(plain, key=lambda pair: pair[0])

    assert (variance.canonical(one) == variance.canonical(other)) is (read(one) == read(other))


@given(st.lists(st.tuples(any_of(b"a", b"x-b", b"set-cookie2"), FREE), max_size=5))
def test_a_head_gives_back_the_fields_it_was_made_of(fields):
    found = store([], 200, [(b"cache-control", b"max-age=60"), (b"date", b"x"), *fields], Rules())
    assert found.fields[2:-1] == fields


READERS = [
    reading.members,
    reading.entity_tag,
    reading.entity_tags,
    reading.delta_seconds,
    lambda value: reading.cache_control([value]),
    lambda value: reading.http_date(value, NOW),
    lambda value: reading.age_value([(b"age", value)]),
    lambda value: reading.content_length([(b"content-length", value)]),
    lambda value: requested_ranges([(b"range", value)]),
    lambda value: content_range([(b"content-range", value)]),
    lambda value: no_vary_search([(b"no-vary-search", value)]),
    lambda value: tags(
        [(name, value) for name in (b"surrogate-key", b"cache-tag", b"xkey", b"cache-groups")]
    ),
    # A stored response equals itself alone.
    lambda value: repr(
        may_store(
            KEY,
            Fetched(Request(b"GET", b"/a", []), Response(200, [(b"cdn-cache-control", value)]), NOW, NOW),
            Rules(),
        )
    ),
]


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60)
@given(st.binary(max_size=60) | st.text('"\\,;=()?:@*-%/ \tabcW019', max_size=60).map(str.encode))
@example(b"max-age=1")
def test_every_value_is_read_one_way_only(reader, value):
    assert reader(value) == reader(value)


@given(st.integers(0, 253_402_300_799))
def test_a_date_is_read_as_it_was_written(seconds):
    assert reading.http_date(reading.imf_fixdate(seconds), NOW) == seconds
