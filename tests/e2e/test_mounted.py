"""The middleware under uvicorn, in processes of their own: one Date, and one store for all of them."""

import itertools
import json
import os
import re
import subprocess
import sys

import pytest

import forking
from support import until
from tests.e2e.conftest import asked
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


def at(port, target, method="GET"):
    return asked(("127.0.0.1", port), target, "en.example", method)


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
        answers = [at(port, target) for _ in range(2)]
        assert ["hit" in (each.value("cache-status") or "") for each in answers] == [False, True]
        missed, hit = (len(re.findall("(?im)^date:", each.head)) for each in answers)
        assert missed == 1 or (date == "--no-date-header" and not missed)
        assert hit == 1


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
        first = at(one, f"/pa{(path := next(tries))}").body
        return (path, first) if at(other, f"/pa{path}").body == first else None

    path, first = until(shared)
    assert at(one, f"/p%61{path}").body == first
    purged = at(other, f"/pa{path}", "PURGE")
    assert json.loads(purged.body)["purged"] == 1
    until(lambda: at(one, f"/pa{path}").body != first)
    assert at(one, f"/pa{path}").body == at(other, f"/pa{path}").body != first
