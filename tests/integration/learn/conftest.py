"""Origins to be probed, each on its own port, and random spellings to check what was learned."""

import json
import random
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from examples import examples
from tests.ports import free_port
from tests.started import end_input, tied, until_it_listens
from tests.started import nginx as nginx_command
from tests.started import tomcat as tomcat_command
from univocal.uri.profile import parse
from univocal.uri.target import canonical_target
from univocal_learn.asking import Asker, remembering
from univocal_learn.probe import Report, probe

HERE = Path(__file__).parent
TIMEOUT = 60
NAMES = [
    *("A(b)", "C!d", "E:f", "x,y", "it's", "a+b", "a=b", "p@q", "m*n", "[z]", "$5", "R&D", "s;t"),
    *("plain", "other", "third", "é"),
]
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
    """The origins of one nginx: of locations, slashes merged or not, and of files."""
    ports = [free_port() for _ in range(4)]
    prefix = directory / "nginx"
    prefix.mkdir()
    pages = "".join(
        f'location = "/wiki/{name}" {{ return 200 "Page {number}, args $arg_id"; }}\n'
        for number, name in enumerate([*NAMES, "deep/one", "deep/two", ""])
    )
    pages += "location / { return 404; }"
    kinds = ("locations", "merge_slashes off locations", "files", "merge_slashes off files")
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


@pytest.fixture(scope="session")
def probed() -> Callable[..., Report]:
    """probed(origin, sample): what probe finds out, at full speed."""

    def probed(origin: str, sample: list[bytes]) -> Report:
        asker = Asker(origin, 100_000)
        with closing(asker):
            asker.read_robots()
            return probe(origin, sample, remembering(asker.get), lambda: asker.asked, lambda _: None)

    return probed


@pytest.fixture(scope="session")
def verdicts() -> Callable[[Report], dict[str, str]]:
    return lambda report: {finding.name: finding.verdict for finding in report.findings}


# Random spellings

PUTS = b"/ /. /%2e /zq/.. /zq/%2E. //.. /zq//.. ;x=1 %2F %2f.. /..; /..".split()
ENDS = b"/ ? index.html /index.html ?utm_source=x ;jsessionid=1 /. /.. // &a=1".split()


def respelled(target: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randrange(1, 4)):
        path, mark, query = target.partition(b"?")
        way = chance.random()
        at = chance.randrange(len(path))
        if way < 0.35 and path[at : at + 1] not in (b"/", b"%"):
            escape = b"%%%02x" if chance.random() < 0.5 else b"%%%02X"
            path = path[:at] + escape % path[at] + path[at + 1 :]
        elif way < 0.5 and (found := re.search(rb"%[0-9A-Fa-f]{2}", path)):
            octet = bytes.fromhex(found[0][1:].decode())
            path = (
                path[: found.start()] + (octet if octet.isascii() else found[0].lower()) + path[found.end() :]
            )
        elif way < 0.8:
            slashes = [place for place, octet in enumerate(path) if octet == 0x2F]
            place = chance.choice(slashes)
            path = path[:place] + chance.choice(PUTS) + path[place:]
        elif mark and way < 0.9:
            query = b"&".join(chance.sample(query.split(b"&"), query.count(b"&") + 1))
        else:
            target = path + mark + query + chance.choice(ENDS)
            continue
        target = path + mark + query
    return target


def escaped(sample: list[bytes]) -> Iterator[bytes]:
    """Each reserved octet of a path, escaped alone: of few draws none may be that."""
    for target in sample:
        for found in re.finditer(rb"[]:[@!$&'()*+,;=]", target.partition(b"?")[0]):
            yield target[: found.start()] + b"%%%02X" % found[0][0] + target[found.end() :]


@pytest.fixture(scope="session")
def are_one() -> Callable[..., None]:
    """are_one(origin, profile, sample): what a profile folds, the `least` share of spellings, is one."""

    def are_one(origin: str, text: str, sample: list[bytes], least: float = 0) -> None:
        number = examples(2000)
        profile = parse({"learned": text})["learned"]
        chance = random.Random(7)
        draws = (respelled(chance.choice(sample), chance) for _ in range(number))
        drawn = dict.fromkeys(chain(escaped(sample), draws))
        folded = 0
        with closing(Asker(origin, 1_000_000)) as asker:
            fetch = remembering(asker.get)

            def seen(target: bytes) -> tuple[int, bytes]:
                answer = fetch(target, 0)
                for _ in range(3):
                    location = answer.value(b"location").removeprefix(origin.encode())
                    if not answer.redirects or not location.startswith(b"/"):
                        break
                    answer = fetch(location, 0)
                # Both are refusals: which error page comes with them is nobody's page.
                return answer.status, answer.body if answer.status < 400 else b""

            for target in drawn:
                if not re.fullmatch(rb"/[!-~]*", target):
                    continue
                canonical = canonical_target(target, profile)
                if not isinstance(canonical, bytes) or canonical == target:
                    continue
                folded += 1
                one, other = seen(target), seen(canonical)
                assert one == other or (one[0] >= 400 and other[0] >= 400), (target, canonical)
        assert folded >= least * number

    return are_one


@pytest.fixture(scope="session")
def as_json() -> Callable[[Report], Any]:
    return lambda report: json.loads(report.as_json())
