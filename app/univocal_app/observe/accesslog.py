"""The access log: a listener that writes one line for each Outcome, many lines at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple, TypeAlias, cast

from univocal.engine.outcome import Outcome
from univocal.engine.purge import Purged
from univocal.http.errors import ConfigurationError, Failure
from univocal_app.observe.handled import cache_word
from univocal_app.processes.commons import Commons

__all__ = ["AccessLog", "Outlet", "as_combined", "as_json", "check_log", "open_log", "outlet_of"]

logger: Final = logging.getLogger("univocal.access")

PATIENCE: Final = 1.0  # seconds that a line waits at most
BATCH: Final = 32 * 1024  # octets that wait at most, and one line

# Octets that end a quoted string or a line, or steer a terminal, as nginx escapes them.
_HOSTILE: Final = re.compile(r"[^ !#-\[\]-~]")

LONGEST: Final = 512  # octets of a user agent, and of a referrer, that are written
REMEMBERED: Final = 512  # texts of each
PAGES: Final = (
    4_096  # that are remembered as they are written, each in as many octets as a user agent at most
)

CLIENT_LEFT: Final = (
    499  # nginx's status for a client that did not wait, for programs that expect three digits
)


def as_json(outcome: Outcome) -> bytes:
    """One JSON object; octets outside ASCII and control characters are escaped."""
    (site, received, canonical, _, status, sent, times, client, handling), others = outcome[:9], outcome[9:]
    reasons, agent, referrer, _, _, host, failure, purged, _ = others
    hit, _, _, stored, collapsed, _, detail, unstorable = handling
    unusual = stored or collapsed or detail or unstorable or reasons or purged or host or failure
    method, target, version = received.method, received.target, received.version
    named = method, target, None if canonical is None else canonical.key, site
    start, _, seconds = times
    # By json's own quoting: orjson and msgspec take longer, and leave what is outside ASCII as it is.
    return (
        f'{{"time":"{_iso(int(start * 1000))}"'
        f',"client":{"null" if client is None else quoted(client)}'
        f"{_NAMED.get(named) or _naming(named, outcome)}"
        f',"status":{status},"bytes":{sent}'
        f',"seconds":{seconds:.6f},"protocol":{_VERSIONS.get(version) or _version(version)}'
        f',"user_agent":{_AGENTS[agent]},"referrer":{_REFERRERS[referrer]}'
        f",{_handled(outcome) if unusual or not hit else _USUAL}}}\n"
    ).encode("ascii")


_Named: TypeAlias = tuple[bytes, bytes, bytes | None, str]
"""A method, a target as it was received, the key, the site."""

_NAMED: Final[dict[_Named, str]] = {}


def _naming(named: _Named, outcome: Outcome) -> str:
    """The members of the object that say what was asked for: a few pages are asked for most."""
    (method, target, _, site), canonical = named, outcome.canonical
    text = (
        f',"method":{quoted(method.decode("latin-1"))}'
        f',"target":{quoted(target.decode("latin-1"))}'
        f',"url":{"null" if canonical is None else quoted(canonical.url.decode("latin-1"))}'
        f',"site":{quoted(site)}'
    )
    if len(text) <= LONGEST:
        if len(_NAMED) >= PAGES:
            _NAMED.clear()
        _NAMED[named] = text
    return text


def _version(version: bytes) -> str:
    return quoted(f"HTTP/{version.decode('latin-1')}")


_USUAL: Final = '"cache":"hit","stored":false,"storable":null,"collapsed":false,"detail":null,"reasons":[]'


class _Texts(dict[bytes | None, str]):
    """The JSON text of a field's value, as far as it is written: most are the same again and again."""

    def __init__(self) -> None:
        super().__init__({None: "null"})

    def __missing__(self, value: bytes | None) -> str:
        assert value is not None
        text = quoted(value[:LONGEST].strip(b" \t").decode("latin-1"))
        if len(value) <= LONGEST:
            if len(self) >= REMEMBERED:
                self.clear()
                self[None] = "null"
            self[value] = text
        return text


_AGENTS: Final = _Texts()
_REFERRERS: Final = _Texts()
_VERSIONS: Final = {b"1.0": '"HTTP/1.0"', b"1.1": '"HTTP/1.1"', b"2": '"HTTP/2"'}


def _handled(outcome: Outcome) -> str:
    """The last members of the object; `_USUAL` are those of nearly every hit."""
    handling, purged = outcome.handling, outcome.purged
    members: dict[str, object] = {
        "cache": cache_word(handling) or None,
        "stored": handling.stored,
        "storable": "stored" if handling.stored else handling.unstorable or None,
        "collapsed": handling.collapsed,
        "detail": handling.reported_detail or None,
        "reasons": outcome.reasons,
    }
    if outcome.host:
        members["host"] = outcome.host
    if outcome.failure is not None:
        url, address, reason, error = outcome.failure
        members["origin"] = {"url": url, "address": address, "reason": reason, "error": error}
    if purged is not None:
        order = purged.order
        members["purge"] = {
            "by": order.by,
            "names": order.names,
            "soft": order.selector.soft,
            "count": purged.count,
        }
    return json.dumps(members, separators=(",", ":"))[1:-1]


def as_combined(outcome: Outcome) -> bytes:
    """The "combined" format of Apache httpd and nginx.

    Where the user agent would stand, the line of a purge tells what was purged.
    """
    received = outcome.received
    method, target = received.method.decode("latin-1"), received.target.decode("latin-1")
    agent = _written(outcome.agent) if outcome.purged is None else _purge(outcome.purged)
    request = _escaped(f"{method} {target} HTTP/{received.version.decode('latin-1')}")
    line = (
        f'{_address(outcome.client)} - - [{_clf(int(outcome.times.start))}] "{request}" '
        f'{outcome.status or CLIENT_LEFT} {outcome.bytes} "{_written(outcome.referrer)}" '
        f'"{agent}"{_failure(outcome.failure)}\n'
    )
    return line.encode("ascii", "backslashreplace")


def _address(client: str | None) -> str:
    """The client as one column: what a server in front of the middleware says of it may be anything."""
    return _escaped(client).replace(" ", "\\x20") if client else "-"


def _written(value: bytes | None) -> str:
    return "-" if value is None else _escaped(value[:LONGEST].strip(b" \t").decode("latin-1")) or "-"


def _failure(failure: Failure | None) -> str:
    """One field more: the origin server's failure, which nginx would write to its error log."""
    if failure is None:
        return ""
    url, address, reason, error = failure
    text = f"origin {url} at {address or '-'}: {reason}: {error}"
    return f' "{_escaped(text)}"'


def _purge(purged: Purged) -> str:
    order, count = purged.order, "?" if purged.count is None else purged.count
    names = _escaped(" ".join(order.names))
    return f"{'soft purge' if order.selector.soft else 'purge'} by {order.by}: {names}: {count}"


FORMATS: Final[dict[str, Callable[[Outcome], bytes]]] = {"json": as_json, "combined": as_combined}


class Outlet(NamedTuple):
    """Where lines go, and in which form; `file` is the name of a stream that is no standard one."""

    stream: BinaryIO
    form: Callable[[Outcome], bytes]
    purges_only: bool = False
    file: str | None = None

    def close(self) -> None:
        """Close the stream, if it is a file's."""
        if self.file is not None:
            self.stream.close()


class AccessLog:
    """Writes each outcome to `stream` as one line; a stream that fails is said so once, requests go on.

    In an event loop lines wait to be written together: `PATIENCE` seconds and `BATCH` octets at most. A purge
    and a refusal, which an audit looks for, are written at once, and so is all that waits before them.
    `finish` is called before the loop ends.

    `reopen` goes on in a new `file`, if the stream is one that was moved away.

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
        file: str | None = None,
    ) -> None:
        self._file = file
        self._stream, self._form, self._failed = stream, form, False
        self.purges_only, self._alone = purges_only, alone
        self._waiting, self._patient = bytearray(), True
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self, outcome: Outcome) -> None:
        if self.purges_only and outcome.decision is not None:
            return
        waiting = self._waiting
        waiting += self._form(outcome)
        if self._timer is None or len(waiting) > BATCH or outcome.reasons or outcome.decision is None:
            self._write_or_wait(outcome)

    def _write_or_wait(self, outcome: Outcome) -> None:
        refused = outcome.reasons and outcome.status >= 400  # or mode "observe" would have refused it
        if refused or outcome.decision is None or len(self._waiting) > BATCH or not self._patient:
            self.flush()
        elif self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(PATIENCE, self.flush)
            except RuntimeError:  # no loop runs
                self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        lines, self._waiting = self._waiting, bytearray()
        try:
            with self._alone():
                self._write(lines)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            if not self._failed:
                logger.error("the access log cannot be written: %s", error)
            self._failed = True

    def _write(self, lines: bytearray) -> None:
        written = 0
        try:
            while written < len(lines):
                # A stream without a buffer may take less, and none, told by None, where it does not block.
                count = cast("int | None", self._stream.write(lines[written:]))
                if count is None:
                    raise BlockingIOError("it takes no more for now")
                written += count
            self._stream.flush()
        except (OSError, ValueError):
            if 0 < written < len(lines) and lines[written - 1 : written] != b"\n":
                # Whole lines are lost: should there be room again, this one ends first.
                self._waiting = lines[written : lines.index(b"\n", written) + 1]
            raise

    def reopen(self) -> None:
        """Write what waits, and open the file anew; where that fails, the old one goes on."""
        self.flush()
        if self._file is None:
            return
        try:
            stream = _appending(self._file)
        except OSError as error:
            logger.error("the access log cannot be opened anew: %s", error)
            return
        self._stream.close()
        self._stream, self._failed = stream, False

    def turn_to(self, outlet: Outlet) -> None:
        """Write the lines that wait to the outlet so far, and all later ones to another."""
        self.flush()
        Outlet(self._stream, self._form, self.purges_only, self._file).close()
        self._stream, self._form, self.purges_only, self._file = outlet
        self._failed = False

    def finish(self) -> None:
        """Write what waits, and from now on each line at once: no event loop is there for long."""
        self._patient = False
        self.flush()

    def close(self) -> None:
        """Write what waits and close the stream."""
        self.finish()
        self._stream.close()


def open_log(
    where: str, form: Literal["json", "combined"], source: str, commons: Commons | None = None
) -> AccessLog:
    """The log of `access_log` and `access_log_format`; "off" leaves the purges alone, on stderr.

    Raises ConfigurationError for a file that cannot be written.
    """
    stream, written, purges_only, file = outlet_of(where, form, source)
    alone = nullcontext if commons is None else commons.alone
    return AccessLog(stream, written, purges_only=purges_only, alone=alone, file=file)


def outlet_of(where: str, form: Literal["json", "combined"], source: str) -> Outlet:
    """The outlet of a log as `open_log` has it. Raises ConfigurationError."""
    shared = {"off": sys.stderr, "stdout": sys.stdout}
    if where in shared and not (shared[where] is not None and shared[where].writable()):
        allowed = "a file, where standard output, or for off standard error, is closed"
        raise ConfigurationError(source, "server.access_log", where, allowed)
    if where == "off":
        return Outlet(_unbuffered(sys.stderr.buffer), FORMATS[form], purges_only=True)
    if where == "stdout":
        return Outlet(_unbuffered(sys.stdout.buffer), FORMATS[form])
    try:
        stream = _appending(where)
    except OSError as error:
        raise _unwritable(source, where, error) from None
    return Outlet(stream, FORMATS[form], file=where)


def check_log(where: str, source: str) -> None:
    """Raise ConfigurationError if `open_log` could not write to `where`; no file is made."""
    if where in {"off", "stdout"}:
        return
    try:
        if Path(where).exists():
            _appending(where).close()
        elif not os.access(Path(where).parent, os.W_OK | os.X_OK):
            raise OSError(None, "its directory does not exist or cannot be written")
    except OSError as error:
        raise _unwritable(source, where, error) from None


def _appending(where: str) -> BinaryIO:
    return cast("BinaryIO", Path(where).open("ab", buffering=0))


def _unwritable(source: str, where: str, error: OSError) -> ConfigurationError:
    allowed = f"off, stdout, or a file that can be written ({error.strerror})"
    return ConfigurationError(source, "server.access_log", where, allowed)


def _unbuffered(stream: BinaryIO) -> BinaryIO:
    # A buffer between does not tell how much of what it was given it has lost.
    return getattr(stream, "raw", stream)


def _escaped(text: str) -> str:
    return _HOSTILE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    octet = ord(match[0])
    return f"\\x{octet:02X}" if octet < 0x100 else match[0]


@lru_cache(maxsize=2)
def _iso(millisecond: int) -> str:
    second, rest = divmod(millisecond, 1000)
    return f"{_second(second)}.{rest:03d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


@lru_cache(maxsize=2)
def _clf(second: int) -> str:
    # strftime's %b would follow the locale.
    moment = time.gmtime(second)
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[
        moment.tm_mon - 1
    ]
    return f"{moment.tm_mday:02d}/{month}/{time.strftime('%Y:%H:%M:%S', moment)} +0000"
