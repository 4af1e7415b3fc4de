"""The machine that measures: its cores, and processes that are pinned to one, paused, weighed and ended."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
STARTING, ENDING = 30.0, 10.0  # seconds that a server has to listen, and to end


@dataclass(frozen=True)
class Cores:
    """Two cores: `server` for the process that is measured, `load` for wrk, the origin and this process."""

    server: int
    load: int

    def busy_seconds(self) -> float:
        """The seconds since the machine's start for which the two were busy, or taken by a hypervisor."""
        ticks = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *told = line.split()
            if name in {f"cpu{self.server}", f"cpu{self.load}"}:
                user, nice, system, _idle, _waiting, *interrupts = map(int, told[:8])
                ticks += user + nice + system + sum(interrupts)
        return ticks / TICKS

    def stay_with_the_load(self) -> None:
        """Run this process, and what it starts without saying more, beside the load."""
        os.sched_setaffinity(0, {self.load})

    @classmethod
    def of_this_machine(cls) -> Cores:
        """The first and the last core that this process may use; one and the same where there is only one."""
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[-1])


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def guarded(family: Running) -> Iterator[None]:
    """Have the processes killed if this one is killed inside the block: a stopped one would stay for good."""
    script = "read -r pids; read -r told && exit; kill -KILL $pids"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, start_new_session=True) as guard:
        assert guard.stdin is not None
        guard.stdin.write(f"{' '.join(map(str, family.tree()))}\n".encode())
        guard.stdin.flush()
        try:
            yield
        finally:
            guard.communicate(b"ended\n")


@dataclass(frozen=True)
class Running:
    """A server that listens on `port`: the process that was started and all that it started."""

    pid: int
    port: int
    begun: float  # when it was started, by time.perf_counter

    def tree(self) -> list[int]:
        """The ids of the process and its descendants."""
        found = [self.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (thread / "children").read_text().split())
        return found

    def cpu_seconds(self) -> float:
        """The CPU time that the processes have used."""
        spent = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                spent += int(user) + int(system)
        return spent / TICKS

    def resident(self) -> int:
        """Their resident bytes; a page that several of them share is counted once."""
        octets = 0
        for pid in self.tree():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    octets += int(line.split()[1]) << 10 if line.startswith("Pss:") else 0
        return octets

    def signal(self, number: int) -> None:
        """Send a signal to every one of them, the youngest first."""
        for pid in reversed(self.tree()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Run the processes inside the block; outside of it they are stopped."""
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)


@contextlib.contextmanager
def running(
    command: Sequence[str], core: int, port: int, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """A server on one core, from its first accepted connection until the end of the block.

    Its output is kept in `folder`. Raises SystemExit with its last lines if it does not listen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "printed").open("wb") as printed, (folder / "complained").open("wb") as complained:
        begun = time.perf_counter()
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complained,
            cwd=folder,
            env=environment,
        )
    try:
        while not listens(port):
            if process.poll() is not None or time.perf_counter() - begun > STARTING:
                said = (folder / "complained").read_text("utf-8", "replace")[-2000:]
                raise SystemExit(f"{' '.join(command)} does not listen:\n{said}")
            time.sleep(0.002)
        family = Running(process.pid, port, begun)
        with guarded(family):
            yield family
    finally:
        end(process)


def listens(port: int) -> bool:
    """Tell whether the port accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask the process to end, and kill what is left of it and its descendants."""
    family = Running(process.pid, 0, 0.0)
    members = family.tree()
    family.signal(signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDING)
    for pid in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def tool_version(*command: str) -> str:
    """The first line that a program prints about its version."""
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter((printed.stdout + printed.stderr).splitlines()), "").strip()


def whole_machine() -> str:
    """Processor, number of cores, kernel and Python."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    processor = models[0] if models else platform.machine()
    release = ".".join(platform.release().split(".")[:2])
    return (
        f"{processor}, {os.cpu_count()} cores, Linux {release}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
