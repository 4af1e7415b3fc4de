"""What Starlette's documentation shows, each kind once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser, requires
from starlette.background import BackgroundTasks
from starlette.endpoints import HTTPEndpoint, WebSocketEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
events: list[str] = []


class SoldOutError(Exception):
    pass


async def told(_: Request) -> Response:
    taken = events[:]
    events.clear()
    return JSONResponse(taken, headers={"Cache-Control": "no-store"})


def page(request: Request) -> Response:
    return HTMLResponse(f"<h1>{request.url.path}</h1>", headers={"Cache-Control": "max-age=60"})


class Item(HTTPEndpoint):
    async def get(self, request: Request) -> Response:
        page = int(request.query_params.get("page", "1"))
        return JSONResponse({"number": request.path_params["number"], "page": page})

    async def put(self, request: Request) -> Response:
        return JSONResponse(await request.json())


async def stream(_: Request) -> Response:
    async def parts() -> AsyncIterator[str]:
        for number in range(5):
            yield f"{number} "

    return StreamingResponse(parts(), media_type="text/plain")


async def server_sent(_: Request) -> Response:
    async def parts() -> AsyncIterator[str]:
        for number in range(3):
            yield f"data: {number}\n\n"

    return StreamingResponse(parts(), media_type="text/event-stream")


async def form(request: Request) -> Response:
    async with request.form() as form:
        return JSONResponse({name: str(value) for name, value in form.items()})


async def upload(request: Request) -> Response:
    async with request.form() as form:
        file: Any = form["file"]
        return JSONResponse([file.filename, len(await file.read())])


async def task(_: Request) -> Response:
    async def later() -> None:
        events.append("task")

    tasks = BackgroundTasks()
    tasks.add_task(later)
    return PlainTextResponse("begun", background=tasks)


async def session(request: Request) -> Response:
    request.session["count"] = request.session.get("count", 0) + 1
    return JSONResponse(request.session["count"])


async def cookie(request: Request) -> Response:
    response = PlainTextResponse(request.cookies.get("basket", "none"))
    response.set_cookie("basket", "full", max_age=60, httponly=True)
    return response


@requires("authenticated")
async def secret(request: Request) -> Response:
    return PlainTextResponse(request.user.display_name)


async def teapot(_: Request) -> Response:
    raise HTTPException(418, "short and stout", {"X-Tea": "green"})


async def sold_out(_: Request) -> Response:
    raise SoldOutError


async def broken(_: Request) -> Response:
    raise LookupError


async def state(request: Request) -> Response:
    return PlainTextResponse(request.state.started)


class Echo(WebSocketEndpoint):
    encoding = "text"

    async def on_receive(self, websocket: Any, data: str) -> None:
        await websocket.send_text(f"said {data}")


class Keys(AuthenticationBackend):
    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        key = conn.headers.get("x-api-key")
        return (AuthCredentials(["authenticated"]), SimpleUser(key)) if key else None


async def hook(request: Request, call_next: Any) -> Response:
    response: Response = await call_next(request)
    response.headers["X-Hooked"] = "yes"
    return response


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[dict[str, str]]:
    yield {"started": "yes"}


async def on_sold_out(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "sold out"}, 409)


application = Starlette(
    lifespan=lifespan,
    exception_handlers={SoldOutError: on_sold_out},
    middleware=[
        Middleware(TrustedHostMiddleware, allowed_hosts=["*"]),
        Middleware(SessionMiddleware, secret_key="a secret", max_age=None),
        Middleware(CORSMiddleware, allow_origins=["https://friend.example"]),
        Middleware(GZipMiddleware, minimum_size=100_000),
        Middleware(AuthenticationMiddleware, backend=Keys()),
    ],
    routes=[
        Route("/events", told),
        Route("/page", page),
        Route("/items/{number:int}", Item),
        Route("/stream", stream),
        Route("/sse", server_sent),
        Route("/file", lambda _: FileResponse(STATIC / "page.txt")),
        Route("/large", lambda _: PlainTextResponse("0123456789abcdef" * 65536)),
        Route("/form", form, methods=["POST"]),
        Route("/upload", upload, methods=["POST"]),
        Route("/task", task, methods=["GET", "POST"]),
        Route("/session", session),
        Route("/cookie", cookie),
        Route("/secret", secret),
        Route("/moved", lambda _: RedirectResponse("/page")),
        Route("/teapot", teapot),
        Route("/sold-out", sold_out),
        Route("/broken", broken),
        Route("/state", state),
        WebSocketRoute("/ws", Echo),
        Mount("/static", StaticFiles(directory=STATIC)),
        Mount("/sub", routes=[Route("/page", page)], middleware=[Middleware(BaseHTTPMiddleware, hook)]),
    ],
)
