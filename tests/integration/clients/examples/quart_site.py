"""The examples of Quart's documentation, each kind once."""

from collections.abc import AsyncIterator
from typing import Any

from quart import (
    Blueprint,
    Quart,
    abort,
    jsonify,
    make_response,
    redirect,
    render_template_string,
    request,
    send_from_directory,
    session,
    websocket,
)

from tests.integration.clients.noted import events

application = Quart(__name__, static_folder="static")
application.secret_key = "a secret"
started: list[str] = []


class SoldOutError(Exception):
    pass


@application.before_serving
async def start() -> None:
    started[:] = ["yes"]


@application.errorhandler(SoldOutError)
async def on_sold_out(_: SoldOutError) -> Any:
    return {"error": "sold out"}, 409


@application.after_request
async def allow(response: Any) -> Any:
    if request.headers.get("Origin") == "https://friend.example":
        response.headers["Access-Control-Allow-Origin"] = "https://friend.example"
    response.headers["Vary"] = "Origin"
    return response


@application.teardown_request
async def ended(_: BaseException | None) -> None:
    if request.path == "/dependency":
        events.append("closed")


async def page() -> Any:
    return await render_template_string("<h1>{{ path }}</h1>", path=request.path), {
        "Cache-Control": "max-age=60"
    }


application.get("/page")(page)


@application.get("/items/<int:number>")
async def item(number: int) -> Any:
    return {"number": number, "page": int(request.args.get("page", "1"))}


@application.put("/items/<int:number>")
async def put(number: int) -> Any:
    return await request.get_json()


@application.get("/stream")
async def stream() -> Any:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"%d " % number

    return parts(), {"Content-Type": "text/plain"}


@application.get("/sse")
async def server_sent() -> Any:
    async def parts() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"data: %d\n\n" % number

    response = await make_response(parts(), {"Content-Type": "text/event-stream"})
    response.timeout = None  # type: ignore[union-attr]
    return response


@application.get("/file")
async def file() -> Any:
    return await send_from_directory(application.static_folder or "", "page.txt", conditional=True)


@application.get("/large")
def large() -> str:
    return "0123456789abcdef" * 65536


@application.post("/form")
async def form() -> Any:
    return dict(await request.form)


@application.post("/upload")
async def upload() -> Any:
    sent = (await request.files)["file"]
    return jsonify([sent.filename, len(sent.read())])


@application.route("/task", methods=["GET", "POST"])
async def task() -> Any:
    async def later() -> None:
        events.append("task")

    application.add_background_task(later)
    return "begun"


@application.route("/dependency", methods=["GET", "POST"])
async def dependency() -> Any:
    events.append("open")
    return "open"


@application.get("/session")
async def count() -> Any:
    session["count"] = session.get("count", 0) + 1
    return str(session["count"])


@application.get("/cookie")
async def cookie() -> Any:
    response = await make_response(request.cookies.get("basket", "none"))
    response.set_cookie("basket", "full", httponly=True)  # type: ignore[union-attr]
    return response


@application.get("/moved")
async def moved() -> Any:
    return redirect("/page")


@application.get("/teapot")
async def teapot() -> Any:
    abort(418)


@application.get("/sold-out")
async def sold_out() -> Any:
    raise SoldOutError


@application.get("/broken")
async def broken() -> Any:
    raise LookupError


@application.get("/state")
async def state() -> Any:
    return started[0]


@application.websocket("/ws")
async def echo() -> None:
    await websocket.send(f"said {await websocket.receive()}")


sub = Blueprint("sub", __name__, url_prefix="/sub")
sub.get("/page")(page)


@sub.after_request
async def hook(response: Any) -> Any:
    response.headers["X-Hooked"] = "yes"
    return response


application.register_blueprint(sub)
