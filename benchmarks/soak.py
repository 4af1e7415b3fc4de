"""An hour's worth of mixed traffic in ten minutes: is every answer right, and does nothing grow?

    python -m benchmarks.soak [--seconds 600]

Visitors ask `univocal serve` as fast as they are answered: hits, misses, pages that are edited and purged,
slow readers and slow heads, WebSockets, answers that are faults. Meanwhile the two origin servers die and
come back by turns, and the configuration is read again. Every body carries its own URL and version and is
checked; after a confirmed purge no older version may be answered. At the end the resident size must be what
it was after the first tenth, and there must be as many tasks and descriptors as before the visitors came.
Before that, so many pages are asked for that everything that is bounded has reached its bound.
Exit status 1 if anything was otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Final

import httpx

from benchmarks.machine import Cores, Running, free_port, running
from benchmarks.soak_origin import Origin, Pages, sockets
from benchmarks.soak_visitors import HOST, Tally, Visitors

ROOT: Final = Path(__file__).resolve().parent.parent
GROWTH: Final = 1.1  # times, and so many MiB more: what an allocator needs
ROOM: Final = 4.0
FULL: Final = 25_000  # pages and spellings by which everything that is bounded has reached its bound
REST: Final = 20.0  # seconds in which everything that was under way has to end

CONFIGURATION: Final = """
[server]
listen = "127.0.0.1:{listen}"
admin = "127.0.0.1:{admin}"
access_log = "off"
header_timeout = 120

[origin]
connect_timeout = 2
read_timeout = 5
fails = 2
eject = 1

[cache]
max_bytes = "16 MiB"
grace = {grace}

[[sites]]
hosts = ["{host}", "127.0.0.1"]
profile = "rfc3986"
upstream = ["http://127.0.0.1:{one}", {{ url = "http://127.0.0.1:{other}", weight = {weight} }}]

[[sites.routes]]
path = "/socket/"
profile = "rfc3986"
upstream = "http://127.0.0.1:{sockets}"
"""


class Census:
    """The memory, the descriptors and the tasks of the server process."""

    def __init__(self, server: Running, told: Path) -> None:
        self._server, self._told = server, told
        self.sizes: list[float] = []  # MiB, each second

    def descriptors(self) -> int:
        """The open ones."""
        return len(os.listdir(f"/proc/{self._server.pid}/fd"))

    def tasks(self) -> int:
        """Those of its event loop."""
        self._told.unlink(missing_ok=True)
        os.kill(self._server.pid, signal.SIGUSR2)
        while not (self._told.exists() and (text := self._told.read_text()).endswith("\n")):
            time.sleep(0.02)
        return int(text)

    async def watch(self) -> None:
        """Weigh the process each second."""
        while True:
            self.sizes.append(self._server.resident() / 2**20)
            await asyncio.sleep(1)


def serve(configuration: str, told: str) -> None:
    """Run `univocal serve`, which writes the number of its tasks to a file at SIGUSR2."""
    from univocal_app.commands.cli import main  # noqa: PLC0415  (the driver has no need of it)

    def tell(*_: object) -> None:
        tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
        Path(told).write_text(f"{len(tasks)}\n")

    signal.signal(signal.SIGUSR2, tell)
    sys.argv = ["univocal", "serve", "--config", configuration]
    main()


async def disturb(origins: list[Origin]) -> None:
    """Have the origin servers die and come back by turns, and now and then both at once."""
    for turn in count():
        await asyncio.sleep(4)
        dying = origins if turn % 7 == 6 else [origins[turn % 2]]
        for origin in dying:
            origin.die()
        await asyncio.sleep(1)
        for origin in dying:
            await origin.live()


async def soak(seconds: float, directory: Path) -> list[str]:
    """Have all visitors come for so many seconds; what was wrong."""
    pages = Pages()
    origins = [Origin(pages), Origin(pages)]
    for origin in origins:
        await origin.live()
    _held, socket = await sockets()
    ports = {"one": origins[0].port, "other": origins[1].port, "sockets": socket, "host": HOST}
    listen, admin, turns = free_port(), free_port(), count()
    file, told = directory / "univocal.toml", directory / "tasks"

    def write() -> None:
        grace = next(turns) % 2
        settings = {"listen": listen, "admin": admin, "grace": grace, "weight": 1 + grace}
        file.write_text(CONFIGURATION.format(**settings, **ports))

    write()
    command = [sys.executable, "-m", "benchmarks.soak", "--serve", str(file), str(told)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    core = Cores.of_this_machine().server
    with running(command, core, listen, directory / "printed", environment) as server:
        visitors, census = Visitors(pages, listen, admin, write), Census(server, told)
        await visitors.fill(FULL)
        before = await asyncio.to_thread(at_rest, admin, census)
        await beset(visitors, census, origins, seconds)
        wrong = [*visitors.tally.wrong, *grown(census.sizes)]
        after = await asyncio.to_thread(settled, census, before)
        if after != before:
            wrong.append(f"{before} tasks and descriptors before, {after} after")
        report(visitors.tally, census.sizes, before, after)
    return wrong


def at_rest(admin: int, census: Census) -> tuple[int, int]:
    """The tasks and descriptors of a server that is ready and has nothing to do."""
    while httpx.get(f"http://127.0.0.1:{admin}/-/ready", trust_env=False).status_code != 200:
        time.sleep(0.1)
    time.sleep(REST / 2)  # so that idle connections to origin servers are closed
    return census.tasks(), census.descriptors()


async def beset(visitors: Visitors, census: Census, origins: list[Origin], seconds: float) -> None:
    """Have the visitors come, the origin servers die, and the census watch, for so long."""
    beside = [asyncio.create_task(each) for each in (census.watch(), disturb(origins))]
    visiting = asyncio.create_task(visitors.visit())
    await asyncio.wait([visiting, *beside], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    visitors.over.set()
    for task in beside:
        task.cancel()
    for ended in await asyncio.gather(*beside, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            visitors.tally.fail(f"the soak itself: {ended!r}")
    await visiting


def settled(census: Census, before: tuple[int, int]) -> tuple[int, int]:
    """The tasks and descriptors once everything has ended, or some seconds later."""
    until = time.monotonic() + REST
    while (found := (census.tasks(), census.descriptors())) != before and time.monotonic() < until:
        time.sleep(0.5)
    return found


def grown(sizes: list[float]) -> list[str]:
    """The complaint about a process that has grown since the first tenth of its time."""
    tenth = max(1, len(sizes) // 10)
    first, last = statistics.mean(sizes[tenth : 2 * tenth]), statistics.mean(sizes[-tenth:])
    return [f"{first:.1f} MiB grew to {last:.1f}"] if last > first * GROWTH + ROOM else []


def report(tally: Tally, sizes: list[float], before: tuple[int, int], after: tuple[int, int]) -> None:
    """Print what happened."""
    for name, number in sorted(tally.seen.items()):
        print(f"{number:9} {name}")
    step = max(1, len(sizes) // 10)
    tenths = [statistics.mean(sizes[at : at + step]) for at in range(0, len(sizes), step)]
    print("MiB by tenths:", " ".join(f"{size:.1f}" for size in tenths[:10]))
    print(f"tasks and descriptors: {before} before, {after} after")


def main() -> int:
    """Run the soak; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--serve", nargs=2, metavar=("FILE", "TASKS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return 0
    with tempfile.TemporaryDirectory() as directory, contextlib.suppress(KeyboardInterrupt):
        wrong = asyncio.run(soak(options.seconds, Path(directory)))
        for text in wrong:
            print(f"wrong: {text}")
        print("passed" if not wrong else f"{len(wrong)} wrong")
        return bool(wrong)
    return 130


if __name__ == "__main__":
    sys.exit(main())
