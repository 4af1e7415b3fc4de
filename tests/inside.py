"""The program in the process of the tests: its commands, and `univocal serve` in a thread of its own.

Sockets, files and reloads are real. For signals, standard streams, workers and what a process uses, start a
process: see tests/e2e/conftest.py.
"""

import asyncio
import http.client
import io
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn.server
import uvloop

from forking import Looking
from support import until
from univocal_app.commands.cli import main
from univocal_app.run import assemble
from univocal_app.run.listeners import Bound, listening
from univocal_app.run.program import Program, in_one
from univocal_app.run.reading import read
from univocal_app.run.systemd import NAMES, Notices
from univocal_app.terminal import StampedFormatter


@dataclass(frozen=True)
class Ended:
    """The exit status and output of a run of the program."""

    returncode: int
    stdout: str
    stderr: str


def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """A function that runs `univocal` with these arguments, this input and these variables, to its end."""

    def run(*arguments: object, stdin: str | bytes = "", **variables: str) -> Ended:
        capsys.readouterr()
        octets = stdin.encode() if isinstance(stdin, str) else stdin
        with monkeypatch.context() as patches:
            patches.setattr(sys, "argv", ["univocal", *map(str, arguments)])
            patches.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(octets))))
            for name, value in variables.items():
                patches.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    return run


class Lines(logging.Handler):
    """Keeps what is logged, as the program writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(StampedFormatter())
        self.kept = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(self.format(record))


class Written(io.BytesIO):
    """A standard stream's octets, which are there after its end."""

    def close(self) -> None:
        """Keep them."""


class Inside:
    """`univocal serve --config` of a file, from when it serves until `end`.

    The file has `top`, then ports that are free, then a text that begins in `[server]`. `out` is what a
    process has written to standard output, `err` what to standard error.
    """

    def __init__(self, file: Path, text: str, top: str = "", admin: str = "127.0.0.1:0") -> None:
        self._out, self._err, self._lines = Written(), Written(), Lines()
        self._file, self._read, self._back = file, 0, admin
        self._write(text, top)
        configuration = read(file)
        self._stack = ExitStack()
        sources = dict.fromkeys(NAMES, str(file))
        listeners = self._stack.enter_context(listening(configuration.server, {}, sources))
        tell = self._lines.kept.append
        program = Program(configuration, listeners, partial(read, file), tell, Notices())
        with redirect_stdout(io.TextIOWrapper(self._out)), redirect_stderr(io.TextIOWrapper(self._err)):
            proxy, self._serving, _ = in_one(program)
        self._stack.callback(proxy.log.close)
        logging.getLogger().addHandler(self._lines)
        self._stack.callback(logging.getLogger().removeHandler, self._lines)
        serves = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[serves.set], daemon=True)
        self._thread.start()
        assert serves.wait(20)
        self.proxy, self.admin = (_address(each) for each in listeners)

    def _run(self, ready: Callable[[], None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            runner.run(self._serving.serve(ready))

    def _write(self, text: str, top: str) -> None:
        ports = f'listen = "127.0.0.1:0"\nadmin = "{self._back}"'
        self._file.write_text(f"{top}\n[server]\n{ports}\n{text}", "utf-8")

    def reload(self, text: str = "", top: str = "") -> tuple[int, dict[str, Any]]:
        """Read the file again, with this text if there is one; the answer's status and document."""
        if text:
            self._write(text, top)
        with closing(http.client.HTTPConnection(*self.admin, timeout=20)) as connection:
            connection.request("POST", "/-/reload")
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    @property
    def page(self) -> str:
        """The URL of the admin listener."""
        return "http://{}:{}".format(*self.admin)

    @property
    def out(self) -> str:
        return self._out.getvalue().decode()

    @property
    def err(self) -> str:
        return "\n".join([*self._lines.kept, self._err.getvalue().decode()])

    def line(self) -> str:
        """The next line of `out`."""
        begun = self._read
        self._read = until(lambda: self.out.find("\n", begun) + 1)
        return self.out[begun : self._read]

    def end(self) -> int:
        """End it at once; 0, as the status of a process that a signal has ended."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(partial(self._serving.end, at_once=True))
            self._thread.join(20)
            assert not self._thread.is_alive()
            self._stack.close()
        return 0


def _address(listeners: tuple[Bound, ...]) -> tuple[str, int]:
    """The address of the first listener that has a port."""
    names = (each.socket.getsockname()[:2] for each in listeners if not each.is_unix)
    host, port = next(names, ("", 0))
    return host, port


@contextmanager
def serving_inside(folder: Path) -> Iterator[Callable[..., Inside]]:
    """Serve by a file in a folder; the program looks ten times a second at files that may have changed."""
    there = list[Inside]()

    def serve(text: str, *top_and_admin: str) -> Inside:
        there.append(Inside(folder / "univocal.toml", text, *top_and_admin))
        return there[-1]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(uvicorn.server, "asyncio", Looking())
        patches.setattr(assemble, "PERIOD", 0.1)
        patches.setattr(assemble, "STATES_PERIOD", 0.1)
        yield serve
        for each in there:
            each.end()
            assert "Traceback" not in each.err
