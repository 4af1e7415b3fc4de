"""Frames are cut out of octets however they come; sections of fields are read as hpack reads them."""

from functools import partial

import hpack
import pytest
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hypothesis import example, given
from hypothesis import strategies as st

from examples import any_of, cases
from http2_client import GET as PLAIN
from http2_client import PREFACE, SETTINGS, frame, settings
from univocal.server.http2 import fields as fields_module
from univocal.server.http2.fields import FieldDecoder, head_of
from univocal.server.http2.frames import LONGEST, ConnectionFaultError, FrameReader, frame_of

NAMES = any_of(b":method", b":path", b"x", b"cookie", b"accept", b"a-name")
VALUES = any_of(b"GET", b"/", b"", b"1", b"y" * 40, b"z" * 130, b"\xff")
SECTIONS = st.lists(st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=8), max_size=8)
GET = b"\x82"


@given(SECTIONS, any_of(0, 60, 200, 4096), st.booleans())
def test_sections_of_a_connection_are_what_was_sent(sections, table, huffman):
    encoder, decoder = hpack.Encoder(), FieldDecoder(65536)
    encoder.header_table_size = table
    for fields in sections:
        read = decoder.fields(encoder.encode(fields, huffman=huffman))
        assert [tuple(field) for field in read] == [(name, value) for name, value, _ in fields]


@given(st.lists(st.binary(max_size=24), max_size=6))
def test_bytes_of_any_kind_are_read_as_hpack_reads_them(sections):
    ours, theirs = FieldDecoder(65536), hpack.Decoder()
    for octets in sections:
        expected = outcome(partial(theirs.decode, raw=True), octets)
        assert outcome(ours.fields, octets) == expected
        if expected == "an error":
            return


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.tuples(NAMES, VALUES, st.booleans()), max_size=5)), max_size=24
    ),
    st.lists(st.tuples(st.integers(0, 23), any_of(0, 60, 200, 4096)), max_size=3),
)
@example([(False, []), (False, [(b":path", b"GET", False)] * 2)], [(0, 0), (1, 60), (1, 60)])
def test_heads_and_fields_are_what_was_sent(sections, sizes):
    encoder, decoder = hpack.Encoder(), FieldDecoder(65536)
    for number, (is_head, fields) in enumerate(sections):
        for place, size in sizes:
            # hpack's encoder forgets to announce a new size that it is given twice in a row.
            if place == number and size != encoder.header_table_size:
                encoder.header_table_size = size
        octets, sent = encoder.encode(fields), [(name, value) for name, value, _ in fields]
        if is_head:
            assert decoder.head(octets) == head_of(sent)
        else:
            assert [tuple(field) for field in decoder.fields(octets)] == sent


INDEXES = any_of(
    b"\0\x01x", b"\x04", b"\x05", b"\x0e", b"\x0f\x04", b"\x0f\x2f", b"\x0f\x30", b"\x0f\x80\x01"
)
STRINGS = any_of(b"\0", b"\x01/", b"\x02/b", b"\x81\x63", b"\x82\x60\x7f", b"\x7e" + b"y" * 126)
LITERALS = st.builds(
    lambda index, string, is_secret: bytes((index[0] | 0x10 * is_secret,)) + index[1:] + string,
    *(INDEXES, STRINGS, st.booleans()),
)
ENTRIES = any_of(b"\x40\x01a\x01b", b"\x40\x01c\x01d", b"\x20\x3f\xe1\x1f")


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(LITERALS | st.just(b"\xbe"), max_size=4), st.just(b"") | ENTRIES)
    )
)
def test_literals_are_read_as_hpack_reads_them(sections):
    """Their names may be from the table of the connection, which changes."""
    ours, theirs = FieldDecoder(65536), hpack.Decoder()
    for is_head, literals, entry in sections:
        octets = (entry if entry[:1] == b"\x20" else b"") + b"".join(literals)
        octets += entry if entry[:1] == b"\x40" else b""
        expected = outcome(partial(theirs.decode, raw=True), octets)
        if is_head and expected != "an error":
            assert ours.head(octets) == head_of(expected)
            continue
        assert outcome(ours.fields, octets) == expected
        if expected == "an error":
            return


def test_sections_that_are_remembered_are_few_and_short():
    decoder = FieldDecoder(65536)
    decoder.fields(b"\x40\x01x\x64" + b"y" * 100)
    for number in range(100):
        decoder.head(b"\x82\x10\x01x\x03%03d" % number)
        decoder.head(b"\x82" + b"\x10\x01x\x64%0100d" % number * 3)
    decoder.head(b"\x82" + b"\xbe" * 100)
    assert 0 < len(decoder._sections) <= 16
    assert max(map(len, decoder._sections)) <= 128
    assert max(head.octets for head in decoder._sections.values()) <= 4096


@cases(
    "octets, number",
    (b"\x04\x10/one-path-of-all", 1),
    (b"\x14\x10/a-secret-path--", 0),
    (b"\0\x09x-api-key\x06secret", 0),
    (b"\x0f\x08\x06secret", 0),  # Authorization
    (b"\x0f\x11\x06secret", 0),  # Cookie
    (b"\x04\x7f\0/" + b"y" * 126, 0),
)
def test_only_short_fields_without_secrets_are_remembered_for_all(octets, number):
    fields_module._literal.cache_clear()
    FieldDecoder(65536).fields(octets)
    FieldDecoder(65536).fields(octets)
    assert fields_module._literal.cache_info()[:2] == (number, number)


def outcome(decode, octets):
    try:
        return [tuple(field) for field in decode(octets)]
    except (HPACKError, IndexError):
        return "an error"


@cases("octets", GET * 3, b"\x10\x01x\x01y" * 3, b"\x40\x01x\x01y" * 3, GET + b"\x40\x01x\x01y" * 2)
def test_a_list_of_fields_is_bounded(octets):
    assert len(FieldDecoder(200).fields(octets)) == 3
    with pytest.raises(OversizedHeaderListError):
        FieldDecoder(80).fields(octets)


def test_codes_longer_than_their_fields_are_not_decoded():
    octets = hpack.Encoder().encode([(b"x", b"\n" * 40)])  # of 73 bytes, as they count
    assert len(octets) > 150
    with pytest.raises(OversizedHeaderListError):
        FieldDecoder(80).fields(octets)


@cases("length, number", (b"0", 0), (b"12", 12), (b"-1", None), (b"1" * 30, None), (b"x", None))
def test_a_length_is_a_number_or_none(length, number):
    assert head_of([*PLAIN, (b"content-length", length)]).length == number
    assert head_of(PLAIN).length is None


# Frames are cut out of octets however they come, and paid for


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
def test_frames_are_whole_however_bytes_come(frames, sizes):
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
