"""Waits for Redis and for other nodes: their limits in seconds, and the news that ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

__all__ = ["Bell", "UnavailableError", "Waits"]


class UnavailableError(Exception):
    """Redis did not answer, or not in time, or with an error."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The longest times that things may take, in seconds."""

    command: float = 1.0  # one command, the connection for it included
    purge: float = 120.0  # a purge, of however much
    heartbeat: float = 0.5  # between two questions whether the tracking connection is up
    patience: float = 5.0  # a request waits for what another node fetches
    lock: float = 10.0  # others wait for a node that says nothing more
    lease: float = 300.0  # what takes longer to fetch is not stored


class Bell:
    """Wakes those who listen for a key, and tells them whether their wait was fruitless."""

    def __init__(self) -> None:
        self._listening: dict[bytes, set[asyncio.Future[bool]]] = {}

    @contextmanager
    def listening(self, key: bytes) -> Iterator[Callable[[float], Awaitable[bool]]]:
        """Listen from here on; the function waits up to so many seconds, and is False if nothing comes."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._listening.setdefault(key, set()).add(future)

        async def heard(seconds: float) -> bool:
            with suppress(TimeoutError):
                return await asyncio.wait_for(future, seconds)
            return False

        try:
            yield heard
        finally:
            futures = self._listening[key]
            futures.discard(future)
            if not futures:
                del self._listening[key]

    def ring(self, keys: Iterable[bytes], *, fruitless: bool = False) -> None:
        """Wake whoever listens for one of these keys."""
        for key in keys:
            for future in self._listening.get(key, ()):
                if not future.done():
                    future.set_result(fruitless)

    def ring_all(self) -> None:
        """Wake everybody."""
        self.ring(list(self._listening))
