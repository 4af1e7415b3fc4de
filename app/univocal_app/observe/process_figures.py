"""The figures of this process under the names that Prometheus's own libraries use."""

from __future__ import annotations

import os
import resource
from typing import Final

from univocal_app.observe.families import CPU, STARTED

_PAGE: Final = resource.getpagesize()  # bytes
_TICKS: Final = os.sysconf("SC_CLK_TCK")  # a second


def process_figures() -> dict[str, float]:
    """CPU seconds, bytes of memory, descriptors, and the start in Unix seconds; none without /proc."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            # After the name of the program, which is in parentheses and may have blanks.
            fields = stat.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as system:
            booted = next(float(line.split()[1]) for line in system if line.startswith(b"btime "))
        descriptors = len(os.listdir("/proc/self/fd"))
    except (OSError, StopIteration):
        return {}
    return {
        CPU: (float(fields[11]) + float(fields[12])) / _TICKS,
        "process_virtual_memory_bytes": float(fields[20]),
        "process_resident_memory_bytes": float(fields[21]) * _PAGE,
        STARTED: booted + float(fields[19]) / _TICKS,
        "process_open_fds": descriptors,
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
