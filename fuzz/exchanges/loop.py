"""Counts the calls that the running event loop is asked for: none means that it is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LoopCalls:
    """The calls that an event loop was asked for."""

    def __init__(self) -> None:
        self._count = 0

    async def come(self) -> bool:
        """Wait one turn of the loop; True if others asked for calls in it."""
        self._count = 0
        await asyncio.sleep(0)
        return self._count > 1

    @classmethod
    @contextmanager
    def watched(cls) -> Iterator[LoopCalls]:
        """Watch the running loop, which is asyncio's own."""
        loop, calls = asyncio.get_running_loop(), cls()
        call_soon = loop.call_soon

        def counted(*call: Any, **context: Any) -> asyncio.Handle:
            calls._count += 1
            return call_soon(*call, **context)

        loop.call_soon = counted  # type: ignore[method-assign]
        try:
            yield calls
        finally:
            loop.call_soon = call_soon  # type: ignore[method-assign]
