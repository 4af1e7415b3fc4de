"""A worker: it serves clients until its parent says so, or is gone, and does what it is told meanwhile."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration
from univocal_app.processes import Commons
from univocal_app.run.assemble import House, assemble
from univocal_app.run.channel import Frames, Look, Message, Prepare, Told, Word, frame
from univocal_app.run.reload import Prepared, adopt, prepare
from univocal_app.run.serve import Serving, run

__all__ = ["BEAT", "Task"]

BEAT: Final = 1.0  # seconds between two signs of life


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

        serving = Serving([house.front(self.front)], start, house.aclose, patience=house.patience)
        worker = _Hearing(house, serving, channel)

        def attend(serving: Serving) -> None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, serving.leave)
            worker.begin()

        def live() -> None:
            house.look()
            worker.say(Word.ALIVE)
            asyncio.get_running_loop().call_later(BEAT, live)

        run(serving, live, attend, {signal.SIGUSR1: house.log.reopen})


class _Hearing:
    """A worker's end of the channel: it does what the parent says, and ends with it."""

    def __init__(self, house: House, serving: Serving, channel: socket.socket) -> None:
        self._house, self._serving, self._channel = house, serving, channel
        self._frames = Frames()
        self._prepared: Prepared | None = None
        self._task: asyncio.Task[None] | None = None
        channel.setblocking(False)

    def begin(self) -> None:
        """Listen from now on."""
        asyncio.get_running_loop().add_reader(self._channel, self._hear)

    def say(self, message: Message) -> None:
        """Tell the parent, if it listens."""
        with suppress(OSError):
            self._channel.send(frame(message))

    def _hear(self) -> None:
        octets = b""
        with suppress(ConnectionError):
            octets = self._channel.recv(65536)
        if not octets:
            asyncio.get_running_loop().remove_reader(self._channel)
            self._serving.end()
        for message in self._frames.feed(octets):
            if message is Word.REOPEN:
                self._house.log.reopen()
            elif isinstance(message, Look):
                self._house.look()
                self.say(message)
            else:
                self._task = asyncio.get_running_loop().create_task(self._obey(message, self._task))

    async def _obey(self, message: Message, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        match message:
            case Prepare(configuration):
                self._forget()
                try:
                    self._prepared = await asyncio.to_thread(prepare, self._house, configuration)
                except ConfigurationError as error:
                    self.say(Told(error))
                else:
                    self.say(Told())
            case Word.ADOPT if self._prepared is not None:
                prepared, self._prepared = self._prepared, None
                await adopt(self._house, prepared)
                self.say(Told())
            case Word.ADOPT:  # it has begun since the others were asked, by what was in force then
                self.say(Told(ConfigurationError("worker", "", None, "a configuration that is prepared")))
            case _:
                self._forget()

    def _forget(self) -> None:
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None
