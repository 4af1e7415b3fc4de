"""A tunnel by plain calls: pace, halves, silence and its end; the transports are played."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import Transport
from univocal.forward.tunnel import Tunnel
from univocal.http.upgrade import Switched

TEXT = b"\x81\x02hi"
AWAY, MASKED_AWAY = b"\x88\x02\x03\xe9", b"\x88\x82\0\0\0\0\x03\xe9"


class Unread(Transport):
    """A transport that nobody reads before the tunnel does."""

    def __init__(self, *, halves=True):
        super().__init__(half_close=halves)
        self.paused = True

    def write(self, data):
        assert not self.closed
        super().write(data)


class Line:
    """A connection that is given away."""

    def __init__(self, *, early=b"", full=False, halves=True):
        self.transport, self.lost = Unread(halves=halves), 0
        self._early, self._full = early, full

    def switch(self, end):
        self.end = end
        return Switched(self.transport, self._early, full=self._full)

    def connection_lost(self, exc):
        self.lost += 1


class Due:
    def __init__(self, when, call):
        self.when, self.call = when, call

    def cancel(self):
        self.call = None


class Time:
    def __init__(self):
        self.now, self.due = 0.0, []

    def __call__(self, seconds, call):
        self.due.append(Due(self.now + seconds, call))
        return self.due[-1]

    def go_on(self, seconds):
        end = self.now + seconds
        while due := [each for each in self.due if each.call and each.when <= end]:
            first = min(due, key=lambda each: each.when)
            self.now, call, first.call = first.when, first.call, None
            call()
        self.now = end


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def opened(time):
    def opened(client=None, origin=None, *, silence=100, frames=True):
        client, origin = client or Line(), origin or Line()
        return Tunnel(client, origin, time, silence=silence, frames=frames), client, origin

    return opened


def test_octets_pass_and_those_to_the_client_are_counted(opened):
    tunnel, client, origin = opened()
    client.end.data_received(b"asked")
    origin.end.data_received(b"told")
    assert (origin.transport.sent, client.transport.sent, tunnel.octets) == (b"asked", b"told", 4)


def test_what_has_come_before_goes_first(opened):
    _, _, origin = opened(Line(early=b"early"))
    assert origin.transport.sent == b"early"


@pytest.mark.parametrize("slow", ["client", "origin"])
def test_who_takes_no_more_from_the_beginning_stops_the_other(opened, slow):
    full, other = Line(full=True), Line()
    opened(*((full, other) if slow == "client" else (other, full)))
    assert other.transport.paused
    full.end.resume_writing()
    assert not other.transport.paused


def test_a_half_that_has_ended_is_not_read_again(opened):
    _, client, origin = opened()
    client.end.eof_received()
    client.transport.paused = True
    origin.end.pause_writing()
    origin.end.resume_writing()
    assert client.transport.paused


@pytest.mark.parametrize("first", ["client", "origin"])
def test_halves_end_one_after_the_other(opened, first):
    tunnel, client, origin = opened()
    first, second = (client, origin) if first == "client" else (origin, client)
    assert first.end.eof_received() is True  # asyncio keeps the other half
    assert second.transport.ended
    assert not tunnel.over
    assert not first.transport.ended
    second.end.data_received(b"more")
    assert first.transport.sent == b"more"
    second.end.eof_received()
    assert tunnel.over
    assert client.transport.closed
    assert origin.transport.closed


def test_over_tls_there_is_no_half(opened):
    tunnel, client, origin = opened(Line(halves=False))
    origin.end.eof_received()
    assert tunnel.over
    assert client.transport.closed


def test_after_the_end_nothing_passes(opened):
    tunnel, client, origin = opened()
    tunnel.send_away()
    client.end.data_received(TEXT)
    tunnel.send_away()
    assert (client.transport.sent, origin.transport.sent) == (AWAY, MASKED_AWAY)


@pytest.mark.parametrize(
    ("told", "expected"),
    [(b"", AWAY), (TEXT, TEXT + AWAY), (TEXT[:-1], TEXT[:-1]), (b"\x88\x00", b"\x88\x00")],
    ids=["nothing", "a frame", "a part of one", "a close frame"],
)
def test_a_rejected_websocket_learns_it_between_frames(opened, told, expected):
    tunnel, client, origin = opened()
    origin.end.data_received(told)
    tunnel.send_away()
    assert client.transport.sent == expected
    assert origin.transport.sent == MASKED_AWAY


def test_another_protocol_knows_no_frames(opened):
    tunnel, client, origin = opened(frames=False)
    tunnel.send_away()
    assert (client.transport.sent, origin.transport.sent) == (b"", b"")
    assert client.transport.closed


def test_silence_ends_it(opened, time):
    tunnel, *_ = opened(silence=100)
    time.go_on(100)
    assert not tunnel.over
    time.go_on(25)
    assert tunnel.over


@pytest.mark.parametrize("speaker", ["client", "origin"])
def test_who_speaks_now_and_then_is_not_silent(opened, time, speaker):
    tunnel, client, origin = opened(silence=100)
    for _ in range(9):
        time.go_on(99)
        (client if speaker == "client" else origin).end.data_received(b"x")
    assert not tunnel.over


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["client", "origin"]),
        st.sampled_from(["data", "data", "data", "full", "room", "eof", "lost", "silence"]),
        st.binary(min_size=1, max_size=9),
    ),
    max_size=30,
)


@given(STEPS, st.booleans())
def test_bytes_arrive_in_order_and_only_for_taking_readers(steps, frames):
    time, lines = Time(), {"client": Line(), "origin": Line()}
    tunnel = Tunnel(lines["client"], lines["origin"], time, silence=100, frames=frames)
    sent = {"client": b"", "origin": b""}
    full, ended = set(), set()
    for side, step, octets in steps:
        other = "origin" if side == "client" else "client"
        line = lines[side]
        match step:
            case "data" if side not in ended and not line.transport.paused and not tunnel.over:
                line.end.data_received(octets)
                sent[other] += octets
            case "full" if side not in full and not tunnel.over:
                full.add(side)
                line.end.pause_writing()
            case "room" if side in full:
                full.discard(side)
                line.end.resume_writing()
            case "eof" if side not in ended and not tunnel.over:
                ended.add(side)
                line.end.eof_received()
            case "lost" if not line.lost:
                line.transport.closed = True
                line.end.connection_lost(None)
            case "silence":
                time.go_on(130)
        for each, another in (("client", "origin"), ("origin", "client")):
            told = bytes(lines[each].transport.sent)
            assert told.startswith(sent[each])
            assert told[len(sent[each]) :] in ({b"", AWAY, MASKED_AWAY} if tunnel.over and frames else {b""})
            if not tunnel.over and another not in ended:
                assert lines[another].transport.paused is (each in full)
    for line in lines.values():
        if not line.lost:
            line.end.connection_lost(None)
    assert tunnel.over
    assert [line.lost for line in lines.values()] == [1, 1]
    assert [each for each in time.due if each.call] == []
