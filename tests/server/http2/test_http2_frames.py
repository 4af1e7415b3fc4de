"""Frames are cut out of octets however they come, and paid for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    settings,
    window_update,
)
from univocal.server.http2.frames import LONGEST, Credit, FrameReader, FrameTooLongError, frame_of

GREETING = PREFACE + settings()
KINDS = st.integers(0, 255).filter(lambda kind: kind not in {SETTINGS, WINDOW_UPDATE})
FRAMES = st.lists(
    st.tuples(KINDS, st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=40)), max_size=6
)


def reader_of(octets):
    """A reader that has read a preface and SETTINGS, and has these octets before it."""
    reader = FrameReader()
    reader.feed(GREETING + octets)
    reader.preface()
    assert reader.next().kind == SETTINGS
    return reader


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1))
def test_frames_are_whole_however_octets_come(frames, sizes):
    octets = GREETING + b"".join(frame(*each) for each in frames)
    reader, read, place, turn = FrameReader(), [], 0, 0
    assert reader.preface() is None
    while place < len(octets):
        size, turn = sizes[turn % len(sizes)], turn + 1
        reader.feed(octets[place : place + size])
        place += size
        if (preface := reader.preface()) is not None:
            assert preface == PREFACE
        while (cut := reader.next()) is not None:
            read.append((cut.kind, cut.flags, cut.stream, cut.octets[9:]))
            assert cut.octets == frame_of(*read[-1])
    assert read == [(SETTINGS, 0, 0, b""), *frames]
    assert reader.is_empty


@pytest.mark.parametrize(
    ("octets", "essential"),
    [
        (settings((4, 100)), settings((4, 100))),
        (settings((0, 1), (4, 100), (7, 2), (0x0104, 3), (6, 5)), settings((4, 100), (6, 5))),
        (settings((8, 1)), settings()),
        (frame(SETTINGS, ACK, 0, b"\0\xff\0\0\0\1"), frame(SETTINGS, ACK, 0, b"\0\xff\0\0\0\1")),
        (frame(SETTINGS, 0, 0, b"\0\xff\0"), frame(SETTINGS, 0, 0, b"\0\xff\0")),
        (window_update(7, 3), window_update(7, 3)),
        (window_update(2**31 + 7, 3), window_update(7, 3)),
        (frame(WINDOW_UPDATE, 0, 3, b"\x80"), frame(WINDOW_UPDATE, 0, 3, b"\x80")),
        (frame(PING, 0, 2**31, bytes(8)), frame(PING, 0, 2**31, bytes(8))),
    ],
)
def test_parts_that_mean_nothing_are_left_out(octets, essential):
    cut = reader_of(octets).next()
    assert (cut.octets, cut.length) == (essential, len(essential) - 9)
    assert cut.stream < 2**31


def test_a_frame_that_is_too_long_is_not_waited_for():
    reader = reader_of((LONGEST + 1).to_bytes(3, "big") + bytes(6))
    with pytest.raises(FrameTooLongError):
        reader.next()


@pytest.mark.parametrize(
    ("octets", "waits"),
    [
        (frame(HEADERS, END_HEADERS, 1, b"x"), False),
        (frame(HEADERS, END_HEADERS, 1, b"x")[:5], True),
        (frame(HEADERS, 0, 1, b"x"), True),
        (frame(HEADERS, 0, 1, b"x") + frame(CONTINUATION, 0, 1, b"y"), True),
        (frame(HEADERS, 0, 1, b"x") + frame(CONTINUATION, END_HEADERS, 1, b"y"), False),
        (frame(PING, 0, 0, bytes(8))[:12], False),
    ],
)
def test_a_section_of_fields_is_awaited_to_its_end(octets, waits):
    reader = reader_of(octets)
    while reader.next() is not None:
        pass
    assert reader.awaits_fields is waits


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
