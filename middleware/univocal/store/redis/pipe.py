"""One connection to Redis that many callers share: commands follow one another, and so do replies."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import redis.asyncio as redis
from redis.exceptions import RedisError

__all__ = ["Pipe", "Word"]

Word: TypeAlias = bytes | int | str
"""One of the words of a command."""

_Reply: TypeAlias = "asyncio.Future[Any]"


class Pipe:
    """Commands over one connection, which is opened by the first of them. Use it in one event loop.

    A caller that gives up leaves its place: the reply is read and dropped, and `late_reply` is called. An
    error of the connection fails all callers that wait for a reply.
    """

    __slots__ = ("_connection", "_late_reply", "_opening", "_reading", "_waiting", "broken")

    def __init__(self, connection: Any, late_reply: Callable[[], None] | None = None) -> None:
        self._connection = connection
        self._late_reply = late_reply
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: deque[_Reply] = deque()
        self.broken = False

    @property
    def load(self) -> int:
        """The number of replies that are waited for."""
        return len(self._waiting)

    async def call(self, *words: Word) -> Any:
        """The reply to a command. Raises RedisError or OSError: Redis says so, or the connection breaks."""
        if self._reading is None:
            await self._open()
        if self.broken or not self._connection.is_connected:
            raise redis.ConnectionError("the connection was closed")
        reply: _Reply = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        # Nothing is awaited between the place in the queue and the words on the wire.
        packed = self._connection.pack_command(*words)
        try:
            await self._connection.send_packed_command(packed, check_health=False)
        except BaseException:
            reply.cancel()
            raise
        return await reply

    async def _open(self) -> None:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._connect())
        await asyncio.shield(self._opening)

    async def _connect(self) -> None:
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
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        reason: BaseException = redis.ConnectionError("the connection was closed")
        try:
            while True:
                try:
                    reply = await self._connection.read_response(disable_decoding=True)
                except redis.ResponseError as error:
                    self._answer(error)
                else:
                    self._answer(reply)
        except (RedisError, OSError, RuntimeError, IndexError) as error:
            reason = redis.ConnectionError(str(error) or type(error).__name__)
        finally:
            self.broken = True
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(reason)
            self._waiting.clear()
            await self._connection.disconnect(nowait=True)

    def _answer(self, reply: Any) -> None:
        waiting = self._waiting.popleft()
        if waiting.done():
            if self._late_reply is not None:  # its caller gave up
                self._late_reply()
            return
        if isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    async def aclose(self) -> None:
        """Close the connection; who waits for a reply gets none."""
        self.broken = True
        if self._opening is not None:
            # It ends by its own timeout: a connection that is cancelled while it opens may be left open.
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        await self._connection.disconnect(nowait=True)
