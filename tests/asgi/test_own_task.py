"""The application runs in the request's own task: the cache does not stand between it and its server."""

import asyncio
import contextvars

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route

from examples import cases
from tests.asgi.conftest import respond, scope_of
from univocal import CacheMiddleware, Rules
from univocal.asgi.application import MOVES, CallState

FRESH = {"cache-control": "max-age=60"}
STALE = [(b"cache-control", b"max-age=1, stale-while-revalidate=600")]

said = contextvars.ContextVar("said", default="nothing")


async def test_context_variables_of_a_handler_reach_what_is_outside(client_of):
    heard = []

    async def handler(scope, receive, send):
        said.set("by the handler")
        await respond(send, b"")

    inner = CacheMiddleware(handler)

    async def outside(scope, receive, send):
        task = asyncio.current_task()
        await inner(scope, receive, send)
        heard.append((said.get(), task is asyncio.current_task()))

    await client_of(outside)("/a")
    assert heard == [("by the handler", True)]


@pytest.mark.parametrize("fields", [{}, FRESH, {"cache-control": "no-store"}])
async def test_a_slow_server_sends_a_stream_to_its_end(fields):
    """A streaming response ends its own sending once it hears that the client has left, or has everything."""
    sent, ended = [], asyncio.Event()

    async def receive():
        if not asked:
            asked.append(True)
            return {"type": "http.request", "body": b""}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        await asyncio.sleep(0.01)
        sent.append(message.get("body", b""))
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            ended.set()

    async def page(request):
        return StreamingResponse(iter(["one ", "two"]), headers=fields)

    app = CacheMiddleware(Starlette(routes=[Route("/a", page)]))
    for _ in range(3):
        asked = []
        sent.clear()
        ended.clear()
        scope = scope_of(b"/a", "GET", "en.example", ()) | {"asgi": {"version": "3.0", "spec_version": "2.3"}}
        await app(scope, receive, send)
        assert (b"".join(sent), ended.is_set()) == (b"one two", True)


@pytest.mark.parametrize("begun", [False, True])
async def test_a_timeout_around_the_call_is_the_callers_to_answer(client_of, begun):
    """The cache says nothing in its place: an outer middleware answers, or knows that it cannot."""
    messages, cancelled = [], []

    async def slow(scope, receive, send):
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    inner = CacheMiddleware(slow)

    async def outside(scope, receive, send):
        async def watched(message):
            messages.append(message)
            await send(message)

        try:
            async with asyncio.timeout(0.01):
                await inner(scope, receive, watched)
        except TimeoutError:
            if not messages:
                await respond(send, b"late", (), 504)

    answer = await client_of(outside)("/a")
    assert (answer.status, answer.complete) == ((200, False) if begun else (504, True))
    assert cancelled == [True]


async def test_an_application_that_survives_its_cancellation_answers(client_of, idle):
    async def stubborn(scope, receive, send):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            asyncio.current_task().uncancel()
        await respond(send, b"saved")

    asking = asyncio.create_task(client_of(CacheMiddleware(stubborn))("/a"))
    await idle()
    asking.cancel()
    assert (await asking).body == b"saved"


@cases(
    "messages, error",
    (["body"], RuntimeError),
    (["start", "start"], RuntimeError),
    (["start", "body", "body"], RuntimeError),  # the server's own word
)
async def test_messages_out_of_turn_are_errors_of_the_application(client_of, messages, error):
    caught = []

    async def confused(scope, receive, send):
        try:
            for kind in messages:
                await send({"type": f"http.response.{kind}", "status": 200, "headers": []})
        except Exception as raised:
            caught.append(type(raised))
            raise

    inner = CacheMiddleware(confused)

    async def server(scope, receive, send):
        over = False

        async def strict(message):
            nonlocal over
            if over:
                raise RuntimeError("after the response")
            over = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        await inner(scope, receive, strict)

    with pytest.raises(error):
        await client_of(server)("/a")
    assert caught == [error]


async def test_each_part_is_sent_before_the_application_goes_on(client_of):
    """A server that takes its time slows the application down, and no other client."""
    taking, sent = asyncio.Semaphore(0), []

    async def streaming(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")]}
        )
        for number in range(4):
            await send({"type": "http.response.body", "body": b"%d" % number, "more_body": True})
            sent.append(number)
        await send({"type": "http.response.body", "body": b""})

    inner = CacheMiddleware(streaming)

    async def slow(scope, receive, send):
        async def waiting(message):
            await taking.acquire()
            await send(message)

        await inner(scope, receive, waiting)

    first = asyncio.create_task(client_of(slow)("/a"))
    for count in range(3):
        taking.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(sent) == max(0, count)
    other = await client_of(inner)("/a")
    assert (other.body, other.complete, len(sent)) == (b"0123", True, 6)
    for _ in range(4):
        taking.release()
    assert (await first).body == b"0123"


# An unsafe request ends with its call


class Shop:
    """A page, and a POST that changes it when its gate opens: behind its answer."""

    def __init__(self):
        self.price, self.asked = "old", 0
        self.committing, self.reading = asyncio.Event(), asyncio.Event()
        self.reading.set()

    async def commit(self):
        await self.committing.wait()
        self.price = "new"

    async def fail(self):
        await self.commit()
        raise LookupError("behind the commit")

    async def page(self, request):
        self.asked += 1
        price = self.price
        await self.reading.wait()
        return PlainTextResponse(price, headers=FRESH)

    def app(self, work=None):
        """The application; its POST is followed by this work, or by a commit."""

        async def change(request):
            return PlainTextResponse("changed", background=BackgroundTask(work or self.commit))

        return Starlette(routes=[Route("/a", self.page), Route("/a", change, methods=["POST"])])

    def with_dependency(self):
        app = FastAPI()
        app.add_middleware(CacheMiddleware)

        async def session():
            yield
            await self.commit()

        @app.get("/a")
        async def page():
            return await self.page(None)

        @app.post("/a")
        async def change(session: None = Depends(session)):
            return PlainTextResponse("changed")

        return app


def below(app):
    return Starlette(routes=[Mount("/shop", app)])


def through(app):
    async def call(request, call_next):
        return await call_next(request)

    return BaseHTTPMiddleware(app, dispatch=call)


PLACES = {
    "a background task": lambda shop: CacheMiddleware(shop.app()),
    "a dependency": Shop.with_dependency,
    "the cache around a mount": lambda shop: CacheMiddleware(below(shop.app())),
    "the cache within a mount": lambda shop: below(CacheMiddleware(shop.app())),
    "two caches": lambda shop: CacheMiddleware(below(CacheMiddleware(shop.app()))),
    "a function's middleware": lambda shop: CacheMiddleware(through(shop.app())),
    "a task that fails": lambda shop: CacheMiddleware(shop.app(shop.fail)),
}
ENDS_BEHIND_THE_RESPONSE = {"a dependency": pytest.mark.needs("fastapi>=0.118")}


@pytest.mark.parametrize(
    "place", [pytest.param(each, marks=ENDS_BEHIND_THE_RESPONSE.get(each, ())) for each in PLACES]
)
async def test_a_response_fetched_before_a_commit_does_not_outlive_it(client_of, idle, place):
    shop = Shop()
    client = client_of(PLACES[place](shop))
    target = "/shop/a" if "mount" in place or place == "two caches" else "/a"
    assert (await client(target)).body == b"old"
    changing = asyncio.create_task(client(target, "POST"))
    await idle()
    assert (await client(target)).body == b"old"  # answered, and not committed
    assert (await client(target)).body == b"old"
    assert shop.asked == 2
    shop.reading.clear()
    other = asyncio.create_task(client(target, fields=[("cache-control", "no-cache")]))
    await idle()  # it has read the old price
    shop.committing.set()
    await asyncio.gather(changing, return_exceptions=True)
    shop.reading.set()
    assert (await other).body == b"old"
    assert [(await client(target)).body for _ in range(2)] == [b"new", b"new"]
    assert shop.asked == 4


async def test_a_change_counts_though_its_client_has_left(client_of, idle):
    price, go_on = b"old", asyncio.Event()

    async def shop(scope, receive, send):
        nonlocal price
        body = price
        if scope["method"] == "POST":
            while (await receive())["type"] != "http.disconnect":
                pass
            await go_on.wait()
            price = body = b"new"
        await respond(send, body, [(b"cache-control", b"max-age=60")])

    client, leave = client_of(CacheMiddleware(shop)), asyncio.Event()
    await client("/a")
    changing = asyncio.create_task(client("/a", "POST", leave=leave))
    await idle()
    leave.set()
    await idle()
    go_on.set()
    await changing
    assert (await client("/a")).body == b"new"


# Refreshes in the background


def lifespan_of(app, events):
    """Run the lifespan of an application: its shutdown begins when the event that comes back is set."""
    shutdown = asyncio.Event()
    messages = [{"type": "lifespan.startup"}]

    async def receive():
        if messages:
            return messages.pop()
        await shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message):
        events.append(message["type"])

    return shutdown, asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send))


async def test_a_refresh_ends_before_the_application_shuts_down(client_of, clock, idle):
    events, gate = [], asyncio.Event()

    async def page(request):
        await gate.wait()
        events.append("answered")
        headers = {name.decode(): value.decode() for name, value in STALE}
        return PlainTextResponse("page", headers=headers)

    inner = Starlette(routes=[Route("/a", page)])
    app = CacheMiddleware(inner, clock=clock)
    shutdown, lifespan = lifespan_of(app, events)
    client = client_of(app)
    await idle()
    gate.set()
    await client("/a")
    gate.clear()
    clock.now += 5
    assert "hit" in (await client("/a")).handling
    shutdown.set()
    await idle()
    assert events == ["lifespan.startup.complete", "answered"]
    gate.set()
    await lifespan
    assert events == ["lifespan.startup.complete", "answered", "answered", "lifespan.shutdown.complete"]


async def test_without_the_background_the_first_request_waits(cached, application, clock):
    client = cached(background=False)
    application.fields = STALE
    await client("/a")
    clock.now += 5
    answers = [await client("/a") for _ in range(2)]
    assert [answer.body for answer in answers] == [b"answer 2", b"answer 2"]
    assert [each.handling for each in answers] == [{"fwd=stale", "stored"}, {"hit", "ttl=1"}]
    application.script = lambda scope: (503, [], b"ill")
    clock.now += 5
    assert (await client("/a")).body == b"answer 2"  # as without it, a stale answer is better than an error
    assert application.count == 3


LENT = Rules(ttl=2, grace=60)
SAID = [(b"cache-control", b"max-age=2, stale-while-revalidate=60")]


@pytest.mark.parametrize(
    ("field", "said", "rules"),
    [
        ("authorization", SAID, Rules()),
        ("authorization", [], LENT),
        ("cookie", [], LENT),
        ("x-api-key", [], LENT),
    ],
)
async def test_no_refresh_has_a_clients_identity(client_of, clock, idle, field, said, rules):
    """Middleware outside of the cache finds out who a client is, and says so in the scope."""

    async def page(scope, receive, send):
        await respond(send, b"hello " + scope["user"], said)

    cache = CacheMiddleware(page, clock=clock, rules=rules)

    async def outside(scope, receive, send):
        user = dict(scope["headers"]).get(field.encode(), b"stranger")
        await cache({**scope, "user": user}, receive, send)

    client = client_of(outside)
    first = await client("/a")
    clock.now += 5
    await client("/a", fields=[(field, "alice")])
    await idle()
    clock.now += 1
    later = [await client("/a") for _ in range(2)]
    await idle()
    assert [first.body, *[each.body for each in later]] == [b"hello stranger"] * 3


async def test_a_refresh_has_a_task_of_its_own(client_of, clock, idle):
    tasks = []

    async def page(scope, receive, send):
        tasks.append(asyncio.current_task())
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        await respond(send, b"page", STALE)

    client = client_of(CacheMiddleware(page, clock=clock))
    await client("/a")
    clock.now += 5
    await client("/a")
    await idle()
    assert [task is asyncio.current_task() for task in tasks] == [True, False]


def test_every_state_of_a_call_is_reached():
    reached = {CallState.BEGUN}
    while more := {after for state in reached for after in MOVES[state]} - reached:
        reached |= more
    assert reached == set(CallState) == set(MOVES)
    assert [state for state in CallState if not MOVES[state]] == [CallState.ANSWERED, CallState.UNWANTED]
