"""ReverseProxy over a mocked origin: what is sent, what comes back, what failures are called."""

import asyncio
import contextlib

import httpx
import pytest

from examples import cases
from tests.asgi.conftest import DISCONNECT, LIFESPAN, Side, content, scope_of
from univocal import CacheMiddleware, ConfigurationError, ReverseProxy


class Mock:
    """An origin that keeps its requests and answers with `answer`, or raises it."""

    def __init__(self):
        self.requests, self.contents = [], []
        self.answer = httpx.Response(200, text="from the origin", headers={"cache-control": "max-age=60"})

    async def __call__(self, request):
        self.requests.append(request)
        self.contents.append(await request.aread())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @property
    def targets(self):
        return [request.extensions["target"] for request in self.requests]

    @property
    def fields(self):
        return [(name.lower(), value) for name, value in self.requests[-1].headers.raw]


@pytest.fixture
def origin():
    return Mock()


@pytest.fixture
def client(origin, clock, client_of):
    proxy = ReverseProxy("http://origin.example:9000", httpx.MockTransport(origin))
    return client_of(CacheMiddleware(proxy, "mediawiki", clock=clock))


def proxied(client_of, clock, origin, url="http://origin.example:9000", profile="mediawiki", **settings):
    proxy = ReverseProxy(url, httpx.MockTransport(origin), **settings)
    return client_of(CacheMiddleware(proxy, profile, clock=clock))


# Requests to the origin server


async def test_a_path_in_the_url_stands_before_every_target(client_of, clock, origin):
    client = proxied(client_of, clock, origin, "http://origin.example/base/")
    await client("/a%28b%29?c")
    await client("*", "OPTIONS")
    assert origin.targets == [b"/base/a(b)?c", b"*"]


@cases(
    "said, body, length, coding",
    ([("content-length", "6")], [b"abc", b"def"], b"6", None),
    ([("transfer-encoding", "chunked")], [b"abc", b"def"], None, b"chunked"),
)
async def test_content_passes(client, origin, said, body, length, coding):
    await client("/a", "POST", said, body=body)
    told = dict(origin.fields)
    assert origin.contents == [b"abcdef"]
    assert (told.get(b"content-length"), told.get(b"transfer-encoding")) == (length, coding)


@pytest.mark.parametrize("behind", [True, False], ids=["behind a cache", "alone"])
async def test_the_origin_is_told_who_asks_and_how(client_of, clock, origin, behind):
    proxy = ReverseProxy("http://origin.example", httpx.MockTransport(origin))
    app = CacheMiddleware(proxy, clock=clock) if behind else proxy
    claims = [("x-original-url", "/b"), ("connection", "x-named"), ("x-named", "1")]
    await client_of(app)("/a", "POST", claims, client=("198.51.100.7", 4711), scheme="https")
    assert origin.requests[0].method == "POST"
    assert origin.fields == [
        (b"host", b"en.example"),
        (b"x-forwarded-for", b"198.51.100.7"),
        (b"x-forwarded-host", b"en.example"),
        (b"x-forwarded-proto", b"https"),
        (b"forwarded", b"for=198.51.100.7;host=en.example;proto=https"),
        (b"via", b"1.1 univocal"),
    ]


# Responses to the client


async def test_a_date_of_the_origins_stays(client, origin):
    origin.answer = httpx.Response(200, headers={"date": "Mon, 05 Jan 1970 00:00:00 GMT"})
    assert (await client("/a"))["date"] == "Mon, 05 Jan 1970 00:00:00 GMT"


@pytest.mark.parametrize("behind", [True, False], ids=["behind a cache", "alone"])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_transport_fault_is_a_problem_and_logged(client_of, clock, origin, behind, begun):
    proxy = ReverseProxy("http://origin.example", httpx.MockTransport(origin))
    app = CacheMiddleware(proxy, clock=clock) if behind else proxy
    raised = []

    async def logged(scope, receive, send):
        try:
            await app(scope, receive, send)
        except KeyError as error:
            raised.append(error)

    origin.answer = httpx.Response(200, stream=Faulty()) if begun else KeyError("secret")
    answer = await client_of(logged)("/a")
    assert len(raised) == 1
    if begun:
        assert (answer.status, answer.body, answer.complete) == (200, b"half", False)
    else:
        assert (answer.status, answer.problem["reason"], answer.complete) == (500, "internal-error", True)
        assert b"secret" not in answer.body


class Faulty(httpx.AsyncByteStream):
    async def __aiter__(self):
        yield b"half"
        raise KeyError("secret")


async def test_a_status_that_is_none_is_a_bad_response(client, origin):
    origin.answer = httpx.Response(700)
    answer = await client("/a")
    assert answer.problem["reason"] == "origin-bad-response"
    assert b"status above 599" not in answer.body


async def test_an_answer_is_closed_when_its_client_leaves(client_of, clock, origin, idle):
    closed = []

    class Endless(httpx.AsyncByteStream):
        async def __aiter__(self):
            while True:
                yield b"x" * 65536

        async def aclose(self):
            closed.append(True)

    origin.answer = httpx.Response(200, headers={"cache-control": "no-store"}, stream=Endless())
    client = proxied(client_of, clock, origin)
    side = Side(DISCONNECT)

    async def send(message):
        await side.send(message)
        if len(side.sent) > 3:
            raise LookupError("gone")

    with pytest.raises(LookupError):
        await client.app(scope_of(b"/a", "GET", "en.example", ()), side.receive, send)
    await idle()
    assert closed == [True]


async def test_a_client_leaving_while_sending_ends_quietly(origin):
    proxy = ReverseProxy("http://origin.example", httpx.MockTransport(origin))
    scope = scope_of(b"/a", "POST", "en.example", [("content-length", "9")])
    assert await Side(content(b"a", more=True), DISCONNECT).call(proxy, scope) == []


# With respx, and the rest


@cases(
    "url",
    *("", "origin.example", "ftp://origin.example", "http://", "http://me:secret@origin.example"),
    *("http://origin.example/?a", "http://origin.example/#a", "http://origin.example:port"),
    *("unix://run/app.sock", "unix:///run/app.sock/", "unix:///run/app.sock:/path"),
)
def test_invalid_origin_urls_are_refused(url):
    with pytest.raises(ConfigurationError) as raised:
        ReverseProxy(url)
    assert raised.value.key == "" or "upstream" in str(raised.value)


def with_cookie(app):
    """The application behind a middleware that adds to the list of a response's fields in place."""

    async def marked(scope, receive, send):
        async def add(message):
            if message["type"] == "http.response.start":
                message["headers"].append((b"set-cookie", b"of=" + scope["raw_path"]))
            await send(message)

        await app(scope, receive, add)

    return marked


async def test_a_middlewares_fields_stay_with_their_response(client_of):
    left = asyncio.Event()

    async def answer(reader, writer):
        with contextlib.suppress(EOFError, OSError):
            while await reader.readuntil(b"\r\n\r\n"):
                date = b"Date: Tue, 01 Jan 2030 00:00:00 GMT\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\n" + date + b"Content-Length: 2\r\n\r\nok")
        writer.close()
        left.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    proxy = ReverseProxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    client, cookies = client_of(with_cookie(proxy)), []
    for number in range(5):
        answered = await client(f"/{number}")
        cookies.append(answered["set-cookie"])
    await proxy.aclose()
    await left.wait()
    server.close()
    assert cookies == [f"of=/{number}" for number in range(5)]


async def test_a_101_that_was_not_asked_for_is_no_response(client_of):
    proxy = ReverseProxy("http://origin.example", httpx.MockTransport(lambda _: httpx.Response(101)))
    answer = await client_of(proxy)("/")
    assert answer.status == 502
    assert b"origin-bad-response" in answer.body


async def test_a_websocket_is_closed(origin):
    proxy = ReverseProxy("http://origin.example", httpx.MockTransport(origin))
    sent = await Side().call(proxy, {"type": "websocket"})
    assert sent == [{"type": "websocket.close", "code": 1011}]


async def test_a_lifespans_end_closes_the_transport():
    class Transport(httpx.AsyncBaseTransport):
        closed = False

        async def aclose(self):
            self.closed = True

    transport = Transport()
    sent = await Side(*LIFESPAN).call(ReverseProxy("http://origin.example", transport), {"type": "lifespan"})
    assert transport.closed
    assert [each["type"] for each in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
