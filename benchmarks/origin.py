"""The way to the origin, measured: OriginTransport, httpx's own transport and nginx, in one run.

    python -m benchmarks.origin [--seconds 3] [--rounds 2] [--only NAME]

Every proxy runs on one core and forwards each request of wrk (on the other core, with the origin, an
nginx that answers 200 with 1 KiB). The two transports stand in the same small ASGI application under
uvicorn. Needs wrk and nginx. Prints requests per second, the best of the rounds; and requests per second
of the proxy's CPU time, which is the same on an idle machine and hardly changes on a busy one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from benchmarks import wrk
from benchmarks.contents import BROWSER
from benchmarks.machine import Cores, Running, free_port, running
from benchmarks.servers import KEEP, PASS, Place, environment, nginx, origin
from univocal.origin.client_library import OriginTransport

PATH = "/nostore"


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
        assert isinstance(response.stream, httpx.AsyncByteStream)
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


def me(kind: str, loop: str) -> Callable[[Place], list[str]]:
    """This module as one of the proxies."""

    def command(place: Place) -> list[str]:
        told = [kind, loop, str(place.port), str(place.origin)]
        return [sys.executable, "-m", "benchmarks.origin", "--serve", *told]

    return command


PROXIES: dict[str, Callable[[Place], list[str]]] = {
    "nginx, default": nginx(PASS),
    "nginx, keep-alive": nginx(KEEP),
    "uvicorn, httpx default": me("httpx", "uvloop"),
    "uvicorn, httpx, 1000 connections": me("httpx-1000", "uvloop"),
    "uvicorn, OriginTransport": me("ours", "uvloop"),
    "uvicorn, OriginTransport, asyncio": me("ours", "asyncio"),
    "uvicorn, no origin at all": me("nothing", "uvloop"),
}


def measure(proxy: Running, seconds: int, fields: Sequence[str]) -> list[float]:
    """Requests per second, and per second of CPU time. Raises UncleanRunError for any failure."""
    used = proxy.cpu_seconds()
    run = wrk.run(wrk.command(f"http://127.0.0.1:{proxy.port}{PATH}", seconds, fields), seconds + 30)
    return [run.rate, run.requests / max(0.01, proxy.cpu_seconds() - used)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="a part of a name")
    parser.add_argument(
        "--serve", nargs=4, metavar=("KIND", "LOOP", "PORT", "ORIGIN"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.serve:
        kind, loop, port, behind = options.serve
        serve(kind, loop, int(port), int(behind))
        return
    for program in ("wrk", "nginx", "taskset"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed")
    cores = Cores.of_this_machine()
    cores.stay_with_the_load()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        report(best_of_rounds(options, cores, Path(folder)), options)


def best_of_rounds(options: argparse.Namespace, cores: Cores, folder: Path) -> dict[str, list[float]]:
    best: dict[str, list[float]] = {}
    behind = Place(folder / "origin", free_port(), 0)
    with running(origin(behind), cores.load, behind.port, behind.folder):
        for turn in range(options.rounds):
            for number, (name, command) in enumerate(PROXIES.items()):
                if options.only not in name:
                    continue
                place = Place(folder / f"{turn}-{number}", free_port(), behind.port)
                given = environment(place.folder)
                with running(command(place), cores.server, place.port, place.folder, given) as proxy:
                    measure(proxy, 1, ())
                    found = [
                        each for fields in ((), BROWSER) for each in measure(proxy, options.seconds, fields)
                    ]
                best[name] = [max(pair) for pair in zip(best.get(name, [0.0] * 4), found, strict=True)]
    return best


def report(best: dict[str, list[float]], options: argparse.Namespace) -> None:
    print(f"{wrk.CONNECTIONS} connections, best of {options.rounds} × {options.seconds} s\n")
    print(f"{'':42}{'1 field':>18}{'13 fields':>20}")
    print(f"{'':42}" + f"{'requests/s':>10}{'/CPU s':>10}" * 2)
    for name, numbers in best.items():
        print(f"{name:42}" + "".join(f"{number:10,.0f}" for number in numbers))
    ours = best.get("uvicorn, OriginTransport")
    for name in ("uvicorn, httpx default", "nginx, default", "nginx, keep-alive"):
        if ours and name in best:
            ratios = (mine / theirs for mine, theirs in zip(ours, best[name], strict=True))
            print(f"{'OriginTransport / ' + name:42}" + "".join(f"{ratio:10.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
