"""Requests through the middleware on several nodes with one Redis."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from support import open_files
from univocal import CacheMiddleware, RefusedError, Rules
from univocal.store.purge_selectors import Everything

FRESH = [(b"cache-control", b"max-age=60")]


@dataclass
class Application:
    """Answers with how often it was asked."""

    fields: list[tuple[bytes, bytes]]
    delay: float = 0.0
    count: int = 0
    methods: list[str] = field(default_factory=list)

    async def __call__(self, scope, receive, send):
        self.count += 1
        mine = self.count
        self.methods.append(scope["method"])
        await asyncio.sleep(self.delay)
        unchanged = dict(scope["headers"]).get(b"if-none-match") == b'"v"'
        status = 304 if unchanged else 200
        await send({"type": "http.response.start", "status": status, "headers": self.fields})
        await send({"type": "http.response.body", "body": b"" if unchanged else b"%d" % mine})


@dataclass
class Client:
    """One node, and who asks it."""

    node: Any
    middleware: CacheMiddleware
    http: httpx.AsyncClient

    async def get(self, path="/x", method="GET"):
        """The content, and what Cache-Status says."""
        response = await self.http.request(method, path)
        return response.text, response.headers["cache-status"].removeprefix("univocal; ")


@pytest.fixture
def ahead():
    """The seconds by which the nodes' clock is ahead of the system's."""
    return [0.0]


@pytest.fixture
async def clients(join, ahead):
    """Puts an application behind so many nodes."""
    made = []

    def clock():
        return time.time() + ahead[0]

    async def put(app, count=2, rules=None, **settings):
        for _ in range(count):
            node = await join(clock=clock, **settings)
            middleware = CacheMiddleware(app, rules=rules or Rules(), store=node.tier, clock=clock)
            transport = httpx.ASGITransport(middleware)
            made.append(
                Client(node, middleware, httpx.AsyncClient(transport=transport, base_url="http://a.example"))
            )
        return made

    yield put
    for client in made:
        await client.http.aclose()


async def test_a_purge_by_its_method_reaches_all(clients, until):
    a, b = await clients(Application(FRESH))
    await a.get()
    await b.get()
    assert '"purged": 1' in (await a.http.request("PURGE", "/%78", headers={"host": "a.example"})).text
    assert (await a.get())[0] == "2"
    await until(lambda: not b.node.memory.stats.entries)
    assert (await b.get())[0] == "2"


async def test_requests_do_not_queue_for_unstorable_responses(clients):
    app = Application([(b"cache-control", b"no-store")], delay=0.1)
    three = await clients(app, 3, times={"patience": 60})
    began = time.monotonic()
    answers = await asyncio.gather(*(client.get() for client in three for _ in range(5)))
    assert time.monotonic() - began < 30
    assert len({body for body, _ in answers}) == app.count > 10


async def test_a_validation_is_for_all(clients, ahead):
    app = Application([(b"cache-control", b"max-age=1"), (b"etag", b'"v"')])
    a, b = await clients(app)
    await a.get()
    await b.get()
    ahead[0] = 1.2
    body, handled = await a.get()
    assert (body, "fwd=stale; fwd-status=304" in handled) == ("1", True)
    body, handled = await b.get()
    assert (body, "shared" in handled) == ("1", True)
    assert app.count == 2


async def test_one_node_alone_revalidates_a_stale_response(clients, ahead):
    app = Application([(b"cache-control", b"max-age=1, stale-while-revalidate=50")])
    a, b = await clients(app)
    await a.get()
    ahead[0] = 1.2
    assert (await b.get())[0] == "1"
    async with asyncio.timeout(30):
        for client in (b, a):  # until it is stored, and told, both serve what is stale
            while (await client.get())[0] != "2":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert app.count == 2


async def test_an_unsafe_method_ends_what_other_nodes_hold(clients, until):
    app = Application(FRESH)
    a, b = await clients(app)
    await a.get()
    await b.get()
    assert app.count == 1
    await b.get(method="POST")
    await until(lambda: not a.node.memory.stats.entries)
    assert (await a.get())[0] == "3"


async def test_without_redis_the_nodes_go_on_alone(clients, server, until):
    a, b = await clients(Application(FRESH), detached_ttl=30)
    await a.get()
    await b.get()
    server.kill()
    for client in (a, b):
        await client.node.loses_redis()
    assert (await a.get())[0] == "2"
    await until(lambda: a.node.memory.stats.responses)
    assert (await a.get())[1].startswith("hit")
    assert (await b.get())[0] == "3"
    with pytest.raises(RefusedError, match="shared-store-unavailable"):
        await a.middleware.tiers.purge(Everything(), time.time())
    answer = await b.http.request("PURGE", "/x")
    assert (answer.status_code, answer.json()["reason"]) == (503, "shared-store-unavailable")
    assert (await b.get())[0] == "4"
    server.start()
    await until(lambda: a.node.store.connected and b.node.store.connected)
    assert (await a.get())[0] == "5"
    assert (await b.get())[0] == "5"


@pytest.mark.parametrize(
    ("fields", "shared"),
    [({"cookie": "session=1"}, False), ({"authorization": "Basic eA=="}, False), ({"cookie": "_ga=1"}, True)],
    ids=["session", "credentials", "no matter"],
)
async def test_rule_shared_responses_serve_no_user_of_another_node(clients, fields, shared):
    app = Application([])
    a, b = await clients(app, rules=Rules(ttl=60, keep_cookies=("session",)))
    assert (await a.get())[0] == "1"
    user = await b.http.get("/x", headers=fields)
    assert (user.text, "hit" in user.headers["cache-status"]) == (("1", True) if shared else ("2", False))
    assert (await b.get())[0] == "1"


class Serving:
    """A server's calls to an application: its lifespan around requests."""

    def __init__(self, app: CacheMiddleware) -> None:
        self.app = app
        self.said = asyncio.Queue[dict[str, Any]]()
        self.heard = asyncio.Queue[dict[str, Any]]()

    async def __aenter__(self) -> httpx.AsyncClient:
        self.task = asyncio.create_task(self.app({"type": "lifespan"}, self.said.get, self.heard.put))
        await self._tell("startup")
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://a.example")

    async def __aexit__(self, *error: object) -> None:
        await self._tell("shutdown")
        await self.task

    async def _tell(self, event: str) -> None:
        self.said.put_nowait({"type": f"lifespan.{event}"})
        assert (await self.heard.get())["type"] == f"lifespan.{event}.complete"


@pytest.mark.parametrize("kind", ["redis", "file"])
def test_a_store_is_there_again_in_a_second_lifespan(server, tmp_path, kind):
    """Test clients make an event loop and a lifespan for each test, around one application."""
    asked = Application(FRESH)

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await asked(scope, receive, send)
        else:
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})

    store = server.url if kind == "redis" else f"file://{tmp_path}/store"
    middleware = CacheMiddleware(app, rules=Rules(), store=store)

    async def life():
        async with Serving(middleware) as client:
            before = (await client.get("/x")).text
            assert (await client.request("PURGE", "/x")).json()["purged"] == 1
            return before, (await client.get("/x")).text

    assert [asyncio.run(life()) for _ in range(3)] == [("1", "2"), ("2", "3"), ("3", "4")]
    assert not any(str(tmp_path) in path for path in open_files())
