"""What a store in Redis costs beside memory alone: `python -m benchmarks.stores redis://127.0.0.1:6379/0`.

It asks the middleware in this process, without a server or sockets of clients: CPU seconds, which a busy machine
changes less than times. Give it a Redis of its own: it fills it. Another version is measured by its sources:
`PYTHONPATH=CHECKOUT/middleware python -m benchmarks.stores …`.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

from univocal import CacheMiddleware

MISSES = 1_500
TAGGED = 100_000
TOGETHER = 16
ONCE = 200  # purges by URL
FIELDS = [(b"cache-control", b"max-age=600"), (b"content-type", b"text/plain")]
BODY = bytes(1024)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """A page of 1 KiB under every path; those below /tagged/ have one tag in common."""
    tags = [(b"xkey", b"all")] if scope["path"].startswith("/tagged/") else []
    await send({"type": "http.response.start", "status": 200, "headers": [*FIELDS, *tags]})
    await send({"type": "http.response.body", "body": BODY})


async def ask(middleware: CacheMiddleware, path: str) -> bytes:
    """A response's Cache-Status."""
    told = b""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal told
        if message["type"] == "http.response.start":
            told = dict(message["headers"])[b"cache-status"]

    target = path.encode()
    headers = [(b"host", b"a.example")]
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "path": path, "raw_path": target, "query_string": b"",
        "headers": headers, "http_version": "1.1", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await middleware(scope, receive, send)
    return told


async def ask_all(middleware: CacheMiddleware, paths: Iterable[str]) -> int:
    """Ask for all, some at a time; the number of hits."""
    waiting, hits = iter(paths), 0

    async def one() -> None:
        nonlocal hits
        for path in waiting:
            hits += b"hit" in await ask(middleware, path)

    await asyncio.gather(*(one() for _ in range(TOGETHER)))
    return hits


async def cost(middleware: CacheMiddleware, paths: list[str]) -> tuple[float, int]:
    """Microseconds of CPU for each request, and the number of hits."""
    began = time.process_time()
    hits = await ask_all(middleware, paths)
    await asyncio.sleep(0.2)  # what is stored after the response
    return (time.process_time() - began) / len(paths) * 1e6, hits


def paths(name: str, count: int = MISSES) -> list[str]:
    """So many paths that nobody has asked for."""
    return [f"/{name}/{number}" for number in range(count)]


async def node(url: str, orders: Connection) -> None:
    """Another node, which does as it is told over a pipe."""
    middleware = CacheMiddleware(application, store=url)
    await ask(middleware, "/other")
    while True:
        while not orders.poll():  # noqa: ASYNC110  (a pipe that asyncio does not know)
            await asyncio.sleep(0.001)
        match orders.recv():
            case "cpu":
                orders.send(time.process_time())
            case ("ask", listed):
                orders.send(await ask_all(middleware, listed))
            case ("gone", path):
                while middleware.store.lookup(path):  # noqa: ASYNC110  (another process purges it)
                    await asyncio.sleep(0.0005)
                orders.send(time.time())
            case ("key", path):
                await ask(middleware, path)
                orders.send([key for key in middleware.store._entries if key.endswith(path.encode())][0])
            case _:
                return


def run_node(url: str, orders: Connection) -> None:
    """The other node's process."""
    asyncio.run(node(url, orders))


async def purge_elsewhere(middleware: CacheMiddleware, orders: Connection) -> float:
    """The median of the milliseconds until another node has removed what is purged by its URL."""
    told = list[float]()
    for number in range(ONCE):
        path = f"/once/{number}"
        await ask(middleware, path)
        await asyncio.sleep(0.005)
        orders.send(("key", path))
        key = await asyncio.to_thread(orders.recv)
        orders.send(("gone", key))
        await asyncio.sleep(0.002)
        began = time.time()
        await middleware.purge(f"http://a.example{path}")
        told.append(await asyncio.to_thread(orders.recv) - began)
    return statistics.median(told) * 1e3


async def broad(middleware: CacheMiddleware, orders: Connection, count: int, **what: Any) -> dict[str, float]:
    """Store many under one tag, purge them: the milliseconds, and what either node serves of them then."""
    listed = paths("tagged", count)
    await ask_all(middleware, listed)
    some = listed[:: max(1, count // 500)]
    orders.send(("ask", some))
    await asyncio.to_thread(orders.recv)
    began = time.perf_counter()
    await middleware.purge(**what)
    confirmed = (time.perf_counter() - began) * 1e3
    served = await ask_all(middleware, some[:50])
    await asyncio.sleep(0.05)
    orders.send(("ask", some[50:]))
    return {"confirmed_ms": confirmed, "served": served + await asyncio.to_thread(orders.recv)}


async def measure(url: str, orders: Connection, count: int) -> dict[str, Any]:
    """Every figure."""
    figures: dict[str, Any] = {}
    alone, shared = CacheMiddleware(application), CacheMiddleware(application, store=url)
    for middleware in (alone, shared):
        await ask_all(middleware, paths("warm", 500))
    rounds = [(await cost(alone, paths(f"a{n}")), await cost(shared, paths(f"b{n}"))) for n in range(3)]
    figures["miss_alone_us"] = min(one[0] for one, _ in rounds)
    figures["miss_redis_us"] = min(one[0] for _, one in rounds)
    figures["miss_ratio"] = figures["miss_redis_us"] / figures["miss_alone_us"]
    fresh = CacheMiddleware(application, store=url)
    await ask(fresh, "/warm/0")
    began = time.perf_counter()
    figures["first_hit_us"], hits = await cost(fresh, paths("b0"))
    figures["first_hits_per_second"] = MISSES / (time.perf_counter() - began - 0.2)
    figures["first_hits"] = hits
    orders.send("cpu")
    before = await asyncio.to_thread(orders.recv)
    began = time.perf_counter()
    await ask_all(shared, paths("c", 2 * MISSES))
    seconds = time.perf_counter() - began
    orders.send("cpu")
    busy = await asyncio.to_thread(orders.recv) - before
    orders.send("cpu")
    before = await asyncio.to_thread(orders.recv)
    await asyncio.sleep(seconds)
    orders.send("cpu")
    idle = await asyncio.to_thread(orders.recv) - before
    figures["other_node_us_per_store"] = max(0.0, busy - idle) / (2 * MISSES) * 1e6
    figures["purge_known_elsewhere_ms"] = await purge_elsewhere(shared, orders)
    figures["tag"] = await broad(shared, orders, count, tag="all")
    figures["prefix"] = await broad(shared, orders, count, prefix="http://a.example/tagged/")
    figures["pattern"] = await broad(shared, orders, count, pattern="/tagged/[0-9]+$")
    return figures


def main(run: Callable[..., Any] = asyncio.run) -> None:
    """Print the figures as JSON."""
    url, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else TAGGED
    ours, theirs = multiprocessing.Pipe()
    other = multiprocessing.get_context("spawn").Process(target=run_node, args=(url, theirs), daemon=True)
    other.start()
    print(json.dumps(run(measure(url, ours, count)), indent=2))
    ours.send("end")


if __name__ == "__main__":
    main()
