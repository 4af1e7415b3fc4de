"""A browser gets a page where univocal refuses or fails, at either door, with nothing of its request."""

import json

import pytest

from tests.ports import free_port
from univocal import CacheMiddleware, ReverseProxy
from univocal.cache.rules import Rules
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import Listener
from univocal.server.turn import EngineService

BROWSER = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PROGRAM = "Accept: */*"


@pytest.fixture(params=["direct", "asgi"])
async def proxy(request, serve):
    """A proxy whose origin server is not there."""
    forwarding = ReverseProxy(f"http://127.0.0.1:{free_port()}")
    app = CacheMiddleware(forwarding, runtime=Runtime.everywhere(builtin_profiles()["mediawiki"], Rules()))
    listener = Listener(EngineService(app.engine, forwarding.upstream))
    http = Http1Connection.of(listener) if request.param == "direct" else None
    yield await (serve(app, http=http) if http is not None else serve(app))
    await forwarding.aclose()


ERRORS = [("/<script>alert(1)</script>%00", 400, "control-character"), ("/away", 502, "origin-unreachable")]


@pytest.mark.parametrize(("target", "status", "reason"), ERRORS)
async def test_a_browser_gets_a_page_and_a_program_problem_details(proxy, target, status, reason):
    page = await proxy.ask(target, BROWSER)
    assert (page.status, page["content-type"]) == (status, "text/html; charset=utf-8")
    assert (page["vary"], page["cache-control"]) == ("Accept", "no-store")
    assert page["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert reason.encode() in page.content
    assert b"script" not in page.content
    assert b"alert" not in page.content
    details = await proxy.ask(target, PROGRAM)
    assert (details.status, details["content-type"]) == (status, "application/problem+json")
    assert details["vary"] == "Accept"
    assert json.loads(details.content)["reason"] == reason


async def test_a_head_gets_the_gets_answer_without_content(proxy):
    page, head = [await proxy.ask("/%00", BROWSER, method=method) for method in ("GET", "HEAD")]
    assert head["content-length"] == page["content-length"] == str(len(page.content))
    assert head.content == b""
