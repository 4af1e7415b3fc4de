"""A worker: it serves clients until its parent says so, or is gone, and does what it is told meanwhile."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration, validate
from univocal_app.observe.event_report import EventReport
from univocal_app.processes.channel import Channel, connect
from univocal_app.processes.commons import Commons, Row
from univocal_app.processes.messages import (
    Adopt,
    Alive,
    Ask,
    Done,
    Drop,
    Follow,
    FromParent,
    Look,
    MessageError,
    Prepare,
    Reopen,
    Rows,
    Unfollow,
    from_parent,
)
from univocal_app.run.assemble import House, assemble
from univocal_app.run.listeners import Bound, https_port
from univocal_app.run.reload import Prepared, adopt, prepare
from univocal_app.run.repeating import Repeating
from univocal_app.run.serve import Serving, run

logger: Final = logging.getLogger("univocal")

BEAT: Final = 1.0  # seconds between two signs of life
PAGE: Final = 250  # rows of an answer that are sent together, a millisecond's work

_NOTHING_PREPARED: Final = ConfigurationError("worker", "", None, "a configuration that is prepared")


@dataclass(frozen=True)
class Task:
    """A worker's task: the target of `Workers`, sent to another process."""

    configuration: Configuration
    source: str
    front: tuple[Bound, ...]
    directory: Path
    store: Path | None = None

    def __call__(self, name: str, bound: socket.socket) -> None:
        """Serve until the parent says so, or is gone; `bound` is this end of the channel."""
        _call_itself(f"univocal: worker {name}")
        commons = Commons(self.directory, name, self.store)
        house = assemble(self.configuration, self.source, commons, https_port(self.front))

        async def start() -> None:
            await worker.listen(bound)
            await house.start()

        serving = Serving([*map(house.front, self.front)], start, house.aclose, patience=house.patience)
        worker = Worker(house, serving)

        def attend(serving: Serving) -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.leave)

        run(serving, worker.live, attend, {signal.SIGUSR1: house.log.reopen})


def _call_itself(title: str) -> None:
    """Show a title in the list of processes."""
    try:
        from setproctitle import setproctitle  # noqa: PLC0415 - absent on PyPy
    except ImportError:
        return
    setproctitle(title)


class Worker:
    """A worker's end of the channel: it does what the parent says, and ends with it."""

    def __init__(self, house: House, serving: Serving) -> None:
        self._house, self._serving = house, serving
        self._prepared: Prepared | None = None
        self._changing: asyncio.Task[None] | None = None  # the last of those that follow one another
        self._answering: asyncio.Task[None] | None = None
        self._living = Repeating(BEAT, self._beat)

    async def listen(self, bound: socket.socket) -> None:
        """Hear the parent from now on."""
        early, is_there = list[FromParent](), False

        def hear(message: FromParent) -> None:  # the first may come before `connect` returns
            if is_there:
                self.hear(message)
            else:
                early.append(message)

        self._channel: Channel[FromParent] = await connect(bound, from_parent, hear, self._over)
        self._report = EventReport(self._house.proxy.engine.audience.listeners, self._channel)
        is_there = True
        for message in early:
            self.hear(message)

    def live(self) -> None:
        """Give signs of life from now on, and write down what is counted."""
        self._beat()
        self._living.begin()

    def hear(self, message: FromParent) -> None:
        """Do what the parent says."""
        match message:
            case Reopen():
                self._house.log.reopen()
            case Look(number=number):
                self._house.look()
                self._channel.say(Done(number=number))
            case Follow(number=number):
                self._report.begin()
                self._channel.say(Done(number=number))
            case Unfollow():
                self._report.end()
            case Ask(number=number, about=about):
                self._house.proxy.engine.audience.settle()
                answer = self._answer(number, self._house.survey.own(about))
                self._answering = _after(self._answering, answer)
            case Prepare() | Adopt() | Drop():
                self._changing = _after(self._changing, self._change(message))

    def _beat(self) -> None:
        self._house.look()
        if not self._channel.waiting:  # or the parent has not heard the last
            self._channel.say(Alive())

    def _over(self, error: MessageError | None) -> None:
        if error is not None:
            logger.error("invalid message from the parent process: %s", error)
        self._serving.end()

    async def _answer(self, number: int, rows: list[Row]) -> None:
        for first in range(0, len(rows), PAGE):
            await self._channel.taken()
            self._channel.say(Rows.of(number, rows[first : first + PAGE]))
            await asyncio.sleep(0)  # in which clients are served
        self._channel.say(Done(number=number))

    async def _change(self, message: Prepare | Adopt | Drop) -> None:
        match message:
            case Prepare(number=number) as asked:
                self._forget()
                try:
                    self._prepared = await asyncio.to_thread(self._prepare, asked)
                except ConfigurationError as error:
                    self._channel.say(Done.but_for(number, error))
                else:
                    self._channel.say(Done(number=number))
            case Adopt(number=number) if self._prepared is not None:
                prepared, self._prepared = self._prepared, None
                await adopt(self._house, prepared)
                self._channel.say(Done(number=number))
            case Adopt(number=number):  # it began after the others were asked, by what was in force then
                self._channel.say(Done.but_for(number, _NOTHING_PREPARED))
            case Drop():
                self._forget()

    def _prepare(self, asked: Prepare) -> Prepared:
        configuration = validate(asked.configuration, self._house.source)
        written = [(tuple(path), text) for path, text in asked.as_written]
        return prepare(self._house, configuration.with_written(written))

    def _forget(self) -> None:
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None


def _after(before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Do some work after what is under way."""

    async def both() -> None:
        if before is not None:
            await asyncio.wait([before])
        await work

    return asyncio.get_running_loop().create_task(both())
