"""The life of a shared store that the middleware was given by its URL: it is opened and closed with it."""

from __future__ import annotations

import asyncio

from univocal.asgi.messages import App, Message, Receive, Scope, Send
from univocal.store.shared import SharedTier

_ENDS = ("lifespan.shutdown.complete", "lifespan.shutdown.failed")


class StoreLifetime:
    """Connects a store where the server first calls: for its lifespan or, without one, for a request."""

    __slots__ = ("_starting", "begun", "store")

    def __init__(self, store: SharedTier) -> None:
        self.store = store
        self.begun = False
        self._starting: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Connect; who comes meanwhile waits for it, too. Without its Redis a store goes on by itself."""
        if self._starting is None:
            self._starting = asyncio.get_running_loop().create_task(self.store.start())
        await asyncio.shield(self._starting)
        self.begun = True

    async def lifespan(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the application for its lifespan; the store is disconnected at its end."""
        await self.begin()

        async def ending(message: Message) -> None:
            if message["type"] in _ENDS:
                await self.store.aclose()
            await send(message)

        await app(scope, receive, ending)
