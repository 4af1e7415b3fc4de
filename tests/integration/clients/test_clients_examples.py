"""The examples of the frameworks' documentation, under uvicorn and called in the process of the tests.

The frameworks have one list of expectations. All is equal but for what a cache is for.
"""

import asyncio
import contextlib
import gzip
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import NamedTuple

import pytest
from websockets.sync.client import connect

from tests.asgi.conftest import respond
from tests.integration.clients.examples.mounted import wrapped
from tests.integration.clients.noted import Noted
from tests.integration.clients.sites import OTHER, Answer, Row, Site, compared, until_noted
from univocal import CacheMiddleware

with warnings.catch_warnings(action="ignore"):  # it would rather have another httpx
    from starlette.testclient import TestClient

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the frameworks about themselves
EXAMPLES = "tests.integration.clients.examples"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PARTS = {"Content-Type": "multipart/form-data; boundary=b"}
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--b--\r\n'
JSON = {"Content-Type": "application/json"}
FRIEND = {"Origin": "https://friend.example"}
FRAMEWORKS = ("fastapi", "litestar", "quart", "django")  # FastAPI has Starlette's own classes
# Examples that a framework's documentation does not have.
LACKING = {
    "quart": {"a key", "no key"},
    "django": {"a key", "no key", "a dependency", "a dependency of a POST", "state", "CORS of a friend"}
    | {"a websocket"},
}
CLOSED = ("open", "closed")
# A stored page has parts, though its framework knows none, and no coding where none was in its Vary.
CACHES = {
    "litestar": {"a part of a file", "a large page, compressed"},
    "quart": {"a part of a file"},
    "django": {"a part of a file"},
}
ROWS = {
    "a page": Row("/page", content="<h1>/page</h1>", seen={"cache-control": "max-age=60"}),
    "HEAD": Row("/static/page.txt", content="", method="HEAD"),
    "a page below a prefix, with a hook": Row("/sub/page", seen={"x-hooked": "yes"}),
    "a query": Row("/items/7?page=2"),
    "a wrong parameter": Row("/items/seven", 0),
    "PUT of JSON": Row("/items/7", method="PUT", fields=JSON, body=b'{"item":{"name":"a"},"note":"b"}'),
    "PUT of wrong JSON": Row("/items/7", 0, method="PUT", fields=JSON, body=b'{"item":'),
    "a stream": Row("/stream", content="0 1 2 3 4 "),
    "events of the server": Row("/sse"),
    "a file": Row("/file", content="0123456789\n"),
    "a part of a file": Row("/file", 0, fields={"Range": "bytes=2-4"}),
    "a static file": Row("/static/page.txt", content="0123456789\n"),
    "no static file": Row("/static/none.txt", 404),
    "a large page": Row("/large", content="0123456789abcdef" * 65536),
    "a large page, compressed": Row("/large", fields={"Accept-Encoding": "gzip"}),
    "a form": Row("/form", method="POST", fields=FORM, body=b"name=ann&town=a%20b"),
    "an upload": Row("/upload", method="POST", fields=PARTS, body=FILE),
    "a wrong upload": Row("/upload", 0, method="POST", fields=PARTS, body=FILE[:40]),
    "a task": Row("/task", content="begun", events=("task",)),
    "a task of a POST": Row("/task", content="begun", method="POST", events=("task",)),
    "a dependency": Row("/dependency", events=CLOSED),
    "a dependency of a POST": Row("/dependency", method="POST", events=CLOSED),
    "a session": Row("/session", content="1"),
    "a cookie that is set": Row("/cookie"),
    "a cookie": Row("/cookie", fields={"Cookie": "basket=b"}),
    "a key": Row("/secret", fields={"X-API-Key": "ann"}),
    "no key": Row("/secret", 0),
    "a redirect": Row("/moved", 0, seen={"location": "/page"}),
    "an HTTP error": Row("/teapot", 418),
    "an error with a handler": Row("/sold-out", 409),
    "an error without one": Row("/broken", 500),
    "state": Row("/state", content="yes"),
    "no route": Row("/nowhere", 404),
    "a wrong method": Row("/page", 0, method="DELETE"),
    "CORS of a friend": Row(
        "/items/7", fields=FRIEND, seen={"access-control-allow-origin": "https://friend.example"}
    ),
    "CORS of a stranger": Row("/items/7", fields={"Origin": "https://evil.example"}),
    "a preflight": Row(
        "/items/7", 0, method="OPTIONS", fields={**FRIEND, "Access-Control-Request-Method": "GET"}
    ),
}  # fmt: skip


class Called:
    """A site in the test's own process, called as the frameworks' documentation tests it."""

    def __init__(self, client, events):
        self.client, self.events = client, events

    def ask(self, row):
        self.client.cookies.clear()
        fields = {"Accept-Encoding": "identity", **row.fields}
        response = self.client.request(row.method, row.target, headers=fields, content=row.body or None)
        told = sorted(field for field in response.headers.multi_items() if field[0] not in OTHER)
        return Answer(response.status_code, told, response.content, cut=False)

    def told(self, count):
        return until_noted(self.events, count)

    def said(self):
        with self.client.websocket_connect("/ws") as websocket:
            websocket.send_text("a")
            return websocket.receive_text()


class Served(Site):
    """A site under uvicorn, in a process of its own."""

    def said(self):
        with connect(f"ws://127.0.0.1:{self.port}/ws") as websocket:
            websocket.send("a")
            return str(websocket.recv())


class Sites(NamedTuple):
    """One framework's site: as it is, in a cache, and in one that gives a lifetime."""

    framework: str
    bare: Called | Served
    cached: Called | Served
    lasting: Called | Served

    def require(self, name):
        if name in LACKING.get(self.framework, ()):
            pytest.skip(f"{self.framework} has none")


def called(module, stack, folder):
    stack.enter_context(pytest.MonkeyPatch.context()).setenv("EVENTS", str(folder / "events"))
    events = Noted(folder / "events")
    site, settings = import_module(module).application, {"raise_server_exceptions": False}
    for mounted in ("", "1", "ttl"):
        client = TestClient(wrapped(site, mounted), "http://shop.example", follow_redirects=False, **settings)
        yield Called(stack.enter_context(client), events)


def served(framework, module, stack, folder):
    for mounted in ("", "1", "ttl"):
        site = Served(
            "uvicorn with httptools",
            folder / f"site{mounted}",
            mounted=mounted,
            application=f"{EXAMPLES}.mounted:application",
            framework=framework,
            EXAMPLE=module,
        )
        stack.callback(site.end)
        yield site


# The client that calls is FastAPI's.
@pytest.fixture(scope="module", params=[*(f"{each}, served" for each in FRAMEWORKS), "fastapi, called"])
def sites(request, tmp_path_factory):
    framework, how = request.param.split(", ")
    for package in (framework, "python_multipart"):
        pytest.importorskip(package, reason="needs the frameworks (univocal[test,clients])")
    module = f"{EXAMPLES}.{framework}_site"
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("sites")
        yield Sites(
            framework,
            *(called(module, stack, folder) if how == "called" else served(framework, module, stack, folder)),
        )


def plain(answer):
    """The answer without a 200's length and unzipped: a stored stream has a length, gzip writes the time."""
    content = answer.content
    return compared(
        answer._replace(
            fields=[field for field in answer.fields if answer.status != 200 or field[0] != "content-length"],
            content=gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content,
        )
    )


@pytest.mark.parametrize("name", ROWS)
def test_an_example_answers_as_without_the_cache(sites, name):
    sites.require(name)
    row = ROWS[name]
    expected = sites.bare.ask(row)
    events = sites.bare.told(len(row.events))
    assert (expected.status, set(row.events) <= set(events)) == (row.status or expected.status, True)
    assert row.content is None or expected.content.decode() == row.content
    assert set(row.seen.items()) <= set(expected.fields)
    for _ in range(2):
        for site in (sites.cached, sites.lasting):
            assert plain(site.ask(row)) == plain(expected) or name in CACHES.get(sites.framework, ())
            told = site.told(len(events) if site is sites.cached else 0)
            assert set(told) == set(events) or site is sites.lasting


def test_a_websocket_of_an_example_is_as_without_the_cache(sites):
    sites.require("a websocket")
    assert [site.said() for site in sites[1:]] == ["said a"] * 3


def test_a_cache_in_litestars_middleware_is_inside_its_cors():
    """Its answers to requests without Origin have no Vary: around it, they would be answers to all others."""
    litestar = pytest.importorskip("litestar", reason="needs the framework (univocal[clients])")
    site = import_module(f"{EXAMPLES}.litestar_site")
    application = litestar.Litestar(
        [site.page],
        middleware=[litestar.middleware.DefineMiddleware(CacheMiddleware)],
        cors_config=site.CORSConfig(allow_origins=["https://friend.example"]),
    )
    with TestClient(application) as client:
        answers = [client.get("/page", headers=fields) for fields in ({}, FRIEND, {})]
    told = [answer.headers.get("access-control-allow-origin") for answer in answers]
    assert told == [None, "https://friend.example", None]
    assert ["hit" in answer.headers["cache-status"] for answer in answers] == [False, True, True]


@pytest.mark.parametrize("store", ["memory", "file://{}"])
def test_requests_from_threads_share_the_loop_of_a_test_client(store, tmp_path):
    asked = []

    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            await send({"type": f"{(await receive())['type']}.complete"})
            await send({"type": f"{(await receive())['type']}.complete"})
            return
        asked.append(scope["path"])
        await asyncio.sleep(0.1)
        await respond(send, b"page", [(b"cache-control", b"max-age=60")])

    begun = time.monotonic()
    cache = CacheMiddleware(application, store=store.format(tmp_path))
    with TestClient(cache) as client, ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(client.get, ["/a"] * 4))
    assert [answer.text for answer in answers] == ["page"] * 4
    assert (asked, time.monotonic() - begun < 4) == (["/a"], True)
