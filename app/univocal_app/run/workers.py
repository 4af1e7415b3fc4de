"""One process, or several that serve one socket: their parent starts, watches, replaces and ends them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from univocal_app.config.tables import Configuration
from univocal_app.run.assemble import assemble
from univocal_app.run.processes import Commons
from univocal_app.run.serve import Serving, run

__all__ = ["Workers", "WorkersError", "alone", "supervise"]

logger: Final = logging.getLogger("univocal")

BEAT: Final = 1.0  # seconds between two signs of life
SILENCE: Final = 30.0  # seconds without one after which a worker is taken for hung and killed
START: Final = 60.0  # seconds that a worker has to start, in which it gives none
PAUSE: Final = 1.0  # seconds before a worker that ended is replaced

# A new interpreter each, since a fork of a process with an event loop would take half of that along.
_NEW: Final = multiprocessing.get_context("spawn")


class WorkersError(Exception):
    """A worker ended before all of them accepted connections; it has said why."""


def alone(
    configuration: Configuration,
    source: str,
    front: socket.socket,
    back: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Serve both listeners by this one process. Raises ConfigurationError."""
    house = assemble(configuration, source)
    endpoints = [house.front(front), house.back(back)]
    serving = Serving(endpoints, house.start, house.aclose, lambda _: house.events.close())
    run(serving, ready, reopen=house.log.reopen)


def supervise(
    configuration: Configuration,
    source: str,
    front: socket.socket,
    back: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Serve `front` by `workers` processes and the admin listener, at `back`, by this one.

    To the shared store each is a node. Raises ConfigurationError, or WorkersError.
    """
    with TemporaryDirectory(prefix="univocal-") as name:
        directory = Path(name)
        house = assemble(configuration, source, Commons(directory, "parent"))
        task = Task(configuration, source, front, directory)
        workers = Workers(configuration.server.workers, task, house.forget)

        async def start() -> None:
            await house.start()
            await house.events.gather(directory)
            await workers.start()

        def ending(at_once: bool) -> None:
            front.close()
            house.events.close()
            workers.end(at_once)

        async def close() -> None:
            await workers.aclose()
            await house.aclose()

        def reopen() -> None:
            house.log.reopen()
            workers.reopen()

        serving = Serving([house.back(back, lambda: workers.accepting)], start, close, ending)
        run(serving, ready, reopen=reopen)


# ── the parent's side ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class _Worker:
    """One process, and the channel on which it gives signs of life."""

    process: multiprocessing.process.BaseProcess
    channel: asyncio.StreamWriter

    def end(self, *, at_once: bool) -> None:
        if at_once:
            self.process.kill()
        elif not self.channel.is_closing():
            self.channel.write_eof()

    def reopen(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)


class Workers:
    """The processes that run `target(name, channel)`, each under a name from "1" to "count".

    Call `start` and `aclose` in one event loop. `forget` is called with the name of each that has ended.
    """

    def __init__(
        self,
        count: int,
        target: Callable[[str, socket.socket], None],
        forget: Callable[[str], None] = lambda _: None,
        *,
        silence: float = SILENCE,
    ) -> None:
        self._target, self._forget, self._silence = target, forget, silence
        self._names = [str(number) for number in range(1, count + 1)]
        self._there: dict[str, _Worker] = {}
        self._accepting = set[str]()
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
            worker.reopen()

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
        """Start a worker and wait for its end: how it was. Raises OSError if there can be none."""
        ours, theirs = socket.socketpair()
        process = _NEW.Process(target=self._target, args=(name, theirs), name=f"univocal worker {name}")
        # A Ctrl-C reaches all processes of a terminal; the workers hear of it from their parent.
        resource_tracker.ensure_running()  # which would be started with the first, and unblock the signal
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
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
            await self._listen(name, reader)
        except TimeoutError:
            logger.error("worker %s has given no sign of life for %g seconds", name, self._patience(name))
            process.kill()
        finally:
            self._accepting.discard(name)
            del self._there[name]
            channel.close()
            await asyncio.to_thread(process.join, self._silence)
            process.kill()  # should it hang on its way out
            await asyncio.to_thread(process.join)
        fate = _fate(process.exitcode)
        process.close()
        return fate

    def _patience(self, name: str) -> float:
        return self._silence if name in self._accepting else max(START, self._silence)

    async def _listen(self, name: str, reader: asyncio.StreamReader) -> None:
        """Until the worker has ended, which closes its end of the channel. Raises TimeoutError."""
        silent = False
        while True:
            try:
                said = await asyncio.wait_for(reader.read(64), BEAT if silent else self._patience(name))
            except TimeoutError:
                if silent:
                    raise
                silent = True  # or it was this process that stood still, and signs of life wait to be read
                continue
            if not said:
                return
            silent = False
            self._accepting.add(name)
            if self.accepting == len(self._names):
                self._started.set()


def _fate(status: int | None) -> str:
    """The end of a process in words: multiprocessing tells a signal as a negative status."""
    if status is not None and status < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


# ── a worker's side ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Task:
    """A worker's task: the target of `Workers`, sent to another process."""

    configuration: Configuration
    source: str
    front: socket.socket
    directory: Path

    def __call__(self, name: str, channel: socket.socket) -> None:
        """Serve until the parent says so, or is gone."""
        house = assemble(self.configuration, self.source, Commons(self.directory, name))

        async def start() -> None:
            await house.start()
            await house.events.report(self.directory)

        serving = Serving([house.front(self.front)], start, house.aclose)
        channel.setblocking(False)

        def attend(serving: Serving) -> None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, serving.end)
            loop.add_reader(channel, hear)

        def hear() -> None:
            asyncio.get_running_loop().remove_reader(channel)
            serving.end()

        def live() -> None:
            house.look()
            with suppress(OSError):
                channel.send(b".")
            asyncio.get_running_loop().call_later(BEAT, live)

        run(serving, live, attend, house.log.reopen)
