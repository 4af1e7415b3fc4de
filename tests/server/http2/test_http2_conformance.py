"""Frames, and the reactions of a server that RFC 9113 §3 to §8 and RFC 7541 want."""

import pytest

from http2_client import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GET,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PADDED,
    PING,
    POST,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    block,
    changed,
    data,
    frame,
    headers,
    rst_stream,
    settings,
    window_update,
)
from tests.pages import Page

ENABLE_PUSH, ALTSVC = 2, 10
LARGEST = 2**31 - 1
OPEN = headers(1, POST, ends=False)  # a stream on which content may follow
WHOLE = headers(1)
PRIORITIES = b"\0\0\0\0\xff"


def section(octets, stream=1, *, ends=True):
    """A HEADERS frame with this section of fields behind the usual one."""
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream, block(GET) + octets)


def coded(value):
    """A HEADERS frame with a field whose value is coded, as is its name."""
    return section(b"\0\x85\xf2\xb2\x4a\x84\xff" + value)


BEGUN, TRAILERS = headers(1, flags=0), headers(1, [(b"x", b"y")])
PIECE, CONTENT = data(1, b"content"), data(1, b"content", ends=True)
OVERPADDED = frame(DATA, PADDED | END_STREAM, 1, b"\x06test")
GOES_ON = frame(CONTINUATION, END_HEADERS, 1, block([(b"x", b"y")]))


INTERIM = headers(1, [(b":status", b"103"), *POST], ends=False)
UNENDED = headers(1, [(b"x", b"y")], ends=False)
LENGTHS = [(b"content-length", b"7"), (b"content-length", b"8")]


def sized(length):
    """The head of a request with this Content-Length."""
    return headers(1, [*POST, (b"content-length", length)], ends=False)


def get(name, value):
    """A request with this field."""
    return headers(1, [*GET, (name, value)])


def by_error(table):
    rows = [(codes, frames, name) for codes, rows in table.items() for name, frames in rows.items()]
    return pytest.mark.parametrize(("codes", "frames"), [pytest.param(*row[:2], id=row[2]) for row in rows])


# Errors of a connection, and the frames of which each ends it.
CONNECTION_ERRORS = {
    (FRAME_SIZE_ERROR,): {
        "4.2 a HEADERS frame longer than SETTINGS_MAX_FRAME_SIZE": [frame(HEADERS, 5, 1, bytes(16385))],
        "4.2 a DATA frame longer than that": [OPEN, data(1, bytes(16385))],
        "6.3 PRIORITY of four octets": [WHOLE, frame(PRIORITY, 0, 1, bytes(4))],
        "6.4 RST_STREAM of three octets": [OPEN, frame(RST_STREAM, 0, 1, bytes(3))],
        "6.5 an acknowledgement of SETTINGS with a payload": [frame(SETTINGS, ACK, 0, b"\0")],
        "6.7 PING of six octets": [frame(PING, 0, 0, bytes(6))],
        "6.9 WINDOW_UPDATE of three octets": [frame(WINDOW_UPDATE, 0, 0, bytes(3))],
    },
    (COMPRESSION_ERROR,): {
        "4.3 a section of fields that ends within a field": [frame(HEADERS, 5, 1, b"\x40")],
        "7541 2.3.3 an index behind the tables": [section(b"\xc6")],
        "7541 2.3.3 a name's index behind the tables": [section(b"\x7f\x07\0")],
        "7541 4.2 a size of the table behind fields": [section(b"\x21")],
        "7541 5.2 padding of more than seven bits": [coded(b"\x84\x49\x50\x9f\xff")],
        "7541 5.2 padding by zeros": [coded(b"\x83\x49\x50\x90")],
        "7541 5.2 the sign for the end of a string": [coded(b"\x87\x49\x51\xff\xff\xff\xfa\x7f")],
        "7541 6.1 index 0": [section(b"\x80")],
        "7541 6.3 a table larger than the setting": [
            frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x3f\xe2\x1f" + block(GET))
        ],
    },
    (PROTOCOL_ERROR,): {
        "4.3 PRIORITY within a section of fields": [BEGUN, frame(PRIORITY, 0, 1, PRIORITIES)],
        "4.3 another stream's HEADERS within a section of fields": [BEGUN, headers(3)],
        "5.1 RST_STREAM on an idle stream": [rst_stream(1)],
        "5.1 RST_STREAM on an idle stream behind others": [OPEN, rst_stream(3)],
        "5.1 RST_STREAM on a stream of the server": [headers(5), rst_stream(2)],
        "5.1 WINDOW_UPDATE on an idle stream": [window_update(100, 1)],
        "5.1 CONTINUATION on an idle stream": [frame(CONTINUATION, END_HEADERS, 1, block(GET))],
        "5.1.1 an even stream identifier": [headers(2)],
        "5.1.1 a lower stream identifier": [headers(5), headers(3)],
        "5.5 an unknown frame within a section of fields": [BEGUN, frame(0x16, 0, 0, bytes(8))],
        "6.1 DATA on stream 0": [data(0, b"content")],
        "6.1 more padding than payload": [OPEN, OVERPADDED],
        "6.1 more padding than payload, and a length": [sized(b"4"), OVERPADDED],
        "6.2 HEADERS on stream 0": [headers(0)],
        "6.2 HEADERS with more padding than payload": [
            frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, b"\x7f" + block(GET)[:20])
        ],
        "6.3 PRIORITY on stream 0": [frame(PRIORITY, 0, 0, PRIORITIES)],
        "6.4 RST_STREAM on stream 0": [rst_stream(0)],
        "6.5 SETTINGS on a stream": [frame(SETTINGS, 0, 1, bytes(6))],
        "6.5.2 SETTINGS_ENABLE_PUSH of 2": [settings((ENABLE_PUSH, 2))],
        "6.5.2 frames that are too short": [settings((MAX_FRAME_SIZE, 16383))],
        "6.5.2 frames that are too long": [settings((MAX_FRAME_SIZE, 2**24))],
        "6.7 PING on a stream": [frame(PING, 0, 3, bytes(8))],
        "6.8 GOAWAY on a stream": [frame(GOAWAY, 0, 1, bytes(8))],
        "6.9 WINDOW_UPDATE of nothing": [window_update(0)],
        "6.10 DATA within a section of fields": [headers(1, POST, ends=False, flags=0), CONTENT],
        "6.10 CONTINUATION on stream 0": [BEGUN, frame(CONTINUATION, END_HEADERS, 0, block([(b"x", b"y")]))],
        "6.10 CONTINUATION that goes on behind a reset": [sized(b"1"), PIECE, frame(CONTINUATION, 0, 1)],
        "8.1 a second section of fields that ends nothing": [OPEN, PIECE, UNENDED],
        "8.4 PUSH_PROMISE": [frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\x03" + block(GET))],
        "8.4 PUSH_PROMISE whose fields go on": [frame(PUSH_PROMISE, 0, 1, b"\0\0\0\x02")],
    },
    (PROTOCOL_ERROR, STREAM_CLOSED): {
        "5.1 DATA on an idle stream": [PIECE],
        "5.1 CONTINUATION behind a whole request": [WHOLE, GOES_ON],
        "5.1 CONTINUATION behind RST_STREAM": [OPEN, rst_stream(1), GOES_ON],
        "6.10 CONTINUATION behind the end of a section": [BEGUN, *[GOES_ON] * 2],
        "6.10 CONTINUATION behind DATA": [OPEN, CONTENT, GOES_ON],
    },
    (FRAME_SIZE_ERROR, PROTOCOL_ERROR): {
        "6.5 SETTINGS of three octets": [frame(SETTINGS, 0, 0, bytes(3))],
        "6.8 GOAWAY of four octets": [frame(GOAWAY, 0, 0, bytes(4))],
    },
    (FLOW_CONTROL_ERROR,): {
        "6.5.2 an initial window above the largest": [settings((INITIAL_WINDOW_SIZE, LARGEST + 1))],
        "6.9.1 a connection's window above the largest": [window_update(LARGEST)] * 2,
    },
}


@by_error(CONNECTION_ERRORS)
async def test_the_connection_ends_at(client, codes, frames):
    await client.send(*frames)
    assert client.error in codes


async def test_the_connection_ends_at_fields_on_a_closed_stream(client):
    await client.send(WHOLE)
    await client.send(WHOLE)
    assert client.error == STREAM_CLOSED


@pytest.mark.parametrize("first", [WHOLE, frame(PING, 0, 0, bytes(8)), frame(SETTINGS, ACK)])
async def test_the_connection_ends_without_settings_at_first(connect, first):
    """RFC 9113 §3.4."""
    client = connect(greets=False)
    await client.send(PREFACE, first)
    assert client.error == PROTOCOL_ERROR
    assert client.server.origin.asked == []


async def test_the_connection_ends_at_another_preface(connect):
    client = connect(greets=False)
    await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.error == PROTOCOL_ERROR


# Errors that end one stream. The origin server has not answered by then.
STREAM_ERRORS = {
    STREAM_CLOSED: {
        "5.1 DATA behind a whole request": [WHOLE, PIECE],
        "5.1 DATA behind content of its length": [sized(b"7"), CONTENT, PIECE],
        "5.1 DATA behind trailers": [sized(b"7"), PIECE, TRAILERS, PIECE],
        "5.1 HEADERS behind a whole request": [WHOLE, WHOLE],
        "5.1 DATA behind RST_STREAM": [OPEN, rst_stream(1), PIECE],
        "5.1 HEADERS behind RST_STREAM": [OPEN, rst_stream(1), headers(1, POST)],
    },
    FLOW_CONTROL_ERROR: {
        "6.9.1 a stream's window above the largest": [OPEN, *[window_update(LARGEST, 1)] * 2]
    },
    PROTOCOL_ERROR: {
        "8.1.1 content longer than its length": [sized(b"1"), CONTENT],
        "8.1.1 content in frames longer than its length": [sized(b"13"), PIECE, CONTENT],
        "8.1.1 content shorter than its length": [sized(b"9"), CONTENT],
        "8.1.1 trailers before all of the content": [sized(b"9"), data(1, b"four"), TRAILERS],
        "8.1.1 no content, and a length": [headers(1, [*POST, (b"content-length", b"9")])],
        "8.1.1 a length that is no number": [get(b"content-length", b"x")],
        "8.1.1 a length with a sign": [sized(b"+7"), CONTENT],
        "8.1.1 no digit in a length": [headers(1, [*POST, (b"content-length", b"")])],
        "8.1.1 a length of too many digits": [sized(b"9" * 5000)],
        "8.1.1 two lengths that differ": [headers(1, [*POST, *LENGTHS], ends=False)],
        "8.1.1 a length in trailers that is no number": [
            OPEN + PIECE,
            headers(1, [(b"content-length", b"x")]),
        ],
        "8.1 a pseudo-header field in trailers": [OPEN, PIECE, headers(1, [(b":method", b"POST")])],
        "8.2.1 a name in capitals": [get(b"X-Test", b"y")],
        "8.2.1 a name with a blank": [get(b"x test", b"y")],
        "8.2.1 a name with a colon": [get(b"x:test", b"y")],
        "8.2.1 no name": [get(b"", b"y")],
        "8.2.1 a comma in a name": [get(b"x,test", b"y")],
        "8.2.1 a line break in a value": [get(b"x", b"a\r\nb: c")],
        "8.2.1 a line feed in a value": [get(b"x", b"a\nb")],
        "8.2.1 NUL in a value": [get(b"x", b"a\0b")],
        "8.2.1 a blank before a value": [get(b"x", b" a")],
        "8.2.1 a tab behind a value": [get(b"x", b"a\t")],
        "8.2.1 a line break in :path": [headers(1, changed(GET, path=b"/ HTTP/1.1\r\nx: y"))],
        "8.2.2 Connection": [get(b"connection", b"keep-alive")],
        "8.2.2 Keep-Alive": [get(b"keep-alive", b"timeout=5")],
        "8.2.2 Proxy-Connection": [get(b"proxy-connection", b"close")],
        "8.2.2 Transfer-Encoding": [get(b"transfer-encoding", b"chunked")],
        "8.2.2 Upgrade": [get(b"upgrade", b"h2c")],
        "8.2.2 TE with more than trailers": [get(b"te", b"trailers, deflate")],
        "8.3 an unknown pseudo-header field": [get(b":test", b"y")],
        "8.3 a response's pseudo-header field": [get(b":status", b"200")],
        "8.3 an interim response's status": [get(b":status", b"100")],
        "8.3 an interim response's status before content": [INTERIM, CONTENT],
        "8.3 an interim response's status in trailers": [OPEN, PIECE, headers(1, [(b":status", b"100")])],
        "8.3 a pseudo-header field behind others": [headers(1, [(b"x", b"y"), *GET])],
        "8.3 two methods": [headers(1, [GET[0], *GET])],
        "8.3 two schemes": [headers(1, [GET[1], *GET])],
        "8.3 two paths": [headers(1, [GET[2], *GET])],
        "8.3 two authorities": [headers(1, [GET[3], *GET])],
        "8.3.1 an empty path": [headers(1, changed(GET, path=b""))],
        "8.3.1 no path": [headers(1, changed(GET, path=None))],
        "8.3.1 no method": [headers(1, changed(GET, method=None))],
        "8.3.1 no scheme": [headers(1, changed(GET, scheme=None))],
        "8.5 CONNECT with a path": [headers(1, changed(GET, method=b"CONNECT"))],
        "8441 4 :protocol without CONNECT": [get(b":protocol", b"websocket")],
    },
}


@by_error(STREAM_ERRORS)
async def test_one_stream_ends_at(connect, codes, frames):
    client = connect(holds=True)
    await client.send(*frames)
    assert codes in client.resets(1)
    client.server.origin.holds = False
    assert (await client.ask(7))[0] == 200  # the connection goes on


async def test_a_malformed_request_is_told_why(client):
    """RFC 9113 §8.1.1: a response may come before the reset."""
    status, fields, content = await client.ask(1, [(b"Upper", b"case")])
    assert (status, b'"bad-framing"' in content) == (400, True)
    assert fields[b"content-type"] == b"application/problem+json"
    assert not client.has_ended(1)
    assert client.resets(1) == [PROTOCOL_ERROR]


# Frames that change nothing.
IGNORED = {
    "4.1 an unknown frame": [frame(0x16, 0, 0, bytes(8))],
    "4.1 an unknown flag": [frame(PING, 0x16, 0, bytes(8))],
    "4.1 the reserved bit": [b"\0\0\x08\x06\0\x80\0\0\0" + bytes(8)],
    "5.1 WINDOW_UPDATE on a closed stream": [window_update(100, 1)],
    "5.1 RST_STREAM on a closed stream": [rst_stream(1)],
    "5.1 PRIORITY on a closed stream": [frame(PRIORITY, 0, 1, PRIORITIES)],
    "5.1 PRIORITY on an idle stream": [frame(PRIORITY, 0, 9, PRIORITIES)],
    "5.3.1 PRIORITY that depends on a stream": [frame(PRIORITY, 0, 9, b"\x80\0\0\x01\xff")],
    "6.5.2 an unknown setting": [settings((0xFF, 1))],
    "6.7 an acknowledgement that nobody waits for": [frame(PING, ACK, 0, b"strange!")],
    "6.9 WINDOW_UPDATE": [window_update(100)],
    "6.9 WINDOW_UPDATE with the reserved bit": [window_update(2**31 + 100)],
    "6.9 WINDOW_UPDATE of a stream with the reserved bit": [
        headers(9, POST, ends=False),
        window_update(2**31 + 100, 9),
    ],
    "7838 4 ALTSVC of a client": [frame(ALTSVC, 0, 0, b"\0\x09x")],
    "7838 4 ALTSVC on a stream": [headers(9, POST, ends=False), frame(ALTSVC, 0, 9, b"\0")],
}


@pytest.mark.parametrize("name", IGNORED)
async def test_the_connection_goes_on_behind(client, name):
    await client.send(WHOLE)
    await client.send(*IGNORED[name], frame(PING, 0, 0, b"question"))
    assert (PING, ACK, 0, b"question") in client.frames
    assert (await client.ask(11))[0] == 200
    assert not client.transport.closed


# Requests that are answered, however their frames are made.
REQUESTS = {
    "4.2 DATA of 2^14 octets": [OPEN, data(1, bytes(16384), ends=True)],
    "6.1 DATA with padding": [OPEN, frame(DATA, PADDED | END_STREAM, 1, b"\x03content\0\0\0")],
    "6.1 DATA in several frames": [OPEN, data(1, b"con"), data(1, b"tent"), data(1, ends=True)],
    "6.2 HEADERS with padding": [frame(HEADERS, 13, 1, b"\x05" + block(GET) + bytes(5))],
    "6.2 HEADERS with a priority": [frame(HEADERS, 5 | PRIORITIZED, 1, b"\x80\0\0\x09\xff" + block(GET))],
    "6.10 CONTINUATION": [BEGUN, frame(CONTINUATION, 0, 1, block([(b"x", b"y")])), GOES_ON],
    "8.1 trailers": [OPEN, PIECE, TRAILERS],
    "8.1.1 content of its length": [sized(b"7"), CONTENT],
    "8.2.2 TE with trailers": [get(b"te", b"trailers")],
    "8.3.1 HEAD": [headers(1, changed(GET, method=b"HEAD"))],
    "8.3.1 Host without an authority": [
        headers(1, [*changed(GET, authority=None), (b"host", b"en.example")])
    ],
    "7541 6.1 an indexed field": [frame(HEADERS, 5, 1, b"\x82\x87\x84" + block(GET[3:]))],
    "7541 6.2.1 a field that enters the table": [frame(HEADERS, 5, 1, block(GET) + b"\x40\x01x\x01y")],
    "7541 6.2.1 a field with an indexed name": [frame(HEADERS, 5, 1, b"\x82\x87\x84\x41\x0aen.example")],
    "7541 6.2.2 a field with a coded value": [frame(HEADERS, 5, 1, block(GET) + b"\0\x81\xf3\x81\xf5")],
    "7541 6.2.3 a field that never enters a table": [frame(HEADERS, 5, 1, block(GET) + b"\x10\x01x\x01y")],
    "7541 6.3 sizes of the table": [frame(HEADERS, 5, 1, b"\x20\x3f\xe1\x1f" + block(GET))],
    "a PRIORITY frame before": [frame(PRIORITY, 0, 3, PRIORITIES), WHOLE],
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_request_is_answered(client, name):
    await client.send(*REQUESTS[name])
    assert client.head(1)[0] == 200
    assert client.has_ended(1)
    assert client.resets(1) == []


@pytest.mark.parametrize("name", REQUESTS)
async def test_bytes_may_come_one_by_one(connect, name):
    client = connect(greets=False)
    for octet in PREFACE + settings() + b"".join(REQUESTS[name]):
        client.give(bytes((octet,)))
    await client.settle()
    assert client.head(1)[0] == 200
    assert client.has_ended(1)


async def test_settings_come_first_and_are_acknowledged(connect):
    client = connect(greets=False)
    await client.settle()
    assert client.frames[0][:3] == (SETTINGS, 0, 0)
    await client.send(PREFACE, settings((ENABLE_PUSH, 0)))
    assert (SETTINGS, ACK, 0, b"") in client.frames


@pytest.mark.parametrize("sizes", [[(4, 100), (4, 1)], [(4, 1)]])
async def test_content_stays_within_the_initial_window(client, sizes):
    await client.send(settings(*sizes))
    await client.send(WHOLE)
    assert [each.payload for each in client.of(1, DATA)] == [b"a"]
    assert not client.has_ended(1)


async def test_a_change_of_the_initial_window_changes_open_streams(client):
    await client.send(settings((INITIAL_WINDOW_SIZE, 0)))
    await client.send(WHOLE)
    assert client.of(1, DATA) == []
    await client.send(settings((INITIAL_WINDOW_SIZE, 1)))
    assert client.content(1) == b"a"


async def test_a_window_may_be_negative(client):
    await client.send(settings((INITIAL_WINDOW_SIZE, 3)))
    await client.send(WHOLE)
    assert client.content(1) == b"ans"
    await client.send(settings((INITIAL_WINDOW_SIZE, 2)))
    await client.send(window_update(1, 1))
    assert client.content(1) == b"ans"
    await client.send(window_update(1, 1))
    assert client.content(1) == b"answ"


async def test_streams_beyond_the_bound_are_refused_alone(connect):
    client = connect(holds=True)
    await client.send(*[headers(2 * number + 1) for number in range(102)])
    assert [client.resets(number) for number in (199, 201, 203)] == [[], [7], [7]]
    client.server.origin.holds = False
    for asked in client.server.origin.asked:
        asked.answer()
    await client.settle()
    assert all(client.has_ended(2 * number + 1) for number in range(100))
    assert (await client.ask(205))[0] == 200


async def test_a_frame_with_the_reserved_bit_opens_its_window(client):
    await client.send(settings((INITIAL_WINDOW_SIZE, 0)), WHOLE)
    await client.send(window_update(2**31 + 3, 1))
    assert client.content(1) == b"ans"


async def test_settings_beside_unknown_ones_count(client):
    await client.send(settings((0xFF, 7), (INITIAL_WINDOW_SIZE, 1), (0x0104, 9)))
    await client.send(WHOLE)
    assert client.content(1) == b"a"


async def test_an_unknown_error_in_goaway_means_nothing(connect):
    client = connect(page=Page(content=b"x" * 100_000))
    await client.send(WHOLE, frame(GOAWAY, 0, 0, bytes(4) + b"\0\0\0\xff"), frame(PING, 0, 0, b"question"))
    assert (PING, ACK, 0, b"question") in client.frames
    assert len(client.content(1)) == 65535
    await client.send(window_update(100_000), window_update(100_000, 1))
    assert len(client.content(1)) == 100_000
