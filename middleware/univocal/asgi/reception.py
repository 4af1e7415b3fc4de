"""The events from a client at the ASGI door: its request's content, and its leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from univocal.asgi.client import PATIENCE
from univocal.asgi.messages import Receive
from univocal.http.pipe import Pipe


class Reception:
    """Receives what a client sends, in a task of its own once somebody wants its `content`.

    `left` is called when the client leaves, `too_large` when its content has more than `limit` bytes; 0 is no
    limit.
    """

    __slots__ = ("_left", "_limit", "_receive", "_room", "_task", "_timer", "_too_large", "content")

    def __init__(
        self, receive: Receive, left: Callable[[], None], too_large: Callable[[], None], limit: int
    ) -> None:
        self._receive = receive
        self._left = left
        self._too_large = too_large
        self._limit = limit
        self._room = asyncio.Event()
        self.content = Pipe(self._room.set, self._start)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Watch, after a while, for the client to leave: ASGI tells it to whoever receives."""
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._start)

    def close(self) -> None:
        """Receive no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        octets, content = 0, self.content
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left()
                return
            chunk = message.get("body", b"")
            octets += len(chunk)
            if 0 < self._limit < octets:
                self._too_large()
                return
            self._room.clear()
            has_room = content.write(chunk)
            if not message.get("more_body", False):
                content.finish()  # what is awaited from here on is the client's leaving
            elif not has_room:
                await self._room.wait()
