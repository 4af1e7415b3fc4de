"""httpx: `OriginConnections` as a transport, and any other transport as the way to an origin server.

One pushes and the other is awaited: answers are futures, and content is an asynchronous stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from univocal.http.bonds import authenticates_connection
from univocal.http.fields import first, without
from univocal.http.messages import Fields, Response
from univocal.http.pipe import Pipe
from univocal.http.roles import Answer, Content, UnderWay
from univocal.origin.addresses import OriginUrl
from univocal.origin.client_library import httpx
from univocal.origin.connection import PendingRequest
from univocal.origin.connections import Endpoint, OriginConnections
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


_FOR_EVER: Final = Timeouts(None, None, None, None)


class OriginTransport(httpx.AsyncBaseTransport):
    """The connections of `OriginConnections`, which has the same settings, for clients of httpx.

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

    def __init__(self, **settings: Any) -> None:
        self.origin_connections = OriginConnections(**settings)

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
        stream = request.stream
        try:
            answer.under_way = self.origin_connections.ask(
                Endpoint(url.scheme, url.raw_host, url.port, extensions.get("sni_hostname")),
                request.method.encode("latin-1", "replace"),
                url.raw_path if target is None else target,
                fields,
                IteratedContent(stream, answer.give_up).content
                if isinstance(stream, httpx.AsyncByteStream)
                else None,
                answer,
                timeouts,
                as_httpx,
            )
        except TransportError as error:
            raise as_httpx(error) from error
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
        method: bytes,
        target: bytes,
        fields: Fields,
        content: Content | None,
        answer: Answer,
        timeouts: Timeouts,
        failure: Callable[[Exception], Exception],
    ) -> ForeignRequest:
        """Send a request; `failure` turns a TransportError into the answer's error."""
        try:
            # For test doubles and logs alone: URL classes respell paths, so the target goes beside it.
            url = self._root.copy_with(raw_path=target)
        except httpx.InvalidURL:
            url = self._root
        request = ForeignRequest(self._transport, answer, lambda error: failure(as_ours(error)))
        extensions = {"target": target, "timeout": asdict(timeouts)}
        credentials = first(fields, b"authorization")
        if credentials is not None and authenticates_connection(credentials):
            fields = [*without(fields, [b"connection"]), (b"connection", b"close")]  # it is one client's
        request.send(method, url, fields, content, extensions)
        self._under_way.add(request.task)
        request.task.add_done_callback(self._ended)
        return request

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
        self,
        transport: httpx.AsyncBaseTransport,
        answer: Answer,
        failure: Callable[[Exception], Exception],
    ) -> None:
        self._failure = failure
        self._transport = transport
        self._answer = answer
        self.came = False  # a response's head, or an interim one
        self.took = False  # there is content: nobody knows how much of it was sent
        self._over = self._paused = False
        self._goes_on: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None]

    def send(
        self,
        method: bytes,
        url: httpx.URL,
        fields: Fields,
        content: Content | None,
        extensions: dict[str, Any],
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
        self._paused = True

    def resume(self) -> None:
        """Read again."""
        self._paused = False
        if self._goes_on is not None and not self._goes_on.done():
            self._goes_on.set_result(None)

    def cancel(self) -> None:
        """Give up."""
        if not self._over:
            self._over = True
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
                self._answer.finish()
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
        loop = asyncio.get_running_loop()
        async for chunk in response.stream:
            if self._over:
                return
            self._goes_on = loop.create_future()
            if chunk and not self._answer.write(chunk):
                self._paused = not self._goes_on.done()
            if self._paused:
                await self._goes_on

    def _interim(self, status: int, fields: Fields) -> None:
        if not self._over:
            self.came = True
            self._answer.interim(status, [(name.lower(), value) for name, value in fields])


async def _close(request: httpx.Request, response: httpx.Response) -> None:
    """Close a response, and with it the connection on which content may follow that belongs to nobody.

    httpx would read that as the response to the next request, as `ResponseReader` would.
    """
    extensions = response.extensions
    bodiless = request.method == "HEAD" or response.status_code in {204, 304}
    if bodiless and extensions.get("http_version", b"").startswith(b"HTTP/1."):
        stream = extensions.get("network_stream")
        if stream is not None:
            await stream.aclose()
    await response.aclose()
