"""The figures of a store in Redis; `python -m benchmarks.stores --only redis` prints them.

`miss`: a response that is stored, with memory alone and with Redis; CPU time of the node, in pairs of runs.
`first hit`: a response that another node stored, which comes from Redis into memory.
`another node`: the CPU time that a stored response takes of a node without clients.
`purge`: by tag, prefix and pattern of very many responses, until it is confirmed, and the CPU time of the
longest iteration of the event loop until all are removed from memory.
`known`: a purge of a URL, until another node knows it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks import wrk
from benchmarks.machine import Running, end, free_port, listens
from univocal.http.messages import Request
from univocal.store.address import RedisSettings, redis_tier
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Prefix, Selector, Tags, compiled
from univocal.store.shared import SharedTier

PATIENT = RedisSettings(timeout=10.0)  # other programs take time, too
Fill = Callable[[SharedTier, int], Awaitable[object]]
KEY = b"0123456789abcdef http en.example /key/%d"


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A Redis that keeps nothing on disk; its port."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    command += ["--maxmemory", "2gb", "--maxmemory-policy", "allkeys-lru"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        while not listens(port):
            time.sleep(0.02)
        yield port
    finally:
        end(process)


@contextmanager
def node(store: str, behind: int, folder: Path) -> Iterator[Running]:
    """`univocal serve`, one process, with a store."""
    port, file = free_port(), folder / f"{free_port()}.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{free_port()}"\naccess_log = "off"\n'
        f'[cache]\nstore = "{store}"\n[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:{behind}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while not listens(port):
            time.sleep(0.05)
        time.sleep(1.0)  # until it has found Redis
        yield Running(process.pid, port, 0.0)
    finally:
        end(process)


def cost(asked: Running, seconds: int, first: int) -> tuple[float, wrk.Run]:
    """The seconds of CPU that a request for a new key takes, and the run."""
    url = f"http://127.0.0.1:{asked.port}/"
    before = asked.cpu_seconds()
    run = wrk.run(wrk.command(url, seconds, ["Host: en.example"], "new_keys.lua", [first]), 60)
    return (asked.cpu_seconds() - before) / run.requests, run


def measure_misses(rounds: int, behind: int, folder: Path) -> None:
    """Print what a stored miss, a first hit and another node's store cost."""
    misses, firsts, others = list[tuple[float, float]](), list[float](), list[float]()
    rates = list[float]()
    starts = count(0, 10_000_000)
    with redis_server(folder) as port, ExitStack() as stack:
        url = f"redis://127.0.0.1:{port}/0"
        alone, asked, other = (
            stack.enter_context(node(store, behind, folder)) for store in ("memory", url, url)
        )
        for each in (alone, asked):
            cost(each, 1, next(starts))
        for _ in range(rounds):
            memory, _ = cost(alone, 1, next(starts))
            start, idle = next(starts), other.cpu_seconds()
            shared, run = cost(asked, 1, start)
            others.append((other.cpu_seconds() - idle) / run.requests)
            misses.append((memory, shared))
            first, run = cost(other, 1, start)
            firsts.append(first)
            rates.append(run.rate)
    memory, shared = (median(each) for each in zip(*misses, strict=True))
    ratio = median(shared / memory for memory, shared in misses)
    print(
        f"stored miss: {1e6 * memory:.0f} µs of CPU with memory, {1e6 * shared:.0f} with Redis: {ratio:.2f} ×"
    )
    print(f"first hit through Redis: {1e6 * median(firsts):.0f} µs of CPU, {median(rates):.0f} a second")
    print(f"another node: {1e6 * median(others):.1f} µs of CPU for each response that is stored")


async def longest_turn(until: asyncio.Event) -> float:
    """The seconds of CPU that the event loop's longest turn takes until something is set."""
    longest, last = 0.0, time.thread_time()
    while not until.is_set():
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    return longest


async def purge(asked: SharedTier, other: SharedTier, selector: Selector, keys: int) -> tuple[float, float]:
    """The seconds until a purge is confirmed, and the CPU time of the longest iteration of the event loop."""
    done = asyncio.Event()
    turns = asyncio.create_task(longest_turn(done))
    await asyncio.sleep(0)
    begun = time.perf_counter()
    await asked.purge(selector, time.time())
    seconds = time.perf_counter() - begun
    for number in range(0, keys, keys // 100):
        assert not asked.lookup(KEY % number, time.time())
        assert not await served(other, KEY % number)
    await asyncio.sleep(1.5)
    done.set()
    return seconds, await turns


async def served(tier: SharedTier, key: bytes) -> bool:
    """Tell whether a node has an answer in its memory or in Redis."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    lease = tier.begin(key, time.time())
    request = Request(b"GET", b"/", [])
    tier.fill(lease, request, lambda held, _: bool(held), done.set_result, joined=False)
    has = await done
    tier.end(lease, lambda: None)
    return has


async def known(asked: SharedTier, other: SharedTier, fill: Fill) -> float:
    """The median of the seconds from the order to purge a URL until another node no longer serves it."""
    times = list[float]()
    for _ in range(50):
        await fill(asked, 1)
        assert await served(other, KEY % 0)
        begun = time.perf_counter()
        order = asyncio.create_task(asked.purge(Keys(frozenset((KEY % 0,))), time.time()))
        while other.lookup(KEY % 0, time.time()):  # noqa: ASYNC110  (what it waits for says nothing)
            await asyncio.sleep(0)
        times.append(time.perf_counter() - begun)
        await order
    return median(times)


def measure_purges(keys: int, fill: Fill, folder: Path) -> None:
    """Print how long purges of so many responses take, and when another node knows of a purge of one."""

    async def go(port: int) -> None:
        room = MemoryStore(max_bytes=4096 * keys)
        url = f"redis://127.0.0.1:{port}/0"
        asked = redis_tier(url, room, time.time, settings=PATIENT)
        other = redis_tier(url, MemoryStore(), time.time, settings=PATIENT)
        await asked.start()
        await other.start()
        seconds = await known(asked, other, fill)
        print(f"purge of a URL: known on another node after {1000 * seconds:.1f} ms (median)")
        for name, selector in (
            ("tag", Tags(frozenset((b"all",)))),
            ("prefix", Prefix(frozenset((b"http en.example /key/",)))),
            ("pattern", compiled("/key/[0-9]+$")),
        ):
            await fill(asked, keys)
            seconds, turn = await purge(asked, other, selector, keys)
            print(
                f"purge by {name} of {keys}: confirmed in {1000 * seconds:.1f} ms, "
                f"the longest iteration of the event loop takes {1000 * turn:.1f} ms of CPU"
            )
        await asked.aclose()
        await other.aclose()

    with redis_server(folder) as port:
        asyncio.run(go(port))
