"""A connection to an origin: an asyncio protocol that serves one exchange at a time (RFC 9112 §9)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import ssl
from typing import Protocol

import httpx

from univocal.origin.deadline import Deadline
from univocal.origin.exchange import Exchange
from univocal.origin.response_reader import ResponseReader

__all__ = ["Connection", "Keeper", "StaleConnectionError"]


class StaleConnectionError(httpx.RemoteProtocolError):
    """A connection that had served before died before any octet of this response."""


class Keeper(Protocol):
    """Who owns connections between exchanges."""

    def put_back(self, connection: Connection) -> None: ...
    def withdraw(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """One connection; `closed` as soon as it must not be used any more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: Keeper, max_head: int) -> None:
        self.loop = loop
        self.closed = False
        self.reading = Deadline(loop, self._read_timed_out)
        self.idle = Deadline(loop, self.close)
        self._writing = Deadline(loop, self._write_timed_out)
        self._keeper = keeper
        self._reader = ResponseReader(max_head)
        self._exchange: Exchange | None = None
        self._drain: asyncio.Future[None] | None = None
        self._full = False
        self._paused = False
        self._reused = False
        self._transport: asyncio.Transport

    # What exchanges and the pool call.

    def start(self, exchange: Exchange) -> None:
        """Send the head of the exchange's request; its response is what comes next."""
        if self.closed:
            raise httpx.RemoteProtocolError("the origin closed the connection at once")
        request = exchange.request
        self._exchange = exchange
        self._reader.expect(exchange, is_head=request.is_head, upgrades=request.upgrades)
        self.idle.clear()
        self._transport.write(request.wire)

    def has_ended(self) -> bool:
        """Whether the kernel knows of an end, or of octets, that the event loop has not looked at yet."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    @property
    def blocked(self) -> bool:
        """Whether the origin takes no more for now, or will never again."""
        return self._full or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    async def drained(self, seconds: float | None) -> None:
        """Wait until the origin takes more; after `seconds` the exchange fails with httpx.WriteTimeout."""
        if self.closed:
            raise httpx.WriteError("the connection is closed")
        self._writing.set(seconds)
        self._drain = self.loop.create_future()
        try:
            await self._drain
        finally:
            self._drain = None
            self._writing.clear()

    def resume_reading(self) -> None:
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self._keeper.withdraw(self)
            # Not close(): over TLS that waits for the peer's farewell, and the descriptor with it.
            self._transport.abort()

    def drop(self) -> None:
        """Close in the middle of an exchange that nobody wants any more."""
        self._exchange = None
        self.close()

    def fail(self, error: Exception) -> None:
        """End the exchange under way with `error`, and the connection with it."""
        exchange, self._exchange = self._exchange, None
        self.close()
        if exchange is not None:
            exchange.failed(error)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        exchange, reader = self._exchange, self._reader
        if exchange is None:
            self.close()  # a response to no request
            return
        reader.feed(data)
        if self._exchange is not exchange:
            return  # whoever was told of a part had enough
        if reader.complete:
            self._finish(exchange)
        elif reader.fault:
            self.fail(httpx.RemoteProtocolError(reader.fault))
        elif exchange.wake() and not (self._paused or self.closed):
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        exchange = self._exchange
        if exchange is None:
            self.close()
        elif self._reader.close() and self._closed_by_the_origin():
            self._finish(exchange)
        else:
            self.fail(self._broken(httpx.RemoteProtocolError, "the origin closed the connection too early"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._keeper.lost(self)
        if self._exchange is not None and not self._exchange.sent:
            self._salvage()
        if self._exchange is not None:
            kind = httpx.ReadError if self._exchange.sent else httpx.WriteError
            self.fail(self._broken(kind, f"the connection to the origin was lost: {exc}"))
        for deadline in (self.reading, self.idle, self._writing):
            deadline.close()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)

    def _salvage(self) -> None:
        """Read an early refusal that arrived before the reset.

        An event loop that fails to write looks no further, although an origin that refuses a request and
        closes without reading its content causes just that, and the kernel still holds the response.
        """
        if self._transport.get_extra_info("sslcontext") is None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            with contextlib.suppress(OSError):
                while self._exchange is not None and (data := os.read(descriptor, 65536)):
                    self.data_received(data)

    def _finish(self, exchange: Exchange) -> None:
        """The response is complete: the connection goes back, or away."""
        self._exchange = None
        self._reused = True
        # Unsent content would be read as the next request (RFC 9112 §9.3), and what is still in the
        # buffer is what this origin does not read.
        if self._reader.reusable and exchange.sent and not self.blocked:
            self.resume_reading()
            self._keeper.put_back(self)
        else:
            self.close()
        exchange.finished()

    def _closed_by_the_origin(self) -> bool:
        """Whether the end is the origin's word: over TLS that takes a closure alert (RFC 9112 §9.8)."""
        tls = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            return not tls.read(1)  # nothing more, by the alert; without one, that is an error
        except ssl.SSLError:
            return False

    def _broken(self, kind: type[httpx.TransportError], message: str) -> Exception:
        if self._reused and not self._reader.began:
            return StaleConnectionError(message)
        return kind(message)

    def _read_timed_out(self) -> None:
        self.fail(httpx.ReadTimeout("the origin sent nothing in time"))

    def _write_timed_out(self) -> None:
        self.fail(httpx.WriteTimeout("the origin took nothing in time"))
