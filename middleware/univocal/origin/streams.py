"""Pushed and pulled: answers that are awaited, and content that is an asynchronous stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import Final

from univocal.http.messages import Fields, Response
from univocal.http.roles import Content, ContentSink, UnderWay
from univocal.origin.client_library import httpx

# Bytes of content that wait for who reads them before who sends them is slowed down.
HIGH_WATER: Final = 128 * 1024


class _Backlog(httpx.AsyncByteStream):
    """Content that has been pushed, and that its reader has yet to take."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._waiting = 0  # bytes in _chunks
        self._reader: asyncio.Future[None] | None = None

    def write(self, chunk: bytes) -> bool:
        """Keep content until it is read; False: there is much of it."""
        self._chunks.append(chunk)
        self._waiting += len(chunk)
        self._wake()
        return self._waiting <= HIGH_WATER

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def _news(self) -> None:
        """Wait until something has changed."""
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None


class AwaitedAnswer(_Backlog):
    """An `Answer` whose head is a future and whose content is an asynchronous stream.

    Its maker sets `under_way`. The next bytes of content are waited for `read` seconds, while somebody
    reads; then httpx.ReadTimeout is raised.
    """

    def __init__(
        self, informational: Callable[[int, Fields], object] | None = None, read: float | None = None
    ) -> None:
        super().__init__()
        self.head: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.under_way: UnderWay
        self._informational = informational
        self._read = read
        self._done = False
        self._error: Exception | None = None

    # Called by the connection.

    def interim(self, status: int, fields: Fields) -> None:
        """Tell the listener of a 1xx response; its error ends the exchange."""
        if self._informational is not None:
            try:
                self._informational(status, fields)
            except Exception as error:
                self.give_up(error)

    def start(self, response: Response) -> None:
        """End the wait for the head."""
        if not self.head.done():
            self.head.set_result(response)

    def finish(self) -> None:
        """End the stream behind what is there."""
        self._done = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """End the stream with `error` behind what is there."""
        self._done, self._error = True, error
        if not self.head.done():
            self.head.set_exception(error)
        self._wake()

    # Called by the reader.

    def give_up(self, error: Exception) -> None:
        """Want no more of the response, because of `error`."""
        if not self._done:
            self.under_way.cancel()
            self.fail(error)

    async def aclose(self) -> None:
        """Forget the rest of the response."""
        if not self._done:
            self._done, self._error = True, httpx.ReadError("the response was closed")
            self.head.cancel()
            self.under_way.cancel()
        self._chunks.clear()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._done:
                raise StopAsyncIteration
            await self._more()
        content = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        behind, self._waiting = self._waiting > HIGH_WATER, 0
        if behind and not self._done:
            self.under_way.resume()
        return content

    async def _more(self) -> None:
        try:
            async with asyncio.timeout(self._read):
                await self._news()
        except TimeoutError:
            self.give_up(httpx.ReadTimeout("the origin sent nothing in time"))
        except asyncio.CancelledError:
            await self.aclose()
            raise


class IteratedContent:
    """A `Content` out of an asynchronous iterable, whose error is told to `failed`."""

    def __init__(self, chunks: AsyncIterable[bytes], failed: Callable[[Exception], object]) -> None:
        self._chunks = chunks
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._goes_on: asyncio.Future[None] | None = None

    def when_begun(self, call: Callable[[], None] | None) -> None:
        """Call nobody: nothing comes of itself."""

    def attach(self, sink: ContentSink) -> None:
        """Begin to iterate."""
        self._task = asyncio.get_running_loop().create_task(self._push(sink))

    def resume(self) -> None:
        """Go on after the sink returned False."""
        if self._goes_on is not None and not self._goes_on.done():
            self._goes_on.set_result(None)

    def detach(self) -> None:
        """Iterate no more."""
        if self._task is not None:
            self._task.cancel()

    async def _push(self, sink: ContentSink) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for chunk in self._chunks:
                self._goes_on = loop.create_future()
                if not sink.write(chunk):
                    await self._goes_on
            sink.finish()
        except Exception as error:  # whatever the iterable raises ends the exchange
            self._failed(error)


class StreamedContent(_Backlog):
    """The stream of an httpx request out of a `Content`, to which it attaches itself when it is read."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content = content
        self._attached = self._ended = False

    def finish(self) -> None:
        """End the stream behind what is there."""
        self._ended = True
        self._wake()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._attached = True
        self._content.attach(self)
        while self._chunks or not self._ended:
            if self._chunks:
                chunk = self._chunks.popleft()
                behind = self._waiting > HIGH_WATER
                self._waiting -= len(chunk)
                if behind and self._waiting <= HIGH_WATER and not self._ended:
                    self._content.resume()
                yield chunk
            else:
                await self._news()

    def close(self) -> None:
        """Take no more of the content."""
        if self._attached and not self._ended:
            self._ended = True
            self._content.detach()
