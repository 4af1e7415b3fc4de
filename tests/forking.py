"""Programs in processes of their own, without each importing `univocal`: they are forked from one that has.

Starting an interpreter and importing the modules of `univocal serve` takes longer than most tests of it. A
forked program is like `python -m univocal_app`, or like the server of an application that mounts the library,
from its arguments, environment and descriptors on. tests/e2e/test_process.py and
tests/tools/test_packaging.py test how a bare interpreter starts and ends `univocal`; they do not use this.

A program's own workers, for which it has `multiprocessing` start interpreters, are forked likewise. Each is a
child of the program, and gets nothing else of it than a new interpreter would.
"""

import asyncio
import atexit
import ctypes
import fcntl
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

SOURCES = [str(Path(__file__).parents[1] / source) for source in ("app", "middleware")]
# The number of the system call `clone`, by machine. With CLONE_PARENT the new process is a child of who asked
# for it, who can wait for it.
CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
CLONE_PARENT = 0x8000
M_MMAP_THRESHOLD = -3
# The variable that has a program look so often, in seconds, at files that may have changed, and at what its
# other processes know of origin servers.
LOOKS_EVERY = "LOOKS_EVERY"
# The variable that has it ask a name server at this port of 127.0.0.1, in place of those of /etc/resolv.conf.
NAMES_AT = "NAMES_AT"
WITH_WORKERS = {"granian", "hypercorn"}
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
POSSIBLE = sys.platform == "linux" and platform.machine() in CLONE and sys.implementation.name == "cpython"


class Forked(subprocess.Popen[Any]):
    """A Popen of `[sys.executable, "-m", …]`, which may have so many `descriptors` open.

    The processes of all that need them share `imports`.
    """

    def __init__(
        self, command: list[str], descriptors: int = 0, imports: Sequence[str] = (), **settings: Any
    ) -> None:
        assert command[:2] == [sys.executable, "-m"], command
        self._descriptors, self._imports = descriptors, list(imports)
        super().__init__(command, **settings)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any,
                       cwd: Any, env: Any, startupinfo: Any, creationflags: Any, shell: Any,
                       *pipes_and_more: Any) -> None:  # fmt: skip
        pipes = pipes_and_more[:6]
        given = [pipes[0], pipes[3], pipes[5]]
        task = {
            "imports": self._imports,
            "module": args[2],
            "arguments": args[3:],
            "environment": dict(os.environ if env is None else env),
            "directory": str(cwd or Path.cwd()),
            "descriptors": self._descriptors,
        }
        self.pid = helper().fork(task, {own: own if end == -1 else end for own, end in enumerate(given)})
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class Ordinary(subprocess.Popen[Any]):
    """The same where processes cannot be forked so."""

    def __init__(
        self, command: list[str], descriptors: int = 0, imports: Sequence[str] = (), **settings: Any
    ) -> None:
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


# The `univocal` of a shell: it hands its files over, and ends as the process forked for it ends.
CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
    way.connect("\\0{name}")
    words = [sys.argv[1:], os.getcwd(), dict(os.environ)]
    socket.send_fds(way, [json.dumps(words).encode()], [0, 1, 2])
    sys.exit(int(way.recv(9)))
"""


@contextmanager
def command(file: Path) -> Iterator[None]:
    """Have a program `file` for shells, which runs `univocal` as it is run here."""
    name = f"univocal-{os.getpid()}-{id(file)}"

    def end(way: socket.socket, program: subprocess.Popen[Any]) -> None:
        with way, suppress(ConnectionError):  # the shell may have ended it
            way.sendall(b"%d" % (program.wait() % 256))

    def serve() -> None:
        with suppress(OSError):  # it is closed
            while True:
                way, _ = listening.accept()
                data, given, _, _ = socket.recv_fds(way, 1 << 20, 3)
                arguments, directory, environment = json.loads(data)
                try:
                    program = Program(
                        [sys.executable, "-m", "univocal_app", *arguments],
                        **dict(zip(("stdin", "stdout", "stderr"), given, strict=True)),
                        cwd=directory,
                        env=environment | {"PYTHONPATH": os.pathsep.join(SOURCES)},
                    )
                    threading.Thread(target=end, args=(way, program), daemon=True).start()
                finally:
                    for descriptor in given:
                        os.close(descriptor)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        file.write_text(CLIENT.format(python=sys.executable, name=name))
        file.chmod(0o755)
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


class Forks:
    """The way to a process that has imported the program, and forks when it is asked for."""

    def __init__(self, ours: socket.socket) -> None:
        self._ours, self._alone = ours, threading.Lock()
        ours.settimeout(60)

    def fork(self, task: dict[str, Any], descriptors: dict[int, int]) -> int:
        """The number of a new process, a child of this one, that has these descriptors, by their numbers."""
        data = json.dumps(task | {"numbers": list(descriptors)}).encode()
        with self._alone:
            socket.send_fds(self._ours, [b"%d" % len(data)], list(descriptors.values()))
            self._ours.sendall(data)
            return int(self._ours.recv(64))

    def spawn(self, ordinary: Any, path: Any, command: list[Any], descriptors: Sequence[int]) -> int:
        """Start a process as `multiprocessing` does: what `util.spawnv_passfds` is for."""
        words = [os.fsdecode(word) for word in command]
        start = re.search(r"spawn_main\((.*)\)", " ".join(words))
        if start is None:
            return int(ordinary(path, command, descriptors))
        task = {
            "command": words,
            "start": dict(re.findall(r"(\w+)=(\d+)", start[1])),
            "masked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
            "environment": dict(os.environ),
            "directory": str(Path.cwd()),
            "descriptors": 0,
        }
        return self.fork(task, {number: number for number in sorted({0, 1, 2, *descriptors})})


class Helper(Forks):
    """The process that has imported the program."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
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
        length, given, _, _ = socket.recv_fds(ours, 64, 64)
        if not length:
            return None
        task: dict[str, Any] = json.loads(ours.recv(int(length)))
        for name in task.get("imports", ()):
            import_module(name)
        if (number := forked()) == 0:
            ours.close()
            numbers = task["numbers"]
            free = max(numbers) + 1
            apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, free) for descriptor in given]
            for descriptor in {*given} - {0, 1, 2}:
                os.close(descriptor)
            for own, descriptor in zip(numbers, apart, strict=True):
                os.dup2(descriptor, own)
                os.close(descriptor)
            return task
        for descriptor in given:
            os.close(descriptor)
        ours.sendall(b"%d" % number)


def serve_workers() -> dict[str, Any] | None:
    """Have the processes that `multiprocessing` is to start here forked from one that is as this is now.

    Returns None, and in each of those processes what it is to do.
    """
    from multiprocessing import util

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        theirs.close()
        # The standard library's own Popen calls it by this name.
        util.spawnv_passfds = partial(Forks(ours).spawn, util.spawnv_passfds)  # type: ignore[attr-defined]
        return None
    ours.close()
    for number in ENDING:  # which are for the program
        signal.signal(number, signal.SIG_IGN)
    with open(os.devnull, "r+b", buffering=0) as null:  # nobody waits for the end of what is written here
        for own in range(3):
            os.dup2(null.fileno(), own)
    task = serve(theirs)
    if task is None:
        os._exit(0)
    for number in ENDING:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    return task


def forked() -> int:
    """Fork as os.fork does, but give the new process this one's parent."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    number = system.syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if number == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return number


class Looking:
    """`asyncio` for uvicorn, whose server looks at its end and at what it waits for every 20 ms, not 100."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 5)


class Ending:
    """The end of a process without the end of its modules, one by one: that takes longer than most programs.

    It is as ever for a process that a fault ends, or that cannot write what it has left to write.
    """

    def __init__(self) -> None:
        self._status: int | None = None
        atexit.register(self._leave)  # before any other, and so it is called after them

    def run(self, program: Callable[[], None]) -> None:
        try:
            program()
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                self._status = (ended.code or 0) & 0xFF
            raise
        self._status = 0

    def _leave(self) -> None:
        if self._status is None:
            return
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                if not stream.closed:
                    stream.flush()
        except OSError:
            return  # the interpreter tells of it
        os._exit(self._status)


def main() -> None:
    """Import the program, fork, and be it."""
    ending = Ending()
    import gc
    from pkgutil import walk_packages

    import uvicorn.lifespan.off
    import uvicorn.server
    import uvloop  # noqa: F401
    from setproctitle import getproctitle
    from typer.main import get_command

    import univocal
    import univocal_app
    import univocal_app.__main__ as program
    from univocal.judge.profiles import builtin_profiles
    from univocal_app.commands.cli import app
    from univocal_app.config.tables import Table, validate
    from univocal_app.run.configured import runtime_of

    # Import what is otherwise imported late: stores, HTTP/2, and httpx, which imports more as it connects.
    for package in (univocal, univocal_app):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    import_module("anyio._backends._asyncio")
    import_module("httpcore._backends.anyio")
    list(get_command(app).commands.values())  # each is imported when it is used
    builtin_profiles()  # read once, too
    for table in Table.__subclasses__():  # whose validators are built when they are used
        table.model_rebuild()
    site = {"hosts": ["*"], "upstream": "http://127.0.0.1:9", "routes": [{"path": "/"}]}
    runtime_of(validate({"sites": [site]}, ""))
    uvicorn.server.asyncio = Looking()  # type: ignore[attr-defined]
    getproctitle()  # finds where the title is by the environment that the process began with
    gc.collect()
    gc.freeze()
    task = serve(socket.socket(fileno=int(sys.argv[1])))
    if task is None:
        return
    settle(task)
    if may_have_workers(task) and (started := serve_workers()):
        task = started
        settle(task)
    if "start" in task:
        ending.run(partial(be_started, task))
        return
    if task["module"] != "univocal_app":
        uvicorn.server.asyncio = asyncio
        ending.run(partial(be_run, task))
        return
    sys.argv = [str(program.__file__), *task["arguments"]]
    sys.modules["__main__"] = program  # what `multiprocessing` has a new interpreter import
    ending.run(program.main)


def be_run(task: dict[str, Any]) -> None:
    """Be what a new interpreter is with `-m`."""
    from runpy import run_module

    sys.argv = task["arguments"]  # before which `run_module` has the module's file
    sys.argv.insert(0, task["module"])
    sys.path[:0] = [task["directory"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    run_module(task["module"], run_name="__main__", alter_sys=True)


def settle(task: dict[str, Any]) -> None:
    """Have the environment, the directory and the bound of a process that is to be."""
    os.environ.clear()
    os.environ.update(task["environment"])
    if threshold := os.environ.get("MALLOC_MMAP_THRESHOLD_"):  # which the C library reads when it begins
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, int(threshold))
    if seconds := os.environ.get(LOOKS_EVERY):
        from univocal_app.run import assemble

        assemble.PERIOD = assemble.STATES_PERIOD = float(seconds)  # type: ignore[misc]
    if port := os.environ.get(NAMES_AT):
        from dns.resolver import BaseResolver

        def read(self: BaseResolver, _: object) -> None:
            self.nameservers, self.port = ["127.0.0.1"], int(port)

        BaseResolver.read_resolv_conf = read  # type: ignore[method-assign]
    os.chdir(task["directory"])
    bounded(task["descriptors"])


def may_have_workers(task: dict[str, Any]) -> bool:
    """Tell whether a server always has workers, or a command line, or a file it names, speaks of some."""
    module, arguments = task.get("module"), task.get("arguments", [])

    def names_workers(word: str) -> bool:
        return "workers" in word or (Path(word).is_file() and b"workers" in Path(word).read_bytes())

    is_ours = module == "univocal_app" and arguments[:1] == ["serve"]
    return module in WITH_WORKERS or (is_ours and any(map(names_workers, arguments[1:])))


def be_started(task: dict[str, Any]) -> None:
    """Be what a new interpreter of `multiprocessing` is, and end with its status."""
    from multiprocessing.spawn import spawn_main

    from setproctitle import setproctitle

    setproctitle(" ".join(task["command"]))
    signal.pthread_sigmask(signal.SIG_SETMASK, task["masked"])
    sys.argv = ["-c", *task["command"][-1:]]
    spawn_main(**{name: int(number) for name, number in task["start"].items()})


if __name__ == "__main__":
    main()
