"""The end of a command that goes on and on: Ctrl-C, a pipe without a reader, an admin listener that left."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from univocal_app.commands.server import AdminError
from univocal_app.observe.log_reader import LogError


class ClosedOutput(io.TextIOBase):
    """Stands in for a standard output that is closed: whoever writes gets the system's error."""

    def write(self, _: str, /) -> int:
        """Raise OSError."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Ctrl-C and a closed pipe end the program with status 0, errors with a line and status 1."""
    try:
        yield
    except (KeyboardInterrupt, BrokenPipeError):
        _discard_output()
        raise typer.Exit(0) from None
    except (AdminError, LogError) as error:
        typer.echo(f"univocal: {error}", err=True)
        raise typer.Exit(1) from None


def check_reader() -> None:
    """Raise BrokenPipeError if standard output has no reader any more."""
    with suppress(ValueError):  # it is no file
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if any(state & select.POLLERR for _, state in poll.poll(0)):
            raise BrokenPipeError


def _discard_output() -> None:
    """Have Python's own last flush write what is left to nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
