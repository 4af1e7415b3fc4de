"""No head costs more than reading it once: operations are counted, no clock is read.

An operation is a call, of Python's or of C's. To read 60,000 octets by members takes 100,000 of them; what
one request may take is a few milliseconds.
"""

import sys

import pytest

from examples import cases
from neighbours import FRESH, PlayedClient, Proxy
from univocal.cache.directives import RequestDirectives, request_directives, response_directives
from univocal.cache.rules import Rules
from univocal.http.messages import firsts

CEILING = 15_000
SIZE = 60_000
VARIANTS = 64
FOREVER = (b"cache-control", b"max-age=600")


def operations(act, *arguments, **named):
    """The calls, of Python's and of C's, that a call takes."""
    count = 0

    def profile(_frame, event, _):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(profile)
    try:
        act(*arguments, **named)
    finally:
        sys.setprofile(None)
    return count


def listed(member, separator=b","):
    return separator.join([member] * (SIZE // len(member + separator)))


def varying(proxy, *names, language=False):
    """Have as many variants stored as may be, each for another value of the last of these names."""
    for number in range(VARIANTS):
        proxy.ask(b"/a", b"GET", *[(name, b"v%d" % number if name == names[-1] else b"v") for name in names])
        told = [(b"content-language", b"l%d" % number)] if language else []
        proxy.origin.last.answers(b"%d" % number, fields=[FOREVER, (b"vary", b", ".join(names)), *told])
    assert len(proxy.stored()) == VARIANTS


@cases("name", b"accept-encoding", b"accept-language", b"cookie", b"x-other")
def test_a_long_selecting_field_is_read_once_whatever_is_stored(name):
    proxy = Proxy(rules=Rules(accept_encoding="keep"))
    varying(proxy, name, language=name == b"accept-language")
    for member in (b"a", b"a;q=0.5", b'"\\a"', b"a b"):
        long, again = (name, listed(member)), PlayedClient()
        taken = [
            operations(proxy.ask, b"/a", b"GET", long),
            operations(proxy.origin.last.answers, member, fields=[FOREVER, (b"vary", name)]),
            operations(proxy.ask, b"/a", b"GET", long, client=again),
        ]
        assert max(taken) < CEILING
        assert (again.body, "hit" in again.handling) == (member, True)


def test_a_long_selecting_field_in_many_lines_is_read_once():
    proxy = Proxy(rules=Rules(accept_encoding="keep"))
    varying(proxy, b"accept-encoding")
    lines = [(b"accept-encoding", listed(b"a")[:600])] * 90
    assert operations(proxy.ask, b"/a", b"GET", *lines) < CEILING


@pytest.mark.parametrize("member", [b"a", b"a;q=0.5", b'"\\a"', b"a b", b"gzip"])
def test_codings_are_reduced_at_once(member):
    proxy = Proxy()
    proxy.store_away(b"x", fields=[FOREVER, (b"vary", b"accept-encoding")])
    long, parts = listed(member), [listed(member)[:600]] * 90
    for lines in ([long], parts, [long[:4096]], [long[:256]]):
        fields = [(b"accept-encoding", line) for line in lines]
        assert operations(proxy.ask, b"/a", b"GET", *fields) < CEILING


def test_as_many_selecting_fields_as_may_be_are_read_once(proxy):
    names = [b"x-%02d" % number for number in range(64)]
    varying(proxy, *names)
    fields = [(name, b"w" if name == names[-1] else b"v") for name in names]
    assert operations(proxy.ask, b"/a", b"GET", *fields) < CEILING
    vary = [FOREVER, (b"vary", b", ".join(names))]
    assert operations(proxy.origin.last.answers, b"new", fields=vary) < 2 * CEILING
    ordinary = proxy.ask(b"/a", b"GET", *[(name, b"v7" if name == names[-1] else b"v") for name in names])
    assert ordinary.body == b"7"


def test_among_many_variants_the_one_asked_for_is_found():
    proxy = Proxy(rules=Rules(accept_encoding="keep"))
    varying(proxy, b"accept-encoding")
    assert proxy.ask(b"/a", b"GET", (b"accept-encoding", b" v9,V9")).body == b"9"
    varying(proxy, b"accept-language", language=True)
    assert proxy.ask(b"/a", b"GET", (b"accept-language", b"xx;q=0.3, l9;q=0.4")).body == b"9"


def test_more_selecting_fields_than_may_be_are_stored_for_nobody():
    for count, stored in ((64, [b"x"]), (65, [])):
        proxy = Proxy()
        vary = b",".join(b"x-%d" % number for number in range(count))
        proxy.store_away(b"x", fields=[FOREVER, (b"vary", vary)])
        assert proxy.stored() == stored
    proxy = Proxy()
    proxy.ask()
    long = [FOREVER, (b"vary", listed(b"a"))]
    assert operations(proxy.origin.last.answers, b"x", fields=long) < CEILING
    assert proxy.stored() == []


HEADS = [
    (b"cache-control", listed(b"a")),
    (b"cache-control", listed(b"a b")),
    (b"cache-control", listed(b'a="\\b"')),
    (b"cache-control", b'private="' + listed(b"a") + b'"'),
    (b"cache-control", b'"' * SIZE),
    (b"pragma", listed(b"a")),
    (b"if-none-match", listed(b'""')),
    (b"if-none-match", b'"' * SIZE),
    (b"if-none-match", b", " * (SIZE // 2)),
    (b"range", b"bytes=" + listed(b"0-1")),
    (b"range", b"bytes=" + listed(b"0-")),
    (b"cookie", listed(b"a=b", b";")),
    (b"te", listed(b"a")),
    (b"via", listed(b"1.1 a")),
    (b"forwarded", listed(b"for=a")),
    (b"x-forwarded-for", listed(b"1")),
    (b"x_" * (SIZE // 2), b"a"),
    (b"uri-path-encoding", listed(b"a")),
]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST", b"OPTIONS"])
@pytest.mark.parametrize("field", HEADS, ids=lambda field: f"{field[0][:20]!r} {field[1][:12]!r}")
def test_request_fields_cost_no_more_than_reading_them(proxy, field, method):
    proxy.store_away(b"x", fields=[FOREVER, (b"etag", b'"e"')])
    client = PlayedClient()
    assert operations(proxy.ask, b"/a", method, field, client=client) < CEILING
    if not client.state:
        assert operations(proxy.origin.last.answers, b"y", fields=[FOREVER]) < CEILING
    assert client.status in {200, 304}


ABOUT_COOKIES = [
    Rules(bypass_cookies=("s*", "x*y*z")),
    Rules(strip_cookies=("_*", "x*y*z")),
    Rules(keep_cookies=("s*", "x*y*z"), bypass_cookies=("in",), ttl=60),
]


@pytest.mark.parametrize("rules", ABOUT_COOKIES, ids=["bypass", "strip", "keep"])
@pytest.mark.parametrize("pairs", [1, 1000, 1001, 30_000])
@pytest.mark.parametrize("lines", [1, 90])
def test_cookie_names_are_read_unless_too_many(rules, pairs, lines):
    proxy = Proxy(rules=rules)
    proxy.store_away(b"x", fields=[FOREVER])
    crumbs = [b"_%d" % (number % 9000) for number in range(pairs)]
    cookies = [(b"cookie", b";".join(part)) for line in range(lines) if (part := crumbs[line::lines])]
    passes = pairs > 1000
    client = PlayedClient()
    assert operations(proxy.ask, b"/a", b"GET", *cookies, client=client) < CEILING
    if passes:
        assert operations(proxy.origin.last.answers, b"new", fields=[FOREVER]) < CEILING
        sent = [field for field in proxy.origin.last.request.fields if field[0] == b"cookie"]
        assert sent == cookies
    assert client.body == (b"new" if passes else b"x")
    assert proxy.stored() == [b"x"]


ANSWERS = [
    (b"cache-control", listed(b"a")),
    (b"cdn-cache-control", listed(b"a")),
    (b"cache-groups", listed(b'"a"')),
    (b"cache-group-invalidation", listed(b'"a"')),
    (b"no-vary-search", b"params=(" + listed(b'"a"', b" ") + b")"),
    (b"vary", listed(b"a")),
    (b"surrogate-key", listed(b"a", b" ")),
    (b"xkey", listed(b"abc", b" ")),
    (b"location", b"/a/.." * (SIZE // 5)),
    (b"content-location", b"/%2e%2E" * (SIZE // 7)),
    (b"link", listed(b"<a>;rel=b")),
    (b"set-cookie", listed(b"a=b", b";")),
    (b"age", listed(b"1")),
]


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"POST"])
@pytest.mark.parametrize("field", ANSWERS, ids=lambda field: f"{field[0]!r}")
def test_response_fields_cost_no_more_than_reading_them(proxy, field, method):
    client = proxy.ask(b"/a", method)
    fields = [*([] if field[0] == b"cache-control" else [FOREVER]), field]
    assert operations(proxy.origin.last.answers, b"x", fields=fields) < CEILING
    assert (client.status, client.state) == (200, "finished")


# Fields too long to be read


LONG = b", ".join([b"extension"] * 500)


def directives(*fields):
    return response_directives([*fields], firsts([*fields]), (b"cdn-cache-control",))


def test_a_too_long_cache_control_of_a_response_forbids():
    told = directives((b"cache-control", LONG + b", public, max-age=60"))
    assert (told.no_store, told.private, told.public) == (True, True, False)
    assert directives((b"cache-control", LONG), (b"cache-control", b"public")).no_store
    assert directives((b"cdn-cache-control", LONG), (b"cache-control", b"max-age=60")).no_store
    short = directives((b"cache-control", LONG[:4000] + b", public, max-age=60"))
    assert (short.no_store, short.private, short.public, short.max_age) == (False, False, True, 60)


def test_a_too_long_cache_control_goes_to_the_origin(proxy):
    for field in ((b"cache-control", LONG), (b"pragma", LONG)):
        assert request_directives([field]).no_cache
    assert request_directives([(b"cache-control", LONG[:4000])]) == RequestDirectives()
    proxy.store_away(b"old", fields=[FOREVER])
    client = proxy.ask(b"/a", b"GET", (b"cache-control", LONG))
    proxy.origin.last.answers(b"new", fields=[FOREVER])
    assert (client.body, proxy.stored()) == (b"new", [b"old"])


def test_a_response_with_too_many_groups_is_not_stored():
    for groups, stored in ((listed(b'"a"')[:4003], [b"x"]), (listed(b'"a"')[:4103], [])):
        proxy = Proxy()
        proxy.store_away(b"x", fields=[FOREVER, (b"cache-groups", groups)])
        assert proxy.stored() == stored


@pytest.mark.parametrize(("names", "handling"), [(1, {"hit", "ttl=600"}), (800, {"fwd=uri-miss", "stored"})])
def test_a_variance_that_is_too_long_is_the_default_one(proxy, names, handling):
    variance = b"params=(" + b" ".join([b'"utm"'] * names) + b")"
    proxy.store_away(b"x", fields=[FOREVER, (b"no-vary-search", variance)], target=b"/a?utm=1")
    proxy.origin.script = lambda asked: asked.answers(b"x")
    assert proxy.ask(b"/a?utm=2").handling == handling


@pytest.mark.parametrize(("length", "left"), [(2700, []), (2800, [b"x"])])
def test_a_location_longer_than_targets_may_be_names_nothing_stored(length, left):
    proxy = Proxy(max_target=8192)
    proxy.store_away(b"x", fields=FRESH, target=b"/" + b"a" * length)
    proxy.ask(b"/other", b"POST")
    proxy.origin.last.answers(fields=[(b"location", b"/" + b"%61" * length)])
    assert proxy.stored(b"/" + b"a" * length) == left
