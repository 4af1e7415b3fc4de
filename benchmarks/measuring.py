"""The measurements themselves: each checks before and after that every answer was what it claims to be."""

from __future__ import annotations

import contextlib
import itertools
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import h2load, wrk
from benchmarks.asking import Answer, Counter, WrongAnswerError, right
from benchmarks.contents import BROWSER, CONTENTS
from benchmarks.machine import Cores, Running, free_port, running
from benchmarks.pace import at_rate, fill
from benchmarks.plan import FILLING, LATENCY, LATENT, LOADS, MEMORY, START, STARTED, WEIGHED, Load
from benchmarks.servers import PEERS, Place, environment, origin

WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
KEY_OCTETS = len(CONTENTS["/hit"])
NEW_KEYS = 10_000_000  # keys from here on are asked for once
DISTURBANCES = (WrongAnswerError, wrk.UncleanRunError, ValueError, OSError, subprocess.TimeoutExpired)
HALF = 0.5  # of univocal's rate of hits, at which latencies are measured


@dataclass(frozen=True)
class Settings:
    """The extent of the measurements; `keys` are those whose memory is weighed."""

    rounds: int = 3
    seconds: int = 2
    keys: int = 100_000


@dataclass(frozen=True)
class Sample:
    """One round's number: a rate per second, or seconds, or bytes.

    A rate has also the requests per second of the server's CPU time, and the share of the time that it ran.
    """

    value: float
    per_cpu_second: float = 0.0
    busy: float = 0.0
    others: float = 0.0  # cores that processes had which are no part of the measurement


@dataclass
class Results:
    """Samples by measurement and server, and by round; what could not be measured, and why."""

    samples: dict[tuple[str, str], dict[int, Sample]] = field(default_factory=dict)
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    rate: float = 0.0  # requests per second at which latencies were measured
    late: float = 0.0  # seconds, the worst p99 of the generator's own lateness

    def add(self, measurement: str, server: str, turn: int, sample: Sample) -> None:
        """Keep a round's sample."""
        self.samples.setdefault((measurement, server), {})[turn] = sample


@dataclass
class Server:
    """A started server with its counter, and how many requests of wrk's it has answered."""

    name: str
    process: Running
    place: Place
    counter: Counter
    answered: int = 0
    holds_keys: bool = False

    @property
    def port(self) -> int:
        return self.place.port

    def right(self, path: str, fields: Sequence[str] = ()) -> Answer:
        """The response, which has to be 200 with the path's content. Raises WrongAnswerError."""
        return right(self.port, path, fields, has_tls=PEERS[self.name].has_tls)

    def check(self, path: str, fields: Sequence[str], *, hit: bool) -> None:
        """Ask once. Raises WrongAnswerError if the answer is not right, or no hit or miss as it is to be."""
        answer = self.right(path, fields)
        if self.name != "bare" and PEERS[self.name].hit(answer.fields) is not hit:
            raise WrongAnswerError(f"{path}: {'no hit' if hit else 'a hit'}: {dict(answer.fields)}")


class Stage:
    """The servers that take part: started once, and stopped while another one is measured."""

    def __init__(self, settings: Settings, cores: Cores, folder: Path) -> None:
        self.settings = settings
        self.cores = cores
        self.results = Results()
        self.servers: dict[str, Server] = {}
        self._folder = folder
        self._numbers = itertools.count()
        self._new_keys = itertools.count(NEW_KEYS, 1_000_000)

    @contextlib.contextmanager
    def started(self, names: Sequence[str]) -> Iterator[None]:
        """Start the origin and these servers, one after the other; end them all after the block."""
        with contextlib.ExitStack() as stack:
            port = free_port()
            place = Place(self._folder / "origin", port, port)
            origin_process = stack.enter_context(running(origin(place), self.cores.load, port, place.folder))
            self._origin = Counter(port, is_application=False)
            self.origin = origin_process
            for name in names:
                server = stack.enter_context(self.one(name))
                self.servers[name] = server
                server.process.signal(signal.SIGSTOP)
            yield
            self._check_logs()

    def busy(self) -> float:
        """The CPU seconds that both cores have been busy for others than the origin and this process."""
        mine = self.origin.cpu_seconds() + sum(sum(resource.getrusage(who)[:2]) for who in WHO)
        return self.cores.busy_seconds() - mine

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[Server]:
        """A server for itself."""
        place = Place(self._folder / f"{next(self._numbers)}-{name}", free_port(), self._origin.port)
        command, given = PEERS[name].command(place), environment(place.folder, is_pure=PEERS[name].is_pure)
        with running(command, self.cores.server, place.port, place.folder, given) as process:
            counter = Counter(place.port, is_application=True) if PEERS[name].is_application else self._origin
            yield Server(name, process, place, counter)

    def new_keys(self) -> int:
        """The first of a million new keys."""
        return next(self._new_keys)

    def _check_logs(self) -> None:
        for server in self.servers.values():
            if PEERS[server.name].log and server.answered:
                server.process.signal(signal.SIGCONT)
                try:
                    wait_for_lines(server.place.folder / PEERS[server.name].log, server.answered)
                except WrongAnswerError as error:
                    self.results.failures["hits-logged", server.name] = str(error)


def wait_for_lines(file: Path, wanted: int) -> None:
    """Raises WrongAnswerError if the log has not a line for each request within five seconds."""
    until = time.monotonic() + 5
    while (lines := file.read_bytes().count(b"\n")) < wanted:
        if time.monotonic() > until:
            raise WrongAnswerError(f"{file.name}: {lines} lines for {wanted} requests")
        time.sleep(0.1)


def measure(stage: Stage, measurement: str, turn: int) -> None:
    """Measure all that take part, in an order that every round begins with another one."""
    names = [name for name in participants(measurement) if name in stage.servers]
    first = turn % max(1, len(names))
    for name in [*names[first:], *names[:first]]:
        if (measurement, name) in stage.results.failures:
            continue
        try:
            sample = METHODS.get(measurement, by_load)(stage, measurement, stage.servers[name])
        except DISTURBANCES as error:
            stage.results.failures[measurement, name] = f"{type(error).__name__}: {error}"
            continue
        stage.results.add(measurement, name, turn, sample)


def participants(measurement: str) -> tuple[str, ...]:
    """The servers that a measurement is made of."""
    others = {LATENCY: LATENT, MEMORY: WEIGHED, FILLING: WEIGHED, START: STARTED}
    return LOADS[measurement].servers if measurement in LOADS else others.get(measurement, ())


def by_load(stage: Stage, measurement: str, server: Server) -> Sample:
    """wrk's load on one server."""
    load = LOADS[measurement]
    fields = BROWSER if load.browser else ()
    with server.process.awake():
        first = stage.new_keys() if load.kind == "stored" else 0
        path = f"/key/{first - 1}" if first else load.path
        if load.kind == "hit":
            prepare(server, load, fields)
        server.check(path, fields, hit=load.kind == "hit")
        ask = asking(server, load, path, first or load.keys, stage.settings.seconds)
        before = server.counter.read()
        used, busy, begun = server.process.cpu_seconds(), stage.busy(), time.perf_counter()
        run = ask()
        lasted, busy, used = (
            time.perf_counter() - begun,
            stage.busy() - busy,
            server.process.cpu_seconds() - used,
        )
        others = max(0.0, busy - used)
        arrived = server.counter.read() - before
        check_arrived(server, load, run, arrived)
        server.answered += run.requests
        if load.kind == "stored":
            for number in range(5):
                # wrk asks the script for one request more beforehand, to look at it.
                server.check(f"/key/{first + 1 + number * run.requests // 6}", fields, hit=True)
        else:
            server.check(path, fields, hit=load.kind == "hit")
    return Sample(run.rate, run.requests / max(used, 0.01), used / lasted, others / lasted)


def asking(server: Server, load: Load, path: str, keys: int, seconds: int) -> Callable[[], wrk.Run]:
    """The load for so many seconds: wrk's, or h2load's where the server has TLS."""
    if PEERS[server.name].has_tls:
        secure = h2load.command(f"https://127.0.0.1:{server.port}{path}", seconds)
        return lambda: h2load.run(secure, seconds + 30)
    fields = BROWSER if load.browser else ()
    arguments = [keys] if load.script else []
    plain = wrk.command(f"http://127.0.0.1:{server.port}{path}", seconds, fields, load.script, arguments)
    return lambda: wrk.run(plain, seconds + 30)


def prepare(server: Server, load: Load, fields: Sequence[str]) -> None:
    """Have the server store what will be asked for."""
    until = time.monotonic() + 5
    while server.name != "bare" and time.monotonic() < until:
        # A response may be stored a moment after it was sent.
        if PEERS[server.name].hit(server.right(load.path, fields).fields):
            break
    if load.keys > 1 and not server.holds_keys:
        fill(server.port, range(1, load.keys + 1), KEY_OCTETS, wrk.CONNECTIONS)
        server.holds_keys = True


def check_arrived(server: Server, load: Load, run: wrk.Run, arrived: int) -> None:
    """Raises WrongAnswerError if a hit reached the origin, or a miss did not; wrk leaves some under way."""
    is_hit = load.kind == "hit" and server.name != "bare"
    least, most = (0, 0) if is_hit else (run.requests, run.requests + wrk.CONNECTIONS)
    if not least <= arrived <= most:
        raise WrongAnswerError(f"{arrived} requests arrived at the origin, {least} to {most} had to")


def latency(stage: Stage, _: str, server: Server) -> Sample:
    """The p99 in seconds at half of univocal's rate of hits."""
    rate = stage.results.rate = stage.results.rate or half_of_univocal(stage)
    with server.process.awake():
        right(server.port, "/hit")
        server.check("/hit", (), hit=True)
        before = server.counter.read()
        seconds = max(1, stage.settings.seconds)
        found = at_rate(server.port, "/hit", KEY_OCTETS, rate, seconds, wrk.CONNECTIONS)
        if server.counter.read() != before:
            raise WrongAnswerError("a hit reached the origin")
        server.check("/hit", (), hit=True)
    stage.results.late = max(stage.results.late, found.late)
    return Sample(found.p99)


def half_of_univocal(stage: Stage) -> float:
    """Half of the rate that univocal had in this run, or has in one second now."""
    known = stage.results.samples.get(("hits-1", "univocal"))
    if known:
        return HALF * next(iter(known.values())).value
    server = stage.servers["univocal"]
    with server.process.awake():
        return HALF * wrk.run(wrk.command(f"http://127.0.0.1:{server.port}/hit", 1), 30).rate


def memory(stage: Stage, measurement: str, server: Server) -> Sample:
    """A new server of the kind stores so many keys of 1 KiB: its resident bytes, or the seconds."""
    keys = range(1, stage.settings.keys + 1)
    with stage.one(server.name) as new:
        before = new.counter.read()
        seconds = fill(new.port, keys, KEY_OCTETS, wrk.CONNECTIONS)
        if (arrived := new.counter.read() - before) != len(keys):
            raise WrongAnswerError(f"{arrived} requests arrived at the origin for {len(keys)} keys")
        for key in keys[:: max(1, len(keys) // 20)]:
            new.check(f"/key/{key}", (), hit=True)
        return Sample(seconds if measurement == FILLING else new.process.resident())


def start(stage: Stage, _: str, server: Server) -> Sample:
    """Seconds from a new server's start to its first answer."""
    with stage.one(server.name) as new:
        right(new.port, "/hit")
        return Sample(time.perf_counter() - new.process.begun)


METHODS: dict[str, Callable[[Stage, str, Server], Sample]] = {
    LATENCY: latency,
    MEMORY: memory,
    FILLING: memory,
    START: start,
}
