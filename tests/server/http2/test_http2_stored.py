"""Stored responses are sent while their request is read, and clients see what they would see of a miss."""

import asyncio

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of, cases
from http2_client import (
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE_ERROR,
    GET,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PADDED,
    PING,
    POST,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    Server,
    changed,
    data,
    frame,
    headers,
    rst_stream,
    settings,
    window_update,
)
from neighbours import Watched
from tests.pages import Page

LARGEST = 2**31 - 1
INITIAL = 65_535
WHOLE = END_HEADERS | END_STREAM
PAGES = {b"/": 6, b"/none": 0, b"/page": 20_000, b"/large": 70_000}  # bytes of content
PRIORITIES = b"\0\0\0\0\xff"


async def filled():
    """A server that has stored every page."""
    server = Server()
    stored = ((b"cache-control", b"max-age=60"),)
    server.origin.pages = {path: Page(fields=stored, content=b"x" * size) for path, size in PAGES.items()}
    client = server.connect()
    await client.send(settings((INITIAL_WINDOW_SIZE, LARGEST)), window_update(LARGEST - INITIAL))
    for number, path in enumerate(PAGES):
        await client.ask(2 * number + 1, path=path)
    await client.leave()
    server.origin.asked.clear()
    return server


@pytest.fixture
async def client(connect):
    return connect(await filled())


def page(stream, path=b"/"):
    return headers(stream, changed(GET, path=path))


async def test_a_client_that_reads_nothing_gets_no_more_pages(client):
    """However many are asked for at once, and however large the windows are."""
    await client.send(settings((INITIAL_WINDOW_SIZE, LARGEST)), window_update(LARGEST - INITIAL))
    client.transport.reads = False
    await client.send(*[page(stream, b"/large") for stream in range(1, 121, 2)])
    assert len(client.transport.unread) < 4 * PAGES[b"/large"]
    client.transport.read_again()
    await client.settle()
    assert all(len(client.content(stream)) == PAGES[b"/large"] for stream in range(1, 121, 2))
    assert all(client.has_ended(stream) for stream in range(1, 121, 2))


async def test_stored_and_other_responses_share_the_connection_window(client):
    await client.send(page(1, b"/page"), headers(3, changed(POST, path=b"/large")), page(5, b"/page"))
    assert [len(client.content(stream)) for stream in (1, 3, 5)] == [20_000, INITIAL - 40_000, 20_000]
    await client.send(window_update(30_000))
    assert sum(len(client.content(stream)) for stream in (1, 3, 5)) == INITIAL + 30_000


@pytest.mark.parametrize("others", [[], [3]], ids=["", "a later stream"])
@cases(
    "late, code",
    (rst_stream(1), None),
    (window_update(1, 1), None),
    (window_update(LARGEST, 1), None),
    (frame(PRIORITY, 0, 1, PRIORITIES), None),
    (frame(0x16, 0, 1, b"unknown"), None),
    (frame(RST_STREAM, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    (frame(WINDOW_UPDATE, 0, 1, bytes(5)), FRAME_SIZE_ERROR),
    (window_update(0, 1), PROTOCOL_ERROR),
    (frame(DATA, PADDED, 1, b"\x09x"), PROTOCOL_ERROR),
    (page(1), STREAM_CLOSED),
)
async def test_a_late_frame_does_what_a_closed_stream_says(client, late, code, others):
    await client.send(page(1))
    for stream in others:
        await client.ask(stream, method=b"POST")
    await client.send(late)
    assert client.error == code
    if code is None:
        assert (await client.ask(5))[0] == 200


async def test_content_behind_a_stored_response_ends_its_stream(client):
    await client.send(page(1))
    await client.send(data(1, bytes(16_000)), data(1, bytes(16_000)))
    assert client.resets(1) == [STREAM_CLOSED]
    assert (await client.ask(3))[0] == 200


async def test_a_request_within_a_section_of_fields_is_an_error(client):
    await client.send(headers(1, flags=0, ends=True), page(3))
    assert client.error == PROTOCOL_ERROR


# A client's frames, and the same server with and without hits at a glance.

FIELDS = any_of((b"accept", b"*/*"), (b"x", b"y" * 50), (b"x", b"z" * 50), (b"user-agent", b"a" * 200))
STREAMS = st.integers(0, 9)


class Script:
    """Writes a client's frames; its encoder has a table that changes."""

    def __init__(self):
        self.encoder, self.stream = hpack.Encoder(), -1

    def ask(self, path, fields, flags, skipped):
        self.stream += 2 + 2 * skipped
        base = changed(GET if flags & END_STREAM else POST, path=path)
        octets = self.encoder.encode([*base, *fields])
        return frame(HEADERS, flags, self.stream, (PRIORITIES if flags & PRIORITIZED else b"") + octets)

    def resize(self, size):
        self.encoder.header_table_size = size
        return b""

    def write(self, kind, *arguments):
        match kind:
            case "ask":
                return self.ask(*arguments)
            case "resize":
                return self.resize(*arguments)
            case "stream":
                back, make = arguments
                return make(max(1, self.stream - 2 * back))
            case _:
                return arguments[0]


STEPS = st.one_of(
    st.tuples(
        st.just("ask"),
        any_of(*PAGES, b"/not-stored"),
        st.lists(FIELDS, max_size=2),
        any_of(WHOLE, WHOLE, WHOLE | PRIORITIZED, END_HEADERS),
        any_of(0, 0, 0, 1),
    ),
    st.tuples(st.just("resize"), any_of(0, 100, 4096)),
    st.tuples(
        st.just("stream"),
        STREAMS,
        any_of(
            rst_stream,
            lambda stream: window_update(1000, stream),
            lambda stream: window_update(LARGEST, stream),
            lambda stream: window_update(0, stream),
            lambda stream: data(stream, b"content", ends=True),
            lambda stream: headers(stream, [(b"x", b"y")]),
            lambda stream: frame(PRIORITY, 0, stream, PRIORITIES),
            lambda stream: frame(RST_STREAM, 0, stream, b"\0"),
        ),
    ),
    st.tuples(
        st.just("frame"),
        any_of(
            *(settings((INITIAL_WINDOW_SIZE, size)) for size in (0, 100, 30_000, LARGEST)),
            *(window_update(size) for size in (1, 20_000, 100_000, LARGEST - 200_000)),
            frame(PING, 0, 0, b"question"),
        ),
    ),
)


@given(st.lists(STEPS, max_size=12))
def test_clients_see_the_same_with_and_without_glances(steps):
    script = Script()
    frames = [script.write(*step) for step in steps]
    assert asyncio.run(conversation(frames, glances=True)) == asyncio.run(conversation(frames, glances=False))


async def conversation(frames, *, glances):
    """The frames of each stream, and the end."""
    server = await filled()
    server.listener.service = Watched(server.listener.service, glances=glances)
    client = server.connect()
    for octets in frames:
        await client.send(octets)
    streams = sorted({each.stream for each in client.frames} - {0})
    seen = [
        (sections(client, stream), client.content(stream), client.has_ended(stream)) for stream in streams
    ]
    resets = [set(client.resets(stream)) for stream in streams]
    rest = [each for each in client.of(0) if each.kind != WINDOW_UPDATE]
    await client.leave()
    return streams, seen, resets, rest, client.goodbyes, client.transport.closed


def sections(client, stream):
    """The fields of a stream, but for the time of day."""
    return [[field for field in each.payload if field[0] != b"date"] for each in client.of(stream, HEADERS)]
