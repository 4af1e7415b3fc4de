"""`OriginConnections` as a transport of httpx: a response is awaited, and its content is a stream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Final

from univocal.http.messages import Fields, Received, Response
from univocal.http.pipe import Pipe
from univocal.http.roles import OriginRequest, UnderWay
from univocal.origin.client_library import as_httpx, httpx, next_piece, push
from univocal.origin.connection import PendingRequest
from univocal.origin.connections import Endpoint, OriginConnections
from univocal.origin.failures import UnsupportedSchemeError
from univocal.origin.pool import PoolSettings
from univocal.origin.resolving import Resolve, resolved
from univocal.origin.timeouts import Timeouts

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
