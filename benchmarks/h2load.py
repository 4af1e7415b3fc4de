"""h2load: HTTP/2 over TLS, its command line and what it prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from benchmarks.wrk import CONNECTIONS, Run, UncleanRunError

STREAMS = 4  # requests at the same time on each connection
FINISHED = re.compile(r"finished in ([\d.]+)(us|ms|s|m)\b, ([\d.]+) req/s")
COUNTS = re.compile(r"requests: .*, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def command(url: str, seconds: int) -> list[str]:
    """The command line for one thread and 32 connections of HTTP/2."""
    return ["h2load", "-t1", f"-c{CONNECTIONS}", f"-m{STREAMS}", f"-D{seconds}", "--npn-list=h2", url]


def parse(printed: str) -> Run:
    """Read what h2load printed: ValueError if it is no report, UncleanRunError if an answer failed."""
    finished, counts = FINISHED.search(printed), COUNTS.search(printed)
    if finished is None or counts is None or "Application protocol: h2" not in printed:
        raise ValueError(printed)
    done, succeeded, *troubles = map(int, counts.groups())
    if any(troubles) or done != succeeded:
        raise UncleanRunError(printed)
    return Run(done, float(finished[1]) * SECONDS[finished[2]], float(finished[3]))


def run(arguments: Sequence[str], limit: float) -> Run:
    """Run h2load for at most `limit` seconds. Raises UncleanRunError, and SystemExit if it fails itself."""
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=limit)
    if ended.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {ended.stdout}{ended.stderr}")
    return parse(ended.stdout)
