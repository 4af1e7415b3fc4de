"""A client that takes nothing of what it is sent is given up; one that is slow is not."""

import asyncio

import pytest

from univocal.server.clients import ReadLimits

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"


class Endless:
    """An application that sends without end, as its client takes it."""

    def __init__(self):
        self.cut = False

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"a" * 1000, "more_body": True})
                await asyncio.sleep(0)
        finally:
            self.cut = True


async def stuck(wire, waiting=100_000):
    client = wire(Endless(), limits=ReadLimits(send_timeout=10))
    await client.feed(GET)
    client.transport.waiting = waiting
    client.protocol.pause_writing()
    await client.settle()
    return client


async def test_a_transport_that_takes_bytes_has_moved(wire):
    client = await stuck(wire)
    for _ in range(10):
        client.clock.pass_time(6)
        client.protocol.resume_writing()
        await client.settle()
        client.protocol.pause_writing()
    assert client.open
    client.hang_up()
    await client.settle()


async def test_nobody_is_watched_of_whom_nothing_waits(wire):
    client = await stuck(wire)
    client.transport.waiting = 0
    client.protocol.resume_writing()
    client.clock.pass_time(30)
    assert client.open
    client.hang_up()
    await client.settle()


async def test_a_client_that_is_given_up_is_lost_behind_that(wire):
    client = await stuck(wire)
    client.clock.pass_time(11)
    assert client.transport.aborted
    client.hang_up()
    await client.settle()
    assert not client.protocol.turns


async def test_a_closing_connection_waits_for_its_client_as_long(wire, recorder):
    client = wire(recorder, limits=ReadLimits(send_timeout=10))
    client.transport.waiting = 50
    await client.feed(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert (client.transport.closed, client.transport.aborted) == (True, False)
    client.clock.pass_time(11)
    assert client.transport.aborted


@pytest.mark.parametrize("waiting", [0, 50])
async def test_an_idle_connection_is_closed_as_its_client_takes_it(wire, recorder, waiting):
    client = wire(recorder, limits=ReadLimits(send_timeout=10))
    await client.feed(GET)
    client.transport.waiting = waiting
    client.clock.pass_time(6)
    assert (client.transport.closed, client.transport.aborted) == (True, False)
    client.clock.pass_time(11)
    assert client.transport.aborted is bool(waiting)
