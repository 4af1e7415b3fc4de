"""Streams that stand still are ended: each look at them compares with the one before.

Floods of frames end by another rule: `Credit` in `frames.py`, which `Session` spends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from univocal.http.framing import MIN_RATE
from univocal.http.timer import NEVER, Timer
from univocal.server.http2.stream import Http2Stream
from univocal.server.listener import Listener


class Pace:
    """Looks at a connection's streams every `content_timeout` and every `send_timeout` seconds (see framing).

    Awaited request content must come in that time, MIN_RATE bytes for each second. A response that waits for
    the client's window must send something. While `is_blocked` says that the transport takes nothing, nothing
    is read either, and no stream is to blame. `give_up` ends the others.
    """

    __slots__ = ("_content", "_give_up", "_is_blocked", "_listener", "_streams", "_windows")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: Listener,
        streams: Mapping[int, Http2Stream],
        is_blocked: Callable[[], bool],
        give_up: Callable[[Http2Stream], None],
    ) -> None:
        self._listener = listener
        self._streams = streams
        self._is_blocked = is_blocked
        self._give_up = give_up
        self._content = Timer(loop, self._look_at_content)
        self._windows = Timer(loop, self._look_at_windows)

    def watch_content(self) -> None:
        """Begin to look at the content that comes, if nobody does."""
        if self._content.when == NEVER:
            self._content.set(self._listener.bounds.limits.content_timeout or None)

    def watch_windows(self) -> None:
        """Begin to look at the content that waits for a window, if nobody does."""
        if self._windows.when == NEVER:
            self._windows.set(self._listener.bounds.limits.send_timeout or None)

    def stop(self) -> None:
        """Look no more."""
        self._content.close()
        self._windows.close()
        self._is_blocked, self._give_up = bool, _nobody

    def _look_at_content(self) -> None:
        self._content.clear()
        seconds = self._listener.bounds.limits.content_timeout
        for stream in list(self._streams.values()):
            if stream.is_slow(int(MIN_RATE * seconds)) and not self._is_blocked():
                self._give_up(stream)
        if any(not stream.is_complete for stream in self._streams.values()):
            self._content.set(seconds or None)

    def _look_at_windows(self) -> None:
        self._windows.clear()
        for stream in list(self._streams.values()):
            if stream.is_stuck() and not self._is_blocked():
                self._give_up(stream)
        if any(stream.awaits_window for stream in self._streams.values()):
            self._windows.set(self._listener.bounds.limits.send_timeout or None)


def _nobody(_stream: Http2Stream) -> None:
    """Stands in for the connection that is lost: a circle would wait for the garbage collector."""
