"""A response's content on its way: written once, read by any number of readers, each at its own pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

__all__ = ["WINDOW", "Broadcast", "CutShort", "Departed", "Reader"]

WINDOW: Final = 256 * 1024


# A reader so many octets behind another, of content that is not kept, is left behind.
FAR_BEHIND: Final = 16 * WINDOW


class CutShort(Exception):  # noqa: N818  (what happened to the content, not a fault of ours)
    """A response ends before its content does: the origin server's did, or the reader fell too far behind."""


class Departed(Exception):  # noqa: N818  (an event, not a fault)
    """The reader's client has left."""


class Reader:
    """One reader's place in a broadcast; `departed` ends its next read."""

    __slots__ = ("_broadcast", "_index", "departed", "outpaced", "position")

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast
        self._index = 0  # chunks read
        self.position = 0  # octets read
        self.departed = False
        self.outpaced = False

    async def read(self) -> tuple[bytes, bool]:
        """What has come since the last read, a window full at most, and whether more may follow.

        Empty only at the end. Raises Departed, or the error with which the broadcast was ended.
        """
        cast = self._broadcast
        while cast.count == self._index and not cast.ended:
            await cast.news(self)
        if self.outpaced:
            raise CutShort
        chunks = cast.since(self._index)
        if not chunks and cast.error is not None:
            raise cast.error
        self._index += len(chunks)
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.position += len(data)
        cast.passed()
        return data, not cast.ended or cast.error is not None or self._index < cast.count

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *raised: object) -> None:
        self._broadcast.leave(self)

    def depart(self) -> None:
        """End this reader's wait: its client has left."""
        self.departed = True
        self._broadcast.ring()


class Broadcast:
    """Content as it arrives, at most `window` octets ahead of its fastest reader; others may be `FAR_BEHIND`.

    While `kept`, every octet is held from the first on and nothing waits: its owner bounds it. `deserted` is
    called when the last reader leaves.
    """

    __slots__ = (
        "_chunks",
        "_deserted",
        "_dropped",
        "_error",
        "_news",
        "_readers",
        "_room",
        "_traceback",
        "ended",
        "kept",
        "size",
        "window",
    )

    def __init__(self, deserted: Callable[[], object], window: int = WINDOW) -> None:
        self._deserted = deserted
        self.window = window
        self.kept = False
        self.size = 0  # octets written
        self.ended = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._chunks: deque[bytes] = deque()
        self._dropped = 0  # chunks that every reader has passed
        self._readers: set[Reader] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def count(self) -> int:
        """Chunks written."""
        return self._dropped + len(self._chunks)

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    @property
    def error(self) -> BaseException | None:
        """What it was ended with, for every reader to raise again."""
        # Each raise lengthens the traceback, which a thousand readers would find a thousand times as long.
        return None if self._error is None else self._error.with_traceback(self._traceback)

    def join(self) -> Reader:
        """A new reader, from the first octet on: possible while nothing has been dropped."""
        reader = Reader(self)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """Wait for this reader no longer."""
        self._readers.discard(reader)
        self.passed()
        if not self._readers:
            self._deserted()

    async def news(self, reader: Reader) -> None:
        """Wait for the next news. Raises Departed once the reader's client has left."""
        if not reader.departed:
            await self._news.wait()
        if reader.departed:
            raise Departed

    def ring(self) -> None:
        """Wake whoever waits for news."""
        self._news.set()
        self._news.clear()

    async def write(self, chunk: bytes) -> None:
        """Append a chunk; returns once a reader has room for more."""
        if not chunk:
            return
        self._chunks.append(chunk)
        self.size += len(chunk)
        self.ring()
        if not self._readers:
            self.passed()  # nobody else would drop it
        while not self.kept and self._readers and self.size - self._fastest() > self.window:
            await self._room.wait()
        if not self.kept and len(self._readers) > 1:
            self._leave_behind()

    def end(self, error: BaseException | None = None) -> None:
        """No more will come: for good, or because of an error, which every reader gets after the rest."""
        self.ended = True
        self._error, self._traceback = error, error.__traceback__ if error is not None else None
        self.ring()

    def close(self) -> None:
        """Nobody joins any more: what all have passed can go."""
        self.kept = False
        self.passed()

    def since(self, index: int) -> list[bytes]:
        """The chunks from `index` on, until they fill a window."""
        chunks, size = [], 0
        for position in range(index - self._dropped, len(self._chunks)):
            chunks.append(self._chunks[position])
            size += len(chunks[-1])
            if size >= self.window:
                break
        return chunks

    def passed(self) -> None:
        """Drop what every reader has passed, unless it is kept, and let the writer go on."""
        if self.kept:
            return
        last = min((reader._index for reader in self._readers), default=self.count)
        while self._dropped < last:
            self._chunks.popleft()
            self._dropped += 1
        self._room.set()
        self._room.clear()

    def _fastest(self) -> int:
        return max(reader.position for reader in self._readers)

    def _leave_behind(self) -> None:
        """Let go of those who hold more than their share: one client that does not read stops no other."""
        for reader in list(self._readers):
            if self.size - reader.position > FAR_BEHIND:
                reader.outpaced = True
                self._readers.discard(reader)
        self.passed()
