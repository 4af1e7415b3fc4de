"""Requests that are answered on the connection itself, at a glance or by a turn: order, bounds, deadlines."""

import pytest

from examples import cases
from neighbours import OWN_ANSWERS, Watched, configured, everywhere
from tests.pages import Asked
from tests.server.conftest import RUNTIMES

HOST = b"Host: a.example\r\n"


def get(target=b"/fresh", fields=b"", version=b"HTTP/1.1", host=HOST):
    return b"GET " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


@pytest.fixture
async def client(door):
    """The client's end of a connection behind which /fresh, /large and /big are stored."""
    made = door(everywhere(), direct=True)
    await made.warm([get(target) for target in (b"/fresh", b"/large", b"/big")])
    return made.client()


def watched(client):
    """The turns that a client's requests have from now on."""
    listener = client.protocol.listener
    listener.service = service = Watched(listener.service)
    return service.turns


async def test_a_hit_needs_no_turn_and_no_timer(client):
    turns = watched(client)
    before = client.clock.armed
    for _ in range(3):
        await client.feed(get())
    assert turns == []
    assert [answer.body for answer in client.answers()] == [b"0123456789"] * 3
    assert client.clock.armed == before + 1  # keep-alive
    await client.feed(get(b"/unknown"))
    assert len(turns) == 1


@cases("target, size", (b"/fresh", 10), (b"/large", 9000), (b"/big", 307200))
async def test_content_of_every_size(client, target, size):
    await client.feed(get(target), get(b"/fresh"))
    assert [len(answer.body) for answer in client.answers()] == [size, 10]


# Bounds


class Broken(Watched):
    """A service with a mistake."""

    def respond(self, turn):
        raise ZeroDivisionError


async def test_a_fault_of_ours_is_not_put_on_the_client(client, caplog):
    await client.feed(get())
    client.protocol.listener.service = Broken(client.protocol.listener.service)
    await client.feed(get(b"/unknown"))
    fresh, fault = client.answers()
    assert (fresh.status, fault.status, fault.problem["reason"]) == (200, 500, "internal-error")
    assert not client.open
    assert caplog.records[-1].exc_info[0] is ZeroDivisionError


# A reader that was given half of something is not used again


@cases("error, status", (ZeroDivisionError, 500), (MemoryError, 503))
async def test_unkeepable_content_is_a_fault_and_no_silence(door, monkeypatch, caplog, error, status):
    def write(self, chunk):
        raise error

    monkeypatch.setattr(Asked, "write", write)
    client = door(RUNTIMES["plain"], direct=True).client()
    await client.feed(b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    await client.feed(b"1\r\na\r\n")
    (answer,) = client.answers(b"POST")
    assert answer.status == status
    assert not client.open
    assert ("internal error while answering a request" in caplog.text) is (status == 500)


@pytest.mark.parametrize("before", [b"", get(b"/held")])
@cases("chunk, status", (b"zz\r\n", 400), (b"", 408))
async def test_faulty_content_gets_the_operators_page(door, before, chunk, status):
    """At its turn, behind the requests `before`; the log has it."""
    made = door(configured(everywhere(), **OWN_ANSWERS), direct=True)
    made.origin.holds = True
    client = made.client()
    head = b"POST /a HTTP/1.1\r\n" + HOST + b"Accept: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    await client.feed(before + head + chunk)
    if before:
        made.origin.asked[0].answer()
        await client.settle()
    client.clock.pass_time(130)
    answer = client.answers(*[b"GET"] * bool(before), b"POST")[-1]
    assert (answer.status, answer.body, answer.field(b"x-own")) == (status, b"own page", b"1")
    assert (made.outcomes[-1].status, made.outcomes[-1].received.target) == (status, b"/a")
    assert not client.open


async def test_requests_waiting_for_others_outlast_the_keep_alive_time(connect, recorder):
    client = connect(recorder, direct=True)
    client.protocol.data_received((b"PURGE /a HTTP/1.1\r\n" + HOST + b"\r\n") * 400)
    client.clock.pass_time(6)
    assert client.open
    for _ in range(10):
        await client.settle()
    assert [answer.status for answer in client.answers()] == [403] * 400


@cases(
    "chunk, octets",
    (b"1\r\n\n\r\n2\r\n\r\n\r\n", 3),
    (b"1;a\r\n\n\r\n", 1),
    (b"40;a\r\n" + b"\n" * 64 + b"\r\n", 64),
)
async def test_one_connections_content_lets_others_have_their_turn(client, chunk, octets):
    head = b"POST /unknown HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    client.protocol.data_received(head + chunk * 20_000)
    (turn,) = client.protocol.turns
    assert 0 < turn.content.octets < 20_000 * octets / 10
