"""The connections to one origin: those in use, those that are idle, and who waits for one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import httpx

from univocal.origin.connection import Connection, Keeper

__all__ = ["Open", "Pool"]

Open: TypeAlias = Callable[[Keeper], Awaitable[Connection]]


class Pool:
    """At most `max_connections` to one origin; idle ones are taken last in, first out.

    So the warmest serves next, and what only a peak needed is idle for `idle_timeout` seconds and
    closed. `open_connection` opens one for its keeper and raises httpx.ConnectError.
    """

    def __init__(self, open_connection: Open, max_connections: int, idle_timeout: float) -> None:
        self._open_connection = open_connection
        self._free = max_connections
        self._idle_timeout = idle_timeout
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self._waiting: OrderedDict[asyncio.Future[Connection | None], None] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def take_idle(self) -> Connection | None:
        """The connection that became idle last."""
        return self._idle.popitem()[0] if self._idle else None

    async def connect(self, connect: float | None, pool: float | None, *, fresh: bool = False) -> Connection:
        """A new connection, or the next that becomes idle; `fresh`: none that is idle by now.

        Raises httpx.PoolTimeout after `pool` seconds of waiting for others, httpx.ConnectTimeout after
        `connect` seconds of connecting, httpx.ConnectError.
        """
        if self._free and not self._closed:
            self._free -= 1
        else:
            if fresh and self._idle:
                next(iter(self._idle)).close()
            connection = await self._turn(pool)
            if connection is not None:
                return connection
        try:
            async with asyncio.timeout(connect):
                connection = await self._open_connection(self)
        except TimeoutError:
            self._pass_on(None)
            raise httpx.ConnectTimeout("the origin did not accept the connection in time") from None
        except BaseException:
            self._pass_on(None)
            raise
        self._open.add(connection)
        if connection.closed:
            self.lost(connection)
        return connection

    def close(self) -> None:
        """Close every connection and send away who waits for one."""
        self._closed = True
        while self._waiting:
            turn, _ = self._waiting.popitem()
            if not turn.done():
                turn.set_exception(httpx.ConnectError("the transport was closed"))
        for connection in tuple(self._open):
            connection.close()

    # What connections report.

    def put_back(self, connection: Connection) -> None:
        """An exchange is over and `connection` can serve the next."""
        if self._closed:
            connection.close()
        elif self._waiting:
            self._pass_on(connection)
        else:
            self._idle[connection] = None
            connection.idle.set(self._idle_timeout)

    def withdraw(self, connection: Connection) -> None:
        """`connection` can serve no more."""
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """`connection` is closed: there is room for another."""
        self._idle.pop(connection, None)
        if connection in self._open:
            self._open.remove(connection)
            self._pass_on(None)

    async def _turn(self, seconds: float | None) -> Connection | None:
        """A connection that another has done with; None: the right to open one."""
        while not self._closed:
            turn: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
            self._waiting[turn] = None
            try:
                async with asyncio.timeout(seconds):
                    connection = await turn
            except BaseException as error:
                self._waiting.pop(turn, None)
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self._pass_on(turn.result())
                if isinstance(error, TimeoutError):
                    raise httpx.PoolTimeout("every connection to the origin stayed in use") from None
                raise
            if connection is None or not connection.closed:
                return connection
        raise httpx.ConnectError("the transport was closed")

    def _pass_on(self, connection: Connection | None) -> None:
        """Give `connection`, or with None the right to open one, to who has waited longest."""
        while self._waiting:
            turn, _ = self._waiting.popitem(last=False)
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._free += 1
        elif not connection.closed:
            self.put_back(connection)
