"""The events from a client at the ASGI door: its request's content, and its leaving."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from univocal.asgi.client import PATIENCE
from univocal.asgi.messages import Receive
from univocal.http.roles import ContentSink

# Bytes that are kept for who will want them, before no more are received.
HIGH_WATER: Final = 64 * 1024


class Reception:
    """Receives what a client sends, in a task of its own once somebody wants it.

    It is a `Content` (see http.roles). `left` is called when the client leaves, `too_large` when its content
    has more than `limit` bytes; 0 is no limit.
    """

    __slots__ = (
        "_begun", "_chunks", "_complete", "_full", "_held", "_left", "_limit", "_receive", "_room", "_sink",
        "_task", "_timer", "_too_large", "_unwanted",
    )  # fmt: skip

    def __init__(
        self, receive: Receive, left: Callable[[], None], too_large: Callable[[], None], limit: int
    ) -> None:
        self._receive = receive
        self._left = left
        self._too_large = too_large
        self._limit = limit
        self._sink: ContentSink | None = None
        self._begun: Callable[[], None] | None = None  # who hears that content has come
        self._chunks: deque[bytes] = deque()  # that nobody has taken yet
        self._held = 0  # bytes in them
        self._complete = self._full = self._unwanted = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: asyncio.Future[None] | None = None

    def watch(self) -> None:
        """Watch, after a while, for the client to leave: ASGI tells it to whoever receives."""
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._start)

    def when_begun(self, call: Callable[[], None] | None) -> None:
        self._begun = call
        if call is not None and (self._chunks or self._complete):
            asyncio.get_running_loop().call_soon(self._tell)

    def attach(self, sink: ContentSink) -> None:
        self._sink = sink
        self._start()
        self._push()

    def resume(self) -> None:
        self._full = False
        self._push()

    def detach(self) -> None:
        self._sink, self._unwanted = None, True
        self._push()

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
        octets = 0
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
            if chunk:
                self._chunks.append(chunk)
                self._held += len(chunk)
            self._complete = self._complete or not message.get("more_body", False)
            self._push()
            self._tell()
            while self._waits_for_room():
                self._room = asyncio.get_running_loop().create_future()
                await self._room

    def _waits_for_room(self) -> bool:
        """Tell whether no more is to be received for now; once all has come, a leaving is to be heard."""
        return not (self._unwanted or self._complete) and (self._full or self._held > HIGH_WATER)

    def _push(self) -> None:
        """Hand on what has come, as far as it is taken."""
        chunks = self._chunks
        if self._unwanted:
            chunks.clear()
            self._held = 0
        while chunks and self._sink is not None and not self._full:
            chunk = chunks.popleft()
            self._held -= len(chunk)
            self._full = not self._sink.write(chunk)
        if self._complete and not chunks and self._sink is not None:
            sink, self._sink = self._sink, None
            sink.finish()
        if self._room is not None and not self._room.done() and not self._waits_for_room():
            self._room.set_result(None)

    def _tell(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()
