"""One process, or several that serve one socket: their parent starts, watches, tells and ends them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import shutil
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final, TypeVar

from univocal.http.errors import Objections
from univocal.store.file.directory import locked, new_in_memory
from univocal_app.config.tables import Configuration, settings_of
from univocal_app.observe.admin import Drains, Life, ReloadError
from univocal_app.observe.events import Event
from univocal_app.observe.survey import Row
from univocal_app.processes.commons import PARENT, Commons
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import https_port
from univocal_app.run.program import Program, WorkersError
from univocal_app.run.reload import Reload
from univocal_app.run.serve import HELD, Serving, run
from univocal_app.run.worker import BEAT, Lifeline, Task, hold
from univocal_app.run.worker_client import AnswerError, WorkerClient

logger: Final = logging.getLogger("univocal")

SILENCE: Final = 30.0  # seconds without one after which a worker is taken for hung and killed
START: Final = 60.0  # seconds that a worker has to start, in which it gives none
PAUSE: Final = 1.0  # seconds before a worker that ended is replaced
LOOK: Final = 2.0  # seconds that a worker has to write down what it has counted
PATIENCE: Final = 3.0  # seconds that a worker has to tell what it has counted, or to send its exchanges
ANSWER: Final = 30.0  # seconds that a worker has to prepare a configuration, or to put it into force

Answered = TypeVar("Answered")

# A new interpreter each, since a fork of a process with an event loop would take half of that along.
_NEW: Final = multiprocessing.get_context("spawn")


def supervise(program: Program) -> None:
    """Serve clients by `workers` processes and the admin listener by this one.

    To the shared store each is a node. Raises ConfigurationError, or WorkersError.
    """
    with _figures() as directory, _memory_of_all(program.configuration) as store:
        configuration, listeners = program.configuration, program.listeners
        proxy = Proxy(configuration, Commons(directory, PARENT, store), https_port(listeners.front))

        def task() -> Task:
            return Task(proxy.configuration, listeners.front, directory, store)

        count, figures = configuration.server.workers, proxy.figures
        workers = Workers(count, task, directory, figures.forget, proxy.events.relay)
        proxy.survey.others, proxy.events.reporters = workers.rows, workers
        reload = Reload(proxy, program.read, program.tell, program.notices, workers)

        def ending(at_once: bool) -> None:
            for each in listeners.front:
                each.socket.close()
            proxy.events.close()
            workers.end(at_once)

        def reopen() -> None:
            proxy.log.reopen()
            workers.reopen()

        serving = Serving(
            [],
            [proxy.start, workers.start],
            [workers.aclose, proxy.aclose],
            ending,
            patience=proxy.patience,
            leaving=program.notices.stopping,
        )
        drains = Drains(partial(_drain, proxy, workers), lambda: proxy.drained)
        life = Life(lambda: workers.accepting, lambda: serving.is_leaving, reload, workers.look, drains)
        serving.listen(proxy.back(each, life) for each in listeners.back)
        run(serving, program.ready, hears={signal.SIGHUP: reload.begin, signal.SIGUSR1: reopen})


async def _drain(proxy: Proxy, workers: Workers, urls: frozenset[str]) -> None:
    """Have the origin servers of these URLs taken out in every process, and no others."""
    await proxy.drain(urls)
    await workers.look()


@contextmanager
def _figures() -> Iterator[Path]:
    """A directory in memory for everybody's figures; the next program removes that of a killed one."""
    held = new_in_memory()
    lock = locked(held / "lock")
    try:
        (figures := held / "figures").mkdir(0o700)
        yield figures
    finally:
        shutil.rmtree(held, ignore_errors=True)
        lock.close()


@contextmanager
def _memory_of_all(configuration: Configuration) -> Iterator[Path | None]:
    """A directory in memory for what several processes store, if it is memory that they are to store in."""
    if configuration.cache.store != "memory":
        yield None
        return
    directory = new_in_memory()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(eq=False)
class _Worker:
    """One process, its lifeline, and the client that asks it."""

    name: str
    process: multiprocessing.process.BaseProcess
    client: WorkerClient
    news: asyncio.Event = field(default_factory=asyncio.Event)  # a sign of life, or the end of them
    is_over: bool = False

    async def hold(self, bound: socket.socket) -> None:
        self.lifeline: Lifeline = await hold(bound, self.news.set, self._over)

    def end(self, *, at_once: bool) -> None:
        if at_once:
            with suppress(ValueError):  # it ended meanwhile, and was waited for
                self.process.kill()
        else:
            self.lifeline.end()

    def follow(self, relay: Callable[[Event | int], None]) -> asyncio.Future[None]:
        """Have `relay` get its exchanges; the future is done when it reports, or will not."""
        begun, ended = self.client.follow(relay)
        ended.add_done_callback(lambda _: self._check(None if ended.cancelled() else ended.exception()))
        return begun

    async def ask(self, question: Callable[[WorkerClient], Awaitable[Answered]]) -> Answered | Exception:
        """Ask; its answer, or why there is none. A worker whose answer is invalid is killed."""
        try:
            return await question(self.client)
        except (TimeoutError, AnswerError) as error:
            self._check(error)
            return error

    def _check(self, error: BaseException | None) -> None:
        if isinstance(error, AnswerError):
            logger.error("worker %s sent an invalid answer: %s", self.name, error)
            self.end(at_once=True)

    def _over(self) -> None:
        self.is_over = True
        self.news.set()


class Workers:
    """The processes that run `target()(name, lifeline, asked)`, each under a name from "1" to "count".

    Both are sockets: a worker's end of its lifeline, and one that listens in `directory`, at which it is
    asked. Call `start` and `aclose` in one event loop. `forget` gets the name of each worker that has ended,
    `relay` the exchanges of each while they are followed.
    """

    def __init__(
        self,
        count: int,
        target: Callable[[], Callable[[str, socket.socket, socket.socket], None]],
        directory: Path,
        forget: Callable[[str], None] = lambda _: None,
        relay: Callable[[Event | int], None] = lambda _: None,
        *,
        silence: float = SILENCE,
    ) -> None:
        self._target, self._directory, self._silence = target, directory, silence
        self._forget, self._relay = forget, relay
        self._names = [str(number) for number in range(1, count + 1)]
        self._there: dict[str, _Worker] = {}
        self._accepting = set[str]()
        self._follows = False
        self._number = 0  # of the last configuration that they were to prepare
        self._tasks: list[asyncio.Task[None]] = []
        self._orders = set[asyncio.Task[Any]]()  # that are not waited for
        self._started, self._end = asyncio.Event(), asyncio.Event()

    @property
    def accepting(self) -> int:
        """The number of those that accept connections."""
        return len(self._accepting)

    async def start(self) -> None:
        """Start all and wait until they accept connections. Raises WorkersError if one ends before."""
        self._tasks = [asyncio.create_task(self._keep(name)) for name in self._names]
        await self._started.wait()
        if self.accepting < len(self._names) and not self._end.is_set():
            raise WorkersError("a worker could not be started")

    def end(self, at_once: bool) -> None:
        """End them once nothing is under way, or kill them."""
        self._end.set()
        self._started.set()
        for worker in self._there.values():
            worker.end(at_once=at_once)

    def reopen(self) -> None:
        """Have them open their logs anew."""
        self._order("/-/reopen")

    async def look(self) -> None:
        """Have each write down all that has ended by now; one that does not answer soon is not waited for."""
        await self._ask(lambda client: client.order("/-/look", LOOK))

    async def rows(self, about: str, shape: str) -> list[Row]:
        """Rows of this shape: what the workers that answer in time have counted about something."""
        answers = await self._ask(lambda client: client.rows(about, shape, PATIENCE))
        return [row for answer in answers.values() if not isinstance(answer, Exception) for row in answer]

    async def follow(self) -> None:
        """Have each send its exchanges, those that come later, too; returns when they do, or soon after."""
        self._follows = True
        if begun := [worker.follow(self._relay) for worker in self._there.values()]:
            await asyncio.wait(begun, timeout=PATIENCE)

    def unfollow(self) -> None:
        """Have none of them send its exchanges."""
        self._follows = False
        for worker in self._there.values():
            worker.client.unfollow()

    async def prepare(self, configuration: Configuration) -> None:
        """Prepare a configuration in each of them, or in none. Raises ConfigurationError, and ReloadError."""
        objections, there, silent = Objections(), dict(self._there), list[str]()
        document = {"configuration": settings_of(configuration), "as_written": list(configuration.as_written)}
        self._number += 1
        target = f"/-/prepare?number={self._number}"
        answers = await self._ask(lambda client: client.order(target, ANSWER, document))
        for name, answer in answers.items():
            if not isinstance(answer, Exception):
                objections.errors += answer
            elif self._there.get(name) is there[name]:  # who takes the place of another reads it himself
                silent.append(name)
        if objections.errors or silent:
            self._order(f"/-/drop?number={self._number}")
        objections.conclude()
        if silent:
            raise ReloadError(
                f"not reloaded: no configuration prepared in time by worker {', '.join(silent)}"
            )

    async def adopt(self) -> None:
        """Put the prepared configuration into force; replace a worker that fails. Raises ReloadError."""
        there, failed = dict(self._there), list[str]()
        target = f"/-/adopt?number={self._number}"
        for name, answer in (await self._ask(lambda client: client.order(target, ANSWER))).items():
            if answer:
                there[name].end(at_once=True)
                failed.append(name)
        if failed:
            why = "reloaded; replaced, since they did not take the new configuration"
            raise ReloadError(f"{why}: worker {', '.join(failed)}")

    def _order(self, target: str) -> None:
        """Give all of them an order, without a wait until it is carried out."""
        task = asyncio.create_task(self._ask(lambda client: client.order(target, ANSWER)))
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)

    async def _ask(
        self, question: Callable[[WorkerClient], Awaitable[Answered]]
    ) -> dict[str, Answered | Exception]:
        """The answer of each worker that there is now, or why there is none."""
        there = dict(self._there)
        answers = await asyncio.gather(*(worker.ask(question) for worker in there.values()))
        return dict(zip(there, answers, strict=True))

    async def aclose(self) -> None:
        """End them, and wait until none is left."""
        self.end(at_once=False)
        if self._tasks:
            await asyncio.gather(*self._tasks)

    async def _keep(self, name: str) -> None:
        while not self._end.is_set():
            try:
                fate = await self._one(name)
            except OSError as error:  # no descriptor, or no memory, for one more
                fate = f"cannot be started ({error})"
            self._forget(name)
            if not self._started.is_set():
                self._started.set()  # in vain
                return
            if self._end.is_set():
                return
            logger.warning("worker %s %s: a new worker replaces it", name, fate)
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._end.wait()

    async def _one(self, name: str) -> str:
        """Start a worker, wait for its end and return how it was. Raises OSError if there can be none."""
        path = self._directory / f"{name}.socket"
        path.unlink(missing_ok=True)
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as failing, socket.socket(socket.AF_UNIX) as asked:
            failing.callback(ours.close)
            asked.bind(str(path))
            asked.listen()
            target, title = self._target(), f"univocal worker {name}"
            process = _NEW.Process(target=target, args=(name, theirs, asked), name=title)
            # A Ctrl-C, or its end, reaches all processes of a terminal; workers hear of it from their parent.
            resource_tracker.ensure_running()  # which would be started with the first, and unblock the signal
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *HELD})
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            failing.pop_all()
        worker = _Worker(name, process, WorkerClient(path))
        await worker.hold(ours)
        self._there[name] = worker
        if self._follows:
            worker.follow(self._relay)
        if self._end.is_set():  # meanwhile
            worker.end(at_once=False)
        try:
            await self._listen(worker, name)
        except TimeoutError:
            logger.error("worker %s does not answer for %g seconds: it is killed", name, self._patience(name))
            process.kill()
        finally:
            self._accepting.discard(name)
            del self._there[name]
            worker.lifeline.close()
            await worker.client.aclose()
            await asyncio.to_thread(process.join, self._silence)
            process.kill()  # should it hang on its way out
            await asyncio.to_thread(process.join)
        fate = _fate(process.exitcode)
        process.close()
        return fate

    def _patience(self, name: str) -> float:
        return self._silence if name in self._accepting else max(START, self._silence)

    async def _listen(self, worker: _Worker, name: str) -> None:
        """Listen until the worker has ended, which closes its end of the channel. Raises TimeoutError."""
        silent = False
        while not worker.is_over:
            try:
                async with asyncio.timeout(BEAT if silent else self._patience(name)):
                    await worker.news.wait()
            except TimeoutError:
                if silent:
                    raise
                silent = True  # or it was this process that stood still, and signs of life wait to be read
                continue
            worker.news.clear()
            silent = False
            if not worker.is_over:
                self._accepting.add(name)
            if self.accepting == len(self._names):
                self._started.set()


def _fate(status: int | None) -> str:
    """The end of a process in words: multiprocessing tells a signal as a negative status."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
