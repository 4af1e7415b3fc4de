"""What frameworks do around a response goes on working behind the cache."""

import asyncio
import json

import pytest
from fastapi import BackgroundTasks, Body, Depends, FastAPI, Request
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from univocal import CacheMiddleware, Profile, Rules, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits

FRESH = {"cache-control": "max-age=60"}


@pytest.mark.parametrize("outside", [True, False], ids=["outside the cache", "inside the cache"])
async def test_a_function_as_middleware(client_of, outside):
    app = FastAPI()
    seen = []

    def hook():
        @app.middleware("http")
        async def note(request: Request, call_next):
            response = await call_next(request)
            seen.append(response.status_code)
            response.headers["x-noted"] = "yes"
            return response

    if not outside:
        hook()
    app.add_middleware(CacheMiddleware)
    if outside:
        hook()

    @app.get("/a")
    async def page():
        return PlainTextResponse("page", headers=FRESH)

    client = client_of(app)
    answers = [await client("/a"), await client("/%61")]
    assert [(answer.body, answer["x-noted"]) for answer in answers] == [(b"page", "yes")] * 2
    assert "hit" in answers[1].handling
    assert len(seen) == (2 if outside else 1)


@pytest.mark.parametrize("outside", [True, False], ids=["outside the cache", "inside the cache"])
async def test_compressed_pages_are_stored_inside_and_outside(client_of, outside):
    async def page(request):
        return PlainTextResponse("page " * 1000, headers=FRESH)

    app = Starlette(routes=[Route("/a", page)])
    for middleware in (CacheMiddleware, GZipMiddleware) if outside else (GZipMiddleware, CacheMiddleware):
        app.add_middleware(middleware)
    client = client_of(app)
    for _ in range(2):
        packed = await client("/a", fields=[("accept-encoding", "gzip")])
        plain = await client("/a")
        assert (packed["content-encoding"], plain["content-encoding"]) == ("gzip", "")
        assert plain.body == b"page " * 1000


async def test_a_streaming_response_is_stored_whole(client_of):
    async def page(request):
        async def parts():
            for part in (b"one ", b"two ", b"three"):
                yield part
                await asyncio.sleep(0)

        return StreamingResponse(parts(), headers=FRESH)

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)
    answers = [await client("/a"), await client("/a")]
    assert {answer.body for answer in answers} == {b"one two three"}
    assert "hit" in answers[1].handling


async def test_a_streaming_response_that_fails_is_cut_and_not_stored(client_of):
    async def page(request):
        async def parts():
            yield b"one "
            raise LookupError("two")

        return StreamingResponse(parts(), headers=FRESH)

    door = CacheMiddleware(Starlette(routes=[Route("/a", page)]))
    with pytest.raises(LookupError):
        await client_of(door)("/a")
    assert door.store.stats.responses == 0


async def test_background_tasks_end_once_per_application_request(client_of, idle):
    done = []

    async def later():
        for _ in range(5):
            await asyncio.sleep(0)
        done.append(True)

    async def page(request):
        return PlainTextResponse("page", headers=FRESH, background=BackgroundTask(later))

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    client = client_of(app)
    await client("/a")
    await client("/a")
    await idle()
    assert done == [True]


async def test_dependencies_and_background_tasks_of_fastapi(client_of, idle):
    events = []
    app = FastAPI()
    app.add_middleware(CacheMiddleware)

    async def later():
        events.append("task")

    async def session():
        events.append("open")
        yield "session"
        events.append("close")

    @app.get("/a")
    async def page(tasks: BackgroundTasks, session: str = Depends(session)):
        tasks.add_task(later)
        return PlainTextResponse(session, headers=FRESH)

    client = client_of(app)
    assert (await client("/a")).body == b"session"
    await idle()
    assert sorted(events) == ["close", "open", "task"]


async def test_a_file_is_stored_under_one_spelling(client_of, tmp_path):
    (tmp_path / "a(b).txt").write_text("file")
    app = Starlette(routes=[Mount("/files", StaticFiles(directory=tmp_path))])
    app.add_middleware(CacheMiddleware, rules=Rules(ttl=60))
    client = client_of(app)
    assert (await client("/files/a(b).txt")).body == b"file"
    hit = await client("/files/a%28b%29.txt")
    assert (hit.body, "hit" in hit.handling) == (b"file", True)
    again = await client("/files/a(b).txt", fields=[("if-none-match", hit["etag"])])
    assert again.status == 304
    # The file is closed by another thread. On a slow machine a watch of the client is among these, cancelled.
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


@pytest.mark.parametrize(
    "target", ["/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/%00"]
)
@pytest.mark.parametrize("profile", sorted(builtin_profiles()))
async def test_no_spelling_leaves_a_directory_of_files(client_of, tmp_path, target, profile):
    (tmp_path / "files").mkdir()
    (tmp_path / "secret").write_text("secret")
    app = Starlette(routes=[Mount("/files", StaticFiles(directory=tmp_path / "files"))])
    app.add_middleware(CacheMiddleware, profile=profile)
    answer = await client_of(app)(target)
    assert answer.status in {400, 404}


async def test_forms_and_json_of_a_post(client_of):
    app = FastAPI()
    app.add_middleware(CacheMiddleware)

    @app.post("/a")
    async def take(number: int = Body(embed=True)):
        return {"twice": number * 2}

    body = b'{"number": 21}'
    fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
    answer = await client_of(app)("/a", "POST", fields, body=[body])
    assert (answer.status, answer.body) == (200, b'{"twice":42}')


async def test_frameworks_keep_the_error_of_too_large_content(client_of):
    app = FastAPI()

    @app.post("/a")
    async def take(number: int = Body(embed=True)):
        return {"twice": number * 2}

    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules(), limits=Limits(max_body=5))
    body = b'{"number": 21}'
    fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
    answer = await client_of(CacheMiddleware(app, runtime=runtime))("/a", "POST", fields, body=[body])
    assert (answer.status, answer.problem["reason"]) == (413, "body-too-large")


async def test_a_response_to_a_liveness_check_of_its_client(client_of):
    async def page(request):
        return PlainTextResponse(str(await request.is_disconnected()), headers=FRESH)

    app = Starlette(routes=[Route("/a", page)])
    app.add_middleware(CacheMiddleware)
    assert (await client_of(app)("/a")).body == b"False"


async def test_a_leaving_client_is_noticed_through_function_middleware(client_of, application, idle):
    app = FastAPI()
    app.mount("/", application)
    app.add_middleware(CacheMiddleware)

    @app.middleware("http")
    async def note(request: Request, call_next):
        return await call_next(request)

    application.gate, leave = asyncio.Event(), asyncio.Event()
    asking = asyncio.create_task(client_of(app)("/a", leave=leave))
    await application.reached(1)
    await idle()
    leave.set()
    heard = await application.receives[0]()
    assert heard == {"type": "http.disconnect"}
    application.gate.set()
    await asyncio.gather(asking, return_exceptions=True)
    assert application.cancelled == 0


async def test_a_page_of_one_client_goes_past_the_cache(client_of):
    app = FastAPI()
    app.add_middleware(CacheMiddleware, rules=Rules(ttl=60, bypass=("/me", "/admin/*")))
    asked = []

    @app.get("/{rest:path}")
    async def page(rest: str, request: Request) -> dict[str, str]:
        asked.append(rest)
        return {"client": request.client.host}

    client = client_of(app)
    for target in ("/me", "/%6De", "/admin/a", "/shop"):
        await client(target)
        await client(target)
    assert asked == ["me"] * 4 + ["admin/a"] * 2 + ["shop"]


async def test_an_old_link_is_read_by_its_charset(client_of, tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('summary = "a shop"\nextends = "asgi"\n[charset]\npath = "windows-1252"\n')
    app = FastAPI()
    app.add_middleware(CacheMiddleware, profile=Profile.from_file(file))

    @app.get("/{name}")
    async def page(name: str) -> dict[str, str]:
        return {"name": name}

    assert json.loads((await client_of(app)("/caf%E9")).body) == {"name": "café"}
