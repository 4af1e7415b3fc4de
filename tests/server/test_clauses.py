"""Clauses of RFC 9110 and 9112 about the bytes of HTTP/1.1; docs/conformance.md names the rows."""

import pytest

from exchanges.table import (
    FRESH,
    adds,
    answers,
    asks,
    every,
    goes,
    got,
    play,
    problem,
    replies,
    row,
    sends,
    stays,
    wait,
    wrote,
)

OK = b"HTTP/1.1 200 OK\r\n"
ONE, EMPTY = b" 200 OK\r\nContent-Length: 1\r\n\r\nx", b"Content-Length: 0\r\n\r\n"
NO_STORE, DATE = "Cache-Control: no-store", "date: Mon, 21 Sep 2026 14:13:20 GMT"
CHUNKED, ABC = b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"
LENGTH, EXPECT = b"Content-Length: 3\r\n", b"Expect: 100-continue\r\n"
WEBSOCKET = (
    b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
HINT, OLD = b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"
HALF = b"GET /a HTTP/1.1\r\nHost: en.example\r\n"


def get(fields=b"", version=b"1.1"):
    return sends(HALF.replace(b"1.1", version) + fields + b"\r\n")


def post(fields, content=b""):
    return sends(HALF.replace(b"GET", b"POST") + fields + b"\r\n" + content, b"POST")


def target(method, target, sent):
    """A target that is sent on as another, or refused."""
    ends = goes(target=sent) if sent else (stays(), got(400))
    return row(f"{method} {target}", asks(method=method, target=target), ends)


def value(name, line):
    """A field both ways; `line` is its meaning."""
    octets = b"X: \t " + line + b" \t\r\n"
    seen = f"x: {line.decode()}"
    return row(
        f"whitespace {name} a value", get(octets), goes(seen), replies(OK + octets + EMPTY), got(200, seen)
    )


def kept(name, fields, seen, *, version=b"1.1", is_open=False):
    """A row that tells whether a connection is kept, and what the response says of it."""
    return row(
        name, get(fields, version), goes("-connection"), answers(), got(200, seen), wrote(OK, is_open=is_open)
    )


def versions(version):
    """An exchange with a client of one version and an origin server of HTTP/1.0."""
    sent = goes(f"via: {version} univocal", start=b"GET /a HTTP/1.1")
    return row(
        f"our own version behind HTTP/{version}",
        get(version=version.encode()),
        sent,
        replies(b"HTTP/1.0" + ONE),
        got(200),
        wrote(OK),
    )


def upgrade(version, seen):
    asked = get(b"Connection: Upgrade\r\n" + WEBSOCKET, version.encode())
    return row(f"an upgrade by HTTP/{version}", asked, goes(seen), answers(), got(200))


def lists(name, via, *lines):
    told = goes(via, "x-forwarded-for: 192.0.2.1", "forwarded: for=192.0.2.1;host=en.example;proto=http")
    return row(f"lists of ours behind {name}", asks(*lines), told)


def expects(name, fields, begin, seen):
    asked = post(fields + LENGTH), wait(2), wrote(begin), adds(b"abc")
    return row(f"who expects {name}", *asked, goes(seen, content=b"abc"))


def answered(name, octets, status, *seen, begins=b"", interims=()):
    """A row about the response to a client for these bytes of an origin server."""
    return row(name, asks(), replies(octets), got(status, *seen, interims=interims), wrote(begins))


def framed(name, head, content, status=200, *, is_whole=True):
    """A row that tells whether content is whole, and so stored."""
    is_stored = status == 200 and is_whole
    answer = replies(OK + FRESH.encode() + b"\r\n" + head + b"\r\n" + content, close=True)
    seen = got(status, content=b"abc" if status == 200 else None, complete=is_whole)
    return row(f"a response of {name}", asks(), answer, seen, asks(), stays() if is_stored else goes())


def connection(name, octets, *, is_used):
    """A row that tells whether the connection to the origin server is used again behind a response."""

    async def same(stage):
        first, second = stage.served
        assert (second.wire is first.wire) is is_used

    return row(f"the connection behind {name}", asks(NO_STORE), replies(octets), asks(NO_STORE), same)


def until_the_end(version, seen, *, is_open):
    answer = replies(OK + b"\r\nabc", close=True), got(200, seen, content=b"abc"), wrote(OK, is_open=is_open)
    return row(f"content without a length to HTTP/{version}", get(version=version.encode()), *answer)


ROWS = [
    row("HTTP/1.2 is read as 1.1", get(version=b"1.2"), goes(start=b"GET /a HTTP/1.1")),
    row("one Host", get(), goes("host: en.example")),
    target("GET", "/a?b", "/a?b"),
    target("GET", "http://en.example/a?b", "/a?b"),
    target("GET", "http://en.example?b", "/?b"),
    target("GET", "en.example:80", ""),
    target("OPTIONS", "*", "*"),
    target("OPTIONS", "http://en.example", "*"),
    target("OPTIONS", "http://en.example/", "/"),
    "the host of an absolute target counts",
    asks(target="http://other.example/a"),
    goes("host: other.example"),
    row("https on http", asks(target="https://en.example/a"), stays(), got(421)),
    row("http on http", asks(target="http://en.example/a"), goes(target="/a")),
    row("content in chunks", post(CHUNKED, ABC), goes("-content-length", content=b"abc")),
    row("content of a length", post(LENGTH, b"abc"), goes("content-length: 3", content=b"abc")),
    "a length with a zero",
    post(b"Content-Length: 03\r\n", b"abc"),
    goes("content-length: 3", content=b"abc"),
    row("neither a length nor chunks", post(b""), goes(content=b"")),
    row("no last chunk", post(CHUNKED, ABC[:-5]), stays(), wait(70), got(408), wrote(b"", is_open=False)),
    value("around", b"a"),
    value("within", b"a  b"),
    kept("HTTP/1.1 is kept", b"", "-connection", is_open=True),
    kept("HTTP/1.1 is kept, but for close", b"Connection: close\r\n", "connection: close"),
    kept("HTTP/1.0 is not kept", b"Connection: keep-alive\r\n", "connection: close", version=b"1.0"),
    "the length for HTTP/1.0",
    get(b"Connection: keep-alive\r\n", b"1.0"),
    replies(OK + LENGTH + b"\r\nabc"),
    got(200, "content-length: 3", content=b"abc"),
    wrote(OK, is_open=False),
    versions("1.0"),
    versions("1.1"),
    upgrade("1.0", "-upgrade"),
    upgrade("1.1", "upgrade: websocket"),
    lists("a proxy", "via: 1.0 front, 1.1 univocal", "Via: 1.0 front", "X-Forwarded-For: 198.51.100.1"),
    lists("nobody", "via: 1.1 univocal"),
    row("the date of a refusal", asks(target="/a/../b"), got(400, DATE), problem("dot-segment")),
    row("the date of a response", asks(), answers(), got(200, DATE)),
    expects("100-Continue", b"Expect: 100-Continue\r\n", b"HTTP/1.1 100 ", "-x"),
    expects("nothing", b"", b"", "-expect"),
    expects("something else", b"Expect: odd\r\n", b"", "expect: odd"),
    row("no expectation without content", post(EXPECT), wait(2), goes("-expect", "-content-length")),
    "no expectation of no content",
    post(EXPECT + EMPTY[:-2]),
    wait(2),
    goes("-expect", "content-length: 0"),
    row("an expectation with content", post(EXPECT + LENGTH, b"abc"), wait(2), goes("expect ~ 100")),
    "a head that ends too late",
    sends(HALF),
    wait(20),
    adds(b"\r\n"),
    stays(),
    got(408, "connection: close"),
    row("a head that ends in time", sends(HALF), wait(10), adds(b"\r\n"), goes()),
    # bytes of the origin server
    answered("HTTP/1.1 of an origin server", b"HTTP/1.1" + ONE, 200),
    answered("HTTP/1.2 of an origin server", b"HTTP/1.2" + ONE, 200),
    answered("HTTP/2.0 of an origin server", b"HTTP/2.0" + ONE, 502),
    answered(
        "a status line with no phrase", b"HTTP/1.1 299 Odd\r\n" + EMPTY, 299, begins=b"HTTP/1.1 299 \r\n"
    ),
    answered(
        "a status line with a phrase", b"HTTP/1.1 200 Odd\r\n" + EMPTY, 200, begins=b"HTTP/1.1 200 OK\r\n"
    ),
    answered("a response with CRLF", OK + b"X: y\r\n" + EMPTY, 200, "x: y"),
    answered("a response with a blank before a colon", OK + b"X : y\r\n" + EMPTY, 502, "-x"),
    answered("a response with a folded line", OK + b"X: y\r\n z\r\n" + EMPTY, 502, "-x"),
    answered("a response with 60,000 bytes of fields", OK + b"X: " + b"y" * 60_000 + b"\r\n" + EMPTY, 200),
    answered("a response with 70,000 bytes of fields", OK + b"X: " + b"y" * 70_000 + b"\r\n" + EMPTY, 502),
    answered("32 interim responses", HINT * 32 + OK + EMPTY, 200, interims=(103,) * 32),
    answered("33 interim responses", HINT * 33 + OK + EMPTY, 502, interims=(103,) * 32),
    framed("a length", LENGTH, b"abc"),
    framed("chunks", CHUNKED, ABC),
    framed("neither", b"", b"abc"),
    framed("less than its length", b"Content-Length: 4\r\n", b"abc", is_whole=False),
    framed("no last chunk", CHUNKED, ABC[:-5], is_whole=False),
    framed("both", LENGTH + CHUNKED, ABC, 502),
    framed("a length that is no number", b"Content-Length: x\r\n", b"abc", 502),
    framed("a compressing coding", b"Transfer-Encoding: gzip, chunked\r\n", ABC, 502),
    connection("HTTP/1.1 with a coding", OK + CHUNKED + b"\r\n0\r\n\r\n", is_used=True),
    connection("HTTP/1.0 with a coding", OLD + CHUNKED + b"\r\n0\r\n\r\n", is_used=False),
    connection("close", OK + b"Connection: close\r\n" + EMPTY, is_used=False),
    until_the_end("1.0", "-transfer-encoding", is_open=False),
    until_the_end("1.1", "transfer-encoding: chunked", is_open=True),
]


@pytest.mark.parametrize("row", every(ROWS))
async def test_clauses_of_messages_are_kept(row):
    await play(row._replace(ways=("http1",)), ["whole"])
