"""Whether a client leaves while it waits for its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

__all__ = ["Departure"]

# Seconds before a waiting client is watched: most answers are there by then, and watching costs a task.
PATIENCE: Final = 0.1


class Departure:
    """Calls back once a client has left that has nothing more to say: ASGI tells it to whoever receives."""

    __slots__ = ("_receive", "_waiting")

    def __init__(self, receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        self._receive = receive
        self._waiting: asyncio.TimerHandle | asyncio.Task[None] | None = None

    def watch(self, left: Callable[[], object]) -> None:
        """From a while on, call `left` if the client leaves; replaces an earlier watch."""
        self.end()
        loop = asyncio.get_running_loop()

        def start() -> None:
            self._waiting = loop.create_task(self._until_left(left))

        self._waiting = loop.call_later(PATIENCE, start)

    def end(self) -> None:
        """Watch no longer."""
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def _until_left(self, left: Callable[[], object]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        left()
