"""`on_refused`: an application of the user's answers what is refused for its URL."""

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.applications import Starlette
from starlette.routing import Mount

from examples import cases
from support import Handshake
from tests.asgi.conftest import DISCONNECT, Side, content, respond, scope_of
from univocal import CacheMiddleware


class ErrorPage:
    """Answers with what it was told of, and keeps the scopes."""

    def __init__(self, status=None):
        self.status, self.scopes = status, []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        told = scope["extensions"]["univocal.refused"]
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        status = self.status or told["status"]
        await respond(send, told["reason"].encode(), [(b"x-own", b"page")], status)


@pytest.fixture
def page():
    return ErrorPage()


@cases(
    "target, host, status, reasons",
    ("/a/..;/admin", "en.example", 400, ("dot-segment-parameter",)),
    ("/a/%00/..;/b", "en.example", 400, ("control-character", "dot-segment-parameter")),
    ("/%2f", "en.example", 400, ("encoded-slash",)),
    ("/a", "other.example", 421, ("unknown-host",)),
    ("/a", "a b", 400, ("bad-host",)),
    ("http://u@en.example/", "en.example", 400, ("bad-target",)),
)
async def test_the_application_answers_what_is_refused(
    application, client_of, page, target, host, status, reasons
):
    outcomes = []
    cache = CacheMiddleware(
        application, None, sites={"en.example": "servlet"}, on_refused=page, listeners=[outcomes.append]
    )
    answer = await client_of(cache, host)(target, body=[b"content"], method="POST")
    assert (answer.status, answer.body, answer["x-own"]) == (status, reasons[0].encode(), "page")
    assert application.count == 0
    (scope,) = page.scopes
    assert scope["extensions"]["univocal.refused"] == {
        "status": status,
        "reason": reasons[0],
        "reasons": reasons,
        "target": target.encode(),
    }
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/", b"/", b"")
    (outcome,) = outcomes
    assert (outcome.status, outcome.reasons, outcome.bytes) == (status, reasons, len(reasons[0]))
    assert outcome.handling.detail == reasons[0]


async def test_a_strangers_claims_do_not_reach_it(cached, page):
    fields = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-original-url", "/admin"),
        ("connection", "x-a"),
        ("x-a", "1"),
    ]
    await cached(on_refused=page)("/../a", fields=[*fields, ("accept", "text/html")])
    assert page.scopes[0]["headers"] == [(b"host", b"en.example"), (b"accept", b"text/html")]


@cases(
    "target, method, fields, status",
    ("/a", "GET", [("content-length", "1"), ("transfer-encoding", "chunked")], 400),
    ("/a", "GET", [("cache-control", "only-if-cached")], 504),
    ("/../a", "PURGE", [], 400),
    ("/" + "a" * 9000, "GET", [], 414),
)
async def test_other_refusals_are_univocals_own(cached, page, target, method, fields, status):
    answer = await cached(on_refused=page)(target, method, fields=fields)
    assert (answer.status, answer["content-type"]) == (status, "application/problem+json")
    assert page.scopes == []


async def test_accepted_requests_do_not_reach_it(cached, page):
    client = cached(on_refused=page)
    assert (await client("/a")).status == 200
    assert "hit" in (await client("/a")).handling
    assert page.scopes == []


async def test_a_refused_answer_is_never_stored(cached, page):
    page.status = 200
    client = cached(on_refused=page)
    for _ in range(2):
        assert (await client("/../a")).status == 200
    assert len(page.scopes) == 2


async def test_a_framework_answers_below_its_mount(client_of):
    errors, inner = FastAPI(), FastAPI()

    @errors.get("/")
    async def page(request: Request):
        told = request.scope["extensions"]["univocal.refused"]
        return HTMLResponse(f"<h1>{told['reason']}</h1>", told["status"])

    @inner.get("/admin")
    async def admin():
        raise AssertionError

    inner.add_middleware(CacheMiddleware, on_refused=errors)
    client = client_of(Starlette(routes=[Mount("/shop", inner)]))
    answer = await client("/shop/x/../admin")
    assert (answer.status, answer.body) == (400, b"<h1>dot-segment</h1>")


async def test_a_handshake_is_refused_as_before(page):
    start, _ = await Handshake(CacheMiddleware(print, on_refused=page))("/../a")
    assert (start["status"], page.scopes) == (400, [])


async def test_a_client_that_leaves_is_heard(application):
    heard = []

    async def waits(scope, receive, send):
        await receive()
        heard.append((await receive())["type"])

    side = Side(content(b"a", more=True), content(b"b"), DISCONNECT)
    scope = scope_of(b"/../a", "POST", "en.example", ())
    await side.call(CacheMiddleware(application, on_refused=waits), scope)
    assert heard == ["http.disconnect"]
