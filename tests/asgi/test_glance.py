"""Hits at the ASGI door: two messages, whose fields are remembered for as long as they stay the same."""

from collections import UserDict
from functools import partial

import pytest

from examples import cases
from tests.asgi.conftest import respond, scope_of
from univocal import CacheMiddleware

DATED = [(b"date", b"Mon, 23 Nov 2026 08:00:00 GMT"), (b"cache-control", b"max-age=60")]


class Cycle:
    """The object whose methods uvicorn hands over, with the fields that it adds to each response."""

    def __init__(self, *default_headers):
        self.default_headers = list(default_headers)
        self.sent = []

    async def receive(self):
        return {"type": "http.request", "body": b""}

    async def send(self, message):
        self.sent.append(message)


Cycle.__module__ = "uvicorn.protocols.played"


async def test_a_message_that_is_changed_in_place_changes_no_other(cached):
    client = cached()
    await client("/a")
    first = await client("/a")
    inner = client.app

    async def changing(scope, receive, send):
        async def changed(message):
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-user", b"alice"))
                del message["headers"][0]
                message["status"] = 418
            await send(message)

        await inner(scope, receive, changed)

    client.app = changing
    assert (await client("/a"))["x-user"] == "alice"
    client.app = inner
    second = await client("/a")
    assert (second.status, second.fields) == (first.status, first.fields)


@pytest.mark.parametrize("wrapped", ["receive", "send", ""])
async def test_a_date_comes_from_the_server_or_from_the_store(application, clock, wrapped):
    application.fields = DATED
    app = CacheMiddleware(application, clock=clock)

    async def dates(cycle):
        calls = {"receive": cycle.receive, "send": cycle.send}
        if wrapped:
            calls[wrapped] = partial(calls[wrapped])
        await app(scope_of(b"/a", "GET", "en.example", ()), calls["receive"], calls["send"])
        names = [name for name, _ in cycle.sent[0]["headers"]]
        assert b"age" in names or application.count == 1
        return names.count(b"date")

    dated, undated = Cycle((b"server", b"a"), (b"Date", b"now")), Cycle((b"server", b"a"))
    for cycle, count in ((dated, 0), (dated, 0), (undated, 1), (dated, 0), (Cycle(), 1)):
        cycle.sent.clear()
        assert await dates(cycle) == count


@cases("server, count", ((b"Date", b"now"), 0), ((b"server", b"a"), 1))
async def test_an_unstored_response_has_one_date(application, clock, server, count):
    """The server adds its own, and the application has one."""
    application.fields = [*DATED, (b"cache-control", b"no-store")]
    cycle = Cycle(server)
    app = CacheMiddleware(application, clock=clock)
    for _ in range(2):
        cycle.sent.clear()
        await app(scope_of(b"/a", "GET", "en.example", ()), cycle.receive, cycle.send)
        assert [name for name, _ in cycle.sent[0]["headers"]].count(b"date") == count


async def test_a_scope_that_is_no_dictionary_is_answered(application, clock):
    app, cycle = CacheMiddleware(application, clock=clock), Cycle()
    for _ in range(2):
        await app(UserDict(scope_of(b"/a", "GET", "en.example", ())), cycle.receive, cycle.send)
    assert b"univocal; hit; ttl=60" in [value for _, value in cycle.sent[-2]["headers"]]
    assert application.count == 1


FIELDS = [(b"accept-language", b"en"), (b"user-agent", b"a")]


@cases(
    "fields, language",
    (FIELDS, b"en"),
    ([(b"accept-language", b"de"), (b"user-agent", b"a")], b"de"),
    ([(b"accept-languagf", b"en"), (b"user-agent", b"a")], b""),
    ([(b"Accept-Language", b"en"), (b"user-agent", b"a")], b"en"),
    ([(b"accept-language", b"en")], b"en"),
    ([*FIELDS, (b"dnt", b"1")], b"en"),
    ([(b"user-agent", b"a"), (b"accept-language", b"fr")], b"fr"),
    ([[b"accept-language", b"de"], [b"user-agent", b"a"]], b"de"),
)
async def test_a_section_that_differs_from_the_last_is_read_again(clock, fields, language):
    async def telling(scope, receive, send):
        content = dict(scope["headers"]).get(b"accept-language", b"")
        vary = [(b"cache-control", b"max-age=60"), (b"vary", b"accept-language")]
        await respond(send, content, vary)

    app, cycle = CacheMiddleware(telling, clock=clock), Cycle()
    for section in (FIELDS, FIELDS, fields, fields, FIELDS):
        scope = scope_of(b"/a", "GET", "en.example", ())
        scope["headers"] = [(b"host", b"en.example"), *section]
        await app(scope, cycle.receive, cycle.send)
    assert [each["body"] for each in cycle.sent[1::2]] == [b"en", b"en", language, language, b"en"]
