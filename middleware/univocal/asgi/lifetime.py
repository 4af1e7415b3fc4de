"""The life of a mounted cache: its shared store is opened and closed with it; its refreshes end before it."""

from __future__ import annotations

import asyncio
from typing import Final

from univocal.asgi.messages import App, Message, Receive, Scope, Send
from univocal.store.shared import SharedTier

_ENDS: Final = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")
# Seconds that refreshes in the background have at the shutdown.
LAST_REFRESH: Final = 5.0


class Lifetime:
    """The tasks of refreshes, and a store of the middleware's own.

    The store is connected where the server first calls: for its lifespan or, without one, for a request.
    """

    __slots__ = ("_starting", "begun", "refreshes", "store")

    def __init__(self, store: SharedTier | None) -> None:
        self.store = store
        self.begun = store is None
        self.refreshes: set[asyncio.Task[None]] = set()
        self._starting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connect; who comes meanwhile waits for it, too. Without its Redis a store goes on by itself."""
        if self.begun or self.store is None:
            return
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.store.start())
        await asyncio.shield(self._starting)
        self.begun = True

    async def lifespan(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application for its lifespan: it hears of the shutdown once the refreshes have ended."""
        await self.begin()

        async def hear() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and self.refreshes:
                _, late = await asyncio.wait(self.refreshes, timeout=LAST_REFRESH)
                for refresh in late:
                    refresh.cancel()
            return message

        async def tell(message: Message) -> None:
            if message["type"] in _ENDS and self.store is not None:
                await self.store.aclose()
            await send(message)

        await app(scope, hear, tell)
