"""A request's content on its way, by plain calls: framing, pace, Expect, and what ends it."""

import pytest

from examples import cases
from univocal.origin.connection import Idle
from univocal.origin.failures import InvalidRequestError, ReadTimeoutError, WriteError, WriteTimeoutError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
CHUNKED = (b"transfer-encoding", b"chunked")
FIVE = (b"content-length", b"5")
BEGUN = ["begin", "resume"]  # the calls of a source whose content is taken from now on
EXPECTS = (b"expect", b"100-continue")


@cases(
    "field, chunks, framed",
    (FIVE, [b"he", b"", b"llo"], b"hello"),
    (CHUNKED, [b"he", b"", b"llo"], b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
)
def test_content_is_framed_as_the_fields_say(connection, wire, content, send, field, chunks, framed):
    send(method=b"PUT", fields=[field], content=content)
    wire.sent = b""
    assert all(content.write(chunk) for chunk in chunks)
    content.finish()
    assert wire.sent == framed
    connection.data_received(OK + b"hello")
    assert content.calls == BEGUN
    assert isinstance(connection.state, Idle)


@cases("chunks, ends", ([b"hel"], True), ([b"hello!"], False), ([], True), ([b"hello", b"!"], False))
def test_content_that_is_not_as_long_as_it_says(wire, content, answer, send, chunks, ends):
    send(method=b"PUT", fields=[FIVE], content=content)
    for chunk in chunks:
        content.write(chunk)
    if ends:
        content.finish()
    assert answer.calls == [("fail", InvalidRequestError)]
    assert wire.closed


def test_content_that_is_announced_and_missing(wire, answer, send):
    send(method=b"PUT", fields=[FIVE])
    assert answer.calls == [("fail", InvalidRequestError)]
    assert wire.closed


def test_an_origin_that_takes_no_more_holds_the_content_back(connection, clock, content, answer, send):
    send(method=b"PUT", fields=[CHUNKED], content=content)
    clock.pass_to(100)  # the client is slow, not the origin
    connection.pause_writing()
    assert not content.write(b"x")
    clock.pass_to(119)
    connection.resume_writing()
    assert content.calls == [*BEGUN, "resume"]
    clock.pass_to(200)
    assert answer.calls == []
    connection.pause_writing()
    assert not content.write(b"x")
    clock.pass_to(220)
    assert answer.calls == [("fail", WriteTimeoutError)]
    assert content.calls == [*BEGUN, "resume", "detach"]


@pytest.mark.parametrize("field", [FIVE, CHUNKED])
def test_the_response_is_due_when_the_origin_has_taken_all(connection, clock, content, answer, send, field):
    send(method=b"PUT", fields=[field], content=content)
    connection.pause_writing()
    content.write(b"hello")
    content.finish()
    clock.pass_to(19)
    connection.resume_writing()
    assert content.calls == BEGUN
    clock.pass_to(28)
    assert answer.calls == []
    clock.pass_to(29)
    assert answer.calls == [("fail", ReadTimeoutError)]


def test_expect_waits_for_100_and_keeps_it(connection, content, answer, send):
    send(method=b"PUT", fields=[FIVE, EXPECTS], content=content)
    assert content.calls == []
    connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert content.calls == BEGUN
    assert answer.calls == []


def test_expect_does_not_wait_for_ever(clock, content, send):
    send(method=b"PUT", fields=[FIVE, EXPECTS], content=content)
    clock.pass_to(0.9)
    assert content.calls == []
    clock.pass_to(1)
    assert content.calls == BEGUN


def test_expect_does_not_wait_for_a_client_that_does_not(clock, content, send):
    send(method=b"PUT", fields=[FIVE, EXPECTS], content=content)
    content.write(b"x")
    assert content.calls == BEGUN
    assert not content.is_awaited
    clock.pass_to(9)
    assert content.calls == BEGUN


@pytest.mark.parametrize("method", [b"PUT", b"POST"])
@pytest.mark.parametrize("asked", [False, True])
def test_content_that_waited_for_100_is_of_use_to_another(
    connection, wire, content, answer, send, method, asked
):
    request = send(method=method, fields=[FIVE, EXPECTS], content=content)
    if asked:
        connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n")
    wire.far.close()
    connection.connection_lost(ConnectionResetError())
    assert answer.calls == [("fail", WriteError)]
    assert (request.took, content.calls) == (asked, [*BEGUN, "detach"] if asked else [])
    assert not content.is_awaited


@cases("method, field, repeated",
    (b"PUT", [FIVE, EXPECTS], True), (b"PUT", [FIVE], False), (b"POST", [FIVE, EXPECTS], False),
)  # fmt: skip
def test_a_dead_kept_connection_is_replaced_before_content(
    connection, keeper, wire, content, send, method, field, repeated
):
    send()
    connection.data_received(OK + b"hello")
    request = send(method=method, fields=field, content=content)
    wire.far.close()
    connection.connection_lost(ConnectionResetError())
    assert (keeper.repeated == [request]) == repeated
    assert ("detach" in content.calls) == (EXPECTS not in field)


def test_a_final_response_leaves_the_content_unsent(connection, wire, content, answer, send):
    send(method=b"PUT", fields=[FIVE, EXPECTS], content=content)
    connection.data_received(OK)
    assert content.calls == ["detach"]
    connection.data_received(b"hello")
    assert wire.closed  # the origin might take what comes next for the content
    assert answer.names[-1] == "finish"


def test_an_early_response_ends_the_upload(connection, wire, content, answer, send):
    send(method=b"PUT", fields=[FIVE], content=content)
    content.write(b"he")
    connection.data_received(OK + b"sorry")
    assert (answer.names[-1], content.calls) == ("finish", [*BEGUN, "detach"])
    assert wire.closed
    sent = wire.sent
    assert content.write(b"llo")
    content.finish()
    assert wire.sent == sent
