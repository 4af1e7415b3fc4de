"""A pipe: content between the one who brings it and the one who takes it, at the pace of the slower one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

# Bytes that wait for the one who takes them, before the one who brings them is to pause.
HIGH_WATER: Final = 64 * 1024


class ContentSink(Protocol):
    """The one to whom a pipe pushes."""

    def write(self, chunk: bytes) -> bool:
        """Take content; False: no more until `resume` of the pipe is called."""
        ...

    def finish(self) -> None:
        """Handle the end of the content."""


class Pipe:
    """Content on its way, a request's above all: a client that leaves ends the whole exchange.

    The source calls `write`, and pauses once that returns False; `go_on` is called when it may write again.
    The one who takes attaches a sink, or calls `take` whenever there is something; `start` is called once,
    before: a client that waits for 100 (Continue) is asked to go on (RFC 9110 §10.1.1).
    """

    def __init__(
        self, go_on: Callable[[], object], start: Callable[[], object] | None = None, room: int = HIGH_WATER
    ) -> None:
        self._wake = go_on
        self._start = start
        self._room = room
        self._chunks: deque[bytes] = deque()  # that are not taken yet
        self.waiting = 0  # bytes in them
        self._sink: ContentSink | None = None
        self._begun: Callable[[], object] | None = None  # who hears that content has come
        self._is_full = False  # the sink takes no more for now
        self._resumes = 0  # a sink may go on within the very call that returns False
        self.is_complete = False
        self.is_unwanted = False  # what still comes is dropped

    # Called by the source

    def write(self, chunk: bytes) -> bool:
        """Take content that has come; False: no more until `go_on` is called."""
        if self.is_unwanted:
            return True
        if self._sink is not None and not self._is_full:
            resumes = self._resumes
            self._is_full = not self._sink.write(chunk) and self._resumes == resumes
            return not self._is_full
        if chunk:
            self._chunks.append(chunk)
            self.waiting += len(chunk)
            if self._begun is not None:
                self._tell()
        return not self._is_full and self.waiting <= self._room

    def finish(self) -> None:
        """End the content."""
        self.is_complete = True
        if self._sink is not None and not self._chunks:
            self._finish()
        if self._begun is not None:
            self._tell()

    def forget(self) -> None:
        """Drop content that was not taken."""
        self._chunks.clear()
        self.waiting = 0

    def drop(self) -> None:
        """Release the receiver: objects in a circle wait for the garbage collector."""
        self._sink = self._begun = self._start = None

    # Called by the one who takes it

    def begin(self) -> None:
        """Ask the source to begin, once."""
        start, self._start = self._start, None
        if start is not None:
            start()

    def when_begun(self, call: Callable[[], object] | None) -> None:
        """Call once there is something to take, or the end; at once if there is; None: make no call."""
        self._begun = call
        if self._chunks or self.is_complete:
            self._tell()

    def take(self) -> bytes:
        """All that has come and was not taken; the source goes on if it was to wait for this."""
        chunks, is_behind = self._chunks, self.waiting > self._room
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self.waiting = 0
        if is_behind and not self.is_complete:
            self._wake()
        return content

    def attach(self, sink: ContentSink) -> None:
        """Push to `sink` from now on, what has come already at once."""
        self._sink = sink
        self.begin()
        self.resume()

    def pause(self) -> None:
        """Push nothing more for now, as if the sink had returned False."""
        self._is_full = True

    def resume(self) -> None:
        """Go on after the sink returned False."""
        chunks = self._chunks
        self._is_full = False
        self._resumes = resumes = self._resumes + 1
        while chunks and self._sink is not None:
            chunk = chunks.popleft()
            self.waiting -= len(chunk)
            if not self._sink.write(chunk) and self._resumes == resumes:
                self._is_full = True
                break
        if chunks or self._sink is None:
            return
        if self.is_complete:
            self._finish()
        elif not self._is_full:
            self._wake()

    def detach(self) -> None:
        """Push no more: what still comes is of no use."""
        self._sink = None
        self.is_unwanted = True
        self.forget()
        self._wake()

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.finish()

    def _tell(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()


def whole(content: bytes) -> Pipe:
    """Content that is all there."""
    pipe = Pipe(_nothing)
    pipe.write(content)
    pipe.finish()
    return pipe


def _nothing() -> None:
    """There is no source that would go on."""


NO_CONTENT: Final = whole(b"")
