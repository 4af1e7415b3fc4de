"""A response's content on its way: written once, pushed to any number of readers, each at its own pace."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol

WINDOW: Final = 256 * 1024

# A reader so many bytes behind another, of content that is not kept, is left behind.
FAR_BEHIND: Final = 16 * WINDOW


class CutShortError(Exception):
    """A response ends before its content does: the origin server's did, or the reader fell too far behind."""


class Sink(Protocol):
    """The one to whom a reader passes the content on."""

    def write(self, chunk: bytes) -> bool:
        """Take a chunk; False: no more until the reader's `resume`."""
        ...

    def rest(self, content: memoryview) -> bool:
        """Take over what is left of the content, and send it without the reader; False: not yet."""
        ...

    def ended(self, error: BaseException | None) -> None:
        """Handle the end, which is early if there is an error; called once, at last."""

    def fail(self, error: Exception) -> None:
        """Give up: one of its own calls raised this error, which no other reader is told."""


class Reader:
    """One reader's place in content. It begins to read when `resume` is called for the first time.

    With `await_more` it begins as soon as more content comes, or when all of it is there. Without a
    `broadcast` it reads alone: its flight passes each chunk on to it, as long as it is not `blocked`. `left`
    is called when it reads no more.
    """

    def __init__(
        self, sink: Sink, left: Callable[[Reader], None], broadcast: Broadcast | None = None
    ) -> None:
        self.sink: Sink | None = sink  # None: it has left, or has heard of the end
        self.left = left
        self.broadcast = broadcast
        self.blocked = True
        self.awaits_more = False
        self.index = 0  # chunks passed on
        self.position = 0  # bytes passed on

    def resume(self) -> None:
        """Go on: the sink takes more."""
        self.blocked = self.awaits_more = False
        cast = self.broadcast
        if cast is not None and (self.index < cast.count or cast.ended):
            self.go_on(cast)

    def await_more(self) -> None:
        """Begin with the next chunk, or at the end: what is there says nothing of whether more comes."""
        self.awaits_more = True
        if self.broadcast is not None and self.broadcast.ended:
            self.no_more(self.broadcast.error)

    def no_more(self, error: BaseException | None) -> None:
        """Handle the end that it awaited: of content that is cut, it passes nothing on."""
        if error is None:
            self.resume()
        else:
            self.end(error)

    def go_on(self, cast: Broadcast) -> None:
        """Pass on what there is until the sink takes no more."""
        if self.index < cast.count:
            index = self.index
            self.catch_up(cast)
            if self.sink is not None:
                cast.passed(self, index)
        if cast.ended and not self.blocked and self.index == cast.count:
            self.end(cast.error)

    def catch_up(self, cast: Broadcast) -> None:
        """Pass on what there is, until the sink takes no more."""
        while not self.blocked and self.sink is not None and self.index < cast.count:
            self.pass_on(cast.chunk(self.index))

    def pass_on(self, chunk: bytes) -> None:
        """Pass on the next chunk."""
        sink = self.sink
        if sink is None:
            return
        self.index += 1
        self.position += len(chunk)
        try:
            if not sink.write(chunk):
                self.blocked = True
        except Exception as error:
            sink.fail(error)

    def leave(self) -> None:
        """Read no more."""
        self.sink = None
        self.left(self)

    def hand_over(self, content: bytes) -> None:
        """Resume a sink that stands still: all of the content is there."""
        sink = self.sink
        if self.blocked and sink is not None and sink.rest(memoryview(content)[self.position :]):
            self.leave()

    def drop_slow_reader(self) -> None:
        """End early: this reader holds more than its share, or the content comes too slowly for it."""
        self.end(CutShortError())

    def end(self, error: BaseException | None) -> None:
        """Handle the end of the content."""
        if self.sink is not None:
            self.tell(error)
            self.left(self)

    def tell(self, error: BaseException | None) -> None:
        """Tell the sink of the end."""
        sink, self.sink = self.sink, None
        if sink is None:
            return
        try:
            sink.ended(error)
        except Exception as failure:
            sink.fail(failure)


class Broadcast:
    """Content as it arrives, at most `window` bytes ahead of its fastest reader; others may be `FAR_BEHIND`.

    While `kept`, every byte is held from the first on and nothing waits: its owner bounds it. `deserted` is
    called when the last reader leaves, `room` when a writer that was told to stop may go on.
    """

    def __init__(self, deserted: Callable[[], object], room: Callable[[], object], window: int) -> None:
        self._deserted = deserted
        self._room = room
        self.window = window
        self.kept = False
        self.size = 0  # bytes written
        self.ended = False
        self._full = False
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._chunks: deque[bytes] = deque()
        self._dropped = 0  # chunks that every reader has passed on
        self._slowest = 0  # readers that have passed on no more, or fewer of them
        self.count = 0  # chunks written
        self.readers: list[Reader] = []

    @property
    def held(self) -> int:
        """Chunks that are held for readers, or because they are kept."""
        return len(self._chunks)

    @property
    def error(self) -> BaseException | None:
        """The error that it was ended with, if any."""
        # Each raise lengthens the traceback, which a thousand readers would find a thousand times as long.
        return None if self._error is None else self._error.with_traceback(self._traceback)

    def join(self, sink: Sink) -> Reader:
        """A new reader, from the first byte on: possible while nothing has been dropped."""
        reader = Reader(sink, self.leave, self)
        self.readers.append(reader)
        return reader

    def begin(self, kept: list[bytes] | None, single_reader: Reader | None) -> None:
        """Go on with content that one has read until now. All chunks of it are `kept`, or none (None)."""
        self.kept = kept is not None
        self._chunks.extend(kept or ())
        self.count = len(self._chunks)
        self.size = sum(map(len, self._chunks))
        if single_reader is not None:
            if kept is None:
                self._dropped = self.count = single_reader.index
                self.size = single_reader.position
            single_reader.broadcast, single_reader.left = self, self.leave
            self.readers.append(single_reader)

    def leave(self, reader: Reader) -> None:
        """Wait for this reader no longer."""
        if reader in self.readers:
            self.readers.remove(reader)
            if self._chunks or self._full:
                self.passed()
            if not self.readers:
                self._deserted()

    def write(self, chunk: bytes) -> bool:
        """Append a chunk; False: no more until there is `room`."""
        if not chunk:
            return True
        self.size += len(chunk)
        readers = self.readers
        if len(readers) == 1 and not self.kept and not self._chunks and not readers[0].blocked:
            self._dropped = self.count = self.count + 1
            readers[0].pass_on(chunk)  # straight through: it is the only one
            return True
        self._chunks.append(chunk)
        self.count += 1
        for reader in tuple(readers):  # what all have passed on is looked for once, not for each
            if reader.awaits_more:
                reader.blocked = reader.awaits_more = False
            if not reader.blocked:
                reader.catch_up(self)
        if self.kept:
            return True
        self.passed()
        if not self.readers:
            return True
        if len(self.readers) > 1:
            self._leave_behind()
        self._full = self.size - self._fastest() > self.window
        return not self._full

    def end(self, error: BaseException | None = None) -> None:
        """End the content; every reader gets the `error`, if any, after the rest."""
        self.ended = True
        self._error, self._traceback = error, error.__traceback__ if error is not None else None
        for reader in tuple(self.readers):
            if reader.awaits_more:
                reader.no_more(error)
            else:
                reader.go_on(self)

    def free(self) -> None:
        """Release the readers that await more."""
        for reader in tuple(self.readers):
            if reader.awaits_more:
                reader.drop_slow_reader()

    def close(self) -> None:
        """Close it to further readers: chunks that all have passed on are dropped."""
        self.kept = False
        self.passed()

    def hand_over(self, content: bytes) -> None:
        """Release the readers that stand still: the rest of their content is a part of what was kept."""
        for reader in tuple(self.readers):
            reader.hand_over(content)

    def chunk(self, index: int) -> bytes:
        """The chunk of this number, which no reader's own is greater than."""
        return self._chunks[index - self._dropped]

    def passed(self, mover: Reader | None = None, index: int = 0) -> None:
        """Drop the chunks that every reader has passed on, unless they are kept, and let the writer go on.

        A `mover` alone has passed on anything since the last call, from this index on.
        """
        if mover is not None and index == self._dropped:
            self._slowest -= 1
        if self._chunks and not self.kept and (mover is None or self._slowest <= 0):
            last = min((reader.index for reader in self.readers), default=self.count)
            while self._dropped < last:
                self._chunks.popleft()
                self._dropped += 1
            self._slowest = sum([reader.index == last for reader in self.readers])
        if self._full:
            fastest = self._fastest() if mover is None else mover.position
            if not self.readers or self.size - fastest <= self.window:
                self._full = False
                self._room()

    def is_unread(self) -> bool:
        """True if content is more than a window ahead of every reader, though there is one."""
        return bool(self.readers) and self.size - self._fastest() > self.window

    def _fastest(self) -> int:
        return max((reader.position for reader in self.readers), default=self.size)

    def _leave_behind(self) -> None:
        """Drop the readers that hold more than their share: one client that does not read stops no other."""
        for reader in tuple(self.readers):
            if self.size - reader.position > FAR_BEHIND:
                reader.drop_slow_reader()
