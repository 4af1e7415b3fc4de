"""`univocal top`: what a running proxy does now, by key, spelling, refusal and origin server."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from univocal_app.commands.endings import ending_cleanly
from univocal_app.commands.log import visible
from univocal_app.commands.server import (
    ADMIN,
    TOKEN_ENV,
    Admin,
    AdminClient,
    AdminError,
    Ca,
    Insecure,
    TokenEnv,
)
from univocal_app.commands.settings import flag, option
from univocal_app.observe.top import MEASURES

SPAN: Final = 10  # seconds that a rate is the mean of
CHART: Final = 60  # seconds of the chart
BARS: Final = " ▁▂▃▄▅▆▇█"

_RATED: Final = ("requests", "hits", "answerable", "folded", "stale", "collapsed", "bytes", "purges")


def top_command(
    *,
    admin: Admin = ADMIN,
    count: Annotated[int, option("N", "Rows of each table.", "-n", min=1, max=1000)] = 8,
    interval: Annotated[float, option("SECONDS", "The time between two updates.", min=0.2, max=3600)] = 1.0,
    as_json: Annotated[bool, flag("--json", "Print everything once, as JSON.")] = False,
    token_env: TokenEnv = TOKEN_ENV,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Watch a running proxy, like varnishtop: rates, top URLs, rejections, origin servers.

    Without a terminal it prints the tables once.
    """
    client = AdminClient(admin, token_env, ca, insecure=insecure)
    with ending_cleanly(), ThreadPoolExecutor(len(MEASURES) + 2) as pool:
        ask = partial(look, client, pool, count)
        if as_json:
            typer.echo(json.dumps(ask(), indent=2))
        elif not sys.stdout.isatty():
            console = Console(width=120, highlight=False, markup=False, emoji=False)
            with console.capture() as written:
                console.print(screen(ask(), client.url, count))
            typer.echo("\n".join(line.rstrip() for line in written.get().splitlines()))
        else:
            watch(ask, client.url, count, interval)


def watch(ask: Callable[[], dict[str, Any]], url: str, count: int, interval: float) -> None:
    """Show it anew and anew, until Ctrl-C, also past a restart of the proxy.

    Raises AdminError if no node answers at the beginning.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    seen, trouble = ask(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(seen, url, count, console.height, trouble), refresh=True)
            time.sleep(interval)
            try:
                seen, trouble = ask(), ""
            except AdminError as error:
                trouble = trouble or f"since {time.strftime('%H:%M:%S')}: {str(error).partition(chr(10))[0]}"


def look(client: AdminClient, pool: ThreadPoolExecutor, count: int) -> dict[str, Any]:
    """All of it at one moment. Raises AdminError."""
    paths = [f"/-/top?by={measure}&n={count}" for measure in MEASURES]
    stats, *tops = pool.map(client.get, ["/-/stats", *paths])
    totals, latest = stats["totals"], stats["series"][-CHART:]
    return {
        "rates": rates(stats["series"]),
        "totals": totals,
        "top": dict(zip(MEASURES, tops, strict=True)),
        "origins": _origins(client, totals),
        "failures": client.get("/-/failures"),
        "series": [{name: each[name] for name in ("at", "requests", "hits")} for each in latest],
    }


def _origins(client: AdminClient, totals: Mapping[str, Any]) -> Any:
    try:
        return client.get("/-/origins")
    except AdminError:
        return totals.get("origins", [])


def rates(series: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers by second, the mean of the last seconds that are over, and the hit ratio of these."""
    latest = series[:-1][-SPAN:] or series
    sums = {name: sum(second[name] for second in latest) for name in _RATED}
    for name in ("refused", "failed"):
        sums[name] = sum(sum(second[name].values()) for second in latest)
    shown = {name: round(number / max(1, len(latest)), 3) for name, number in sums.items()}
    shown["hit_ratio"] = round(sums["hits"] / sums["answerable"], 6) if sums["answerable"] else 0.0
    return shown


# ── the screen ──────────────────────────────────────────────────────────────────────────────────────────────


def screen(
    seen: Mapping[str, Any], url: str, rows: int, height: int | None = None, trouble: str = ""
) -> RenderableType:
    """The screen of what `look` has seen, without any byte that a terminal would obey.

    `rows` is the most of each table; `height` are the lines that there are, None: as many as it takes.
    `trouble` says why it is no newer.
    """
    head, tables = _head(seen, url, trouble), _tables(seen)
    if height is None:
        shares = [rows] * len(tables)
    else:
        tables = tables[: max(1, (height - len(head)) // 2)]
        wanted = [max(1, min(rows, len(entries))) for _, _, entries in tables]
        shares = shared_out(height - len(head) - len(tables), wanted)
    shown = zip(tables, shares, strict=True)
    return Group(*head, *(_table(title, style, rows[:share]) for (title, style, rows), share in shown))


def shared_out(lines: int, wanted: Sequence[int]) -> list[int]:
    """The lines that each gets of those that it wants: by turns, until there are no more."""
    given = [0] * len(wanted)
    while lines > 0 and given != list(wanted):
        for place, most in enumerate(wanted):
            if lines > 0 and given[place] < most:
                given[place] += 1
                lines -= 1
    return given


_Row = tuple[str, str]


def _tables(seen: Mapping[str, Any]) -> list[tuple[str, str, list[_Row]]]:
    """Each table's title, its colour and its rows."""
    top = seen["top"]

    def counted(measure: str, *names: str) -> list[_Row]:
        rows = top[measure]
        return [(number(each["count"]), "  ".join(str(each[name]) for name in names)) for each in rows]

    spelled = [each for each in top["spellings"] if each["saved"] > 0]
    saved = [(number(each["saved"]), f"{each['key']}  {_spellings(each)}") for each in spelled]
    failed = [_failure(each) for each in seen.get("failures", ())]
    personal = counted("personal", "field", "example", "setting")
    tables = [  # the last: whether it is shown when it is empty
        ("asked for most", "cyan", counted("requests", "key"), True),
        ("origin servers", "green", [_origin(each) for each in seen["origins"]], True),
        ("failed", "red", failed, False),
        ("spellings that became one", "magenta", saved, True),
        ("refused", "red", counted("refused", "reason", "host", "example"), True),
        ("not stored: loose spellings ([path] loose)", "yellow", counted("loose", "key"), False),
        ("not stored: fields that may name a client", "yellow", personal, False),
        ("missed most", "yellow", counted("misses", "key"), True),
    ]
    return [(title, style, rows) for title, style, rows, always in tables if rows or always]


def _head(seen: Mapping[str, Any], url: str, trouble: str) -> list[Text]:
    now, totals = seen["rates"], seen["totals"]
    stored, seconds = totals["stored"], totals["seconds"]
    first = Text.assemble(
        ("univocal ", "bold"),
        (f"{visible(url)}  ", "dim"),
        f"{number(now['requests'])} requests/s  ",
        (f"{now['hit_ratio']:.1%} hits  ", "green"),
        f"{size(now['bytes'])}/s  ",
        (f"{number(now['refused'])} refused/s  ", "yellow" if now["refused"] else "dim"),
        (f"{number(now['failed'])} failed/s", "red" if now["failed"] else "dim"),
        ("  (last 10 s)", "dim"),
    )
    since = Text(
        f"since the start: {number(totals['requests'])} requests, {totals['hit_ratio']:.1%} hits, "
        f"{number(totals['folded'])} in another spelling, {number(sum(totals['failed'].values()))} failed, "
        f"{number(totals['stale'])} stale, {number(totals['collapsed'])} collapsed, "
        f"{number(totals['purges'])} purges",
        "dim",
    )
    held = Text(
        f"stored: {number(stored['responses'])} responses, {size(stored['bytes'])} of "
        f"{size(stored['max_bytes'])}, {number(stored['evictions'])} evicted; answered within "
        f"{seconds['p50'] * 1000:.1f} ms (half), {seconds['p99'] * 1000:.1f} ms (99 %)",
        "dim",
    )
    if trouble:
        first = Text(visible(trouble), "bold red")
    head = [first, since, held, Text(chart([each["requests"] for each in seen["series"]]), "cyan")]
    for line in head:
        line.no_wrap, line.overflow = True, "ellipsis"
    return head


def _table(title: str, style: str, rows: Sequence[Sequence[str]]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False, expand=True, show_header=False)
    table.add_column(justify="right", width=9, no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_row("", Text(title, f"bold {style}"))
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if not rows:
        table.add_row("", Text("none", "dim"))
    return table


def _spellings(each: Mapping[str, Any]) -> str:
    return "  ".join(f"{number(spelled['count'])} x {spelled['target']}" for spelled in each["spellings"][:4])


def _failure(each: Mapping[str, Any]) -> _Row:
    at = time.strftime("%H:%M:%S", time.localtime(each["at"]))
    why = ": ".join(filter(None, (each["origin"], each["cause"], each["error"])))
    return str(each["status"]), f"{at}  {each['reason']}  {each['url']}  {why}".rstrip()


def _origin(each: Mapping[str, Any]) -> _Row:
    names = [name for name in ("requests", "failures", "under_way") if name in each]
    numbers = [f"{number(each[name])} {name.replace('_', ' ')}" for name in names]
    return str(each.get("state", "")), "  ".join([f"{each['site']}  {each['url']}", *numbers])


def chart(numbers: Sequence[float]) -> str:
    """A line of bars, the highest for the largest number."""
    most = max(numbers, default=0) or 1
    return "".join(BARS[-(-int(each * (len(BARS) - 1)) // int(most)) if each else 0] for each in numbers)


def number(value: float) -> str:
    """A number in few letters: 950, 12.3k, 4.56M."""
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= unit:
            scaled = value / (unit if sign != "k" else 1e3)
            return f"{scaled:.3g}{sign}" if scaled < 1000 else f"{scaled:.0f}{sign}"
    return f"{value:g}" if value < 1000 or value == int(value) else f"{value:.0f}"


def size(octets: float) -> str:
    """Bytes in few letters."""
    for sign in ("B", "KiB", "MiB", "GiB"):
        if octets < 1024 or sign == "GiB":
            break
        octets /= 1024
    return f"{octets:.3g} {sign}" if octets < 1000 else f"{octets:.0f} {sign}"
