"""The middleware under uvicorn, in processes of their own: one Date, and one store for all of them."""

import http.client
import itertools
import json
import os
import subprocess
import sys

import pytest

import forking
from support import until
from tests.ports import free_port
from tests.started import until_it_listens

MODULE = """
import itertools
import os
import time
from email.utils import formatdate
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from univocal import CacheMiddleware

numbers = itertools.count(1)

async def page(request):
    fields = {"Cache-Control": "max-age=600"}
    if "dated" in request.query_params:
        fields["Date"] = formatdate(time.time() - 5, usegmt=True)
    return PlainTextResponse(f"{os.getpid()} {next(numbers)}", headers=fields)

inner = Starlette(routes=[Route("/page", page)])
app = CacheMiddleware(inner, store=os.environ.get("STORE") or None)
added = Starlette(routes=[Route("/page", page)])
added.add_middleware(CacheMiddleware)

async def bare(scope, receive, send):
    if scope["type"] != "http":
        raise ValueError("there is no lifespan here")  # as Django says
    await inner(scope, receive, send)

django = CacheMiddleware(bare, store=os.environ.get("STORE") or None)
"""


class Answered:
    """A response as http.client reads it."""

    def __init__(self, port, target, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, target, headers={"Host": "en.example"})
        response = connection.getresponse()
        self.body = response.read()
        self.dates = [value for name, value in response.getheaders() if name.lower() == "date"]
        self.handling = response.getheader("cache-status") or ""
        connection.close()


@pytest.fixture
def serve(root, tmp_path):
    """Run `uvicorn` with these arguments; the port comes back once it answers."""
    (tmp_path / "module.py").write_text(MODULE)
    processes = []

    def start(app, *arguments, program=forking.Program, **variables):
        port = free_port()
        paths = os.pathsep.join((str(root / "middleware"), str(tmp_path)))
        command = [sys.executable, "-m", "uvicorn", f"module:{app}", "--port", str(port), *arguments]
        process = program(
            command,
            imports=["starlette.applications"],
            env={**os.environ, "PYTHONPATH": paths, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        until_it_listens(process, port)
        return port

    yield start
    for process in processes:
        process.terminate()
        _, said = process.communicate(timeout=20)
        assert "Traceback" not in said, said


@pytest.mark.parametrize(
    ("app", "http", "date"),
    [
        ("app", "h11", "--date-header"),
        ("app", "httptools", "--no-date-header"),
        ("added", "h11", "--no-date-header"),
        ("added", "httptools", "--date-header"),
    ],
)
def test_a_response_has_one_date(serve, app, http, date):
    port = serve(app, "--http", http, date)
    for target in ("/page", "/page?dated"):
        missed, hit = Answered(port, target), Answered(port, target)
        assert ("hit" in missed.handling, "hit" in hit.handling) == (False, True)
        assert len(missed.dates) == 1 or (date == "--no-date-header" and not missed.dates)
        assert len(hit.dates) == 1


@pytest.mark.parametrize(
    ("app", "lifespan"), [("app", "on"), ("app", "off"), ("django", "auto"), ("django", "off")]
)
def test_a_store_by_its_url_is_one_for_all_processes(serve, redis, app, lifespan):
    # The first of all begins as a user's does: with nothing imported.
    cold = (app, lifespan) == ("app", "on")
    programs = (forking.Ordinary if cold else forking.Program, forking.Program)
    one, other = (serve(app, "--lifespan", lifespan, program=each, STORE=redis.url) for each in programs)
    tries = (f"ge?{number}" for number in itertools.count())

    def shared():  # a process that the store does not answer in time goes on alone
        first = Answered(one, f"/pa{(path := next(tries))}").body
        return (path, first) if Answered(other, f"/pa{path}").body == first else None

    path, first = until(shared)
    assert Answered(one, f"/p%61{path}").body == first
    purged = Answered(other, f"/pa{path}", "PURGE")
    assert json.loads(purged.body)["purged"] == 1
    until(lambda: Answered(one, f"/pa{path}").body != first)
    assert Answered(one, f"/pa{path}").body == Answered(other, f"/pa{path}").body != first
