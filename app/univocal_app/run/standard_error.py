"""Lines on standard error while `univocal serve` runs: each has its time, in UTC, and its level."""

from __future__ import annotations

import logging
import time

__all__ = ["StampedFormatter", "stamped"]


class StampedFormatter(logging.Formatter):
    """Writes each line of a record, those of a traceback included, with the record's time and level."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        return stamped(record.levelname, super().format(record), record.created)


def stamped(level: str, text: str, seconds: float | None = None) -> str:
    """Each line of `text` with a level and a time, in seconds since the epoch; without one it is now."""
    at = time.time() if seconds is None else seconds
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    before = f"{moment}.{int(at * 1000) % 1000:03d}Z {level} univocal: "
    return "\n".join(before + line for line in text.splitlines() or [""])
