"""The figures of a store in Redis; `python -m benchmarks.stores --only redis` prints them.

`miss`: a response that is stored, with memory alone and with Redis; CPU time of the node, in pairs of runs.
`first hit`: a response that another node stored, which comes from Redis into memory.
`another node`: the CPU time that a stored response takes of a node that nobody asks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks import wrk
from benchmarks.machine import Running, end, free_port, listens

__all__ = ["measure_misses", "node", "redis_server"]


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """A Redis that keeps nothing on disk; its port."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--maxmemory", "2gb"]
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


def measure_misses(rounds: int, seconds: int, behind: int, folder: Path) -> None:
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
            memory, _ = cost(alone, seconds, next(starts))
            start, idle = next(starts), other.cpu_seconds()
            shared, run = cost(asked, seconds, start)
            others.append((other.cpu_seconds() - idle) / run.requests)
            misses.append((memory, shared))
            first, run = cost(other, seconds // 2 or 1, start)
            firsts.append(first)
            rates.append(run.rate)
    memory, shared = (median(each) for each in zip(*misses, strict=True))
    ratio = median(shared / memory for memory, shared in misses)
    print(
        f"stored miss: {1e6 * memory:.0f} µs of CPU with memory, {1e6 * shared:.0f} with Redis: {ratio:.2f} ×"
    )
    print(f"first hit through Redis: {1e6 * median(firsts):.0f} µs of CPU, {median(rates):.0f} a second")
    print(f"another node: {1e6 * median(others):.1f} µs of CPU for each response that is stored")
