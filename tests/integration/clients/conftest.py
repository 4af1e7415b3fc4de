"""`univocal serve`, and the sites of other programs, in processes of their own."""

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forking
from tests.started import end, until_it_listens

ROOT = Path(__file__).parents[3]
TIMEOUT = 60
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, ROOT / "app", ROOT / "middleware"))),
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
            return Answer(response.status, response.headers, response.read().decode(errors="replace"))
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


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """started(*arguments): run Python with this module and arguments until the module's tests end."""
    with ExitStack() as stack:

        def start(*arguments: str, **settings: Any) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", *arguments]
            process = forking.Program(command, env=ENVIRONMENT, text=True, **settings)
            stack.callback(close, process)
            return process

        yield start


def close(process: subprocess.Popen[str]) -> None:
    end(process, TIMEOUT)
    if process.stderr is not None:
        process.stderr.close()


@pytest.fixture(scope="module")
def serve(started: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Proxy]:
    """serve(origin, profile): `univocal serve` before this origin's port."""

    def serve(origin: int, profile: str, cache: str = "") -> Proxy:
        directory = tmp_path_factory.mktemp("proxy")
        configuration = f"""
            [server]
            listen = "127.0.0.1:0"
            admin = "127.0.0.1:0"
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
        process = started("univocal_app", "serve", "--config", str(file), stderr=subprocess.PIPE)
        assert process.stderr is not None
        said = next(line for line in process.stderr if "serving " in line)
        front, admin = (int(number) for number in re.findall(r"http://127\.0\.0\.1:(\d+)/", said))
        return Proxy(Address("127.0.0.1", front), Address("127.0.0.1", admin), directory / "access.log")

    return serve


@pytest.fixture(scope="module")
def site(started: Callable[..., Any]) -> Callable[..., Address]:
    """site(port, module, …): run a module, which imports Django, with this port to serve on and these."""

    def site(port: int, module: str, *arguments: str) -> Address:
        process = started(module, str(port), *arguments, imports=["django.core.handlers.asgi"])
        until_it_listens(process, port)
        return Address("127.0.0.1", port)

    return site


@pytest.fixture(scope="session")
def address() -> type[Address]:
    """A program's address, and how to ask there."""
    return Address
