"""univocal beside other caches: every measurement, in one run, as a page and a chart.

    make bench                    about 15 minutes; writes docs/benchmarks.md and its charts
    make bench-short              about two minutes; every measurement once, for continuous integration
    python -m benchmarks --only hits-1 --only misses --rounds 5 --seconds 3

With --only or --short the page is printed, and written only where --into says.
Needs Linux, wrk and nginx (which is the origin, too); what else is missing is said and left out.
Exit status 1 if an answer of univocal's was not what it claimed to be.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import uri
from benchmarks.content import Costs, cost_of_content
from benchmarks.machine import Cores, tool_version, whole_machine
from benchmarks.measuring import Settings, Stage, measure, participants
from benchmarks.plan import CANONICAL, CONTENT, FILLING, MEASUREMENTS, MEMORY
from benchmarks.report import Circumstances, is_ours, markdown, svg
from benchmarks.servers import PEERS, ROOT, Place

NEEDED = {"wrk": "wrk", "nginx": "nginx-light", "taskset": "util-linux"}
ROOM = 4 << 30  # bytes that all that nginx and hishel store may take
SHORT = Settings(rounds=1, seconds=1, keys=2_000)


def main() -> int:
    options = arguments()
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed (Debian package {package})")
    chosen = [name for name in MEASUREMENTS if not options.only or name in options.only]
    short = SHORT if options.short else Settings()
    settings = Settings(options.rounds or short.rounds, options.seconds or short.seconds, short.keys)
    load = " ".join(f"{each:.2f}" for each in os.getloadavg())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("ended"))
    begun, allowed = time.monotonic(), os.sched_getaffinity(0)
    stage = measured(settings, chosen)
    os.sched_setaffinity(0, allowed)
    uris = canonicalization(*((1, 2_000) if options.short else (2, 20_000))) if CANONICAL in chosen else []
    costs = costs_of_content(2 if options.short else 8) if CONTENT in chosen else []
    circumstances = Circumstances(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=whole_machine(),
        load=load,
        command=f"python -m benchmarks {' '.join(sys.argv[1:])}".strip(),
        servers=command_lines(),
        versions=versions(),
        settings=settings,
    )
    page = markdown(stage.results, uris, costs, circumstances, "benchmarks.svg")
    print(page)
    if into := options.into or (None if options.only or options.short else ROOT / "docs"):
        into.mkdir(parents=True, exist_ok=True)
        (into / "benchmarks.md").write_text(page, "utf-8")
        (into / "benchmarks.svg").write_text(svg(stage.results, circumstances), "utf-8")
        (into / "benchmarks-short.svg").write_text(svg(stage.results, circumstances, short=True), "utf-8")
        print(f"written to {into}", file=sys.stderr)
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return any(is_ours(server) for _, server in stage.results.failures)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="every measurement once, for one second")
    parser.add_argument(
        "--only", action="append", choices=MEASUREMENTS, metavar="NAME", help=", ".join(MEASUREMENTS)
    )
    parser.add_argument("--rounds", type=int, help="3")
    parser.add_argument("--seconds", type=int, help="of each measurement in each round: 2")
    parser.add_argument("--into", type=Path, help="a directory for the page and the chart: docs")
    return parser.parse_args()


def measured(settings: Settings, chosen: Sequence[str]) -> Stage:
    """Run every round of the chosen measurements."""
    cores = Cores.of_this_machine()
    cores.stay_with_the_load()
    wanted = {name for each in chosen for name in participants(each)}
    names = [name for name in PEERS if name in wanted and PEERS[name].version()]
    once = {MEMORY, FILLING, CANONICAL, CONTENT}
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=scratch()) as folder:
        stage = Stage(settings, cores, Path(folder))
        with stage.started(names):
            for turn in range(settings.rounds):
                for measurement in chosen:
                    if turn == 0 or measurement not in once:
                        print(f"round {turn + 1}: {measurement}", file=sys.stderr, flush=True)
                        measure(stage, measurement, turn)
    return stage


def scratch() -> str | None:
    """A file system in memory, where there is one with room: nginx is not to wait for a disk."""
    memory = "/dev/shm"
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > ROOM
    return memory if has_room else None


def canonicalization(rounds: int, calls: int) -> list[uri.Row]:
    """The rows of uri.py."""
    profiles = uri.all_profiles()
    received = uri.targets(seed=1)
    lists = {name: uri.split(profile, received) for name, profile in profiles.items()}
    return list(uri.rows(profiles, lists, rounds, calls))


def costs_of_content(megabytes: int) -> list[Costs]:
    """The rows of content.py."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        return list(cost_of_content(Path(folder), megabytes))


def command_lines() -> dict[str, str]:
    """The command line of every server by its title; $DIR stands for its directory, 8000 for its port."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        place = Place(Path(folder), 8000, 9000)
        return {
            peer.title: " ".join(peer.command(place))
            .replace(str(place.folder), "$DIR")
            .replace(sys.executable, "python")
            for peer in PEERS.values()
            if peer.version()
        }


def versions() -> dict[str, str]:
    """The version of every package that takes part, and of wrk."""
    found = {peer.package.partition("[")[0]: peer.version() for peer in PEERS.values()}
    return {name.removesuffix("-light"): version for name, version in found.items()} | {
        "wrk": tool_version("wrk", "-v").split()[1].rpartition("/")[2]
    }


if __name__ == "__main__":
    sys.exit(main())
