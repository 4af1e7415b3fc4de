"""`cached`, `tag` and `purge` in handlers: they speak of the response that is being made."""

import asyncio
import functools
import inspect
import re
import threading
from contextlib import suppress
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.routing import Mount, Route

import univocal
from examples import cases
from support import Handshake, idle
from tests.asgi.conftest import respond
from univocal import CacheMiddleware, ConfigurationError, MemoryStore, RefusedError, Rules, purge, tag
from univocal.asgi import handlers
from univocal.http.messages import Instructions

KEY = [("x-api-key", "ann")]


def cached_page(*marks, fields=(), **named):
    """A handler that counts its calls, with `cached` of these arguments."""
    calls = []

    async def page() -> PlainTextResponse:
        calls.append(None)
        return PlainTextResponse(f"page {len(calls)}", headers=dict(fields))

    return univocal.cached(*marks, **named)(page)


@pytest.fixture
def shop(client_of, clock):
    """A client of a FastAPI application behind the cache, whose handlers a test adds to `client.shop`."""

    def build(**settings):
        app = FastAPI()
        client = client_of(CacheMiddleware(app, clock=clock, **settings))
        client.shop = app
        return client

    return build


async def handlings(client, *requests):
    """Ask one request after the other; return "hit" or the end of Cache-Status for each."""
    return [
        "hit" if "hit" in (answer := await client(*each)).handling else answer["cache-status"]
        for each in requests
    ]


@cases(
    "marks, named, fields, rules, second",
    ((60,), {}, {}, Rules(), "hit"),
    (("1m",), {}, {}, Rules(), "hit"),
    ((), {"ttl": 60}, {}, Rules(), "hit"),
    ((False,), {}, {"cache-control": "max-age=60"}, Rules(ttl=60), "no-store"),
    ((False,), {}, {"cache-control": "must-understand, no-store, max-age=60"}, Rules(), "no-store"),
    ((), {"tags": ["a"]}, {}, Rules(), "no-freshness"),
    ((), {"tags": ["a"]}, {}, Rules(ttl=60), "hit"),
    ((60,), {}, {"cache-control": "no-store"}, Rules(), "no-store"),
    ((60,), {}, {"cache-control": "private"}, Rules(), "private"),
    ((60,), {}, {"cache-control": "max-age=0"}, Rules(), "hit"),
    ((60,), {}, {"cdn-cache-control": "max-age=0"}, Rules(), "hit"),
    ((60,), {}, {"set-cookie": "a=b"}, Rules(), "set-cookie"),
    ((0,), {}, {"cache-control": "max-age=60"}, Rules(), "no-freshness"),
)
async def test_cached_is_the_handlers_own_word(shop, marks, named, fields, rules, second):
    client = shop(rules=rules)
    client.shop.get("/a")(cached_page(*marks, fields=fields, **named))
    _, told = await handlings(client, ["/a"], ["/a"])
    assert told == "hit" or told.endswith(f"detail={second}")
    assert (told == "hit") is (second == "hit")


async def test_cached_is_as_good_as_max_age(shop, clock):
    client = shop(rules=Rules(ttl=600))
    client.shop.get("/a")(cached_page(60, grace=30))
    assert await handlings(client, ["/a", "GET", KEY], ["/a", "GET", [("cookie", "a=b")]]) == [
        "univocal; fwd=uri-miss; stored",
        "hit",
    ]
    signed = await client("/a?b", fields=[("authorization", "Basic x")])
    assert signed["cache-status"].endswith("detail=authorization")
    answer = await client("/a")
    assert "ttl=60" in answer.handling
    assert answer["cache-control"] == ""  # a browser that kept it would hear of no purge
    clock.now += 80
    assert {"hit", "ttl=-20"} <= (await client("/a")).handling
    clock.now += 100
    assert "hit" not in (await client("/a")).handling


async def test_errors_get_no_lifetime_of_a_handler(shop):
    client = shop()

    @client.shop.get("/items/{number}")
    @univocal.cached(60)
    def item(number: int):
        raise HTTPException(404)

    first, second = await client("/items/1"), await client("/items/1")
    assert (first.status, "hit" in second.handling) == (404, False)


async def part() -> str:
    return "part"


def in_process(handler):
    """Ask another application, which has this handler, without a network."""
    inner = FastAPI()
    inner.get("/part")(handler)

    async def page() -> str:
        transport = httpx.ASGITransport(inner)
        async with httpx.AsyncClient(transport=transport, base_url="http://inner.example") as asked:
            return (await asked.get("/part")).json()

    return page


def with_dependency(handler):
    async def page(part: Annotated[str, Depends(handler)]) -> str:
        return part

    return page


def calling(handler):
    async def page() -> str:
        return await handler()

    return page


@pytest.mark.parametrize("caller", [calling, with_dependency, in_process])
@cases(
    "own, called, lifetime",
    (None, (60,), None),
    (None, (60, 300), None),
    (60, (600,), 60),
    (60, (10,), 10),
    (60, (False,), None),
)
async def test_cached_is_no_word_about_a_caller(shop, caller, own, called, lifetime):
    client = shop()
    ttl, *grace = called
    page = caller(univocal.cached(ttl, grace=grace[0] if grace else None, tags=["part"])(part))
    client.shop.get("/me")(page if own is None else univocal.cached(own)(page))
    if caller is with_dependency and lifetime == 10:
        lifetime = own  # it has ended before the handler says anything
    await client("/me")
    assert await client.app.purge(tag="part", soft=True) == (lifetime is not None)
    await client.app.purge(everything=True)
    await client("/me")
    told = (await client("/me")).handling
    assert (f"ttl={lifetime}" in told) is (lifetime is not None)
    assert ("hit" in told) is (lifetime is not None)


class LoggedInError(Exception):
    pass


async def failing_async(request):
    if "cookie" not in request.headers:
        raise LoggedInError
    return PlainTextResponse("members")


def failing(request):
    if "cookie" not in request.headers:
        raise LoggedInError
    return PlainTextResponse("members")


class Failing:
    async def __call__(self, scope, receive, send):
        raise LoggedInError


@pytest.mark.parametrize(
    "route",
    [
        lambda word: Route("/a", word(failing)),
        lambda word: Route("/a", word(failing_async)),
        lambda word: Mount("/", word(Failing())),
    ],
    ids=["def", "async", "object"],
)
async def test_cached_is_no_word_about_the_answer_to_an_error(client_of, clock, route):
    async def login(request, error):
        return PlainTextResponse("log in")

    app = Starlette(routes=[route(univocal.cached(60, grace=60))], exception_handlers={LoggedInError: login})
    client = client_of(CacheMiddleware(app, clock=clock))
    for _ in range(2):
        answer = await client("/a")
        assert (answer.body, "detail=no-freshness" in answer.handling) == (b"log in", True)


class Page:
    async def __call__(self) -> str:
        return "page"


@univocal.cached(60)
class CachedPage(Page):
    pass


@univocal.cached(60)
class Endpoint(HTTPEndpoint):
    async def get(self, request):
        return PlainTextResponse("page")


class Views(HTTPEndpoint):
    @univocal.cached(60)
    async def get(self, request):
        return PlainTextResponse("page")


class Bound:
    @univocal.cached(60)
    async def page(self, request):
        return PlainTextResponse("page")


async def worded(word, request):
    return PlainTextResponse(word)


BOUND = functools.partial(worded, "page")


async def given(request):
    return PlainTextResponse(request.path_params.get("name", "page"))


async def page_of(name: str, query: Annotated[str, Depends(lambda: "q")] = "") -> str:
    return name + query


def plain(name: str) -> str:
    return name


# Older ones do not await the `async __call__` of an object, decorated or not.
AWAITS_OBJECTS = pytest.mark.needs("fastapi>=0.124")


@pytest.mark.parametrize(
    "add",
    [
        lambda app: app.get("/{name}")(univocal.cached(60)(page_of)),
        lambda app: app.get("/{name}")(univocal.cached(60)(plain)),
        lambda app: app.get("/{name}")(univocal.cached(60)(functools.partial(plain, name="b"))),
        pytest.param(lambda app: app.get("/a")(univocal.cached(60)(Page())), marks=AWAITS_OBJECTS),
        pytest.param(lambda app: app.get("/a")(CachedPage()), marks=AWAITS_OBJECTS),
        lambda app: app.mount("/", Starlette(routes=[Route("/a", Endpoint)])),
        lambda app: app.mount("/", Starlette(routes=[Route("/a", Views)])),
        lambda app: app.mount("/", Starlette(routes=[Route("/{name}", univocal.cached(60)(given))])),
        lambda app: app.mount("/", Starlette(routes=[Route("/a", univocal.cached(60)(BOUND))])),
        lambda app: app.mount("/", Starlette(routes=[Route("/a", Bound().page)])),
        lambda app: app.mount("/", univocal.cached(60)(PlainTextResponse("page"))),
    ],
    ids=[
        "async",
        "def",
        "partial",
        "object",
        "class",
        "endpoint",
        "method of an endpoint",
        "starlette",
        "async partial",
        "method",
        "application",
    ],
)
async def test_handlers_of_every_kind_are_cached(shop, add):
    client = shop()
    add(client.shop)
    answers = [await client("/a"), await client("/a")]
    assert [answer.status for answer in answers] == [200, 200]
    assert answers[0].body == answers[1].body
    assert "hit" in answers[1].handling


def test_cached_keeps_signature_and_annotations():
    decorated = univocal.cached(60)(page_of)
    assert inspect.signature(decorated) == inspect.signature(page_of)
    assert decorated.__annotations__ == page_of.__annotations__
    assert (decorated.__name__, decorated.__module__) == ("page_of", __name__)
    assert decorated.__globals__ is page_of.__globals__
    assert inspect.iscoroutinefunction(decorated)
    assert univocal.cached(60)(plain)("x") == "x"


def generating():
    yield


@cases(
    "wrong, error, told",
    (lambda: univocal.cached(plain), ConfigurationError, "cached: ttl: found <function plain"),
    (lambda: univocal.cached(True), ConfigurationError, "cached: ttl: found True; allowed: a number of sec"),
    (lambda: univocal.cached(-1), ConfigurationError, "cached: ttl: found -1"),
    (lambda: univocal.cached(float("nan")), ConfigurationError, "cached: ttl: found nan"),
    (lambda: univocal.cached("soon"), ConfigurationError, "cached: ttl: found 'soon'"),
    (lambda: univocal.cached(60, grace=False), ConfigurationError, "cached: grace: found False"),
    (lambda: univocal.cached(60, tags="a"), ConfigurationError, "cached: tags: found 'a'; allowed: a list"),
    (lambda: univocal.cached(60, tags=[1]), TypeError, "cached: found 1; allowed: strings"),
    (lambda: univocal.cached(60)(5), TypeError, "cached: found 5; allowed: a handler"),
    (lambda: univocal.cached(60)(MemoryStore), TypeError, "cached: found <class"),
    (lambda: univocal.cached(60)(generating), TypeError, "cached: found <function generating"),
    (lambda: tag(1), TypeError, "tag: found 1; allowed: strings"),
    (lambda: tag(""), ValueError, "tag: found ''"),
    (purge.sync, ValueError, "purge: found nothing to purge"),
    (
        lambda: purge.sync("items/1"),
        ValueError,
        "purge: found 'items/1'; allowed: a path, such as \"/items/1\", or an absolute URL",
    ),
    (lambda: purge.sync(prefix="items/"), ValueError, "purge: found 'items/'; allowed: a path"),
    (lambda: purge.sync("/a", require=True), LookupError, "purge: no CacheMiddleware is around this code"),
    (lambda: tag("a", require=True), LookupError, "tag: no CacheMiddleware is around this code"),
)
def test_wrong_arguments_are_refused_without_a_cache(wrong, error, told):
    with pytest.raises(error, match=f"^{re.escape(told)}"):
        wrong()


async def test_without_a_cache_tag_and_purge_do_nothing():
    tag("a")
    assert await purge("/a", tag="b") == 0
    assert purge.sync("/a") == 0


async def test_a_tag_counts_while_the_content_comes(shop):
    client, many = shop(rules=Rules(ttl=60)), [f"t{number}" for number in range(1030)]

    @client.shop.get("/{name}")
    def page(name: str):
        def parts():
            yield b"one"
            tag(*(["late"] if name == "a" else many))
            yield b"two"

        return StreamingResponse(parts())

    for name, count in (("a", 1), ("b", 0)):
        await client(f"/{name}")
        assert await client.app.purge(tag="late" if name == "a" else "t1") == count
        assert "hit" not in (await client(f"/{name}")).handling


@pytest.mark.pure("a class is replaced")
@pytest.mark.parametrize("name", ["first", "other"])
async def test_threads_that_tag_at_the_same_time_lose_none(shop, monkeypatch, name):
    begun, may_end = threading.Event(), threading.Event()

    class Slow(Instructions):
        def __init__(self):
            super().__init__()
            begun.set()
            may_end.wait(30)

    client = shop(rules=Rules(ttl=60))

    @client.shop.get("/a")
    async def page() -> str:
        first = asyncio.ensure_future(asyncio.to_thread(tag, "first"))
        await asyncio.to_thread(begun.wait, 30)
        other = asyncio.ensure_future(asyncio.to_thread(tag, "other"))
        await asyncio.wait([other], timeout=0.05)  # it waits for the first
        may_end.set()
        await asyncio.gather(first, other)
        return "page"

    monkeypatch.setattr(handlers, "Instructions", Slow)
    await client("/a")
    assert await client.app.purge(tag=name) == 1


@cases(
    "urls, named, count, left",
    (["/a"], {}, 1, ["/b", "/c"]),
    (["/%61", "http://en.example/b"], {}, 2, ["/c"]),
    (["/a"], {"tag": "b"}, 2, ["/c"]),
    ([], {"prefix": "/"}, 3, []),
    ([], {"everything": True}, 3, []),
    ([], {"pattern": "/[ab]$"}, 0, ["/c"]),
    (["http://others.example/a"], {}, 0, ["/a", "/b", "/c"]),
)
@pytest.mark.parametrize("sync", [False, True])
async def test_a_handler_purges_paths_of_its_own_host(shop, urls, named, count, left, sync):
    client, counts = shop(rules=Rules(ttl=60)), []

    @client.shop.get("/{name}")
    def page(name: str) -> str:
        tag(name)
        return name

    if sync:
        client.shop.post("/")(lambda: counts.append(purge.sync(*urls, **named)))
    else:

        @client.shop.post("/")
        async def change() -> None:
            counts.append(await purge(*urls, **named))

    names = ["/a", "/b", "/c"]
    await handlings(client, *([name] for name in names))
    assert (await client("/", "POST")).status == 200
    assert counts == [count]
    assert [name for name in names if "hit" in (await client(name)).handling] == left


@pytest.mark.needs("fastapi>=0.121")  # has a dependency end behind the response, by its scope
async def test_a_purge_is_repeated_when_the_call_has_ended(shop):
    heard = []
    client, stock, going = shop(rules=Rules(ttl=60), listeners=[heard.append]), ["old"], asyncio.Event()

    async def session():
        yield
        await going.wait()
        stock[0] = "new"  # the commit

    @client.shop.get("/a")
    async def page() -> str:
        return stock[0]

    @client.shop.post("/b")
    async def change(_: None = Depends(session, scope="request")) -> None:
        await purge("/a")

    await client("/a")
    changing = asyncio.create_task(client("/b", "POST"))
    await idle()
    assert (await client("/a")).body == b'"old"'
    going.set()
    await changing
    await idle()
    assert (await client("/a")).body == b'"new"'
    assert len([each for each in heard if each.purged]) == 1


@pytest.mark.pure("a method is replaced")
@cases("kind, carried_out", ("http", ["a", "b", "a", "a", "b"]), ("websocket", ["a", "b", "a"]))
async def test_purges_of_a_long_call_are_repeated_once(monkeypatch, client_of, clock, kind, carried_out):
    names = []

    async def noted(purger, order, **named):
        names.append(order.value)
        return 0

    async def app(scope, receive, send):
        for name in ("a", "b", "a"):
            await purge(tag=name)
        if kind == "http":
            await respond(send)

    monkeypatch.setattr(handlers.Purger, "_carry_out", noted)
    cache = CacheMiddleware(app, clock=clock)
    await (client_of(cache)("/") if kind == "http" else Handshake(cache)("/"))
    assert names == carried_out


async def test_a_refused_purge_raises_in_the_handler(shop):
    client, errors = shop(), []

    @client.shop.post("/")
    async def change() -> None:
        for urls, named in ((["/%00"], {}), ([], {"tag": ["a"]}), (["a"], {})):
            try:
                await purge(*urls, **named)
            except (RefusedError, TypeError, ValueError) as error:
                errors.append(str(error))
        with suppress(RuntimeError):
            purge.sync("/a")
            errors.append("the event loop was stopped")

    await client("/", "POST")
    assert errors[0] == "control-character"
    assert errors[1].startswith("purge: tag: found ['a']")
    assert errors[2].startswith("purge: found 'a'; allowed: a path")
    assert len(errors) == 3


async def test_handlers_speak_to_every_cache_around_them(client_of, clock):
    async def page(request):
        tag("a")
        return PlainTextResponse("page")

    async def change(request):
        return PlainTextResponse(str(await purge("/shop/a", tag="a")))

    routes = [Route("/a", univocal.cached(60, tags=["b"])(page)), Route("/change", change, methods=["POST"])]
    inner = CacheMiddleware(Starlette(routes=routes), clock=clock)
    client = client_of(CacheMiddleware(Starlette(routes=[Mount("/shop", inner)]), clock=clock))
    for name in "ab":
        await client("/shop/a")
        assert "hit" in (await client("/shop/a")).handling
        assert [await each.purge(tag=name) for each in (client.app, inner)] == [1, 1]
    await client("/shop/a")
    assert (await client("/shop/change", "POST")).body == b"2"
    assert "hit" not in (await client("/shop/a")).handling


async def test_a_task_that_outlives_its_call_purges_once(shop):
    client, tasks = shop(rules=Rules(ttl=60)), []
    client.shop.get("/a")(cached_page())

    async def later(ended: asyncio.Event) -> int:
        await ended.wait()
        tag("of no response")
        return await purge("/a")

    ended = asyncio.Event()

    @client.shop.post("/")
    async def change() -> None:
        tasks.append(asyncio.create_task(later(ended)))

    await client("/", "POST")
    await client("/a")
    ended.set()
    assert await tasks[0] == 1


async def test_calls_beside_one_another_do_not_mix(client_of, clock):
    gates = {name: asyncio.Event() for name in "ab"}

    async def page(request):
        name = request.path_params["name"]
        tag(name)
        await gates[name].wait()
        return PlainTextResponse(name, headers={"cache-control": "max-age=60"})

    app = Starlette(routes=[Mount("/in", Starlette(routes=[Route("/{name}", page)]))])
    client = client_of(CacheMiddleware(app, clock=clock))
    asked = [asyncio.create_task(client(f"/in/{name}")) for name in "ab"]
    await asyncio.sleep(0)
    gates["b"].set()
    await asked[1]
    gates["a"].set()
    await asked[0]
    assert [await client.app.purge(tag=name) for name in "ab"] == [1, 1]
