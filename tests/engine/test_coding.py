"""Compression while a response streams: what its client has when, and how long others wait."""

import gzip
import zlib

import pytest

from neighbours import PlayedClient, Proxy
from univocal.cache.rules import Rules
from univocal.engine.coding import CodedStreams

FIELDS = [(b"content-type", b"application/json"), (b"cache-control", b"private")]
GZIP = (b"accept-encoding", b"gzip")
LINE = b'{"name": "the same words again and again"}\n'
LARGE = LINE * 20_000


@pytest.fixture
def proxy():
    return with_streams(Proxy(rules=Rules(compress=["gzip"])))


def with_streams(proxy, **settings):
    """The proxy, whose streams go on in the turns of its timers."""
    proxy.engine.streams = CodedStreams(lambda call: proxy.clock.call_later(0, call), **settings)
    return proxy


def ask(proxy, target=b"/a", **client):
    """A client to which a response begins to stream."""
    client_of = proxy.ask(target, b"GET", GZIP, client=PlayedClient(**client))
    asked = proxy.origin.last
    asked.start(fields=FIELDS)
    return client_of, asked


def received(client):
    """The content that a client can read of what it has by now."""
    return zlib.decompressobj(31).decompress(client.body)


def turn(proxy):
    """Wait for the event loop's next turn."""
    due, proxy.clock.timers[:] = proxy.clock.timers[:], []
    for each in due:
        each.callback()


def test_writes_of_one_turn_are_flushed_once(proxy):
    with_streams(proxy, ticks=proxy.clock.tick)
    client, asked = ask(proxy)
    for _ in range(100):
        asked.write(LINE)
    turn(proxy)
    assert received(client) == LINE * 100
    assert len(client.body) < 200


class FailingClient(PlayedClient):
    """A client that has no memory for content behind a head."""

    def write(self, chunk):
        raise MemoryError(len(chunk))


def test_only_the_response_that_lacks_a_piece_is_cut(proxy):
    with_streams(proxy, ticks=proxy.clock.tick)
    other, asked_by_other = ask(proxy)
    client = FailingClient()
    proxy.ask(b"/b", b"GET", GZIP, client=client)
    asked = proxy.origin.last
    asked.start(fields=FIELDS)
    asked.write(LINE)
    asked_by_other.write(LINE)
    turn(proxy)
    assert (client.status, client.state) == (200, "cut")
    assert received(other) == LINE


def test_large_content_leaves_time_for_others_in_each_turn(proxy):
    proxy.clock.a_tick = 0.0004  # each look takes as long as a piece
    with_streams(proxy, ticks=proxy.clock.tick)
    large, asked = ask(proxy)
    asked.write(LARGE)
    small, other = ask(proxy, b"/small")
    other.write(LINE)
    other.finish()
    turns = 0
    while not small.chunks:
        turn(proxy)
        turns += 1
    assert turns < 3
    assert len(received(large)) < len(LARGE) / 2
    asked.finish()
    while not (large.state and small.state):
        turn(proxy)
        turns += 1
    assert turns > 10
    assert (gzip.decompress(large.body), gzip.decompress(small.body)) == (LARGE, LINE)
    proxy.clock.pass_time(0)
    proxy.assert_nothing_is_left()


def test_a_client_that_takes_no_more_stops_the_origin_server(proxy):
    noise = bytes(hash((number, 7)) & 255 for number in range(300_000))
    client, asked = ask(proxy, takes=1)
    written = 0
    while asked.takes and written < 100:
        asked.write(noise)
        written += 1
        turn(proxy)
    assert written < 5
    while not client.state:
        client.resume()
        proxy.clock.pass_time(0)
        if asked.takes and asked.live:
            asked.finish()
    assert gzip.decompress(client.body) == noise * written
    proxy.clock.pass_time(0)
    proxy.assert_nothing_is_left()


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_a_client_that_leaves_ends_its_stream(proxy, leaves):
    client, asked = ask(proxy, leaves=leaves)
    for _ in range(20):
        asked.write(LARGE)
        turn(proxy)
    assert (client.state, asked.cancelled, proxy.engine.streams.open) == ("left", True, 0)
    proxy.clock.pass_time(0)
    proxy.assert_nothing_is_left()


def test_content_that_is_cut_reaches_its_client_first(proxy):
    client, asked = ask(proxy)
    asked.write(LINE)
    asked.fail(ConnectionResetError())
    assert (client.state, received(client)) == ("cut", LINE)
    proxy.clock.pass_time(0)
    proxy.assert_nothing_is_left()


def test_more_streams_than_there_is_memory_for_are_not_compressed(proxy):
    with_streams(proxy, most=2)
    asked = [ask(proxy, b"/%d" % number) for number in range(3)]
    for client, request in asked:
        request.write(LINE)
        request.finish()
        assert (b"vary", b"Accept-Encoding") in client.fields
    assert [client.body == LINE for client, _ in asked] == [False, False, True]
    assert proxy.engine.streams.open == 0
