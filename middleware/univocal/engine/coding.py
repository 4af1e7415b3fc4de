"""Compression of responses that are not stored, while they stream, a little in each iteration of the loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from univocal.store.compression import Coder, coder_of

# Seconds of an iteration of the event loop in which all streams together are compressed.
_A_TURN: Final = 0.002
# Bytes that are compressed in one go: less than a millisecond.
_PIECE: Final = 16 * 1024


def _call_soon(call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(call)


class CodedStreams:
    """The responses that are compressed at the moment; each has its part of an iteration of the loop.

    A coder takes up to a MiB of memory, so there are `most` at a time.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object] = _call_soon,
        ticks: Callable[[], float] = time.perf_counter,
        most: int = 128,
    ) -> None:
        self._call_soon = call_soon  # in the next iteration
        self._most = most
        self._ticks = ticks  # seconds that never go back
        self._waiting = deque[CodedContent]()  # with content that is to be compressed, or flushed
        self._held_back: list[CodedContent] = []  # that are to be flushed in the next iteration
        self._spent = 0.0  # seconds of this iteration
        self._due = False
        self._is_working = False
        self.open = 0

    def begin(
        self,
        coding: bytes,
        deliver: Callable[[bytes], bool],
        more: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> CodedContent | None:
        """The content of a response in this coding; None if there are too many by now."""
        if self.open >= self._most:
            return None
        content = CodedContent(self, coder_of(coding), deliver, more, fail)
        self.open += 1
        return content

    def take(self, content: CodedContent) -> None:
        """Compress what has come, at once as far as this iteration has time for it."""
        if content not in self._waiting:
            self._waiting.append(content)
        if not self._is_working:
            self._work()

    def hold_back(self, content: CodedContent) -> None:
        """Deliver what its coder holds in the next iteration, with what comes until then."""
        self._held_back.append(content)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if not self._due:
            self._due = True
            self._call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._due, self._spent = False, 0.0
        held_back, self._held_back = self._held_back, []
        self._waiting.extend(held_back)
        if self._waiting:
            self._work()

    def _work(self) -> None:
        waiting, begun, self._is_working = self._waiting, self._ticks(), True
        end = begun + _A_TURN - self._spent
        try:
            while waiting and self._ticks() < end:
                content = waiting.popleft()
                try:
                    if content.step():
                        waiting.append(content)
                except Exception as error:
                    content.fail(error)  # it lacks a piece; the others go on
        finally:
            self._is_working = False
            self._spent += self._ticks() - begun
            self._go_on_later()


class CodedContent:
    """The content of one response, on its way through a coder to the client.

    `deliver` sends bytes to the client: False says that it takes no more until `resume`. `more` asks for more
    after `write` has returned False. `fail` hears of an error here, behind which nothing is delivered.
    """

    __slots__ = (
        "_coder",
        "_deliver",
        "_ends",
        "_fail",
        "_is_asked",
        "_is_full",
        "_left",
        "_more",
        "_streams",
        "lags",
    )

    def __init__(
        self,
        streams: CodedStreams,
        coder: Coder,
        deliver: Callable[[bytes], bool],
        more: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self._streams = streams
        self._coder: Coder | None = coder
        self._deliver: Callable[[bytes], bool] | None = deliver
        self._more: Callable[[], None] | None = more
        self._fail: Callable[[Exception], None] | None = fail
        self._left = memoryview(b"")  # that is not compressed yet
        self._is_full = False  # the client takes no more
        self._is_asked = True  # `more` is not waited for
        self._ends = False
        self.lags = False  # some of what was written is not delivered

    def write(self, chunk: bytes) -> bool:
        """Take a chunk; False: no more until `more`."""
        left = self._left
        self._left = memoryview(b"".join((left, chunk)) if len(left) else chunk)
        self.lags = True
        self._enter_queue()
        self._is_asked = not (len(self._left) or self._is_full)
        return self._is_asked

    def step(self) -> bool:
        """Compress a piece, or flush the coder where nothing has come; True: another piece is there."""
        coder = self._coder
        if coder is None or self._is_full:
            return False
        if not len(self._left):
            self.flush()
            return False
        piece, self._left = self._left[:_PIECE], self._left[_PIECE:]
        self._send(coder.encode(piece))
        if len(self._left):
            return True
        self._drained()
        return False

    def _drained(self) -> None:
        """Have the coder flushed, and ask for more."""
        if self._coder is None:
            return
        self._streams.hold_back(self)
        if not self._is_asked and not self._is_full and self._more is not None:
            self._is_asked = True
            self._more()

    def flush(self) -> None:
        """Deliver what the coder holds."""
        coder = self._coder
        if coder is not None and not self._is_full and self.lags:
            self.lags = False
            self._send(coder.flush())

    def end(self) -> bool:
        """Deliver the rest; False: the client takes no more for now, and `resume` goes on."""
        self._ends = True
        coder = self._coder
        if coder is None or self._is_full:
            return False
        self._coder = None
        self._send(coder.finish())
        return True

    def resume(self) -> bool:
        """Go on: the client takes more; True once all of it is delivered."""
        self._is_full = False
        if self._ends:
            return self.end()
        self._enter_queue()
        return False

    def _enter_queue(self) -> None:
        if len(self._left):
            self._streams.take(self)
        else:
            self._drained()

    def fail(self, error: Exception) -> None:
        """Tell of an error here."""
        if self._fail is not None:
            self._fail(error)

    def close(self) -> None:
        """Deliver nothing more; the exchange is over."""
        if self._more is not None:
            self._streams.open -= 1
        self._coder = self._deliver = self._more = self._fail = None
        self._left, self.lags = memoryview(b""), False

    def _send(self, octets: bytes) -> None:
        """Deliver bytes; within the call the client may leave."""
        if octets and self._deliver is not None and not self._deliver(octets):
            self._is_full = True
