"""One connection, by plain calls: no event loop, no octet on a wire."""

import sys

import pytest

from benchmarks.calls import only_assigns
from examples import cases
from support import Turns, living
from tests.origin.conftest import Told
from univocal.origin.connection import Closed, Connection, Idle, Requested
from univocal.origin.failures import ClosedError, ReadTimeoutError, StaleConnectionError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


def test_a_response_of_one_segment(connection, wire, keeper, clock, answer, send):
    request = send()
    assert wire.sent == b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
    assert (type(connection.state), request.connection) == (Requested, connection)
    connection.data_received(OK + b"hello")
    assert answer.calls == [("start", 200, [(b"content-length", b"5")]), ("write", b"hello"), ("finish",)]
    assert (type(connection.state), request.connection) == (Idle, None)
    assert keeper.calls == ["answered", "put back"]
    assert clock.armed == 2  # for the response, and nearer for being idle


@cases(
    "told, seconds",
    (b"", 4),
    (b"Keep-Alive: max=100\r\n", 4),
    (b"Keep-Alive: xtimeout=9\r\n", 4),
    (b"Keep-Alive: timeout=2\r\n", 1),
    (b"Keep-Alive: max=100, Timeout = 31\r\n", 30),
    (b"Keep-Alive: timeout=99999\r\n", 300),
    (b"Keep-Alive: timeout=1\r\n", 0.5),
    (b"Keep-Alive: timeout=0\r\n", None),
)
def test_the_time_that_an_origin_server_grants_is_believed(connection, clock, send, told, seconds):
    for _ in range(4):  # the head is remembered in the end
        if seconds is None and connection.closed:
            break
        send()
        connection.data_received(OK[:-2] + told + b"\r\nhello")
        if seconds is None:
            assert connection.closed
        else:
            assert (type(connection.state), connection.timer.when - clock.time()) == (Idle, seconds)


def test_a_request_costs_no_timer_of_its_own(connection, clock, send, answer):
    for _ in range(100):
        send()
        connection.data_received(OK + b"hello")
    assert clock.armed == 2
    assert answer.names == ["start", "write", "finish"] * 100


def test_an_answer_that_takes_nothing_pauses_the_reading(connection, wire, answer, send):
    request = send()
    answer.takes = False
    connection.data_received(OK + b"he")
    assert wire.paused
    request.resume()
    assert not wire.paused
    request.resume()
    request.pause()
    request.pause()
    assert wire.paused
    connection.data_received(b"llo")  # TLS may have had it
    assert not wire.paused  # for the next
    assert answer.content == b"hello"
    assert answer.names[-1] == "finish"


def test_a_request_may_be_paused_before_it_is_sent(connection, wire, pending, answer):
    request = pending(answer)
    request.pause()
    connection.send(request)
    assert wire.paused
    request.resume()
    assert not wire.paused


def test_a_finished_request_does_not_touch_the_next_one(connection, wire, answer, send):
    first = send()
    connection.data_received(OK + b"hello")
    send()
    first.pause()
    first.cancel()
    assert not wire.paused
    assert not wire.closed
    connection.data_received(OK + b"again")
    assert answer.content == b"helloagain"


def test_a_cancelled_request_closes_the_connection_and_tells_nobody(connection, wire, answer, send):
    request = send()
    connection.data_received(OK + b"he")
    request.cancel()
    assert wire.closed
    assert isinstance(connection.state, Closed)
    connection.data_received(b"llo")
    connection.connection_lost(None)
    assert answer.names == ["start", "write"]


@pytest.mark.parametrize("where", ["start", "write"])
def test_an_answer_that_cancels_while_told_hears_no_more(connection, wire, answer, send, where, monkeypatch):
    told = getattr(answer, where)
    monkeypatch.setattr(answer, where, lambda part: (told(part), request.cancel())[0])
    request = send()
    connection.data_received(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
    )
    assert answer.names == ["start", "write"][: 1 + (where == "write")]
    assert wire.closed


def test_an_answers_own_error_ends_the_exchange(connection, wire, answer, send, monkeypatch):
    def start(response):
        raise LookupError(response.status)

    monkeypatch.setattr(answer, "start", start)
    send()
    connection.data_received(OK + b"hello")
    assert answer.calls == [("fail", LookupError)]
    assert wire.closed


# Time


def test_the_read_timeout_rests_while_content_is_not_taken(connection, clock, answer, send):
    request = send()
    answer.takes = False
    connection.data_received(OK + b"x")
    clock.pass_to(1000)
    assert "fail" not in answer.names
    request.resume()
    clock.pass_to(1009)
    assert "fail" not in answer.names
    clock.pass_to(1010)
    assert answer.calls[-1] == ("fail", ReadTimeoutError)


def test_an_idle_connection_grows_old(connection, clock, wire, send):
    send()
    connection.data_received(OK + b"hello")
    clock.pass_to(3.9)
    assert not wire.closed
    clock.pass_to(4)
    assert wire.closed


# Ends


def test_a_connection_dead_while_idle_frees_the_request(connection, keeper, answer, send):
    send()
    connection.data_received(OK + b"hello")
    request = send()
    connection.eof_received()
    assert keeper.repeated == [request]
    assert answer.names == ["start", "write", "finish"]


@cases(
    "how, first, received, error",
    ({"method": b"POST"}, True, b"", StaleConnectionError),  # not idempotent
    ({}, True, b"H", ClosedError),  # an octet came
    ({}, False, b"", ClosedError),  # the first request
)
def test_unsafe_answered_and_first_requests_are_not_repeated(
    connection, keeper, answer, send, how, first, received, error
):
    if first:
        send()
        connection.data_received(OK + b"hello")
        answer.calls.clear()
    send(**how)
    if received:
        connection.data_received(received)
    connection.eof_received()
    assert keeper.repeated == []
    assert answer.calls == [("fail", error)]


def test_a_repeated_request_is_not_repeated_again(connection, keeper, answer, send, pending):
    send()
    connection.data_received(OK + b"hello")
    request = pending(answer)
    request.repeated = True
    connection.send(request)
    connection.connection_lost(ConnectionResetError())
    assert keeper.repeated == []
    assert answer.calls[-1] == ("fail", StaleConnectionError)


@cases(
    "cause, said",
    (None, "the connection to the origin was lost"),
    (ConnectionResetError("reset by peer"), "the connection to the origin was lost: reset by peer"),
)
def test_a_lost_connection_is_logged_with_its_cause(connection, answer, send, monkeypatch, cause, said):
    told = []
    monkeypatch.setattr(answer, "fail", told.append)
    send()
    connection.connection_lost(cause)
    assert [str(error) for error in told] == [said]


def test_content_that_ends_with_the_connection(connection, wire, answer, send):
    send()
    connection.data_received(b"HTTP/1.1 200 OK\r\n\r\nhello")
    connection.eof_received()
    assert answer.names == ["start", "write", "finish"]
    assert wire.closed


def test_a_connection_that_closed_at_once_answers_nothing(connection, pending, answer):
    connection.close()
    connection.send(pending(answer))
    assert answer.calls == [("fail", ClosedError)]


# Bytes behind a response


@pytest.mark.parametrize("method", [b"HEAD", b"GET"])
def test_bytes_behind_a_response_close_the_connection(connection, wire, send, answer, method):
    send(method=method)
    connection.data_received(OK if method == b"HEAD" else OK + b"hello")
    answer.calls.clear()
    connection.data_received(OK + b"evil!")
    assert wire.closed
    assert answer.calls == []


@pytest.fixture
def send_soon(keeper, wire, pending, answer):
    """Make a connection with a request whose head waits for the end of the turn."""

    def send_soon(**how):
        loop = Turns()
        connection = Connection(loop, keeper, 1000)
        connection.connection_made(wire)
        connection.send(pending(answer, **how))
        return loop, connection

    return send_soon


@pytest.fixture
def unsent(send_soon):
    return send_soon()


def test_bytes_before_the_request_do_not_answer_it(unsent, wire, keeper, answer):
    loop, connection = unsent
    connection.data_received(OK + b"evil!")
    loop.end_turn()
    assert (answer.calls, wire.sent, wire.closed) == ([], b"", True)
    assert len(keeper.repeated) == 1


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.eof_received(),
        lambda connection: connection.connection_lost(ConnectionResetError()),
    ],
    ids=["it closes", "it resets"],
)
def test_a_request_that_was_not_sent_is_sent_once_more(send_soon, wire, keeper, answer, method, end):
    """RFC 9110 §9.2.2: of which nothing was sent, it has done nothing."""
    loop, connection = send_soon(method=method)
    end(connection)
    loop.end_turn()
    assert (answer.calls, wire.sent) == ([], b"")
    (request,) = keeper.repeated
    assert request.repeated


@pytest.mark.pure("Python's calls are counted")
@pytest.mark.usefixtures("no_collector")
def test_a_response_takes_at_most_17_calls(connection, answer, send, pending):
    """A guard without a clock: every call is time that each miss costs."""
    send()
    connection.data_received(OK + b"hello")
    request, calls = pending(answer), []
    response = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\nC: d\r\nE: f\r\nG: h\r\nI: j\r\n\r\nhello"
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code) if event == "call" else None)
    connection.send(request)
    connection.data_received(response)
    sys.setprofile(None)
    others = ("on_header", "start", "write", "finish", "put_back", "call_soon", "_run")
    names = [code.co_name for code in calls if not only_assigns(code)]
    ours = [name for name in names if name not in others]  # a turn of the loop has one of the last two
    assert names.count("on_header") == 6
    assert len(ours) <= 17, ours


@pytest.mark.usefixtures("all_frozen", "no_collector")
@cases("octets", b"", OK + b"hello", OK + b"hel", b"HTTP/1.1 304 Not Modified\r\n\r\n", b"?")
def test_a_lost_connection_leaves_the_collector_nothing(octets, clock, keeper, wire, pending):
    kinds = Connection, Told
    others = living(*kinds)
    connection, answer = Connection(clock, keeper, 1000), Told()
    connection.connection_made(wire)
    request = pending(answer)
    connection.send(request)
    assert len(living(*kinds)) == len(others) + 2
    if octets:
        connection.data_received(octets)
    connection.connection_lost(None)
    keeper.repeated.clear()
    del connection, answer, request
    assert [each for each in living(*kinds) if each not in others] == []


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.usefixtures("all_frozen", "no_collector")
@cases("octets", OK + b"hello", CHUNKED + b"5\r\nhello\r\n0\r\n\r\n")
def test_an_idle_connection_keeps_no_answer_alive(octets, connection, pending):
    others, answer = living(Told), Told()
    connection.send(pending(answer))
    connection.data_received(octets)
    assert type(connection.state) is Idle
    assert answer.names == ["start", "write", "finish"]
    del answer
    assert [each for each in living(Told) if each not in others] == []


@pytest.mark.parametrize("rest", [b"0\r\n\r\n", b"400\r\n" + b"b" * 1024 + b"\r\n0\r\n\r\n"])
def test_unkeepable_content_is_not_reported_as_whole(connection, send, answer, rest):
    def write(chunk):
        raise MemoryError(chunk)

    answer.write = write
    send()
    connection.data_received(CHUNKED + b"5\r\nhello\r\n" + rest)
    assert answer.calls[1:] == [("fail", MemoryError)]


@pytest.mark.pure("counts Python calls")
@pytest.mark.usefixtures("no_collector")  # which would call finalizers, and Hypothesis
@pytest.mark.parametrize("chunk", [b"1\r\nx\r\n", b"1;a=b\r\nx\r\n", b"4\r\n\r\n\r\n\r\n"])
def test_a_thousand_chunks_take_no_more_calls_than_one(connection, answer, send, chunk):
    send()
    connection.data_received(CHUNKED + chunk)
    counts = []
    for number in (1, 1000):
        calls, octets = [], chunk * number
        sys.setprofile(lambda frame, event, _, calls=calls: event == "call" and calls.append(frame))
        connection.data_received(octets)
        sys.setprofile(None)
        counts.append(len(calls))
    assert counts[0] == counts[1]
    assert answer.content.count(chunk[-3:-2]) >= 1001
