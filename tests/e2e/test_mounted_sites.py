"""Profiles by host on real sockets: Starlette, FastAPI and Django under uvicorn."""

import contextlib
import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forking
from tests.ports import free_port
from tests.started import until_it_listens

MODULES = {
    "starlette": """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from univocal import CacheMiddleware

async def page(request):
    return PlainTextResponse(request.scope["raw_path"], headers={"cache-control": "max-age=600"})

async def socket(socket):
    await socket.accept()
    await socket.close()

app = Starlette(routes=[WebSocketRoute("/{path:path}", socket), Route("/{path:path}", page)])
app.add_middleware(CacheMiddleware, profile=None, sites=SITES)
""",
    "fastapi": """
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import PlainTextResponse
from univocal import CacheMiddleware

app = FastAPI()

@app.websocket("/{path:path}")
async def socket(socket: WebSocket):
    await socket.accept()
    await socket.close()

@app.get("/{path:path}")
async def page(request: Request):
    return PlainTextResponse(request.scope["raw_path"], headers={"cache-control": "max-age=600"})

app.add_middleware(CacheMiddleware, profile=None, sites=SITES)
""",
    "django": """
import django
from django.conf import settings

settings.configure(SECRET_KEY="only a test's", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
django.setup()

from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.urls import re_path
from univocal import CacheMiddleware

def page(request):
    return HttpResponse(request.scope["raw_path"], "text/plain", headers={"Cache-Control": "max-age=600"})

urlpatterns = [re_path("", page)]
app = CacheMiddleware(get_asgi_application(), profile=None, sites=SITES)
""",
}
SITES = """
SITES = {"wiki.example": "mediawiki", "wiki.example/api/": "restbase", "*.shop.example": "servlet"}
"""


@pytest.fixture(scope="module", params=MODULES)
def port(
    request: pytest.FixtureRequest, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of an application with profiles by host."""
    if request.param == "django":
        pytest.importorskip("django", reason="needs Django (univocal[clients])")
    directory = tmp_path_factory.mktemp(request.param)
    (directory / "hosted.py").write_text(SITES + MODULES[request.param])
    port, paths = free_port(), os.pathsep.join((str(root / "middleware"), str(directory)))
    process = forking.Program(
        [sys.executable, "-m", "uvicorn", "hosted:app", "--port", str(port), "--lifespan", "off"],
        imports=["fastapi" if request.param == "fastapi" else "starlette.applications"],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_it_listens(process, port)
    yield port
    process.terminate()
    assert "Traceback" not in process.communicate(timeout=30)[1]


def asked(port: int, host: str, target: str, method: str = "GET") -> tuple[int, str, str]:
    """The status, the Cache-Status and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, target, skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.getheader("cache-status", ""), response.read().decode()


@pytest.mark.parametrize(
    ("host", "spellings", "path"),
    [
        ("wiki.example", ["/a%2fb(", "/a/b%28", "/./a/b("], "/a/b("),
        ("WIKI.example:80", ["/api/a%2fb"], "/api/a%2Fb"),
        ("one.shop.example", ["/a;x=1/b", "/a/b"], "/a/b"),
        ("two.shop.example", ["/a//b", "/a/b"], "/a/b"),
    ],
)
def test_each_host_is_read_by_its_profile(port, host, spellings, path):
    for number, spelling in enumerate(spellings):
        status, handling, content = asked(port, host, spelling)
        assert (status, content) == (200, path)
        assert ("hit" in handling) == (number > 0)
    assert '"purged": 1' in asked(port, host, spellings[0], "PURGE")[2]


@pytest.mark.parametrize(
    ("host", "target", "status"),
    [
        ("en.example", "/a", 421),
        ("shop.example", "/a", 421),
        ("one.shop.example", "/a/..;/b", 400),
        ("wiki.example", "/a/..;/b", 200),
        ("wiki.example", "/api%2fa", 400),
    ],
)
def test_refusals_are_those_of_the_hosts_profile(port, host, target, status):
    assert asked(port, host, target)[0] == status


@pytest.mark.parametrize(
    ("host", "target", "status"), [("wiki.example", "/a%2fb", 101), ("en.example", "/", 421)]
)
def test_a_websocket_belongs_to_its_host(port, request, host, target, status):
    if request.node.callspec.params["port"] == "django":
        pytest.skip("Django answers no WebSocket")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(
            f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert client.recv(100).split(b" ")[1] == str(status).encode()
