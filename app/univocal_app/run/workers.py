"""One process, or several that serve one socket: their parent starts, watches, tells and ends them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from univocal.http.errors import ConfigurationError, Objections
from univocal_app.config.tables import Configuration
from univocal_app.observe.admin_life import Life, NotTakenError
from univocal_app.processes import PARENT, Commons
from univocal_app.run.assemble import assemble
from univocal_app.run.channel import Frames, Look, Message, Prepare, Told, Word, frame
from univocal_app.run.reload import Read, Reload
from univocal_app.run.serve import HELD, Serving, run
from univocal_app.run.systemd import Notices
from univocal_app.run.worker import BEAT, Task

__all__ = ["Program", "Workers", "WorkersError", "alone", "supervise"]

logger: Final = logging.getLogger("univocal")

SILENCE: Final = 30.0  # seconds without one after which a worker is taken for hung and killed
START: Final = 60.0  # seconds that a worker has to start, in which it gives none
PAUSE: Final = 1.0  # seconds before a worker that ended is replaced
LOOK: Final = 2.0  # seconds that a worker has to write down what it has counted
ANSWER: Final = 30.0  # seconds that a worker has to prepare a configuration, or to put it into force

_IN_TIME: Final = "a worker that reads the configuration in time: this one did not answer"

# A new interpreter each, since a fork of a process with an event loop would take half of that along.
_NEW: Final = multiprocessing.get_context("spawn")


class WorkersError(Exception):
    """A worker ended before all of them accepted connections; it has said why."""


@dataclass(frozen=True)
class Program:
    """The program as it runs: what is served, on which sockets, and how the configuration is read again.

    `tell` hears lines, `serving` is said when clients are served.
    """

    configuration: Configuration
    source: str
    front: socket.socket
    back: socket.socket
    read: Read
    tell: Callable[[str], None]
    notices: Notices
    serving: str

    def ready(self) -> None:
        """Say that clients are served."""
        self.tell(self.serving)
        self.notices.ready(self.serving)


def alone(program: Program) -> None:
    """Serve both listeners by this one process. Raises ConfigurationError."""
    house = assemble(program.configuration, program.source)
    reload = Reload(house, program.read, program.tell, program.notices)
    life = Life(leaving=lambda: serving.is_leaving, reload=reload)
    serving = Serving(
        [house.front(program.front), house.back(program.back, life)],
        house.start,
        house.aclose,
        lambda _: house.events.close(),
        patience=house.patience,
        leaving=program.notices.stopping,
    )
    run(serving, program.ready, hears={signal.SIGHUP: reload.begin, signal.SIGUSR1: house.log.reopen})


def supervise(program: Program) -> None:
    """Serve clients by `workers` processes and the admin listener by this one.

    To the shared store each is a node. Raises ConfigurationError, or WorkersError.
    """
    with TemporaryDirectory(prefix="univocal-") as name:
        directory, source = Path(name), program.source
        house = assemble(program.configuration, source, Commons(directory, PARENT))
        count = program.configuration.server.workers

        def task() -> Task:
            return Task(house.configuration, source, program.front, directory)

        workers = Workers(count, task, house.forget)
        reload = Reload(house, program.read, program.tell, program.notices, workers)
        life = Life(lambda: workers.accepting, lambda: serving.is_leaving, reload, workers.look)

        async def start() -> None:
            await house.start()
            await house.events.gather(directory)
            await workers.start()

        def ending(at_once: bool) -> None:
            program.front.close()
            house.events.close()
            workers.end(at_once)

        async def close() -> None:
            await workers.aclose()
            await house.aclose()

        def reopen() -> None:
            house.log.reopen()
            workers.reopen()

        serving = Serving(
            [house.back(program.back, life)],
            start,
            close,
            ending,
            patience=house.patience,
            leaving=program.notices.stopping,
        )
        run(serving, program.ready, hears={signal.SIGHUP: reload.begin, signal.SIGUSR1: reopen})


@dataclass(eq=False)
class _Worker:
    """One process, and the channel on which it gives signs of life."""

    process: multiprocessing.process.BaseProcess
    channel: asyncio.StreamWriter
    answer: asyncio.Future[Told] | None = None  # to what it was asked
    looks: dict[int, asyncio.Future[None]] = field(default_factory=dict)  # that it was asked for

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self.process.kill()
        elif not self.channel.is_closing():
            self.channel.write_eof()

    def send(self, message: Message) -> None:
        if not self.channel.is_closing():
            self.channel.write(frame(message))

    async def ask(self, message: Message) -> Told:
        """Send a message and return the answer. Raises TimeoutError if there is none in time, or no more."""
        self.answer = asyncio.get_running_loop().create_future()
        self.send(message)
        try:
            return await asyncio.wait_for(self.answer, ANSWER)
        finally:
            self.answer = None

    async def look(self, number: int) -> None:
        """Have it write down what it has counted; returns when it has, or soon after it should have."""
        self.looks[number] = asyncio.get_running_loop().create_future()
        self.send(Look(number))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.looks[number], LOOK)
        finally:
            del self.looks[number]

    def hear(self, message: Message) -> None:
        if isinstance(message, Look):
            self._end_look(message.number)
        if isinstance(message, Told) and self.answer is not None and not self.answer.done():
            self.answer.set_result(message)

    def _end_look(self, number: int) -> None:
        look = self.looks.get(number)
        if look is not None and not look.done():
            look.set_result(None)

    def lost(self) -> None:
        """Take note that it says no more."""
        for number in self.looks:
            self._end_look(number)
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(TimeoutError("it has ended"))


class Workers:
    """The processes that run `target()(name, channel)`, each under a name from "1" to "count".

    Call `start` and `aclose` in one event loop. `forget` is called with the name of each that has ended.
    """

    def __init__(
        self,
        count: int,
        target: Callable[[], Callable[[str, socket.socket], None]],
        forget: Callable[[str], None] = lambda _: None,
        *,
        silence: float = SILENCE,
    ) -> None:
        self._target, self._forget, self._silence = target, forget, silence
        self._names = [str(number) for number in range(1, count + 1)]
        self._there: dict[str, _Worker] = {}
        self._accepting = set[str]()
        self._looks = 0  # by now
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
            worker.send(Word.REOPEN)

    async def look(self) -> None:
        """Have each write down all that has ended by now; one that does not answer soon is not waited for."""
        self._looks += 1
        there = list(self._there.values())
        await asyncio.gather(*(worker.look(self._looks) for worker in there))

    async def prepare(self, configuration: Configuration) -> None:
        """Let each prepare a configuration, or none. Raises ConfigurationError with what any objects to."""
        objections = Objections()
        asked = dict(self._there)
        answers = await asyncio.gather(
            *(worker.ask(Prepare(configuration)) for worker in asked.values()), return_exceptions=True
        )
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Told):
                objections.errors += [] if answer.error is None else [answer.error, *answer.error.beside]
            elif self._there.get(name) is asked[name]:  # who takes the place of another reads it himself
                objections.errors.append(ConfigurationError(f"worker {name}", "", None, _IN_TIME))
        if objections.errors:
            for worker in asked.values():
                worker.send(Word.DROP)
        objections.conclude()

    async def adopt(self) -> None:
        """Let each put into force what is prepared; one that does not is replaced. Raises NotTakenError."""
        asked = dict(self._there)
        answers = await asyncio.gather(
            *(worker.ask(Word.ADOPT) for worker in asked.values()), return_exceptions=True
        )
        failed = [
            name
            for name, answer in zip(asked, answers, strict=True)
            if not (isinstance(answer, Told) and answer.error is None)
        ]
        for name in failed:
            asked[name].end(at_once=True)
        if failed:
            raise NotTakenError(
                f"replaced, since they did not take the new configuration: worker {', '.join(failed)}"
            )

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
            logger.warning("worker %s %s: another takes its place", name, fate)
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
        reader, channel = await asyncio.open_connection(sock=ours)
        self._there[name] = worker = _Worker(process, channel)
        if self._end.is_set():  # meanwhile
            worker.end(at_once=False)
        try:
            await self._listen(worker, name, reader)
        except TimeoutError:
            logger.error("worker %s has given no sign of life for %g seconds", name, self._patience(name))
            process.kill()
        finally:
            self._accepting.discard(name)
            del self._there[name]
            worker.lost()
            channel.close()
            await asyncio.to_thread(process.join, self._silence)
            process.kill()  # should it hang on its way out
            await asyncio.to_thread(process.join)
        fate = _fate(process.exitcode)
        process.close()
        return fate

    def _patience(self, name: str) -> float:
        return self._silence if name in self._accepting else max(START, self._silence)

    async def _listen(self, worker: _Worker, name: str, reader: asyncio.StreamReader) -> None:
        """Listen until the worker has ended, which closes its end of the channel. Raises TimeoutError."""
        silent, frames = False, Frames()
        while True:
            try:
                said = await asyncio.wait_for(reader.read(65536), BEAT if silent else self._patience(name))
            except TimeoutError:
                if silent:
                    raise
                silent = True  # or it was this process that stood still, and signs of life wait to be read
                continue
            if not said:
                return
            silent = False
            for message in frames.feed(said):
                worker.hear(message)
            self._accepting.add(name)
            if self.accepting == len(self._names):
                self._started.set()


def _fate(status: int | None) -> str:
    """The end of a process in words: multiprocessing tells a signal as a negative status."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
