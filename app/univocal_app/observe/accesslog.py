"""The access log: a listener that writes one line for each Outcome."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Final, Literal

from univocal.engine.outcome import Outcome
from univocal.engine.purge import Purged
from univocal.http.errors import ConfigurationError
from univocal_app.run.processes import Commons

__all__ = ["AccessLog", "as_combined", "as_json", "open_log"]

logger: Final = logging.getLogger("univocal.access")

# Octets that end a quoted string or a line, or steer a terminal, as nginx escapes them.
_ESCAPES: Final = {octet: f"\\x{octet:02X}" for octet in [*range(0x20), 0x22, 0x5C, *range(0x7F, 0x100)]}

CLIENT_LEFT: Final = (
    499  # nginx's status for a client that did not wait, for programs that expect three digits
)


def as_json(outcome: Outcome) -> bytes:
    """One JSON object; octets outside ASCII and control characters are escaped."""
    handling = outcome.handling
    told: dict[str, object] = {
        "time": _iso(int(outcome.times.start)) + f".{int(outcome.times.start % 1 * 1000):03d}Z",
        "client": outcome.client,
        "method": _text(outcome.received.method),
        "target": _text(outcome.received.target),
        "url": _text(outcome.canonical.url) if outcome.canonical else None,
        "site": outcome.site,
        "status": outcome.status,
        "bytes": outcome.bytes,
        "seconds": round(outcome.times.total, 6),
        "cache": "hit" if handling.hit else handling.fwd or None,
        "stored": handling.stored,
        "collapsed": handling.collapsed,
        "detail": handling.detail or None,
        "reasons": outcome.reasons,
    }
    if (purged := outcome.purged) is not None:
        order = purged.order
        told["purge"] = {
            "by": order.by,
            "names": order.names,
            "soft": order.selector.soft,
            "count": purged.count,
        }
    return json.dumps(told, separators=(",", ":")).encode("ascii") + b"\n"


def as_combined(outcome: Outcome) -> bytes:
    """The "combined" format of Apache httpd and nginx; an Outcome knows neither referrer nor user agent.

    Where the user agent would stand, the line of a purge tells what was purged.
    """
    request = f"{_escaped(outcome.received.method)} {_escaped(outcome.received.target)} HTTP/1.1"
    line = (
        f"{outcome.client or '-'} - - [{_clf(int(outcome.times.start))}] "
        f'"{request}" {outcome.status or CLIENT_LEFT} {outcome.bytes} "-" "{_purge(outcome.purged)}"\n'
    )
    return line.encode("ascii", "backslashreplace")


def _purge(purged: Purged | None) -> str:
    if purged is None:
        return "-"
    order, count = purged.order, "?" if purged.count is None else purged.count
    names = " ".join(order.names).translate(_ESCAPES)
    return f"{'soft purge' if order.selector.soft else 'purge'} by {order.by}: {names}: {count}"


FORMATS: Final[dict[str, Callable[[Outcome], bytes]]] = {"json": as_json, "combined": as_combined}


class AccessLog:
    """Writes each outcome to `stream` as one line; a stream that fails is said so once, requests go on.

    With `purges_only` it leaves out what no purge was asked for by. Where several processes write to one
    stream, `alone` gives each its turn: a pipe would mix lines of more than some thousand octets.
    """

    def __init__(
        self,
        stream: BinaryIO,
        form: Callable[[Outcome], bytes],
        *,
        purges_only: bool = False,
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._stream, self._form, self._failed = stream, form, False
        self._purges_only, self._alone = purges_only, alone

    def __call__(self, outcome: Outcome) -> None:
        if self._purges_only and outcome.decision is not None:
            return
        line = self._form(outcome)
        try:
            with self._alone():
                self._stream.write(line)
                self._stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            if not self._failed:
                logger.error("the access log cannot be written: %s", error)
            self._failed = True

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def open_log(where: str, form: Literal["json", "combined"], commons: Commons | None = None) -> AccessLog:
    """The log of `access_log` and `access_log_format`; "off" leaves the purges alone, on stderr.

    Raises ConfigurationError for a file that cannot be written.
    """
    alone = nullcontext if commons is None else commons.alone
    if where in {"off", "stdout"} and (sys.stderr if where == "off" else sys.stdout) is None:
        allowed = "a file, where standard output, or for off standard error, is closed"
        raise ConfigurationError("configuration", "server.access_log", where, allowed)
    if where == "off":
        return AccessLog(sys.stderr.buffer, FORMATS[form], purges_only=True, alone=alone)
    if where == "stdout":
        return AccessLog(sys.stdout.buffer, FORMATS[form], alone=alone)
    try:
        stream = Path(where).open("ab")  # noqa: SIM115 - open for as long as the program runs
    except OSError as error:
        allowed = f"off, stdout, or a file that can be written ({error.strerror})"
        raise ConfigurationError("configuration", "server.access_log", where, allowed) from None
    return AccessLog(stream, FORMATS[form], alone=alone)


def _text(octets: bytes) -> str:
    return octets.decode("latin-1")


def _escaped(octets: bytes) -> str:
    return octets.decode("latin-1").translate(_ESCAPES)


@lru_cache(maxsize=2)
def _iso(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=2)
def _clf(second: int) -> str:
    # strftime's %b would follow the locale.
    moment = time.gmtime(second)
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[
        moment.tm_mon - 1
    ]
    return f"{moment.tm_mday:02d}/{month}/{time.strftime('%Y:%H:%M:%S', moment)} +0000"
