"""wrk: its command line, its scripts and what it prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS = 32
SCRIPTS = Path(__file__).parent
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DURATION = re.compile(r"requests in ([\d.]+)(us|ms|s|m|h)\b")


class UncleanRunError(Exception):
    """wrk saw a status other than 2xx or 3xx, or a socket that failed; the text is what it printed."""


@dataclass(frozen=True)
class Run:
    """One run's count of answered requests, its seconds, and the requests per second."""

    requests: int
    seconds: float
    rate: float


def parse(printed: str) -> Run:
    """Read what wrk printed: ValueError if it is no report, UncleanRunError if an answer or socket failed."""
    if "Non-2xx" in printed or "Socket errors" in printed:
        raise UncleanRunError(printed)
    requests = re.search(r"(\d+) requests in", printed)
    seconds = DURATION.search(printed)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", printed)
    if requests is None or seconds is None or rate is None:
        raise ValueError(printed)
    return Run(int(requests[1]), float(seconds[1]) * SECONDS[seconds[2]], float(rate[1]))


def command(
    url: str, seconds: int, fields: Sequence[str] = (), script: str = "", arguments: Sequence[object] = ()
) -> list[str]:
    """The command line for one thread and 32 connections; `script` is a file beside this module."""
    told = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s"]
    told += [part for field in fields for part in ("-H", field)]
    told += ["-s", str(SCRIPTS / script)] if script else []
    return [*told, url, *(["--", *map(str, arguments)] if arguments else [])]


def run(arguments: Sequence[str], limit: float) -> Run:
    """Run wrk for at most `limit` seconds. Raises UncleanRunError, and SystemExit if wrk itself fails."""
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=limit)
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {ended.stdout}{ended.stderr}")
    return parse(ended.stdout)
