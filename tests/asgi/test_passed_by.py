"""A key whose last answer could not be stored is passed by: messages go through, and nobody waits."""

import asyncio

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from univocal import CacheMiddleware, Rules, cached
from univocal.engine.flight import Flight

OPEN = [(b"cache-control", b"max-age=60")]
CLOSED = [(b"cache-control", b"no-store")]

counts_flights = pytest.mark.pure("flights are counted, and compiled code calls its own method")


class Scripted:
    """Answers the first request with no-store; after that it sends `messages`, an exception is raised."""

    def __init__(self, messages=()):
        self.messages, self.count, self.heard = messages, 0, []

    async def __call__(self, scope, receive, send):
        self.count += 1
        if self.count == 1:
            await send({"type": "http.response.start", "status": 200, "headers": CLOSED})
            await send({"type": "http.response.body", "body": b"first"})
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
def flights(monkeypatch):
    """The number of flights that have begun."""
    begun = []
    begin = Flight.begin
    monkeypatch.setattr(Flight, "begin", lambda flight: (begun.append(flight), begin(flight))[1])
    return begun


@pytest.fixture
async def passed(client_of, clock, flights):
    """A client of an application whose page is passed by."""

    async def passed(messages, **settings):
        app = Scripted(messages)
        client = client_of(CacheMiddleware(app, clock=clock, **settings))
        await client("/a")
        flights.clear()
        return client, app

    return passed


@counts_flights
@pytest.mark.parametrize(
    ("messages", "handling"),
    [
        ([start(), body(b"page")], {"fwd=uri-miss", "detail=no-store"}),
        ([start(), body(b"pa", more=True), body(b"ge")], {"fwd=uri-miss", "detail=no-store"}),
        ([start(fields=[]), body(b"page")], {"fwd=uri-miss", "detail=no-freshness"}),
        ([start(500, []), body(b"page")], {"fwd=uri-miss", "detail=error"}),
        (
            [
                start(
                    fields=[(b"cache-control", b"private"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
                ),
                body(b"page"),
            ],
            {"fwd=uri-miss", "detail=private"},
        ),
    ],
)
async def test_what_cannot_be_stored_passes_without_an_exchange(passed, flights, messages, handling):
    client, app = await passed(messages)
    answer = await client("/a")
    told = [field for field in answer.fields if field[0] != b"cache-status"]
    assert (answer.status, answer.body, answer.complete) == (messages[0]["status"], b"page", True)
    assert (told, answer.handling) == (messages[0]["headers"], handling)
    assert app.heard == [{"type": "http.request", "body": b"", "more_body": False}]
    assert flights == []


@counts_flights
@pytest.mark.parametrize("more", [False, True])
async def test_what_may_be_stored_again_is_stored(passed, flights, more):
    parts = [body(b"pa", more=True), body(b"ge")] if more else [body(b"page")]
    client, app = await passed([start(fields=OPEN), *parts])
    assert (await client("/a")).handling == {"fwd=uri-miss", "stored"}
    assert [(await client("/a")).body, app.count, len(flights)] == [b"page", 2, 1]


@pytest.mark.parametrize("when", ["before the head", "behind the head"])
async def test_a_purge_meanwhile_keeps_it_from_being_stored(passed, idle, when):
    gate = asyncio.Event()
    head = start(fields=OPEN)
    client, app = await passed(
        [gate, head, body(b"page")] if when == "before the head" else [head, gate, body(b"page")]
    )
    asking = asyncio.create_task(client("/a"))
    await idle()
    assert (await client("/a", "PURGE")).status == 200
    gate.set()
    assert (await asking).body == b"page"
    await client("/a")
    assert app.count == 3


async def test_a_change_meanwhile_keeps_it_from_being_stored(passed, idle):
    gate = asyncio.Event()
    client, app = await passed([gate, start(fields=OPEN), body(b"page")])
    asking = asyncio.create_task(client("/a"))
    await idle()
    app.messages, kept = [start(204, []), body(b"")], app.messages
    await client("/a", "POST")
    app.messages = kept
    gate.set()
    await asking
    await client("/a")
    assert app.count == 4


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([LookupError("early")], LookupError),
        ([start(), LookupError("late")], LookupError),
        ([start(), body(b"page"), LookupError("afterwards")], LookupError),
        ([start(fields=OPEN), LookupError("late")], LookupError),
        ([start(fields=OPEN), body(b"page"), LookupError("afterwards")], LookupError),
        ([body(b"page")], RuntimeError),
    ],
)
async def test_its_errors_are_raised(passed, messages, error):
    client, _ = await passed(messages)
    with pytest.raises(error):
        await client("/a")


@pytest.mark.parametrize(
    "messages", [[], [start(fields=[(b"content-length", b"1"), (b"content-length", b"2")]), body(b"a")]]
)
async def test_no_answer_is_a_problem(passed, messages):
    client, _ = await passed(messages)
    answer = await client("/a")
    assert (answer.status, answer.problem["reason"]) == (502, "origin-bad-response")


@counts_flights
@pytest.mark.parametrize("status", [301, 401])
async def test_special_heads_go_the_long_way(passed, flights, status):
    client, _ = await passed([start(status, [(b"location", b"/b")]), body(b"")])
    assert (await client("/a")).status == status
    assert len(flights) == 1


async def test_interim_responses_are_passed_on(passed):
    hint = {"type": "http.response.informational", "status": 103, "headers": [(b"link", b"</a>")]}
    client, _ = await passed([hint, start(), body(b"page")])
    answer = await client("/a")
    assert ([status for status, _ in answer.interims], answer.body) == ([103], b"page")


async def test_a_handler_may_give_it_a_lifetime(client_of, flights):
    app, count = FastAPI(), 0
    app.add_middleware(CacheMiddleware)

    @app.get("/a")
    @cached(ttl=60)
    async def page():
        nonlocal count
        count += 1
        return PlainTextResponse("page", 500 if count == 1 else 200)

    client = client_of(app)
    for _ in range(3):
        await client("/a")
    assert count == 2


@counts_flights
async def test_it_is_passed_by_as_long_as_its_answers_say(passed, flights, clock):
    client, _ = await passed([start(fields=[]), body(b"page")])
    for _ in range(3):
        clock.now += 100
        await client("/a")
    assert flights == []
    clock.now += 130
    await client("/a")
    assert len(flights) == 1


async def test_its_client_that_leaves_is_heard(client_of, idle):
    heard = []

    async def listening(scope, receive, send):
        if not heard:
            heard.append("nothing")
            await send(start())
            await send(body(b""))
            return
        await receive()
        heard.append((await receive())["type"])

    client, leave = client_of(CacheMiddleware(listening)), asyncio.Event()
    await client("/a")
    asking = asyncio.create_task(client("/a", leave=leave))
    await idle()
    leave.set()
    await asking
    assert heard[1:] == ["http.disconnect"]


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ([("cookie", "a=b")], {}),
        ([("x-api-key", "ann")], {"rules": Rules(ttl=60)}),
        ([("range", "bytes=0-1")], {}),
        ([("cache-control", "no-cache")], {}),
    ],
)
async def test_others_fields_are_judged_as_ever(passed, fields, settings):
    """A page that was passed by for all is not stored for one of them."""
    client, _ = await passed([start(fields=[]), body(b"page")], **settings)
    answer = await client("/a", fields=fields)
    assert (answer.status, answer.body) == (200, b"page")
    assert "stored" not in answer.handling
    assert client.app.store.stats.responses == 0


async def test_listeners_hear_of_passed_requests(passed):
    told = []
    client, _ = await passed([start(), body(b"page")], listeners=[told.append])
    told.clear()
    await client("/a")
    assert [(one.status, one.bytes, one.handling.fwd) for one in told] == [(200, 4, "uri-miss")]


@pytest.mark.parametrize(
    ("head", "handling"),
    [
        (start(), {"fwd=uri-miss", "detail=no-store"}),
        (start(404), {"fwd=uri-miss", "detail=no-store"}),
        (start(fields=[(b"cache-control", b"private")]), {"fwd=uri-miss", "detail=private"}),
        (start(fields=[*CLOSED, (b"vary", b"cookie")]), {"fwd=uri-miss", "detail=no-store"}),
        (start(fields=[(b"Cache-Control", b"no-store")]), {"fwd=uri-miss", "detail=no-store"}),
        (start(fields=OPEN), {"fwd=uri-miss", "stored"}),
    ],
)
async def test_each_head_is_told_as_it_came(passed, head, handling):
    client, app = await passed([start(), body(b"page")])
    for _ in range(2):
        await client("/a")
    app.messages = [head, body(b"page")]
    answer = await client("/a")
    told = [field for field in answer.fields if field[0] != b"cache-status"]
    assert (answer.status, answer.handling) == (head["status"], handling)
    assert told == [(name.lower(), value) for name, value in head["headers"]]


async def test_fields_that_an_application_changes_in_place_are_read_again(passed):
    fields = [[b"cache-control", b"no-store"]]
    client, _ = await passed([start(fields=fields), body(b"page")])
    for _ in range(2):
        await client("/a")
    fields[0][1] = b"max-age=60"
    assert (await client("/a")).handling == {"fwd=uri-miss", "stored"}
