"""Frames of a WebSocket are counted however they are cut (RFC 6455 §5.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.forward.tunnel import GOING_AWAY, FrameCounter, close_frame


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
    assert counted(frame(b"\x03\xe8", opcode=opcode)).between is between


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
