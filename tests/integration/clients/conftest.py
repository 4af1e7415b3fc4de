"""`univocal serve`, and the sites of other programs, in processes of their own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
TIMEOUT = 60
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in ("app", "middleware")),
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}


@dataclass(frozen=True)
class Answer:
    status: int
    fields: http.client.HTTPMessage
    body: str

    @property
    def cache(self) -> str:
        """What Cache-Status says, but for the cache's name."""
        return self.fields.get("cache-status", "").partition("; ")[2]

    @property
    def told(self) -> dict[str, Any]:
        return json.loads(self.body)


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ask(
        self, target: str, method: str = "GET", host: str = "en.example", body: str = "", **fields: str
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        try:
            named = {name.replace("_", "-"): value for name, value in fields.items()}
            connection.request(method, target, body or None, {"Host": host, **named})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode())
        finally:
            connection.close()


@dataclass(frozen=True)
class Proxy:
    """A running `univocal serve`; `log` is its access log."""

    front: Address
    admin: Address
    log: Path

    @property
    def purges(self) -> list[dict[str, Any]]:
        """The audit lines."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["method"] in {"PURGE", "BAN"} or "purge" in line]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def await_port(port: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nobody listens")


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[..., None]]:
    """started(port, *arguments): run Python with these until the tests end; wait until it listens."""
    with ExitStack() as stack:

        def start(port: int, *arguments: str) -> None:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(end, process)
            await_port(port, process)

        yield start


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def serve(started: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Proxy]:
    """serve(origin, profile): `univocal serve` before this origin's port."""

    def serve(origin: int, profile: str, cache: str = "") -> Proxy:
        directory = tmp_path_factory.mktemp("proxy")
        front, admin = free_port(), free_port()
        configuration = f"""
            [server]
            listen = "127.0.0.1:{front}"
            admin = "127.0.0.1:{admin}"
            access_log = "{directory / "access.log"}"
            [cache]
            {cache}
            [[sites]]
            hosts = ["en.example", "ru.example"]
            aliases = ["www.en.example"]
            profile = "{profile}"
            upstream = "http://127.0.0.1:{origin}"
        """
        file = directory / "univocal.toml"
        file.write_text(configuration)
        started(admin, "-m", "univocal_app", "serve", "--config", str(file))
        return Proxy(Address("127.0.0.1", front), Address("127.0.0.1", admin), directory / "access.log")

    return serve


@pytest.fixture(scope="module")
def site(started: Callable[..., None]) -> Callable[..., Address]:
    """site(script, port, …): one of this directory's scripts, which serves on that port."""

    def site(script: str, port: int, *arguments: object) -> Address:
        started(port, str(HERE / script), str(port), *map(str, arguments))
        return Address("127.0.0.1", port)

    return site


@pytest.fixture(scope="module")
def port() -> Callable[[], int]:
    """A port that nobody listens on."""
    return free_port
