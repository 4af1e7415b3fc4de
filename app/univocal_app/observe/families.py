"""The names, the labels and the meaning of all metrics: as `/metrics` and the reference have them."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib.metadata import version
from typing import Final, Literal, NamedTuple, TypeAlias

REQUESTS: Final = "univocal_requests"
REFUSED: Final = "univocal_refused"
FAILED: Final = "univocal_failed"
CUT: Final = "univocal_cut"
ANSWERABLE: Final = "univocal_answerable"
BYTES: Final = "univocal_sent_bytes"
COLLAPSED: Final = "univocal_collapsed"
PURGES: Final = "univocal_purges"
EVICTIONS: Final = "univocal_evictions"
ORIGIN_REQUESTS: Final = "univocal_origin_requests"
ORIGIN_ERRORS: Final = "univocal_origin_errors"
ORIGIN_SECONDS: Final = "univocal_origin_seconds"
ORIGIN_UP: Final = "univocal_origin_up"
ORIGIN_STATE: Final = "univocal_origin_state"
CPU: Final = "process_cpu_seconds"
SECONDS: Final = "univocal_request_seconds"
ENTRIES: Final = "univocal_stored_responses"
OCTETS: Final = "univocal_stored_bytes"
MEMORY_ENTRIES: Final = "univocal_memory_responses"
MEMORY_OCTETS: Final = "univocal_memory_bytes"
MEMORY_EVICTIONS: Final = "univocal_memory_evictions"
CONNECTED: Final = "univocal_store_connected"
BEHIND: Final = "univocal_store_behind_seconds"
STORE_COMMANDS: Final = "univocal_store_commands"
STORE_SECONDS: Final = "univocal_store_seconds"
CONNECTIONS: Final = "univocal_connections"
STARTED: Final = "process_start_time_seconds"
BUILD: Final = "univocal_build"


OfSeveral: TypeAlias = Callable[[Iterable[float]], float]
Kind: TypeAlias = Literal["counter", "histogram", "gauge", "info"]


class Family(NamedTuple):
    """One name of a metric; a counter's has "_total" at its end when it is told."""

    kind: Kind
    documentation: str
    labels: tuple[str, ...] = ()
    of_several: OfSeveral = sum  # the number of several processes

    def number(self, each: Iterable[Sequence[float]]) -> float | None:
        """The number of a counter or a gauge by those of each process; None if no process has it any more."""
        living = [value for (value,) in each if not math.isnan(value)]
        return self.of_several(living) if living else None


def _family(kind: Kind, documentation: str, labels: str = "", of_several: OfSeveral = sum) -> Family:
    return Family(kind, documentation, tuple(labels.split()), of_several)


_counter, _histogram, _gauge = (partial(_family, kind) for kind in ("counter", "histogram", "gauge"))

FAMILIES: Final = {
    REQUESTS: _counter(
        "Requests (without PURGE, BAN) by site, by hit, revalidated or why they were forwarded, and by "
        "status class",
        "site cache status",
    ),
    REFUSED: _counter(
        "Requests that were refused, or would have been (mode observe), by reason", "site reason"
    ),
    FAILED: _counter(
        "Requests that were answered with 502, 503 or 504 by univocal itself, by reason", "site reason"
    ),
    CUT: _counter(
        "Responses that were cut behind their head, since the rest could not be had, by reason", "site reason"
    ),
    ANSWERABLE: _counter(
        "GET and HEAD requests, neither refused nor tunnels: the hit ratio is hits by these", "site"
    ),
    BYTES: _counter("Bytes of content sent to clients", "site"),
    COLLAPSED: _counter("Requests that were answered by what another one brought", "site"),
    PURGES: _counter("Purges that were carried out, by what they named", "by"),
    EVICTIONS: _counter("Stored responses that gave way to others"),
    ORIGIN_REQUESTS: _counter(
        "Requests to origin servers, by the class of the status; none: no response came", "site origin status"
    ),
    ORIGIN_ERRORS: _counter(
        "Requests that an origin server did not answer, or not to the end, by reason", "site origin reason"
    ),
    CPU: _counter("Seconds of processor time, of all processes"),
    SECONDS: _histogram(
        "Seconds from a request's head (not of PURGE, BAN) to its response's last byte", "cache"
    ),
    ORIGIN_SECONDS: _histogram(
        "Seconds from a request to an origin server to the head of its response, or to a timeout", "site"
    ),
    ENTRIES: _gauge("Stored responses: those of the store that all processes share, if there is one"),
    OCTETS: _gauge("Bytes of the stored responses"),
    MEMORY_ENTRIES: _gauge("Stored responses that processes have in memory of their own"),
    MEMORY_OCTETS: _gauge("Bytes of those in memory of their own"),
    MEMORY_EVICTIONS: _counter("Responses that gave way to others in memory of a process's own"),
    STORE_COMMANDS: _counter(
        "Commands to the store behind memory, by result: ok, late, error, full", "command result"
    ),
    STORE_SECONDS: _histogram("Seconds that a command to the store behind memory took", "command"),
    CONNECTED: _gauge("Whether this node follows the store's purges", "", min),
    BEHIND: _gauge("Seconds for which this node has not heard of the store's last purge", "", max),
    CONNECTIONS: _gauge("Open connections, by side: of clients, to origin servers", "side"),
    ORIGIN_UP: _gauge(
        "1 for an origin server that is up, 0 for one that is failing, ejected or down", "site origin", min
    ),
    ORIGIN_STATE: _gauge(
        "1 for the state of an origin server: up, failing, ejected, down, draining or backup",
        "site origin state",
        max,
    ),
    STARTED: _gauge("Seconds since the epoch when the first process began", "", min),
    "process_resident_memory_bytes": _gauge("Bytes of memory in use, of all processes"),
    "process_virtual_memory_bytes": _gauge("Bytes of virtual memory, of all processes"),
    "process_open_fds": _gauge("Open descriptors, of all processes"),
    "process_max_fds": _gauge("Descriptors that there may be, of all processes"),
    BUILD: Family("info", "The version of univocal and of Python", ("version", "python")),
}

# The upper bounds of the buckets of a histogram, in seconds; behind them is one without a bound.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Those of origin servers reach as far as their timeouts.
ORIGIN_BOUNDS: Final = (*BOUNDS, 30, 60, 120, 300)


@cache
def build() -> dict[str, str]:
    """The versions of univocal and of Python."""
    return {"version": version("univocal"), "python": platform.python_version()}


def written(name: str) -> str:
    """The name of a family as it is exposed, with its labels: as the reference has it."""
    family = FAMILIES[name]
    exposed = name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
    return f"{exposed}{{{','.join(family.labels)}}}" if family.labels else exposed
