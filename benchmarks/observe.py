"""The cost of one exchange in the access log and in the metrics, and of a hit in all that counts.

    python benchmarks/observe.py [--calls 200000]

Printed are µs of this process for each call with the Outcome of a hit: in the event loop, as a worker
hears of it, with the log in a file that is removed at the end. The lines that are gathered are written
within the time that is measured. `off` is the log of purges alone; `metrics` are those of one process,
`metrics, workers` those that several processes share.

Then µs of a whole hit in `univocal serve`'s protocol class, from the bytes of a request to those of the
response, without sockets: once with everything that counts (metrics, numbers by second, top keys, spellings),
once with nothing. The requests are for one page, or for a thousand of which few are asked for most.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from uvicorn.server import ServerState

from univocal.cache.decide import Forward, Handling
from univocal.engine.outcome import Outcome, Times
from univocal.http.messages import Received
from univocal.judge.profiles import builtin_profiles
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.target import Canonical
from univocal_app.config.tables import validate
from univocal_app.observe.accesslog import AccessLog, Outlet, outlet_of
from univocal_app.observe.figures import Figures
from univocal_app.processes.commons import Commons
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound

HERE = "benchmarks/observe.py"
TARGET = b"/wiki/Main_Page?action=history&limit=50"


def hits() -> list[Outcome]:
    """Those of 30,000 requests a second; each target is an object of its own, as the wire brings it."""
    route = Route(b"/", builtin_profiles()["mediawiki"], "origin")
    canonical = resolve(
        TARGET, [b"en.example"], b"http", Sites([Site("en.example", ("en.example",), (route,))])
    )
    assert isinstance(canonical, Canonical)
    return [
        Outcome(
            site="en.example",
            received=Received(b"GET", bytes(bytearray(TARGET)), b"http", "192.0.2.1"),
            canonical=canonical,
            decision=Forward(
                "uri-miss", may_store=True, fallback=None
            ),  # a log asks only whether there is one
            status=200,
            bytes=1024,
            times=Times(1_790_000_000 + number / 30_000, 3.1e-05, 3.4e-05 + number / 1e6),
            client="192.0.2.1",
            handling=Handling(hit=True, ttl=3599),
        )
        for number in range(1000)
    ]


async def microseconds(listener: Callable[[Outcome], None], calls: int) -> float:
    """CPU time of each call, the best of five rounds; the event loop turns after each hundred."""
    outcomes, best = hits(), float("inf")
    for _ in range(5):
        began = time.process_time()
        for start in range(0, calls // 5, 100):
            for outcome in outcomes[start % 1000 : start % 1000 + 100]:
                listener(outcome)
            await asyncio.sleep(0)
        best = min(best, (time.process_time() - began) / (calls // 5))
    return best * 1e6


class Page(asyncio.Protocol):
    """An origin server of one page."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: 1024\r\n\r\n"
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write((head + b"x" * 1024) * data.count(b"\r\n\r\n"))


class Nowhere(asyncio.Transport):
    """A connection of which what is written goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, _data: bytes) -> None:  # type: ignore[override]
        self.written.set()

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 50000), "sockname": ("127.0.0.1", 8080)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


def get(page: int) -> bytes:
    return b"GET /page/%d HTTP/1.1\r\nHost: en.example\r\n\r\n" % page


async def connected(proxy: Proxy, pages: int) -> asyncio.Protocol:
    """A client's connection, with each page stored."""
    config = uvicorn.Config(proxy.cache, lifespan="off", ws="none", log_config=None, proxy_headers=False)
    config.load()
    with socket.socket() as unused:
        protocol = proxy.front(Bound(unused)).protocol
    assert not isinstance(protocol, str)
    connection = protocol(config, ServerState(), {})  # type: ignore[call-arg]
    transport = Nowhere()
    connection.connection_made(transport)
    for page in range(pages):
        connection.data_received(get(page))
        await transport.written.wait()
        transport.written.clear()
    return connection


async def hit(pages: int, calls: int) -> tuple[float, float]:
    """µs of CPU time for a hit with everything that counts, and with nothing; the best of nine rounds."""
    server = await asyncio.get_running_loop().create_server(Page, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    site = {"hosts": ["*"], "upstream": f"http://127.0.0.1:{port}"}
    proxy = Proxy(validate({"server": {"access_log": "off"}, "sites": [site]}, HERE))
    connection, audience = await connected(proxy, pages), proxy.cache.engine.audience
    drawn = random.Random(1)
    requests = [get(min(int(drawn.paretovariate(1.0)), pages) - 1) for _ in range(calls)]
    counters, best = list(audience.counters), {True: float("inf"), False: float("inf")}
    for turn in range(18):
        audience.settle()
        audience.counters[:] = counters if turn % 2 else []
        began = time.process_time()
        for start in range(0, calls, 100):
            for request in requests[start : start + 100]:
                connection.data_received(request)
            await asyncio.sleep(0)
        audience.settle()
        best[bool(turn % 2)] = min(best[bool(turn % 2)], time.process_time() - began)
    server.close()
    await proxy.aclose()
    return best[True] / calls * 1e6, best[False] / calls * 1e6


def outlet(where: Path | str, form: str) -> Outlet:
    """The outlet of the access log at this place."""
    server = {"access_log": str(where), "access_log_format": form}
    site = {"hosts": ["*"], "upstream": "http://127.0.0.1:1"}
    return outlet_of(validate({"server": server, "sites": [site]}, HERE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    calls = parser.parse_args().calls
    with TemporaryDirectory() as name:
        directory, commons = Path(name), Commons(Path(name), "1")
        listeners: dict[str, Callable[[Outcome], None]] = {
            "nothing": lambda _: None,
            "log json": AccessLog(outlet(directory / "json", "json")),
            "log json, workers": AccessLog(outlet(directory / "shared", "json"), commons),
            "log combined": AccessLog(outlet(directory / "combined", "combined")),
            "log off": AccessLog(outlet("off", "json")),
            "figures": Figures(),
            "figures, workers": Figures(commons),
        }
        for told, listener in listeners.items():
            print(f"{told:<18}{asyncio.run(microseconds(listener, calls)):6.2f} µs", flush=True)
    for told, pages in {"hit, one page": 1, "hit, 1,000 pages": 1000}.items():
        counted, bare = asyncio.run(hit(pages, max(calls // 10, 100)))
        print(f"{told:<18}{counted:6.2f} µs, not counted {bare:.2f} µs", flush=True)


if __name__ == "__main__":
    main()
