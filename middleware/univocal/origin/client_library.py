"""The client library, imported here alone, and any transport of it as the way to an origin server.

A task drives each request by such a transport. httpx's line is frozen, and httpx2 carries it on: moving to
another library with the same transports changes one line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

import httpx

from univocal.http.bonds import authenticates_connection
from univocal.http.messages import Fields, Response, first, without
from univocal.http.pipe import Pipe
from univocal.http.roles import Answer, OriginRequest
from univocal.origin.addresses import OriginUrl
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
from univocal.origin.timeouts import Timeouts

__all__ = ["httpx"]


# Our errors and httpx's, the special before the general.
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


async def next_piece(pipe: Pipe) -> bytes:
    """The next content of a pipe; b"" at its end."""
    news = asyncio.Event()
    pipe.when_begun(news.set)
    await news.wait()
    return pipe.take()


async def push(chunks: AsyncIterable[bytes], pipe: Pipe, room: asyncio.Event) -> None:
    """Write chunks to a pipe, whose `go_on` sets `room`, until it wants no more."""
    async for chunk in chunks:
        if pipe.is_unwanted:
            return
        room.clear()
        if chunk and not pipe.write(chunk):
            await room.wait()


class StreamedContent(httpx.AsyncByteStream):
    """The stream of an httpx request out of its content, which begins when it is read."""

    def __init__(self, content: Pipe) -> None:
        self._content = content
        self._has_begun = self._is_closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._has_begun = True
        self._content.begin()
        while piece := await next_piece(self._content):
            yield piece

    def close(self) -> None:
        """Take no more of the content."""
        if self._has_begun and not (self._is_closed or self._content.is_complete):
            self._is_closed = True
            self._content.detach()


class ForeignWay:
    """The way to one origin server by any other httpx transport."""

    def __init__(self, transport: httpx.AsyncBaseTransport, url: OriginUrl) -> None:
        self._transport = transport
        self._root = httpx.URL(f"{url.scheme}://{url.authority.decode()}/")
        self._retired = False
        self._under_way: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None

    def ask(
        self,
        request: OriginRequest,
        answer: Answer,
        timeouts: Timeouts,
        failure: Callable[[Exception], Exception],
    ) -> ForeignRequest:
        """Send a request; `failure` turns a TransportError into the answer's error."""
        try:
            # For test doubles and logs alone: URL classes respell paths, so the target goes beside it.
            url = self._root.copy_with(raw_path=request.target)
        except httpx.InvalidURL:
            url = self._root
        pending = ForeignRequest(self._transport, answer, lambda error: failure(as_ours(error)))
        extensions, fields = {"target": request.target, "timeout": asdict(timeouts)}, request.fields
        credentials = first(fields, b"authorization")
        if credentials is not None and authenticates_connection(credentials):
            fields = [*without(fields, [b"connection"]), (b"connection", b"close")]  # it is one client's
        pending.send(request.method, url, fields, request.content, extensions)
        self._under_way.add(pending.task)
        pending.task.add_done_callback(self._ended)
        return pending

    def retire(self) -> None:
        """Close the transport as soon as it has no request under way; requests are answered as ever."""
        self._retired = True
        self._close_unused()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._close_unused()

    def _close_unused(self) -> None:
        if self._retired and not self._under_way:
            self._closing = asyncio.get_running_loop().create_task(self._transport.aclose())


class ForeignRequest:
    """A request that is under way by a foreign transport (a `Pending`); `failure` makes its error."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport, answer: Answer, failure: Callable[[Exception], Exception]
    ) -> None:
        self._failure = failure
        self._transport = transport
        self._answer = answer
        self.came = False  # a response's head, or an interim one
        self.took = False  # there is content: how much of it was sent is not known
        self._over = False
        self._room = asyncio.Event()
        self._pipe = Pipe(self._room.set)  # of the response's content
        self.task: asyncio.Task[None]

    def send(
        self, method: bytes, url: httpx.URL, fields: Fields, content: Pipe | None, extensions: dict[str, Any]
    ) -> None:
        """Handle the request by the transport, in a task."""
        self.took = content is not None
        stream = StreamedContent(content) if content is not None else None
        name = method.decode("latin-1")
        request = httpx.Request(
            name, url, headers=fields, stream=stream or httpx.ByteStream(b""),
            extensions={**extensions, "informational": self._interim},
        )  # fmt: skip
        request.method = name  # methods are case-sensitive (RFC 9110 §9.1): not to httpx
        self.task = asyncio.get_running_loop().create_task(self._run(request, stream))

    def pause(self) -> None:
        """Read no more of the response for now."""
        self._pipe.pause()

    def resume(self) -> None:
        """Read again."""
        self._pipe.resume()

    def cancel(self) -> None:
        """Give up."""
        if not self._over:
            self._over = True
            self._pipe.detach()
            self.task.cancel()

    async def _run(self, request: httpx.Request, stream: StreamedContent | None) -> None:
        try:
            response = await self._transport.handle_async_request(request)
            try:
                await self._relay(response)
            finally:
                await _close(request, response)
        except Exception as error:  # also what a test's handler raises: somebody waits for the answer
            if not self._over:
                self._over = True
                self._answer.fail(self._failure(error))
        else:
            if not self._over:
                self._over = True
                self._pipe.finish()
        finally:
            if stream is not None:
                stream.close()

    async def _relay(self, response: httpx.Response) -> None:
        self.came = True
        if response.status_code > 599:  # RFC 9110 §15: a status code is from 100 to 599
            raise httpx.RemoteProtocolError("a status that is none")
        fields = [(name.lower(), value) for name, value in response.headers.raw]
        self._answer.start(Response(response.status_code, fields))
        assert isinstance(response.stream, httpx.AsyncByteStream)
        if not self._over:
            self._pipe.attach(self._answer)
        await push(response.stream, self._pipe, self._room)

    def _interim(self, status: int, fields: Fields) -> None:
        if not self._over:
            self.came = True
            self._answer.interim(status, [(name.lower(), value) for name, value in fields])


async def _close(request: httpx.Request, response: httpx.Response) -> None:
    """Close a response, and with it the connection on which content may follow that belongs to no request.

    httpx would read that as the response to the next request, as `ResponseReader` would.
    """
    extensions = response.extensions
    bodiless = request.method == "HEAD" or response.status_code in {204, 304}
    if bodiless and extensions.get("http_version", b"").startswith(b"HTTP/1."):
        stream = extensions.get("network_stream")
        if stream is not None:
            await stream.aclose()
    await response.aclose()
