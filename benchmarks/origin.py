"""The way to the origin, measured: OriginTransport, httpx's own transport and nginx, in one run.

    python benchmarks/origin.py [--seconds 3] [--connections 32] [--rounds 2]

Every proxy runs on one core and forwards each request of wrk (on the other core, with the origin, an
nginx that answers 200 with a few octets). The two transports stand in the same small ASGI application
under uvicorn. Needs wrk and nginx. Prints requests per second, the best of the rounds; and requests per
second of the proxy's CPU time, which is the same on an idle machine and hardly changes on a busy one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from univocal.origin.transport import OriginTransport

# What a browser sends besides Host.
FIELDS = """user-agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0
accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8
accept-language: en-US,en;q=0.5
accept-encoding: gzip, deflate, br, zstd
referer: http://en.example/wiki/Main_Page
cookie: session=0123456789abcdef; theme=dark
upgrade-insecure-requests: 1
sec-fetch-dest: document
sec-fetch-mode: navigate
sec-fetch-site: same-origin
sec-fetch-user: ?1
priority: u=0, i""".splitlines()

NGINX = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000000; client_body_temp_path {folder}; proxy_temp_path {folder};
    fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
    {body}
}}
"""
ORIGIN = (
    'server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "hello from the origin"; }} }}'
)
PASS = "server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{origin}; }} }}"
KEEP = """upstream origin {{ server 127.0.0.1:{origin}; keepalive 64; keepalive_requests 100000000; }}
    server {{ listen 127.0.0.1:{port}; location / {{
        proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection ""; }} }}"""


def application(kind: str, origin: int) -> Any:
    """A forwarding ASGI application over a transport, or with no origin behind it at all."""
    url, nothing = httpx.URL(f"http://127.0.0.1:{origin}/"), httpx.ByteStream(b"")
    limits = httpx.Limits(max_connections=1000)
    transport = httpx.AsyncHTTPTransport() if kind == "httpx" else OriginTransport()
    if kind == "httpx-1000":
        transport = httpx.AsyncHTTPTransport(limits=limits)

    async def forward(scope: Any, _receive: Any, send: Any) -> None:
        request = httpx.Request(
            scope["method"],
            url,
            headers=scope["headers"],
            stream=nothing,
            extensions={"target": scope["raw_path"]},
        )
        response = await transport.handle_async_request(request)
        await send(
            {"type": "http.response.start", "status": response.status_code, "headers": response.headers.raw}
        )
        async for content in response.stream:
            await send({"type": "http.response.body", "body": content, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await response.aclose()

    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"21")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello from the origin"})

    return answer if kind == "nothing" else forward


def serve(kind: str, loop: str, port: int, origin: int) -> None:
    uvicorn.run(
        application(kind, origin), port=port, http="httptools", loop=loop, lifespan="off", access_log=False,
        log_level="critical", proxy_headers=False, date_header=False, server_header=False,
    )  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(command: list[str], core: int, port: int) -> Iterator[int]:
    """A server on one core that listens on `port`: its process id."""
    running = subprocess.Popen(["taskset", "-c", str(core), *command])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield running.pid
    finally:
        running.terminate()
        running.wait()


@contextlib.contextmanager
def nginx(body: str, core: int, port: int, origin: int = 0) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as folder:
        body = body.format(port=port, origin=origin)
        configuration = Path(folder, "nginx.conf")
        configuration.write_text(NGINX.format(folder=folder, body=body))
        with process(["nginx", "-p", folder, "-c", str(configuration)], core, port) as pid:
            yield pid


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(pid: int, port: int, seconds: int, connections: int, fields: list[str], core: int) -> list[float]:
    """Requests per second, and per second of CPU time; raises if any answer is not 2xx or a socket fails."""
    headers = [part for field in fields for part in ("-H", field)]
    command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *headers]
    command.append(f"http://127.0.0.1:{port}/wiki/A")
    began = cpu_seconds(pid)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = cpu_seconds(pid) - began
    if "Non-2xx" in output or "Socket errors" in output:
        raise SystemExit(output)
    total, rate = (re.search(form, output) for form in (r"(\d+) requests in", r"Requests/sec:\s+([\d.]+)"))
    assert total is not None, output
    assert rate is not None, output
    return [float(rate[1]), int(total[1]) / used]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of a name")
    parser.add_argument(
        "--serve", nargs=4, metavar=("KIND", "LOOP", "PORT", "ORIGIN"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.serve:
        kind, loop, port, origin = options.serve
        serve(kind, loop, int(port), int(origin))
        return
    for program in ("wrk", "nginx", "taskset"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed")
    cores = sorted(os.sched_getaffinity(0))
    run(options, cores[0], cores[-1])


def run(options: argparse.Namespace, core: int, other: int) -> None:
    origin = free_port()
    rows = {
        "nginx, default": lambda port: nginx(PASS, core, port, origin),
        "nginx, keep-alive": lambda port: nginx(KEEP, core, port, origin),
        "uvicorn, httpx default": lambda port: process(me("httpx", "uvloop", port, origin), core, port),
        "uvicorn, httpx, 1000 connections": lambda port: process(
            me("httpx-1000", "uvloop", port, origin), core, port
        ),
        "uvicorn, OriginTransport": lambda port: process(me("ours", "uvloop", port, origin), core, port),
        "uvicorn, OriginTransport, asyncio": lambda port: process(
            me("ours", "asyncio", port, origin), core, port
        ),
        "uvicorn, no origin at all": lambda port: process(me("nothing", "uvloop", port, origin), core, port),
    }
    best: dict[str, list[float]] = {}
    with nginx(ORIGIN, other, origin):
        for _ in range(options.rounds):
            for name, start in rows.items():
                if options.only not in name:
                    continue
                port = free_port()
                with start(port) as pid:
                    measure(pid, port, 1, options.connections, [], other)
                    found = [
                        number
                        for fields in ([], FIELDS)
                        for number in measure(pid, port, options.seconds, options.connections, fields, other)
                    ]
                best[name] = [max(pair) for pair in zip(best.get(name, [0.0] * 4), found, strict=True)]
    report(best, options)


def report(best: dict[str, list[float]], options: argparse.Namespace) -> None:
    print(f"{options.connections} connections, best of {options.rounds} × {options.seconds} s\n")
    print(f"{'':42}{'1 field':>18}{'13 fields':>20}")
    print(f"{'':42}" + f"{'requests/s':>10}{'/CPU s':>10}" * 2)
    for name, numbers in best.items():
        print(f"{name:42}" + "".join(f"{number:10,.0f}" for number in numbers))
    ours = best.get("uvicorn, OriginTransport")
    for name in ("uvicorn, httpx default", "nginx, default", "nginx, keep-alive"):
        if ours and name in best:
            ratios = (mine / theirs for mine, theirs in zip(ours, best[name], strict=True))
            print(f"{'OriginTransport / ' + name:42}" + "".join(f"{ratio:10.2f}" for ratio in ratios))


def me(kind: str, loop: str, port: int, origin: int) -> list[str]:
    return [sys.executable, __file__, "--serve", kind, loop, str(port), str(origin)]


if __name__ == "__main__":
    main()
