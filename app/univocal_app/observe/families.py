"""The names, the labels and the meaning of all metrics: as `/metrics` and the reference have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

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


class Family(NamedTuple):
    """One name of a metric; a counter's has "_total" at its end when it is told."""

    kind: Literal["counter", "histogram", "gauge", "info"]
    documentation: str
    labels: tuple[str, ...] = ()
    of_several: Callable[[Iterable[float]], float] = sum  # the number of several processes


FAMILIES: Final = {
    REQUESTS: Family(
        "counter",
        "Requests (without PURGE, BAN) by site, by hit, revalidated or why they were forwarded, "
        "and by status class",
        ("site", "cache", "status"),
    ),
    REFUSED: Family(
        "counter",
        "Requests that were refused, or would have been (mode observe), by reason",
        ("site", "reason"),
    ),
    FAILED: Family(
        "counter",
        "Requests that were answered with 502, 503 or 504 by univocal itself, by reason",
        ("site", "reason"),
    ),
    CUT: Family(
        "counter",
        "Responses that were cut behind their head, since the rest could not be had, by reason",
        ("site", "reason"),
    ),
    ANSWERABLE: Family(
        "counter",
        "GET and HEAD requests, neither refused nor tunnels: the hit ratio is hits by these",
        ("site",),
    ),
    BYTES: Family("counter", "Bytes of content sent to clients", ("site",)),
    COLLAPSED: Family("counter", "Requests that were answered by what another one brought", ("site",)),
    PURGES: Family("counter", "Purges that were carried out, by what they named", ("by",)),
    EVICTIONS: Family("counter", "Stored responses that gave way to others"),
    ORIGIN_REQUESTS: Family(
        "counter",
        "Requests to origin servers, by the class of the status; none: no response came",
        ("site", "origin", "status"),
    ),
    ORIGIN_ERRORS: Family(
        "counter",
        "Requests that an origin server did not answer, or not to the end, by reason",
        ("site", "origin", "reason"),
    ),
    CPU: Family("counter", "Seconds of processor time, of all processes"),
    SECONDS: Family(
        "histogram",
        "Seconds from a request's head (not of PURGE, BAN) to its response's last byte",
        ("cache",),
    ),
    ORIGIN_SECONDS: Family(
        "histogram",
        "Seconds from a request to an origin server to the head of its response, or to a timeout",
        ("site",),
    ),
    ENTRIES: Family(
        "gauge", "Stored responses: those of the store that all processes share, if there is one"
    ),
    OCTETS: Family("gauge", "Bytes of the stored responses"),
    MEMORY_ENTRIES: Family("gauge", "Stored responses that processes have in memory of their own"),
    MEMORY_OCTETS: Family("gauge", "Bytes of those in memory of their own"),
    MEMORY_EVICTIONS: Family("counter", "Responses that gave way to others in memory of a process's own"),
    STORE_COMMANDS: Family(
        "counter",
        "Commands to the store behind memory, by result: ok, late, error, full",
        ("command", "result"),
    ),
    STORE_SECONDS: Family(
        "histogram", "Seconds that a command to the store behind memory took", ("command",)
    ),
    CONNECTED: Family("gauge", "Whether this node follows the store's purges", of_several=min),
    BEHIND: Family(
        "gauge", "Seconds for which this node has not heard of the store's last purge", of_several=max
    ),
    CONNECTIONS: Family("gauge", "Open connections, by side: of clients, to origin servers", ("side",)),
    ORIGIN_UP: Family(
        "gauge",
        "1 for an origin server that is up, 0 for one that is failing, ejected or down",
        ("site", "origin"),
        min,
    ),
    ORIGIN_STATE: Family(
        "gauge",
        "1 for the state of an origin server: up, failing, ejected, down, draining or backup",
        ("site", "origin", "state"),
        max,
    ),
    STARTED: Family("gauge", "Seconds since the epoch when the first process began", of_several=min),
    "process_resident_memory_bytes": Family("gauge", "Bytes of memory in use, of all processes"),
    "process_virtual_memory_bytes": Family("gauge", "Bytes of virtual memory, of all processes"),
    "process_open_fds": Family("gauge", "Open descriptors, of all processes"),
    "process_max_fds": Family("gauge", "Descriptors that there may be, of all processes"),
    BUILD: Family("info", "The version of univocal and of Python", ("version", "python")),
}

# The upper bounds of the buckets of a histogram, in seconds; behind them is one without a bound.
BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Those of origin servers reach as far as their timeouts.
ORIGIN_BOUNDS: Final = (*BOUNDS, 30, 60, 120, 300)


def written(name: str) -> str:
    """The name of a family as it is exposed, with its labels: as the reference has it."""
    family = FAMILIES[name]
    exposed = name + {"counter": "_total", "info": "_info"}.get(family.kind, "")
    return f"{exposed}{{{','.join(family.labels)}}}" if family.labels else exposed
