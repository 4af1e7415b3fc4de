"""A key whose last answer could not be stored is not collapsed: messages go through, and no request waits."""

import asyncio

import pytest

from examples import cases
from tests.asgi.conftest import respond
from univocal import CacheMiddleware

OPEN = [(b"cache-control", b"max-age=60")]
CLOSED = [(b"cache-control", b"no-store")]


class Scripted:
    """Answers the first request with no-store; after that it sends `messages`, an exception is raised."""

    def __init__(self, messages=()):
        self.messages, self.count, self.heard = messages, 0, []

    async def __call__(self, scope, receive, send):
        self.count += 1
        if self.count == 1:
            await respond(send, b"first", CLOSED)
            return
        self.heard.append(await receive())
        for message in self.messages:
            if isinstance(message, Exception):
                raise message
            if isinstance(message, asyncio.Event):
                await message.wait()
            else:
                await send(message)


def start(status=200, fields=CLOSED):
    return {"type": "http.response.start", "status": status, "headers": fields}


def body(content, *, more=False):
    return {"type": "http.response.body", "body": content, "more_body": more}


@pytest.fixture
async def passed(client_of, clock):
    """A client of an application whose page is not collapsed."""

    async def passed(messages, **settings):
        app = Scripted(messages)
        client = client_of(CacheMiddleware(app, clock=clock, **settings))
        await client("/a")
        return client, app

    return passed


@cases(
    "messages, error",
    ([LookupError("early")], LookupError),
    ([start(), LookupError("late")], LookupError),
    ([start(), body(b"page"), LookupError("afterwards")], LookupError),
    ([start(fields=OPEN), LookupError("late")], LookupError),
    ([start(fields=OPEN), body(b"page"), LookupError("afterwards")], LookupError),
    ([body(b"page")], RuntimeError),
)
async def test_its_errors_are_raised(passed, messages, error):
    client, _ = await passed(messages)
    with pytest.raises(error):
        await client("/a")


@cases("messages", [], [start(fields=[(b"content-length", b"1"), (b"content-length", b"2")]), body(b"a")])
async def test_no_answer_is_a_problem(passed, messages):
    client, _ = await passed(messages)
    answer = await client("/a")
    assert (answer.status, answer.problem["reason"]) == (502, "origin-bad-response")


@cases("fields", CLOSED, OPEN)
async def test_fields_may_be_an_iterator(passed, fields):
    client, _ = await passed([start(fields=iter([*fields, (b"content-type", b"text/plain")])), body(b"page")])
    answer = await client("/a")
    assert (answer["content-type"], answer["cache-control"]) == ("text/plain", fields[0][1].decode())


async def test_content_that_comes_unannounced_reaches_no_application(passed):
    """HTTP/2 may send content with a GET in this way: the response is stored for all."""
    client, app = await passed([start(fields=OPEN), body(b"page")])
    answer = await client("/a", http_version="2", body=[b"content", b"more"])
    assert (answer.body, answer.handling) == (b"page", {"fwd=uri-miss", "stored"})
    assert app.heard == [{"type": "http.request", "body": b"", "more_body": False}]


@pytest.mark.parametrize(("version", "there"), [("1.1", True), ("2", False)])
async def test_no_connection_field_goes_beyond_http1(passed, version, there):
    client, _ = await passed([start(fields=[*CLOSED, (b"connection", b"close")]), body(b"page")])
    for _ in range(2):
        answer = await client("/a", http_version=version)
        assert (answer["connection"] != "") is there


async def test_a_listener_that_comes_later_hears_of_each(passed):
    client, _ = await passed([start(), body(b"page")])
    heard = []
    client.app.engine.audience.listeners.append(heard.append)
    for _ in range(3):
        await client("/a")
    assert [outcome.status for outcome in heard] == [200] * 3
