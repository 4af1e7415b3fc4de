"""`univocal log`: exchanges as lines that one can read, those to come or those of a file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import typer
from rich.console import Console
from rich.text import Text

from univocal_app.commands.endings import check_reader, ending_cleanly
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
from univocal_app.commands.settings import Texts, argument, flag, option, usage_errors
from univocal_app.observe.accesslog import PATIENCE
from univocal_app.observe.events import Event, Wanted
from univocal_app.observe.log_reader import lines, opened, seconds
from univocal_app.terminal import printable

_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

AGENT: Final = 60  # letters of a user agent that are shown

_CACHED: Final = {"hit": "green", "stale": "yellow"}
_CLASSES: Final = {"2": "green", "3": "cyan", "4": "yellow", "5": "red bold", "0": "red"}


def log_command(
    file: Annotated[str | None, argument("FILE", "Print this JSON access log; - is standard input.")] = None,
    *,
    admin: Admin = ADMIN,
    site: Annotated[Texts, option("NAME", "Only this site. Repeatable.")] = None,
    status: Annotated[Texts, option("N", "Only this status, or a class: 4xx. Repeatable.")] = None,
    cache: Annotated[
        Texts, option("WORD", "Only hit, uri-miss, stale …; null: not forwarded. Repeatable.")
    ] = None,
    since: Annotated[
        str | None, option("WHEN", "Start 10m, 2h or 1d ago, or at 2026-11-22T08:00:00Z.")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the JSON objects of the access log, one a line.")] = False,
    token_env: TokenEnv = TOKEN_ENV,
    ca: Ca = None,
    insecure: Insecure = False,
) -> None:
    """Follow the requests of a running proxy, like varnishlog, or print a JSON access log.

    --since without a FILE starts with the proxy's own access log, if it is readable here.
    """
    with usage_errors():
        wanted = Wanted.by(site or [], status or [], cache or [])
        begin = 0.0 if since is None else moment(since, time.time())
    client = AdminClient(admin, token_env, ca, insecure=insecure)
    show = Printer(as_json=as_json)
    with ending_cleanly():
        if file is not None:
            show.all(entries_of(file, wanted, begin))
        else:
            follow(client, wanted, show, None if since is None else begin)


# ── where they come from ────────────────────────────────────────────────────────────────────────────────────


def entries_of(path: str, wanted: Wanted, begin: float) -> Iterator[dict[str, Any]]:
    """The objects of an access log that are wanted, from a time on. Raises LogError."""
    skipped = 0
    with opened(path) as stream:
        for line in lines(stream):
            entry = _object(line) if line is not None and line.strip() else {}
            if entry is None:
                skipped += 1
            elif entry and _is_since(entry, begin) and wanted.has(event_of(entry)):
                yield entry
    if skipped:
        typer.echo(f"univocal: {path}: {skipped} lines are not JSON of an access log", err=True)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and "status" in entry and "target" in entry else None


def _is_since(entry: dict[str, Any], begin: float) -> bool:
    if not begin:
        return True
    at = seconds(str(entry.get("time", "")).encode("latin-1", "replace"))
    return at is not None and at >= begin


def event_of(entry: dict[str, Any]) -> Event:
    """The values by which an object of the log is chosen."""
    cache = entry.get("cache")
    status = str(entry.get("status")) or "0"
    return Event(str(entry.get("site", "")), status, "null" if cache is None else str(cache), b"")


def follow(client: AdminClient, wanted: Wanted, show: Printer, begin: float | None) -> None:
    """Show what comes until the stream ends; before it, what the proxy's log file has since `begin`.

    Raises AdminError, also at the stream's end, and LogError.
    """
    named = {"site": sorted(wanted.sites), "status": sorted(wanted.statuses), "cache": sorted(wanted.caches)}
    path = f"/-/events?{urlencode(named, doseq=True)}".rstrip("?")
    source = None if begin is None else _log_of(client)
    shown: frozenset[str] = frozenset()
    for event in client.events(path):
        if event.name == "open" and source is not None and begin is not None:
            # Lines before this moment are in the file soon; lines from now on are in the stream, too.
            opened_at = time.time()
            time.sleep(2 * PATIENCE)
            shown = show.all(entries_of(source, wanted, begin), opened_at - 60)
        elif event.name == "lost":
            show.lost(event.data.get("lost"))
        elif event.data is None:
            check_reader()
        elif not shown or _same(event.data) not in shown:
            show(event.data)
    raise AdminError(f"the admin listener at {client.url} has ended the stream")


def _log_of(client: AdminClient) -> str:
    server = client.get("/-/config").get("server", {})
    where, form = str(server.get("access_log")), server.get("access_log_format")
    if where in {"off", "stdout"} or form != "json" or not Path(where).is_file():
        described = printable(f"{where}, {form}".encode("utf-8", "backslashreplace"))
        log = f"the proxy's access log ({described})"
        raise AdminError(f"--since needs a FILE: {log} cannot be read back here")
    return where


def _same(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


def moment(text: str, now: float) -> float:
    """Seconds since the epoch of "10m" (before `now`) or of a time in ISO 8601. Raises ValueError."""
    if match := _AGO.fullmatch(text):
        return now - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: 30s, 10m, 2h, 1d, or 2026-11-22T08:00:00Z") from None


# ── how they are shown ──────────────────────────────────────────────────────────────────────────────────────


class Printer:
    """Writes objects of the access log to standard output: in colours on a terminal that has them."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def __call__(self, entry: dict[str, Any]) -> None:
        if self._as_json:
            typer.echo(json.dumps(entry, separators=(",", ":")))
        else:
            self._write(as_text(entry))

    def all(self, entries: Iterable[dict[str, Any]], since: float | None = None) -> frozenset[str]:
        """Show several; gives those that were asked `since` a time."""
        late = set()
        for entry in entries:
            self(entry)
            if since is not None and _is_since(entry, since):
                late.add(_same(entry))
        return frozenset(late)

    def lost(self, count: object) -> None:
        """Say that this was too slow for so many."""
        typer.echo(f"univocal: {count} exchanges were lost: they came faster than they were read", err=True)

    def _write(self, text: Text) -> None:
        if self._console.is_terminal:
            self._console.print(text)
        else:
            typer.echo(text.plain)


def as_text(entry: dict[str, Any]) -> Text:
    """One line without any byte that a terminal would obey."""
    value, text = partial(_value, entry), Text()
    status, cache = value("status") or "0", value("cache") or "-"
    text.append(f"{value('time')[11:23] or '-':12} ", "dim")
    text.append(f"{status if status != '0' else 'left':>4} ", _CLASSES.get(status[0], ""))
    text.append(f"{cache:12} ", _CACHED.get(cache, "blue"))
    text.append(f"{_milliseconds(entry.get('seconds')):>9} {value('bytes'):>9}  ", "dim")
    text.append(f"{value('method')} ")
    text.append(value("url") or f"{value('host') or value('site')} {value('target')}".strip(), "bold")
    if value("url") and not value("url").endswith(value("target")):
        text.append(f" <- {value('target')}", "magenta")
    text.append(f"  {value('client') or '-'}", "dim")
    if detail := value("detail"):
        text.append(f" {detail}", "yellow")
    if (storable := value("storable")) and storable not in {"stored", detail}:
        text.append(f" {storable}", "dim")
    if isinstance(purge := entry.get("purge"), dict):
        text.append(f"  {_purge(purge)}", "magenta")
    if isinstance(origin := entry.get("origin"), dict) and "reason" in origin:
        each = partial(_value, origin)
        text.append(f"  origin {each('url')}: {each('reason')}: {each('error')}", "red")
    if agent := value("user_agent"):
        text.append(f'  "{agent[:AGENT]}"', "dim")
    return text


def _purge(purge: dict[str, Any]) -> str:
    names, value = purge.get("names"), partial(_value, purge)
    listed = " ".join(map(visible, names)) if isinstance(names, list) else ""
    kind = "soft purge" if purge.get("soft") is True else "purge"
    return f"{kind} by {value('by')} {listed}: {value('count') or '?'}"


def _value(entry: dict[str, Any], name: str) -> str:
    """A value of an object as text that no terminal obeys; "" for one that is missing or null."""
    value = entry.get(name)
    return "" if value is None else visible(value)


def visible(value: object) -> str:
    """A value as text that no terminal obeys: bytes of the log are Latin-1."""
    return printable(str(value).encode("latin-1", "backslashreplace"))


def _milliseconds(value: object) -> str:
    if not isinstance(value, int | float) or abs(value) >= 1e9:  # seconds
        return "-"
    return f"{value * 1000:.1f}ms"
