"""Connections end: at shutdown, at a reload, when idle, when a client stands still."""

import pytest

from http2_client import (
    ACK,
    CANCEL,
    GOAWAY,
    INITIAL_WINDOW_SIZE,
    INTERNAL_ERROR,
    NO_ERROR,
    PING,
    POST,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    data,
    frame,
    headers,
    settings,
    window_update,
)
from neighbours import OWN_ANSWERS, configured
from tests.pages import Page
from univocal.server.clients import Clients, ConnectionLimits, ReadLimits
from univocal.server.http2.frames import ErrorCode
from univocal.server.http2.session import STREAM_MOVES, Session, SessionState, StreamState

LARGEST = 2**31 - 1
LIMITS = ReadLimits(header_timeout=15, content_timeout=60, send_timeout=60)


def farewell(client):
    """The acknowledgement of the PING that comes with the first GOAWAY."""
    (ping,) = [each for each in client.frames if each.kind == PING and not each.flags]
    return frame(PING, ACK, 0, ping.payload)


async def test_shutdown_closes_an_idle_connection(client):
    await client.ask(1)
    client.connection.shutdown()
    await client.settle()
    assert client.goodbyes[-1] == (1, NO_ERROR)
    assert client.transport.closed


async def test_shutdown_lets_streams_finish(connect):
    client = connect(holds=True)
    await client.send(headers(1), headers(3, POST, ends=False))
    client.connection.shutdown()
    await client.settle()
    assert client.goodbyes == []  # some clients take one for the end of all streams
    await client.send(headers(5))  # it goes on
    assert client.goodbyes == [(LARGEST, NO_ERROR)]
    await client.send(farewell(client))
    assert client.goodbyes[-1] == (5, NO_ERROR)
    await client.send(headers(7))  # it was not
    assert client.resets(7) == [REFUSED_STREAM]
    await client.send(data(3, b"content", ends=True))
    assert not client.transport.closed
    for asked in client.server.origin.asked:
        asked.answer()
    await client.settle()
    assert [client.response(number)[::2] for number in (1, 3, 5)] == [(200, b"answer")] * 3
    assert client.server.origin.asked[1].content == b"content"
    assert client.transport.closed
    assert not client.transport.aborted


async def test_the_last_stream_that_is_answered_never_rises(connect):
    """RFC 9113 §6.8: a request that was refused may be sent again, whatever error comes later."""
    client = connect(holds=True)
    await client.send(headers(1))
    client.connection.shutdown()
    await client.send(headers(3))
    await client.send(farewell(client))
    await client.send(headers(5), headers(7, POST, ends=False))
    assert [client.resets(number) for number in (5, 7)] == [[REFUSED_STREAM]] * 2
    await client.send(window_update(0))
    assert client.goodbyes == [(LARGEST, NO_ERROR), (3, NO_ERROR), (3, PROTOCOL_ERROR)]


async def test_a_reload_drains_a_connection_at_its_next_request(client):
    """The connection's older limits, which the client has been sent, no longer hold."""
    await client.ask(1)
    client.server.listener.bounds.limits = ReadLimits(max_fields=50)
    client.server.origin.holds = True
    await client.send(headers(3))
    assert client.goodbyes == []
    client.server.origin.asked[-1].answer()
    await client.settle()
    assert client.response(3)[::2] == (200, b"answer")
    assert (client.goodbyes, client.transport.closed) == ([(3, NO_ERROR)], True)


async def test_a_client_that_goes_away_gets_its_answers(connect):
    client = connect(holds=True)
    await client.send(headers(1), frame(GOAWAY, 0, 0, bytes(8)))
    assert not client.transport.closed
    client.server.origin.asked[0].answer()
    await client.settle()
    assert client.response(1)[::2] == (200, b"answer")
    assert client.transport.closed


@pytest.mark.parametrize("octets", [headers(3, flags=0), headers(3)[:20], headers(3, flags=0) + b"\0"])
async def test_fields_that_do_not_end_have_their_time(connect, octets):
    client = connect(limits=LIMITS, holds=True)
    await client.send(headers(1), octets)
    for _ in range(2):
        client.clock.pass_time(7)
        await client.send(b"")
    assert not client.transport.closed
    client.clock.pass_time(1.1)
    await client.settle()
    assert client.transport.closed
    assert client.server.refusals[-1][1] == ("request-timeout",)
    assert client.server.origin.asked[0].is_cancelled


async def test_content_that_does_not_come_ends_its_stream_alone(connect):
    client = connect(limits=LIMITS, holds=True)
    gate = client.server.engine.gate
    gate.runtime = configured(gate.runtime, **OWN_ANSWERS)
    await client.send(headers(1, [*POST, (b"accept", b"text/html")], ends=False), headers(3))
    client.clock.pass_time(121)
    await client.settle()
    assert (client.head(1)[0], client.content(1)) == (408, b"own page")
    assert client.resets(1) == [NO_ERROR]
    assert client.server.outcomes[-1].reasons == ("request-timeout",)
    client.server.origin.asked[-1].answer()
    await client.settle()
    assert client.head(3)[0] == 200


async def test_content_that_keeps_its_pace_has_all_the_time(connect):
    client = connect(limits=LIMITS)
    await client.send(headers(1, POST, ends=False))
    for _ in range(10):
        client.clock.pass_time(59)
        await client.send(data(1, bytes(6_000)))
    await client.send(data(1, b"", ends=True))
    assert client.head(1)[0] == 200


async def test_content_that_the_origin_server_holds_has_time(connect):
    client = connect(limits=LIMITS, is_greedy=False)
    await client.send(headers(1, POST, ends=False), data(1, bytes(16_000)), data(1, bytes(16_000)))
    client.clock.pass_time(1000)
    await client.settle()
    assert client.resets(1) == []
    client.server.origin.is_greedy = True
    client.server.origin.asked[0].take_more()
    await client.send(data(1, b"", ends=True))
    assert client.head(1)[0] == 200


async def test_a_stream_whose_window_stays_closed_is_given_up_alone(connect):
    client = connect(limits=LIMITS, page=Page(content=bytes(100_000)))
    client.server.origin.pages[b"/small"] = Page()
    await client.send(headers(1))
    for _ in range(5):
        client.clock.pass_time(50)
        await client.send(window_update(1, 1), window_update(1))
    assert client.resets(1) == []
    client.clock.pass_time(121)
    await client.send(window_update(1000))
    assert client.resets(1) == [CANCEL]
    assert (await client.ask(3, path=b"/small"))[0] == 200
    assert client.server.outcomes[0].reasons == ("request-timeout",)


async def test_a_client_that_takes_nothing_is_given_up(connect):
    client = connect(limits=LIMITS, page=Page(content=bytes(1_000_000)))
    client.transport.reads = False
    await client.send(settings((INITIAL_WINDOW_SIZE, 10_000_000)), window_update(10_000_000), headers(1))
    assert client.transport.paused
    client.clock.pass_time(121)
    assert client.transport.aborted
    client.connection.connection_lost(None)
    assert client.server.origin.asked[0].is_cancelled


async def test_an_open_connection_has_the_time_of_a_reload(connect):
    client = connect(limits=LIMITS, page=Page(content=bytes(1_000_000)))
    client.server.listener.bounds.limits = ReadLimits(send_timeout=10)
    client.transport.reads = False
    await client.send(settings((INITIAL_WINDOW_SIZE, 10_000_000)), window_update(10_000_000), headers(1))
    client.clock.pass_time(21)
    assert client.transport.aborted


async def test_a_slow_reader_gets_everything(connect):
    client = connect(limits=LIMITS, page=Page(content=bytes(1_000_000)))
    await client.send(settings((INITIAL_WINDOW_SIZE, 10_000_000)), window_update(10_000_000))
    client.transport.reads = False
    await client.send(headers(1))
    for _ in range(100):
        client.clock.pass_time(50)
        client.transport.read_again()
        client.transport.reads = False
        await client.settle()
    assert len(client.content(1)) == 1_000_000
    assert client.has_ended(1)


# A client among others


async def test_an_idle_connection_gives_way(connect, serve):
    server = serve(clients=Clients(ConnectionLimits(connections=1)))
    first = connect(server)
    await first.ask(1)
    first.connection.rested, server.clock.now = server.clock.now, server.clock.now + 1
    second = connect(server)
    await first.settle()
    assert (first.transport.closed, first.goodbyes) == (True, [(1, NO_ERROR)])
    assert not second.transport.closed
    assert len(server.clients) == 1


async def test_a_connection_too_many_is_answered_and_closed(connect, serve):
    server = serve(clients=Clients(ConnectionLimits(per_client=1)))
    _, second = connect(server), connect(server)
    status, _, content = await second.ask(1)
    assert (status, b'"too-many-requests"' in content) == (429, True)
    assert (second.transport.closed, second.goodbyes) == (True, [(1, NO_ERROR)])


async def test_a_fault_of_ours_is_an_answer_without_a_traceback(client, caplog):

    class Faulty:
        clock, dates, at_a_glance = staticmethod(lambda: 0.0), True, None

        def respond(self, _):
            raise ZeroDivisionError

    service, client.server.listener.service = client.server.listener.service, Faulty()
    status, fields, content = await client.ask(1)
    assert (status, fields[b"content-type"]) == (500, b"application/problem+json")
    assert b"ZeroDivisionError" not in content
    assert "internal error while answering a request" in caplog.text
    client.server.listener.service = service
    assert (await client.ask(3))[0] == 200


async def test_a_fault_within_frames_ends_the_connection(client, caplog):
    client.server.listener.service = None
    await client.send(headers(1))
    assert client.error == INTERNAL_ERROR
    assert "internal error on an HTTP/2 connection" in caplog.text


def test_each_state_of_a_stream_has_an_end():
    assert {state for state, _ in STREAM_MOVES} == {StreamState.OPEN, StreamState.REMOTE, StreamState.LOCAL}
    for state, cause in STREAM_MOVES:
        assert STREAM_MOVES[state, cause] > state


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_error_ends_a_session_that_is_left(is_asked):
    session = Session(0, 1000)
    session.leave()
    if is_asked:
        session.ask_to_leave()
    session.fail(ErrorCode.PROTOCOL_ERROR)
    assert session.state is SessionState.ENDED
