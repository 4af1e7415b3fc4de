"""Requests and responses over real sockets: exact bytes, content both ways, connections used again."""

import asyncio

import httpx
import pytest

from examples import cases
from support import echo

OK = b"HTTP/1.1 200 OK\r\n"


# See tests/origin/test_response_reader.py for the responses that leave their connection reusable.
@cases(
    "response, content, reused",
    (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", True),
    (OK + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc", b"abc", False),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"abc", True),
    (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n", b"", False),
    (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n0\r\n\r\n\r\n", b"ab\n", False),
    (OK + b"Content-Length: 3\r\n\r\nabcdef", b"abc", False),
    (OK + b"Content-Length: 0\r\n\r\n\r\n", b"", False),
    (b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc", b"", False),
    (OK + b"Content-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"abc", False),
)
async def test_connections_are_used_again_after_clean_responses_alone(
    serve, answered, response, content, reused
):
    async def script(peer):
        while True:
            await peer.head()
            await peer.send(response)

    origin = await serve(script)
    for _ in range(3):
        _, received = await answered(origin)
        assert received == content
    assert origin.accepted == (1 if reused else 3)


async def test_informational_responses_are_passed_on_in_order(serve, answered):
    async def script(peer):
        await peer.head()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n")
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 Odd\r\n\r\n")
        await peer.answer(b"abc")

    seen = []
    origin = await serve(script)
    assert await answered(origin, informational=lambda *told: seen.append(told)) == (200, b"abc")
    assert seen == [(103, [(b"link", b"</a>"), (b"link", b"</b>")]), (102, []), (199, [])]


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


@pytest.mark.parametrize("stage", ["answers", "silent"])
async def test_content_is_sent_when_its_bytes_are(serve, answered, stage):
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
    silence = 2.0 if stage == "answers" else 0.05
    timeout = {"connect": 20.0, "read": silence, "write": 20.0, "pool": 20.0}
    for _ in range(3):
        request = answered(
            origin, method="PUT", fields=[(b"content-length", b"5")], content=content(), timeout=timeout
        )
        if stage == "answers":
            assert await request == (200, b"ok")
        else:
            with pytest.raises(httpx.ReadTimeout):
                await request
    assert origin.accepted == (1 if stage == "answers" else 3)


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
async def test_surplus_behind_a_response_answers_no_other_request(serve, answered, method):
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
