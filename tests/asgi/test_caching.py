"""What a client of the mounted cache notices of RFC 9111."""

import asyncio
import json
from email.utils import formatdate

import pytest

from univocal import MemoryStore, ProfileError, Rules
from univocal.uri.profile import parse

OPEN = [(b"cache-control", b"max-age=60")]
STALE = b"max-age=60, stale-while-revalidate=60"


def fields(*pairs):
    return [(name.encode(), value.encode()) for name, value in pairs]


async def seed(client, target="/a", **named):
    answer = await client(target, **named)
    assert "stored" in answer.handling
    return answer


# Hits


async def test_the_second_request_is_a_hit(cached, application):
    client = cached()
    first, second = await client("/a"), await client("/a")
    assert (first.handling, second.handling) == ({"fwd=uri-miss", "stored"}, {"hit", "ttl=60"})
    assert (second.status, second.body) == (200, first.body)
    assert application.count == 1


async def test_the_age_of_a_hit_grows_with_the_clock(cached, clock):
    client = cached()
    await client("/a")
    clock.now += 17.9
    answer = await client("/a")
    assert answer["age"] == "17"
    assert "ttl=43" in answer.handling


async def test_the_age_that_the_response_came_with_counts(cached, application, clock):
    application.fields = [*OPEN, (b"age", b"50")]
    client = cached()
    await client("/a")
    clock.now += 5
    assert (await client("/a"))["age"] == "55"
    clock.now += 6
    assert "fwd=stale" in (await client("/a")).handling


async def test_a_hit_has_one_age_and_unchanged_fields(cached, application):
    application.fields = [*OPEN, (b"x-twice", b"1"), (b"x-twice", b"2"), (b"link", b"</a>; rel=next")]
    client = cached()
    await client("/a")
    answer = await client("/a")
    kept = [field for field in answer.fields if field[0] not in {b"age", b"cache-status", b"date"}]
    assert kept == [*application.fields, (b"content-length", b"8")]
    assert len([name for name, _ in answer.fields if name == b"age"]) == 1


@pytest.mark.parametrize("mode", ["plain", "key", "off"])
async def test_cache_status_says_as_much_as_is_configured(clock, application, client_of, mode):
    from univocal import CacheMiddleware, Runtime
    from univocal.judge.profiles import builtin_profiles

    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules(), cache_status=mode)
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock))
    await client("/a%28b%29?c")
    told = (await client("/a(b)?c"))["cache-status"]
    key = '; key="http://en.example/a(b)?c"' if mode == "key" else ""
    assert told == ("" if mode == "off" else "univocal; hit; ttl=60" + key)


async def test_cache_status_of_the_application_stays_before_ours(cached, application):
    application.fields = [*OPEN, (b"cache-status", b"inner; hit")]
    answer = await cached()("/a")
    assert answer["cache-status"] == "inner; hit, univocal; fwd=uri-miss; stored"


async def test_hosts_ports_and_schemes_have_entries_of_their_own(cached, application):
    client = cached()
    for host in ("en.example", "ru.example", "en.example:8080"):
        await client("/a", host=host)
    await client("/a", scheme="https")
    assert application.count == 4
    await client("/a", host="EN.example.:80")
    await client("/a", host="en.example:443", scheme="https")
    assert application.count == 4


# What is stored


@pytest.mark.parametrize(
    ("sent", "received", "stored"),
    [
        ([], [("cache-control", "max-age=60")], True),
        ([], [("cache-control", "s-maxage=60")], True),
        ([], [("expires", formatdate(1_000_060, usegmt=True))], True),
        ([], [], False),
        ([], [("cache-control", "no-store")], False),
        ([], [("cache-control", "private, max-age=60")], False),
        ([("cache-control", "no-store")], [("cache-control", "max-age=60")], False),
        ([("authorization", "Basic eDp5")], [("cache-control", "max-age=60")], False),
        ([("authorization", "Basic eDp5")], [("cache-control", "public, max-age=60")], True),
        ([("authorization", "Basic eDp5")], [("cache-control", "s-maxage=60")], True),
        ([("authorization", "Basic eDp5")], [("cache-control", "must-revalidate, max-age=60")], True),
        ([], [("cache-control", "max-age=60"), ("set-cookie", "a=b")], False),
        ([], [("cache-control", "public, max-age=60"), ("set-cookie", "a=b")], False),
        ([], [("cache-control", 'max-age=60, no-cache="set-cookie"'), ("set-cookie", "a=b")], True),
        ([], [("cache-control", "max-age=60"), ("vary", "*")], False),
    ],
)
async def test_what_may_be_stored(cached, application, sent, received, stored):
    application.fields = fields(*received)
    client = cached()
    await client("/a", fields=sent)
    assert client.app.store.stats.responses == int(stored)
    await client("/a", fields=sent)
    assert application.count == 2 - stored


@pytest.mark.parametrize(
    ("setting", "control", "stored"),
    [
        ("public", "max-age=60", False),
        ("public", "public, max-age=60", True),
        ("explicit", "max-age=60", True),
        ("explicit", "", False),
        ("never", "public, max-age=60", False),
        ("never", "s-maxage=60", False),
    ],
)
async def test_set_cookie_is_stored_as_configured(cached, application, setting, control, stored):
    application.fields = fields(("cache-control", control), ("set-cookie", "a=b"))
    client = cached(rules=Rules(set_cookie=setting))
    await client("/a")
    assert client.app.store.stats.responses == int(stored)


@pytest.mark.parametrize("status", [200, 203, 301, 404, 410])
async def test_statuses_with_a_lifetime_are_stored(cached, application, status):
    application.status = status
    client = cached()
    await client("/a")
    answer = await client("/a")
    assert (answer.status, application.count) == (status, 1)


@pytest.mark.parametrize(
    ("status", "rules", "stored"),
    [
        (400, Rules(), False),
        (403, Rules(), False),
        (503, Rules(), False),
        (404, Rules(), True),
        (503, Rules(ttl_by_status={503: 5}), True),
        (400, Rules(errors="explicit"), True),
        (503, Rules(errors="explicit"), True),
        (401, Rules(errors="explicit"), False),
        (431, Rules(errors="explicit", ttl_by_status={431: 5}), False),
    ],
)
async def test_errors_are_stored_as_configured(cached, application, status, rules, stored):
    application.status = status
    client = cached(rules=rules)
    await client("/a")
    assert (await client("/a")).status == status
    assert application.count == 2 - stored


@pytest.mark.parametrize("status", [400, 404, 431, 500, 502])
async def test_errors_are_stored_only_with_explicit_freshness(cached, application, status):
    application.status, application.fields = status, [(b"last-modified", b"Mon, 05 Jan 1970 00:00:00 GMT")]
    client = cached(rules=Rules(ttl=600 if status != 404 else 0, errors="explicit"))
    await client("/a", fields=[("cookie", "who=me")])
    assert client.app.store.stats.responses == 0


# Variants


async def test_variants_are_kept_side_by_side(cached, application):
    application.fields = [*OPEN, (b"vary", b"accept-language")]
    client = cached()
    answers = {
        tongue: (await client("/a", fields=[("accept-language", tongue)])).body for tongue in ("en", "ru")
    }
    again = {
        tongue: (await client("/a", fields=[("accept-language", tongue)])).body for tongue in ("ru", "en")
    }
    assert again == answers
    assert application.count == 2


async def test_a_variant_that_is_not_there_is_a_vary_miss(cached, application):
    application.fields = [*OPEN, (b"vary", b"accept-language")]
    client = cached()
    await client("/a", fields=[("accept-language", "en")])
    assert "fwd=vary-miss" in (await client("/a")).handling


async def test_variants_of_one_key_are_capped(cached, application):
    application.fields = [*OPEN, (b"vary", b"x-random")]
    client = cached(store=MemoryStore(max_variants=10))
    for number in range(50):
        await client("/a", fields=[("x-random", str(number))])
    assert client.app.store.stats.responses == 10


# Validation


async def test_a_304_renews_a_stale_response_with_changed_fields(cached, application, clock):
    application.fields = [*OPEN, (b"etag", b'"v1"'), (b"x-served-by", b"old")]
    client = cached()
    await seed(client)
    clock.now += 100

    def script(scope):
        assert dict(scope["headers"])[b"if-none-match"] == b'"v1"'
        return 304, [*OPEN, (b"etag", b'"v1"'), (b"x-served-by", b"new")], b""

    application.script = script
    renewed = await client("/a")
    assert (renewed.status, renewed.body, renewed["x-served-by"]) == (200, b"answer 1", "new")
    assert renewed.handling == {"fwd=stale", "fwd-status=304"}
    assert "hit" in (await client("/a")).handling
    assert application.count == 2


async def test_last_modified_validates_where_there_is_no_entity_tag(cached, application, clock):
    application.fields = [*OPEN, (b"last-modified", b"Mon, 05 Jan 1970 00:00:00 GMT")]
    client = cached()
    await seed(client)
    clock.now += 100
    application.script = lambda scope: (304, OPEN, b"")
    assert (await client("/a")).body == b"answer 1"
    assert application.fields_seen()["if-modified-since"] == "Mon, 05 Jan 1970 00:00:00 GMT"


async def test_a_stale_response_is_replaced_by_a_200(cached, application, clock):
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    client = cached()
    await seed(client)
    clock.now += 100
    application.fields = [*OPEN, (b"etag", b'"v2"')]
    assert (await client("/a")).body == b"answer 2"
    assert (await client("/a")).body == b"answer 2"


async def test_a_304_about_another_response_leads_to_a_whole_request(cached, application, clock):
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    client = cached()
    await seed(client)
    clock.now += 100
    application.fields = [*OPEN, (b"etag", b'"v3"')]
    application.script = lambda scope: (
        (304, [*OPEN, (b"etag", b'"v2"')], b"") if b"if-none-match" in dict(scope["headers"]) else None
    )
    answer = await client("/a")
    assert (answer.status, answer.body) == (200, b"answer 3")
    assert (await client("/a")).body == b"answer 3"


async def test_a_304_releases_all_who_wait(cached, application, clock, idle):
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    client = cached()
    await seed(client)
    clock.now += 100
    application.script = lambda scope: (304, OPEN, b"")
    application.gate = asyncio.Event()
    waiting = [asyncio.create_task(client("/a")) for _ in range(10)]
    await idle()
    application.gate.set()
    answers = await asyncio.gather(*waiting)
    assert application.count == 2
    assert {answer.body for answer in answers} == {b"answer 1"}


async def test_no_cache_in_a_response_asks_each_time(cached, application):
    application.fields = [(b"cache-control", b"no-cache"), (b"etag", b'"v1"')]
    client = cached()
    await client("/a")
    application.script = lambda scope: (304, [], b"")
    answer = await client("/a")
    assert (answer.body, application.count) == (b"answer 1", 2)


@pytest.mark.parametrize(
    "sent", [("cache-control", "no-cache"), ("cache-control", "max-age=0"), ("pragma", "no-cache")]
)
async def test_a_client_may_want_the_applications_own_word(cached, application, sent):
    client = cached()
    await seed(client)
    assert (await client("/a", fields=[sent])).body == b"answer 2"


async def test_what_clients_want_may_be_ignored(cached, application):
    client = cached(rules=Rules(client_directives="ignore"))
    await seed(client)
    assert "hit" in (await client("/a", fields=[("cache-control", "no-cache")])).handling


# Stale


async def test_a_stale_response_is_served_during_one_refresh(cached, application, clock, idle):
    application.fields = [(b"cache-control", STALE)]
    client = cached()
    await seed(client)
    clock.now += 70
    application.gate = asyncio.Event()
    answers = [await client("/a") for _ in range(5)]
    assert {answer.body for answer in answers} == {b"answer 1"}
    assert answers[0].handling == {"hit", "ttl=-10"}
    await application.reached(2)
    application.gate.set()
    await idle()
    assert (await client("/a")).body == b"answer 2"
    assert application.count == 2


async def test_a_failing_origin_gets_no_extra_request_per_stale_answer(cached, application, clock, idle):
    application.fields = [(b"cache-control", STALE)]
    client = cached()
    await seed(client)
    clock.now += 70
    application.status, application.fields = 500, []
    await client("/a")
    await idle()
    application.gate = asyncio.Event()
    for seconds, requests in ((0.9, 2), (0.1, 3)):
        clock.now += seconds
        answers = [await client("/a") for _ in range(10)]
        await idle()
        assert {answer.body for answer in answers} == {b"answer 1"}
        assert application.count == requests
    application.gate.set()
    await idle()


async def test_a_background_fetch_needs_nothing_of_its_client(cached, application, clock, idle):
    application.fields = [(b"cache-control", STALE), (b"etag", b'"v1"')]
    client = cached()
    await seed(client)
    clock.now += 70
    await client("/a", fields=[("if-none-match", '"other"'), ("range", "bytes=0-1")])
    await idle()
    seen = application.fields_seen()
    assert (seen["if-none-match"], "range" in seen) == ('"v1"', False)


async def test_a_background_fetch_that_is_too_large_leaves_nothing_behind(cached, application, clock, idle):
    application.fields = [(b"cache-control", STALE)]
    client = cached(store=MemoryStore(max_bytes=100_000, max_object_bytes=5000))
    await seed(client)
    clock.now += 70
    application.body = b"x" * 50_000
    await client("/a")
    await idle()
    assert client.app.store.stats.reserved == 0
    assert application.count == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_stale_if_error_answers_in_place_of_an_error(cached, application, clock, status):
    application.fields = [(b"cache-control", b"max-age=60, stale-if-error=600")]
    client = cached()
    await seed(client)
    clock.now += 100
    application.status, application.fields = status, []
    answer = await client("/a")
    assert (answer.status, answer.body) == (200, b"answer 1")
    assert answer.handling == {"fwd=stale", f"fwd-status={status}", "detail=stale-if-error"}
    clock.now += 600
    assert (await client("/a")).status == status


async def test_an_error_without_stale_if_error_is_passed_on(cached, application, clock):
    client = cached()
    await seed(client)
    clock.now += 100
    application.status, application.fields = 503, []
    assert (await client("/a")).status == 503


def unreachable(reason="origin-unreachable"):
    from univocal.http.errors import RefusedError

    def script(scope):
        raise RefusedError(reason)

    return script


async def test_a_stale_response_replaces_an_absent_origin(cached, application, clock):
    client = cached()
    await seed(client)
    clock.now += 100
    application.script = unreachable()
    answer = await client("/a")
    assert (answer.status, answer.body) == (200, b"answer 1")
    assert "detail=disconnected" in answer.handling


async def test_must_revalidate_forbids_a_substitute_for_an_absent_origin(cached, application, clock):
    application.fields = [(b"cache-control", b"max-age=60, must-revalidate")]
    client = cached()
    await seed(client)
    clock.now += 100
    application.script = unreachable("origin-timeout")
    answer = await client("/a")
    assert (answer.status, answer.problem["reason"]) == (504, "origin-timeout")


async def test_only_if_cached_is_answered_from_the_cache_or_refused(cached, application):
    client = cached()
    asked = [("cache-control", "only-if-cached")]
    answer = await client("/a", fields=asked)
    assert (answer.status, answer.problem["reason"], application.count) == (504, "only-if-cached", 0)
    await client("/a")
    assert (await client("/a", fields=asked)).status == 200


# Methods


async def test_a_head_is_answered_from_what_a_get_stored(cached, application):
    application.fields = [*OPEN, (b"content-length", b"8")]
    client = cached()
    await client("/a")
    answer = await client("/a", "HEAD")
    assert (answer.status, answer.body, answer["content-length"]) == (200, b"", "8")
    assert application.count == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "UNKNOWN"])
async def test_an_unsafe_request_makes_the_stored_response_obsolete(cached, application, method):
    client = cached()
    await seed(client, "/a(b)")
    await client("/a%28b%29", method)
    assert (await client("/a(b)")).body == b"answer 3"


@pytest.mark.parametrize(
    ("method", "status"), [("POST", 500), ("POST", 404), ("OPTIONS", 200), ("TRACE", 200)]
)
async def test_failed_and_safe_requests_keep_the_stored_response(cached, application, method, status):
    client = cached()
    await seed(client)
    application.status = status
    await client("/a", method)
    assert "hit" in (await client("/a")).handling


@pytest.mark.parametrize("name", [b"location", b"content-location"])
@pytest.mark.parametrize(
    ("reference", "gone"),
    [
        (b"/b", True),
        (b"/%62", True),
        (b"b", True),
        (b"//en.example/b", True),
        (b"http://en.example/b", True),
        (b"http://EN.example:80/b#part", True),
        (b"http://ru.example/b", False),
        (b"https://en.example/b", False),
        (b"http://en.example:8080/b", False),
        (b"/c", False),
        (b"\xff\xfe", False),
    ],
)
async def test_groups_named_by_a_post_become_obsolete_too(cached, application, name, reference, gone):
    client = cached()
    await seed(client, "/b")
    application.fields = [(name, reference)]
    await client("/a", "POST")
    application.fields = OPEN
    assert ("hit" not in (await client("/b")).handling) is gone


async def test_a_post_may_bring_its_targets_new_state(cached, application):
    client = cached()
    await seed(client)
    application.fields = [*OPEN, (b"content-location", b"/a")]
    await client("/a", "POST", body=[b"x"], fields=[("content-length", "1")])
    answer = await client("/a")
    assert (answer.body, application.count) == (b"answer 2", 2)


async def test_the_answer_to_a_post_is_never_a_hit(cached, application):
    application.fields = [*OPEN, (b"content-location", b"/a")]
    client = cached()
    await client("/a", "POST")
    assert (await client("/a", "POST")).body == b"answer 2"


@pytest.mark.parametrize("method", ["get", "Get", "purge", "GETS"])
async def test_methods_are_compared_exactly(cached, application, method):
    client = cached()
    await seed(client)
    answer = await client("/a", method)
    assert (answer.status, answer.handling) == (200, {"fwd=method"})
    assert application.scopes[-1]["method"] == method


# Conditions and ranges


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        (("if-none-match", '"v1"'), 304),
        (("if-none-match", 'W/"v1"'), 304),
        (("if-none-match", '"v0", "v1"'), 304),
        (("if-none-match", "*"), 304),
        (("if-none-match", '"v2"'), 200),
        (("if-modified-since", "Mon, 05 Jan 1970 00:00:00 GMT"), 304),
        (("if-modified-since", "Sun, 04 Jan 1970 00:00:00 GMT"), 200),
        (("if-modified-since", "yesterday"), 200),
    ],
)
@pytest.mark.parametrize("on", ["a hit", "a miss"])
async def test_a_clients_conditions_are_answered(cached, application, condition, status, on):
    application.fields = [
        *OPEN,
        (b"etag", b'"v1"'),
        (b"last-modified", b"Mon, 05 Jan 1970 00:00:00 GMT"),
        (b"content-type", b"text/plain"),
    ]
    client = cached()
    if on == "a hit":
        await client("/a")
    answer = await client("/a", fields=[condition])
    assert (answer.status, answer.body) == (status, b"answer 1" if status == 200 else b"")
    assert ("content-type" in {name.decode() for name, _ in answer.fields}) is (status == 200)
    assert application.count == 1


async def test_stored_responses_keep_clients_conditions_from_the_application(cached, application):
    await cached()(
        "/a", fields=[("if-none-match", '"x"'), ("if-modified-since", "Mon, 05 Jan 1970 00:00:00 GMT")]
    )
    assert not {"if-none-match", "if-modified-since"} & application.fields_seen().keys()


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        ("bytes=0-2", 206, b"012"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-", 206, b"89"),
        ("bytes=5-100", 206, b"56789"),
        ("bytes=20-", 416, b""),
        ("bytes=5-2", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
async def test_ranges_are_cut_from_what_is_stored(cached, application, asked, status, body):
    application.body = b"0123456789"
    client = cached()
    await client("/a")
    answer = await client("/a", fields=[("range", asked)])
    assert (answer.status, answer.body, application.count) == (status, body, 1)


async def test_very_many_ranges_are_not_multiplied(cached, application):
    application.body = b"0123456789" * 100
    client = cached()
    await client("/a")
    answer = await client("/a", fields=[("range", "bytes=" + ",".join(["0-"] * 500))])
    assert len(answer.body) <= 2000


# Rules


async def test_paths_that_the_rules_name_go_past_the_cache(cached, application):
    client = cached(rules=Rules(bypass=("/admin/*",)))
    for _ in range(2):
        assert (await client("/admin/a")).handling == {"fwd=bypass"}
        assert (await client("/%61dmin/a")).handling == {"fwd=bypass"}
    assert application.count == 4


async def test_cookies_that_the_rules_name_go_past_the_cache(cached, application):
    client = cached(rules=Rules(bypass_cookies=("session*",)))
    await seed(client)
    assert (await client("/a", fields=[("cookie", "theme=dark; session_id=1")])).handling == {"fwd=bypass"}
    assert "hit" in (await client("/a", fields=[("cookie", "theme=dark")])).handling


async def test_cookies_that_the_rules_strip_do_not_reach_the_application(cached, application):
    client = cached(rules=Rules(strip_cookies=("_ga*",)))
    await client("/a", fields=[("cookie", "_ga=1; theme=dark; _gat_x=2")])
    assert application.fields_seen()["cookie"] == "theme=dark"


async def test_only_kept_cookies_stay_in_requests(cached, application):
    client = cached(rules=Rules(keep_cookies=("lang",), bypass_cookies=("session*",)))
    for sent, seen in {
        "_ga=1; lang=de; session_id=2": "lang=de; session_id=2",
        "lang=de": "lang=de",
        "_ga=1; __utm=2": None,
    }.items():
        await client("/a", fields=[("cookie", sent), ("cache-control", "no-cache")])
        assert application.fields_seen().get("cookie") == seen


@pytest.mark.parametrize("cookie", ["_ga=1", "_ga=2; __utm=3", ""])
async def test_cookies_that_do_not_matter_make_no_variants(cached, application, cookie):
    application.fields = [(b"cache-control", b"max-age=60"), (b"vary", b"Cookie")]
    client = cached(rules=Rules(keep_cookies=("session",)))
    await client("/a", fields=[("cookie", cookie)])
    assert "hit" in (await client("/a")).handling
    assert "hit" in (await client("/a", fields=[("cookie", "_gid=4")])).handling
    assert "hit" not in (await client("/a", fields=[("cookie", "_gid=4; session=5")])).handling


@pytest.mark.parametrize(
    ("rules", "cookie", "stored"),
    [
        ({}, "", True),
        ({}, "a=1", False),
        ({"bypass_cookies": ("session",)}, "a=1", True),
        ({"bypass_cookies": ("session",)}, "a=1; session=2", False),
        ({"keep_cookies": ("lang",)}, "a=1", True),
        ({"keep_cookies": ("lang",)}, "a=1; lang=de", False),
        ({"keep_cookies": ("lang",), "bypass_cookies": ("session",)}, "a=1", True),
        ({"keep_cookies": ("lang",), "bypass_cookies": ("session",)}, "lang=de", False),
        ({"strip_cookies": ("a",)}, "a=1", True),
    ],
)
async def test_a_lifetime_by_the_rules_holds_where_no_cookie_matters(
    cached, application, rules, cookie, stored
):
    application.fields = []
    client = cached(rules=Rules(ttl=60, **rules))
    await client("/a", fields=[("cookie", cookie)] if cookie else [])
    assert ("hit" in (await client("/a")).handling) is stored


async def test_one_clients_cookies_keep_nobody_elses_answer_from_being_shared(cached, application):
    application.fields = []
    client = cached(rules=Rules(ttl=60))
    await client("/a", fields=[("cookie", "a=1")])
    await client("/a", fields=[("if-none-match", '"mine"')])
    assert "if-none-match" not in application.fields_seen()
    assert "hit" in (await client("/a")).handling


BROWSERS = [
    "gzip, deflate, br, zstd",
    "gzip, deflate, br",
    "gzip;q=1.0, deflate",
    "br , gzip;q=0.9",
    "identity",
]


@pytest.mark.parametrize(("setting", "asked"), [("reduce", 4), ("keep", 5)])
async def test_codings_are_reduced_for_key_and_origin_alike(cached, application, setting, asked):
    application.fields = [(b"cache-control", b"max-age=60"), (b"vary", b"Accept-Encoding")]
    client = cached(rules=Rules(accept_encoding=setting))
    for _ in range(2):
        for browser in BROWSERS:
            await client("/a", fields=[("accept-encoding", browser)])
    assert application.count == asked
    seen = [application.fields_seen(number)["accept-encoding"] for number in range(asked)]
    assert seen == (["zstd, br, gzip", "br, gzip", "gzip", "identity"] if setting == "reduce" else BROWSERS)


@pytest.mark.parametrize(("method", "seen"), [("GET", "br"), ("HEAD", "br"), ("POST", "br, deflate")])
async def test_codings_of_other_methods_stay_as_they_came(cached, application, method, seen):
    await cached()("/a", method, fields=[("accept-encoding", "br, deflate")])
    assert application.fields_seen()["accept-encoding"] == seen


async def test_a_lifetime_given_by_the_rules(cached, application, clock):
    application.fields = []
    client = cached(rules=Rules(ttl=10))
    await client("/a")
    assert "hit" in (await client("/a")).handling
    clock.now += 11
    assert "hit" not in (await client("/a")).handling


async def test_the_store_holds_no_more_than_it_may(cached, application):
    application.body = b"x" * 1000
    client = cached(store=MemoryStore(max_bytes=50_000))
    for number in range(200):
        await client(f"/{number}")
    stats = client.app.store.stats
    assert 0 < stats.bytes <= 50_000
    assert stats.evictions


def test_every_problem_is_json():
    from univocal.http.errors import REASONS
    from univocal.http.problem import problem

    for reason, (status, _) in REASONS.items():
        told = json.loads(problem([reason]).body)
        assert (told["status"], told["reason"], told["reasons"]) == (status, reason, [reason])


# A profile's rules

BLOG = parse({"blog": "[cache]\nttl = 60\nbypass_cookies = ['session']"})["blog"]


@pytest.mark.parametrize(("settings", "calls"), [({}, 1), ({"rules": Rules()}, 2)])
async def test_the_middleware_follows_profile_rules_unless_given_others(cached, application, settings, calls):
    application.fields = []
    client = cached(BLOG, **settings)
    await client("/a")
    await client("/a")
    assert application.count == calls


async def test_a_profiles_rules_reach_the_gate(cached, application):
    client = cached(BLOG)
    await client("/a")
    answer = await client("/a", fields=[("cookie", "session=1")])
    assert "fwd=bypass" in answer.handling


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
