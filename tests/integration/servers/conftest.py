"""Real servers as oracles, a client that asks them for any target, and targets that are worth asking for."""

import importlib.util
import json
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pytest

from examples import LONG, examples
from support import origin_server, response_with
from tests.started import end_input, tied
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile, parse
from univocal.uri.target import Rejected, canonical_target

HERE = Path(__file__).parent
FUZZER = HERE.parents[2] / "fuzz" / "uri.py"
TIMEOUT = 60
AT_ONCE = 64


# Targets


@pytest.fixture(scope="session")
def generated() -> Iterator[Callable[[int, int], list[bytes]]]:
    """generated(seed, number): short targets, and so many random ones, as fuzz/uri.py makes them.

    `make test` has half of the longest short ones and a fifth of the random ones, `make laws` all.
    """
    spec = importlib.util.spec_from_file_location("fuzz_uri_targets", FUZZER)
    assert spec
    assert spec.loader
    fuzzer = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = fuzzer
    spec.loader.exec_module(fuzzer)

    @cache
    def generated(seed: int, number: int) -> list[bytes]:
        chance = random.Random(seed)
        drawn = (fuzzer.random_target(chance) for _ in range(examples(number)))
        long = [*fuzzer.short_targets(4)]
        return list(dict.fromkeys([*fuzzer.short_targets(3), *long[:: 1 if LONG else 2], *drawn]))

    yield generated
    del sys.modules[spec.name]


@pytest.fixture(scope="session")
def built_in() -> dict[str, Profile]:
    return builtin_profiles()


@pytest.fixture(scope="session")
def derived(built_in: dict[str, Profile]) -> Callable[[str, str], Profile]:
    """derived(parent, text): a profile that extends a built-in one."""
    return lambda parent, text: parse({"derived": f'extends = "{parent}"\n{text}'}, built_in)["derived"]


@pytest.fixture(scope="session")
def drawn() -> Callable[..., list[str]]:
    """drawn(seed, number, always): settings, rings that decode and encode at random but decode `always`."""

    def drawn(seed: int, number: int, always: str = "") -> list[str]:
        chance, texts = random.Random(seed), []
        for _ in range(number):
            often = chance.random()
            decoded = [octet for octet in ":@!$&'()*+,=[];\\|<" if chance.random() < often]
            encoded = [octet for octet in ":@!$&'()*+,=[];" if octet not in decoded and chance.random() < 0.5]
            sets = [json.dumps(" ".join(each)) for each in ([*decoded, *always], encoded)]
            texts.append("[path]\ndecode = {}\nencode = {}\n".format(*sets))
        return texts

    return drawn


@dataclass(frozen=True)
class Judged:
    """Targets by the judgement of a profile."""

    accepted: dict[bytes, bytes]
    refused: dict[bytes, Rejected]

    @property
    def both(self) -> list[bytes]:
        """The received targets that are accepted, and their canonical ones."""
        return [*self.accepted, *self.accepted.values()]


@pytest.fixture(scope="session")
def judge() -> Callable[[list[bytes], Profile], Judged]:
    def judge(targets: list[bytes], profile: Profile) -> Judged:
        results = {target: canonical_target(target, profile) for target in targets}
        return Judged(
            {target: result for target, result in results.items() if isinstance(result, bytes)},
            {target: result for target, result in results.items() if isinstance(result, Rejected)},
        )

    return judge


# The client


@dataclass(frozen=True)
class Answer:
    """A server's answer; status 0: it hung up without one."""

    status: int
    body: bytes = b""
    location: bytes = b""

    @property
    def refused(self) -> bool:
        return self.status in {0, 400}


class Client:
    """Asks a server for targets exactly as they are, each once, over connections that it may keep.

    So many at once go over a connection, but for targets `alone`.
    """

    def __init__(
        self,
        family: socket.AddressFamily,
        address: str | tuple[str, int],
        at_once: int = AT_ONCE,
        alone: Callable[[bytes], object] = lambda target: False,
    ) -> None:
        self.family, self.address, self.at_once, self.alone = family, address, at_once, alone
        self.answers: dict[bytes, Answer] = {}

    def one(self, target: bytes) -> Answer:
        """The answer to one target."""
        return self.ask([target])[target]

    def ask(self, targets: Iterable[bytes]) -> dict[bytes, Answer]:
        """The answer to each target."""
        asked = list(dict.fromkeys(targets))
        new = [target for target in reversed(asked) if target not in self.answers]
        self._ask([target for target in new if self.alone(target)], 1)
        self._ask([target for target in new if not self.alone(target)], self.at_once)
        return {target: self.answers[target] for target in asked}

    def _ask(self, waiting: list[bytes], at_once: int) -> None:
        while waiting:
            before = len(waiting)
            self._on_one_connection(waiting, self.answers, at_once)
            if len(waiting) == before:  # unanswered, perhaps because of what was sent after it
                self._on_one_connection(waiting, self.answers, 1)
            if len(waiting) == before:
                self.answers[waiting.pop()] = Answer(0)

    def _on_one_connection(self, waiting: list[bytes], answers: dict[bytes, Answer], at_once: int) -> None:
        with socket.socket(self.family, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT)
            connection.connect(self.address)
            stream = connection.makefile("rb")
            while waiting:
                batch = waiting[-at_once:][::-1]
                try:
                    connection.sendall(b"".join(map(_request, batch)))
                    for target in batch:
                        answer, goes_on = _read_answer(stream)
                        if answer is None:
                            return
                        answers[target] = answer
                        waiting.pop()
                        if not goes_on:
                            return
                except ConnectionError:
                    return


def _request(target: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: origin.example\r\n\r\n" % target


def _read_answer(stream: BinaryIO) -> tuple[Answer | None, bool]:
    """An answer, if there is one, and whether another may follow."""
    status_line = stream.readline()
    status = re.match(rb"HTTP/1\.1 (\d{3})", status_line)
    if status is None:
        return None, False
    fields: dict[bytes, bytes] = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        fields[name.lower()] = value.strip()
    closes = fields.get(b"connection", b"").lower() == b"close"
    length = int(fields.get(b"content-length", b"-1" if closes else b"0"))
    return Answer(int(status[1]), stream.read(length), fields.get(b"location", b"")), not closes


@pytest.fixture(scope="session")
def client_at() -> type[Client]:
    """client_at(family, address, at_once, alone): a client of whatever listens there."""
    return Client


# The servers


@pytest.fixture(scope="session")
def new_directory() -> Iterator[Callable[[], Path]]:
    """new_directory(): an empty directory, with a name short enough for the address of a socket in it.

    A server has a new one whenever it starts: no test knows which others its process has run, or will.
    """
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        yield lambda: Path(tempfile.mkdtemp(prefix="", dir=name))


@dataclass(frozen=True)
class Nginx:
    """A running nginx: one client for each of its servers."""

    merging: Client
    not_merging: Client
    proxying: Client
    directory: Path


def _first_line(head: bytes, _: bytes) -> bytes:
    """The bytes before the first CR LF, as an answer."""
    return response_with(head.partition(b"\r\n")[0])


@pytest.fixture(scope="session")
def echo() -> Iterator[int]:
    """The port of an origin that answers each request with its request line."""
    with origin_server(_first_line) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture(scope="session")
def nginx(new_directory: Callable[[], Path]) -> Iterator[Nginx]:
    """nginx with the servers of nginx.conf, and the origin behind them."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("needs nginx (Debian package nginx-light)")
    said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stderr
    version = re.search(r"nginx/(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < (1, 21):
        pytest.skip(f"needs nginx 1.21 or newer, which escapes as it does today; this is {said.strip()}")
    prefix = new_directory()
    listed = prefix / "listed"
    listed.mkdir()
    configuration = (HERE / "nginx.conf").read_text().replace("PREFIX", str(prefix))
    (prefix / "nginx.conf").write_text(configuration)
    command = [program, "-p", str(prefix), "-c", str(prefix / "nginx.conf"), "-e", str(prefix / "error.log")]
    names = ("merging", "not-merging", "proxying")
    clients = [Client(socket.AF_UNIX, str(prefix / f"{name}.sock")) for name in names]
    with (
        origin_server(_first_line, prefix / "origin.sock"),
        _serving(command, clients[-1], prefix / "error.log"),
    ):
        yield Nginx(*clients, listed)


@contextmanager
def _serving(command: Sequence[str], client: Client, log: Path) -> Iterator[Client]:
    """`command` runs, and has answered the client, until the block ends."""
    with log.open("wb") as errors:
        process = tied(command, errors)
    try:
        _until_it_answers(process, client, log)
        client.answers.clear()
        yield client
    finally:
        end_input(process)


@pytest.fixture(scope="session")
def serving() -> Callable[[Sequence[str], Client, Path], AbstractContextManager[Client]]:
    """serving(command, client, log): a server for one block, with its client."""
    return _serving


def _until_it_answers(process: subprocess.Popen[bytes], client: Client, log: Path) -> None:
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            assert client.one(b"/").status
        except OSError:
            said = log.read_text() if log.exists() else ""
            assert process.poll() is None, f"it has ended: {said}"
            assert time.monotonic() < end, f"it does not answer: {said}"
            time.sleep(0.05)
        else:
            return
