"""The client library, imported here alone: its transports as ways to origin servers, and ours as one of them.

A task drives each request by such a transport. By `OriginTransport`, which is `OriginConnections` for it, a
response is awaited, and its content is a stream. httpx's line is frozen, and httpx2 carries it on: moving to
another library with the same transports changes one line.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

import httpx

from univocal.http.bonds import authenticates_connection
from univocal.http.messages import Fields, Received, Response, first, without
from univocal.http.pipe import Pipe
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.origin.addresses import OriginUrl, Resolve, resolved
from univocal.origin.connection import PendingRequest
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    InvalidRequestError,
    InvalidResponseError,
    OriginTimeoutError,
    PoolTimeoutError,
    ReadError,
    ReadTimeoutError,
    Timeouts,
    TransportError,
    UnsupportedSchemeError,
    WriteError,
    WriteTimeoutError,
)
from univocal.origin.pool import Endpoint, OriginConnections, PoolSettings

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
            raise httpx.RemoteProtocolError("a status above 599")
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


# Bytes of content that wait for the reader before the sender is paused.
HIGH_WATER: Final = 128 * 1024


class AwaitedAnswer(httpx.AsyncByteStream):
    """An `Answer` whose head is a future and whose content is an asynchronous stream.

    Its maker sets `under_way`. A reader waits `read` seconds for the next bytes; then httpx.ReadTimeout is
    raised.
    """

    def __init__(
        self, informational: Callable[[int, Fields], object] | None = None, read: float | None = None
    ) -> None:
        self._pipe = Pipe(self._resume, room=HIGH_WATER)
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

    def _resume(self) -> None:
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
                return await next_piece(self._pipe)
        except TimeoutError:
            self.give_up(httpx.ReadTimeout("the origin sent nothing in time"))
            return b""
        except asyncio.CancelledError:
            await self.aclose()
            raise


class IteratedContent:
    """The `content` of an asynchronous iterable, whose error is told to `failed`."""

    def __init__(self, chunks: AsyncIterable[bytes], failed: Callable[[Exception], object]) -> None:
        self.content = Pipe(self._resume, self._start)
        self._chunks = chunks
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._room = asyncio.Event()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def _resume(self) -> None:
        self._room.set()
        if self.content.is_unwanted and self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await push(self._chunks, self.content, self._room)
            self.content.finish()
        except Exception as error:  # whatever the iterable raises ends the exchange
            self._failed(error)


_FOR_EVER: Final = Timeouts(None, None, None, None)


class OriginTransport(httpx.AsyncBaseTransport):
    """The connections of `OriginConnections` for clients of httpx; `PoolSettings` explains the settings.

    It reads these of `request.extensions`:

    - "target" (bytes), which goes out unchanged;
    - "timeout" (a dict of seconds: connect, read, write, pool);
    - "informational", called with the status and fields of 1xx responses. It is not called for the 100 that
      an Expect field requested: then the request's stream is read;
    - "sni_hostname" (str).

    The content is sent if a Content-Length or Transfer-Encoding field announces it. `response.extensions` has
    "http_version" (bytes) and "trailers", a list of fields that is filled by the end of the stream.

    A `ReverseProxy` or an `OriginServer` takes its `origin_connections`, and none of httpx's objects.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        uds: str | None = None,
        max_connections: int = 1000,
        max_idle: int | None = None,
        idle_timeout: float = 4.0,
        max_head: int = 64 * 1024,
        resolve: Resolve = resolved,
    ) -> None:
        self.origin_connections = OriginConnections(
            PoolSettings(
                max_connections, max_connections if max_idle is None else max_idle, max_head, idle_timeout
            ),
            ssl_context=ssl_context,
            uds=uds,
            resolve=resolve,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Give the response to `request` as soon as its head is there.

        Raises httpx's errors: ConnectError, ConnectTimeout, PoolTimeout, WriteError, WriteTimeout, ReadError
        and ReadTimeout. RemoteProtocolError means a malformed or incomplete response, LocalProtocolError an
        invalid request, or content of another length than announced. UnsupportedProtocol is about the scheme.
        """
        url, extensions = request.url, request.extensions
        timeouts = _timeouts(extensions.get("timeout"))
        fields = request.headers.raw
        if b"host" not in [name.lower() for name, _ in fields]:
            fields.insert(0, (b"host", url.netloc))
        target = extensions.get("target")
        answer = _PulledResponse(extensions.get("informational"), timeouts.read)
        method, stream = request.method.encode("latin-1", "replace"), request.stream
        target = url.raw_path if target is None else target
        asked = OriginRequest(method, target, fields, Received(method, target))
        if isinstance(stream, httpx.AsyncByteStream):
            asked.content = IteratedContent(stream, answer.give_up).content
        endpoint = Endpoint(url.scheme, url.raw_host, url.port, extensions.get("sni_hostname"))
        try:
            pool = self.origin_connections.pool_of(endpoint)
        except UnsupportedSchemeError as error:
            raise as_httpx(error) from error
        answer.under_way = pool.send(asked, answer, timeouts, as_httpx)
        try:
            response = await answer.head
        except asyncio.CancelledError:
            await answer.aclose()
            raise
        return httpx.Response(
            response.status,
            headers=response.fields,
            stream=answer,
            extensions={"http_version": answer.version, "trailers": answer.trailers},
        )

    @property
    def connections(self) -> int:
        """The number of open connections, idle ones included."""
        return self.origin_connections.connections

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        await self.origin_connections.aclose()


def _timeouts(seconds: Mapping[str, float | None] | None) -> Timeouts:
    """The seconds of an httpx request; None where it has none."""
    if not seconds:
        return _FOR_EVER
    return Timeouts(seconds.get("connect"), seconds.get("read"), seconds.get("write"), seconds.get("pool"))


class _PulledResponse(AwaitedAnswer):
    """The answer as the stream of an httpx response; it counts the time for its content itself."""

    version: bytes
    trailers: Fields

    def start(self, response: Response) -> None:
        pending = self.under_way
        assert isinstance(pending, PendingRequest)
        pending.read = None
        assert pending.connection is not None
        reading = pending.connection.reader.reading
        self.version, self.trailers = reading.version, reading.trailers
        super().start(response)
