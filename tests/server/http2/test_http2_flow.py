"""Windows towards the origin server and towards the client: no stream holds another (RFC 9113 §5.2)."""

import asyncio

from http2_client import DATA, GET, INITIAL_WINDOW_SIZE, POST, changed, data, headers, settings, window_update
from tests.pages import Page
from univocal.server.clients import ITERATION_SHARE

WINDOW = 65535


async def test_a_stream_that_nobody_reads_gets_no_window(client):
    client.server.origin.is_greedy = False  # it takes a chunk, and wants no more for now
    await client.send(headers(1, POST, ends=False))
    for _ in range(4):
        await client.send(data(1, bytes(16_000)))
    assert client.granted(1) <= 16_000
    client.server.origin.is_greedy = True
    client.server.origin.asked[0].take_more()
    await client.settle()
    assert client.granted(1) >= 60_000
    assert len(client.server.origin.asked[0].content) == 64_000


async def test_ninety_nine_stuck_uploads_hold_none(connect):
    client = connect(is_greedy=False)
    for number in range(1, 199, 2):
        await client.send(headers(number, POST, ends=False), *[data(number, bytes(13_107))] * 5)
    client.server.origin.is_greedy = True
    await client.send(headers(199, POST, ends=False))
    sent = 0
    while sent < 7_000_000:
        left = min(client.granted() - 98 * WINDOW, WINDOW + client.granted(199)) - sent
        assert left >= 16_000
        await client.send(data(199, bytes(16_000)))
        sent += 16_000
    await client.send(data(199, b"", ends=True))
    assert client.head(199)[0] == 200
    assert len(client.server.origin.asked[-1].content) == sent


async def test_windows_are_given_in_large_steps(client):
    await client.send(headers(1, POST, ends=False))
    for _ in range(1000):
        await client.send(data(1, bytes(1000)))
    updates = [each for each in client.frames if each.kind == 8 and each.stream == 1]
    assert len(client.server.origin.asked[0].content) == 1_000_000
    assert len(updates) <= 31  # one for half of a window
    assert client.granted(1) >= 1_000_000 - WINDOW // 2


async def test_content_of_many_small_frames_is_handed_over_in_one(client):
    await client.send(headers(1, POST, ends=False))
    await client.send(*[data(1, b"x")] * 60)
    (asked,) = client.server.origin.asked
    assert (asked.content, asked.chunks) == (b"x" * 60, 1)


async def test_padding_counts_for_the_window(client):
    await client.send(headers(1, POST, ends=False))
    for _ in range(300):
        await client.send(b"\0\x01\0\0\x08\0\0\0\x01" + b"\xf0" + b"y" * 15 + bytes(240))
    assert client.server.origin.asked[0].content == b"y" * 15 * 300
    assert client.granted(1) >= 300 * 256 - WINDOW // 2


async def test_a_client_gets_no_more_than_its_window(connect):
    client = connect(page=Page(content=bytes(10_000_000)))
    await client.send(settings((INITIAL_WINDOW_SIZE, 10)))
    await client.send(headers(1))
    assert len(client.content(1)) == 10
    (asked,) = client.server.origin.asked
    assert asked.is_paused
    assert len(asked._left) > 9_500_000
    while not client.has_ended(1):
        before = len(client.content(1))
        await client.send(window_update(500_000, 1), window_update(500_000))
        assert len(client.content(1)) > before
    assert len(client.content(1)) == 10_000_000


async def test_streams_share_the_window_of_the_connection(connect):
    client = connect(page=Page(content=bytes(200_000)))
    await client.send(headers(1), headers(3), headers(5))
    for _ in range(12):
        await client.send(window_update(50_000), *[window_update(50_000, number) for number in (1, 3, 5)])
        sizes = [len(client.content(number)) for number in (1, 3, 5)]
        assert max(sizes) - min(sizes) <= 2 * 16_384
    assert sizes == [200_000] * 3


async def test_frames_are_no_longer_than_their_least_bound(connect):
    client = connect(page=Page(content=bytes(60_000)))
    await client.send(settings((5, 1_000_000)))
    await client.send(headers(1))
    assert max(len(each.payload) for each in client.of(1, DATA)) == 16384


async def test_a_connection_has_its_part_of_a_turn(client):
    client.clock.a_tick = 0.0003
    client.give(b"".join(headers(number, changed(GET, path=b"/%d" % number)) for number in range(1, 121, 2)))
    asked, turns = client.server.origin.asked, 0
    while len(asked) < 60:
        before = len(asked)
        await asyncio.sleep(0)
        assert len(asked) - before <= ITERATION_SHARE / client.clock.a_tick
        turns += 1
        assert turns < 1000
