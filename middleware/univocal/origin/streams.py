"""Pushed and pulled: answers that are awaited, and content that is an asynchronous stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Final

from univocal.http.messages import Fields, Response
from univocal.http.pipe import Pipe
from univocal.http.roles import Content, UnderWay
from univocal.origin.client_library import httpx
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    InvalidRequestError,
    InvalidResponseError,
    OriginTimeoutError,
    PoolTimeoutError,
    ReadError,
    ReadTimeoutError,
    TransportError,
    UnsupportedSchemeError,
    WriteError,
    WriteTimeoutError,
)

# Both trees, the special before the general.
_SAME: Final[tuple[tuple[type[TransportError], type[httpx.TransportError]], ...]] = (
    (ConnectTimeoutError, httpx.ConnectTimeout),
    (PoolTimeoutError, httpx.PoolTimeout),
    (ReadTimeoutError, httpx.ReadTimeout),
    (WriteTimeoutError, httpx.WriteTimeout),
    (OriginTimeoutError, httpx.TimeoutException),
    (ConnectError, httpx.ConnectError),
    (ReadError, httpx.ReadError),
    (WriteError, httpx.WriteError),
    (UnsupportedSchemeError, httpx.UnsupportedProtocol),
    (InvalidRequestError, httpx.LocalProtocolError),
    (InvalidResponseError, httpx.RemoteProtocolError),
    (TransportError, httpx.TransportError),
)


def as_httpx(error: Exception) -> Exception:
    """The error of httpx for a TransportError, which is its cause; any other error as it is."""
    return _turned(error, _SAME)


def as_ours(error: Exception) -> Exception:
    """The TransportError for an error of an httpx transport, which is its cause; any other error as it is."""
    return _turned(error, ((theirs, ours) for ours, theirs in _SAME))


def _turned(error: Exception, pairs: Iterable[tuple[type[Exception], type[Exception]]]) -> Exception:
    for from_this, to_that in pairs:
        if isinstance(error, from_this):
            other = to_that(str(error))
            other.__cause__ = error
            return other
    return error


# Bytes of content that wait for who reads them before who sends them is slowed down.
HIGH_WATER: Final = 128 * 1024


async def _next_piece(pipe: Pipe) -> bytes:
    """The next content of a pipe; b"" at its end."""
    news = asyncio.Event()
    pipe.when_begun(news.set)
    await news.wait()
    return pipe.take()


class AwaitedAnswer(httpx.AsyncByteStream):
    """An `Answer` whose head is a future and whose content is an asynchronous stream.

    Its maker sets `under_way`. The next bytes of content are waited for `read` seconds, while somebody
    reads; then httpx.ReadTimeout is raised.
    """

    def __init__(
        self, informational: Callable[[int, Fields], object] | None = None, read: float | None = None
    ) -> None:
        self._pipe = Pipe(self._go_on, room=HIGH_WATER)
        self.head: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.under_way: UnderWay
        self._informational = informational
        self._read = read
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

    def write(self, chunk: bytes) -> bool:
        """Keep content until it is read; False: there is much of it."""
        return self._pipe.write(chunk)

    def finish(self) -> None:
        """End the stream behind what is there."""
        self._pipe.finish()

    def fail(self, error: Exception) -> None:
        """End the stream with `error` behind what is there."""
        self._error = error
        if not self.head.done():
            self.head.set_exception(error)
        self._pipe.finish()

    def _go_on(self) -> None:
        self.under_way.resume()

    # Called by the reader.

    def give_up(self, error: Exception) -> None:
        """Want no more of the response, because of `error`."""
        if not self._pipe.is_complete:
            self.under_way.cancel()
            self.fail(error)

    async def aclose(self) -> None:
        """Forget the rest of the response."""
        if not self._pipe.is_complete:
            self._error = httpx.ReadError("the response was closed")
            self._pipe.finish()
            self.head.cancel()
            self.under_way.cancel()
        self._pipe.forget()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        content = self._pipe.take()
        if not content and not self._pipe.is_complete:
            content = await self._more()
        if content:
            return content
        raise StopAsyncIteration if self._error is None else self._error

    async def _more(self) -> bytes:
        try:
            async with asyncio.timeout(self._read):
                return await _next_piece(self._pipe)
        except TimeoutError:
            self.give_up(httpx.ReadTimeout("the origin sent nothing in time"))
            return b""
        except asyncio.CancelledError:
            await self.aclose()
            raise


class IteratedContent:
    """The `content` of an asynchronous iterable, whose error is told to `failed`."""

    def __init__(self, chunks: AsyncIterable[bytes], failed: Callable[[Exception], object]) -> None:
        self.content = Pipe(self._go_on, self._start)
        self._chunks = chunks
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _go_on(self) -> None:
        self._room.set()
        if self.content.is_unwanted and self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async for chunk in self._chunks:
                self._room.clear()
                if not self.content.write(chunk):
                    await self._room.wait()
            self.content.finish()
        except Exception as error:  # whatever the iterable raises ends the exchange
            self._failed(error)


class StreamedContent(httpx.AsyncByteStream):
    """The stream of an httpx request out of a `Content`, to which it attaches itself when it is read."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._pipe = Pipe(content.resume, room=HIGH_WATER)
        self._attached = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._attached = True
        self._content.attach(self._pipe)
        while piece := await _next_piece(self._pipe):
            yield piece

    def close(self) -> None:
        """Take no more of the content."""
        if self._attached and not self._pipe.is_complete:
            self._pipe.finish()
            self._content.detach()
