"""One process, or several that serve one socket: their parent starts, watches, tells and ends them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Final

from univocal.http.errors import ConfigurationError, Objections
from univocal.store.file.byte_locks import ByteLocks
from univocal.store.file.directory import new_in_memory
from univocal_app.config.tables import Configuration, settings_of
from univocal_app.observe.admin_drain import Drains
from univocal_app.observe.admin_life import Life, NotTakenError
from univocal_app.processes.channel import Channel, WorkerAnswer, WorkerAnswers, connect
from univocal_app.processes.commons import PARENT, Commons, Row
from univocal_app.processes.messages import (
    Adopt,
    Alive,
    Ask,
    Asking,
    Drop,
    EventBatch,
    Follow,
    FromWorker,
    Look,
    MessageError,
    Prepare,
    Reopen,
    Unfollow,
    from_worker,
)
from univocal_app.run.assemble import House, assemble
from univocal_app.run.listeners import Bound, https_port
from univocal_app.run.program import Program, WorkersError
from univocal_app.run.reload import Reload
from univocal_app.run.serve import HELD, Serving, run
from univocal_app.run.worker import BEAT, Task

logger: Final = logging.getLogger("univocal")

SILENCE: Final = 30.0  # seconds without one after which a worker is taken for hung and killed
START: Final = 60.0  # seconds that a worker has to start, in which it gives none
PAUSE: Final = 1.0  # seconds before a worker that ended is replaced
LOOK: Final = 2.0  # seconds that a worker has to write down what it has counted
PATIENCE: Final = 3.0  # seconds that a worker has to tell what it has counted, or to send its exchanges
ANSWER: Final = 30.0  # seconds that a worker has to prepare a configuration, or to put it into force

_IN_TIME: Final = "did not prepare the configuration in time"

# A new interpreter each, since a fork of a process with an event loop would take half of that along.
_NEW: Final = multiprocessing.get_context("spawn")


def supervise(program: Program) -> None:
    """Serve clients by `workers` processes and the admin listener by this one.

    To the shared store each is a node. Raises ConfigurationError, or WorkersError.
    """
    with _figures() as directory, _memory_of_all(program.configuration) as store:
        source, listeners = program.source, program.listeners
        configuration, commons = program.configuration, Commons(directory, PARENT, store)
        house = assemble(configuration, source, commons, https_port(listeners.front))
        task, count = partial(_task, house, listeners.front, directory, store), configuration.server.workers
        workers = Workers(count, task, house.forget, house.events.relay)
        house.survey.others = house.events.reporters = workers
        reload = Reload(house, program.read, program.tell, program.notices, workers)
        drains = Drains(partial(_drain, house, workers))
        life = Life(lambda: workers.accepting, lambda: serving.is_leaving, reload, workers.look, drains)

        async def start() -> None:
            await house.start()
            await workers.start()

        def ending(at_once: bool) -> None:
            for each in listeners.front:
                each.socket.close()
            house.events.close()
            workers.end(at_once)

        async def close() -> None:
            await workers.aclose()
            await house.aclose()

        def reopen() -> None:
            house.log.reopen()
            workers.reopen()

        serving = Serving(
            [house.back(each, life) for each in listeners.back],
            start,
            close,
            ending,
            patience=house.patience,
            leaving=program.notices.stopping,
        )
        run(serving, program.ready, hears={signal.SIGHUP: reload.begin, signal.SIGUSR1: reopen})


def _task(house: House, front: tuple[Bound, ...], directory: Path, store: Path | None) -> Task:
    return Task(house.configuration, house.source, front, directory, store)


async def _drain(house: House, workers: Workers, urls: frozenset[str]) -> None:
    """Have the origin servers of these URLs taken out in every process, and no others."""
    house.drain(urls)
    await workers.look()


@contextmanager
def _figures() -> Iterator[Path]:
    """A directory in memory for everybody's figures; the next program removes that of a killed one."""
    held = new_in_memory()
    lock = ByteLocks(held / "lock")
    try:
        lock.share(0)
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
    """One process, and this end of the channel to it."""

    name: str
    process: multiprocessing.process.BaseProcess
    relay: Callable[[EventBatch], None]
    answers: WorkerAnswers = field(default_factory=WorkerAnswers)
    news: asyncio.Event = field(default_factory=asyncio.Event)  # a message, or the end of them
    is_over: bool = False
    error: MessageError | None = None  # why it is over

    async def connect(self, bound: socket.socket) -> None:
        self.channel: Channel[FromWorker] = await connect(bound, from_worker, self._hear, self._over)

    def end(self, *, at_once: bool) -> None:
        if at_once:
            with suppress(ValueError):  # it ended meanwhile, and was waited for
                self.process.kill()
        else:
            self.channel.end()

    async def ask(self, message: Asking, seconds: float) -> WorkerAnswer:
        """Send a message and return its answer. Raises TimeoutError if there is none in time, or no more."""
        return await self.answers.to(message, self.channel, seconds)

    def _hear(self, message: FromWorker) -> None:
        self.news.set()
        if isinstance(message, EventBatch):
            self.relay(message)
        elif not isinstance(message, Alive):
            self.answers.hear(message)

    def _over(self, error: MessageError | None) -> None:
        self.is_over, self.error = True, error
        self.answers.end()
        self.news.set()


class Workers:
    """The processes that run `target()(name, socket)`, each under a name from "1" to "count".

    The socket is a worker's end of its channel. Call `start` and `aclose` in one event loop. `forget` gets
    the name of each worker that has ended, `relay` the exchanges of each while they are followed.
    """

    def __init__(
        self,
        count: int,
        target: Callable[[], Callable[[str, socket.socket], None]],
        forget: Callable[[str], None] = lambda _: None,
        relay: Callable[[EventBatch], None] = lambda _: None,
        *,
        silence: float = SILENCE,
    ) -> None:
        self._target, self._forget, self._silence = target, forget, silence
        self._relay = relay
        self._names = [str(number) for number in range(1, count + 1)]
        self._there: dict[str, _Worker] = {}
        self._accepting = set[str]()
        self._numbers = itertools.count(1)  # of what is asked
        self._follows = False
        self._tasks: list[asyncio.Task[None]] = []
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
        """Let them end what is under way, or kill them."""
        self._end.set()
        self._started.set()
        for worker in self._there.values():
            worker.end(at_once=at_once)

    def reopen(self) -> None:
        """Let them open their logs anew."""
        for worker in self._there.values():
            worker.channel.say(Reopen())

    async def look(self) -> None:
        """Have each write down all that has ended by now; one that does not answer soon is not waited for."""
        await self._ask(Look(number=next(self._numbers)), LOOK)

    async def rows(self, about: str) -> list[Row]:
        """The rows that the workers have counted about something, of all that answer in time."""
        answers = await self._ask(Ask(number=next(self._numbers), about=about), PATIENCE)
        return [row for answer in answers.values() if isinstance(answer, WorkerAnswer) for row in answer.rows]

    async def follow(self) -> None:
        """Have each send its exchanges, those that come later, too; returns when they do, or soon after."""
        self._follows = True
        await self._ask(Follow(number=next(self._numbers)), PATIENCE)

    def unfollow(self) -> None:
        """Have none of them send its exchanges."""
        self._follows = False
        for worker in self._there.values():
            worker.channel.say(Unfollow())

    async def prepare(self, configuration: Configuration) -> None:
        """Let each prepare a configuration, or none. Raises ConfigurationError with what any objects to."""
        objections, there = Objections(), dict(self._there)
        written = [(list(path), text) for path, text in configuration.as_written]
        settings = settings_of(configuration)
        message = Prepare(number=next(self._numbers), configuration=settings, as_written=written)
        for name, answer in (await self._ask(message, ANSWER)).items():
            if isinstance(answer, WorkerAnswer):
                objections.errors += answer.done.errors
            elif isinstance(answer, MessageError):
                objections.errors.append(ConfigurationError(f"worker {name}", "", None, "", str(answer)))
            elif self._there.get(name) is there[name]:  # who takes the place of another reads it himself
                objections.errors.append(ConfigurationError(f"worker {name}", "", None, "", _IN_TIME))
        if objections.errors:
            for worker in there.values():
                worker.channel.say(Drop())
        objections.conclude()

    async def adopt(self) -> None:
        """Let each put into force what is prepared; one that does not is replaced. Raises NotTakenError."""
        there, failed = dict(self._there), list[str]()
        for name, answer in (await self._ask(Adopt(number=next(self._numbers)), ANSWER)).items():
            if not isinstance(answer, WorkerAnswer) or answer.done.errors:
                there[name].end(at_once=True)
                failed.append(name)
        if failed:
            raise NotTakenError(
                f"replaced, since they did not take the new configuration: worker {', '.join(failed)}"
            )

    async def _ask(self, message: Asking, seconds: float) -> dict[str, WorkerAnswer | BaseException]:
        """The answer of each worker that there is now, or why there is none."""
        there = dict(self._there)
        answers = await asyncio.gather(
            *(worker.ask(message, seconds) for worker in there.values()), return_exceptions=True
        )
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
                await asyncio.wait_for(self._end.wait(), PAUSE)

    async def _one(self, name: str) -> str:
        """Start a worker, wait for its end and return how it was. Raises OSError if there can be none."""
        ours, theirs = socket.socketpair()
        process = _NEW.Process(target=self._target(), args=(name, theirs), name=f"univocal worker {name}")
        # A Ctrl-C, or its end, reaches all processes of a terminal; the workers hear of it from their parent.
        resource_tracker.ensure_running()  # which would be started with the first, and unblock the signal
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *HELD})
        try:
            with theirs:
                process.start()
        except OSError:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        worker = _Worker(name, process, self._relay)
        await worker.connect(ours)
        self._there[name] = worker
        if self._follows:
            worker.channel.say(Follow(number=next(self._numbers)))
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
            worker.channel.close()
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
                await asyncio.wait_for(worker.news.wait(), BEAT if silent else self._patience(name))
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
        if worker.error is not None:
            logger.error("worker %s sent an invalid message: %s", name, worker.error)
            worker.process.kill()


def _fate(status: int | None) -> str:
    """The end of a process in words: multiprocessing tells a signal as a negative status."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
