"""The examples of Litestar's documentation, each kind once."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from litestar import Controller, Litestar, MediaType, Request, Response, Router, get, post, put, route
from litestar.background_tasks import BackgroundTask
from litestar.config.compression import CompressionConfig
from litestar.config.cors import CORSConfig
from litestar.connection import ASGIConnection
from litestar.datastructures import CacheControlHeader, Cookie, State, UploadFile
from litestar.di import Provide
from litestar.enums import HttpMethod, RequestEncodingType
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.handlers import BaseRouteHandler, websocket_listener
from litestar.middleware.session.server_side import ServerSideSessionConfig
from litestar.params import Body
from litestar.response import File, Redirect, ServerSentEvent, Stream
from litestar.static_files import create_static_files_router

from tests.integration.clients.noted import events

STATIC = Path(__file__).parent / "static"
BOTH = [HttpMethod.GET, HttpMethod.POST]


class SoldOutError(Exception):
    pass


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    app.state.started = "yes"
    yield


async def database() -> AsyncGenerator[str, None]:
    events.append("open")
    yield "database"
    events.append("closed")


def with_key(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    if "x-api-key" not in connection.headers:
        raise NotAuthorizedException


def on_sold_out(_: Request[Any, Any, Any], __: SoldOutError) -> Response[Any]:
    return Response({"error": "sold out"}, status_code=409)


async def hook(response: Response[Any]) -> Response[Any]:
    response.set_header("X-Hooked", "yes")
    return response


@get("/page", media_type=MediaType.HTML, cache_control=CacheControlHeader(max_age=60))
async def page(request: Request[Any, Any, Any]) -> str:
    return f"<h1>{request.url.path}</h1>"


class Items(Controller):
    path = "/items"

    @get("/{number:int}")
    async def item(self, number: int, page: int = 1) -> dict[str, int]:
        return {"number": number, "page": page}

    @put("/{number:int}")
    async def put(self, number: int, data: dict[str, Any]) -> dict[str, Any]:
        return data


@get("/stream")
async def stream() -> Stream:
    return Stream((f"{number} " for number in range(5)), media_type="text/plain")


@get("/sse")
async def server_sent() -> ServerSentEvent:
    return ServerSentEvent(str(number) for number in range(3))


@get("/file")
async def file() -> File:
    return File(STATIC / "page.txt")


@get("/large", sync_to_thread=True)
def large() -> str:
    return "0123456789abcdef" * 65536


@post("/form", status_code=200)
async def form(
    data: Annotated[dict[str, str], Body(media_type=RequestEncodingType.URL_ENCODED)],
) -> dict[str, str]:
    return data


@post("/upload", status_code=200)
async def upload(
    data: Annotated[dict[str, UploadFile], Body(media_type=RequestEncodingType.MULTI_PART)],
) -> list[Any]:
    return [data["file"].filename, len(await data["file"].read())]


@route("/task", http_method=BOTH, status_code=200)
async def task() -> Response[str]:
    async def later() -> None:
        events.append("task")

    return Response("begun", background=BackgroundTask(later))


@route("/dependency", http_method=BOTH, status_code=200, dependencies={"database": Provide(database)})
async def dependency(database: str) -> str:
    return database


@get("/session", middleware=[ServerSideSessionConfig().middleware])
async def session(request: Request[Any, Any, Any]) -> int:
    request.session["count"] = request.session.get("count", 0) + 1
    return int(request.session["count"])


@get("/cookie", response_cookies=[Cookie(key="basket", value="full", httponly=True)])
async def cookie(request: Request[Any, Any, Any]) -> str:
    return request.cookies.get("basket", "none")


@get("/secret", guards=[with_key])
async def secret(request: Request[Any, Any, Any]) -> str:
    return request.headers["x-api-key"]


@get("/moved")
async def moved() -> Redirect:
    return Redirect("/page")


@get("/teapot")
async def teapot() -> None:
    raise HTTPException("short and stout", status_code=418, headers={"X-Tea": "green"})


@get("/sold-out")
async def sold_out() -> None:
    raise SoldOutError


@get("/broken")
async def broken() -> None:
    raise LookupError


@get("/state")
async def state(state: State) -> str:
    return str(state.started)


@websocket_listener("/ws")
async def echo(data: str) -> str:
    return f"said {data}"


application = Litestar(
    [
        *(page, Items, stream, server_sent, file, large, form, upload, task, dependency, session),
        *(cookie, secret, moved, teapot, sold_out, broken, state, echo),
        create_static_files_router("/static", [STATIC]),
        Router("/sub", route_handlers=[page], after_request=hook),
    ],
    lifespan=[lifespan],
    exception_handlers={SoldOutError: on_sold_out},
    cors_config=CORSConfig(allow_origins=["https://friend.example"]),
    compression_config=CompressionConfig("gzip", minimum_size=100_000),
)
