"""A shop in FastAPI, as applications are written; with MOUNTED it has a cache around it, and else none."""

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Request, Response, WebSocket
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel

from tests.integration.clients.noted import events
from univocal import CacheMiddleware

FOLDER = Path(os.environ["SHOP_FOLDER"])
said: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="nothing")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"started": "yes"}
    events.append("shutdown")


app = FastAPI(lifespan=lifespan)


class Item(BaseModel):
    name: str
    price: float = 1.0


# Responses


@app.get("/")
async def root() -> dict[str, str]:
    return {"shop": "open"}


@app.get("/items/{number}")
async def item(number: int, page: int = 1) -> dict[str, int]:
    return {"number": number, "page": page}


@app.get("/search")
async def search(request: Request) -> list[tuple[str, str]]:
    return request.query_params.multi_items()


@app.get("/files/{path:path}")
async def path(path: str) -> str:
    return path


@app.get("/plain")
def plain() -> PlainTextResponse:
    return PlainTextResponse("plain", headers={"X-Shop": "yes", "Cache-Control": "no-store"})


@app.get("/empty", status_code=204)
async def empty() -> None:
    return None


@app.get("/repeated")
async def repeated(response: Response) -> str:
    response.set_cookie("a", "1")
    response.set_cookie("b", "2")
    response.headers.append("X-Two", "one")
    response.headers.append("X-Two", "two")
    return "repeated"


@app.get("/streamed")
async def streamed() -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        for number in range(5):
            yield f"{number} "
            await asyncio.sleep(0)

    return StreamingResponse(parts(), media_type="text/plain")


@app.get("/large")
async def large() -> PlainTextResponse:
    return PlainTextResponse("0123456789abcdef" * 65536)


@app.get("/file")
async def file() -> FileResponse:
    return FileResponse(FOLDER / "file.txt")


@app.api_route("/any", methods=["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def any_method(request: Request) -> str:
    return request.method


@app.get("/etag")
async def etag(request: Request) -> Response:
    headers = {"ETag": '"v1"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == '"v1"':
        return Response(status_code=304, headers=headers)
    return PlainTextResponse("tagged", headers=headers)


# Requests


@app.post("/items")
async def create(item: Item) -> Item:
    return item


@app.post("/echo")
async def echo(request: Request) -> dict[str, Any]:
    content = await request.body()
    return {
        "octets": len(content),
        "type": request.headers.get("content-type"),
        "first": content[:5].decode(),
    }


@app.post("/chunks")
async def chunks(request: Request) -> int:
    return sum([len(chunk) async for chunk in request.stream()])


@app.post("/unread")
async def unread() -> str:
    return "unread"


@app.get("/whence")
async def whence(request: Request) -> dict[str, Any]:
    host = request.client.host if request.client else None
    return {
        "url": request.url.path,
        "base": request.base_url.path,
        "client": host,
        "scheme": request.url.scheme,
    }


@app.get("/named")
async def named(request: Request) -> str:
    return str(request.url_for("item", number=7).path)


@app.get("/there")
async def there(request: Request) -> bool:
    return await request.is_disconnected()


@app.get("/state")
async def state(request: Request) -> str:
    return str(request.state.started)


# Errors


@app.get("/broken")
async def broken() -> None:
    raise LookupError("a handler failed")


@app.get("/broken-within")
async def broken_within() -> StreamingResponse:
    async def parts() -> AsyncIterator[str]:
        yield "half"
        await asyncio.sleep(0)
        raise LookupError("a stream failed")

    return StreamingResponse(parts())


@app.get("/late")
async def late() -> str:
    """Outlast the time that `within_time` allows."""
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        events.append("cancelled")
        raise
    return "late"


# Work behind the response


@app.api_route("/tasks", methods=["GET", "POST"])
async def tasks(background: BackgroundTasks) -> str:
    async def one() -> None:
        await asyncio.sleep(0.01)
        events.append("async task")

    def two() -> None:
        events.append("task in a thread")

    background.add_task(one)
    background.add_task(two)
    return "begun"


@app.api_route("/broken-task", methods=["GET", "POST"])
async def broken_task(background: BackgroundTasks) -> str:
    def task() -> None:
        raise LookupError("a task failed")

    background.add_task(task)
    return "begun"


async def session() -> AsyncIterator[str]:
    events.append("open")
    try:
        yield "session"
    finally:
        await asyncio.sleep(0.01)
        events.append("closed")


def session_in_a_thread() -> Iterator[str]:
    yield "thread"
    events.append("closed in a thread")


@app.api_route("/session", methods=["GET", "POST"])
async def with_session(
    one: Annotated[str, Depends(session)], two: Annotated[str, Depends(session_in_a_thread)]
) -> list[str]:
    return [one, two]


@app.api_route("/said", methods=["GET", "POST"])
async def say() -> str:
    said.set("by a handler")
    return "said"


@app.get("/said-in-a-thread")
def say_in_a_thread() -> str:
    return said.get()


@app.post("/long-task")
async def long_task(background: BackgroundTasks) -> str:
    async def task() -> None:
        await asyncio.sleep(0.5)
        events.append("long task")

    background.add_task(task)
    return "begun"


# Parts

router = APIRouter(prefix="/api")


@router.get("/items/")
async def slashed() -> str:
    return "slashed"


app.include_router(router)
sub = FastAPI()


@sub.get("/page")
async def sub_page(request: Request) -> list[str]:
    return [request.scope["root_path"], request.url.path]


app.mount("/sub", sub)


async def raw(scope: Any, receive: Any, send: Any) -> None:
    """An application without a framework: it sends what no framework sends."""
    kind = scope["path"].rpartition("/")[2]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-raw", b"%b" % kind.encode())]})
    if kind == "twice":
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        except Exception:
            events.append("the second start is an error")
    await send({"type": "http.response.body", "body": b"one ", "more_body": True})
    await send({"type": "http.response.body", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})
    if kind == "behind":
        events.append("received", (await receive())["type"])


app.mount("/raw", raw)


@app.websocket("/ws")
async def socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


functions = FastAPI()


@functions.middleware("http")
async def timed(request: Request, call_next: Any) -> Any:
    response = await call_next(request)
    response.headers["X-Timed"] = "yes"
    return response


functions.get("/streamed")(streamed)
functions.get("/broken-within")(broken_within)
functions.post("/echo")(echo)
functions.post("/session")(with_session)
app.mount("/functions", functions)


def watching(inner: Any) -> Any:
    """Note what is to be seen from outside: context variables, tasks, errors, and times that are up."""

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        task = asyncio.current_task()

        async def within_time() -> None:
            async with asyncio.timeout(0.2 if scope["path"] == "/late" else None):
                await inner(scope, receive, send)

        try:
            await within_time()
        except TimeoutError:
            events.append("time is up")
            await PlainTextResponse("too late", 504)(scope, receive, send)
        except LookupError as error:
            events.append(f"raised: {error}")
            raise
        finally:
            if scope["path"] == "/said":
                events.append(f"said: {said.get()}, {task is asyncio.current_task()}")

    return outside


application = watching(CacheMiddleware(app) if os.environ.get("MOUNTED") else app)
