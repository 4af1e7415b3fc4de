"""One list of expectations for a shop under each ASGI server, with the cache around it and without it.

Answers are equal but for the work of a cache. Each row is asked for once without the cache, and twice with
it: a second request may be one that waits for no other, or a hit. The examples test what concerns no server.
"""

import contextlib
import signal
import socket
import time

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.integration.clients.sites import COMMANDS, STARTS, Row, Site, compared

pytestmark = pytest.mark.long

SHOP = "shop:application"
JSON = {"Content-Type": "application/json"}
CHUNKED = {"Transfer-Encoding": "chunked"}
SESSION = ("open", "closed in a thread", "closed")
SAID = "said: by a handler, True"
TASKS = ("async task", "task in a thread")
ROWS = {
    "JSON": Row("/", content='{"shop":"open"}', seen={"content-type": "application/json"}),
    "a function as middleware": Row("/functions/streamed", content="0 1 2 3 4 ", seen={"x-timed": "yes"}),
    "a stream that fails within it": Row(
        "/functions/broken-within", content="half", events=("raised: a stream failed",)
    ),
    "content through it": Row(
        "/functions/echo", content='{"octets":2,"type":null,"first":"ab"}', method="POST", body=b"ab"
    ),
    "dependencies within it": Row(
        "/functions/session", content='["session","thread"]', method="POST", events=SESSION
    ),
    "a path parameter": Row("/items/7", content='{"number":7,"page":1}'),
    "a query parameter": Row("/items/7?page=2", content='{"number":7,"page":2}'),
    "an escaped digit": Row("/items/%37", content='{"number":7,"page":1}'),
    "repeated queries": Row("/search?a=1&a=2&b=", content='[["a","1"],["a","2"],["b",""]]'),
    "an escaped query": Row("/search?a%20b=c%26d", content='[["a b","c&d"]]'),
    "a query with plus": Row("/search?a=b+c", content='[["a","b c"]]'),
    "a path with a blank": Row("/files/a%20b", content='"a b"'),
    "a path in UTF-8": Row("/files/%C3%A9", content='"é"'),
    "a path with folders": Row("/files/a/b/c", content='"a/b/c"'),
    "a path with marks": Row("/files/a:b@c,d;e=f", content='"a:b@c,d;e=f"'),
    "text": Row("/plain", content="plain", seen={"x-shop": "yes", "cache-control": "no-store"}),
    "no content": Row("/empty", 204, ""),
    "repeated fields": Row("/repeated", seen={"x-two": "one, two"}),
    "a stream": Row("/streamed", content="0 1 2 3 4 "),
    "a stream over HTTP/1.0's end": Row("/streamed", content="0 1 2 3 4 ", fields={"Connection": "close"}),
    "a megabyte": Row("/large", content="0123456789abcdef" * 65536),
    "a file": Row("/file", content="0123456789\n"),
    "a part of a file": Row("/file", 206, "234", fields={"Range": "bytes=2-4"}),
    "HEAD": Row("/any", 200, "", "HEAD"),
    "PUT": Row("/any", content='"PUT"', method="PUT"),
    "PATCH": Row("/any", content='"PATCH"', method="PATCH"),
    "DELETE": Row("/any", content='"DELETE"', method="DELETE"),
    "OPTIONS": Row("/any", content='"OPTIONS"', method="OPTIONS"),
    "a validator": Row("/etag", content="tagged", seen={"etag": '"v1"'}),
    "a validator that fits": Row("/etag", 304, "", fields={"If-None-Match": '"v1"'}, seen={"etag": '"v1"'}),
    "a validator that does not": Row("/etag", content="tagged", fields={"If-None-Match": '"v0"'}),
    "POST of JSON": Row(
        "/items",
        content='{"name":"a","price":2.0}',
        method="POST",
        fields=JSON,
        body=b'{"name":"a","price":2}',
    ),
    "POST of nothing": Row("/echo", content='{"octets":0,"type":null,"first":""}', method="POST"),
    "POST of text": Row(
        "/echo",
        content='{"octets":5,"type":"text/plain","first":"hello"}',
        method="POST",
        fields={"Content-Type": "text/plain"},
        body=b"hello",
    ),
    "POST of a megabyte": Row("/chunks", content="1000000", method="POST", body=b"x" * 1_000_000),
    "POST in chunks": Row(
        "/chunks", content="11", method="POST", fields=CHUNKED, body=b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    ),
    "POST that is not read": Row("/unread", content='"unread"', method="POST", body=b"x" * 100_000),
    "the client": Row("/whence", content='{"url":"/whence","base":"/","client":"127.0.0.1","scheme":"http"}'),
    "a URL by name": Row("/named", content='"/items/7"'),
    "a client that is there": Row("/there", content="false"),
    "state of the lifespan": Row("/state", 0),
    "an error without one": Row(
        "/broken", 500, "Internal Server Error", events=("raised: a handler failed",)
    ),
    "an error in a stream": Row("/broken-within", cut=True, events=("raised: a stream failed",)),
    "a time that is up": Row("/late", 504, "too late", events=("cancelled", "time is up")),
    "a slash that is missing": Row("/api/items", 307, ""),
    "a slash": Row("/api/items/", content='"slashed"'),
    "a mounted application": Row("/sub/page", content='["/sub","/sub/page"]'),
    "documentation": Row("/openapi.json"),
    "raw messages": Row("/raw/plain", content="one two", seen={"x-raw": "plain"}),
    "a second start": Row("/raw/twice", 0),
    "receiving behind the response": Row("/raw/behind", content="one two", events=("received",)),
    "tasks": Row("/tasks", content='"begun"', events=TASKS),
    "tasks of a POST": Row("/tasks", content='"begun"', method="POST", events=TASKS),
    "an error in a task": Row("/broken-task", content='"begun"', events=("raised: a task failed",)),
    "an error in a POST's task": Row(
        "/broken-task", content='"begun"', method="POST", events=("raised: a task failed",)
    ),
    "dependencies": Row("/session", content='["session","thread"]', events=SESSION),
    "dependencies of a POST": Row("/session", content='["session","thread"]', method="POST", events=SESSION),
    "a context variable": Row("/said", content='"said"', events=(SAID,)),
    "a context variable of a POST": Row("/said", content='"said"', method="POST", events=(SAID,)),
    "a context variable in a thread": Row("/said-in-a-thread", content='"nothing"'),
}


@pytest.fixture(scope="module", params=COMMANDS)
def shops(request, tmp_path_factory):
    """The shop under one of the servers without the cache, and with it."""
    pytest.importorskip(COMMANDS[request.param][0], reason="needs the server (univocal[servers])")
    folder = tmp_path_factory.mktemp("shop")
    with contextlib.ExitStack() as stack:
        bare = Site(request.param, folder / "bare", mounted="", application=SHOP)
        stack.callback(bare.end)
        mounted = Site(request.param, folder / "mounted", mounted="1", application=SHOP)
        stack.callback(mounted.end)
        yield bare, mounted


@pytest.mark.parametrize("name", ROWS)
def test_a_mounted_shop_is_as_without_the_cache(shops, name):
    row, (bare, mounted) = ROWS[name], shops
    expected = bare.ask(row)
    events = bare.told(len(row.events))
    assert (expected.status, expected.cut) == (row.status or expected.status, row.cut)
    if row.content is not None:
        assert expected.content.decode() == row.content
    for field, value in row.seen.items():
        assert ", ".join(each for told, each in expected.fields if told == field) == value
    assert set(row.events) <= set(events)
    for _ in range(2):
        assert compared(mounted.ask(row)) == compared(expected)
        assert mounted.told(len(events)) == events


@pytest.mark.parametrize(
    "row", [Row("/late"), Row("/chunks", method="POST", fields={"Content-Length": "10"})]
)
def test_a_client_that_leaves_is_heard_as_without_the_cache(shops, row):
    told = []
    for shop in shops:
        shop.events()
        with socket.create_connection(("127.0.0.1", shop.port), timeout=20) as connection:
            lines = "".join(f"{name}: {value}\r\n" for name, value in row.fields.items())
            connection.sendall(f"{row.method} {row.target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode())
            time.sleep(0.1)
        told.append(shop.told(2 if row.target == "/late" else 0))
    assert told[0] == told[1]


def test_a_websocket_is_as_without_the_cache(shops):
    told = []
    for shop in shops:
        try:
            with connect(f"ws://127.0.0.1:{shop.port}/ws") as websocket:
                websocket.send("hello")
                told.append(websocket.recv())
        except InvalidStatus as refused:
            told.append(refused.response.status_code)
    assert told[0] == told[1]


@pytest.mark.parametrize("server", COMMANDS)
def test_a_task_at_the_shutdown_ends_as_without_the_cache(tmp_path, server):
    pytest.importorskip(COMMANDS[server][0], reason="needs the server (univocal[servers])")
    told = []
    for mounted in ("", "1"):
        shop = Site(server, tmp_path / f"shop{mounted}", mounted=mounted, application=SHOP)
        try:
            assert shop.ask(Row("/long-task", method="POST")).status == 200
            shop.process.send_signal(signal.SIGTERM)
            shop.process.wait(STARTS)
            told.append(shop.events())
        finally:
            shop.end()
    assert told[0] == told[1]
    if server.startswith("uvicorn"):
        assert told[0] == ["long task", "shutdown"]
