"""Storing (RFC 9111 §3) takes shortcuts and remembers; it says what a plain reading of the RFC says."""

from dataclasses import fields as attributes
from email.utils import formatdate

from hypothesis import example, given
from hypothesis import strategies as st

from examples import any_of
from support import KEY, NOW
from univocal.cache.directives import tags
from univocal.cache.ranges import content_range
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, Unstorable, complete, may_store
from univocal.cache.vary import vary_names
from univocal.http.messages import Request, Response, cache_control, delta_seconds, first, http_date, values

UNDERSTOOD = {200, 201, 203, 204, 206, 301, 304, 404, 412, 416, 501, 503}


def refusal(request, response, rules):
    """The clauses of RFC 9111 §3 one after another; None where what follows them decides."""
    fields, status = response.fields, response.status
    told = cache_control(values(fields, b"cache-control"))
    private = b"private" in told and not (told[b"private"] or b"").strip(b", ")
    understood = b"must-understand" in told and status in UNDERSTOOD
    explicit = delta_seconds(told.get(b"s-maxage")) or delta_seconds(told.get(b"max-age"))
    expires, date = (http_date(first(fields, name), NOW) for name in (b"expires", b"date"))
    if expires is not None and not {b"s-maxage", b"max-age"} & told.keys():
        explicit = expires > (NOW if date is None else date)
    allowed = {b"must-revalidate", b"public", b"s-maxage"} & told.keys()
    posted = request.method == b"POST" and status == 200 and explicit
    meant = first(fields, b"content-location") in {request.target, b"http://en.example" + request.target}
    clauses = (
        ("method", request.method not in {b"GET", b"HEAD"} and not (posted and meant)),
        ("status", status < 200 or status in {304, 412, 416, 431}),
        ("partial", status == 206 and content_range(fields) is None),
        ("must-understand", b"must-understand" in told and not understood),
        ("no-store", b"no-store" in told and not understood),
        ("private", private),
        ("authorization", first(request.fields, b"authorization") is not None and not allowed),
        ("error", status > 399 and rules.errors == "safe" and status not in {404, *rules.ttl_by_status}),
        ("vary-star", vary_names(fields) is None and any(b"*" in line for line in values(fields, b"vary"))),
        ("vary", vary_names(fields) is None),
        ("malformed", any(octet in name + value for name, value in fields for octet in b"\r\n\0")),
        ("malformed", any(name != name.lower() or b" " in name or not name for name, _ in fields)),
        ("tags", len(tags(fields)) > 1_024),
    )
    return next((reason for reason, holds in clauses if holds), None)


DIRECTIVES = st.lists(
    any_of(
        *("max-age=0", "max-age=60", "s-maxage=5", "no-store", "No-Store", "private", 'private="a"'),
        *("public", "must-revalidate", "must-understand", "no-cache", 'ext="no-store, private"'),
    ),
    max_size=3,
).map(lambda found: ", ".join(found).encode())
DATES = st.integers(-400_000, 400_000).map(lambda late: formatdate(NOW + late, usegmt=True).encode())
LINES = (
    st.tuples(st.just(b"cache-control"), DIRECTIVES)
    | st.tuples(any_of(b"date", b"expires", b"last-modified"), DATES)
    | st.tuples(st.just(b"vary"), any_of(b"foo", b"*", b"x-forwarded-for", b""))
    | any_of((b"etag", b'"1"'), (b"etag", b"1"), (b"age", b"7"), (b"set-cookie", b"a=b"))
    | any_of((b"content-location", b"/a.css"), (b"content-type", b"text/html"))
    | any_of((b"content-range", b"bytes 0-4/9"), (b"content-length", b"5"))
    | any_of((b"connection", b"x, etag"), (b"x", b"a\nb"), (b"x", b"a\0"), (b"X", b""), (b"", b""))
    | any_of((b"xkey", b"a b"), (b"xkey", b" ".join(b"%d" % n for n in range(1_025))))
)
RESPONSES = st.builds(
    Response, any_of(200, 200, 200, 103, 206, 304, 404, 412, 431, 503, 599), st.lists(LINES, max_size=6)
)
REQUESTS = st.builds(
    Request,
    any_of(b"GET", b"GET", b"HEAD", b"POST", b"PUT"),
    st.just(b"/a.css"),
    st.lists(any_of((b"authorization", b"x"), (b"cookie", b"a"), (b"foo", b"1"), (b"accept", b"*/*"))),
)
RULES = st.builds(
    Rules,
    ttl=any_of(0, 30),
    ttl_by_status=any_of({}, {503: 5, 431: 5}),
    heuristic=st.booleans(),
    set_cookie=any_of("never", "public", "explicit"),
    errors=any_of("safe", "explicit"),
    targeted=st.just(()),
)


@given(REQUESTS, RESPONSES, RULES)
@example(
    Request(b"POST", b"/a.css", []),
    Response(200, [(b"content-location", b"/a.css"), (b"expires", b"Fri, 31 Dec 9999 23:59:59 GMT")]),
    Rules(),
)
def test_the_first_clause_that_holds_forbids_storing(request, response, rules):
    found = may_store(KEY, Fetched(request, response, NOW, NOW), rules)
    expected = refusal(request, response, rules)
    if expected is not None:
        assert found == Unstorable(expected)
    elif isinstance(found, Unstorable):
        assert found.reason in {
            *("set-cookie", "cookie", "personal", "status-no-freshness", "no-freshness", "deceptive-type")
        }


def facts(found):
    if isinstance(found, Unstorable):
        return found
    return {each.name: getattr(found, each.name) for each in attributes(found)}


@given(REQUESTS, RESPONSES, RULES)
def test_a_remembered_short_line_equals_a_long_one(request, response, rules):
    """A line of 300 blanks more is not remembered, and a field of two lines is read line by line."""
    read = (b"cache-control", b"vary", b"date", b"expires", b"last-modified")
    longer = [(name, value + b" " * 300 if name in read else value) for name, value in response.fields]
    doubled = [*response.fields, (b"cache-control", b""), (b"vary", b"")]
    found, other, third = (
        may_store(KEY, Fetched(request, Response(response.status, fields), NOW, NOW), rules)
        for fields in (response.fields, longer, doubled)
    )
    for each in (other, third):
        if isinstance(each, Stored):
            each.head, each.last_modified = found.head, found.last_modified
            if each.strong and not each.etag:
                each.strong = found.strong
        assert facts(each) == facts(found)


@given(st.lists(LINES, max_size=6), st.binary(max_size=9))
def test_a_completed_response_has_the_fields_that_it_came_with(fields, body):
    begun = may_store(
        KEY,
        Fetched(Request(b"GET", b"/a", []), Response(200, [*fields, (b"etag", b'"1"')]), NOW, NOW),
        Rules(),
    )
    if not isinstance(begun, Stored):
        return
    head, described = begun.fields, facts(begun)
    done = complete(begun, body)
    if done is None:
        return
    length = [] if first(fields, b"content-length") else [(b"content-length", b"%d" % len(body))]
    assert done.fields == [*head, *length]
    for name in (b"content-length", b"etag", b"xkey", b"none"):
        assert done.line(name) == first(done.fields, name)
    assert facts(done) == described | {
        "head": done.head,
        "body": body,
        "cost": done.cost,
        "small": done.small,
    }


YEARS = st.integers(0, 99).map(lambda year: b"Sunday, 06-Nov-%02d 08:49:37 GMT" % year)
FORMS = any_of(b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sun Nov  6 08:49:37 1994", b"Mon, 31 Feb 2026 x")
NOWS = st.integers(0, 20_000_000_000).map(float)


@given(YEARS | FORMS | DATES, NOWS, NOWS)
@example(b"Sunday, 06-Nov-94 08:49:37 GMT", 0.0, NOW)
@example(b"Monday, 06-Nov-94 8:49:37 GMT", 0.0, NOW)
def test_a_remembered_date_is_read_as_another_is(value, one, other):
    """With a blank at its end a date is as long as none that is remembered; one of two digits never is."""
    for padding in range(7):
        padded = value + b" " * padding
        assert http_date(padded, one) == http_date(value + b" " * 40, one)
        assert http_date(padded, other) == http_date(value + b" " * 40, other)
