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


async def test_a_trusted_proxys_client_is_the_outcomes(cached, told):
    client = cached(listeners=[told.append], trusted_proxies=["127.0.0.1"])
    await client("/a", fields=[("x-forwarded-for", "198.51.100.7")])
    assert (told[0].client, told[0].received.client) == ("198.51.100.7", "127.0.0.1")
