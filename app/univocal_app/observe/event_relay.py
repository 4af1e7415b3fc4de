"""Events of several processes: workers send theirs to the process that has the admin listener.

They are connected by a Unix socket in the directory that they have in common. The one that gathers writes "+"
when somebody begins to follow, which each of the others confirms by an empty line, and "-" when nobody does
any more. An event is a line: its site, status and cache, and its JSON, parted by tabs, of which none has any.
A line "!3" tells of three events that found no room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, cast

from univocal.engine.audience import Listener
from univocal.engine.outcome import Outcome
from univocal_app.observe.events import ROOM, Event, Follower, event_of

__all__ = ["Gathering", "report"]

logger: Final = logging.getLogger("univocal")

PATIENCE: Final = 2.0  # seconds in which each process has to confirm that it sends
MOST: Final = 4 * ROOM  # octets that wait in a process until they are sent, at most

_SOCKET: Final = "events"


class Gathering:
    """The side that gathers; `followers` gives those who follow now."""

    def __init__(self, followers: Callable[[], Collection[Follower]]) -> None:
        self._followers = followers
        self._reporters = set[_Reporter]()
        self._server: asyncio.AbstractServer | None = None

    async def start(self, directory: Path) -> None:
        """Accept the connections of others. Where there can be no such socket, their events are missing."""
        place = str(directory / _SOCKET)
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._reporter, place)
        except OSError as error:  # such as a path of more than 107 octets
            logger.warning("/-/events tells nothing of what workers do: %s: %s", place, error)

    async def on(self) -> None:
        """Have all of them send; returns when they do, or some seconds later."""
        confirmed = [reporter.on() for reporter in self._reporters]
        if confirmed:
            await asyncio.wait(confirmed, timeout=PATIENCE)

    def off(self) -> None:
        """Have none of them send."""
        for reporter in self._reporters:
            reporter.off()

    def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for reporter in list(self._reporters):
            reporter.close()

    def _reporter(self) -> _Reporter:
        return _Reporter(self._followers, self._reporters)


class _Reporter(asyncio.Protocol):
    """The connection of a process that reports."""

    def __init__(self, followers: Callable[[], Collection[Follower]], reporters: set[_Reporter]) -> None:
        self._followers, self._reporters = followers, reporters
        self._rest = b""
        self._confirmed: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._reporters.add(self)
        if self._followers():
            self.on()

    def connection_lost(self, _: Exception | None) -> None:
        self._reporters.discard(self)
        self._confirm()

    def on(self) -> asyncio.Future[None]:
        if self._confirmed is None:
            self._confirmed = asyncio.get_running_loop().create_future()
            self._transport.write(b"+")
        return self._confirmed

    def off(self) -> None:
        self._confirm()
        self._confirmed = None
        self._transport.write(b"-")

    def close(self) -> None:
        self._transport.close()

    def _confirm(self) -> None:
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(None)

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        followers = self._followers()
        for line in lines:
            if not line:
                self._confirm()
            elif line.startswith(b"!"):
                for follower in followers:
                    follower.lose(int(line[1:]))
            else:
                site, status, cache, told = line.split(b"\t", 3)
                event = Event(site.decode(), status.decode(), cache.decode(), told)
                for follower in followers:
                    follower.offer(event)


async def report(directory: Path, listeners: list[Listener]) -> None:
    """Connect to the process that gathers, and be among the `listeners` while it wants events."""
    place = str(directory / _SOCKET)
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: _Report(listeners), place)
    except OSError as error:
        logger.debug("no events are sent: %s: %s", place, error)  # the one that gathers has said it


class _Report(asyncio.Protocol):
    """The side that reports: a listener while its events are wanted. They are sent many at a time."""

    def __init__(self, listeners: list[Listener]) -> None:
        self._listeners = listeners
        self._waiting = bytearray()
        self._lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        wanted = data.endswith(b"+")
        if wanted and self not in self._listeners:
            self._listeners.append(self)
        elif not wanted:
            self._stop()
        if b"+" in data:
            self._transport.write(b"\n")

    def connection_lost(self, _: Exception | None) -> None:
        self._stop()

    def _stop(self) -> None:
        if self in self._listeners:
            self._listeners.remove(self)

    def __call__(self, outcome: Outcome) -> None:
        if self._transport.get_write_buffer_size() + len(self._waiting) > MOST:
            self._lost += 1
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        if self._lost:
            self._waiting += b"!%d\n" % self._lost
            self._lost = 0
        event = event_of(outcome)
        self._waiting += b"%b\t%b\t%b\t%b\n" % (
            event.site.encode(),
            event.status.encode(),
            event.cache.encode(),
            event.data,
        )

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, bytearray()
        if not self._transport.is_closing():
            self._transport.write(bytes(waiting))
