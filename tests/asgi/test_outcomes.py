"""Every exchange ends in one Outcome, told to every listener."""

import asyncio

import pytest

from univocal import Outcome, Rules
from univocal.cache.decide import Forward, Refuse, Reuse, Validate
from univocal.http.errors import RefusedError

OPEN = [(b"cache-control", b"max-age=60")]


@pytest.fixture
def told():
    return []


@pytest.fixture
def client(cached, told):
    return cached(listeners=[told.append])


async def test_an_outcome_of_a_miss(client, told, clock):
    await client("/a%28b%29?c")
    (outcome,) = told
    assert isinstance(outcome, Outcome)
    assert (outcome.site, outcome.status, outcome.bytes, outcome.client) == ("*", 200, 8, "127.0.0.1")
    assert (outcome.received.method, outcome.received.target) == (b"GET", b"/a%28b%29?c")
    assert outcome.canonical.target == b"/a(b)?c"
    assert outcome.decision == Forward("uri-miss", may_store=True, fallback=None)
    assert (outcome.handling.fwd, outcome.handling.stored, outcome.handling.hit) == ("uri-miss", True, False)
    assert outcome.times.start == clock.now
    assert 0 <= outcome.times.first <= outcome.times.total
    assert outcome.reasons == ()


async def test_an_outcome_of_a_hit(client, told):
    await client("/a")
    await client("/a")
    outcome = told[1]
    assert isinstance(outcome.decision, Reuse)
    assert (outcome.handling.hit, outcome.handling.ttl, outcome.handling.fwd) == (True, 60, "")


async def test_an_outcome_of_a_validation(client, told, application, clock):
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    await client("/a")
    clock.now += 100
    application.script = lambda scope: (304, OPEN, b"")
    await client("/a")
    assert (told[1].handling.fwd, told[1].handling.fwd_status, told[1].status) == ("stale", 304, 200)
    assert isinstance(told[1].decision, Reuse | Validate)


async def test_an_outcome_of_a_refusal(client, told):
    await client("/../%00")
    (outcome,) = told
    assert outcome.decision == Refuse(400, "control-character")
    assert outcome.reasons == ("control-character", "dot-segment")
    assert (outcome.canonical, outcome.status) == (None, 400)
    assert (outcome.site, outcome.host) == ("*", "en.example")
    assert outcome.bytes > 0


async def test_a_refusal_above_the_root(client, told):
    await client("/other", root_path="/app", path="/app/other")
    assert (told[0].status, told[0].reasons) == (400, ("above-root",))


async def test_an_outcome_of_a_purge(client, told):
    await client("/a", "PURGE")
    (outcome,) = told
    assert (outcome.received.method, outcome.status, outcome.decision) == (b"PURGE", 200, None)
    await client("/a", "PURGE", client=("198.51.100.7", 1))
    assert (told[1].status, told[1].reasons, told[1].client) == (403, ("purge-forbidden",), "198.51.100.7")


async def test_a_method_that_is_passed_on(client, told, application):
    application.body = b"x" * 100
    await client("/a", "POST")
    assert (told[0].handling.fwd, told[0].bytes, told[0].status) == ("method", 100, 200)


async def test_an_origin_that_is_away(client, told, application):
    def script(scope):
        raise RefusedError("origin-timeout")

    application.script = script
    await client("/a")
    assert (told[0].status, told[0].reasons, told[0].handling.detail) == (
        504,
        ("origin-timeout",),
        "origin-timeout",
    )


async def test_an_application_that_raises(client, told, application):
    def script(scope):
        raise LookupError

    application.script = script
    with pytest.raises(LookupError):
        await client("/a")
    assert [outcome.status for outcome in told] == [0]


async def test_a_client_that_leaves(client, told, application):
    application.gate, leave = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(client("/a", leave=leave))
    await application.reached(1)
    leave.set()
    await application.receives[0]()
    assert [(outcome.status, outcome.bytes) for outcome in told] == [(0, 0)]
    application.gate.set()
    await waiting
    assert len(told) == 1


async def test_each_waiting_request_has_its_own_outcome(client, told, application, idle):
    application.gate = asyncio.Event()
    waiting = [asyncio.create_task(client("/a")) for _ in range(3)]
    await idle()
    application.gate.set()
    await asyncio.gather(*waiting)
    assert sorted(outcome.handling.collapsed for outcome in told) == [False, True, True]
    assert {outcome.bytes for outcome in told} == {8}


async def test_a_background_fetch_has_none(cached, told, application, clock, idle):
    client = cached(listeners=[told.append])
    application.fields = [(b"cache-control", b"max-age=60, stale-while-revalidate=60")]
    await client("/a")
    clock.now += 70
    await client("/a")
    await idle()
    assert (application.count, len(told)) == (2, 2)


async def test_a_trusted_proxys_client_is_the_outcomes(cached, told):
    client = cached(listeners=[told.append], trusted_proxies=["127.0.0.1"])
    await client("/a", fields=[("x-forwarded-for", "198.51.100.7")])
    assert (told[0].client, told[0].received.client) == ("198.51.100.7", "127.0.0.1")


async def test_a_failing_listener_stops_no_other_and_no_answer(cached, told, caplog):
    def broken(outcome):
        raise LookupError("the log is full")

    client = cached(listeners=[broken, told.append])
    assert (await client("/a")).complete
    assert len(told) == 1
    assert "the log is full" in caplog.text


async def test_what_cache_status_says_is_what_listeners_hear(client, told, application):
    application.fields = [(b"cache-control", b"no-store")]
    for target in ("/a", "/a", "/b"):
        answer = await client(target)
        assert ("stored" in answer.handling) is told[-1].handling.stored
        assert f"fwd={told[-1].handling.fwd}" in answer.handling


async def test_a_listener_is_told_of_what_went_past_the_cache(cached, told):
    client = cached(listeners=[told.append], rules=Rules(bypass=("/a",)))
    await client("/a")
    assert told[0].handling.fwd == "bypass"
