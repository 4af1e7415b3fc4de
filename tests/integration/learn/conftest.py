"""Origins to be probed, each on its own port."""

import random
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from probing import NAMES
from tests.ports import free_port
from tests.started import end_input, tied, until_it_listens
from tests.started import nginx as nginx_command
from tests.started import tomcat as tomcat_command

HERE = Path(__file__).parent
TIMEOUT = 60
FILES = ["/files/", "/files/a.html", "/files/b.html", "/files/more/", "/files/more/c.html"]


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        yield Path(name)


@pytest.fixture(scope="session")
def hosted() -> Iterator[Callable[..., str]]:
    """hosted(app): the origin under which an ASGI application is served from now on."""
    running = []

    def hosted(app: Any) -> str:
        # With its protocol named, so that asyncio knows it for TCP and sends without delay.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, loop="asyncio")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        running.append((server, thread))
        end = time.monotonic() + TIMEOUT
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.01)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield hosted
    for server, _ in running:
        server.should_exit = True
    for _, thread in running:
        thread.join(TIMEOUT)


@pytest.fixture(scope="session")
def files(directory: Path) -> Path:
    """A directory of pages with every octet in a name that may be two things."""
    root = directory / "files"
    for folder in ("wiki", "docs", "docs/more"):
        (root / folder).mkdir(parents=True)
        (root / folder / "index.html").write_text(f"The first page of {folder}.")
    (root / "index.html").write_text("The first page.")
    for name in NAMES:
        (root / "wiki" / name).write_text(f"The page of {name}.")
    return root


@pytest.fixture(scope="session")
def nginx(directory: Path, files: Path) -> Iterator[dict[str, str]]:
    """The origins of one nginx: of locations, slashes merged or not, and of files, not merged."""
    ports = [free_port() for _ in range(3)]
    prefix = directory / "nginx"
    prefix.mkdir()
    pages = "".join(
        f'location = "/wiki/{name}" {{ return 200 "Page {number}, args $arg_id"; }}\n'
        for number, name in enumerate([*NAMES, "deep/one", "deep/two", ""])
    )
    pages += "location / { return 404; }"
    kinds = ("locations", "merge_slashes off locations", "merge_slashes off files")
    servers = "".join(
        f"server {{ listen 127.0.0.1:{port}; {'merge_slashes off;' if 'off' in kind else ''} "
        f"{pages if 'locations' in kind else f'root {files};'} }}\n"
        for port, kind in zip(ports, kinds, strict=True)
    )
    process = tied(nginx_command(prefix, servers), subprocess.DEVNULL)
    try:
        until_it_listens(process, ports[-1])
        yield {kind: f"http://127.0.0.1:{port}" for kind, port in zip(kinds, ports, strict=True)}
    finally:
        end_input(process)


@pytest.fixture(scope="session")
def tomcat(directory: Path) -> Iterator[str]:
    """The origin of a Tomcat 10.1 with Debian's jars and the servlet of Site.java."""
    command = tomcat_command(HERE / "Site.java")
    base = directory / "tomcat"
    for name in FILES:
        file = base / name.lstrip("/")
        file = file / "index.html" if name.endswith("/") else file
        file.parent.mkdir(parents=True, exist_ok=True)
        chance = random.Random(name)
        file.write_text(f"<h1>{name}</h1> {' '.join(str(chance.randrange(10_000)) for _ in range(60))}")
    names = " ".join(["/wiki/" + name for name in NAMES] + ["/docs/", "/docs/more/plain"])
    command[1:1] = ["-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8"]
    process = subprocess.Popen(
        [*command, str(base), names],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    try:
        assert process.stdout
        line = process.stdout.readline()
        watchdog.cancel()
        assert re.fullmatch(rb"\d+\n", line)
        yield f"http://127.0.0.1:{int(line)}"
    finally:
        watchdog.cancel()
        end_input(process)
