"""Storing a response (RFC 9111 §3), the part of it that is stored (§3.1), and its lifetime (§4.2)."""

import pytest

from examples import cases
from support import KEY, NOW
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import (
    HEURISTIC_LIMIT,
    Fetched,
    Unstorable,
    assess,
    complete,
    describe,
    index_fields,
    may_store,
    storable_fields,
)
from univocal.http.errors import ConfigurationError
from univocal.http.intermediary import HOP_BY_HOP
from univocal.http.messages import Request, Response, imf_fixdate

DAY = 86_400
HEURISTIC = {"heuristic": True, "set_cookie": "public"}
MODIFIED = (b"last-modified", imf_fixdate(NOW - DAY))


def lines(**fields):
    return [(name.replace("_", "-").encode(), str(value).encode()) for name, value in fields.items()]


def date(seconds):
    return imf_fixdate(NOW + seconds).decode()


def judged(response, *, status=200, request=None, method=b"GET", target=b"/a", delay=0.0, **rules):
    asked = Request(method, target, request or [])
    return may_store(KEY, Fetched(asked, Response(status, response), NOW - delay, NOW), Rules(**rules))


def reason(*args, **kwargs):
    verdict = judged(*args, **kwargs)
    return verdict.reason if isinstance(verdict, Unstorable) else "stored"


# Every MUST NOT has a row that fires it and one that does not.
@cases(
    "directives, expected",
    ("max-age=60", "stored"),
    ("no-store, max-age=60", "no-store"),
    ("No-StOrE", "no-store"),
    ('x="no-store", max-age=60', "stored"),
    ("private, max-age=60", "private"),
    ('private="set-cookie", max-age=60', "stored"),
    ("no-cache, max-age=60", "no-freshness"),
    ("max-age=60, no-store, must-understand", "stored"),
    ("max-age=60, must-understand", "stored"),
    ("max-age=0", "no-freshness"),
    ("max-age=0, stale-while-revalidate=5", "stored"),
    ("max-age=0, stale-if-error=5", "stored"),
    ("max-age=0, must-revalidate, stale-if-error=5", "no-freshness"),
    *((each, "no-freshness") for each in ("max-age=-3600", "max-age='3600'", "max-age", "max-age =60")),
    *((each, "no-freshness") for each in ("s-maxage=nonsense, max-age=60", "public")),
)
def test_directives_decide(directives, expected):
    assert reason(lines(cache_control=directives)) == expected


# A malformed directive still forbids as its name says, and allows nothing.
@cases(
    "directives, expected",
    ("no-cache; no-store", "no-store"),
    ("no-store; max-age=0", "no-store"),
    ("private; max-age=60", "private"),
    *((each, "no-store") for each in ("no-store no-cache", "NO-STORE;", "x y no-store")),
    ('max-age=10, a="b, no-store', "no-store"),
    ('max-age=60, private="a" x', "private"),
    ("max-age=60, no-cache;", "no-freshness"),
    *((each, "no-freshness") for each in ('max-age=60, no-cache="a", no-cache;x', "max-age=60;public")),
    *((each, "no-freshness") for each in ("public; max-age=60", "foo bar", "=", "ext=", '"')),
    # these can be read
    *((each, "stored") for each in ("", "foo", ", ,foo=1", 'foo="a;b \\" no-store"', "not-no-store")),
    *((each, "stored") for each in ("foo bar, max-age=60", "max-age=60, foo; no-storey")),
)
def test_directives_that_cannot_be_read_license_nothing(directives, expected):
    assert reason(lines(cache_control=directives), ttl=60) == expected


def test_heuristics_are_not_for_what_cannot_be_read():
    for directives, lifetime in (("foo", DAY / 10), ("foo bar", 0), ("foo bar, public", 0)):
        stored = judged([MODIFIED, *lines(date=date(0), cache_control=directives)], heuristic=True)
        assert stored.lifetime == lifetime


@cases("status", 200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 503, 599)
def test_explicit_freshness_lets_any_final_status_be_stored(status):
    assert reason(lines(cache_control="max-age=60"), status=status, errors="explicit") == "stored"
    # an error without explicit freshness is not kept
    if status not in {200, 203, 204}:
        assert reason([], status=status, errors="explicit") != "stored"


@cases(
    "status",
    *(100, 103, 199, 304, 401, 406, 407, 408, 411, 412, 413, 415, 416, 417, 421, 422, 425, 426, 428, 429),
    *(431, 511),
)
def test_statuses_that_are_never_stored(status):
    fields = lines(cache_control="public, max-age=60")
    assert reason(fields, status=status, errors="explicit") == "status"
    if status >= 200:
        assert reason(fields, status=status, ttl_by_status={status: 9}) == "status"
        return
    with pytest.raises(ConfigurationError, match=f"ttl_by_status.{status}: "):
        Rules(ttl_by_status={status: 9})


@cases(
    "status, rules, expected",
    *[(status, {}, "stored") for status in (200, 203, 299, 301, 308, 404, 410)],
    *[(status, {}, "error") for status in (400, 403, 405, 414, 451, 499, 500, 501, 502, 503, 504, 599)],
    *[(status, {"errors": "explicit"}, "stored") for status in (400, 403, 405, 414, 451, 500, 503, 599)],
    (403, {"ttl_by_status": {403: 5}}, "stored"),
    (403, {"ttl_by_status": {503: 5}}, "error"),
    (503, {"ttl_by_status": {503: 0}}, "stored"),
)
def test_errors_are_stored_as_configured(status, rules, expected):
    # One request can provoke most errors: one field too long, and a 400 would be everybody's.
    assert reason(lines(cache_control="public, max-age=60"), status=status, **rules) == expected


def test_must_understand_forbids_what_is_not_understood():
    assert reason(lines(cache_control="max-age=60, must-understand"), status=599) == "must-understand"
    assert (
        reason(lines(cache_control="max-age=60, no-store, must-understand"), status=599) == "must-understand"
    )
    assert reason(lines(cache_control="max-age=60"), status=599, errors="explicit") == "stored"


@cases(
    "status, directives, expected",
    *[(status, "", "stored") for status in (200, 203, 204, 404, 405, 410, 414, 501)],
    *[(status, "", "status-no-freshness") for status in (201, 202, 301, 308, 403, 502, 503, 504, 599)],
    (599, "public", "stored"),
)
def test_heuristics_are_for_statuses_that_allow_them(status, directives, expected):
    fields = [MODIFIED, *lines(date=date(0))]
    fields += lines(cache_control=directives) if directives else []
    stored = judged(fields, status=status, heuristic=True, errors="explicit")
    assert (stored.reason if isinstance(stored, Unstorable) else "stored") == expected
    if isinstance(stored, Stored):
        assert stored.lifetime == DAY / 10


@cases(
    "request_fields, more, reason",
    ([(b"x-auth-token", b"x")], [], "personal"),
    ([(b"x-access-token", b"x")], [], "personal"),
    ([(b"cf-access-authenticated-user-email", b"x")], [], "personal"),
    ([(b"x-api-key", b"x")], [(b"vary", b"accept")], "personal"),
    ([], [(b"content-type", b"text/event-stream; charset=utf-8")], "streaming"),
    ([], [(b"content-type", b"multipart/x-mixed-replace")], "streaming"),
    ([], [(b"content-type", b"application/x-ndjson")], "streaming"),
    ([], [(b"content-type", b"application/x-ndjson"), (b"content-length", b"5")], ""),
    ([(b"sentry-trace", b"x"), (b"x-real-ip", b"192.0.2.1"), (b"save-data", b"on")], [], ""),
)
def test_lifetimes_of_ours_are_for_what_is_everybodys(request_fields, more, reason):
    stored = judged([*lines(date=date(0)), *more], request=request_fields, ttl=30)
    assert (stored.reason if isinstance(stored, Unstorable) else "") == reason


@cases(
    "request_fields, more, rules, lifetime",
    ([], [], {}, 0),
    ([], [], HEURISTIC, DAY / 10),
    ([], [(b"cache-control", b"max-age=5")], {}, 5),
    ([], [(b"expires", b"0")], {}, 0),
    ([], [(b"set-cookie", b"a=b"), (b"cache-control", b"public")], HEURISTIC, 0),
    ([(b"cookie", b"a=b")], [(b"cache-control", b"public")], HEURISTIC, 0),
    ([(b"authorization", b"x")], [(b"cache-control", b"public")], HEURISTIC, 0),
    ([(b"x-api-key", b"x")], [(b"cache-control", b"public")], HEURISTIC, 0),
    ([(b"user-agent", b"x"), (b"sec-fetch-mode", b"navigate")], [], HEURISTIC, DAY / 10),
    ([], [], {"ttl": 30}, 30),
    ([], [(b"cache-control", b"max-age=5")], {"ttl": 30}, 5),
    ([], [], {"ttl": 30, "ttl_by_status": {200: 7}}, 7),
    ([], [], {"ttl_by_status": {404: 7}, "heuristic": True}, DAY / 10),
    ([(b"x-api-key", b"x")], [(b"cache-control", b"public")], {"ttl": 30}, 0),
    ([(b"x-api-key", b"x")], [(b"vary", b"X-Api-Key")], {"ttl": 30}, 30),
    ([], [(b"cache-control", b'private="x-user"')], {"ttl": 30}, 0),
    ([], [(b"cache-control", b'no-cache="x-user"')], {"ttl": 30}, 0),
    ([], [(b"cache-control", b'private="x-user", max-age=5')], {"ttl": 30}, 5),
    ([(b"x-b3-traceid", b"x"), (b"cf-ray", b"y")], [], {"ttl": 30}, 30),
    ([], [(b"content-type", b"text/event-stream"), (b"cache-control", b"max-age=5")], {"ttl": 30}, 5),
)
def test_lifetimes_are_assigned_only_without_freshness_and_names(request_fields, more, rules, lifetime):
    stored = judged([MODIFIED, *lines(date=date(0)), *more], request=request_fields, **rules)
    assert stored.lifetime == lifetime


@cases(
    "status, rules, expected",
    (200, {"ttl": 30}, "stored"),
    (404, {"ttl": 30}, "no-freshness"),
    (301, {"ttl": 30}, "status-no-freshness"),
    (302, {"ttl": 30}, "status-no-freshness"),
    (302, {"ttl_by_status": {302: 30}}, "stored"),
    (500, {"ttl_by_status": {500: 1}}, "stored"),
    (500, {"ttl": 30}, "error"),
    (500, {"ttl": 30, "errors": "explicit"}, "status-no-freshness"),
    (500, {"ttl_by_status": {503: 1}}, "error"),
)
def test_ttl_is_for_successes_and_ttl_by_status_for_others(status, rules, expected):
    assert reason([], status=status, **rules) == expected


@cases(
    "directives, expected",
    ("max-age=60", "authorization"),
    ("max-age=60, public", "stored"),
    ("max-age=60, must-revalidate", "stored"),
    ("s-maxage=60", "stored"),
    ("max-age=60, proxy-revalidate", "authorization"),
)
def test_authorization_needs_the_origins_word(directives, expected):
    assert reason(lines(cache_control=directives), request=[(b"authorization", b"Basic x")]) == expected


@cases(
    "directives, more, request_fields, expected",
    ("max-age=60", [], [], "stored"),
    ("max-age=60", [], [(b"cookie", b"a=b")], "stored"),
    ("max-age=60", [], [(b"authorization", b"x")], "authorization"),
    ("max-age=60, public", [], [(b"authorization", b"x")], "stored"),
    ("max-age=60", [(b"set-cookie", b"a=b")], [], "set-cookie"),
    ("max-age=60, private", [], [], "private"),
)
def test_a_posts_answer_obeys_what_a_gets_obeys(directives, more, request_fields, expected):
    fields = [*lines(cache_control=directives, content_location="/a"), *more]
    for method in (b"GET", b"POST"):
        assert reason(fields, request=request_fields, method=method) == expected


@cases(
    "modified, sent, lifetime",
    (-1000, 0, 100),
    (-1000, -500, 50),
    (1000, 0, 0),
    (-(10**8), 0, HEURISTIC_LIMIT),
)
def test_a_tenth_of_the_time_since_the_last_change(modified, sent, lifetime):
    fields = lines(last_modified=date(modified), date=date(sent))
    stored = judged(fields, heuristic=True)
    assert stored.lifetime == lifetime


@cases(
    "directives, public, explicit, never",
    ("max-age=60", "set-cookie", "stored", "set-cookie"),
    ("max-age=60, public", "stored", "stored", "set-cookie"),
    ("s-maxage=60", "stored", "stored", "set-cookie"),
    ('max-age=60, no-cache="set-cookie"', "stored", "stored", "stored"),
)
def test_set_cookie_as_configured(directives, public, explicit, never):
    fields = [(b"set-cookie", b"a=b"), *lines(cache_control=directives)]
    assert reason(fields, set_cookie="public") == public
    assert reason(fields, set_cookie="explicit") == explicit
    assert reason(fields, set_cookie="never") == never


@cases(
    "request_fields, expected",
    ([], "stored"),
    ([(b"accept", b"cookie")], "stored"),
    ([(b"cookie", b"a=b")], "personal"),
    ([(b"x-api-key", b"1")], "personal"),
    ([(b"depth", b"0")], "personal"),
)
def test_a_personal_response_with_a_validator_alone_is_not_stored(request_fields, expected):
    # An origin whose validator names the resource, not the user, would confirm one user's page to another.
    assert reason([(b"etag", b'"1"')], request=request_fields) == expected


@cases(
    "request_fields, expected",
    ([], "stored"),
    ([(b"cookie", b"a=b")], "personal"),
    ([(b"x-api-key", b"1")], "stored"),
)
@pytest.mark.parametrize("said", ["no-cache", "max-age=0"])
def test_validation_is_for_all_but_identified_clients(request_fields, expected, said):
    fields = [(b"etag", b'"1"'), *lines(cache_control=said)]
    assert reason(fields, request=request_fields) == expected


@cases(
    "vary, expected",
    ([b"foo"], "stored"),
    *((each, "vary-star") for each in ([b"*"], [b"*, *"], [b"*", b"*"], [b", *"], [b"", b"*"])),
    *((each, "vary-star") for each in ([b"*, foo"], [b"foo, *"])),
    ([b"foo*"], "stored"),
    ([b"X-Forwarded-For"], "vary"),
    ([b"forwarded"], "vary"),
)
def test_a_star_anywhere_in_vary_forbids(vary, expected):
    assert reason([(b"cache-control", b"max-age=60"), *((b"vary", value) for value in vary)]) == expected


@cases(
    "method, status, location, directives, expected",
    (b"GET", 200, None, "max-age=60", "stored"),
    (b"HEAD", 200, None, "max-age=60", "stored"),
    (b"POST", 200, "/a", "max-age=60", "stored"),
    (b"POST", 200, "http://en.example/a", "max-age=60", "stored"),
    (b"POST", 200, "http://other.example/a", "max-age=60", "method"),
    (b"POST", 200, "/b", "max-age=60", "method"),
    (b"POST", 200, None, "max-age=60", "method"),
    (b"POST", 200, "/a", "public", "method"),
    (b"POST", 200, "/a", "max-age=0", "method"),
    (b"POST", 201, "/a", "max-age=60", "method"),
    (b"PUT", 200, "/a", "max-age=60", "method"),
    (b"get", 200, None, "max-age=60", "method"),
    (b"OPTIONS", 200, None, "max-age=60", "method"),
)
def test_the_method_must_allow_it(method, status, location, directives, expected):
    fields = lines(cache_control=directives, **({"content_location": location} if location else {}))
    assert reason(fields, status=status, method=method) == expected


@cases(
    "field, expected",
    *((each, "malformed") for each in ((b"x", b"a\r\nset-cookie: b"), (b"x\n", b"a"), (b"x: y", b"a"))),
    *((each, "malformed") for each in ((b"", b"a"), (b"Upper", b"a"), (b"x", b"\0"))),
    ((b"x", b"a\tb"), "stored"),
    ((b"surrogate-key", b" ".join(b"t%d" % n for n in range(1024))), "stored"),
    ((b"surrogate-key", b" ".join(b"t%d" % n for n in range(1025))), "tags"),
)
def test_malformed_fields_and_too_many_tags_forbid_storing(field, expected):
    assert reason([(b"cache-control", b"max-age=60"), field]) == expected


@cases(
    "fields, expected",
    ([(b"content-range", b"bytes 0-4/10")], "stored"),
    ([(b"content-range", b"bytes 0-4/*")], "stored"),
    ([(b"content-range", b"bytes 0-10/10")], "partial"),
    ([(b"content-range", b"bytes 4-0/10")], "partial"),
    ([(b"content-range", b"bytes */10")], "partial"),
    ([(b"content-range", b"bytes 0-4/10"), (b"content-range", b"bytes 0-4/10")], "partial"),
    ([(b"content-range", b"BYTES 0-4/10")], "stored"),
    ([(b"content-type", b"multipart/byteranges; boundary=x")], "partial"),
)
def test_a_partial_response_says_which_part_it_is(fields, expected):
    assert reason([(b"cache-control", b"max-age=60"), *fields], status=206) == expected


@cases(
    "target, content_type, expected",
    (b"/account/x.css", b"text/html", "deceptive-type"),
    (b"/account;x.css", b"text/html; charset=utf-8", "deceptive-type"),
    (b"/account%00.CSS", b"text/html", "deceptive-type"),
    (b"/account/x.CSS", b"Text/HTML; charset=utf-8", "deceptive-type"),
    (b"/a.unknown", b"text/html", "stored"),
    (b"/%2", b"text/html", "stored"),
    (b"/x.css/account", b"text/html", "stored"),
    (b"/account/x.css?a=b.css", b"text/css", "stored"),
    *((each, b"text/html", "deceptive-type") for each in (b"/a.css;x", b"/a.css/", b"/a.css//")),
    *((each, b"text/html", "deceptive-type") for each in (b"/a.css/;x", b"/a.css/%20/", b"/a.css%20")),
    *((each, b"text/html", "deceptive-type") for each in (b"/a.css%3Bx", b"/a.css%00x", b"/a.css%3Fx")),
    *((each, b"text/html", "deceptive-type") for each in (b"/a.css%23", b"/a.css,x", b"/a%2ecss")),
    *((each, b"text/html", "deceptive-type") for each in (b"/account/;x.css", b"/account%2Fx.css")),
    (b"/;x.css", b"text/html", "deceptive-type"),
    (b"/a.css;x", b"text/css", "stored"),
    (b"/css/", b"text/html", "stored"),
    (b"/a.css/x;y", b"text/html", "stored"),
    (b"/account?x.css", b"text/html", "stored"),
    (b"/x.js", b"application/javascript", "stored"),
    (b"/x.js", None, "deceptive-type"),
    (b"/x.svg", b"application/xhtml+xml", "deceptive-type"),
    (b"/x.zip", b"application/octet-stream", "stored"),
    (b"/x.css", b"application/octet-stream", "stored"),
    (b"/x.json", b"application/xhtml+xml", "deceptive-type"),
    (b"/x.html", b"text/html", "stored"),
    (b"/a.b/c", b"text/html", "stored"),
)
def test_web_cache_deception_gets_no_assigned_lifetime(target, content_type, expected):
    fields = [(b"content-type", content_type)] if content_type else []
    assert reason(fields, target=target, ttl=60) == expected
    # the origin's own word is another matter
    assert reason([*fields, (b"cache-control", b"max-age=60")], target=target) == "stored"


@cases(
    "fields, lifetime, age",
    (lines(cache_control="max-age=60"), 60, 0),
    (lines(cache_control="max-age=60, s-maxage=5"), 5, 0),
    (lines(cache_control="s-maxage=5, max-age=60"), 5, 0),
    (lines(cache_control="max-age=60", expires=date(-10), date=date(0)), 60, 0),
    (lines(cache_control="max-age=0, s-maxage=60", expires="0"), 60, 0),
    (lines(cache_control="max-age=3600", age="7200"), 3600, 7200),
    (lines(cache_control="max-age=3600", age="30", date=date(-40)), 3600, 40),
    (lines(cache_control="max-age=3600", age="7, 9", date=date(-30)), 3600, 30),
    (lines(cache_control="max-age=3600", age="-1", date="yesterday"), 3600, 0),
    (lines(cache_control="max-age=3600", date=date(10)), 3600, 0),
    (lines(cache_control="max-age=99999999999"), 2**31, 0),
    (lines(expires=date(30), date=date(0)), 30, 0),
    (lines(expires=date(300), date=date(400), etag='"a"'), 0, 0),
    (lines(expires=date(10), date=date(-10), age="25"), 20, 25),
    (lines(expires=date(20), date=date(10), age="15"), 10, 15),
    (lines(expires=date(10), date="foo"), 10, 0),
    (lines(expires=date(-60), etag='"a"'), 0, 0),
    (lines(expires="0", etag='"a"'), 0, 0),
    (lines(cdn_cache_control="max-age=60", cache_control="max-age=1"), 60, 0),
    (lines(cdn_cache_control="max-age=1", cache_control="max-age=60"), 1, 0),
    (lines(cdn_cache_control="max-age=60", expires="0"), 60, 0),
    (lines(cdn_cache_control="foobar, max-age=60", cache_control="no-store"), 60, 0),
    (lines(cdn_cache_control='max-age="60"', cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="max-age=60, &&&", cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="MAX-AGE=60", cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="max-age=60;x=1", cache_control="max-age=1"), 60, 0),
    (lines(cdn_cache_control="", cache_control="max-age=1"), 1, 0),
    # where a targeted field speaks, neither Expires nor Cache-Control counts
    (lines(cdn_cache_control="public", expires=date(30), date=date(0), etag='"a"'), 0, 0),
    (lines(cdn_cache_control="public", cache_control="max-age=30", etag='"a"'), 0, 0),
    (lines(cache_control="public", expires=date(30), date=date(0), etag='"a"'), 30, 0),
    # one member of the wrong type discards all the others
    (lines(cdn_cache_control='s-maxage="60", max-age=50', cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="s-maxage=?1, max-age=50", cache_control="max-age=7"), 7, 0),
    (lines(cdn_cache_control="s-maxage=6.0, max-age=50", cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="max-age=50, public=1", cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="max-age=50, must-revalidate=x", cache_control="max-age=1"), 1, 0),
    (lines(cdn_cache_control="max-age=50, unknown=x", cache_control="max-age=1"), 50, 0),
    (lines(surrogate_control="max-age=60", cache_control="max-age=1"), 1, 0),
)
def test_lifetime_and_initial_age(fields, lifetime, age):
    stored = judged(fields)
    assert (stored.lifetime, stored.initial_age) == (lifetime, age)


@cases(
    "targeted, expected",
    ("private", "private"),
    ("no-store", "no-store"),
    ("no-cache", "no-freshness"),
    ("no-store=?0, max-age=5", "stored"),
    ("no-store=1, max-age=5", "stored"),  # of the wrong type: ignored with all its members
    ('private=("set-cookie"), max-age=5', "private"),
    ("max-age=-1", "no-freshness"),
)
def test_a_targeted_field_stands_alone(targeted, expected):
    fields = lines(cdn_cache_control=targeted, cache_control="max-age=10000", expires=date(100), date=date(0))
    assert reason(fields) == expected


def test_the_target_list_is_the_operators():
    fields = lines(mine="max-age=7", cdn_cache_control="max-age=5", cache_control="max-age=1")
    for targeted, lifetime in (((b"mine", b"cdn-cache-control"), 7), ((b"cdn-cache-control",), 5), ((), 1)):
        stored = judged(fields, targeted=targeted)
        assert stored.lifetime == lifetime


def test_the_age_counts_from_when_the_request_was_sent():
    stored = judged(lines(cache_control="max-age=60", age="5"), delay=2.5)
    assert stored.initial_age == 7.5
    assert stored.age(NOW + 0.6) == 8
    assert stored.age(NOW - 1000) == 0


def test_the_head_is_rendered_with_repeats_and_a_length():
    fields = [
        *lines(cache_control="max-age=60, public", date=date(0)),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b: c"),
    ]
    stored = judged(fields, status=404, set_cookie="public")
    assert isinstance(stored, Stored)
    done = complete(stored, b"hello")
    assert done.head == (
        b"HTTP/1.1 404 Not Found\r\ncache-control: max-age=60, public\r\ndate: " + date(0).encode() + b"\r\n"
        b"set-cookie: a\r\nset-cookie: b: c\r\ncontent-length: 5\r\n"
    )
    assert done.fields == [*fields, (b"content-length", b"5")]
    assert done.cost > len(done.head) + len(done.body)


@cases(
    "method, status, fields, body, completes",
    (b"GET", 200, lines(content_length="5"), b"hello", True),
    (b"GET", 200, lines(content_length="6"), b"hello", False),
    (b"GET", 200, lines(content_length="4"), b"hello", False),
    (b"GET", 200, [], b"hello", True),
    (b"HEAD", 200, lines(content_length="5"), b"", True),
    (b"GET", 206, lines(content_range="bytes 0-4/10"), b"hello", True),
    (b"GET", 206, lines(content_range="bytes 4-9/10"), b"01234", True),
    (b"GET", 206, lines(content_range="bytes 0-3/10"), b"hello", False),
    (b"GET", 206, lines(content_range="bytes 0-3/10"), b"", False),
)
def test_a_body_cut_short_or_too_long_is_not_stored(method, status, fields, body, completes):
    stored = judged([*lines(cache_control="max-age=60"), *fields], method=method, status=status)
    assert isinstance(stored, Stored)
    assert (complete(stored, body) is not None) is completes


def test_no_length_is_added_where_there_is_no_content():
    stored = judged(lines(cache_control="max-age=60"), status=204)
    assert isinstance(stored, Stored)
    done = complete(stored, b"")
    assert b"content-length" not in done.head


@cases(
    "directives, grace, usable, revalidate, on_error",
    ("max-age=1", 0, True, 0, 0),
    ("max-age=1", 9, True, 9, 0),
    ("max-age=1, stale-while-revalidate=4, stale-if-error=5", 9, True, 4, 5),
    ("max-age=1, stale-while-revalidate=0", 9, True, 0, 0),
    ("max-age=1, must-revalidate, stale-while-revalidate=4, stale-if-error=5", 9, False, 0, 0),
    ("max-age=1, proxy-revalidate, stale-while-revalidate=4", 9, False, 0, 0),
    ("max-age=1, no-cache, stale-while-revalidate=4", 9, False, 0, 0),
    ("s-maxage=1", 9, False, 0, 0),
    ("s-maxage=1, stale-while-revalidate=4, stale-if-error=5", 9, False, 4, 5),
)
def test_directives_decide_whether_a_response_may_be_served_stale(
    directives, grace, usable, revalidate, on_error
):
    stored = judged(lines(cache_control=directives, etag='"a"'), grace=grace)
    windows = (stored.stale_usable, stored.stale_while_revalidate, stored.stale_if_error)
    assert windows == (usable, revalidate, on_error)


COOKIE = (b"cookie", b"a=b")


@cases(
    "fields, request_fields, target, usable, revalidate",
    ([MODIFIED], [], b"/a", True, 60),
    # fresh never, though that was allowed
    ([(b"etag", b'"a"'), (b"cache-control", b"public")], [], b"/a", True, 0),
    (lines(cache_control="max-age=0", etag='"a"'), [], b"/a", True, 0),
    (lines(expires="0", etag='"a"'), [], b"/a", True, 0),
    (lines(cache_control="max-age=0, stale-while-revalidate=5"), [], b"/a", True, 5),
    # licensed by nothing
    ([(b"etag", b'"a"')], [], b"/a", False, 0),
    ([MODIFIED, (b"cache-control", b"public")], [(b"x-api-key", b"x")], b"/a", True, 0),
    ([MODIFIED, (b"cache-control", b"public")], [COOKIE], b"/a", False, 0),
    ([MODIFIED, (b"cache-control", b"public")], [(b"authorization", b"x")], b"/a", False, 0),
    ([MODIFIED, (b"cache-control", b"public"), (b"set-cookie", b"a=b")], [], b"/a", False, 0),
    ([MODIFIED, (b"content-type", b"text/html")], [], b"/a.css", False, 0),
    # by the origin
    ([MODIFIED, (b"cache-control", b"max-age=9")], [COOKIE], b"/a", True, 60),
    ([(b"content-type", b"text/html"), (b"cache-control", b"max-age=9")], [], b"/a.css", True, 60),
)
def test_grace_does_not_prolong_a_response_that_was_never_fresh(
    fields, request_fields, target, usable, revalidate
):
    settings = {"grace": 60, "heuristic": True, "set_cookie": "public"}
    stored = judged([*fields, *lines(date=date(0))], request=request_fields, target=target, **settings)
    assert (stored.stale_usable, stored.stale_while_revalidate) == (usable, revalidate)


@cases(
    "fields, target",
    (lines(cache_control="max-age=0"), b"/a"),
    ([], b"/a"),
    (lines(content_type="text/html"), b"/a.css"),
)
def test_grace_alone_makes_nothing_storable(fields, target):
    assert reason(fields, target=target, grace=60) == "no-freshness"


@cases(
    "fields, strong",
    (lines(etag='"a"'), b'"a"'),
    (lines(etag='W/"a"', last_modified=date(-9), date=date(0)), None),
    (lines(last_modified=date(-9), date=date(0)), date(-9).encode()),
    (lines(last_modified=date(0), date=date(0)), None),
    (lines(last_modified=date(-9)), None),
    (lines(etag="bare"), None),
)
def test_strong_validators_are_told_from_weak_ones(fields, strong):
    stored = judged([*lines(cache_control="max-age=60"), *fields])
    assert stored.strong == strong


RULES = Rules()


def described(fields, request=None, **rules):
    fetched = Fetched(request or Request(b"GET", b"/a", []), Response(200, fields), NOW - 1, NOW)
    settings = Rules(**rules)
    return describe(
        KEY, fetched, assess(fetched, index_fields(fetched.response, settings), settings), settings
    )


@cases(
    "fields, stored",
    ([(b"a", b"1"), (b"a", b"2")], [(b"a", b"1"), (b"a", b"2")]),
    ([(name, b"x") for name in sorted(HOP_BY_HOP)], []),
    ([(b"age", b"1"), (b"a", b"1")], [(b"a", b"1")]),
    (
        [(b"connection", b"B, c"), (b"b", b"1"), (b"connection", b"d"), (b"d", b""), (b"e", b"")],
        [(b"e", b"")],
    ),
    (
        [(b"connection", b"vary, ETag, b"), (b"vary", b"a"), (b"etag", b'"1"'), (b"b", b"1")],
        [(b"vary", b"a"), (b"etag", b'"1"')],
    ),
    (
        [(b"cache-control", b'private="set-cookie"'), (b"set-cookie", b"a")],
        [(b"cache-control", b'private="set-cookie"')],
    ),
)
def test_fields_of_one_connection_or_one_client_are_not_stored(fields, stored):
    assert storable_fields(fields, index_fields(Response(200, fields), RULES)) == stored


def test_a_response_without_a_date_gets_that_of_its_receipt():
    assert described([]).fields == [(b"date", imf_fixdate(NOW))]
    assert described([(b"date", b"x")]).fields == [(b"date", b"x")]


def test_tags_are_those_of_the_response_and_of_its_target():
    request = Request(b"GET", b"/a", [], frozenset((b"t",)))
    assert described([], request).tags == {b"t"}
    assert described([(b"xkey", b"a")], request).tags == {b"a", b"t"}
    assert described([(b"xkey", b"a")]).tags == {b"a"}
