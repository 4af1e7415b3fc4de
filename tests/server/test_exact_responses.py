"""Responses to a client, whatever the application says about framing, dates and interim responses."""

import re

import pytest

from examples import cases

HOST = b"Host: a.example\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
HEAD = b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\n"
OLD = b"GET / HTTP/1.0\r\n" + HOST + b"\r\n"


def application(status, headers=(), *bodies, before=(), read=False):
    """Sends `before`, the head, and each of `bodies`."""

    async def app(scope, receive, send):
        if read:
            await receive()
        for message in before:
            await send(message)
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for body in bodies[:-1]:
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": bodies[-1] if bodies else b""})

    return app


LENGTH = (b"content-length", b"5")
DATE = re.compile(rb"date: [^\r]*\r\n")
CHUNKED = (b"transfer-encoding", b"chunked")


HELLO, IN_TWO, END = [b"hello"], [b"he", b"llo"], b"0\r\n\r\n"
SIZED, CODED, CLOSED = (
    b"content-length: 5\r\n",
    b"transfer-encoding: chunked\r\n\r\n",
    b"connection: close\r\n",
)


@cases(
    "request_, status, headers, bodies, wire_bytes, open_",
    (GET, 200, [LENGTH], HELLO, SIZED + b"\r\nhello", True),
    (GET, 200, [], IN_TWO, CODED + b"2\r\nhe\r\n3\r\nllo\r\n" + END, True),
    (GET, 200, [LENGTH, CHUNKED], HELLO, CODED + b"5\r\nhello\r\n" + END, True),
    (GET, 200, [(b"content-length", b"0005")], HELLO, b"200 OK\r\n" + SIZED + b"\r\nhello", True),
    (GET, 200, [LENGTH, LENGTH], HELLO, b"200 OK\r\n" + SIZED + b"\r\nhello", True),
    (HEAD, 200, [LENGTH], HELLO, SIZED + b"\r\n", True),
    (HEAD, 200, [], HELLO, b"\r\n\r\n", True),
    (GET, 204, [], [], b"\r\n\r\n", True),
    (GET, 204, [(b"content-length", b"0"), CHUNKED], HELLO, b"204 No Content\r\n\r\n", True),
    (GET, 304, [LENGTH, (b"etag", b'"a"')], [], SIZED + b'etag: "a"\r\n\r\n', True),
    (GET, 304, [CHUNKED], IN_TWO, b"304 Not Modified\r\n\r\n", True),
    (HEAD, 304, [LENGTH], HELLO, SIZED + b"\r\n", True),
    (GET, 205, [], [], CODED + END, True),
    (OLD, 200, [LENGTH], HELLO, SIZED + CLOSED + b"\r\nhello", False),
    (OLD, 200, [], IN_TWO, b"200 OK\r\n" + CLOSED + b"\r\nhello", False),
    (OLD, 200, [CHUNKED], HELLO, b"200 OK\r\n" + CLOSED + b"\r\nhello", False),
    (OLD, 304, [CHUNKED], [], b"304 Not Modified\r\n" + CLOSED + b"\r\n", False),
)
async def test_a_response_has_one_way_to_find_its_end(
    wire, request_, status, headers, bodies, wire_bytes, open_
):
    client = wire(application(status, headers, *bodies))
    sent = await client.feed(request_)
    assert DATE.sub(b"", sent).endswith(wire_bytes)
    assert client.open is open_
    assert [answer.status for answer in client.answers(request_.split()[0])] == [status]


@cases(
    "fields", [LENGTH, (b"content-length", b"6")], [(b"content-length", b"5, 6")], [(b"content-length", b"x")]
)
async def test_two_lengths_are_no_response(wire, fields, caplog):
    client = wire(application(200, fields, b"hello!"))
    await client.feed(GET)
    (answer,) = client.answers()
    assert answer.status == (502 if wire.direct else 500)
    caplog.clear()


async def test_an_application_may_name_the_coding_of_a_get(scoped):
    client = scoped(application(200, [CHUNKED], b"hello"))
    assert (await client.feed(HEAD)).endswith(b"transfer-encoding: chunked\r\n\r\n")
    assert [answer.status for answer in client.answers(b"HEAD")] == [200]


@pytest.mark.parametrize("request_", [GET, HEAD])
@pytest.mark.parametrize("status", [204, 304])
async def test_the_next_response_follows_one_without_content(wire, request_, status):
    client = wire(application(status, [LENGTH], b"hello"))
    await client.feed(request_ + request_, request_)
    method = request_.split()[0]
    assert [answer.body for answer in client.answers(method, method, method)] == [b""] * 3


async def test_none_of_them_without_uvicorns(scoped):
    client = scoped(application(200, [LENGTH], b"hello"))
    await client.feed(GET)
    (answer,) = client.answers()
    assert (answer.field(b"date"), answer.field(b"server")) == (None, None)


LINK = (b"Link", b"</a.css>; rel=preload")
HINT = {"type": "http.response.informational", "status": 103, "headers": [LINK]}
EARLY = {"type": "http.response.early_hint", "links": [LINK[1], b"</b.js>; rel=preload"]}
PROCESSING = {"type": "http.response.informational", "status": 102}


async def test_interim_responses_in_their_order(wire):
    client = wire(application(200, [LENGTH], b"hello", before=[PROCESSING, HINT, EARLY]))
    await client.feed(GET + GET)
    link = (b"link", LINK[1])
    for answer in client.answers():
        assert answer.interim == [(102, []), (103, [link]), (103, [link, (b"link", b"</b.js>; rel=preload")])]
        assert (answer.status, answer.body) == (200, b"hello")


async def test_both_kinds_are_advertised(client, recorder):
    await client.feed(GET)
    extensions = recorder.scopes[0]["extensions"]
    assert {"http.response.informational", "http.response.early_hint"} < set(extensions)


async def test_an_interim_response_has_no_content_fields(wire):
    hint = HINT | {"headers": [LINK, LENGTH, CHUNKED]}
    client = wire(application(200, [LENGTH], b"hello", before=[hint]))
    await client.feed(GET)
    assert client.answers()[0].interim == [(103, [(b"link", LINK[1])])]


async def test_http_10_gets_no_interim_response(wire):
    client = wire(application(200, [LENGTH], b"hello", before=[HINT, EARLY]))
    await client.feed(OLD)
    (answer,) = client.answers()
    assert (answer.interim, answer.body) == ([], b"hello")


@cases(
    "message",
    {"type": "http.response.informational", "status": 101},
    {"type": "http.response.informational", "status": 200},
    {"type": "http.response.informational", "status": 99},
    HINT | {"headers": [(b"link", b"a\r\nSet-Cookie: b")]},
    HINT | {"headers": [(b"li nk", b"a")]},
    HINT | {"headers": [(b"", b"a")]},
    {"type": "http.response.early_hint", "links": [b"a\nb"]},
    {"type": "http.response.start", "status": 103, "headers": []},
)
async def test_an_invalid_interim_response_is_the_applications_error(scoped, message, caplog):
    client = scoped(application(200, [LENGTH], b"hello", before=[message]))
    await client.feed(GET)
    (answer,) = client.answers()
    assert (answer.status, answer.interim) == (500, [])
    assert "RuntimeError" in caplog.text


async def test_no_interim_response_after_the_head(scoped, caplog):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [LENGTH]})
        await send(HINT)

    client = scoped(app)
    sent = await client.feed(GET)
    assert b"103" not in sent
    assert not client.open
    assert "Expected ASGI message 'http.response.body'" in caplog.text


EXPECT = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nExpect: 100-Continue\r\n\r\n"


async def test_a_client_that_waits_is_asked_once_to_go_on(client):
    assert await client.feed(EXPECT) == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.feed(b"he", b"llo")
    (answer,) = client.answers(b"POST")
    assert ([status for status, _ in answer.interim], answer.body) == ([100], b"/|hello")
    assert client.open


@pytest.mark.parametrize("come", [b"h", b"hello"])
async def test_a_client_that_has_not_waited_is_not_asked(client, come):
    await client.feed(EXPECT + come)
    await client.feed(b"hello"[len(come) :] or GET)
    answer, *_ = client.answers(b"POST")
    assert (answer.interim, answer.body) == ([], b"/|hello")


async def test_a_relayed_100_reaches_who_waits_and_nobody_else(wire):
    relayed = {"type": "http.response.informational", "status": 100}
    client = wire(application(200, [LENGTH], b"hello", before=[relayed, relayed]))
    await client.feed(EXPECT, b"hello", GET)
    first, second = client.answers(b"POST")
    assert ([status for status, _ in first.interim], second.interim) == ([100], [])


async def test_an_answer_without_asking_for_the_content_ends_the_connection(wire):
    """The client may send it or leave it out: what comes next could be either."""
    client = wire(application(417, [LENGTH], b"hello"))
    await client.feed(EXPECT)
    (answer,) = client.answers(b"POST")
    assert (answer.field(b"connection"), client.open) == (b"close", False)


async def test_http_10_expects_nothing(client, recorder):
    assert await client.feed(EXPECT.replace(b"1.1", b"1.0")) == b""
    await client.feed(b"hello")
    assert recorder.bodies == [b"hello"]
