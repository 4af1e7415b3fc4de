"""The units in deploy/systemd, and the program as systemd runs it: it passes sockets and hears notices."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main

from univocal_app.commands.cli import app
from univocal_app.run.systemd import Notices, passed_sockets

Fixture = Callable[..., Any]

TIMEOUT = 30
UNITS = ("univocal.service", "univocal.socket", "univocal-admin.socket")


@pytest.fixture
def verified(root: Path, tmp_path: Path) -> Fixture:
    """Have systemd read the units, with a line more in the service."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")

    def verified(line: str = "") -> subprocess.CompletedProcess[str]:
        for name in UNITS:
            text = (root / "deploy" / "systemd" / name).read_text("utf-8")
            text = text.replace("/opt/univocal/bin/univocal", sys.executable)
            (tmp_path / name).write_text(text.replace("Type=notify\n", f"Type=notify\n{line}\n"), "utf-8")
        command = ["systemd-analyze", "verify", *(str(tmp_path / name) for name in UNITS)]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)

    return verified


def test_systemd_takes_the_units(verified):
    ended = verified()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert "Nonsense" in verified("Nonsense=yes").stderr


def test_the_service_is_shut_in(verified, tmp_path):
    verified()
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(tmp_path / UNITS[0])]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_service_starts_and_reloads_what_there_is(root):
    text = (root / "deploy" / "systemd" / UNITS[0]).read_text("utf-8")
    commands = re.findall(r"(?m)^Exec\w+=/opt/univocal/bin/univocal (\w+) (--\w+) ", text)
    assert commands == [("serve", "--config"), ("reload", "--admin")]
    known = typer.main.get_command(app)
    for command, option in commands:
        assert option in [name for each in known.commands[command].params for name in each.opts]


@dataclass
class Manager:
    """Plays systemd: it has bound the listeners, and reads what the service says."""

    heard: socket.socket
    front: socket.socket
    back: socket.socket
    process: subprocess.Popen[str] | None = None

    def start(self, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        """Start the service with these listeners as the descriptors 3 and 4."""
        # Above 3 and 4, which the child gives to them, and no number that is open here.
        first = [fcntl.fcntl(each.fileno(), fcntl.F_DUPFD, 200) for each in (self.front, self.back)]

        def place() -> None:
            for number, each in enumerate(first):
                os.dup2(each, 3 + number)

        # LISTEN_PID is known to the service's process alone; `exec` keeps it.
        program = [sys.executable, "-m", "univocal_app", *arguments]
        command = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *program]
        self.process = subprocess.Popen(
            command,
            env={**environment, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "listen:admin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=(3, 4),
            preexec_fn=place,  # noqa: PLW1509 - there are no threads that hold a lock which it needs
        )
        for descriptor in first:
            os.close(descriptor)
        return self.process

    def hear(self) -> dict[str, str]:
        """The next notice."""
        lines = self.heard.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def get(self) -> bytes:
        with socket.create_connection(self.front.getsockname(), timeout=TIMEOUT) as client:
            client.sendall(b"GET /wiki/A HTTP/1.1\r\nHost: en.example\r\nConnection: close\r\n\r\n")
            return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[Manager, dict[str, str]]]:
    """The manager, and the environment that it gives; notices go to a path unless a test says otherwise."""
    root = Path(__file__).parents[2]
    address = str(tmp_path / "notify")
    paths = os.pathsep.join(str(root / source) for source in ("app", "middleware"))
    environment = {**os.environ, "PYTHONPATH": paths, "NOTIFY_SOCKET": address}
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard,
        socket.create_server(("127.0.0.1", 0)) as front,
        socket.create_server(("127.0.0.1", 0)) as back,
    ):
        heard.bind(address)
        heard.settimeout(TIMEOUT)
        played = Manager(heard, front, back)
        yield played, environment
        if played.process is not None:
            with contextlib.suppress(ProcessLookupError):
                played.process.kill()
            played.process.communicate(timeout=TIMEOUT)


def test_a_service_says_when_it_serves_reloads_and_ends(manager, origin, tmp_path):
    """Signals that come early are heard later: from the first of the program's own lines on."""
    played, environment = manager
    file = tmp_path / "univocal.toml"
    file.write_text(f'[server]\naccess_log = "off"\n[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n')
    process = played.start(environment, "serve", "--config", str(file))
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    for number in until_held(process, signal.SIGHUP, signal.SIGUSR1):
        process.send_signal(number)
    told = [played.hear() for _ in range(3)]
    addresses = [f"http://127.0.0.1:{each.getsockname()[1]}/" for each in (played.front, played.back)]
    (reloads,) = (each for each in told if each.get("RELOADING") == "1")
    assert before <= int(reloads["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    serves = {"READY": "1", "STATUS": f"serving {addresses[0]}, admin listener {addresses[1]}"}
    assert serves in told
    assert {"READY": "1"} in told  # it has reloaded, and the status stays
    assert played.get().endswith(b"answer 1")
    process.send_signal(signal.SIGTERM)
    assert played.hear() == {"STOPPING": "1"}
    assert process.wait(TIMEOUT) == 0
    # The listeners are the manager's: whoever connects now waits for the next start.
    with socket.create_connection(played.front.getsockname(), timeout=TIMEOUT):
        pass


def test_notices_reach_an_abstract_address():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(f"\0univocal-{os.getpid()}-{time.time_ns()}")
        heard.settimeout(TIMEOUT)
        Notices.of({"NOTIFY_SOCKET": f"@{heard.getsockname()[1:].decode()}"}).ready("serving")
        assert heard.recv(4096) == b"READY=1\nSTATUS=serving"


def test_sockets_without_a_known_name_are_refused(univocal_inside):
    variables = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "univocal.socket:admin"}
    ended = univocal_inside("serve", "--upstream", "http://127.0.0.1:9", **variables)
    assert ended.returncode == 2
    told = "univocal: systemd: LISTEN_FDNAMES: found 'univocal.socket:admin'; allowed: "
    assert ended.stderr.startswith(told)


@pytest.mark.parametrize("count", ["²", "two", "-1", "", "0"])
def test_a_number_of_sockets_that_is_none_passes_none(count):
    environment = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count, "HOME": "/"}
    assert passed_sockets(environment) == {}
    assert environment == {"HOME": "/"}


def test_an_early_end_is_that_of_a_program_that_serves(manager, origin):
    played, environment = manager
    process = played.start(environment, "serve", "--upstream", origin.url)
    for number in until_held(process, signal.SIGTERM):
        process.send_signal(number)
    assert process.wait(TIMEOUT) == 0


def until_held(process: subprocess.Popen[str], *numbers: int) -> tuple[int, ...]:
    """Wait until a program, which still loads what it needs, holds these signals back."""
    blocked, limit = re.compile(r"(?m)^SigBlk:\s*([0-9a-f]+)$"), time.monotonic() + TIMEOUT

    def holds() -> bool:
        found = blocked.search(Path(f"/proc/{process.pid}/status").read_text())
        return found is not None and all(int(found[1], 16) >> (number - 1) & 1 for number in numbers)

    while not holds():
        assert time.monotonic() < limit
    return numbers
