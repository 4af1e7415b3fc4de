"""`univocal` in processes of their own, without each importing it: they are forked from one that has.

Starting an interpreter and importing what `univocal serve` needs takes longer than most tests of it. What is
started here is like `python -m univocal_app`, from its arguments, environment and descriptors on. How a bare
interpreter starts it is tested where this is not used: test_process.py and test_packaging.py in tests/e2e.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import platform
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = [str(Path(__file__).parents[1] / source) for source in ("app", "middleware")]
# The number of the system call `clone`, by machine. With CLONE_PARENT the new process is a child of who asked
# for it, who can wait for it.
CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
CLONE_PARENT = 0x8000
POSSIBLE = sys.platform == "linux" and platform.machine() in CLONE and sys.implementation.name == "cpython"


class Forked(subprocess.Popen[Any]):
    """A Popen of `[sys.executable, "-m", "univocal_app", …]`, which may have so many `descriptors` open."""

    def __init__(self, command: list[str], descriptors: int = 0, **settings: Any) -> None:
        assert command[:3] == [sys.executable, "-m", "univocal_app"], command
        self._descriptors = descriptors
        super().__init__(command, **settings)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                       cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any,
                       *pipes_and_more: Any) -> None:  # fmt: skip
        pipes = pipes_and_more[:6]
        given = [pipes[0], pipes[3], pipes[5]]
        told = {
            "arguments": args[3:],
            "environment": dict(os.environ if env is None else env),
            "directory": str(cwd or Path.cwd()),
            "descriptors": self._descriptors,
        }
        self.pid = helper().fork(told, [own if end == -1 else end for own, end in enumerate(given)])
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class Ordinary(subprocess.Popen[Any]):
    """The same where processes cannot be forked so."""

    def __init__(self, command: list[str], descriptors: int = 0, **settings: Any) -> None:
        def limit() -> None:
            bounded(descriptors)

        super().__init__(command, preexec_fn=limit, **settings)


Program: type[Forked | Ordinary] = Forked if POSSIBLE else Ordinary


def run(command: list[str], text: str | None = None, timeout: float = 60, **settings: Any) -> Any:
    """`subprocess.run` with both outputs captured, as text."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Program(command, text=True, **pipes, **settings) as process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class Helper:
    """The process that has imported the program."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=own | {"PYTHONPATH": os.pathsep.join(SOURCES), "PYTHONUNBUFFERED": "1"},
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.end)

    def end(self) -> None:
        self._ours.close()
        self._process.wait()

    def fork(self, told: dict[str, Any], descriptors: list[int]) -> int:
        """The number of a new process, a child of this one, that has these three descriptors."""
        socket.send_fds(self._ours, [b"%d" % len(data := json.dumps(told).encode())], descriptors)
        self._ours.sendall(data)
        return int(self._ours.recv(64))


@cache
def helper() -> Helper:
    """The helper of this process, which ends with it."""
    return Helper()


def bounded(descriptors: int) -> None:
    """At most so many descriptors may be open; 0: as many as before."""
    import resource

    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


def serve(ours: socket.socket) -> dict[str, Any] | None:
    """Fork whenever it is asked for. Returns in each new process what it is to do, and at the end None."""
    while True:
        length, given, _, _ = socket.recv_fds(ours, 64, 3)
        if not length:
            return None
        data = ours.recv(int(length))
        if (number := forked()) == 0:
            ours.close()
            for own, descriptor in enumerate(given):
                os.dup2(descriptor, own)
            for descriptor in given:
                os.close(descriptor)
            return json.loads(data)
        for descriptor in given:
            os.close(descriptor)
        ours.sendall(b"%d" % number)


def forked() -> int:
    """As os.fork, but the new process has this one's parent."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    number = system.syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if number == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return number


def main() -> None:
    """Import the program, fork, and be it."""
    import gc

    import uvloop  # noqa: F401
    from typer.main import get_command

    import univocal_app.__main__ as program
    import univocal_app.run.workers  # noqa: F401
    from univocal.judge.profiles import builtin_profiles
    from univocal_app.commands.cli import app

    list(get_command(app).commands.values())  # each is imported when it is used
    builtin_profiles()  # read once, too
    gc.collect()
    gc.freeze()
    told = serve(socket.socket(fileno=int(sys.argv[1])))
    if told is None:
        return
    os.environ.clear()
    os.environ.update(told["environment"])
    os.chdir(told["directory"])
    bounded(told["descriptors"])
    sys.argv = [str(program.__file__), *told["arguments"]]
    sys.modules["__main__"] = program  # what `multiprocessing` has a new interpreter import
    program.main()


if __name__ == "__main__":
    main()
