"""Mounted before several frameworks, under uvicorn: a client leaves, and the application hears of it."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from univocal import CacheMiddleware

Ask = Callable[..., Any]

# The events of an application, in order.
told = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    told.clear()


async def noticed(word: str) -> None:
    """Wait until the application tells this."""
    async with asyncio.timeout(20):
        while word not in told:  # noqa: ASYNC110  (a server's task tells it)
            await asyncio.sleep(0.01)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"data: tick\n\n"
        told.append("began")
        await asyncio.sleep(0.01)


EVENTS = {"Cache-Control": "no-store", "Content-Type": "text/event-stream"}


def starlette_app() -> Any:
    async def events(_: Any) -> StreamingResponse:
        return StreamingResponse(endless(), headers=EVENTS)

    return Starlette(routes=[Route("/events", events)])


def quart_app() -> Any:
    quart = import_module("quart")  # not by each process that collects tests
    app = quart.Quart("leaving")

    @app.get("/events")
    async def events() -> Any:
        response = await quart.make_response(endless(), EVENTS)
        response.timeout = None
        return response

    return app


def django_app() -> Any:
    """Django with a path of its own, configured by the examples: a process can configure it once."""
    import_module("tests.integration.clients.examples.django_site")
    http = import_module("django.http")

    async def events(_: Any) -> Any:
        return http.StreamingHttpResponse(endless(), headers=EVENTS)

    paths = (import_module("django.urls").path("events", events),)

    class Here(import_module("django.core.handlers.asgi").ASGIHandler):
        def create_request(self, *arguments: Any) -> Any:
            request, error = super().create_request(*arguments)
            request.urlconf = paths
            return request, error

    return Here()


@pytest.fixture
async def behind_cache(serve: Any) -> AsyncIterator[Callable[[Any], Any]]:
    """Serve an application behind a CacheMiddleware; a function that begins a request comes back."""
    clients = []

    async def start(app: Any) -> Ask:
        front = await serve(CacheMiddleware(app), http="auto", ws="none")

        async def ask(target: str, method: str = "GET", more: str = "") -> asyncio.StreamWriter:
            reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
            writer.write(f"{method} {target} HTTP/1.1\r\nHost: en.example\r\n{more}\r\n".encode())
            clients.append((reader, writer))
            return writer

        return ask

    yield start
    for _, writer in clients:
        writer.close()


@pytest.mark.parametrize("make", [starlette_app, quart_app, django_app])
async def test_an_endless_view_ends_when_its_client_leaves(behind_cache, make):
    app = make()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        told.append("ended")

    client = await (await behind_cache(watched))("/events")
    await noticed("began")
    assert "ended" not in told
    client.close()
    await noticed("ended")


@pytest.mark.parametrize("pause", [0.0, 0.3], ids=["early", "late"])
@pytest.mark.parametrize("size", [10, 65536])
async def test_a_generator_ends_when_its_client_leaves(behind_cache, size, pause):
    """It does not wait for the garbage collector, even if its client has not taken what it gave."""

    async def content() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(size)
                told.append("began")
                await asyncio.sleep(0)
        finally:
            told.append("ended")

    async def events(_: Any) -> StreamingResponse:
        return StreamingResponse(content(), headers=EVENTS)

    client = await (await behind_cache(Starlette(routes=[Route("/events", events)])))("/events")
    await noticed("began")
    await asyncio.sleep(pause)
    gc.disable()
    try:
        client.close()
        await noticed("ended")
    finally:
        gc.enable()


async def test_a_view_that_asks_is_told(behind_cache):
    app = FastAPI()

    @app.get("/work")
    async def work(request: Request) -> str:
        while not await request.is_disconnected():
            told.append("there")
            await asyncio.sleep(0.01)
        told.append("gone")
        return "nobody reads this"

    client = await (await behind_cache(app))("/work")
    await noticed("there")
    assert "gone" not in told
    client.close()
    await noticed("gone")


async def test_a_view_that_is_told_nothing_until_its_content_ends(behind_cache):
    """An upload of which the rest never comes."""

    async def take(request: Any) -> PlainTextResponse:
        async for chunk in request.stream():
            told.append(f"took {len(chunk)}")  # noqa: PERF401
        return PlainTextResponse("all of it")

    app = Starlette(routes=[Route("/upload", take, methods=["POST"])])

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except Exception as error:
            told.append(type(error).__name__)

    client = await (await behind_cache(watched))("/upload", "POST", "Content-Length: 10\r\n")
    client.write(b"12345")
    await noticed("took 5")
    client.close()
    await noticed("ClientDisconnect")


async def test_a_handler_that_would_have_finished_does(behind_cache):
    go_on = asyncio.Event()

    async def handler(_: Any) -> PlainTextResponse:
        told.append("began")
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        told.append("saved")
        return PlainTextResponse("saved")

    async def heard(scope: Any, receive: Any, send: Any) -> None:
        async def listen() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            told.append("disconnect")

        listening = asyncio.create_task(listen())
        await app(scope, receive, send)
        await listening

    app = Starlette(routes=[Route("/save", handler, methods=["POST"])])
    client = await (await behind_cache(heard))("/save", "POST", "Content-Length: 0\r\n")
    await noticed("began")
    client.close()
    await noticed("disconnect")
    go_on.set()
    await noticed("saved")
    assert "cancelled" not in told
