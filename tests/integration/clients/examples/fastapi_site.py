"""The examples of FastAPI's documentation, each kind once."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import (
    BackgroundTasks,
    Body,
    Cookie,
    Depends,
    FastAPI,
    File,
    Form,
    HTTPException,
    Request,
    Response,
    UploadFile,
    WebSocket,
)
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    StreamingResponse,
)
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.middleware.sessions import SessionMiddleware

from tests.integration.clients.noted import events

STATIC = Path(__file__).parent / "static"


class SoldOutError(Exception):
    pass


class Item(BaseModel):
    name: str
    price: float = 1.0


class Timed(APIRoute):
    """A class of routes, which adds a field to each response."""

    def get_route_handler(self) -> Callable[[Request], Any]:
        inner = super().get_route_handler()

        async def timed(request: Request) -> Response:
            response: Response = await inner(request)
            response.headers["X-Hooked"] = "yes"
            return response

        return timed


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"started": "yes"}


async def database() -> AsyncIterator[str]:
    events.append("open")
    try:
        yield "database"
    except LookupError:
        events.append("rolled back")
        raise
    finally:
        events.append("closed")


def cursor(_: Annotated[str, Depends(database)]) -> Iterator[str]:
    yield "cursor"


application = FastAPI(lifespan=lifespan, title="Examples")
application.add_middleware(GZipMiddleware, minimum_size=100_000)
application.add_middleware(CORSMiddleware, allow_origins=["https://friend.example"])
application.add_middleware(SessionMiddleware, secret_key="a secret", max_age=None)
application.mount("/static", StaticFiles(directory=STATIC))


@application.exception_handler(SoldOutError)
async def on_sold_out(_: Request, __: SoldOutError) -> Response:
    return JSONResponse({"error": "sold out"}, 409)


@application.exception_handler(RequestValidationError)
async def on_invalid(_: Request, error: RequestValidationError) -> Response:
    return JSONResponse([each["loc"][-1] for each in error.errors()], 400)


def page(request: Request, response: Response) -> str:
    response.headers["Cache-Control"] = "max-age=60"
    return f"<h1>{request.url.path}</h1>"


application.get("/page", response_class=HTMLResponse)(page)


@application.get("/items/{number}")
async def item(number: int, page: int = 1) -> dict[str, int]:
    return {"number": number, "page": page}


@application.put("/items/{number}")
async def put(number: int, item: Item, note: Annotated[str, Body()]) -> Item:
    return item


@application.get("/stream")
async def stream() -> StreamingResponse:
    return StreamingResponse((f"{number} " for number in range(5)), media_type="text/plain")


@application.get("/sse")
async def server_sent() -> StreamingResponse:
    return StreamingResponse((f"data: {n}\n\n" for n in range(3)), media_type="text/event-stream")


@application.get("/file", response_class=FileResponse)
async def file() -> Path:
    return STATIC / "page.txt"


@application.get("/large")
def large() -> PlainTextResponse:
    return PlainTextResponse("0123456789abcdef" * 65536)


@application.post("/form")
async def form(name: Annotated[str, Form()], town: Annotated[str, Form()] = "") -> dict[str, str]:
    return {"name": name, "town": town}


@application.post("/upload")
async def upload(file: UploadFile, note: Annotated[bytes, File()] = b"") -> list[Any]:
    return [file.filename, len(await file.read())]


@application.api_route("/task", methods=["GET", "POST"])
async def task(tasks: BackgroundTasks) -> PlainTextResponse:
    tasks.add_task(events.append, "task")
    return PlainTextResponse("begun")


@application.api_route("/dependency", methods=["GET", "POST"])
async def dependency(cursor: Annotated[str, Depends(cursor)]) -> str:
    return cursor


@application.post("/rolled-back")
async def rolled_back(_: Annotated[str, Depends(database)]) -> None:
    raise LookupError


@application.get("/session")
async def session(request: Request) -> int:
    request.session["count"] = request.session.get("count", 0) + 1
    return int(request.session["count"])


@application.get("/cookie")
async def cookie(response: Response, basket: Annotated[str, Cookie()] = "none") -> str:
    response.set_cookie("basket", "full", max_age=60, httponly=True)
    return basket


@application.get("/secret")
async def secret(key: Annotated[str, Depends(APIKeyHeader(name="X-API-Key"))]) -> str:
    return key


@application.get("/moved")
async def moved() -> RedirectResponse:
    return RedirectResponse("/page")


@application.get("/teapot")
async def teapot() -> None:
    raise HTTPException(418, "short and stout", {"X-Tea": "green"})


@application.get("/sold-out")
async def sold_out() -> None:
    raise SoldOutError


@application.get("/broken")
async def broken() -> None:
    raise LookupError


@application.get("/state")
async def state(request: Request) -> PlainTextResponse:
    return PlainTextResponse(request.state.started)


@application.websocket("/ws")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(f"said {await websocket.receive_text()}")
    await websocket.close()


sub = FastAPI()
sub.router.route_class = Timed
sub.get("/page", response_class=HTMLResponse)(page)
application.mount("/sub", sub)
