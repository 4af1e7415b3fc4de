"""A foreign transport: what it awaits is pushed to the answer, and errors of httpx mean what ours do."""

import asyncio

import httpx
import pytest

from examples import cases
from support import idle
from univocal.http.errors import RefusedError
from univocal.origin import failures
from univocal.origin.client_library import ForeignRequest, as_httpx, as_ours

URL = httpx.URL("http://origin.example/")


class Transport(httpx.AsyncBaseTransport):
    """Keeps what it is asked; `answer` makes each response."""

    def __init__(self, answer):
        self.asked, self.answer = [], answer

    async def handle_async_request(self, request):
        self.asked.append(request)
        return await self.answer(request)


class Chunks(httpx.AsyncByteStream):
    """Content in pieces; `before` is awaited ahead of the last."""

    def __init__(self, *chunks, before=None):
        self.chunks, self.before, self.given, self.closed = chunks, before, 0, False

    async def __aiter__(self):
        for chunk in self.chunks:
            if self.before is not None and chunk is self.chunks[-1]:
                await self.before.wait()
            self.given += 1
            yield chunk

    async def aclose(self):
        self.closed = True


def response(stream, status=200, fields=(), **extensions):
    async def answer(_):
        return httpx.Response(status, headers=list(fields), stream=stream, extensions=extensions)

    return answer


def send(handler, answer, method=b"GET", content=None, fields=(), **extensions):
    """A request by a transport with this handler, under way."""
    transport = Transport(handler)
    failed = RefusedError("origin-unreachable")
    request = ForeignRequest(transport, answer, lambda error: failed)
    request.send(method, URL, list(fields), content and content.pipe, extensions)
    return transport, request


async def test_a_response_is_pushed_as_it_comes(answer):
    stream = Chunks(b"a", b"", b"b")
    send(response(stream, 201, [("X-A", "1"), ("x-a", "2")]), answer)
    await idle()
    assert answer.calls == [
        ("start", 201, [(b"x-a", b"1"), (b"x-a", b"2")]),
        ("write", b"a"),
        ("write", b"b"),
        ("finish",),
    ]
    assert stream.closed


async def test_the_request_goes_out_as_it_is(answer, content):
    async def handler(request):
        reading = asyncio.ensure_future(request.aread())
        await idle()  # until it has attached itself to the content
        content.write(b"he")
        content.write(b"llo")
        content.finish()
        assert await reading == b"hello"
        return httpx.Response(200, stream=Chunks())

    fields = [(b"content-length", b"5"), (b"x", b"1"), (b"x", b"2")]
    transport, request = send(handler, answer, b"pUt", content, fields, target=b"/a|b")
    assert request.took
    await idle()
    await idle()
    (asked,) = transport.asked
    assert (asked.method, asked.extensions["target"]) == ("pUt", b"/a|b")
    assert asked.headers.raw == fields
    assert answer.names == ["start", "finish"]


async def test_interim_responses_come_first_and_show_that_something_came(answer):
    async def handler(request):
        request.extensions["informational"](103, [(b"Link", b"</a.css>")])
        return httpx.Response(200, stream=Chunks())

    _, request = send(handler, answer)
    assert (request.came, request.took) == (False, False)
    request.resume()  # nothing has stopped yet
    await idle()
    assert request.came
    assert answer.calls == [("interim", 103, [(b"link", b"</a.css>")]), ("start", 200, []), ("finish",)]


async def test_a_paused_answer_gets_no_more_until_resumed(answer):
    answer.takes, stream = False, Chunks(b"a", b"b", b"c")
    _, request = send(response(stream), answer)
    await idle()
    assert (answer.content, stream.given) == (b"a", 1)
    request.resume()
    await idle()
    assert (answer.content, stream.given) == (b"ab", 2)
    answer.takes = True
    request.resume()
    await idle()
    assert (answer.content, answer.names[-1]) == (b"abc", "finish")


async def test_a_pause_between_two_chunks_delays_the_third(answer):
    go = asyncio.Event()
    stream = Chunks(b"a", b"b", before=go)
    _, request = send(response(stream), answer)
    await idle()
    request.pause()
    go.set()
    await idle()
    assert "finish" not in answer.names
    request.resume()
    await idle()
    assert (answer.content, answer.names[-1]) == (b"ab", "finish")


async def raises(_):
    raise httpx.ConnectError("refused")


async def breaks(_):
    class Broken(Chunks):
        async def __aiter__(self):
            yield b"a"
            raise httpx.ReadError("reset")

    return httpx.Response(200, stream=Broken())


async def test_a_finished_requests_content_is_dropped(answer, content):
    async def handler(request):
        await request.aread()

    _, request = send(handler, answer, b"POST", content)
    await idle()
    assert content.calls == ["begin"]
    request.cancel()
    await idle()
    assert content.calls == ["begin", "detach"]


@cases(
    "handler, calls",
    (raises, ["fail"]),
    (breaks, ["start", "write", "fail"]),
    (response(Chunks(), 600), ["fail"]),  # RFC 9110 §15: a status code is from 100 to 599
)
async def test_a_failure_is_told_in_our_words(answer, handler, calls):
    send(handler, answer)
    await idle()
    assert answer.names == calls
    assert answer.calls[-1] == ("fail", RefusedError)


@pytest.mark.parametrize("chunks", [0, 1])
async def test_after_cancelling_nothing_more_is_heard(answer, content, chunks):
    stream = Chunks(*[b"a"] * chunks, b"never", before=asyncio.Event())
    _, request = send(response(stream), answer, content=content)
    await idle()
    request.cancel()
    request.cancel()
    await idle()
    assert request.task.cancelled()
    assert answer.names == ["start", *["write"] * chunks]
    assert stream.closed


class Network:
    """The connection under a response, as httpcore gives it."""

    closed = False

    async def aclose(self):
        self.closed = True


@cases(
    "method, status, version, closed",
    (b"HEAD", 200, b"HTTP/1.1", True),
    (b"GET", 304, b"HTTP/1.0", True),
    (b"GET", 204, b"HTTP/1.1", True),
    (b"GET", 200, b"HTTP/1.1", False),
    (b"HEAD", 200, b"HTTP/2", False),
)
async def test_content_behind_a_response_without_any_is_nobodys(answer, method, status, version, closed):
    network = Network()
    send(response(Chunks(), status, http_version=version, network_stream=network), answer, method)
    await idle()
    assert answer.names == ["start", "finish"]
    assert network.closed is closed


# Errors of httpx, and those of the origin room that mean the same


@cases(
    "ours, theirs",
    (failures.ConnectError, httpx.ConnectError),
    (failures.ConnectTimeoutError, httpx.ConnectTimeout),
    (failures.PoolTimeoutError, httpx.PoolTimeout),
    (failures.ReadError, httpx.ReadError),
    (failures.ReadTimeoutError, httpx.ReadTimeout),
    (failures.WriteError, httpx.WriteError),
    (failures.WriteTimeoutError, httpx.WriteTimeout),
    (failures.InvalidRequestError, httpx.LocalProtocolError),
    (failures.InvalidResponseError, httpx.RemoteProtocolError),
    (failures.UnsupportedSchemeError, httpx.UnsupportedProtocol),
)
def test_an_error_becomes_the_one_that_means_the_same(ours, theirs):
    for turned, error, kind in ((as_httpx, ours("why"), theirs), (as_ours, theirs("why"), ours)):
        other = turned(error)
        assert (type(other), str(other), other.__cause__) == (kind, "why", error)


@pytest.mark.parametrize("error", [LookupError(), httpx.DecodingError("no"), RefusedError("overloaded")])
def test_any_other_error_stays(error):
    assert as_ours(error) is as_httpx(error) is error
