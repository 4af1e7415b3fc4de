"""Effects of a 304, a HEAD or another 206 on a stored response (RFC 9111 §3.2, §3.3, §4.3.3-5), and §4.4."""

import pytest

from examples import cases
from support import NOW, stored_response
from univocal.cache.rules import DEFAULTS, Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, may_store
from univocal.cache.validation import combine, freshen, invalidates
from univocal.cache.vary import matches
from univocal.http.messages import Request, Response, imf_fixdate, values

LATER = NOW + 100
ASKED = Request(b"GET", b"/a", [(b"foo", b"1"), (b"cookie", b"a=b")])
DATED = (b"last-modified", imf_fixdate(NOW - 3000))
TAGGED = (b"etag", b'"1"')
MAX_AGE = (b"cache-control", b"max-age=60")


def stored(*more, **settings):
    own = [(b"date", imf_fixdate(NOW)), (b"test", b"old")]
    return stored_response(*own, *more, request=[(b"foo", b"1")], **settings)


def freshened(found, *news, status=304, request=ASKED):
    return freshen(found, Fetched(request, Response(status, list(news)), LATER - 1, LATER), Rules())


def test_a_304_freshens_and_updates_all_but_excepted_fields():
    found = stored(
        TAGGED, (b"content-type", b"text/plain"), (b"kept", b"1"), (b"twice", b"1"), (b"twice", b"2")
    )
    news = [
        TAGGED,
        (b"date", imf_fixdate(LATER)),
        (b"cache-control", b"max-age=3600"),
        (b"test", b"new"),
        (b"twice", b"3"),
        (b"content-length", b"3"),
        (b"content-type", b"text/html"),
        (b"content-encoding", b"x"),
        (b"content-range", b"x"),
        (b"connection", b"private-hop"),
        (b"private-hop", b"x"),
        (b"keep-alive", b"x"),
    ]
    fresh = freshened(found, *news)
    assert fresh.reusable
    assert (fresh.lifetime, fresh.age(LATER), fresh.body) == (3600, 1, found.body)
    assert dict(fresh.fields) == {
        b"etag": b'"1"',
        b"date": imf_fixdate(LATER),
        b"cache-control": b"max-age=3600",
        b"test": b"new",
        b"twice": b"3",
        b"kept": b"1",
        b"content-length": b"10",
        b"content-type": b"text/plain",
    }
    assert fresh.cost > 0


def test_a_304_without_a_date_is_of_when_it_came():
    fresh = freshened(stored(TAGGED))
    assert values(fresh.fields, b"date") == [imf_fixdate(LATER)]
    assert values(fresh.fields, b"test") == [b"old"]
    assert fresh.fresh_until == LATER - 1 + 60


def test_the_age_of_a_304_counts():
    fresh = freshened(stored(TAGGED), (b"age", b"50"), (b"date", imf_fixdate(LATER)))
    assert fresh.age(LATER) == 51
    assert values(fresh.fields, b"age") == []


@cases(
    "old, news, same",
    ([TAGGED], [TAGGED], True),
    ([TAGGED], [(b"etag", b'W/"1"')], True),
    ([TAGGED], [(b"etag", b'"2"')], False),
    ([TAGGED], [], True),
    ([DATED], [TAGGED], False),
    ([DATED], [DATED], True),
    ([DATED], [(b"last-modified", imf_fixdate(NOW))], False),
    ([TAGGED, DATED], [TAGGED, (b"last-modified", imf_fixdate(NOW))], True),
    ([TAGGED, DATED], [DATED], True),
    ([TAGGED, DATED], [(b"last-modified", imf_fixdate(NOW))], False),
    ([TAGGED], [DATED], True),
    ([], [DATED], False),
    ([], [TAGGED], False),
    ([], [], True),
)
def test_a_304_for_another_representation_updates_nothing(old, news, same):
    assert (freshened(stored(*old), *news) is not None) is same


@cases(
    "old, new, etag, strong",
    (b'W/"1"', b'"1"', b'W/"1"', None),
    (b'W/"1"', b'W/"1"', b'W/"1"', None),
    (b'"1"', b'"1"', b'"1"', b'"1"'),
    (b'"1"', b'W/"1"', b'W/"1"', None),
)
def test_a_304_does_not_make_a_weak_validator_strong(old, new, etag, strong):
    fresh = freshened(stored((b"etag", old)), (b"etag", new), (b"cache-control", b"max-age=9"))
    assert (values(fresh.fields, b"etag"), fresh.etag, fresh.strong) == ([etag], etag, strong)
    assert fresh.lifetime == 9


@cases(
    "news, reusable",
    ([(b"cache-control", b"no-store")], False),
    ([(b"cache-control", b"private, max-age=60")], False),
    ([(b"set-cookie", b"a=b")], False),
    ([(b"set-cookie", b"a=b"), (b"cache-control", b"public, max-age=60")], False),
    ([(b"vary", b"*")], False),
    ([(b"cache-control", b"no-cache")], True),
    ([], True),
)
def test_a_response_freshened_by_an_unstorable_304_is_not_reusable(news, reusable):
    fresh = freshened(stored(TAGGED), *news)
    assert fresh.reusable is reusable
    assert fresh.body == b"0123456789"


@pytest.mark.parametrize("own", [(b"cookie", b"a=b"), (b"x-api-key", b"k")])
def test_a_validating_clients_own_fields_keep_content_shared(own):
    heuristic = [(b"last-modified", imf_fixdate(NOW - 86_400)), (b"date", imf_fixdate(NOW))]
    rules = Rules(heuristic=True)
    begun = may_store(b"k", Fetched(Request(b"GET", b"/a", []), Response(200, heuristic), NOW, NOW), rules)
    assert isinstance(begun, Stored)
    fresh = freshen(begun, Fetched(Request(b"GET", b"/a", [own]), Response(304, []), LATER - 1, LATER), rules)
    assert fresh.reusable
    assert fresh.lifetime > 8000


def test_a_304_may_change_the_selecting_fields():
    fresh = freshened(stored(TAGGED), (b"vary", b"foo, cookie"))
    assert fresh.vary == ((b"cookie", b"a=b"), (b"foo", b"1"))


ORIGIN, CODING = (b"origin", b"https://a.example"), (b"accept-encoding", b"gzip")
TWO = [TAGGED, MAX_AGE, (b"vary", b"Origin, Accept-Encoding"), (b"content-encoding", b"gzip")]


@pytest.mark.parametrize(
    ("status", "method"), [(304, b"GET"), (200, b"HEAD"), (206, b"GET")], ids=["304", "HEAD", "206"]
)
@cases(
    "vary, told",
    (b"Origin", b"Origin, Accept-Encoding"),
    (b"X-Tenant", b"Origin, Accept-Encoding, X-Tenant"),
    (b"", b"Origin, Accept-Encoding"),
    (b"accept-encoding, ORIGIN", b"accept-encoding, ORIGIN"),
    (b"Origin, Accept-Encoding, X-Tenant", b"Origin, Accept-Encoding, X-Tenant"),
    (None, b"Origin, Accept-Encoding"),
)
def test_a_renewed_response_keeps_the_names_that_selected_it(status, method, vary, told):
    part = [(b"content-range", b"bytes 0-4/10")] if status == 206 else []
    content = b"01234" if part else b"0123456789"
    request = [ORIGIN, CODING]
    old = stored_response(*TWO, *part, status=status if part else 200, request=request, body=content)
    news = [TAGGED, MAX_AGE] + ([(b"vary", vary)] if vary is not None else [])
    if part:
        news += [(b"content-range", b"bytes 5-9/10"), (b"content-encoding", b"gzip")]
    asked = Request(method, b"/a", [*request, (b"x-tenant", b"7")])
    fetched = Fetched(asked, Response(206 if part else status, news), LATER - 1, LATER)
    fresh = combine(old, fetched, b"56789", DEFAULTS) if part else freshen(old, fetched, DEFAULTS)
    assert dict(fresh.vary).items() >= {ORIGIN, CODING}
    assert dict(fresh.vary).get(b"x-tenant", b"7") == b"7"
    assert values(fresh.fields, b"vary") == [told]
    assert not matches(fresh, Request(b"GET", b"/a", [ORIGIN]))
    assert not matches(fresh, Request(b"GET", b"/a", [CODING]))


def test_a_304_leaves_the_values_that_selected_the_content():
    german = [TAGGED, MAX_AGE, (b"vary", b"accept-language"), (b"content-language", b"de")]
    old = stored_response(*german, request=[(b"accept-language", b"de")])
    asked = Request(b"GET", b"/a", [(b"accept-language", b"de, en;q=0.5")])
    assert matches(old, asked)
    fresh = freshen(
        old, Fetched(asked, Response(304, [TAGGED, (b"vary", b"x-new")]), LATER - 1, LATER), DEFAULTS
    )
    assert fresh.vary == ((b"accept-language", b"de"), (b"x-new", None))


@cases(
    "news, updates",
    ([TAGGED, (b"content-length", b"10")], True),
    ([TAGGED], True),
    ([(b"etag", b'"2"'), (b"content-length", b"10")], False),
    ([TAGGED, (b"content-length", b"11")], False),
)
def test_the_answer_to_a_head_updates_the_gets(news, updates):
    head = Request(b"HEAD", b"/a", [])
    fields = [*news, (b"cache-control", b"max-age=1000")]
    fresh = freshened(stored(TAGGED), *fields, status=200, request=head)
    assert (fresh is not None) is updates
    if fresh is not None:
        assert (fresh.lifetime, fresh.bodiless, fresh.body) == (1000, False, b"0123456789")
        assert values(fresh.fields, b"test") == [b"old"]
    assert freshened(stored(TAGGED), *fields, status=410, request=head) is None


COOKIE = (b"cookie", b"a=b")
LONG = (b"cache-control", b"max-age=1000")


@cases(
    "old, asked, news, updates",
    # what nobody in particular gets
    ([TAGGED], [], [], True),
    ([], [], [LONG], True),
    ([TAGGED], [], [DATED, LONG], False),
    ([DATED], [], [DATED, LONG], True),
    # what one client gets: only what it confirms, and then as much as a 304 would
    ([TAGGED], [COOKIE], [LONG], False),
    ([TAGGED, DATED], [COOKIE], [], False),
    ([], [COOKIE], [LONG], False),
    ([TAGGED], [COOKIE], [TAGGED, LONG], True),
    ([TAGGED], [COOKIE], [(b"etag", b'"2"'), LONG], False),
    ([DATED], [COOKIE], [DATED], True),
    ([TAGGED], [(b"authorization", b"x")], [TAGGED, LONG], False),
    ([TAGGED], [(b"authorization", b"x")], [TAGGED, (b"cache-control", b"public, max-age=9")], True),
    # and it does not end what everybody gets
    ([TAGGED], [COOKIE], [TAGGED, (b"cache-control", b"private")], False),
    ([TAGGED], [COOKIE], [TAGGED, (b"set-cookie", b"a=b")], False),
)
def test_one_clients_head_updates_at_most_what_it_confirms(old, asked, news, updates):
    head = Request(b"HEAD", b"/a", asked)
    fresh = freshened(stored(*old), *news, (b"test", b"me"), status=200, request=head)
    assert (fresh is not None and fresh.reusable) is updates
    assert (fresh is None) is not updates


@cases(
    "cookies, old, news, reusable",
    ("public", b"public, max-age=60", [], False),
    ("public", b"public, max-age=60", [(b"cache-control", b"max-age=60")], False),
    ("public", b"max-age=60", [(b"cache-control", b"s-maxage=60")], True),
    ("explicit", b"max-age=60", [], False),
    ("explicit", b"max-age=60", [(b"cache-control", b"max-age=60")], True),
    ("never", b"max-age=60", [(b"cache-control", b"s-maxage=60")], False),
)
def test_a_cookie_set_by_a_304_needs_its_permission(cookies, old, news, reusable):
    found = stored(TAGGED, (b"cache-control", old))
    response = Response(304, [TAGGED, (b"set-cookie", b"a=b"), *news])
    fresh = freshen(found, Fetched(ASKED, response, LATER - 1, LATER), Rules(set_cookie=cookies))
    assert fresh.reusable is reusable
    assert values(fresh.fields, b"set-cookie") == [b"a=b"]


def part(place, body, *more):
    return stored((b"content-range", place), *(more or (TAGGED,)), status=206, body=body)


def combined(found, place, body, *more, status=206):
    fields = [(b"content-range", place), (b"cache-control", b"max-age=60"), (b"date", imf_fixdate(LATER))]
    response = Response(status, [*fields, *(more or (TAGGED,))])
    return combine(found, Fetched(ASKED, response, LATER, LATER), body, Rules())


def test_two_parts_become_a_whole():
    for first, second in (((0, b"01234"), (5, b"56789")), ((5, b"56789"), (0, b"01234"))):
        found = part(b"bytes %d-%d/10" % (first[0], first[0] + 4), first[1])
        whole = combined(
            found, b"bytes %d-%d/10" % (second[0], second[0] + 4), second[1], TAGGED, (b"test", b"new")
        )
        assert (whole.status, whole.part, whole.body) == (200, None, b"0123456789")
        assert whole.head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert values(whole.fields, b"content-range") == []
        assert values(whole.fields, b"content-length") == [b"10"]
        assert values(whole.fields, b"test") == [b"new"]
        assert whole.born == LATER


@cases(
    "old, new, joined, place",
    ((b"bytes 0-3/10", b"0123"), (b"bytes 2-5/10", b"ABCD"), b"01ABCD", b"bytes 0-5/10"),
    ((b"bytes 2-5/10", b"2345"), (b"bytes 0-3/10", b"ABCD"), b"ABCD45", b"bytes 0-5/10"),
    ((b"bytes 1-5/10", b"12345"), (b"bytes 2-3/10", b"AB"), b"1AB45", b"bytes 1-5/10"),
    ((b"bytes 0-1/*", b"01"), (b"bytes 2-3/*", b"23"), b"0123", b"bytes 0-3/*"),
)
def test_parts_that_touch_are_one(old, new, joined, place):
    one = combined(part(*old), *new)
    assert (one.status, one.body, values(one.fields, b"content-range")) == (206, joined, [place])


@cases(
    "old, new",
    ((b"bytes 0-3/10", b"0123"), (b"bytes 5-9/10", b"56789")),  # a gap
    ((b"bytes 0-3/10", b"0123"), (b"bytes 4-9/11", b"456789")),  # another length
    ((b"bytes 0-4/10", b"0123"), (b"bytes 4-9/10", b"456789")),  # shorter than it says
    ((b"bytes 0-3/10", b"0123"), (b"bytes 4-9/10", b"45678")),
    ((b"bytes 0-3/10", b"0123"), (b"bytes */10", b"")),
    ((b"bytes 0-3/10", b"0123", (b"etag", b'"2"')), (b"bytes 4-9/10", b"456789")),
    ((b"bytes 0-3/10", b"0123", (b"etag", b'W/"1"')), (b"bytes 4-9/10", b"456789", (b"etag", b'W/"1"'))),
    ((b"bytes 0-3/10", b"0123", (b"x", b"y")), (b"bytes 4-9/10", b"456789", (b"x", b"y"))),
    ((b"bytes 0-3/10", b"0123"), (b"bytes 4-9/10", b"456789", TAGGED, (b"cache-control", b"no-store"))),
)
def test_parts_of_different_things_are_not_combined(old, new):
    assert combined(part(*old), *new) is None


def test_only_206s_are_combined():
    assert combined(part(b"bytes 0-3/10", b"0123"), b"bytes 4-9/10", b"456789", status=200) is None
    assert combined(stored(TAGGED), b"bytes 4-9/10", b"456789") is None


def test_parts_share_a_last_modified_if_it_is_strong():
    assert combined(part(b"bytes 0-4/10", b"01234", DATED), b"bytes 5-9/10", b"56789", DATED) is not None


@cases(
    "method, status, fields, obsolete",
    (b"POST", 200, [], ([], set())),
    (b"PUT", 204, [], ([], set())),
    (b"DELETE", 301, [], ([], set())),
    (b"M-SEARCH", 200, [], ([], set())),
    (b"POST", 500, [(b"location", b"/b")], None),
    (b"POST", 404, [], None),
    (b"POST", 199, [], None),
    (b"GET", 200, [(b"location", b"/b")], None),
    (b"HEAD", 200, [], None),
    (b"OPTIONS", 200, [], None),
    (b"TRACE", 200, [], None),
    (b"POST", 201, [(b"location", b"/b"), (b"content-location", b"c")], ([b"/b", b"c"], set())),
    (b"POST", 201, [(b"location", b"/b"), (b"content-location", b"/b")], ([b"/b"], set())),
    (b"POST", 200, [(b"cache-group-invalidation", b'"g", "h i"')], ([], {b"g", b"h i"})),
    (b"POST", 200, [(b"cache-group-invalidation", b"g")], ([], set())),
    (b"GET", 200, [(b"cache-group-invalidation", b'"g"')], None),
    (b"POST", 500, [(b"cache-group-invalidation", b'"g"')], None),
)
def test_a_success_of_an_unsafe_method_invalidates(method, status, fields, obsolete):
    """Its target, and what it names besides; None: not even its target."""
    assert invalidates(Request(method, b"/a", []), Response(status, fields)) == obsolete
