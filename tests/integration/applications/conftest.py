"""Real applications, each behind `univocal serve`, in processes of their own."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import starting
from tests.integration.place import Place
from tests.ports import free_port
from tests.started import until_it_listens


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
    with starting() as start:

        def serve(sites: str) -> int:
            file = directory / f"univocal-{len(list(directory.glob('univocal-*.toml')))}.toml"
            server = '[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\naccess_log = "off"\n'
            file.write_text(server + sites)
            return start("serve", "--config", str(file)).proxy[1]

        yield serve
