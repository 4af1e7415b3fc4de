"""What a client of the mounted cache notices of RFC 9111."""

import asyncio
import json

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


async def test_hosts_ports_and_schemes_have_entries_of_their_own(cached, application):
    client = cached()
    for host in ("en.example", "ru.example", "en.example:8080"):
        await client("/a", host=host)
    await client("/a", scheme="https")
    assert application.count == 4
    await client("/a", host="EN.example.:80")
    await client("/a", host="en.example:443", scheme="https")
    assert application.count == 4


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


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
