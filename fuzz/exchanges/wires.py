"""Clients and an origin server at the ends of connections without sockets, and the time they live in."""

from __future__ import annotations

import asyncio
import bisect
import socket
from collections.abc import Callable
from typing import Any

from tests.support import Transport
from univocal.origin.connection import Connection, Keeper
from univocal.origin.pool import Endpoint, OriginConnections, PoolSettings

START = 1_790_000_000.0


class Clock:
    """The part of an event loop that connections use, with a time of its own; and time's own module."""

    def __init__(self) -> None:
        self.now = START
        self._timers: list[_Timer] = []

    def time(self) -> float:
        return self.now

    perf_counter = monotonic = __call__ = time

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> _Timer:
        timer = _Timer(self._timers, when, callback, arguments)
        bisect.insort(self._timers, timer, key=_Timer.when)
        return timer

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> _Timer:
        return self.call_at(self.now + seconds, callback, *arguments)

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(callback, *arguments)

    def create_task(self, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coroutine, **named)

    def due(self, end: float) -> bool:
        """Make the next call that is due by `end`; False: there is none."""
        if not self._timers or self._timers[0].when() > end:
            return False
        timer = self._timers.pop(0)
        self.now = max(self.now, timer.when())
        timer.callback(*timer.arguments)
        return True


class _Timer:
    def __init__(
        self, timers: list[_Timer], when: float, callback: Callable[..., object], arguments: tuple[Any, ...]
    ) -> None:
        self._timers, self._when = timers, when
        self.callback, self.arguments = callback, arguments

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        if self in self._timers:
            self._timers.remove(self)


class Wire(Transport):
    """One end of a connection, as the program has it: what it writes is kept, with the time of each write."""

    def __init__(self, clock: Clock, peer: str, **extra: object) -> None:
        super().__init__(peername=(peer, 4711), sockname=("192.0.2.80", 80), **extra)
        self._clock = clock
        self.protocol: Any = None
        self._writes: list[tuple[int, float]] = []
        self.lost = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._writes.append((len(self.sent), self._clock.now))
            self.sent += data

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def written(self, at: int) -> float:
        """The time at which the byte at this place was written."""
        return self._writes[bisect.bisect_right(self._writes, at, key=lambda each: each[0]) - 1][1]

    def lose(self, error: Exception | None = None) -> bool:
        """Tell the program, once, that the connection is no more."""
        if self.lost or self.protocol is None:
            return False
        self.lost = self.closed = True
        self.protocol.connection_lost(error)
        return True


class PlayedTransport(OriginConnections):
    """OriginConnections whose connections are played; `reached` is told of each new one."""

    # A connection asks the kernel for what it knows of its socket: of this one, nothing ever.
    _quiet, _other = socket.socketpair()
    _quiet.setblocking(False)  # as an event loop's sockets are

    def __init__(self, clock: Clock, reached: Callable[[Wire], object]) -> None:
        super().__init__(PoolSettings(max_connections=6))
        self._clock = clock
        self._reached = reached

    async def _open(self, keeper: Keeper, endpoint: Endpoint, *rest: object) -> Connection:  # noqa: ARG002
        wire = Wire(self._clock, endpoint.host, socket=self._quiet)
        self._reached(wire)
        connection = Connection(self._clock, keeper, 64 * 1024)  # type: ignore[arg-type]
        wire.protocol = connection
        connection.connection_made(wire)
        return connection
