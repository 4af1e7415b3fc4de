"""One connection to Redis that many callers share: commands follow one another, and so do replies.

redis-py opens the connection and reads from it. Commands of one iteration of the loop leave in one write.
Replies come in the order of their commands, so one timer bounds them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import hiredis
import redis.asyncio as redis
from redis.exceptions import RedisError

Word: TypeAlias = bytes | int | str
"""One of the words of a command."""

_Reply: TypeAlias = "asyncio.Future[Any]"


class Pipe:
    """Commands over one connection, which is opened by the first of them. Use it in one event loop.

    A reply that does not come within `timeout` seconds raises TimeoutError; without one, callers give up by
    themselves. They leave their place: the reply is read and dropped, and `late_reply` is called. An error of
    the connection fails all callers that wait for a reply.
    """

    def __init__(
        self, connection: Any, timeout: float | None = None, late_reply: Callable[[], None] | None = None
    ) -> None:
        self._connection, self._timeout, self._late_reply = connection, timeout, late_reply
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[_Reply, float]] = deque()  # each with its last moment
        self._due: list[bytes] = []  # commands that are not written yet
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self.broken = False

    @property
    def load(self) -> int:
        """The number of replies that are waited for."""
        return len(self._waiting)

    def call(self, *words: Word) -> Awaitable[Any]:
        """The reply to a command.

        Raises RedisError or OSError: Redis says so, or the connection breaks or is too late.
        """
        return self._send_once_open(words) if self._reading is None else self._send(words)

    def _send(self, words: tuple[Word, ...]) -> _Reply:
        if self.broken or not self._connection.is_connected:
            raise redis.ConnectionError("the connection was closed")
        self._due.append(hiredis.pack_command(words))  # type: ignore[arg-type]
        if self._writing is None:
            self._write()
        reply: _Reply = self._loop.create_future()
        until = 0.0
        if self._timeout is not None:
            until = self._loop.time() + self._timeout
            if self._timer is None:
                self._timer = self._loop.call_at(until, self._expire)
        self._waiting.append((reply, until))
        return reply

    def _write(self) -> None:
        """Write what is due in the next iteration, or when the connection takes more."""
        self._writing = self._loop.create_task(self._write_due())
        self._writing.add_done_callback(self._written)

    async def _write_due(self) -> None:
        due, self._due = self._due, []
        # redis-py would open a connection that is closed meanwhile again, without a reader.
        if not self.broken and self._connection.is_connected:
            await self._connection.send_packed_command(due, check_health=False)

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if writing.cancelled() or writing.exception() is not None:
            self.broken = True  # the reader fails all callers: redis-py has closed the connection
        elif self._due:
            self._write()

    def _expire(self) -> None:
        """Fail the callers whose time is over; their places stay."""
        self._timer, now = None, self._loop.time()
        for reply, until in self._waiting:
            if reply.done():
                continue
            if until > now:
                self._timer = self._loop.call_at(until, self._expire)
                return
            reply.set_exception(TimeoutError("no answer in time"))

    # Opening and closing

    async def _send_once_open(self, words: tuple[Word, ...]) -> Any:
        async with asyncio.timeout(self._timeout):
            if self._opening is None:
                self._opening = self._loop.create_task(self._open())
                self._opening.add_done_callback(_note)
            await asyncio.shield(self._opening)
            return await self._send(words)

    async def _open(self) -> None:
        # One that is cancelled before TCP is connected may be left open: redis-py bounds that by itself. A
        # server that takes a connection and says nothing has as long again.
        limit = 2 * self._connection.socket_connect_timeout
        try:
            async with asyncio.timeout(limit):
                await self._connection.connect()
        except BaseException:
            self.broken = True
            await self._connection.disconnect(nowait=True)
            raise
        if self.broken:  # closed meanwhile
            await self._connection.disconnect(nowait=True)
        else:
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        reason: BaseException = redis.ConnectionError("the connection was closed")
        try:
            while True:
                try:
                    reply = await self._connection.read_response(
                        disable_decoding=True, disconnect_on_error=False
                    )
                except redis.ResponseError as error:
                    self._answer(error)
                else:
                    self._answer(reply)
        except (RedisError, OSError, RuntimeError, IndexError) as error:
            reason = redis.ConnectionError(str(error) or type(error).__name__)
            await self._connection.disconnect(nowait=True)
        finally:
            self._break(reason)

    def _break(self, reason: BaseException) -> None:
        self.broken = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting, _ in self._waiting:
            if not waiting.done():
                waiting.set_exception(reason)
                waiting.exception()  # it may not be waited for any longer
        self._waiting.clear()

    def _answer(self, reply: Any) -> None:
        waiting, _ = self._waiting.popleft()
        if waiting.done():
            if self._late_reply is not None:  # its caller gave up
                self._late_reply()
        elif isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    async def aclose(self) -> None:
        """Close the connection, even if this is cancelled; callers that wait for a reply get none."""
        self.broken = True
        if self._opening is not None and not self._opening.done():
            # It ends by its own timeout: a connection that is cancelled while it opens may be left open.
            await asyncio.wait([self._opening])
        tasks = [task for task in (self._writing, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        with suppress(RedisError, OSError):  # one that takes nothing more is left to itself
            await self._connection.disconnect()
        await asyncio.gather(*tasks, return_exceptions=True)


def _note(opening: asyncio.Task[None]) -> None:
    """Record the result of the opening: callers that gave up do not."""
    if not opening.cancelled():
        opening.exception()
