"""One connection to Redis that many callers share: commands follow one another, and so do replies.

Commands of one turn of the event loop leave in one write. Replies come in the order of their commands, so one
timer bounds them all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, cast

import hiredis

from univocal.store.redis.servers import Connector, Word

__all__ = ["Pipe", "ReplyError"]

_MORE: Final = object()  # the reply is not complete yet
_Reply: TypeAlias = "asyncio.Future[Any]"


class ReplyError(Exception):
    """An error that Redis replied with."""

    @property
    def code(self) -> str:
        """Its first word."""
        return str(self).partition(" ")[0]


class Pipe(asyncio.Protocol):
    """Commands over one connection, which is opened by the first of them. Use it in one event loop.

    A reply that does not come within `timeout` seconds raises TimeoutError; without one, callers give up by
    themselves. They leave their place: the reply is read and dropped, and `late_reply` is called. An error of
    the connection fails all callers that wait for a reply.
    """

    __slots__ = (
        "_connector",
        "_due",
        "_ended",
        "_late_reply",
        "_loop",
        "_opened",
        "_opening",
        "_reader",
        "_timeout",
        "_timer",
        "_transport",
        "_waiting",
        "broken",
    )

    def __init__(
        self,
        connector: Connector,
        timeout: float | None = None,
        late_reply: Callable[[], None] | None = None,
    ) -> None:
        self._connector, self._timeout, self._late_reply = connector, timeout, late_reply
        self._loop: Final = asyncio.get_running_loop()
        self._reader: Final = hiredis.Reader(replyError=ReplyError, notEnoughData=_MORE)
        self._waiting: Final = deque[tuple[_Reply, float]]()  # each with its last moment
        self._due: Final = list[bytes]()  # commands that this turn of the event loop writes
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._opened = False
        self._ended: _Reply = self._loop.create_future()
        self.broken = False

    @property
    def load(self) -> int:
        """The number of replies that are waited for."""
        return len(self._waiting)

    def call(self, *words: Word) -> Awaitable[Any]:
        """The reply to a command.

        Raises ReplyError or OSError: Redis says so, or the connection breaks or is too late.
        """
        return self._send(words) if self._opened else self._send_once_open(words)

    def _send(self, words: tuple[Word, ...]) -> _Reply:
        if self.broken:
            raise ConnectionError("the connection was closed")
        packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]
        reply: _Reply = self._loop.create_future()
        until = 0.0
        if self._timeout is not None:
            until = self._loop.time() + self._timeout
            if self._timer is None:
                self._timer = self._loop.call_at(until, self._expire)
        self._waiting.append((reply, until))
        if not self._due:
            self._loop.call_soon(self._write)
        self._due.append(packed)
        return reply

    def _write(self) -> None:
        if self._transport is not None and not self.broken:
            self._transport.writelines(self._due)
        self._due.clear()

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
        """Connect, and introduce itself; a server that says nothing then has as long again."""
        try:
            async with asyncio.timeout(2 * self._connector.timeout):
                await self._connector.connect(self)
                for reply in [self._send(words) for words in self._connector.introduction]:
                    await reply
        except BaseException:
            self._break(ConnectionError("the connection was not opened"))
            raise
        self._opened = True

    async def aclose(self) -> None:
        """Close the connection; callers that wait for a reply get none."""
        self.broken = True
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        self._break(ConnectionError("the connection was closed"))
        if self._transport is not None:
            await self._ended

    def _break(self, reason: Exception) -> None:
        self.broken = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for reply, _ in self._waiting:
            if not reply.done():
                reply.set_exception(reason)
                reply.exception()  # nobody may wait for it any longer
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _MORE:
                self._answer(reply)
        except (hiredis.HiredisError, IndexError) as error:  # no Redis, or a reply that nobody asked for
            self._break(ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(ConnectionError(str(exc or "the connection was closed")))
        if not self._ended.done():
            self._ended.set_result(None)

    def _answer(self, reply: Any) -> None:
        waiting, _ = self._waiting.popleft()
        if waiting.done():
            if self._late_reply is not None:  # its caller gave up
                self._late_reply()
        elif isinstance(reply, ReplyError):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)


def _note(opening: asyncio.Task[None]) -> None:
    """Take note of how opening ended: callers who gave up do not."""
    if not opening.cancelled():
        opening.exception()
