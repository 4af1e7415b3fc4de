"""A socket pair between the parent and one worker: signs of life, and the end of either."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast


class Lifeline(asyncio.Protocol):
    """One end; `hear` is called at each sign of life, `over` when no more will come.

    The parent's end of it tells the worker to end. The worker gives signs of life until it has ended.
    """

    def __init__(self, hear: Callable[[], None], over: Callable[[], None]) -> None:
        self._hear, self._over = hear, over

    def beat(self) -> None:
        """Give a sign of life, unless the other end has not taken the last."""
        if not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            self._transport.write(b".")

    def end(self) -> None:
        """Give no more signs of life; to a worker this is the order to end."""
        if not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, _: bytes) -> None:
        self._hear()

    def eof_received(self) -> bool:
        self._over()
        return True  # a worker that is to end gives signs of life until it has

    def connection_lost(self, _: Exception | None) -> None:
        self._over()


async def hold(bound: socket.socket, hear: Callable[[], None], over: Callable[[], None]) -> Lifeline:
    """Hold one socket of a pair from now on."""
    lifeline = Lifeline(hear, over)
    await asyncio.get_running_loop().create_connection(lambda: lifeline, sock=bound)
    return lifeline
