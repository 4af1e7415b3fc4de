"""Frames are cut out of octets however they come, and paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2_client import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    headers,
    settings,
)
from univocal.server.http2.frames import LONGEST, ConnectionFaultError, Credit, FrameReader, frame_of
from univocal.server.http2.session import Session

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


@pytest.mark.parametrize(
    ("octets", "waits"),
    [
        (headers(1), False),
        (headers(1)[:5], True),
        (headers(1, flags=0), True),
        (headers(1, flags=0) + frame(CONTINUATION, 0, 1), True),
        (headers(1, flags=0) + frame(CONTINUATION, END_HEADERS, 1), False),
        (frame(PING, 0, 0, bytes(8))[:12], False),
    ],
)
def test_a_section_of_fields_is_awaited_to_its_end(octets, waits):
    session = Session(0.0, 65536)
    session.feed(GREETING + octets)
    while session.next(7.0) is not None:
        pass
    assert session.fields_since == (7.0 if waits else None)


@pytest.mark.parametrize(
    ("octets", "price"),
    [
        (frame(DATA, 0, 1, b"content"), 0),
        (frame(DATA, 0, 1), 1),
        (frame(DATA, 1, 1), 0),
        (frame(DATA, PADDED, 1, b"\x02\0\0"), 1),
        (frame(PING, 0, 0, bytes(8)), 1),
        (frame(RST_STREAM, 0, 1, bytes(4)), 10),
        (frame(0x77), 1),
    ],
)
def test_a_frame_has_a_price(octets, price):
    reader = reader_of(octets)
    assert reader.next().price == price


def test_credit_comes_back_with_time_and_answers():
    credit = Credit(0.0)
    assert all(credit.spend(1, 0.0) for _ in range(Credit.MOST))
    assert not credit.spend(1, 0.0)
    credit = Credit(0.0)
    assert credit.spend(Credit.MOST, 0.0)
    credit.earn(Credit.AN_ANSWER)
    assert credit.spend(Credit.AN_ANSWER, 0.0)
    assert credit.spend(Credit.A_SECOND, 1.0)
    assert not credit.spend(1, 1.0)
    credit = Credit(0.0)
    assert credit.spend(1, 1_000_000.0)
    assert not credit.spend(Credit.MOST, 1_000_000.0)
