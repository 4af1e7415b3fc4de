"""Mounted into Starlette and FastAPI: routes see canonical paths, no path leaves a mount or a directory."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from examples import cases
from neighbours import everywhere
from support import Handshake
from tests.asgi.conftest import Side, respond, scope_of
from univocal import CacheMiddleware, ReverseProxy
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits

FRESH = {"cache-control": "max-age=60"}


class Pages:
    """Endpoints that count how often they are asked."""

    def __init__(self):
        self.count = 0

    async def page(self, request):
        self.count += 1
        return PlainTextResponse(f"{request.path_params.get('title', '')}|{request.url.path}", headers=FRESH)

    async def admin(self, request):
        self.count += 1
        return PlainTextResponse("the administrator's", headers=FRESH)


def starlette_app(pages):
    app = Starlette(routes=[Route("/wiki/{title:path}", pages.page), Route("/admin", pages.admin)])
    app.add_middleware(CacheMiddleware)
    return app


def fastapi_app(pages):
    app = FastAPI()
    app.add_middleware(CacheMiddleware)

    @app.get("/wiki/{title:path}")
    async def page(request: Request):
        return await pages.page(request)

    @app.get("/admin")
    async def admin(request: Request):
        return await pages.admin(request)

    return app


@pytest.fixture
def pages():
    return Pages()


@pytest.fixture(params=[starlette_app, fastapi_app], ids=["starlette", "fastapi"])
def client(request, pages, client_of):
    return client_of(request.param(pages))


async def test_routes_see_the_one_spelling(client, pages):
    for spelling in ("/wiki/Steve_(x)", "/wiki/Steve_%28x%29", "/%77iki%2FSteve_(x%29"):
        answer = await client(spelling)
        assert (answer.status, answer.body) == (200, b"Steve_(x)|/wiki/Steve_(x)")
    assert pages.count == 1


async def test_a_dot_segment_does_not_reach_a_route(client, pages):
    for target in ("/wiki/../admin", "/wiki/%2e%2e/admin", "/wiki/..%2Fadmin"):
        assert (await client(target)).status == 400
    assert pages.count == 0


# Mounts


def within(pages, profile="asgi"):
    """The cache is inside the mount."""
    inner = Starlette(
        routes=[Route("/cart", pages.page), Route("/wiki/{title:path}", pages.page), Route("/", pages.page)],
        middleware=[Middleware(CacheMiddleware, profile=profile)],
    )
    return Starlette(routes=[Mount("/shop", inner), Route("/admin", pages.admin)])


def around(pages, profile="asgi"):
    """The cache is around the mount."""
    inner = Starlette(
        routes=[Route("/cart", pages.page), Route("/wiki/{title:path}", pages.page), Route("/", pages.page)]
    )
    outer = Starlette(routes=[Mount("/shop", inner), Route("/admin", pages.admin)])
    outer.add_middleware(CacheMiddleware, profile=profile)
    return outer


@pytest.mark.parametrize("mounted", [within, around])
@pytest.mark.parametrize("profile", ["asgi", "rfc3986", "servlet", "nginx", "mediawiki"])
@cases(
    "target",
    "/shop/../admin",
    "/shop/%2e%2e/admin",
    "/shop/x/../../admin",
    "/shop/..%2fadmin",
    "/shop/..;/admin",
)
async def test_nobody_leaves_a_mount(pages, client_of, mounted, profile, target):
    answer = await client_of(mounted(pages, profile))(target)
    if mounted is within or answer.status == 400:
        assert answer.status in {400, 404}
        assert b"administrator" not in answer.body
    else:  # around the mount the path is what it is: /admin, by the front door
        assert (answer.status, pages.count) in {(200, 1), (404, 0)}


@pytest.mark.parametrize("target", ["/shop/../admin", "/shop/x/../../admin", "/shop/%2e%2e/shopping"])
async def test_a_path_that_leaves_its_mount_is_above_root(pages, client_of, target):
    answer = await client_of(within(pages, "rfc3986"))(target)
    assert (answer.status, answer.problem["reasons"]) == (400, ["above-root"])


async def test_dot_segments_that_stay_in_a_mount_are_removed(pages, client_of):
    answer = await client_of(within(pages, "rfc3986"))("/shop/x/../cart")
    assert (answer.status, answer.body) == (200, b"|/shop/cart")


async def test_a_mounts_own_root_is_in_it(pages, client_of):
    assert (await client_of(within(pages))("/shop/")).status == 200


async def test_a_root_path_cut_off_by_a_proxy_is_ignored(cached, application):
    """FastAPI(root_path=…) behind a proxy that strips the prefix: nothing that arrives is below it."""
    assert (await cached()("/pages/x", root_path="/api/v1")).status == 200
    assert application.targets == [b"/pages/x"]


# WebSocket


async def echo(socket: WebSocket):
    await socket.accept(subprotocol="chat")
    await socket.send_json([socket.scope["path"], socket.scope["raw_path"].decode(), socket.scope["scheme"]])
    await socket.close()


@pytest.fixture
def handshake():
    app = Starlette(routes=[WebSocketRoute("/chat/{room:path}", echo)])
    app.add_middleware(CacheMiddleware)
    return Handshake(app)


async def test_a_websocket_is_opened_by_the_one_spelling(handshake):
    accepted, message, _ = await handshake("/%63hat/a%28b%29")
    assert (accepted["type"], accepted["subprotocol"]) == ("websocket.accept", "chat")
    assert message["text"] == '["/chat/a(b)","/chat/a(b)","ws"]'


@cases(
    "target, fields, status, reason",
    ("/chat/%00", [], 400, "control-character"),
    ("/chat/../a", [], 400, "dot-segment"),
    ("/chat/a", [(b"host", b"two.example")], 400, "bad-host"),
    ("/chat/a", [(b"cache-control", b"only-if-cached")], 504, "only-if-cached"),
)
async def test_a_handshake_is_refused_like_any_request(handshake, target, fields, status, reason):
    start, body = await handshake(target, fields)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert body["type"] == "websocket.http.response.body"
    assert b'"reason": "%b"' % reason.encode() in body["body"]


async def test_where_the_server_has_no_denial_the_handshake_is_closed(handshake):
    assert await handshake("/chat/%00", denial=False) == [{"type": "websocket.close", "code": 1008}]


@pytest.fixture
def watched():
    """A handshake with an application behind the middleware, and the outcomes that are told."""

    def watched(app, **settings):
        outcomes = []
        cache = CacheMiddleware(app, runtime=everywhere(**settings), listeners=[outcomes.append])
        return Handshake(cache), outcomes

    return watched


async def says(scope, receive, send):
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "ü"})
    await send({"type": "websocket.send", "bytes": b"123"})
    await send({"type": "websocket.close", "code": 1000})


async def test_an_application_that_closes_at_once_has_refused(watched):
    async def app(scope, receive, send):
        await send({"type": "websocket.close", "code": 1000})

    handshake, outcomes = watched(app)
    await handshake("/")
    assert [outcome.status for outcome in outcomes] == [403]


async def test_a_stored_response_answers_no_handshake(watched):
    asked = []

    async def app(scope, receive, send):
        asked.append(scope["type"])
        if scope["type"] == "websocket":
            await says(scope, receive, send)
            return
        fresh = [(b"cache-control", b"max-age=9")]
        await respond(send, b"page", fresh)

    handshake, outcomes = watched(app)
    transport = httpx.ASGITransport(handshake.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://en.example") as client:
        for _ in range(2):
            assert (await client.get("/")).text == "page"
    assert (await handshake("/"))[0]["type"] == "websocket.accept"
    assert asked == ["http", "websocket"]
    assert [outcome.handling.hit for outcome in outcomes] == [False, True, False]


async def test_a_websocket_is_a_request_under_way(watched):
    inner = []

    async def app(scope, receive, send):
        inner.append(await handshake("/"))
        await says(scope, receive, send)

    handshake, outcomes = watched(app, limits=Limits(max_requests_per_client=1))
    for _ in range(2):
        assert (await handshake("/"))[0]["type"] == "websocket.accept"
    assert [start["status"] for start, _ in inner] == [429, 429]
    assert [outcome.status for outcome in outcomes] == [429, 101] * 2


@cases("settings, status", ({"https_port": 443}, 400), ({"upgrades": frozenset()}, 403))
async def test_handshakes_obey_https_port_and_upgrades(watched, settings, status):
    """Guards ask at https: a handshake by plain HTTP would pass them."""
    handshake, outcomes = watched(says, **settings)
    (start, _) = await handshake("/")
    assert (start["status"], outcomes[-1].status) == (status, status)


async def test_a_websocket_does_not_leave_its_root(handshake):
    (start, _) = await Handshake(CacheMiddleware(handshake.app, "rfc3986"))(
        "/app/../chat/a", root_path="/app"
    )
    assert start["status"] == 400


async def test_a_strangers_claims_do_not_reach_a_websocket():
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)

    await Handshake(CacheMiddleware(app))(
        "/a", [(b"x-forwarded-host", b"evil.example"), (b"x-real-ip", b"127.0.0.1")]
    )
    names = {name for name, _ in scopes[0]["headers"]}
    assert names == {b"host", b"connection", b"upgrade"}
    assert scopes[0]["subprotocols"] == ["chat"]


# The rest


@pytest.mark.parametrize("fields", [[], [(b"cache-control", b"max-age=60")]])
async def test_the_template_of_a_response_goes_to_its_own_client(fields, idle):
    """Starlette tells its test client of templates (`response.template`) by a message of its own."""
    gate, template = asyncio.Event(), {"type": "http.response.debug", "info": {"template": "page"}}

    async def app(scope, receive, send):
        await gate.wait()
        assert "http.response.debug" in scope["extensions"]
        await send(template)
        await respond(send, b"page", fields)

    cache, scope = CacheMiddleware(app), scope_of(b"/a", "GET", "en.example", ())
    scope["extensions"]["http.response.debug"] = {}
    leader, follower = [asyncio.create_task(Side().call(cache, scope)) for _ in range(2)]
    await idle()
    gate.set()
    assert [template in await each for each in (leader, follower)] == [True, not fields]
    assert (template in await Side().call(cache, scope)) is not bool(fields)


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_scope_may_lack_what_asgi_calls_optional(kind):
    """The WebSockets of daphne have no scheme."""
    scopes = []

    async def app(scope, receive, send):
        scopes.append(scope)
        if kind == "http":
            await respond(send, b"")

    scope = {"type": kind, "path": "/a(b)", "headers": [(b"host", b"en.example")]}
    await Side().call(CacheMiddleware(app), scope | ({"method": "GET"} if kind == "http" else {}))
    assert [(each["scheme"], each["path"]) for each in scopes] == [
        ({"http": "http"}.get(kind, "ws"), "/a(b)")
    ]


@pytest.mark.parametrize("sequence", [lambda pairs: list(map(list, pairs)), tuple], ids=["lists", "a tuple"])
class TestFieldsInOtherSequences:
    """Servers hand over lists of lists, too (ASGI, "Iterable[[byte string, byte string]]")."""

    @pytest.fixture
    def served(self, sequence):
        def served(app):
            async def server(scope, receive, send):
                await app({**scope, "headers": sequence(scope["headers"])}, receive, send)

            return server

        return served

    async def test_a_page_is_stored_and_hit(self, served, pages, client_of):
        client = client_of(served(starlette_app(pages)))
        answers = [await client("/wiki/A", fields=fields) for fields in ([], [], [("range", "bytes=0-0")])]
        assert [answer.body for answer in answers] == [b"A|/wiki/A", b"A|/wiki/A", b"A"]
        assert pages.count == 1

    async def test_a_websocket_is_opened(self, served):
        scopes = []

        async def app(scope, receive, send):
            scopes.append(scope)

        await Handshake(served(CacheMiddleware(app)))("/a")
        assert (b"host", b"en.example") in scopes[0]["headers"]

    async def test_a_request_is_forwarded(self, served, client_of):
        transport = httpx.MockTransport(lambda request: httpx.Response(200, text=request.headers["x-a"]))
        client = client_of(served(ReverseProxy("http://origin.example", transport)))
        assert (await client("/a", fields=[("x-a", "b")])).body == b"b"


# Work of frameworks around a response goes on behind the cache


@cases("target", "/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/%00")
@pytest.mark.parametrize("profile", sorted(builtin_profiles()))
async def test_no_spelling_leaves_a_directory_of_files(client_of, tmp_path, target, profile):
    (tmp_path / "files").mkdir()
    (tmp_path / "secret").write_text("secret")
    app = Starlette(routes=[Mount("/files", StaticFiles(directory=tmp_path / "files"))])
    app.add_middleware(CacheMiddleware, profile=profile)
    answer = await client_of(app)(target)
    assert answer.status in {400, 404}
