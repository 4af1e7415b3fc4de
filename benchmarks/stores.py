"""The stores of one machine: a restart, a purge of very many, memory and hits of several workers.

    python -m benchmarks.stores [--keys 100000] [--stored 100] [--seconds 5] [--only NAME]…

`restart`: a directory has --keys responses of 1 KiB; seconds from the start of the program to the first hit.
`purge`: one tag has all of them; seconds until the purge is confirmed, and until it is counted.
`memory`: four workers with --stored MiB; what the shared memory and the largest process take.
`hits`: one key, from one worker and from two; the hits that two answer in their CPU time, beside one's.
`disk`: 10,000 responses of 20 KiB in files that memory does not hold, by univocal and nginx in turns.
`redis`: stored misses, first hits and purges with Redis (`redis_store.py`).
Needs wrk for the last three, nginx, and redis-server. CPU time is compared, since others take time, too.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import redis_store, wrk
from benchmarks.machine import Running, free_port, listens
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.http.messages import Fields, Request, Response
from univocal.store.address import file_tier
from univocal.store.file.directory import SHARED_MEMORY
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Tags
from univocal.store.shared import SharedTier

MIB = 1 << 20
PIECE = 4096  # bytes of a response that is stored for `memory`
DISK_PIECE = 20 << 10  # and for `disk`
ROUNDS = 3  # of `disk`
FIELDS: Fields = [(b"cache-control", b"max-age=3600"), (b"xkey", b"all")]
HOST = ("Host: en.example",)
GIB = 1 << 30
RULES = Rules()


def response(number: int, authority: bytes) -> Stored:
    now, key = time.time(), b"0123456789abcdef http %b /key/%d" % (authority, number)
    begun = may_store(key, Fetched(Request(b"GET", b"/", []), Response(200, FIELDS), now, now), RULES)
    assert isinstance(begun, Stored)
    done = complete(begun, bytes(1024))
    assert done is not None
    return done


async def fill(tier: SharedTier, keys: int) -> float:
    """Store so many responses; returns the seconds of CPU that each took."""
    begun = time.process_time()
    for first in range(0, keys, 100):
        ends = list[asyncio.Future[None]]()
        for number in range(first, min(first + 100, keys)):
            stored = response(number, b"en.example")
            lease = tier.begin(stored.key, time.time())
            tier.commit(lease, stored)
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            tier.end(lease, lambda ended=ended: ended.set_result(None))  # type: ignore[misc]
            ends.append(ended)
        await asyncio.gather(*ends)
    return (time.process_time() - begun) / keys


async def first_hit(directory: Path) -> float:
    """The seconds until a response of a directory is served, from before it is opened."""
    begun = time.perf_counter()
    tier = file_tier(directory, MemoryStore(), time.time, GIB)
    await tier.start()
    stored = response(1, b"en.example")
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    lease = tier.begin(stored.key, time.time())
    tier.fill(lease, Request(b"GET", b"/", []), lambda held, _: bool(held), done.set_result, joined=True)
    assert await done
    seconds = time.perf_counter() - begun
    tier.end(lease, lambda: None)
    await tier.aclose()
    return seconds


async def purge(directory: Path) -> tuple[int, float]:
    """The responses that a purge by tag means, and its seconds."""
    tier = file_tier(directory, MemoryStore(), time.time, GIB)
    await tier.start()
    begun = time.perf_counter()
    count = await tier.purge(Tags(frozenset((b"all",))), time.time())
    seconds = time.perf_counter() - begun
    await tier.aclose()
    return count, seconds


def measure_directory(keys: int, folder: Path) -> None:
    """Print what a restart takes, and a purge of all."""

    async def go() -> None:
        tier = file_tier(folder / "store", MemoryStore(), time.time, GIB)
        await tier.start()
        each = await fill(tier, keys)
        await tier.aclose()
        print(f"stored {keys} responses of 1 KiB: {1e6 * each:.0f} µs of CPU each")
        print(f"restart: the first hit after {await first_hit(folder / 'store'):.3f} s")
        count, seconds = await purge(folder / "store")
        print(f"purge: {count} responses of one tag confirmed and counted in {1000 * seconds:.1f} ms")

    asyncio.run(go())


class _Origin(asyncio.Protocol):
    """Answers each head with content that may be stored."""

    def __init__(self, size: int) -> None:
        self._size = size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._kept = transport, b""

    def data_received(self, data: bytes) -> None:
        *heads, self._kept = (self._kept + data).split(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: %d\r\n\r\n" % self._size
        self._transport.write((head + bytes(self._size)) * len(heads))


@contextmanager
def origin(port: int, size: int = PIECE) -> Iterator[None]:
    """An origin server, in a thread."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(lambda: _Origin(size), "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def proxy(workers: int, behind: int, folder: Path) -> Iterator[Running]:
    """`univocal serve` with so many workers, and what they store in memory."""
    port, file = free_port(), folder / f"{workers}.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{free_port()}"\nworkers = {workers}\n'
        f'access_log = "off"\n[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:{behind}"\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        while not listens(port):
            time.sleep(0.05)
        time.sleep(3.0)  # until the last worker accepts
        yield Running(process.pid, port, 0.0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


async def ask(port: int, numbers: range, size: int = PIECE) -> None:
    """Ask for some keys over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        writer.write(b"GET /key/%d HTTP/1.1\r\nhost: en.example\r\n\r\n" % number)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(size)
    writer.close()


def measure_memory(mebibytes: int, folder: Path) -> None:
    """Print what four workers take, once so much is stored and has been asked for again."""
    behind, keys, connections = free_port(), mebibytes * MIB // PIECE, 8

    async def all_of(port: int) -> None:
        await asyncio.gather(*(ask(port, range(first, keys, connections)) for first in range(connections)))

    with origin(behind), proxy(4, behind, folder) as family:
        for _ in range(2):
            asyncio.run(all_of(family.port))
        sizes = [_resident(pid) // MIB for pid in family.tree()]
        files = [file for each in SHARED_MEMORY.glob("univocal-store-*") for file in each.iterdir()]
        together = sum(512 * file.stat().st_blocks for file in files) // MIB
    print(f"memory: {mebibytes} MiB stored take {together} MiB in {SHARED_MEMORY}, in the processes {sizes}")


def _resident(pid: int) -> int:
    """The resident bytes of a process, those that it shares counted in part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def measure_hits(seconds: int, folder: Path) -> None:
    """Print the CPU time of a hit with one worker and with two."""
    behind, costs = free_port(), dict[int, float]()
    with origin(behind):
        for workers in (1, 2):
            with proxy(workers, behind, folder) as family:
                url = f"http://127.0.0.1:{family.port}/key/1"
                wrk.run(wrk.command(url, 1), 60)
                before = family.cpu_seconds()
                done = wrk.run(wrk.command(url, seconds), 60)
                costs[workers] = (family.cpu_seconds() - before) / done.requests
            print(f"hits: {1e6 * costs[workers]:.1f} µs of CPU each with {workers} worker(s)")
    print(f"hits: two workers answer {2 * costs[1] / costs[2]:.2f} × one in their CPU time")


def proxied(folder: Path, behind: int) -> tuple[int, list[str], str]:
    """univocal's port, its command, and where it keeps what it stores: on the disk, with little memory."""
    port, file = free_port(), folder / "disk.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:{port}"\nadmin = "127.0.0.1:{free_port()}"\naccess_log = "off"\n'
        f'[cache]\nstore = "file://{folder}/store"\ndisk_bytes = "1 GiB"\nmax_bytes = "4 MiB"\n'
        f'[[sites]]\nhosts = ["*"]\nupstream = "http://127.0.0.1:{behind}"\n',
        encoding="utf-8",
    )
    return port, [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)], "univocal"


NGINX = """
daemon off; user {user}; worker_processes 1; pid {folder}/pid; error_log /dev/null;
events {{ worker_connections 1024; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/temp;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=kept:64m max_size=4g inactive=1h use_temp_path=off;
    proxy_cache kept;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{behind}; }} }}
}}
"""


def nginx(folder: Path, behind: int) -> tuple[int, list[str], str]:
    """nginx's port, its command, and its name."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(
        NGINX.format(folder=folder, port=port, behind=behind, user=getpass.getuser()), encoding="utf-8"
    )
    return port, ["nginx", "-p", str(folder), "-c", str(file)], "nginx"


def measure_disk(keys: int, seconds: int, folder: Path) -> None:
    """Print how fast a disk is filled with responses of 20 KiB, and read: by univocal and nginx in turns."""
    behind, rates, costs = free_port(), dict[str, list[float]](), dict[str, list[float]]()
    with origin(behind, DISK_PIECE):
        for number in range(ROUNDS):
            for place in (proxied, nginx):
                own = folder / f"{place.__name__}{number}"
                own.mkdir()
                port, command, name = place(own, behind)
                process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
                try:
                    while not listens(port):
                        time.sleep(0.05)
                    family = Running(process.pid, port, 0.0)
                    begun, before = time.perf_counter(), family.cpu_seconds()
                    asyncio.run(ask_all(port, keys))
                    rates.setdefault(f"{name} fills", []).append(keys / (time.perf_counter() - begun))
                    between = family.cpu_seconds()
                    costs.setdefault(f"{name} fills", []).append((between - before) / keys)
                    url = f"http://127.0.0.1:{port}/key/1"
                    every = wrk.command(url, seconds, HOST, script="any_key.lua", arguments=(keys,))
                    done = wrk.run(every, 60)
                    rates.setdefault(f"{name} reads", []).append(done.rate)
                    costs.setdefault(f"{name} reads", []).append(
                        (family.cpu_seconds() - between) / done.requests
                    )
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait(20)
    for what in ("fills", "reads"):
        ours, theirs = rates[f"univocal {what}"], rates[f"nginx {what}"]
        each = ", ".join(f"{one:.0f} : {other:.0f}" for one, other in zip(ours, theirs, strict=True))
        print(f"disk: univocal {what} {max(ours) / max(theirs):.2f} × nginx ({each} a second)")
        cost, other = (1e6 * min(costs[f"{name} {what}"]) for name in ("univocal", "nginx"))
        print(f"disk: {cost:.0f} µs of CPU each, nginx {other:.0f}")


async def ask_all(port: int, keys: int) -> None:
    """Ask for each key once, over 32 connections."""
    await asyncio.gather(*(ask(port, range(first, keys, 32), DISK_PIECE) for first in range(32)))


def measure_redis(keys: int, seconds: int, folder: Path) -> None:
    """Print what Redis costs."""
    behind = free_port()
    with origin(behind):
        redis_store.measure_misses(seconds, behind, folder)
    redis_store.measure_purges(keys, fill, folder)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--stored", type=int, default=100, help="MiB")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--only", choices=("directory", "memory", "hits", "disk", "redis"), action="append")
    options = parser.parse_args()
    measurements: dict[str, Callable[[Path], None]] = {
        "directory": lambda folder: measure_directory(options.keys, folder),
        "memory": lambda folder: measure_memory(options.stored, folder),
        "hits": lambda folder: measure_hits(options.seconds, folder),
        "disk": lambda folder: measure_disk(10_000, options.seconds, folder),
        "redis": lambda folder: measure_redis(options.keys, options.seconds, folder),
    }
    for name, measure in measurements.items():
        if not options.only or name in options.only:
            with tempfile.TemporaryDirectory(prefix="univocal-bench-") as folder:
                measure(Path(folder))


if __name__ == "__main__":
    main()
