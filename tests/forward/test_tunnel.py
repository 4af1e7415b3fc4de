"""A tunnel by plain calls, and the frames that pass: pace, halves, silence and its end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import Clock, Transport
from univocal.forward.tunnel import GOING_AWAY, FrameCounter, Tunnel, close_frame
from univocal.http.intermediary import Switched

TEXT = b"\x81\x02hi"
AWAY, MASKED_AWAY = b"\x88\x02\x03\xe9", b"\x88\x82\0\0\0\0\x03\xe9"


class Unread(Transport):
    """A transport that is not read before the tunnel does."""

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


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(clock):
    def opened(client=None, origin=None, *, silence=100, frames=True):
        client, origin = client or Line(), origin or Line()
        return Tunnel(client, origin, clock.call_later, silence=silence, frames=frames), client, origin

    return opened


def test_bytes_pass_and_those_to_the_client_are_counted(opened):
    tunnel, client, origin = opened()
    client.end.data_received(b"asked")
    origin.end.data_received(b"told")
    assert (origin.transport.sent, client.transport.sent, tunnel.octets) == (b"asked", b"told", 4)


def test_early_bytes_go_first(opened):
    _, _, origin = opened(Line(early=b"early"))
    assert origin.transport.sent == b"early"


@pytest.mark.parametrize("slow", ["client", "origin"])
def test_a_full_side_pauses_the_other_from_the_start(opened, slow):
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


def test_silence_ends_it(opened, clock):
    tunnel, *_ = opened(silence=100)
    clock.pass_time(100)
    assert not tunnel.over
    clock.pass_time(25)
    assert tunnel.over


@pytest.mark.parametrize("speaker", ["client", "origin"])
def test_bytes_now_and_then_keep_the_tunnel_open(opened, clock, speaker):
    tunnel, client, origin = opened(silence=100)
    for _ in range(9):
        clock.pass_time(99)
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
    clock, lines = Clock(), {"client": Line(), "origin": Line()}
    tunnel = Tunnel(lines["client"], lines["origin"], clock.call_later, silence=100, frames=frames)
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
                clock.pass_time(130)
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
    assert clock.timers == []


# Frames of a WebSocket are counted however they are cut (RFC 6455 §5.2)


def frame(payload, *, opcode=1, masked=False, final=True):
    """A frame as RFC 6455 §5.2 draws it; its mask is four octets of zeros."""
    size, mask = len(payload), 0x80 if masked else 0
    head = bytes([(0x80 if final else 0) | opcode])
    if size < 126:
        head += bytes([mask | size])
    elif size < 65536:
        head += bytes([mask | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([mask | 127]) + size.to_bytes(8, "big")
    return head + bytes(4 if masked else 0) + payload


def counted(*pieces):
    counter = FrameCounter()
    for piece in pieces:
        counter.count(piece)
    return counter


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536])
def test_behind_a_whole_frame_another_may_begin(size, masked):
    whole = frame(b"x" * size, masked=masked)
    assert counted(whole).between
    assert not counted(whole[:-1]).between
    assert not counted(whole + whole[:1]).between
    assert counted(*(whole[i : i + 1] for i in range(min(len(whole), 200))), whole[200:]).between


def test_before_the_first_frame_one_may_begin():
    assert FrameCounter().between


def test_control_frames_may_separate_fragments_of_a_message():
    assert counted(frame(b"first", final=False)).between


@pytest.mark.parametrize(("opcode", "between"), [(0x8, False), (0x9, True), (0xA, True), (0x0, True)])
def test_nothing_stands_behind_a_close_frame(opcode, between):
    one = frame(b"\x03\xe8", opcode=opcode)
    for octets in (one, one + frame(b"x") * 9):
        assert counted(octets).between is between


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=8), st.data())
def test_the_cut_makes_no_difference(frames, data):
    octets = b"".join(frame(b"y" * size, masked=masked) for size, masked in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=12)))
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert counted(*pieces).between


@pytest.mark.parametrize(("number", "between"), [(4_000, True), (30_000, False)])
def test_thousands_of_frames_in_one_go_are_counted_no_further(number, between):
    counter = counted(frame(b"") * number)
    assert counter.between is between
    counter.count(frame(b"x"))
    assert counter.between is between


def test_a_close_frame_says_why():
    assert close_frame(GOING_AWAY, masked=False) == b"\x88\x02\x03\xe9"
    assert close_frame(GOING_AWAY, masked=True) == b"\x88\x82\0\0\0\0\x03\xe9"
