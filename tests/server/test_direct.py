"""Requests that are answered on the connection itself, at a glance or by a turn: order, bounds, deadlines."""

import pytest

from neighbours import Watched
from tests.server.conftest import RUNTIMES, Asked
from univocal.cache.rules import Rules
from univocal.http.framing import ReadLimits
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.server.listener import PIECE

HOST = b"Host: a.example\r\n"


def get(target=b"/fresh", fields=b"", version=b"HTTP/1.1", host=HOST):
    return b"GET " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


@pytest.fixture
async def stored(door):
    """The client's end of a connection behind which /fresh, /large and /big are stored: stored(limits=…)."""
    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules())
    made = door(runtime, direct=True)
    await made.warm([get(target) for target in (b"/fresh", b"/large", b"/big")])

    def client(**settings):
        found = made.client(**settings)
        found.door = made
        return found

    return client


def watched(client):
    """The turns that a client's requests have from now on."""
    listener = client.protocol.listener
    listener.service = service = Watched(listener.service)
    return service.turns


async def test_a_hit_needs_no_turn_and_no_timer(stored):
    client = stored()
    turns = watched(client)
    before = len(client.clock.timers)
    for _ in range(3):
        await client.feed(get())
    assert turns == []
    assert [answer.body for answer in client.answers()] == [b"0123456789"] * 3
    assert len(client.clock.timers) == before + 1  # keep-alive
    await client.feed(get(b"/unknown"))
    assert len(turns) == 1


@pytest.mark.parametrize("target", [b"/fresh", b"/large", b"/big"])
async def test_content_of_every_size(stored, target):
    client = stored()
    await client.feed(get(target), get(b"/fresh"))
    first, second = client.answers()
    assert (len(first.body), len(second.body)) == (
        {b"/fresh": 10, b"/large": 9000, b"/big": 307200}[target],
        10,
    )


async def test_an_idle_connection_is_kept_for_the_keep_alive_time(stored):
    client = stored(timeout_keep_alive=7)
    turns = watched(client)
    await client.feed(get())
    client.clock.pass_time(6)
    await client.feed(get())
    client.clock.pass_time(6.9)
    assert client.open
    client.clock.pass_time(0.1)
    assert not client.open
    assert turns == []


async def test_a_begun_request_behind_a_hit_has_a_heads_time(stored):
    client = stored(limits=ReadLimits(header_timeout=3))
    await client.feed(get(), get()[:9])
    client.clock.pass_time(3)
    assert [answer.status for answer in client.answers()] == [200, 408]


@pytest.mark.parametrize(
    "close", [b"Connection: close\r\n", b"connection: Close \r\n", b"Proxy-Connection: close\r\n"]
)
async def test_a_hit_ends_the_connection_where_the_client_says_so(stored, close):
    client = stored()
    await client.feed(get(), get(fields=close))
    first, second = client.answers()
    assert (first.field(b"connection"), second.field(b"connection"), client.open) == (None, b"close", False)


@pytest.mark.parametrize("ending", [get(version=b"HTTP/1.0"), get(fields=b"Connection: close\r\n")])
async def test_nothing_is_processed_behind_a_response_that_ends_the_connection(stored, ending):
    """RFC 9112 §9.6."""
    client = stored()
    keep = ending.replace(b"1.0\r\n", b"1.0\r\nConnection: keep-alive\r\n")
    await client.feed(keep + get(b"/unknown") + get(b"/unknown2"))
    assert len(client.answers()) == len(client.door.outcomes) == 1
    assert client.door.origin.asked == []


async def test_shutdown_closes_a_connection_that_had_a_hit(stored):
    client = stored()
    await client.feed(get())
    client.protocol.shutdown()
    assert not client.open


async def test_hits_behind_a_miss_wait_for_their_turn(stored):
    client = stored()
    await client.feed(get(b"/held") + get() + get())
    assert client.answers() == []
    client.door.origin.let()
    assert [answer.body for answer in client.answers()] == [b"held", b"0123456789", b"0123456789"]
    await client.feed(get())
    assert len(client.answers()) == 4


# A client that does not read


async def test_no_more_is_answered_than_the_client_takes(stored):
    """Each of these requests is answered within the call: only the client's pace bounds what is queued."""
    client = stored()
    write, queued = client.transport.write, []

    def slow(data):
        write(data)
        if not queued:
            client.protocol.pause_writing()
        queued.append(len(data))

    client.transport.write = slow
    client.protocol.data_received(get(b"/large") * 200)
    assert sum(queued) < 20_000
    assert client.transport.paused
    seen = len(queued)
    queued.clear()
    client.protocol.resume_writing()  # and the next answer is too much again
    assert 0 < len(queued) <= seen + 1
    client.transport.write = write
    client.protocol.resume_writing()
    await client.settle()
    assert [len(answer.body) for answer in client.answers()] == [9000] * 200
    assert not client.transport.paused


async def test_a_client_that_does_not_read_gets_no_glance(stored):
    client = stored()
    client.protocol.pause_writing()
    assert await client.feed(get(), get()) == b""
    client.protocol.resume_writing()
    assert len(client.answers()) == 2


async def test_a_client_that_leaves_while_its_next_request_waits(stored):
    client = stored()
    client.protocol.pause_writing()
    await client.feed(get(b"/unknown"), get())
    client.hang_up()
    assert (client.door.origin.asked, client.clock.pending()) == ([], [])


async def test_a_large_hit_is_sent_as_the_client_takes_it(stored):
    client = stored()
    write = client.transport.write

    def slow(data):
        write(data)
        client.protocol.pause_writing()

    client.transport.write = slow
    client.protocol.data_received(get(b"/big"))
    assert len(client.transport.sent) < 300_000
    client.protocol.resume_writing()
    assert [len(answer.body) for answer in client.answers()] == [307_200]


# Bounds


@pytest.mark.parametrize(
    ("limits", "data", "status"),
    [
        (ReadLimits(max_target=6), get(), 200),
        (ReadLimits(max_target=5), get(), 414),
        (ReadLimits(max_fields=2), get(fields=b"X: y\r\n"), 200),
        (ReadLimits(max_fields=1), get(fields=b"X: y\r\n"), 431),
        (ReadLimits(max_field_bytes=len(HOST) + 6), get(fields=b"X: y\r\n"), 200),
        (ReadLimits(max_field_bytes=len(HOST) + 5), get(fields=b"X: y\r\n"), 431),
        (ReadLimits(max_field_bytes=len(HOST) + 5), get(fields=b"X:y\r\n"), 431),
        (
            ReadLimits(max_field_bytes=0, max_target=0, max_fields=0),
            get(fields=b"X: " + b"y" * PIECE + b"\r\n"),
            200,
        ),
    ],
)
async def test_limits_hold_for_what_is_stored(stored, limits, data, status):
    client = stored(limits=limits)
    await client.feed(data)
    assert [answer.status for answer in client.answers()] == [status]


class Broken(Watched):
    """A service with a mistake."""

    def respond(self, turn):
        raise ZeroDivisionError


async def test_a_fault_of_ours_is_not_put_on_the_client(stored, caplog):
    client = stored()
    await client.feed(get())
    client.protocol.listener.service = Broken(client.protocol.listener.service)
    await client.feed(get(b"/unknown"))
    fresh, fault = client.answers()
    assert (fresh.status, fault.status, fault.problem["reason"]) == (200, 500, "internal-error")
    assert not client.open
    assert caplog.records[-1].exc_info[0] is ZeroDivisionError


# A reader that was given half of something is not used again


@pytest.mark.parametrize(
    "odd",
    [
        b"POST /held HTTP/1.1\r\n" + HOST + b"Content-Length: 200\r\n\r\n",
        b"GET /held HTTP/1.1\r\n" + HOST + b"Content-Length: 200\r\n\r\n",
        b"GET /held HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_what_stands_in_content_is_no_request(stored, odd):
    client = stored()
    await client.feed(get(), odd, get(), get())
    assert [answer.body for answer in client.answers()][:1] == [b"0123456789"]
    assert len([outcome for outcome in client.door.outcomes if outcome.handling.hit]) == 1


async def test_unkeepable_content_is_a_fault_and_no_silence(door, monkeypatch, caplog):
    def write(self, chunk):
        raise MemoryError(chunk)

    monkeypatch.setattr(Asked, "write", write)
    client = door(RUNTIMES["plain"], direct=True).client()
    await client.feed(b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    await client.feed(b"1\r\na\r\n")
    (answer,) = client.answers(b"POST")
    assert answer.status == 500
    assert not client.open
    assert "internal error while answering a request" in caplog.text


async def test_requests_waiting_for_others_outlast_the_keep_alive_time(connect, recorder):
    client = connect(recorder, direct=True)
    client.protocol.data_received((b"PURGE /a HTTP/1.1\r\n" + HOST + b"\r\n") * 400)
    client.clock.pass_time(6)
    assert client.open
    for _ in range(10):
        await client.settle()
    assert [answer.status for answer in client.answers()] == [403] * 400


@pytest.mark.parametrize(
    ("chunk", "octets"),
    [
        (b"1\r\n\n\r\n2\r\n\r\n\r\n", 3),
        (b"1;a\r\n\n\r\n", 1),
        (b"40;a\r\n" + b"\n" * 64 + b"\r\n", 64),
    ],
)
async def test_one_connections_content_lets_others_have_their_turn(stored, chunk, octets):
    client = stored()
    head = b"POST /unknown HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    client.protocol.data_received(head + chunk * 20_000)
    (turn,) = client.protocol.turns
    assert 0 < turn.content.octets < 20_000 * octets / 10
