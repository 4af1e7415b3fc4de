"""Clients that send cheap frames without an end, and read nothing: each costs little and is ended."""

import tracemalloc
from itertools import count

import pytest

from http2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    GET,
    HEADERS,
    HOST,
    PING,
    POST,
    PRIORITY,
    block,
    changed,
    data,
    frame,
    headers,
    rst_stream,
    settings,
    window_update,
)
from tests.pages import Page
from univocal.server.clients import SchedulerState
from univocal.server.http2.frames import Credit

MOST = 8 * 1024 * 1024
HOUR = (b"cache-control", b"max-age=3600")


def for_ever(octets, first=b""):
    yield first
    while True:
        yield octets


FLOODS = {
    "PING": lambda: for_ever(frame(PING, 0, 0, bytes(8))),
    "SETTINGS": lambda: for_ever(settings()),
    "SETTINGS that change": lambda: for_ever(settings((4, 100)) + settings((4, 200))),
    "acknowledgements": lambda: for_ever(frame(PING, 1, 0, bytes(8))),
    "empty DATA": lambda: for_ever(data(1), headers(1, POST, ends=False)),
    "padded empty DATA": lambda: for_ever(frame(DATA, 8, 1, b"\0"), headers(1, POST, ends=False)),
    "PRIORITY": lambda: for_ever(frame(PRIORITY, 0, 1, b"\0\0\0\x03\xff")),
    "WINDOW_UPDATE": lambda: for_ever(window_update(1)),
    "WINDOW_UPDATE on a stream": lambda: for_ever(window_update(1, 1), headers(1, POST, ends=False)),
    "unknown frames": lambda: for_ever(frame(0x20, 0, 0, b"x")),
    "empty CONTINUATION": lambda: for_ever(frame(CONTINUATION, 0, 1), headers(1, flags=0)),
    "CONTINUATION": lambda: for_ever(
        frame(CONTINUATION, 0, 1, block([(b"x", b"y" * 16_000)])), headers(1, flags=0)
    ),
    "RST_STREAM": lambda: for_ever(rst_stream(1), headers(1)),
    "requests and RST_STREAM": lambda: (headers(number) + rst_stream(number) for number in count(1, 2)),
    "streams beyond the bound": lambda: (headers(number) for number in count(1, 2)),
    "malformed requests": lambda: (headers(number, [*GET, (b"Upper", b"case")]) for number in count(1, 2)),
    # CVE-2025-8671: the client has the server reset its streams.
    "windows that overflow": lambda: (
        headers(number) + window_update(2**31 - 1, number) for number in count(1, 2)
    ),
    # The stream is over: its content was longer than it had said.
    "trailers of a stream that was reset": lambda: for_ever(
        headers(1, [(b"x", b"y")]),
        headers(1, [*POST, (b"content-length", b"1")], ends=False) + data(1, b"too long"),
    ),
}


@pytest.mark.parametrize("reads", [True, False], ids=["it reads", "it reads nothing"])
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_costs_little_and_is_ended(connect, name, reads):
    client = connect(holds=True)
    await client.settle()
    client.transport.reads = reads
    frames, sent = FLOODS[name](), 0
    tracemalloc.start()
    try:
        while sent < 20_000_000 and not client.transport.closed:
            if client.transport.paused and client.connection.scheduler.state is not SchedulerState.WAITING:
                break
            batch = b"".join(next(frames) for _ in range(100))
            sent += len(batch)
            client.give(batch)
            await client.settle()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    client.transport.reads = True
    client.transport.sent += client.transport.unread
    await client.settle()
    assert client.error == ENHANCE_YOUR_CALM
    assert peak < MOST
    assert len(client.server.origin.asked) <= 300
    assert client.server.refusals[-1][1] == ("too-many-requests",)


async def test_nothing_is_read_while_the_client_takes_nothing(connect):
    client = connect(page=Page(fields=(HOUR,), content=bytes(10_000)))
    await client.ask(1)
    client.transport.reads = False
    number = 3
    while not client.transport.paused:
        assert len(client.transport.unread) < 1_000_000
        client.give(headers(number) + window_update(10_000))
        await client.settle()
        number += 2
    before = client.server.state.total_requests
    client.give(b"".join(headers(each) for each in range(number, number + 100, 2)))
    await client.settle()
    assert client.server.state.total_requests == before
    client.transport.read_again()
    for _ in range(20):
        await client.settle()
        client.give(window_update(100_000))
    assert client.server.state.total_requests == before + 50
    assert not client.transport.paused


async def test_a_client_that_updates_each_window_is_served(connect):
    """Some update both windows for each frame of content that they get."""
    client = connect(page=Page(content=bytes(8_000_000)))
    await client.send(headers(1))
    while not client.has_ended(1):
        sizes = [len(each.payload) for each in client.of(1, DATA)]
        client.frames = client.frames[-1:]
        await client.send(*[window_update(size, 1) + window_update(size) for size in sizes])
    assert not client.transport.closed


async def test_a_window_that_grows_byte_by_byte_ends_the_connection(connect):
    """CVE-2019-9511: each octet of it would cost a frame."""
    client = connect(page=Page(content=bytes(100_000)))
    await client.send(settings((4, 0)))
    await client.send(headers(1))
    for _ in range(3000):
        if client.transport.closed:
            break
        await client.send(window_update(1, 1))
    assert client.error == ENHANCE_YOUR_CALM


async def test_a_client_that_cancels_half_of_its_requests_is_served(client):
    for number in range(1, 2001, 4):
        client.server.origin.holds = False
        assert (await client.ask(number))[0] == 200
        client.server.origin.holds = True
        await client.send(headers(number + 2), rst_stream(number + 2))
    assert not client.transport.closed


async def test_hits_do_not_pay_for_cancelled_misses(connect):
    client = connect(page=Page(fields=(HOUR,)))
    await client.ask(1)
    client.server.origin.holds = True
    for cancelled in range(Credit.MOST_IN_VAIN + 1):
        assert client.error is None
        number = 4 * cancelled + 3
        missed = headers(number, changed(GET, path=b"/%d" % number))
        await client.send(missed, rst_stream(number), headers(number + 2))
    assert client.error == ENHANCE_YOUR_CALM


async def test_seconds_pay_for_cancelled_requests(connect):
    client = connect(holds=True)
    for number in range(1, 4001, 2):
        client.clock.pass_time(1)
        await client.send(headers(number), rst_stream(number))
    assert client.error is None


async def test_a_hundred_requests_may_be_cancelled_at_once(connect):
    client = connect(holds=True)
    await client.send(*[headers(number) for number in range(1, 199, 2)])
    await client.send(*[rst_stream(number) for number in range(1, 199, 2)])
    assert not client.transport.closed
    assert all(asked.is_cancelled for asked in client.server.origin.asked)


async def test_a_ping_now_and_then_is_answered_for_ever(connect):
    client = connect(holds=True)
    await client.send(headers(1))
    for _ in range(3000):
        client.clock.pass_time(1)
        await client.send(frame(PING, 0, 0, bytes(8)))
    assert not client.transport.closed
    assert len([each for each in client.frames if each.kind == PING]) == 3000


async def test_a_bomb_of_indexed_fields_is_bounded(client):
    """CVE-2016-6581: a few octets that become a large list of fields."""
    entry = b"\x40\x01x\x7f\x81\x16" + b"y" * 2944
    tracemalloc.start()
    try:
        await client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(GET) + entry))
        await client.send(frame(HEADERS, END_HEADERS | END_STREAM, 3, block(GET) + b"\xbe" * 16_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST
    assert client.error == ENHANCE_YOUR_CALM
    assert len(client.server.origin.asked) == 1


async def test_many_requests_at_once_let_others_have_their_turn(connect, serve):
    server = serve()
    server.origin.pages[b"/"] = Page(fields=(HOUR,))
    first, second = connect(server), connect(server)
    await first.ask(1)
    first.give(b"".join(headers(number) for number in range(3, 4003, 2)))
    assert server.state.total_requests <= 100
    second.give(headers(1))
    assert server.state.total_requests <= 101
    for _ in range(20):
        await first.settle()
    assert first.has_ended(4001)
    assert first.transport.paused is False


async def test_a_connection_remembers_few_of_its_streams(connect):
    client = connect(page=Page(fields=(HOUR,)))
    await client.ask(1)

    async def a_thousand(first):
        for start in range(first, first + 2000, 100):
            await client.send(*[headers(number) for number in range(start, start + 100, 2)])
            client.frames.clear()
            client.server.outcomes.clear()

    await a_thousand(3)
    tracemalloc.start()
    try:
        await a_thousand(2003)
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 250_000


async def test_settings_that_nobody_knows_cost_nothing(client):
    """RFC 9113 §6.5.2: they are ignored, however many they are."""
    await client.settle()
    unknown = [settings(*[(start + each, 1) for each in range(2500)]) for start in range(100, 20_100, 2500)]
    tracemalloc.start()
    try:
        await client.send(*unknown)
        client.frames.clear()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert client.error is None
    assert grown < 1_000_000


async def test_cancelled_uploads_leave_nothing_behind(client):
    for number in range(1, 100, 2):
        upload = headers(number, [*POST, (b"content-length", b"5")], ends=False)
        await client.send(upload, data(number, b"four"), rst_stream(number))
    assert client.error is None
    assert client.connection.session._streams == {}


async def test_uploads_that_nobody_takes_cost_their_windows(connect):
    client = connect(is_greedy=False)
    await client.settle()
    tracemalloc.start()
    try:
        for number in range(1, 201, 2):
            client.give(headers(number, changed(POST, authority=HOST), ends=False))
            for _ in range(4):
                client.give(data(number, b"x") * 100 + data(number, bytes(16_000)))
            await client.settle()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not client.transport.closed
    assert size < MOST
