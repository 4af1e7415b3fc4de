"""`univocal serve`, and the sites of other programs, in processes of their own."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forking
from tests.e2e.conftest import starting
from tests.integration.place import Place
from tests.started import end, until_it_listens

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, ROOT / "app", ROOT / "middleware"))),
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}


@dataclass(frozen=True)
class Proxy:
    """A running `univocal serve`; `log` is its access log."""

    front: Place
    admin: Place
    log: Path

    @property
    def purges(self) -> list[dict[str, Any]]:
        """The audit lines."""
        lines = map(json.loads, self.log.read_text().splitlines())
        return [line for line in lines if line["method"] in {"PURGE", "BAN"} or "purge" in line]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Proxy]]:
    """serve(origin, profile): `univocal serve` before this origin's port."""
    with starting() as start:

        def serve(origin: int, profile: str, cache: str = "") -> Proxy:
            directory = tmp_path_factory.mktemp("proxy")
            (directory / "univocal.toml").write_text(f"""
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
            """)
            running = start("serve", "--config", str(directory / "univocal.toml"))
            return Proxy(Place(running.proxy[1]), Place(running.admin[1]), directory / "access.log")

        yield serve


@pytest.fixture(scope="module")
def site() -> Iterator[Callable[..., Place]]:
    """site(port, module, …): run a module, which imports Django, with this port to serve on and these."""
    with ExitStack() as stack:

        def site(port: int, *words: str) -> Place:
            module, *arguments = words
            command = [sys.executable, "-m", module, str(port), *arguments]
            process = forking.Program(command, env=ENVIRONMENT, imports=["django.core.handlers.asgi"])
            stack.callback(end, process, 60)
            until_it_listens(process, port)
            return Place(port)

        yield site
