"""The access log: a listener that writes one line for each Outcome, many lines at a time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from io import RawIOBase
from pathlib import Path
from select import PIPE_BUF
from typing import Final, NamedTuple, cast

from univocal.engine.outcome import HitCounter, Outcome
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.judge.hits import Hit
from univocal_app.config.tables import Configuration
from univocal_app.observe.log_lines import Form, HitLines, TemplateError, form_of
from univocal_app.processes.commons import TURN, Commons

logger: Final = logging.getLogger("univocal.access")

PATIENCE: Final = 0.1  # seconds that a line waits at most
BATCH: Final = 32 * 1024  # bytes that wait at most, and one line
MOST: Final = 32 * BATCH  # that wait while another process has the turn, and a batch
LAST: Final = 2.0  # seconds for which the turn is waited for before lines are mixed with another's


class Outlet(NamedTuple):
    """Where lines go, and in which form; `file` is the name of a stream that is no standard one."""

    stream: RawIOBase  # or one with a buffer
    form: Form
    purges_only: bool = False
    file: str | None = None

    def close(self) -> None:
        """Close the stream, if it is a file's."""
        if self.file is not None:
            self.stream.close()


class AccessLog(HitCounter):
    """Writes each outcome to `stream` as one line; a stream that fails is said so once, requests go on.

    In an event loop lines wait to be written together: `PATIENCE` seconds and `BATCH` bytes at most. A purge
    and a refusal, which an audit looks for, are written at once, and so is all that waits before them.
    `finish` is called before the loop ends.

    `reopen` goes on in a new `file`, if the stream is one that was moved away.

    It hears of each hit (`hit`). With `purges_only` it is a counter, which has a line only for a request for
    a purge. Where several processes write to one stream, the `commons` give each its turn: a pipe would mix
    lines of more than some thousand bytes. Lines for a file wait for no process that stands still in its
    turn, since a write at the end of a file is whole. Lines for a pipe do. Once
    there are more than `MOST` bytes, or nothing is written later, that turn is waited for, `LAST` seconds.
    """

    def __init__(self, outlet: Outlet, commons: Commons | None = None) -> None:
        self._use(outlet)
        self._commons = commons
        self._waited = 0.0  # seconds for its turn, in vain
        self._waiting, self._octets, self._patient = list[bytes](), 0, True  # whole lines, and their bytes
        self._enough = BATCH  # bytes that are not to wait for more
        self._timer: asyncio.TimerHandle | None = None

    def _use(self, outlet: Outlet) -> None:
        self._outlet, self._stream, self._form, self.purges_only = outlet, *outlet[:3]
        self._hits = HitLines(outlet.form)
        self._failed: float | None = None  # since when, by the monotonic clock, the stream takes nothing

    def __call__(self, outcome: Outcome) -> None:
        if self.purges_only and outcome.decision is not None:
            return
        self._append(self._form(outcome))
        refused = outcome.reasons and outcome.status >= 400  # or mode "observe" would have refused it
        if refused or outcome.decision is None:
            self.flush()

    def hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Write the line of an ordinary hit."""
        if not self.purges_only:
            self._append(self._hits.line(hit, received, begun, seconds))

    def _append(self, line: bytes) -> None:
        self._waiting.append(line)
        self._octets += len(line)
        if self._octets > self._enough or (self._timer is None and not self._waits()):
            self.flush()

    def _waits(self) -> bool:
        """Have what waits be written later; False: that has to be now, since no event loop runs for long."""
        if self._timer is None and self._patient:
            with suppress(RuntimeError):  # no loop runs
                self._timer = asyncio.get_running_loop().call_later(PATIENCE, self.flush)
        return self._timer is not None

    def flush(self, *, waits: bool = True) -> None:
        """Write what waits; unless it `waits`, even while another process stands still in its turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        waits = waits and self._patient and self._octets <= MOST
        seconds = TURN if waits or self._outlet.file is not None else LAST
        try:
            with self._turn(seconds) as is_ours:
                self._waited = 0.0 if is_ours else max(self._waited, seconds)
                is_mixed = not is_ours and self._outlet.file is None
                if is_mixed and waits and self._waits():
                    self._enough = self._octets + BATCH
                    return
                lines, self._waiting, self._octets = b"".join(self._waiting), [], 0
                self._enough = BATCH
                for piece in _in_pieces(lines) if is_mixed else (lines,):
                    self._write(piece, is_alone=is_ours)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            if self._failed is None:
                logger.error("the access log cannot be written: %s", error)
                self._failed = time.monotonic()
        else:
            self._recovered()

    def _turn(self, seconds: float) -> AbstractContextManager[bool]:
        """This process's turn; False: another one has it, for which so many seconds are waited once."""
        if self._commons is None:
            return nullcontext(enter_result=True)
        return self._commons.alone(max(0.0, seconds - self._waited))

    def _recovered(self) -> None:
        if self._failed is not None:
            logger.warning("the access log is written again after %.0f s", time.monotonic() - self._failed)
            self._failed = None

    def _write(self, lines: bytes, *, is_alone: bool) -> None:
        written = 0
        try:
            while written < len(lines):
                # A stream without a buffer may take less.
                count = self._stream.write(lines[written:])
                if count is None:  # it does not block
                    raise BlockingIOError("it takes no more for now")
                written += count
            self._stream.flush()
        except (OSError, ValueError):
            if 0 < written < len(lines) and lines[written - 1 : written] != b"\n":
                # Whole lines are lost: should there be room again, this one ends first. In a file of ours it
                # begins anew then, since another process may write before.
                begun = lines.rfind(b"\n", 0, written) + 1
                is_back = is_alone and self._take_back(written - begun)
                rest = lines[begun if is_back else written :].partition(b"\n")[0]
                self._waiting, self._octets = [rest + b"\n"], len(rest) + 1
            raise

    def _take_back(self, octets: int) -> bool:
        """Remove the last bytes written, under the log's lock; False: they stay."""
        if self._outlet.file is None:
            return False
        try:
            number = self._stream.fileno()
            os.ftruncate(number, os.fstat(number).st_size - octets)
        except OSError:  # no regular file
            return False
        return True

    def reopen(self) -> None:
        """Write what waits, and open the file anew; where that fails, the old one goes on."""
        self.flush()
        if self._outlet.file is None:
            return
        try:
            stream = _appending(Path(self._outlet.file))
        except OSError as error:
            logger.error("the access log cannot be reopened: %s", error)
            return
        self._stream.close()
        self._recovered()
        self._use(self._outlet._replace(stream=stream))

    def turn_to(self, outlet: Outlet) -> None:
        """Write the lines that wait to the outlet so far, and all later ones to another."""
        self.flush(waits=False)
        self._outlet.close()
        self._use(outlet)

    def finish(self) -> None:
        """Write what waits, and from now on each line at once: no event loop is there for long."""
        self._patient = False
        self.flush()

    def close(self) -> None:
        """Write what waits and close the stream."""
        self.finish()
        self._stream.close()


def _in_pieces(lines: bytes) -> Iterator[bytes]:
    """Whole lines, so many at a time as a pipe takes without mixing them with others'."""
    begin = 0
    while begin < len(lines):
        end = lines.rfind(b"\n", begin, begin + PIPE_BUF) + 1 or lines.find(b"\n", begin) + 1
        yield lines[begin:end]
        begin = end


def outlet_of(configuration: Configuration) -> Outlet:
    """The outlet of `access_log` and `access_log_format`; "off" leaves the purges alone, on stderr.

    Raises ConfigurationError for a file that cannot be written.
    """
    where, file, form = configuration.server.access_log, configuration.log_file, _form(configuration)
    if file is not None:
        try:
            return Outlet(_appending(file), form, file=str(file))
        except OSError as error:
            raise _unwritable(configuration, error) from None
    stream = sys.stderr if where == "off" else sys.stdout
    if stream is None or not stream.writable():
        allowed = "a file, where standard output, or for off standard error, is closed"
        raise configuration.error("server.access_log", where, allowed)
    # A buffer between does not tell how much of what it was given it has lost.
    raw = cast("RawIOBase", getattr(stream.buffer, "raw", stream.buffer))
    return Outlet(raw, form, purges_only=where == "off")


def _form(configuration: Configuration) -> Form:
    setting = configuration.server.access_log_format
    try:
        return form_of(setting)
    except TemplateError as error:
        raise configuration.error("server.access_log_format", setting, str(error)) from None


def check_log(configuration: Configuration) -> None:
    """Raise ConfigurationError if no access log could be written in its format; no file is made."""
    _form(configuration)
    file = configuration.log_file
    if file is None:
        return
    try:
        if file.exists():
            _appending(file).close()
        elif not os.access(file.parent, os.W_OK | os.X_OK):
            raise OSError(None, "its directory does not exist or cannot be written")
    except OSError as error:
        raise _unwritable(configuration, error) from None


def _appending(file: Path) -> RawIOBase:
    """A stream that appends to a file. Raises OSError, also for a named pipe that no process reads."""
    try:
        # Without O_NONBLOCK a pipe is opened as soon as a process reads it.
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO and file.is_fifo():
            error.strerror = "no process reads this pipe"
        raise
    os.set_blocking(number, True)
    return os.fdopen(number, "ab", buffering=0)


def _unwritable(configuration: Configuration, error: OSError) -> ConfigurationError:
    allowed = f"off, stdout, or a file that can be written ({error.strerror})"
    return configuration.error("server.access_log", configuration.server.access_log, allowed)
