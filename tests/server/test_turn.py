"""One request's turn on a connection: its content on its way to the origin, its response on the way back."""

from dataclasses import replace

import pytest

from univocal.engine.exchange import Engine
from univocal.http.messages import Response
from univocal.http.pipe import HIGH_WATER
from univocal.judge.admission import Gate
from univocal.judge.runtime import Limits
from univocal.server.clients import ITERATION_SHARE
from univocal.server.http1.connection import Lost, Undecided
from univocal.server.turn import EngineService
from univocal.store.memory import MemoryStore
from univocal.store.tiers import tiers_of

HOST = b"Host: a.example\r\n"


def get(target=b"/", fields=b"", version=b"HTTP/1.1"):
    return b"GET " + target + b" " + version + b"\r\n" + HOST + fields + b"\r\n"


def post(length, target=b"/", fields=b""):
    return b"POST " + target + b" HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n" % length + fields + b"\r\n"


class Silent:
    """An origin server of which the test itself says what it answers and how much content it takes."""

    def __init__(self, *, attaches=True):
        self.calls, self.attaches = [], attaches

    def ask(self, request, answer):
        call = Call(request, request.content, answer)
        self.calls.append(call)
        if self.attaches:
            request.content.attach(call)
        return call


class Call:
    def __init__(self, request, content, answer):
        self.request, self.content, self.answer = request, content, answer
        self.got, self.takes = [], True
        self.finished = self.cancelled = self.pauses = 0

    def write(self, chunk):
        assert self.takes, "content in spite of False"
        self.got.append(chunk)
        self.takes = False
        return False

    def go_on(self):
        self.takes = True
        self.content.resume()

    def finish(self):
        self.finished += 1

    def pause(self):
        self.pauses += 1

    def resume(self):
        pass

    def cancel(self):
        self.cancelled += 1
        self.content.detach()

    def reply(self, *chunks, status=200, fields=()):
        length = [(b"content-length", b"%d" % sum(map(len, chunks)))]
        self.answer.start(Response(status, [*fields, *length]))
        for chunk in chunks:
            self.answer.write(chunk)
        self.answer.finish()


@pytest.fixture
def facing(connect, passing):
    """A client before an origin: facing(origin, max_body)."""

    def client(origin, max_body=0, **settings):
        def works(_app, _limits, clock):
            gate = Gate(replace(passing, limits=Limits(max_body)), tiers_of(MemoryStore()))
            return EngineService(Engine(gate, call_later=clock.call_later), origin)

        return connect(None, direct=True, works=works, **settings)

    return client


# The request's content


async def test_content_behind_a_turns_time_waits_unread(facing, monkeypatch):
    """An event loop may read many times in one turn, and asks us each time."""
    monkeypatch.setattr(Call, "write", lambda call, chunk: call.got.append(chunk) or True)
    origin = Silent()
    client = facing(origin)
    client.clock.a_tick = ITERATION_SHARE / 4  # a head and a piece of content
    client.protocol.data_received(post(2 * HIGH_WATER) + b"abc")
    assert not client.transport.paused
    client.protocol.data_received(b"def")
    assert client.transport.paused
    await client.settle()
    assert (b"".join(origin.calls[0].got), client.transport.paused) == (b"abcdef", False)


async def test_full_content_stays_unread_when_the_turn_goes_on(facing):
    origin = Silent(attaches=False)
    client = facing(origin)
    client.protocol.data_received(post(20 * HIGH_WATER) + b"a" * (5 * HIGH_WATER))
    await client.settle()
    assert client.transport.paused
    call = origin.calls[0]
    call.content.attach(call)
    call.go_on()
    await client.settle()
    assert client.transport.paused


async def test_content_before_it_is_asked_for_is_bounded(facing):
    origin = Silent(attaches=False)
    client = facing(origin)
    await client.feed(post(1_000_000))
    sent = 0
    while not client.transport.paused:
        client.protocol.data_received(b"a" * 10_000)
        sent += 10_000
    assert HIGH_WATER < sent <= HIGH_WATER + 10_000
    origin.calls[0].content.attach(origin.calls[0])
    while origin.calls[0].got and sum(map(len, origin.calls[0].got)) < sent:
        origin.calls[0].go_on()
    origin.calls[0].go_on()
    assert not client.transport.paused


async def test_content_that_comes_after_the_response_is_no_request(facing):
    origin = Silent(attaches=False)
    client = facing(origin)
    await client.feed(post(len(get(b"/smuggled"))))
    origin.calls[0].reply(b"early")
    assert client.open
    await client.feed(get(b"/smuggled"))
    await client.feed(get(b"/next"))
    assert [each.request.target for each in origin.calls] == [b"/", b"/next"]


@pytest.mark.parametrize("limit", [3, 2])
@pytest.mark.parametrize("queued", [False, True])
async def test_too_much_content_is_refused_wherever_it_waited(facing, limit, queued):
    origin = Silent()
    client = facing(origin, limit)
    chunked = b"POST /in HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    await client.feed(get(b"/first") + chunked if queued else chunked)
    if queued:
        origin.calls[0].reply(b"first")
    answers = client.answers()
    if limit == 2:
        assert answers[-1].problem["reason"] == "body-too-large"
        assert [call.got for call in origin.calls if call.request.target == b"/in"] in ([], [[]])
    else:
        assert origin.calls[-1].got == [b"abc"]


# The response


@pytest.mark.parametrize(
    ("version", "aborted"), [(b"HTTP/1.1", False), (b"HTTP/1.0", True)], ids=["chunked", "by the end"]
)
async def test_a_response_that_breaks_off_is_seen_to_be_incomplete(facing, version, aborted):
    origin = Silent()
    client = facing(origin)
    await client.feed(get(version=version))
    origin.calls[0].answer.start(Response(200, []))
    origin.calls[0].answer.write(b"half")
    origin.calls[0].answer.fail(ConnectionResetError())
    assert (client.transport.closed, client.transport.aborted) == (True, aborted)
    assert b"0\r\n\r\n" not in client.transport.sent


async def test_a_client_that_leaves_ends_the_exchange(facing):
    origin = Silent()
    client = facing(origin)
    await client.feed(post(9) + b"abc")
    client.hang_up()
    assert origin.calls[0].cancelled == 1
    origin.calls[0].answer.fail(ConnectionResetError())  # too late for anybody
    assert client.transport.sent == b""


async def test_a_client_that_leaves_its_handshake_is_lost(facing):
    client = facing(Silent())
    await client.feed(get(fields=b"Connection: Upgrade\r\nUpgrade: websocket\r\n"))
    assert isinstance(client.protocol.state, Undecided)
    client.hang_up()
    client.hang_up()  # a tunnel and asyncio tell it, both
    assert isinstance(client.protocol.state, Lost)
