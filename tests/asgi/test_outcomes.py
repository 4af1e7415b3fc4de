"""Every exchange ends in one Outcome, told to every listener."""

import asyncio

import pytest


@pytest.fixture
def told():
    return []


@pytest.fixture
def client(cached, told):
    return cached(listeners=[told.append])


async def test_a_refusal_above_the_root(client, told):
    await client("/other", root_path="/app", path="/app/other")
    assert (told[0].status, told[0].reasons) == (400, ("above-root",))


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
