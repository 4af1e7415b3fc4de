"""One request and its response on a connection; the response's content as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import httpx

from univocal.http.messages import Field, Fields
from univocal.origin.request_head import RequestHead

if TYPE_CHECKING:
    from univocal.origin.connection import Connection

__all__ = ["Exchange", "Informational"]

Informational = Callable[[int, Fields], object]

# Octets of content that wait for the reader before the origin is slowed down.
HIGH_WATER: Final = 128 * 1024

# RFC 9110 §10.1.1: a client that waits for 100 (Continue) must not wait for ever.
CONTINUE_TIMEOUT: Final = 1.0


class Exchange(httpx.AsyncByteStream):
    """The response's head as a future, its content as an asynchronous iterator.

    `read` and `write` are seconds for one wait: for the whole head, for the next octets of content, for
    the origin to take more of the request's content. Waiting for the *client's* content has no limit here.
    """

    def __init__(
        self,
        connection: Connection,
        head: RequestHead,
        read: float | None,
        write: float | None,
        informational: Informational | None,
    ) -> None:
        self.connection = connection
        self.request = head
        self.sent = head.length == 0
        self.status = 0
        self.version = b""
        self.fields: Fields = []
        self.trailers: list[Field] = []
        self.head: asyncio.Future[None] = connection.loop.create_future()
        self._read, self._write = read, write
        self._informational = informational
        self._chunks: list[bytes] = []
        self._waiting = 0  # octets in _chunks
        self._done = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._upload: asyncio.Task[None] | None = None
        self._continued: asyncio.Future[None] | None = None

    # What the connection reports.

    def interim(self, status: int, fields: Fields) -> None:
        """A 1xx response other than 101 (RFC 9110 §15.2)."""
        if status == 100 and self.request.expects_continue:
            # Reading the request's stream is what makes the server in front send its own 100.
            self._go_on()
        elif self._informational is not None:
            try:
                self._informational(status, fields)
            except Exception as error:
                self.connection.fail(error)
                return
        self._await_origin()

    def began(self, status: int, version: bytes, fields: Fields) -> None:
        """The final response's head is complete."""
        self.status, self.version, self.fields = status, version, fields
        self.connection.reading.clear()
        self._go_on()
        if not self.head.done():
            self.head.set_result(None)

    def received(self, content: bytes) -> None:
        """Octets of content."""
        self._chunks.append(content)
        self._waiting += len(content)

    def wake(self) -> bool:
        """Let the reader have what was received; True: it is far behind, slow the origin down."""
        reader = self._reader
        if reader is not None and self._chunks:
            self.connection.reading.clear()
            if not reader.done():
                reader.set_result(None)
        return self._waiting > HIGH_WATER

    def finished(self) -> None:
        """The response is complete; the connection belongs to others from now on."""
        self._end(None)

    def failed(self, error: Exception) -> None:
        """There will be no more of the response."""
        if not self.head.done():
            self.head.set_exception(error)
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._done, self._error = True, error
        self.connection.reading.clear()
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.cancel()
        reader = self._reader
        if reader is not None and not reader.done():
            reader.set_result(None)

    # What the reader of the response's content calls.

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
        self._waiting = 0
        if not self._done:
            self.connection.resume_reading()
        return content

    async def _more(self) -> None:
        self._reader = self.connection.loop.create_future()
        self._await_origin()
        try:
            await self._reader
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            self._reader = None

    async def aclose(self) -> None:
        """Forget the rest of the response; before its end this closes the connection."""
        self.abandon()
        self._chunks.clear()

    def abandon(self) -> None:
        """Close the connection unless it has passed on to others."""
        if not self._done:
            self.connection.drop()
            self._end(httpx.ReadError("the response was closed"))

    # How the request's content goes out.

    def send(self, content: object) -> None:
        """Send the request's content, if it has any, while the response is waited for: it may come early."""
        if self.sent:
            self._await_origin()
            return
        if not isinstance(content, httpx.AsyncByteStream):
            self.connection.fail(httpx.LocalProtocolError("the request's stream is not asynchronous"))
            return
        if self.request.expects_continue:
            self._continued = self.connection.loop.create_future()
        self._upload = self.connection.loop.create_task(self._send(content))

    async def _send(self, content: httpx.AsyncByteStream) -> None:
        try:
            if self._continued is None or await self._may_send(self._continued):
                await self._write_content(content)
        except Exception as error:  # whatever the stream raises ends the exchange
            self._upload = None
            self.connection.fail(error)
        else:
            self._upload = None
            self._await_origin()

    async def _may_send(self, continued: asyncio.Future[None]) -> bool:
        """Wait for 100 (Continue), a while; False: a final response came instead."""
        await asyncio.wait([continued], timeout=CONTINUE_TIMEOUT)
        return not self.head.done()

    async def _write_content(self, content: httpx.AsyncByteStream) -> None:
        connection, length, sent = self.connection, self.request.length, 0
        async for octets in content:
            if not octets:
                continue
            sent += len(octets)
            if length is None:
                # One write: writelines() of asyncio knows no back-pressure in some releases (3.12.1, 3.13.0).
                connection.write(b"%x\r\n%b\r\n" % (len(octets), octets))
            elif sent > length:
                raise httpx.LocalProtocolError("the content is longer than Content-Length says")
            else:
                connection.write(octets)
            if connection.blocked:
                await connection.drained(self._write)
            if sent == length:  # the stream's end may be long in coming, the response not
                self._all_sent()
        if length is None:
            connection.write(b"0\r\n\r\n")
            self._all_sent()
        elif sent < length:
            raise httpx.LocalProtocolError("the content is shorter than Content-Length says")

    def _all_sent(self) -> None:
        self.sent = True
        self._await_origin()

    def _await_origin(self) -> None:
        """Let the time run for the head or the next octets, where it is the origin that is waited for."""
        if (self.sent or self._upload is None) and (not self.head.done() or self._reader is not None):
            self.connection.reading.set(self._read)

    def _go_on(self) -> None:
        if self._continued is not None and not self._continued.done():
            self._continued.set_result(None)
