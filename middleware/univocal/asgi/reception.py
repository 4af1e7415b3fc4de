"""The events from a client at the ASGI door: its request's content, and its leaving."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from univocal.asgi.messages import Receive
from univocal.http.roles import ContentSink

__all__ = ["Reception"]

# Seconds before a waiting client is watched: most answers are there by then, and watching costs a task.
PATIENCE: Final = 0.1


class Reception:
    """Receives what a client sends, in a task of its own once somebody wants it.

    It is a `Content` (see http.roles). `left` is called when the client leaves, `too_large` when its content
    has more than `limit` octets; 0 is no limit.
    """

    __slots__ = ("_left", "_limit", "_receive", "_room", "_sink", "_task", "_timer", "_too_large")

    def __init__(
        self, receive: Receive, left: Callable[[], None], too_large: Callable[[], None], limit: int
    ) -> None:
        self._receive = receive
        self._left = left
        self._too_large = too_large
        self._limit = limit
        self._sink: ContentSink | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None

    def watch(self) -> None:
        """Watch, after a while, for the client to leave: ASGI tells it to whoever receives."""
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._start)

    def attach(self, sink: ContentSink) -> None:
        self._sink = sink
        self._start()

    def resume(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def detach(self) -> None:
        self._sink = None
        self.resume()

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
        taken, complete = 0, False
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left()
                return
            chunk = message.get("body", b"")
            taken += len(chunk)
            if 0 < self._limit < taken:
                self._too_large()
                return
            if chunk and self._sink is not None and not self._sink.write(chunk):
                self._room = asyncio.get_running_loop().create_future()
                await self._room
            if not message.get("more_body", False) and not complete:
                complete = True
                if self._sink is not None:
                    self._sink.finish()
