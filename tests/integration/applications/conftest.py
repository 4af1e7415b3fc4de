"""Real applications, each behind `univocal serve`, in processes of their own."""

import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

import forking
from tests.ports import free_port
from tests.started import end as ended
from tests.started import until_it_listens

ROOT = Path(__file__).parents[3]
PATIENCE = 120  # seconds; whatever else the machine does
OUR_SOURCES = os.pathsep.join(str(ROOT / source) for source in ("app", "middleware"))


@dataclass(frozen=True)
class Answer:
    status: int
    fields: http.client.HTTPMessage
    text: str

    @property
    def hit(self) -> bool:
        return self.fields.get("cache-status", "").startswith("univocal; hit")

    @property
    def stored(self) -> bool:
        return "; stored" in self.fields.get("cache-status", "")


@dataclass(frozen=True)
class Place:
    """A server on this machine; a target is asked for exactly as it is."""

    port: int
    host: str

    def ask(
        self, target: str, method: str = "GET", body: str | None = None, client: str = "", **fields: str
    ) -> Answer:
        """The answer to a request, which `client` (an address of this machine) sends."""
        source = (client, 0) if client else None
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE, source_address=source
        )
        named = {name.replace("_", "-"): value for name, value in fields.items()}
        if body is not None and "Content-Type" not in named:
            named["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            content = None if body is None else body.encode()
            length = {} if content is None else {"Content-Length": str(len(content))}
            for name, value in {"Host": self.host, **named, **length}.items():
                connection.putheader(name, value)
            connection.endheaders(content)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode("utf-8", "replace"))
        finally:
            connection.close()


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory for one application, with a name short enough for the address of a socket in it."""
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def run(directory: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """run(*command): a process, with those that it starts, until the module's tests end."""
    with ExitStack() as stack:

        def run(*command: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
            with (directory / f"{Path(command[0]).name}.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    cwd=cwd,
                    env={**os.environ, **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            stack.callback(end, process)
            return process

        yield run


def end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="session")
def place() -> type[Place]:
    """place(port, host): a server on this machine."""
    return Place


@pytest.fixture(scope="module")
def php(run: Callable[..., subprocess.Popen[bytes]]) -> Callable[..., int]:
    """php(router, root, **variables): PHP's own server with this script; its port."""

    def php(router: Path, root: Path, **variables: str) -> int:
        port = free_port()
        settings = ("-d", "opcache.enable_cli=1", "-d", "display_errors=stderr")
        process = run(
            "php", *settings, "-S", f"127.0.0.1:{port}", "-t", str(root), str(router),
            cwd=root, PHP_CLI_SERVER_WORKERS="3", **variables,
        )  # fmt: skip
        until_it_listens(process, port)
        return port

    return php


@pytest.fixture(scope="module")
def serve(directory: Path) -> Iterator[Callable[[str], int]]:
    """serve(sites): `univocal serve` with these tables, until the module's tests end; its port."""
    stack = ExitStack()

    def serve(sites: str) -> int:
        number = len(list(directory.glob("univocal-*.toml")))
        file = directory / f"univocal-{number}.toml"
        server = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\naccess_log = "off"\n'
        file.write_text(server + sites)
        log = file.with_suffix(".log")
        with log.open("wb") as stream:
            process = forking.Program(
                [sys.executable, "-m", "univocal_app", "serve", "--config", str(file)],
                env={**os.environ, "PYTHONPATH": OUR_SOURCES, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        stack.callback(ended, process, 20)
        limit = time.monotonic() + PATIENCE
        while not (said := re.search(rb"serving http://127\.0\.0\.1:(\d+)/", log.read_bytes())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.05)
        return int(said[1])

    with stack:
        yield serve
