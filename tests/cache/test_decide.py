"""Decisions about a request, given the stored responses (RFC 9111 §4, §5.2.1; RFC 5861)."""

from dataclasses import fields as fields_of
from dataclasses import replace

import pytest

from examples import cases
from support import NOW, RULES, stored_response
from univocal.cache import decide as decisions
from univocal.cache.decide import (
    Forward,
    Refuse,
    Reuse,
    Validate,
    decide,
    forwarded_fields,
    reuse_on_error,
    revalidation,
    select,
)
from univocal.cache.rules import Rules, strip_cookies
from univocal.cache.stored import softened
from univocal.http.messages import Request


def stored(directives="max-age=60", *more, **settings):
    return stored_response((b"cache-control", directives.encode()), *more, **settings)


def asked(*fields, method=b"GET", target=b"/a"):
    return Request(method, target, list(fields))


def outcome(decision):
    """A decision in a word: its kind, its reason, and what it may do."""
    match decision:
        case Reuse(reason=reason, revalidate_in_background=refresh):
            return f"reuse {reason}" + (" and refresh" if refresh else "")
        case Validate(reason=reason, fallback=fallback):
            return f"validate {reason}" + (" or stale" if fallback else "")
        case Forward(reason=reason, may_store=may_store, fallback=fallback):
            return (
                f"forward {reason}" + ("" if may_store else " unstored") + (" or stale" if fallback else "")
            )
        case Refuse(status=status, reason=reason):
            return f"refuse {status} {reason}"


def decided(request, *variants, rules=RULES, age=0):
    """The decision about a request that comes so many seconds after these variants, in a word."""
    return outcome(decide(request, variants, rules, NOW + age))


TAG = (b"etag", b'"1"')
CC = b"cache-control"


@cases(
    "directives, more, age, request_directives, expected",
    # fresh
    ("max-age=60", [], 0, "", "reuse hit"),
    ("max-age=60", [], 59.9, "", "reuse hit"),
    ("max-age=60, must-revalidate", [], 59, "", "reuse hit"),
    # stale
    ("max-age=60", [], 60, "", "forward stale or stale"),
    ("max-age=60", [TAG], 60, "", "validate stale or stale"),
    ("max-age=60", [(b"last-modified", b"Sun, 06 Nov 1994 08:49:37 GMT")], 60, "", "validate stale or stale"),
    ("max-age=60", [(b"last-modified", b"yesterday")], 60, "", "forward stale or stale"),
    ("max-age=60, must-revalidate", [TAG], 60, "", "validate stale"),
    ("max-age=60, proxy-revalidate", [TAG], 60, "", "validate stale"),
    ("s-maxage=60", [TAG], 60, "", "validate stale"),
    ("s-maxage=60, stale-if-error=5", [TAG], 60, "", "validate stale or stale"),
    # no-cache
    ("no-cache", [TAG], 0, "", "validate stale"),
    ("max-age=60, no-cache", [TAG], 0, "", "validate stale"),
    ('max-age=60, no-cache="set-cookie"', [TAG], 0, "", "reuse hit"),
    # a client's directives
    ("max-age=60", [TAG], 0, "no-cache", "validate request"),
    ("max-age=60", [], 0, "no-cache", "forward request"),
    ("max-age=60", [TAG], 9, "max-age=10", "reuse hit"),
    ("max-age=60", [TAG], 11, "max-age=10", "validate request or stale"),
    ("max-age=60", [TAG], 0, "max-age=0", "validate request or stale"),
    ("max-age=60", [TAG], 0, "max-age=x", "reuse hit"),
    ("max-age=60", [TAG], 9, "min-fresh=50", "reuse hit"),
    ("max-age=60", [TAG], 11, "min-fresh=50", "validate request or stale"),
    ("max-age=60", [TAG], 10, "min-fresh=50", "reuse hit"),
    ("max-age=60", [TAG], 10.5, "min-fresh=50", "validate request or stale"),
    ("max-age=60", [TAG], 10, "max-age=10", "reuse hit"),
    ("max-age=60", [TAG], 69, "max-stale=10", "reuse max-stale"),
    ("max-age=60", [TAG], 70, "max-stale=10", "reuse max-stale"),
    ("max-age=60", [TAG], 70.5, "max-stale=10", "validate stale or stale"),
    ("max-age=60", [TAG], 60, "max-stale=0", "reuse max-stale"),
    ("max-age=60", [TAG], 71, "max-stale=10", "validate stale or stale"),
    ("max-age=60", [TAG], 7100, "max-stale", "reuse max-stale"),
    ("max-age=60", [TAG], 69, "max-stale=x", "validate stale or stale"),
    ("max-age=60, must-revalidate", [TAG], 69, "max-stale", "validate stale"),
    ("s-maxage=60", [TAG], 69, "max-stale", "validate stale"),
    ("max-age=60", [TAG], 69, "max-stale, max-age=10", "validate stale or stale"),
    ("max-age=60", [TAG], 0, "no-store", "reuse hit"),
    ("max-age=60", [TAG], 61, "no-store", "forward stale unstored or stale"),
    ("max-age=60", [TAG], 0, "no-cache; x", "validate request"),
    ("max-age=60", [TAG], 61, "no-store no-transform", "forward stale unstored or stale"),
    ("max-age=60", [TAG], 0, "only-if-cached", "reuse hit"),
    ("max-age=60", [TAG], 61, "only-if-cached", "refuse 504 only-if-cached"),
    ("max-age=60", [TAG], 61, "only-if-cached, max-stale", "reuse max-stale"),
    ("max-age=60", [TAG], 0, "only-if-cached, no-cache", "refuse 504 only-if-cached"),
    ("max-age=0", [TAG], 0, "max-stale", "validate stale or stale"),
    ("x", [TAG], 0, "max-stale", "validate stale"),
    ("public", [TAG], 0, "max-stale", "validate stale or stale"),
    # stale-while-revalidate
    ("max-age=60, stale-while-revalidate=4", [TAG], 63, "", "reuse stale-while-revalidate and refresh"),
    ("max-age=60, stale-while-revalidate=4", [TAG], 64, "", "validate stale or stale"),
    ("max-age=60, stale-while-revalidate=4", [TAG], 63, "max-age=10", "validate stale or stale"),
    ("max-age=60, stale-while-revalidate=4", [TAG], 63, "max-age=100", "validate stale or stale"),
    ("max-age=60, stale-while-revalidate=4", [TAG], 63, "max-age=100, max-stale=3", "reuse max-stale"),
    ("s-maxage=60, stale-while-revalidate=4", [TAG], 63, "max-age=99, max-stale=2", "validate stale"),
    (
        "s-maxage=60, stale-while-revalidate=4",
        [TAG],
        63,
        "max-age=99, max-stale=3",
        "reuse stale-while-revalidate and refresh",
    ),
    (
        "max-age=60, stale-while-revalidate=4",
        [TAG],
        63,
        "only-if-cached",
        "reuse stale-while-revalidate and refresh",
    ),
    ("max-age=60, stale-while-revalidate=4, must-revalidate", [TAG], 63, "", "validate stale"),
    ("s-maxage=60, stale-while-revalidate=4", [TAG], 63, "", "reuse stale-while-revalidate and refresh"),
)
def test_one_stored_response(directives, more, age, request_directives, expected):
    fields = [(CC, request_directives.encode())] if request_directives else []
    assert decided(asked(*fields), stored(directives, *more), age=age) == expected


@cases(
    "fields, expected",
    ([], "reuse hit"),
    ([(b"pragma", b"no-cache")], "validate request"),
    ([(b"pragma", b"x")], "reuse hit"),
    ([(b"pragma", b"no-cache"), (CC, b"x")], "reuse hit"),
    ([(b"if-match", b'"1"')], "forward request unstored"),
    ([(b"if-unmodified-since", b"x")], "forward request unstored"),
    ([(b"if-none-match", b'"1"')], "reuse hit"),
    ([(b"if-modified-since", b"x")], "reuse hit"),
    ([(b"range", b"bytes=0-1")], "reuse hit"),
    ([(b"content-length", b"0")], "reuse hit"),
    ([(b"content-length", b"7")], "forward bypass unstored"),
    ([(b"content-length", b"+0")], "forward bypass unstored"),
    ([(b"content-length", b"7"), (CC, b"only-if-cached")], "refuse 504 only-if-cached"),
    ([(b"if-match", b'"1"'), (CC, b"only-if-cached")], "refuse 504 only-if-cached"),
    ([(b"transfer-encoding", b"chunked")], "forward bypass unstored"),
    ([(b"cookie", b"a=b")], "reuse hit"),
    ([(b"authorization", b"x")], "reuse hit"),
)
def test_request_fields_decide_about_what_is_stored(fields, expected):
    assert decided(asked(*fields), stored("max-age=60", TAG)) == expected


@cases(
    "method, variants, expected",
    (b"GET", False, "forward uri-miss"),
    (b"HEAD", False, "forward uri-miss"),
    (b"HEAD", True, "reuse hit"),
    (b"POST", True, "forward method"),
    (b"PUT", True, "forward method unstored"),
    (b"OPTIONS", True, "forward method unstored"),
    (b"get", True, "forward method unstored"),
)
def test_methods_decide_about_what_is_stored(method, variants, expected):
    assert decided(asked(method=method), *([stored()] if variants else [])) == expected


@cases(
    "target, fields, rules, expected",
    (b"/a", [], {}, "forward method"),
    (b"/a", [(CC, b"no-store")], {}, "forward method unstored"),
    (b"/a", [(CC, b"no-store")], {"client_directives": "ignore"}, "forward method"),
    (b"/a", [(b"if-match", b'"1"')], {}, "forward method unstored"),
    (b"/a", [], {"bypass": ("/a",)}, "forward bypass unstored"),
    (b"/b", [], {"bypass": ("/a",)}, "forward method"),
    (b"/a", [(b"cookie", b"session=1")], {"bypass_cookies": ("session",)}, "forward bypass unstored"),
    (b"/a", [(b"cookie", b"other=1")], {"bypass_cookies": ("session",)}, "forward method"),
)
def test_a_posts_answer_is_stored_where_a_gets_would_be(target, fields, rules, expected):
    request = asked(*fields, (b"content-length", b"7"), method=b"POST", target=target)
    assert decided(request, rules=Rules(**rules)) == expected


def test_an_only_if_cached_miss_is_refused():
    assert decided(asked((CC, b"only-if-cached"))) == "refuse 504 only-if-cached"


@pytest.mark.parametrize("directive", [b"no-cache", b"max-age=0", b"no-store", b"only-if-cached, max-stale"])
def test_a_clients_directives_can_be_ignored(directive):
    rules = Rules(client_directives="ignore")
    assert decided(asked((CC, directive)), stored("max-age=60", TAG), rules=rules) == "reuse hit"
    assert decided(asked((CC, directive)), rules=rules) == "forward uri-miss"


@cases(
    "bypass, target, passes",
    ("/admin/*", b"/admin/x/y?z", True),
    ("/admin/*", b"/administrator", False),
    ("/admin/*", b"/x?/admin/", False),
    ("*.php", b"/a/b.php", True),
    ("*.php", b"/a/b.php5", False),
    ("*.php", b"/a/b.php?c", True),
    ("/a?c", b"/abc", True),
    ("/a?c", b"/ac", False),
    ("/a+b", b"/a+b", True),
    ("/a+b", b"/aab", False),
    ("*/x/*/y*", b"/1/x/2/y3", True),
    ("*/x/*/y*", b"/1/x/y3", False),
    ("/ä*", "/äb".encode(), True),
)
def test_paths_that_go_past_the_cache(bypass, target, passes):
    rules = Rules(bypass=("/never", bypass))
    expected = "forward bypass unstored" if passes else "reuse hit"
    assert decided(asked(target=target), stored(), rules=rules) == expected


def test_globs_match_in_linear_time():
    rules = Rules(bypass=("*a*a*a*a*a*a*a*a*a*a*b",))
    assert decided(asked(target=b"/" + b"a" * 8000), stored(), rules=rules) == "reuse hit"


@cases(
    "cookie, passes",
    (b"session=1", True),
    (b"a=1; wp_user=2", True),
    (b"sessions=1", False),
    (b"a=wp_", False),
    (b"theme=1,session=ann", True),
    (b"theme=1, session=ann", True),
    (b"theme=1, sessions=ann", False),
)
def test_cookies_that_go_past_the_cache(cookie, passes):
    rules = Rules(bypass_cookies=("session", "wp_*"))
    request = asked((b"cookie", cookie))
    assert not rules.reads.isdisjoint(request.names)
    assert decided(request, stored(), rules=rules) == ("forward bypass unstored" if passes else "reuse hit")


def test_stripped_cookies_are_gone_before_anything_is_decided():
    rules = Rules(strip_cookies=("_ga*", "utm?"))
    request = asked((b"a", b"1"), (b"cookie", b"_ga=1; keep=2;_gat=3"), (b"cookie", b"utmz=1"), (b"b", b"2"))
    assert strip_cookies(request, rules).fields == [(b"a", b"1"), (b"cookie", b"keep=2"), (b"b", b"2")]
    untouched = asked((b"cookie", b"keep=1;  odd"))
    assert strip_cookies(untouched, rules) is untouched
    assert strip_cookies(request, Rules()) is request


def test_a_request_without_policy_fields_is_plain():
    plain = asked((b"host", b"en.example"), (b"cookie", b"a=b"), (b"accept-encoding", b"gzip"))
    assert Rules().reads.isdisjoint(plain.names)
    assert decided(plain, stored()) == "reuse hit"
    assert decided(plain, rules=Rules(bypass=("/a",))) == "forward bypass unstored"
    for name in (b"range", b"if-none-match", b"cache-control", b"transfer-encoding"):
        assert name in Rules().reads


def test_of_several_variants_the_newest_that_matches_is_selected():
    vary = (b"vary", b"foo")
    one = stored("max-age=60", vary, request=[(b"foo", b"1")])
    two = stored("max-age=60", vary, request=[(b"foo", b"2")], at=NOW + 1)
    newer = stored("max-age=60", vary, request=[(b"foo", b"1")], at=NOW + 2)
    assert select(asked((b"foo", b"1")), [newer, two, one]) is newer
    assert select(asked((b"foo", b"2")), [newer, two, one]) is two
    assert select(asked(), [newer, two, one]) is None
    assert decided(asked(), newer, two, one) == "forward vary-miss"


@pytest.mark.parametrize("kept", [b"", b"anna:", b"bert:"])
@pytest.mark.parametrize("asking", [b"", b"anna:", b":"])
def test_a_response_kept_for_a_user_answers_no_other(kept, asking):
    one = replace(stored(), vary=((b":user", kept),) if kept else ())
    decision = decide(replace(asked(), user=asking), [one], Rules(), NOW)
    assert isinstance(decision, Reuse) is (kept == asking)


def test_the_answer_to_a_head_answers_no_get():
    head = stored(method=b"HEAD", body=b"")
    assert decided(asked(method=b"HEAD"), head) == "reuse hit"
    assert decided(asked(), head) == "forward miss"
    assert decided(asked(), head, age=99) == "forward stale"


def partial(spec, body, *more):
    return stored("max-age=60", (b"content-range", spec), *more, status=206, body=body)


@cases(
    "spec, body, fields, age, expected",
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=-5")], 0, "reuse hit"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=6-8")], 0, "reuse hit"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=6-")], 0, "reuse hit"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=6-99")], 0, "reuse hit"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=3-8")], 0, "forward miss"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=-7")], 0, "forward miss"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=4-5,7-8")], 0, "forward miss"),
    (b"bytes 4-9/10", b"456789", [(b"range", b"bytes=6-8")], 61, "forward stale"),
    (b"bytes 0-4/10", b"01234", [(b"range", b"bytes=3-6")], 0, "forward miss"),
    (b"bytes 0-4/10", b"01234", [(b"range", b"bytes=-2")], 0, "forward miss"),
    (b"bytes 4-8/10", b"45678", [(b"range", b"bytes=6-")], 0, "forward miss"),
    (b"bytes 0-4/*", b"01234", [(b"range", b"bytes=3-4")], 0, "reuse hit"),
    (b"bytes 0-4/*", b"01234", [(b"range", b"bytes=-2")], 0, "forward miss"),
    (b"bytes 0-4/10", b"01234", [], 0, "validate partial"),
    (b"bytes 0-4/10", b"01234", [(CC, b"no-store")], 0, "forward miss unstored"),
    (b"bytes 0-4/10", b"01234", [], 61, "forward stale"),
    (b"bytes 4-9/10", b"456789", [], 0, "validate partial"),
    (b"bytes 4-8/10", b"45678", [], 0, "forward miss"),
    (b"bytes 0-4/*", b"01234", [], 0, "forward miss"),
    (b"bytes 0-4/10", b"0123", [], 0, "forward miss"),  # shorter than it says
    (b"bytes 0-4/10", b"01234", [(b"range", b"chapters=1")], 0, "forward miss"),
)
def test_a_stored_part(spec, body, fields, age, expected):
    assert decided(asked(*fields), partial(spec, body, TAG), age=age) == expected


@cases(
    "more, expected, lack",
    ([TAG], "validate partial", [(b"range", b"bytes=5-"), (b"if-range", b'"1"')]),
    ([(b"etag", b'W/"1"')], "forward miss", []),
    ([(b"last-modified", b"Sun, 06 Nov 1994 08:49:37 GMT")], "forward miss", []),
    ([], "validate partial", [(b"range", b"bytes=5-")]),
)
def test_a_part_with_a_weak_validator_is_not_completed(more, expected, lack):
    decision = decide(asked(), [partial(b"bytes 0-4/10", b"01234", *more)], Rules(), NOW)
    assert outcome(decision) == expected
    assert forwarded_fields(asked(), decision) == lack


def test_a_part_answers_if_range_only_with_its_strong_validator():
    part = partial(b"bytes 0-4/10", b"01234", TAG)
    for validator, expected in ((b'"1"', "reuse hit"), (b'"2"', "forward miss"), (b'W/"1"', "forward miss")):
        request = asked((b"range", b"bytes=0-1"), (b"if-range", validator))
        assert decided(request, part) == expected


def test_a_head_is_not_answered_from_a_part():
    assert decided(asked(method=b"HEAD"), partial(b"bytes 0-4/10", b"01234")) == "forward miss"


def test_a_whole_response_is_preferred_to_a_newer_part():
    whole = stored()
    assert select(asked(), [partial(b"bytes 0-4/10", b"01234"), whole]) is whole


def test_a_softened_response_is_stale_but_usable_meanwhile():
    soft = softened(stored("max-age=60, stale-while-revalidate=10", TAG), NOW + 5)
    assert decided(asked(), soft, age=6) == "reuse stale-while-revalidate and refresh"
    assert decided(asked(), soft, age=15) == "validate stale or stale"
    assert decided(asked(), softened(stored(), NOW)) == "forward stale or stale"
    assert softened(soft, NOW + 9).fresh_until == soft.fresh_until  # it is not stale anew


@cases(
    "directives, request_directives, late, status, expected",
    ("max-age=60", b"", 1, None, "reuse disconnected"),
    ("max-age=60", b"", 9999, None, "reuse disconnected"),
    ("max-age=60", b"", 1, 503, None),
    ("max-age=60, must-revalidate", b"", 1, None, None),
    ("max-age=60, proxy-revalidate", b"", 1, None, None),
    ("s-maxage=60", b"", 1, None, None),
    ("max-age=60, no-cache", b"", 1, None, None),
    ("max-age=60, stale-if-error=5", b"", 5, 503, "reuse stale-if-error"),
    ("max-age=60, stale-if-error=5", b"", 5, 500, "reuse stale-if-error"),
    ("max-age=60, stale-if-error=5", b"", 5, 404, None),
    ("max-age=60, stale-if-error=5", b"", 5, 501, None),
    ("max-age=60, stale-if-error=5", b"", 6, 503, None),
    ("s-maxage=60, stale-if-error=5", b"", 5, None, "reuse disconnected"),
    ("s-maxage=60, stale-if-error=5", b"", 6, None, None),
    ("max-age=60", b"stale-if-error=5", 5, 503, "reuse stale-if-error"),
    ("max-age=60", b"stale-if-error=5", 6, 503, None),
    ("s-maxage=60", b"stale-if-error=5", 5, 503, None),
    ("max-age=60, must-revalidate", b"stale-if-error=5", 5, 503, None),
    ("max-age=60", b"stale-if-error", 5, 503, None),
    # the longer one of the response's and the client's
    ("max-age=60, stale-if-error=9", b"stale-if-error=5", 9, 503, "reuse stale-if-error"),
    ("max-age=60, stale-if-error=5", b"stale-if-error=9", 9, 503, "reuse stale-if-error"),
    ("s-maxage=60, stale-if-error=5", b"stale-if-error=9", 9, 503, None),
    ("max-age=60", b"max-age=0", -9, None, "reuse disconnected"),
    ("max-age=60", b"max-age=0", -9, 503, "reuse stale-if-error"),
    ("max-age=60", b"no-cache", -9, None, None),
)
def test_a_stale_response_replaces_an_error_where_allowed(
    directives, request_directives, late, status, expected
):
    request = asked(*([(CC, request_directives)] if request_directives else []))
    now = NOW + 60 + late
    decision = decide(request, [stored(directives, TAG)], Rules(), now)
    reused = reuse_on_error(decision, request, Rules(), status, now)
    assert (None if reused is None else outcome(reused)) == expected
    if reused is not None:
        assert reused.age == 60 + late


def test_a_stored_error_takes_no_newer_errors_place():
    failed = stored("max-age=60, stale-if-error=600", TAG, status=503, errors="explicit")
    rules, now = Rules(errors="explicit"), NOW + 65
    decision = decide(asked(), [failed], rules, now)
    assert reuse_on_error(decision, asked(), rules, 503, now) is None
    assert reuse_on_error(decision, asked(), rules, None, now) is not None


@cases(
    "directives, told, expected",
    ("honour", "max-age=60", True),
    ("ignore", "max-age=60", False),
    ("ignore", "max-age=60, stale-if-error=5", True),
)
def test_a_clients_stale_if_error_can_be_ignored(directives, told, expected):
    rules, stale = Rules(client_directives=directives), stored(told, TAG)
    request = asked((CC, b"stale-if-error=5"))
    decision = decide(request, [stale], rules, NOW + 65)
    assert (reuse_on_error(decision, request, rules, 503, NOW + 65) is not None) is expected


def test_without_anything_stored_there_is_nothing_to_serve_on_error():
    assert reuse_on_error(Forward("uri-miss", True, None), asked(), Rules(), None, NOW) is None
    assert reuse_on_error(Refuse(504, "only-if-cached"), asked(), Rules(), None, NOW) is None


CONDITIONS = [(b"if-none-match", b'"mine"'), (b"if-modified-since", b"then")]


@cases(
    "decision, kept",
    (Forward("uri-miss", True, None), [(b"range", b"bytes=0-1"), (b"if-range", b'"r"')]),
    (Forward("bypass", False, None), [*CONDITIONS, (b"range", b"bytes=0-1"), (b"if-range", b'"r"')]),
)
def test_a_clients_conditions_reach_the_origin_where_nothing_is_stored(decision, kept):
    request = asked((b"a", b"1"), *CONDITIONS, (b"range", b"bytes=0-1"), (b"if-range", b'"r"'))
    assert forwarded_fields(request, decision) == [(b"a", b"1"), *kept]


SIGNED = b"AWS4-HMAC-SHA256 Credential=a, Signature=b"


@cases(
    "credentials, age, condition, expected",
    (SIGNED, None, b"if-none-match", "forward uri-miss unstored"),
    (SIGNED, 60, b"if-none-match", "forward stale unstored or stale"),
    (SIGNED, 59, b"if-none-match", "reuse hit"),
    (SIGNED, None, b"range", "forward uri-miss"),
    (b"Basic YTpi", None, b"if-none-match", "forward uri-miss"),
    (b"bearer ab", 60, b"if-none-match", "validate stale or stale"),
    (None, None, b"if-none-match", "forward uri-miss"),
)
def test_conditions_that_are_signed_reach_the_origin(credentials, age, condition, expected):
    fields = [(condition, b'"1"')] + ([(b"authorization", credentials)] if credentials else [])
    variants = [] if age is None else [stored("public, max-age=60", TAG)]
    decision = decide(asked(*fields), variants, Rules(), NOW + (age or 0))
    assert outcome(decision) == expected
    if "unstored" in expected:
        assert (condition, b'"1"') in forwarded_fields(asked(*fields), decision)


def test_a_validation_has_the_stored_validators():
    modified = (b"last-modified", b"Sun, 06 Nov 1994 08:49:37 GMT")
    request = asked((b"abc", b"123"), *CONDITIONS)
    decision = decide(request, [stored("max-age=60", (b"etag", b'W/"1"'), modified)], Rules(), NOW + 61)
    assert forwarded_fields(request, decision) == [
        (b"abc", b"123"),
        (b"if-none-match", b'W/"1"'),
        (b"if-modified-since", b"Sun, 06 Nov 1994 08:49:37 GMT"),
    ]


def test_a_completion_asks_for_what_lacks():
    decision = decide(asked(), [partial(b"bytes 4-9/10", b"456789", TAG)], Rules(), NOW)
    assert forwarded_fields(asked(), decision) == [(b"range", b"bytes=0-3"), (b"if-range", b'"1"')]


def test_too_many_ranges_do_not_reach_the_origin():
    many = (b"range", b"bytes=" + b",".join([b"0-"] * 33))
    assert forwarded_fields(asked(many, (b"a", b"1")), Forward("uri-miss", True, None)) == [(b"a", b"1")]
    few = (b"range", b"bytes=" + b",".join([b"0-"] * 32))
    assert forwarded_fields(asked(few), Forward("uri-miss", True, None)) == [few]


def test_a_post_keeps_its_conditions():
    request = asked(*CONDITIONS, method=b"POST")
    assert forwarded_fields(request, decide(request, [], Rules(), NOW)) == CONDITIONS


def test_a_revalidation_is_a_whole_anonymous_get():
    ours = [(b"accept", b"text/html"), (b"foo", b"1")]
    of_one = [(b"cookie", b"a=b"), (b"authorization", b"x"), (b"x-api-key", b"1"), (b"range", b"bytes=0-1")]
    request = asked(*ours, *of_one, (CC, b"max-stale"), *CONDITIONS, method=b"HEAD")
    old = stored("max-age=60", TAG)
    varied = replace(old, vary=((b"foo", b"1"),))
    again, decision = revalidation(request, varied, Rules())
    assert (again.method, again.fields) == (b"GET", ours)
    assert outcome(decision) == "validate stale or stale"
    assert revalidation(request, old, Rules())[0].fields == ours[:1]
    assert outcome(revalidation(request, stored(), Rules())[1]) == "forward stale or stale"


@pytest.mark.parametrize("status", [301, 404, 503])
def test_only_successes_are_validated(status):
    found = stored("max-age=60", TAG, status=status, errors="explicit")
    assert decided(asked(), found, age=61) == "forward stale or stale"


def test_decisions_are_values():
    decision = decide(asked(), [], Rules(), NOW)
    assert decision == Forward("uri-miss", may_store=True, fallback=None)
    assert decision != Forward("uri-miss", may_store=False, fallback=None)
    assert decide(asked(), [], Rules(client_directives="ignore"), NOW) == decision


@pytest.mark.skipif(decisions.__file__.endswith(".py"), reason="compiled code alone refuses assignments")
@pytest.mark.parametrize(
    ("decision", "name"),
    [
        (decision, each.name)
        for decision in (
            Reuse(stored(), 0, "hit", False),
            Validate(stored(), [], "stale", None),
            Forward("uri-miss", True, None),
            Refuse(504, "only-if-cached"),
        )
        for each in fields_of(decision)
    ],
)
def test_nothing_of_a_decision_can_be_assigned(decision, name):
    with pytest.raises(AttributeError):
        setattr(decision, name, None)


def test_a_stored_response_is_replaced_and_not_changed():
    assert replace(stored(), reusable=False).reusable is False
