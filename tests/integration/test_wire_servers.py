"""The middleware behind each of uvicorn's HTTP implementations: what of a target each of them lets us see."""

import contextlib
import json

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from examples import cases
from univocal import CacheMiddleware
from univocal.asgi.scope import request_line

EXACT = "univocal.protocol:ExactProtocol"
SERVERS = ["h11", "httptools", EXACT]


async def seeing(scope, receive, send):
    """Answers with the target that the middleware makes of the scope."""
    body = request_line(scope).target
    head = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def seen(front, target, method="GET"):
    answer = await front.ask(target, method=method)
    return answer.content if answer.status == 200 else answer.status


@pytest.mark.parametrize("http", SERVERS)
async def test_every_server_shows_the_bytes_of_an_ordinary_target(serve, http):
    front = await serve(seeing, http=http)
    for target in b"/ /a%28b%29 /a%2fb/%2F /a/../b /a?b=%28 //a /% /a;b /a%00".split():
        assert await seen(front, target) == target


@cases(
    "http, target, shown",
    (EXACT, b"/a?", b"/a?"),
    ("h11", b"/a?", b"/a"),
    ("httptools", b"/a?", b"/a"),
    (EXACT, b"http://en.example/a?b", b"http://en.example/a?b"),
    ("h11", b"http://en.example/a?b", b"http://en.example/a?b"),
    ("httptools", b"http://en.example/a?b", b"/a?b"),  # its authority is not to be seen: Host stands alone
    (EXACT, b"/a#b", b"/a#b"),
    ("h11", b"/a#b", b"/a#b"),
    ("httptools", b"/a#b", b"/a"),
)
async def test_servers_show_some_targets_differently(serve, http, target, shown):
    assert await seen(await serve(seeing, http=http), target) == shown


@pytest.mark.parametrize("http", SERVERS)
async def test_a_cache_behind_any_server_knows_one_spelling(serve, http):
    count = 0

    async def page(request):
        nonlocal count
        count += 1
        return JSONResponse([request.url.path, count], headers={"cache-control": "max-age=60"})

    app = Starlette(routes=[Route("/wiki/{title:path}", page)])
    app.add_middleware(CacheMiddleware)
    front = await serve(app, http=http)
    for target in ("/wiki/A(b)", "/wiki/A%28b%29", "/%77iki%2FA(b%29", "http://en.example/wiki/A%28b)"):
        assert json.loads((await front.ask(target)).content) == ["/wiki/A(b)", 1]
    purged = await front.ask("/wiki/A%28b)", method="PURGE")
    assert json.loads(purged.content) == {"purged": 1, "key": "http://en.example/wiki/A(b)"}
    assert json.loads((await front.ask("/wiki/A(b)")).content) == ["/wiki/A(b)", 2]


@pytest.mark.parametrize("http", SERVERS)
@cases("target", "/shop/../admin", "/shop/%2e%2e/admin", "/shop/..%2fadmin", "/shop/x/../../admin")
async def test_nobody_leaves_a_mount_behind_any_server(serve, http, target):
    async def admin(request):
        return JSONResponse("the administrator's")

    async def cart(request):
        return JSONResponse("cart")

    shop = Starlette(routes=[Route("/cart", cart)])
    app = Starlette(routes=[Mount("/shop", CacheMiddleware(shop, "rfc3986")), Route("/admin", admin)])
    front = await serve(app, http=http)
    answer = await front.ask(target)
    assert answer.status in {400, 404}
    assert b"administrator" not in answer.content
    assert (await front.ask("/shop/x/../cart")).content == b'"cart"'


@pytest.mark.parametrize("http", SERVERS)
async def test_a_server_with_a_root_path_in_front_of_fastapi(serve, http):
    app = FastAPI()
    app.add_middleware(CacheMiddleware, profile="rfc3986")

    @app.get("/wiki/{title}")
    async def page(request: Request, title: str):
        return [title, request.scope["root_path"], str(request.url)]

    front = await serve(app, http=http, root_path="/app")
    answer = await front.ask("/w%69ki/./A?b")
    assert json.loads(answer.content) == ["A", "/app", "http://en.example/app/wiki/A?b"]
    if http == EXACT:
        absolute = await front.ask("http://en.example/w%69ki/A?b")
        assert absolute.content == answer.content
    for target in ("/../../admin", "/wiki/../../admin"):
        assert (await front.ask(target)).status == 400


@pytest.mark.parametrize("http", SERVERS)
async def test_a_content_too_large_for_its_length_is_not_stored(serve, http):
    """The server refuses what an application sends past its Content-Length; the cache must not keep it."""

    async def lying(scope, receive, send):
        head = [(b"content-length", b"3"), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"abcdef"})

    door = CacheMiddleware(lying)
    front = await serve(door, http=http)
    with contextlib.suppress(EOFError):
        await front.ask("/a")
    assert door.store.stats.responses == 0


@pytest.mark.parametrize("http", SERVERS)
async def test_a_head_for_which_an_application_sends_content(serve, http):
    async def page(scope, receive, send):
        head = [(b"content-length", b"4"), (b"cache-control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"page"})

    front = await serve(CacheMiddleware(page), http=http)
    data = b"HEAD /a HTTP/1.1\r\nHost: en.example\r\n\r\nGET /a HTTP/1.1\r\nHost: en.example\r\n\r\n"
    answers = await front.talk(data * 2, "HEAD", "GET", "HEAD", "GET")
    assert [answer.content for answer in answers] == [b"", b"page"] * 2
    assert {answer["content-length"] for answer in answers} == {"4"}
