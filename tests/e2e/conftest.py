"""Programs in processes of their own, and an origin server that keeps every octet it was sent."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import forking
from support import origin_server, response_with
from tests.inside import Ended, Inside, commands, serving_inside
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
TIMEOUT = 20


def environment(**variables: str) -> dict[str, str]:
    paths = os.pathsep.join(str(ROOT / source) for source in ("app", "middleware"))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **variables}


@pytest.fixture(scope="session")
def univocal() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `univocal` with these arguments to its end."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "univocal_app", *arguments]
        return forking.run(command, env=environment(**variables), timeout=TIMEOUT)

    return run


@dataclass
class Running:
    """A started `univocal`, its addresses, and all that it has printed when it has ended."""

    process: subprocess.Popen[str]
    said: str
    proxy: tuple[str, int]
    admin: tuple[str, int]
    out: str = ""
    err: str = ""

    @property
    def page(self) -> str:
        """The URL of the admin listener."""
        return "http://{}:{}".format(*self.admin)

    def end(self, number: int = signal.SIGINT) -> int:
        """Send a signal and wait; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=TIMEOUT)
        self.out, self.err = self.out + out, self.err + err
        return self.process.returncode


def addresses(text: str) -> list[tuple[str, int]]:
    """Those of the URLs in a text."""
    return [(host, int(port)) for host, port in re.findall(r"https?://([0-9.]+):(\d+)/", text)]


def workers_of(program: int) -> list[int]:
    """The processes that are the workers of a program."""
    found = []
    for child in Path(f"/proc/{program}/task/{program}/children").read_text("ascii").split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends meanwhile
            if re.search(b"spawn_main|univocal: worker", Path(f"/proc/{child}/cmdline").read_bytes()):
                found.append(int(child))
    return found


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """Start `univocal` with these arguments; at the end each must go without a traceback."""
    with starting() as start:
        yield start


@pytest.fixture
def start_with(start: Callable[..., Running], tmp_path: Path) -> Callable[..., Running]:
    """Start with a file: `top`, then ports that are free, then a text that begins in `[server]`."""

    def start_with(text: str, top: str = "", **how: Any) -> Running:
        file = tmp_path / "univocal.toml"
        file.write_text(f'{top}\n[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n{text}', "utf-8")
        return start("serve", "--config", str(file), **how)

    return start_with


@pytest.fixture(scope="module")
def start_once() -> Iterator[Callable[..., Running]]:
    """The same, for all tests of a module."""
    with starting() as start:
        yield start


@contextlib.contextmanager
def starting() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(
        *arguments: str, until: str = "listener http", descriptors: int = 0, **variables: str
    ) -> Running:
        process = forking.Program(
            [sys.executable, "-m", "univocal_app", *arguments],
            descriptors,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        # The access log of a test, which is read at its end.
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
        stream = process.stdout if "demo" in arguments else process.stderr
        assert stream is not None
        said = ""
        late = threading.Timer(3 * TIMEOUT, process.kill)
        late.start()
        while until not in said:
            line = stream.readline()
            assert line, f"ended with {process.wait(TIMEOUT)} behind {said!r}: {process.communicate()}"
            said += line
        late.cancel()
        serving = re.search(r"serving (.*), admin listener (.*)", said)
        front, back = map(addresses, serving.groups()) if serving else (addresses(said), addresses(said)[1:])
        (proxy, admin) = [*front, ("", 0)][0], [*back, ("", 0)][0]  # of those that are TCP's
        started.append(Running(process, said, proxy, admin))
        return started[-1]

    yield start
    for running in started:
        if running.process.returncode is None:
            assert running.end() == 0
        assert "Traceback" not in running.err, running.err


@pytest.fixture
def univocal_inside(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Run `univocal` with these arguments to its end, in this process."""
    return commands(monkeypatch, capsys)


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Callable[..., Inside]]:
    """Serve by the file univocal.toml of the test's folder, in a thread of this process."""
    with serving_inside(tmp_path) as serve:
        yield serve


@pytest.fixture(scope="module")
def inside_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Inside]]:
    """The same, for all tests of a module."""
    with serving_inside(tmp_path_factory.mktemp("inside")) as serve:
        yield serve


@dataclass
class Origin:
    """An origin server: `seen` holds the head of every request, as it came."""

    url: str = ""
    seen: list[bytes] = field(default_factory=list)
    fields: str = "Cache-Control: max-age=60"

    @property
    def lines(self) -> list[bytes]:
        """The request lines."""
        return [head.partition(b"\r\n")[0] for head in self.seen]

    def answer(self, head: bytes) -> bytes:
        self.seen.append(head)
        return response_with(b"answer %d" % len(self.seen), self.fields.encode() + b"\r\n")


@contextlib.contextmanager
def recording() -> Iterator[Origin]:
    """A recording origin server on a port of its own."""
    recorded = Origin()
    with origin_server(lambda head, _: recorded.answer(head + b"\r\n")) as recorded.url:
        yield recorded


@pytest.fixture
def origin() -> Iterator[Origin]:
    """A recording origin server for one test."""
    with recording() as recorded:
        yield recorded


@pytest.fixture
def plain(inside: Callable[..., Inside], origin: Origin) -> Inside:
    """The program in a thread, with one site for all hosts before the recording origin server."""
    return inside(f'[[sites]]\nhosts = ["*"]\nupstream = "{origin.url}"\n')


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("needs redis-server (Debian package redis-server)")
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@dataclass(frozen=True)
class Answer:
    """A response as it came."""

    status: int
    head: str
    body: bytes

    def value(self, name: str) -> str | None:
        """The value of the first field line with this name."""
        match = re.search(rf"(?im)^{re.escape(name)}: *(.*?)\r?$", self.head)
        return match[1] if match else None


def asked(
    address: tuple[str, int],
    target: str | bytes,
    host: str,
    method: str = "GET",
    fields: str = "",
    body: str = "",
) -> Answer:
    """Send one request, its target octet for octet, and read the answer until the connection closes."""
    raw = target if isinstance(target, bytes) else target.encode()
    content = f"Content-Length: {len(body)}\r\n" if body else ""
    rest = f" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}{content}\r\n{body}"
    with socket.create_connection(address, timeout=TIMEOUT) as connection:
        connection.sendall(method.encode() + b" " + raw + rest.encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, content_received = received.partition(b"\r\n\r\n")
    return Answer(int(head.split(b" ", 2)[1]), head.decode("latin-1"), content_received)


@pytest.fixture(scope="session")
def ask() -> Callable[..., Answer]:
    """The function that sends one request."""
    return asked
