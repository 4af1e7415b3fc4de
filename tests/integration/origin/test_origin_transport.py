"""Requests and responses over real sockets: exact bytes, content both ways, connections used again."""

import asyncio

import httpx
import pytest

OK = b"HTTP/1.1 200 OK\r\n"
TARGETS = [
    b"/",
    b"/a/../b",
    b"/a/./b/..",
    b"/%2e/",
    b"/%2E%2e/%2f",
    b"/a%zz",
    b"/%",
    b"//a//b",
    b'/a|b{c}^`"<>\\',
    b"/\xc3\xa9\xff\x80",
    b"/a?b?c&d=%20+",
    b"/a?",
    b"/?#f",
    b"/a;b=c/..;/d",
    b"*",
    b"http://other.example/x/../y",
    b"x",
    b"/%u002e",
    b"/" + b"a" * 8000,
]


async def echo(peer):
    while True:
        head = await peer.head()
        await peer.answer(head + await peer.content())


async def test_every_target_arrives_byte_for_byte(serve, answered):
    origin = await serve(echo)
    for target in TARGETS:
        await answered(origin, target)
    assert [head.split(b" ")[1] for head in origin.heads] == TARGETS


async def test_head_is_the_fields_in_order_and_nothing_else(serve, answered):
    origin = await serve(echo)
    fields = [(b"B", b"1"), (b"a", b""), (b"b", b"\xff 2"), (b"a", b"3")]
    _, content = await answered(origin, b"/x", method="OPTIONS", fields=fields)
    assert content == b"OPTIONS /x HTTP/1.1\r\nhost: en.example\r\nB: 1\r\na: \r\nb: \xff 2\r\na: 3\r\n\r\n"


async def test_response_fields_are_lower_case_in_order_with_repeats(serve, transport, ask):
    async def script(peer):
        await peer.head()
        await peer.send(
            b"HTTP/1.1 404 Nein\r\nSet-Cookie: a=1\r\nX:  y\xff \t\r\n"
            b"sEt-CoOkIe: b=2\r\nContent-Length: 2\r\n\r\nno"
        )

    response = await transport.handle_async_request(ask(await serve(script)))
    assert response.status_code == 404
    assert response.headers.raw == [
        (b"set-cookie", b"a=1"), (b"x", b"y\xff"), (b"set-cookie", b"b=2"), (b"content-length", b"2"),
    ]  # fmt: skip
    assert response.extensions["http_version"] == b"HTTP/1.1"
    assert [chunk async for chunk in response.stream] == [b"no"]


@pytest.mark.parametrize(
    ("fields", "chunks", "wire"),
    [
        ([(b"content-length", b"5")], [b"he", b"", b"llo"], b"hello"),
        ([(b"Transfer-Encoding", b"Chunked")], [b"he", b"", b"llo"], b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
        ([(b"transfer-encoding", b"chunked")], [], b"0\r\n\r\n"),
        ([(b"content-length", b"0")], [], b""),
        ([], [b"ignored: nothing announces it"], b""),
    ],
)
async def test_content_goes_out_as_the_fields_frame_it(serve, answered, fields, chunks, wire):
    async def script(peer):
        await peer.head()
        received = await peer.reader.readexactly(len(wire))
        await peer.answer(received)

    origin = await serve(script)
    assert await answered(origin, method="POST", fields=fields, content=chunks) == (200, wire)


async def test_one_connection_serves_request_after_request(serve, answered):
    origin = await serve(echo)
    for number in range(20):
        await answered(origin, b"/%d" % number)
        await answered(origin, method="POST", fields=[(b"content-length", b"2")], content=[b"ab"])
        await answered(
            origin, method="PUT", fields=[(b"transfer-encoding", b"chunked")], content=[b"ab", b"c"]
        )
    assert origin.accepted == 1


async def test_the_connection_last_put_back_is_taken_first(serve, answered):
    async def script(peer):
        while True:
            await peer.head()
            used.append(peer)
            await peer.answer()

    used = []
    origin = await serve(script)
    await asyncio.gather(*(answered(origin) for _ in range(5)))
    assert origin.accepted == 5
    used.clear()
    for _ in range(20):
        await answered(origin)
    assert len(set(used)) == 1


@pytest.mark.parametrize(
    ("response", "content", "reused"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc", b"abc", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\nabc", b"abc", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc", True),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n3\r\nabc\r\n"
         b"0\r\n\r\n", b"abc", False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n", b"abc", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\n\r\n", b"ab\n", False),
        (OK + b"Content-Length: 4\r\n\r\n\r\n\r\n", b"\r\n\r\n", True),
        (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", b"abc", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", b"abc", True),
        (b"HTTP/1.2 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3 \t\r\nabc\r\n0 \r\n\r\n", b"abc", True),
        (b"HTTP/1.1 103 Early Hints\r\nConnection: close\r\n\r\n" + OK
         + b"Content-Length: 3\r\n\r\nabc", b"abc", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", False),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", b"", False),
        (OK + b"Content-Length: 3\r\n\r\nabcdef", b"abc", False),
        (OK + b"Content-Length: 3\r\n\r\nabc\r\n", b"abc", False),
        (OK + b"Content-Length: 0\r\n\r\n\r\n", b"", False),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", b"", False),
        (OK + b"Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"abc", False),
        (OK + b"Content-Length: 3\r\nConnection: close\r\n\r\nabcd", b"abc", False),
    ],
)  # fmt: skip
async def test_which_connections_are_used_again(serve, answered, response, content, reused):
    async def script(peer):
        while True:
            await peer.head()
            await peer.send(response)

    origin = await serve(script)
    for _ in range(3):
        _, received = await answered(origin)
        assert received == content
    assert origin.accepted == (1 if reused else 3)


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (OK + b"\r\nabc", b"abc"),
        (b"HTTP/1.0 200 OK\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\n\nabc", b"abc"),
    ],
)
async def test_content_that_ends_with_the_connection(serve, answered, response, content):
    async def script(peer):
        await peer.head()
        await peer.send(response)

    assert await answered(await serve(script)) == (200, content)


@pytest.mark.parametrize(
    "fields",
    [b"Content-Length: 10\r\n", b"", b"Transfer-Encoding: chunked\r\n", b"Connection: Close\r\n"],
)
async def test_head_has_no_content(serve, answered, fields):
    async def script(peer):
        while True:
            await peer.head()
            await peer.send(OK + fields + b"\r\n")

    origin = await serve(script)
    for _ in range(3):
        assert await answered(origin, method="HEAD") == (200, b"")
    assert origin.accepted == 3


async def test_content_after_the_response_to_head_is_nobodys(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(OK + b"Content-Length: 3\r\n\r\nabc")
        await peer.forever()

    origin = await serve(script)
    for _ in range(2):
        assert await answered(origin, method="HEAD") == (200, b"")
    assert origin.accepted == 2


async def test_informational_responses_are_passed_on_in_order(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n")
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 Odd\r\n\r\n")
        await peer.answer(b"abc")

    seen = []
    origin = await serve(script)
    assert await answered(origin, informational=lambda *told: seen.append(told)) == (200, b"abc")
    assert seen == [
        (103, [(b"link", b"</a>"), (b"link", b"</b>")]),
        (102, []),
        (199, []),
    ]


async def test_informational_responses_need_no_listener(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.answer(b"abc")

    assert await answered(await serve(script)) == (200, b"abc")


async def test_an_error_of_the_listener_is_the_callers(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n")

    def informational(status, fields):
        raise LookupError(status)

    with pytest.raises(LookupError):
        await answered(await serve(script), informational=informational)


async def test_switching_protocols_is_final_for_who_asked(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\nabc")
        await peer.send(b"HTTP/1.1 200 no response any more")

    fields = [(b"connection", b"upgrade"), (b"upgrade", b"a")]
    origin = await serve(script)
    assert await answered(origin, fields=fields) == (101, b"abcHTTP/1.1 200 no response any more")
    with pytest.raises(httpx.RemoteProtocolError):
        await answered(origin)


async def test_trailers_are_read_behind_chunked_content(serve, transport, ask):
    async def script(peer):
        await peer.head()
        await peer.send(OK + b"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3;ext=1\r\nabc\r\n")
        await peer.send(b"0\r\nX: 1\r\nx: 2\r\n\r\n")
        await peer.forever()

    response = await transport.handle_async_request(ask(await serve(script)))
    assert await response.aread() == b"abc"
    assert response.extensions["trailers"] == [(b"x", b"1"), (b"x", b"2")]


async def test_server_sent_events_pass_one_by_one(serve, transport, ask):
    go_on = asyncio.Event()

    async def script(peer):
        await peer.head()
        await peer.send(OK + b"Content-Type: text/event-stream\r\n\r\n")
        for number in range(5):
            await go_on.wait()
            go_on.clear()
            await peer.send(b"data: %d\n\n" % number)

    response = await transport.handle_async_request(ask(await serve(script)))
    events = aiter(response.stream)
    for number in range(5):
        go_on.set()
        assert await anext(events) == b"data: %d\n\n" % number
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_expect_waits_for_100_and_keeps_it(serve, answered):
    seen, order = [], []

    async def script(peer):
        head = await peer.head()
        assert b"expect: 100-continue" in head
        await asyncio.sleep(0.02)
        order.append("continue")
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.answer(await peer.content())
        await peer.head()
        await peer.answer(b"again")

    async def content():
        order.append("read")
        yield b"hello"

    origin = await serve(script)
    fields = [(b"content-length", b"5"), (b"expect", b"100-Continue".lower())]
    answer = await answered(origin, method="PUT", fields=fields, content=content(), informational=seen.append)
    assert answer == (200, b"hello")
    assert order == ["continue", "read"]
    assert seen == []
    assert await answered(origin) == (200, b"again")
    assert origin.accepted == 1


async def test_expect_sends_nothing_after_a_final_response(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno")
        assert await peer.reader.read() == b""

    async def content():
        raise AssertionError("read")
        yield b""

    origin = await serve(script)
    fields = [(b"content-length", b"5"), (b"expect", b"100-continue")]
    for _ in range(2):  # the origin might take what comes next for the content
        assert await answered(origin, method="POST", fields=fields, content=content()) == (417, b"no")
    assert origin.accepted == 2


async def test_a_response_may_come_before_the_request_has_ended(serve, transport, ask, eventually):
    async def script(peer):
        await peer.head()
        await peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        while size := int(await peer.reader.readline(), 16):
            chunk = await peer.reader.readexactly(size + 2)
            await peer.send(b"%x\r\n%b" % (size, chunk))
        await peer.send(b"0\r\n\r\n")

    more: asyncio.Queue[bytes] = asyncio.Queue()

    async def content():
        while chunk := await more.get():
            yield chunk

    request = ask(
        await serve(script), method="POST", fields=[(b"transfer-encoding", b"chunked")], content=content()
    )
    response = await transport.handle_async_request(request)
    echoed = aiter(response.stream)
    for chunk in (b"one", b"two", b"three"):
        more.put_nowait(chunk)
        assert await anext(echoed) == chunk
    more.put_nowait(b"")
    with pytest.raises(StopAsyncIteration):
        await anext(echoed)


@pytest.mark.parametrize("stage", ["answers", "silent"])
async def test_content_is_sent_when_its_octets_are(serve, answered, stage):
    """A server may tell of the end of a request's content later than of its last octets."""

    async def script(peer):
        while True:
            await peer.head()
            await peer.content()
            if stage == "answers":
                await peer.answer(b"ok")

    async def content():
        yield b"hello"
        await asyncio.Event().wait()

    origin = await serve(script)
    timeout = 2.0 if stage == "answers" else 0.05
    for _ in range(3):
        request = answered(
            origin,
            method="PUT",
            fields=[(b"content-length", b"5")],
            content=content(),
            timeout=timeout,
        )
        if stage == "answers":
            assert await request == (200, b"ok")
        else:
            with pytest.raises(httpx.ReadTimeout):
                await request
    assert origin.accepted == (1 if stage == "answers" else 3)


async def test_an_early_refusal_ends_the_upload(serve, answered, eventually):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await peer.forever()

    ended = asyncio.Event()

    async def content():
        try:
            yield b"x"
            await asyncio.Event().wait()
        finally:
            ended.set()

    origin = await serve(script)
    fields = [(b"content-length", b"1000000")]
    assert await answered(origin, method="POST", fields=fields, content=content()) == (413, b"no")
    await asyncio.wait_for(ended.wait(), 1)
    assert await answered(origin) == (413, b"no")
    assert origin.accepted == 2


@pytest.mark.parametrize("waits", [True, False])
async def test_a_refusal_arrives_although_the_origin_resets_the_upload(serve, answered, waits):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
        # What it never read makes the kernel answer with RST.

    async def content():
        for _ in range(400):
            if waits:
                await asyncio.sleep(0)
            yield b"x" * 10_000

    origin = await serve(script)
    for _ in range(20):
        answer = await answered(
            origin, method="POST", fields=[(b"content-length", b"4000000")], content=content()
        )
        assert answer == (413, b"no")


@pytest.mark.parametrize(
    ("fields", "chunks"),
    [
        ([(b"content-length", b"5")], [b"hel"]),
        ([(b"content-length", b"5")], [b"hello!"]),
        ([(b"content-length", b"5")], []),
    ],
)
async def test_content_that_is_not_as_long_as_it_says(serve, answered, fields, chunks):
    origin = await serve(echo)
    with pytest.raises(httpx.LocalProtocolError):
        await answered(origin, method="POST", fields=fields, content=chunks)
    await answered(origin)
    assert origin.accepted == 2


async def test_an_error_of_the_content_closes_the_connection(serve, answered, eventually):
    async def content():
        yield b"he"
        raise LookupError("the client left")

    origin = await serve(echo)
    with pytest.raises(LookupError, match="left"):
        await answered(origin, method="POST", fields=[(b"content-length", b"5")], content=content())
    await eventually(lambda: origin.open == 0)


async def test_content_must_be_asynchronous(serve, transport, ask):
    class Sync(httpx.SyncByteStream):
        def __iter__(self):
            yield b"hello"

    request = ask(await serve(echo), method="POST", fields=[(b"content-length", b"5")])
    request.stream = Sync()
    with pytest.raises(httpx.LocalProtocolError):
        await transport.handle_async_request(request)


async def test_httpx_clients_can_use_it(serve, transport):
    async def script(peer):
        while True:
            head = await peer.head()
            content = await peer.content()
            if head.startswith(b"GET /old "):
                await peer.send(b"HTTP/1.1 302 Found\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n")
            else:
                await peer.answer(head.splitlines()[0] + b" " + content, b"X: y")

    origin = await serve(script)
    async with httpx.AsyncClient(transport=transport, base_url=origin.url, follow_redirects=True) as client:
        moved = await client.get("/old")
        assert (moved.status_code, moved.text, moved.headers["x"]) == (200, "GET /new HTTP/1.1 ", "y")
        assert moved.http_version == "HTTP/1.1"
        posted = await client.post("/form", json={"a": 1})
        assert posted.text == 'POST /form HTTP/1.1 {"a":1}'
        async with client.stream("GET", "/stream") as streamed:
            assert b"".join([chunk async for chunk in streamed.aiter_raw()]) == b"GET /stream HTTP/1.1 "
    assert origin.accepted == 1
    assert transport.connections == 0


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_came_behind_a_response_answers_no_other_request(serve, answered, method):
    """It lies in the kernel still, since the event loop has been busy."""
    surplus = asyncio.Event()

    async def script(peer):
        await peer.head()
        await peer.answer(b"good")
        if peer.origin.accepted == 1:
            await peer.answer(b"EVIL")
            surplus.set()
        while True:
            await peer.head()
            await peer.answer(b"good")

    origin = await serve(script)
    assert (await answered(origin))[1] == b"good"
    await surplus.wait()
    assert (await answered(origin, method=method))[1] == b"good"


async def test_a_connection_that_is_not_used_again_leaves_its_place(serve, answered, make_transport):
    async def script(peer):
        while True:
            await peer.head()
            await peer.answer()

    origin = await serve(script)
    transport = make_transport(max_connections=1)
    for _ in range(3):
        await answered(origin, method="HEAD", by=transport, timeout=0.5)
    assert origin.accepted == 3
    assert transport.connections == 1
