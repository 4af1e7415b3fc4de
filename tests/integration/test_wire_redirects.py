"""Redirects of origin servers on their way to clients."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from univocal import CacheMiddleware, ReverseProxy

Configured = Callable[[str], Awaitable[Any]]


def routed(origin: Any, *lines: str) -> str:
    return "\n".join(
        [
            "[[sites]]",
            'hosts = ["shop.example"]',
            f'upstream = "http://127.0.0.1:{origin.port}"',
            "[[sites.routes]]",
            'path = "/api/"',
            f'upstream = "http://127.0.0.1:{origin.port}/v1/"',
            *lines,
        ]
    )


def redirecting(location: str, *lines: str) -> Callable[[Any], bytes]:
    head = ["HTTP/1.1 301 Moved Permanently", "Content-Length: 0", f"Location: {location}", *lines]
    return lambda _: "\r\n".join([*head, "", ""]).encode()


@pytest.mark.parametrize("host", ["", "http://127.0.0.1:{port}", "http://shop.example"])
async def test_hits_and_misses_name_the_clients_url(origin: Any, configured: Configured, host: str) -> None:
    front = await configured(routed(origin))
    origin.answer = redirecting(host.format(port=origin.port) + "/v1/there", "Cache-Control: max-age=60")
    answers = [await front.ask("/api/here", host="shop.example") for _ in range(2)]
    there = "http://shop.example/api/there" if host else "/api/there"
    assert [answer["location"] for answer in answers] == [there, there]
    assert origin.targets == [b"/v1/here"]
    assert "hit" in answers[1]["cache-status"]


async def test_the_default_is_that_a_cookie_stays(origin: Any, configured: Configured) -> None:
    origin.answer = redirecting("/v1/x", "Set-Cookie: a=1; Path=/v1/; Domain=127.0.0.1")
    kept = await (await configured(routed(origin))).ask("/api/x1", host="shop.example")
    assert kept["set-cookie"] == "a=1; Path=/v1/; Domain=127.0.0.1"
    front = await configured(routed(origin, 'cookie_path = "map"'))
    mapped = await front.ask("/api/x1", host="shop.example")
    assert mapped["set-cookie"] == "a=1; Path=/api/; Domain=shop.example"


async def test_a_route_keeps_what_its_site_maps(origin: Any, configured: Configured) -> None:
    own = f"http://127.0.0.1:{origin.port}/v1/there"
    origin.answer = redirecting(own)
    front = await configured(routed(origin, 'redirects = "keep"'))
    assert (await front.ask("/api/x", host="shop.example"))["location"] == own
    there = await front.ask("/x", host="shop.example")
    assert there["location"] == "http://shop.example/v1/there"


async def test_a_post_ends_what_its_location_names(origin: Any, configured: Configured) -> None:
    front = await configured(routed(origin))
    assert (await front.ask("/api/there", host="shop.example")).status == 200
    before, origin.answer = origin.answer, redirecting("/v1/there")
    await front.ask("/api/change", "Content-Length: 0", method="POST", host="shop.example")
    origin.answer = before
    again = await front.ask("/api/there", host="shop.example")
    assert "hit" not in again["cache-status"]


async def test_a_mounted_proxy_maps_too(origin: Any, serve: Any) -> None:
    own = f"http://127.0.0.1:{origin.port}/base/there"
    origin.answer = redirecting(own, "Cache-Control: max-age=60")
    proxy = ReverseProxy(f"http://127.0.0.1:{origin.port}/base", origin_host="upstream")
    for app in (proxy, CacheMiddleware(proxy)):
        front = await serve(app)
        for _ in range(2):
            answer = await front.ask("/here", host="en.example")
            assert answer["location"] == "http://en.example/there"
    await proxy.aclose()


NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error;
events {{ }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port}; absolute_redirect off;
    location /api/ {{ proxy_pass http://127.0.0.1:{origin}/v1/; }}
  }}
}}
"""


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx")
async def test_absolute_urls_lead_where_nginx_leads(
    origin: Any, configured: Configured, tmp_path: Path
) -> None:
    """`proxy_redirect default`; nginx answers with a path what is told here with its host."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = tmp_path / "nginx.conf"
    file.write_text(NGINX.format(folder=tmp_path, port=port, origin=origin.port))
    nginx = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(file)])  # noqa: ASYNC220
    try:
        front = await configured(routed(origin))
        other = replace(front, port=port)
        for path in ("/v1/", "/v1/a%2Fb?c=/v1/", "/v10/", "/login", "/v1//evil.example/", ""):
            for host in (f"127.0.0.1:{origin.port}", "elsewhere.example"):
                origin.answer = redirecting(f"http://{host}{path}")
                theirs = (await _until_it_answers(other))["location"]
                ours = (await front.ask("/api/x", host="shop.example"))["location"]
                assert ours.removeprefix("http://shop.example") == theirs, (host, path)
    finally:
        nginx.terminate()
        nginx.wait()


async def _until_it_answers(front: Any) -> Any:
    while True:
        try:
            return await front.ask("/api/x", host="shop.example")
        except OSError:
            await asyncio.sleep(0.05)
