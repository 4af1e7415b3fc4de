"""A connection over time: order, bounds, deadlines, and its end."""

import asyncio
import pickle
from typing import ClassVar

import pytest
import uvicorn

from examples import cases
from tests.asgi.conftest import respond
from univocal.server.asgi_service import ExactProtocol
from univocal.server.clients import ITERATION_SHARE, LINGER, LINGER_BYTES, ReadLimits
from univocal.server.http1.connection import EARLY_BYTES, HalfClosed, Refusing

HOST = b"Host: a.example\r\n"


def get(target=b"/", fields=b""):
    return b"GET " + target + b" HTTP/1.1\r\n" + HOST + fields + b"\r\n"


class Gate:
    """An application that answers 200 with the target when it is let, in the order of arrival or not."""

    def __init__(self):
        self.begun, self.open = [], {}

    async def __call__(self, scope, receive, send):
        target = scope["extensions"]["univocal.target"]["target"]
        self.begun.append(target)
        await self.open.setdefault(target, asyncio.Event()).wait()
        await respond(send, target, [(b"content-length", b"%d" % len(target))])

    def let(self, target):
        self.open.setdefault(target, asyncio.Event()).set()


@pytest.fixture
def gate():
    return Gate()


# Pipelining


async def test_pipelined_requests_are_answered_one_by_one_in_order(wire, gate):
    client = wire(gate)
    await client.feed(get(b"/1") + get(b"/2") + get(b"/3"))
    assert gate.begun == [b"/1"]
    for target in (b"/3", b"/2", b"/1"):
        gate.let(target)
    await client.settle()
    assert [answer.body for answer in client.answers()] == [b"/1", b"/2", b"/3"]


@pytest.mark.parametrize("request_", [get(), get(fields=b"Content-Length: 1\r\n") + b"a"])
async def test_a_connection_has_its_part_of_a_turn(connect, recorder, request_):
    client = connect(recorder, direct=True)
    client.clock.a_tick = 0.0003
    client.protocol.data_received(request_ * 50)
    turns = 0
    while len(recorder.bodies) < 50:
        before = len(recorder.scopes)
        await asyncio.sleep(0)
        client.clock.end_turn()
        assert len(recorder.scopes) - before <= ITERATION_SHARE / client.clock.a_tick
        turns += 1
        assert turns < 1000


async def test_pipelined_requests_wait_unparsed_and_unread(wire, gate):
    client = wire(gate)
    many = 20_000
    flood = b"".join(get(b"/%d" % number) for number in range(many))
    await client.feed(flood)
    assert client.transport.paused
    assert len(client.protocol.turns) <= 2
    for number in range(200):
        gate.let(b"/%d" % number)
    await client.settle()
    while len(gate.begun) < 201:
        await client.settle()
    assert client.transport.paused
    assert len(client.protocol.turns) <= 2
    assert [answer.body for answer in client.answers()] == [b"/%d" % number for number in range(200)]


async def test_a_refusal_waits_for_the_answers_before_it(wire, gate):
    client = wire(gate)
    assert await client.feed(get(b"/1") + get(b"/2") + b"nonsense\r\n\r\n") == b""
    gate.let(b"/1")
    await client.settle()
    assert len(client.answers()) == 1
    gate.let(b"/2")
    await client.settle()
    assert [answer.status for answer in client.answers()] == [200, 200, 400]


async def test_a_queued_request_with_broken_content_is_refused_in_turn(wire, gate):
    client = wire(gate)
    broken = b"POST /2 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"
    await client.feed(get(b"/1") + broken + get(b"/3"))
    assert client.transport.sent == b""
    gate.let(b"/1")
    await client.settle()
    assert [answer.status for answer in client.answers()] == [200, 400]
    assert gate.begun == [b"/1"]


async def test_broken_content_cuts_an_answer_that_has_begun(wire):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    client = wire(app)
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    await client.feed(head)
    sent = await client.feed(b"nonsense\r\n")
    assert sent.endswith(b"4\r\nhalf\r\n")
    assert not client.open
    client.hang_up()
    await client.settle()


# WebSocket


class Socket(asyncio.Protocol):
    """The protocol to which uvicorn would hand a WebSocket's connection."""

    taken: ClassVar[list] = []

    def __init__(self, config, server_state, app_state):
        self.data = b""
        self.taken.append(self)

    def connection_made(self, transport):
        transport.set_protocol = lambda protocol: None

    def data_received(self, data):
        self.data += data


HANDSHAKE = b"Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Key: eA==\r\n"


@pytest.mark.parametrize("step", [1_000, 1])
async def test_a_handshake_is_handed_over_as_it_was_received(scoped, recorder, step):
    Socket.taken.clear()
    client = scoped(recorder, ws=Socket)
    data = get(b"/a/../%zz?b", HANDSHAKE)
    await client.feed(*(data[i : i + step] for i in range(0, len(data), step)))
    (socket,) = Socket.taken
    assert socket.data.splitlines()[:2] == [b"GET /a/../%zz?b HTTP/1.1", b"host: a.example"]
    client.clock.pass_time(1000)
    assert client.open
    assert recorder.scopes == []


@cases(
    "target, reason",
    (b"/a#b", "fragment"),
    (b"http://a.example/", "bad-target"),
    (b"http://a@a.example/", "bad-target"),
)
async def test_a_handshake_that_a_scope_cannot_tell_is_refused(scoped, recorder, target, reason):
    client = scoped(recorder, ws=Socket)
    await client.feed(get(target, HANDSHAKE))
    assert [answer.problem["reason"] for answer in client.answers()] == [reason]


# Limits


def limited(**limits):
    return ReadLimits(**limits)


@pytest.mark.parametrize("step", [1_000_000, 1, 7])
@cases(
    "limits, data, status",
    (limited(max_target=10), get(b"/" + b"a" * 9), 200),
    (limited(max_target=10), get(b"/" + b"a" * 10), 414),
    (limited(max_target=0), get(b"/" + b"a" * 9000), 200),
    (limited(), get(b"/" + b"a" * 8191), 200),
    (limited(), get(b"/" + b"a" * 8192), 414),
    (limited(max_fields=3), get(fields=b"a: b\r\n" * 2), 200),
    (limited(max_fields=3), get(fields=b"a: b\r\n" * 3), 431),
    (limited(max_fields=0), get(fields=b"a: b\r\n" * 300), 200),
    (limited(), get(fields=b"a: b\r\n" * 99), 200),
    (limited(), get(fields=b"a: b\r\n" * 100), 431),
    (limited(max_field_bytes=len(HOST) + 6), get(fields=b"a: b\r\n"), 200),
    (limited(max_field_bytes=len(HOST) + 5), get(fields=b"a: b\r\n"), 431),
    (limited(max_field_bytes=0), get(fields=b"a: " + b"b" * 70_000 + b"\r\n"), 200),
)
async def test_limits_of_the_head(wire, recorder, limits, data, status, step):
    client, step = wire(recorder, limits=limits), max(step, len(data) // 10_000)
    await client.feed(*(data[i : i + step] for i in range(0, len(data), step)))
    (answer,) = client.answers()
    assert answer.status == status
    if status != 200:
        assert answer.problem["reason"] == {414: "target-too-long", 431: "fields-too-large"}[status]


@pytest.mark.parametrize("size", [65536 - len(HOST) - 5, 65536 - len(HOST) - 4])
async def test_the_default_limit_of_all_fields_is_exact(client, size):
    await client.feed(get(fields=b"a: " + b"b" * size + b"\r\n"))
    assert [answer.status for answer in client.answers()] == [200 if size == 65536 - len(HOST) - 5 else 431]


async def test_limits_come_by_a_factory_that_survives_pickling():
    factory = pickle.loads(pickle.dumps(ExactProtocol.with_limits(ReadLimits(max_target=5))))
    config = uvicorn.Config("univocal.protocol:ExactProtocol", http=factory, lifespan="off", log_config=None)
    config.load()
    state = uvicorn.Server(config).server_state
    protocol = config.http_protocol_class(config=config, server_state=state, app_state={})
    assert isinstance(protocol, ExactProtocol)
    assert protocol.listener.bounds.limits.max_target == 5


# Time


async def test_a_head_that_drips_is_refused(wire, recorder):
    client = wire(recorder, limits=limited(header_timeout=10))
    for octet in get()[:9]:
        await client.feed(bytes([octet]))
        client.clock.pass_time(1)
    assert client.open
    client.clock.pass_time(1)
    (answer,) = client.answers()
    assert (answer.status, answer.problem["reason"]) == (408, "request-timeout")
    assert recorder.scopes == []


async def test_empty_lines_do_not_keep_a_connection(wire, recorder):
    client = wire(recorder, limits=limited(header_timeout=10))
    await client.feed(get())
    for _ in range(10):
        await client.feed(b"\r\n")
        client.clock.pass_time(1)
    assert not client.open
    assert [answer.status for answer in client.answers()] == [200]


async def test_an_idle_connection_is_kept_for_the_keep_alive_time(wire, recorder):
    client = wire(recorder, timeout_keep_alive=7)
    await client.feed(get())
    client.clock.pass_time(6)
    await client.feed(get(b"/2"))
    client.clock.pass_time(6.9)
    assert client.open
    client.clock.pass_time(0.1)
    assert not client.open
    assert len(client.answers()) == 2


POST = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n"


async def test_a_client_that_waits_for_100_is_not_silent(wire):
    asked = asyncio.Event()

    async def app(scope, receive, send):
        await asked.wait()
        await receive()
        await receive()

    client = wire(app, limits=limited(content_timeout=10))
    await client.feed(POST + b"Expect: 100-continue\r\n\r\n")
    client.clock.pass_time(100)
    assert client.open
    asked.set()
    await client.settle()
    client.clock.pass_time(20)
    assert not client.open


async def test_an_unreading_application_is_not_the_clients_silence(wire, gate):
    client = wire(gate, limits=limited(content_timeout=10))
    await client.feed(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\n", b"a" * 100_000)
    assert client.transport.paused
    client.clock.pass_time(100)
    assert client.open


async def test_no_timer_outlives_a_connection(wire, gate):
    for data in (b"", b"GET", get(), get() + b"GET", POST + b"\r\n", b"nonsense\r\n\r\n"):
        client = wire(gate)
        await client.feed(data)
        gate.let(b"/")
        await client.settle()
        client.hang_up()
        assert client.clock.timers == []


async def test_a_request_in_one_piece_takes_one_timer(client):
    before = client.clock.armed
    await client.feed(get())
    assert client.clock.armed == before + 1  # keep-alive


# The end


async def test_a_refused_client_may_read_why(client, recorder):
    await client.feed(b"nonsense\r\n\r\n")
    assert (client.transport.ended, client.transport.closed) == (True, False)
    await client.feed(get() * 100)
    assert recorder.scopes == []
    client.clock.pass_time(LINGER)
    assert client.transport.aborted


FAULTY = b"nonsense\r\n\r\n"


async def test_bytes_behind_a_refusal_are_bounded_and_not_kept(wire, gate):
    client = wire(gate)
    await client.feed(get(b"/1") + FAULTY)
    sent = 0
    while not client.transport.paused:
        await client.feed(b"a" * 65536)
        sent += 65536
        assert len(client.protocol._reader.octets) == 0
        assert sent <= LINGER_BYTES + 65536
    gate.let(b"/1")
    await client.settle()
    assert [answer.status for answer in client.answers()] == [200, 400]
    assert not client.transport.paused  # for a while, so that the client may read that


async def test_a_refused_client_that_goes_on_sending_is_left(client):
    await client.feed(FAULTY)
    for _ in range(LINGER_BYTES // 65536):
        await client.feed(b"a" * 65536)
    assert not client.transport.closed
    await client.feed(b"a")
    assert client.transport.closed
    client.hang_up()
    assert client.clock.timers == []


async def test_without_half_close_the_transport_closes(wire, recorder):
    client = wire(recorder, half_close=False)
    await client.feed(b"nonsense\r\n\r\n")
    assert client.transport.closed
    assert len(client.answers()) == 1


# An answer before the request's content has come

EARLY = {"kept": b"", "closed": b"Connection: close\r\n"}
LARGE = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 4000000000\r\n"


async def refusing(scope, receive, send):
    await respond(send, b"no", [(b"content-length", b"2")], 403)


@pytest.fixture(params=EARLY)
async def early(connect, request):
    client = connect(refusing)
    await client.feed(LARGE + EARLY[request.param] + b"\r\n")
    assert [answer.status for answer in client.answers()] == [403]
    assert not client.transport.closed
    return client


async def test_content_behind_an_early_answer_has_a_time(early):
    for _ in range(7):
        early.clock.pass_time(4)
        await early.feed(b"a" * 65536)
        assert not early.transport.closed
    early.clock.pass_time(2)
    assert early.transport.closed
    assert len(early.answers()) == 1
    early.hang_up()
    assert early.clock.timers == []


async def test_a_client_that_pauses_behind_an_early_answer_is_left(early):
    await early.feed(b"a" * 65536)
    early.clock.pass_time(4.9)
    assert not early.transport.closed
    early.clock.pass_time(0.1)
    assert early.transport.closed


async def test_a_slow_client_that_pauses_still_gets_the_early_answer(early):
    early.transport.waiting = 1
    await early.feed(b"a")
    early.clock.pass_time(5)
    assert (early.transport.closed, early.transport.aborted) == (True, False)


async def test_content_behind_an_early_answer_has_a_size(early):
    piece, left = bytes(8 << 20), EARLY_BYTES
    while left:
        await early.feed(piece)
        left -= len(piece)
        assert not early.transport.closed
    await early.feed(b"a")
    assert early.transport.closed


async def test_the_next_request_follows_the_content_of_one_answered_early(wire):
    client = wire(refusing)
    await client.feed(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\n12345")
    client.clock.pass_time(4)
    await client.feed(b"67890" + get())
    client.clock.pass_time(4)
    await client.feed(get())
    assert [answer.status for answer in client.answers()] == [403, 403, 403]
    assert not client.transport.closed


# A client that closes its sending half


HALF = limited(half_closed_timeout=10)


async def test_without_its_time_a_half_closed_client_has_left(wire, gate):
    client = wire(gate)
    await client.feed(get(b"/1"))
    assert not client.protocol.eof_received()


async def test_a_half_closed_client_is_answered_for_so_long(connect, gate):
    client = connect(gate, direct=True, limits=HALF)
    await client.feed(get(b"/1"))
    assert client.protocol.eof_received()
    client.clock.pass_time(9.9)
    assert not client.transport.closed
    client.clock.pass_time(0.6)
    assert [answer.status for answer in client.answers()] == [504]
    assert client.transport.closed


async def test_a_refused_client_that_half_closes_is_answered(connect, gate):
    client = connect(gate, direct=True, limits=HALF)
    await client.feed(get(b"/1") + b"nonsense\r\n\r\n")
    assert isinstance(client.protocol.state, Refusing)
    assert client.protocol.eof_received()
    assert isinstance(client.protocol.state, HalfClosed)
    gate.let(b"/1")
    await client.settle()
    assert [answer.status for answer in client.answers()] == [200, 400]


async def test_a_half_closed_client_gives_way_like_an_idle_one(wire, gate):
    client = wire(gate, limits=HALF)
    await client.feed(get(b"/1"))
    assert not client.protocol.is_resting()
    client.protocol.eof_received()
    assert client.protocol.is_resting()
    client.protocol.evict()
    assert client.transport.closed


async def test_shutdown_lets_the_open_request_end(wire, gate):
    client = wire(gate)
    await client.feed(get(b"/1"))
    client.protocol.shutdown()
    assert client.open
    gate.let(b"/1")
    await client.settle()
    (answer,) = client.answers()
    assert (answer.field(b"connection"), client.open) == (b"close", False)


async def test_shutdown_closes_an_idle_connection(client):
    await client.feed(get())
    client.protocol.shutdown()
    assert not client.open


@cases("limit, status", (1, 503), (2, 200))
async def test_requests_over_the_concurrency_limit_are_refused(wire, recorder, limit, status):
    client = wire(recorder, limit_concurrency=limit)
    await client.feed(get())
    (answer,) = client.answers()
    assert answer.status == status
    if status == 503:
        assert (answer.problem["reason"], recorder.scopes) == ("overloaded", [])


async def test_a_fault_of_ours_is_not_put_on_the_client(client, caplog):

    def broken(host):
        raise ZeroDivisionError

    client.protocol.peer = client.protocol.peer._replace(suits=broken)
    await client.feed(get(fields=b"Range: bytes=0-1\r\n"))
    (answer,) = client.answers()
    assert (answer.status, answer.problem["reason"], client.open) == (500, "internal-error", False)
    assert caplog.records[-1].exc_info[0] is ZeroDivisionError
