"""The text of docs/benchmarks.md and the charts beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.chart import Bar, Group, draw
from benchmarks.content import Costs, dearest, shown
from benchmarks.figures import Figure, by_clock, by_cpu, figure, number, ratio
from benchmarks.measuring import Results, Settings
from benchmarks.plan import COMPARISONS, FILLING, LATENCY, LOADS, MEMORY, MOUNTED, START, Comparison
from benchmarks.servers import PEERS
from benchmarks.uri import Row

INTRODUCTION = """# Benchmarks

`make bench` measures univocal and the other installed caches on one machine, in one run, and writes this
page.

- Each server runs alone on one core; the others are stopped. The load and the origin server share another
  core.
- Servers take turns in every round, in a changing order. Ratios compare servers of the same round.
- A number is the median of the rounds; the least and the greatest stand in brackets.
- Every measurement is checked before and after: the content byte for byte, and the cache's own report of
  a hit (`Cache-Status`, `X-Cache`, `X-Varnish`, `Age`). The origin's counter must stand still on hits and
  count every miss. With logs on, each request has a line.
- Under uvicorn the application itself is the origin server.
- univocal is the [compiled wheel](how-to/production.md#pure-or-compiled); *pure* is the same version from
  its sources.
- h2load measures HTTP/2 over TLS with 32 connections and 4 requests at a time on each. Caddy answers
  these from a file.

Read the ratios, not the rates: other machines have others.

- *By the clock* is requests per second.
- *By CPU time* is requests per second of the server's own CPU time: its rate if its core were always
  busy.
- *busy* is the part of the time that the server ran. The rates differ if the load's core is the limit, or
  if others use the machine.
"""
LATENCIES = """\
Latencies at {} requests per second for all, half of univocal's rate in this run. They count from the time
at which each request was due, waiting included. The generator is a Python process that never sleeps. Its
own lateness is in all numbers: p99 {} ms in the worst round. At a server whose own rate is lower, requests
wait longer and longer.
"""
BASES = ("nginx", "bare", "Caddy")  # what the chart's numbers are multiples of, the first that is there
RATIOS = ["univocal", "to", "by the clock", "by CPU time", "aim"]
RATES = ["", "requests per second", "per second of CPU time", "busy"]
SHORT = ("hits-1", "hits-13", "hits-64k", "misses", "stored")  # what the chart of docs/index.md shows
LESS = {LATENCY: ("p99 at a fixed rate", 1e3, "ms"), MEMORY: ("Resident memory", 2**-20, "MiB"),
        FILLING: ("Storing new keys", 1.0, "s"),
        START: ("Start-up to the first answer", 1.0, "s")}  # fmt: skip


@dataclass(frozen=True)
class Circumstances:
    """The time, machine, versions and settings of the measurements."""

    date: str
    machine: str
    load: str
    command: str
    servers: Mapping[str, str]  # command lines by title
    versions: Mapping[str, str]  # by package; empty if it is not installed
    settings: Settings


def markdown(
    results: Results, uris: Sequence[Row], costs: Sequence[Costs], circumstances: Circumstances, chart: str
) -> str:
    """The page; `chart` is the name of the SVG file beside it."""
    sections = [
        INTRODUCTION,
        f"![Bars for each server and measurement]({chart})\n",
        "## univocal beside the others\n",
        "An aim is the smallest wanted ratio; for latency, memory and the time to store, the largest.\n",
        table(RATIOS, compared(results), "llrrr"),
        "## Every server\n",
        *rates(results),
        *lesser(results, circumstances.settings),
    ]
    if uris:
        sections += [*canonicalization(uris)]
    if costs:
        sections += [*content(costs)]
    return "\n".join([*sections, *told(results, circumstances)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str) -> str:
    """A Markdown table; `align` has l or r for each column."""
    rules = ["---:" if each == "r" else "---" for each in align]
    lines = [head, rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def spread(found: Figure | None) -> str:
    """The median, and in brackets the least and the greatest where they differ."""
    if found is None:
        return "–"
    if found.least == found.most:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)}–{number(found.most)})"


def compared(results: Results) -> Iterator[list[str]]:
    for comparison in COMPARISONS:
        clock = ratio(results, comparison, by_clock)
        if clock is not None:
            cpu = None if comparison.measurement in LESS else ratio(results, comparison, by_cpu)
            yield [comparison.title, opponent(comparison), spread(clock), spread(cpu), aim(comparison)]


def opponent(comparison: Comparison) -> str:
    if comparison.against_measurement:
        return "one key"
    if comparison.against == "univocal-pure":
        return "pure"
    return PEERS[comparison.against].title


def aim(comparison: Comparison) -> str:
    if comparison.aim is None:
        return ""
    return f"{'≤' if comparison.less else '≥'} {comparison.aim:g}"


def rates(results: Results) -> Iterator[str]:
    for measurement, load in LOADS.items():
        rows = []
        for server in load.servers:
            rounds = results.samples.get((measurement, server), {}).values()
            if rounds:
                clock, cpu = (figure(map(part, rounds)) for part in (by_clock, by_cpu))
                busy = figure(each.busy for each in rounds)
                assert busy is not None
                rows.append([PEERS[server].title, spread(clock), spread(cpu), f"{busy.median:.0%}"])
        if rows:
            yield table([load.title, *RATES[1:]], rows, "lrrr")


def lesser(results: Results, settings: Settings) -> Iterator[str]:
    for measurement, (title, factor, unit) in LESS.items():
        rows = [[PEERS[server].title, spread(found)] for server, found in of(results, measurement, factor)]
        if rows:
            if measurement == LATENCY:
                yield LATENCIES.format(number(results.rate), number(results.late * 1e3))
            number_of_keys = f", {settings.keys:,} × 1 KiB" if measurement in {MEMORY, FILLING} else ""
            yield table([title + number_of_keys, unit], rows, "lr")


def of(results: Results, measurement: str, factor: float = 1.0) -> Iterator[tuple[str, Figure]]:
    for (name, server), rounds in results.samples.items():
        if name == measurement and (found := figure(each.value * factor for each in rounds.values())):
            yield server, found


def canonicalization(uris: Sequence[Row]) -> Iterator[str]:
    yield "## Canonicalization\n"
    yield "Microseconds of CPU time for a URL, in process, the best of some rounds (`benchmarks/uri.py`).\n"
    rows = [
        [row.name, *([row.missing] * 2 if row.missing else [number(row.canonical), number(row.respelled)])]
        for row in uris
    ]
    yield table(["", "canonical already", "respelled"], rows, "lrr")


def content(costs: Sequence[Costs]) -> Iterator[str]:
    yield "## Content by its kind\n"
    yield "CPU milliseconds of `univocal serve` for a megabyte on the wire (`benchmarks/content.py`).\n"
    yield "*ended*: univocal closes the connection instead.\n"
    rows = [[each.kind, shown(each.request), shown(each.response)] for each in costs]
    columns = [each.request for each in costs], [each.response for each in costs]
    ratios = ["the dearest over the cheapest", *(number(dearest(column)) for column in columns)]
    yield table(["", "requests", "responses"], [*rows, ratios], "lrr")


def told(results: Results, circumstances: Circumstances) -> Iterator[str]:
    """The end of the page: what it takes to measure it again, and what is missing."""
    yield "## Circumstances\n"
    settings = circumstances.settings
    yield f"- {circumstances.date}, {circumstances.machine}; load average at the start {circumstances.load}"
    yield f"- {settings.rounds} × {settings.seconds} s; wrk with one thread and 32 connections"
    if others := figure(each.others for rounds in results.samples.values() for each in rounds.values()):
        yield (
            f"- Other processes had {others.median:.0%} of a core in the median of all measurements, "
            f"{others.most:.0%} in the worst"
        )
    present = [f"{name} {version}" for name, version in circumstances.versions.items() if version]
    yield f"- {'; '.join(present)}"
    if absent := [name for name, version in circumstances.versions.items() if not version]:
        yield f"- Not installed, therefore not measured: {', '.join(absent)}"
    for (measurement, server), reason in results.failures.items():
        yield f"- Not measured: {measurement} of {PEERS[server].title}: {' '.join(reason.split())[:200]}"
    yield "\nEach has a directory and ports of its own; `benchmarks/servers.py` writes their configuration.\n"
    yield "```sh"
    yield circumstances.command
    yield "```\n"
    yield "| server | command |\n|---|---|"
    for title, line in circumstances.servers.items():
        yield f"| {title} | `{line}` |"
    yield ""


def svg(results: Results, circumstances: Circumstances, *, short: bool = False) -> str:
    """The chart: rates per second of CPU time, in groups; then what is better the less it is.

    The short one has the best known measurements of the proxies alone.
    """
    groups = []
    for measurement, load in LOADS.items():
        if short and measurement not in SHORT:
            continue
        bars = []
        for server in load.servers:
            if short and server in MOUNTED:
                continue
            rounds = results.samples.get((measurement, server), {}).values()
            if found := figure(map(by_cpu, rounds)):
                bars.append(Bar(PEERS[server].title, found, own=is_ours(server)))
        if bars and measurement != "one-key":
            based = [bar.figure.median for bar in bars if bar.title.startswith(BASES)]
            groups.append(Group(load.title, bars, next(iter(based), 0.0)))
    for measurement, (title, factor, unit) in () if short else LESS.items():
        if bars := [
            Bar(PEERS[server].title, found, own=is_ours(server))
            for server, found in of(results, measurement, factor)
        ]:
            groups.append(Group(f"{title} (less is better)", bars, unit=unit))
    mounted = "" if short else " (in the application: the bare one's; HTTP/2: Caddy's)"
    note = (
        f"Requests per second of the server's CPU time, as multiples of nginx's{mounted}.\n"
        "The thin line goes from the least round to the greatest. Bars compare within a group.\n"
        f"{circumstances.date}, {circumstances.machine}"
    )
    return draw("univocal beside other caches, each alone on one core", note, groups)


def is_ours(server: str) -> bool:
    return server.startswith(("univocal", "middleware"))
