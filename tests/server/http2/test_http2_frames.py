"""Frames are cut out of octets however they come, and paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2_client import PREFACE, SETTINGS, frame, settings
from univocal.server.http2.frames import LONGEST, ConnectionFaultError, FrameReader, frame_of

GREETING = PREFACE + settings()
FRAMES = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=40)),
    max_size=6,
)


def reader_of(octets):
    """A reader that has read a preface and SETTINGS, and has these octets before it."""
    reader = FrameReader()
    reader.feed(GREETING + octets)
    assert reader.next().kind == SETTINGS
    return reader


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1))
def test_frames_are_whole_however_octets_come(frames, sizes):
    octets = GREETING + b"".join(frame(*each) for each in frames)
    reader, read, place, turn = FrameReader(), [], 0, 0
    while place < len(octets):
        size, turn = sizes[turn % len(sizes)], turn + 1
        reader.feed(octets[place : place + size])
        place += size
        while (cut := reader.next()) is not None:
            read.append((cut.kind, cut.flags, cut.stream, cut.payload))
            assert frame_of(*read[-1]) == frame(*read[-1])
    assert read == [(SETTINGS, 0, 0, b""), *frames]
    assert reader.is_empty


def test_a_frame_that_is_too_long_is_not_waited_for():
    reader = reader_of((LONGEST + 1).to_bytes(3, "big") + bytes(6))
    with pytest.raises(ConnectionFaultError):
        reader.next()
