"""A request's content on its way from its stream to the one who takes it, whatever version it came by."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from univocal.http.roles import ContentSink
from univocal.server.roles import Stream

# Bytes of a request's content that wait for the one who takes them.
HIGH_WATER: Final = 64 * 1024


class RequestContent:
    """The content of one request (`Content` in http.roles); its turn pushes, its responder attaches a sink.

    While nobody takes what has come, the stream is paused. `octets` have come so far.
    """

    __slots__ = (
        "_begun",
        "_chunks",
        "_is_full",
        "_sink",
        "_stream",
        "_waiting",
        "awaits_continue",
        "is_complete",
        "is_unwanted",
        "octets",
    )

    def __init__(self, stream: Stream, *, expects_continue: bool = False) -> None:
        self._stream = stream
        self._chunks: deque[bytes] = deque()  # that nobody has taken yet
        self._waiting = 0  # bytes in them
        self._sink: ContentSink | None = None
        self._begun: Callable[[], None] | None = None  # who hears that content has come
        self._is_full = False  # the sink takes no more for now
        self.awaits_continue = expects_continue  # RFC 9110 §10.1.1
        self.is_complete = False
        self.is_unwanted = False  # nobody takes what still comes
        self.octets = 0

    # Called by the turn

    def push(self, chunk: bytes) -> None:
        """Take content that has come."""
        if self._sink is not None and not self._is_full:
            if not self._sink.write(chunk):
                self._is_full = True
                self._stream.pause()
            return
        self._chunks.append(chunk)
        self._waiting += len(chunk)
        if self._is_full or self._waiting > HIGH_WATER:
            self._stream.pause()
        self._tell()

    def end(self) -> None:
        """Take note that the content is complete."""
        self.is_complete = True
        if not self._chunks:
            self._finish()
        self._tell()

    def forget(self) -> None:
        """Let go of what nobody has taken."""
        self._chunks.clear()
        self._waiting = 0

    def drop(self) -> None:
        """Let go of who takes it: objects in a circle wait for the garbage collector."""
        self._sink = self._begun = None

    # Called by the responder

    def when_begun(self, call: Callable[[], None] | None) -> None:
        """Call once bytes of it, or its end, have come, soon if they have by now; None: call nobody."""
        self._begun = call
        if call is not None and (self._chunks or self.is_complete):
            asyncio.get_running_loop().call_soon(self._tell)

    def attach(self, sink: ContentSink) -> None:
        """Push to `sink`; a client that waits for 100 (Continue) is asked to go on (RFC 9110 §10.1.1)."""
        self._sink = sink
        if self.awaits_continue:
            self.awaits_continue = False
            if not (self.is_complete or self._chunks):
                self._stream.interim(100, [])
        self.resume()

    def resume(self) -> None:
        """Go on after the sink returned False."""
        chunks = self._chunks
        self._is_full = False
        while chunks and self._sink is not None:
            chunk = chunks.popleft()
            self._waiting -= len(chunk)
            if not self._sink.write(chunk):
                self._is_full = True
                break
        if chunks or self._sink is None:
            return
        if self.is_complete:
            self._finish()
        elif not self._is_full:
            self._stream.resume()

    def detach(self) -> None:
        """Push no more: what still comes is of no use."""
        self._sink = None
        self.is_unwanted = True
        self.forget()
        self._stream.resume()

    def _finish(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.finish()

    def _tell(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()


class NoContent:
    """The content of a request that has none."""

    __slots__ = ()

    def when_begun(self, call: Callable[[], None] | None) -> None:
        """Call soon: its end has come."""
        if call is not None:
            asyncio.get_running_loop().call_soon(call)

    def attach(self, sink: ContentSink) -> None:
        """Tell the sink of the end."""
        sink.finish()

    def resume(self) -> None:
        """Nothing is left."""

    def detach(self) -> None:
        """Nothing more comes."""


NO_CONTENT: Final = NoContent()
