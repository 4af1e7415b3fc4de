"""A request's turn on a client's connection: it frames and writes its response (RFC 9112)."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from univocal.engine.engine import Engine
from univocal.engine.exchange import Exchange
from univocal.engine.handshake import Handshake
from univocal.forward.roles import Origin
from univocal.http.fields import imf_fixdate
from univocal.http.messages import Fields, Received
from univocal.http.problem import FAULT, fault
from univocal.http.roles import ContentSink
from univocal.http.status import reason_phrase
from univocal.http.upgrade import Line, Switched
from univocal.judge.plan import Plan

__all__ = ["Turn", "Works"]

logger: Final = logging.getLogger("univocal")

# Octets of a request's content that wait for the origin server.
HIGH_WATER: Final = 64 * 1024

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
_CODING: Final = frozenset((b"transfer-encoding",))
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientWire(Protocol):
    """The part of a client's connection that a turn needs."""

    transport: Any
    flow: Any
    loop: Any

    def on_response_complete(self) -> None:
        """Go on with the next request."""

    def close(self) -> None:
        """Close once the client has taken all that was written."""

    def switch(self, end: Any) -> Switched:
        """Give the connection to another protocol."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the connection is closed."""


class Works(NamedTuple):
    """The engine behind a connection, and the origin that answers in its stead."""

    engine: Engine
    origin: Origin


class Silence:
    """A stand-in for the event by which uvicorn wakes an application: nobody waits here."""

    def set(self) -> None:
        """Wake nobody."""


_SILENCE: Final = Silence()


class Turn:
    """One request of a connection: its client and its content (see http.roles).

    The attributes up to `disconnected` are those that uvicorn's protocol reads of its own cycles.
    """

    __slots__ = (
        "_begun",
        "_body_left",
        "_chunked",
        "_chunks",
        "_close_delimited",
        "_fields",
        "_full",
        "_head",
        "_is_head",
        "_old",
        "_pending",
        "_plan",
        "_protocol",
        "_received",
        "_sink",
        "_taken",
        "_unwanted",
        "_works",
        "disconnected",
        "exchange",
        "keep_alive",
        "message_event",
        "more_body",
        "response_complete",
        "response_started",
        "waiting_for_100_continue",
    )

    def __init__(
        self,
        protocol: ClientWire,
        works: Works,
        received: Received,
        fields: Fields,
        *,
        version: str = "1.1",
        keep_alive: bool = True,
        expects_continue: bool = False,
        plan: Plan | None = None,
    ) -> None:
        self.response_complete = self.response_started = self.disconnected = False
        self.more_body = plan is None  # the head of an ordinary request is all of it
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_continue
        self.message_event = _SILENCE
        self.exchange: Exchange | None = None
        self._protocol = protocol
        self._works = works
        self._received = received
        self._fields = fields
        self._plan = plan
        self._old = version == "1.0"
        self._is_head = received.method == b"HEAD"
        self._chunked = self._close_delimited = False
        self._body_left = True  # the response may have content
        self._head = b""  # of the response, until there is something to send with it
        self._chunks: deque[bytes] = deque()  # of the request's content, which nobody has taken yet
        self._pending = 0  # octets in them
        self._taken = 0  # octets of the request's content so far
        self._sink: ContentSink | None = None
        self._begun: Callable[[], None] | None = None  # who hears that content has come
        self._full = False  # the sink takes no more for now
        self._unwanted = False  # nobody takes what still comes

    def begin(self) -> None:
        """Let the engine answer: it is this request's turn."""
        engine = self._works.engine
        begun = engine.clock(), time.perf_counter()
        admission = engine.gate.admit(self._received, self._fields, begun[0], self._plan)
        kind = Handshake if self._received.upgrade else Exchange
        exchange = self.exchange = kind(engine, self, admission, self._works.origin, self, begun)
        if self._taken and self._too_large():
            exchange.refuse(("body-too-large",))  # it has come while others were answered
        else:
            exchange.begin()

    def end(self, reasons: Sequence[str] = ()) -> None:
        """Give up: the client has left, or its content is faulty, of which the connection tells it."""
        self.disconnected = True
        self._chunks.clear()
        exchange, self.exchange = self.exchange, None
        if exchange is not None and reasons:
            exchange.refuse(reasons)
        elif exchange is not None:
            exchange.cancel()
            self._sink = None

    def fail(self, error: BaseException | None) -> None:
        """Answer that there is a fault here, or cut an answer that has begun."""
        logger.error("a request could not be answered", exc_info=error)
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.give_up(FAULT.status)
        if self.response_started:
            self.cut()
            return
        self.keep_alive = False
        told = fault(self._fields)
        self.start(told.status, told.fields)
        self.write(told.body)
        self.finish()

    # The response

    def interim(self, status: int, fields: Fields) -> None:
        # RFC 9110 §15.2: HTTP/1.0 has no interim responses. A 100 is for who waits for one (§10.1.1).
        if self._old or self.response_started or (status == 100 and not self.waiting_for_100_continue):
            return
        if status == 100:
            self.waiting_for_100_continue = False
        lines = [b"%b: %b\r\n" % field for field in fields if field[0] not in _FRAMING]
        self._protocol.transport.write(b"".join((_status_line(status), b"\r\n", *lines, b"\r\n")))

    def switch(self, fields: Fields) -> Line:
        """Send a 101, behind which the connection is another protocol's (see engine.handshake)."""
        self.response_started = True
        lines = [b"%b: %b\r\n" % field for field in fields]
        self._protocol.transport.write(b"".join((_status_line(101), b"\r\n", *lines, b"\r\n")))
        return self._protocol

    def start(self, status: int, fields: Fields) -> None:
        if self.disconnected:
            return
        self.response_started = True
        if self.waiting_for_100_continue and self.more_body:
            # RFC 9110 §10.1.1: without a 100 the client may leave its content out, and what comes next on
            # this connection could be either.
            self.keep_alive = False
        self.waiting_for_100_continue = False
        names = {name for name, _ in fields}
        kept = fields
        self._body_left = not (self._is_head or status in {204, 304})
        if b"transfer-encoding" in names or (status == 204 and b"content-length" in names):
            # The coding is this connection's own, below, and goes before a length (RFC 9112 §6.3); a 204 has
            # no length (RFC 9110 §8.6).
            dropped = _FRAMING if self._body_left or status == 204 else _CODING
            kept = [field for field in fields if field[0] not in dropped]
            names -= dropped
        head = b"\r\n".join([_status_line(status), *map(b": ".join, kept), b""])
        if b"date" not in names:  # RFC 9110 §6.6.1
            head += b"date: %b\r\n" % imf_fixdate(time.time())
        if self._body_left and b"content-length" not in names:
            if self._old:  # RFC 9112 §6.1: no coding for a client that cannot know it
                self._close_delimited, self.keep_alive = True, False
            else:
                self._chunked = True
                head += b"transfer-encoding: chunked\r\n"
        if b"connection" in names:  # our own word: of a response that ends the connection
            self.keep_alive = False
        elif not self.keep_alive:
            head += b"connection: close\r\n"
        self._head = head + b"\r\n"
        if self._body_left:
            self._protocol.loop.call_soon(self._show)

    def _show(self) -> None:
        """Send a head whose content has not come with it: the client may wait for it (an event stream's)."""
        if self._head and not self.disconnected:
            self._protocol.transport.write(self._head)
            self._head = b""

    def write(self, chunk: bytes | memoryview) -> bool:
        protocol = self._protocol
        if self.disconnected:
            return True
        if self._chunked and chunk:
            protocol.transport.write(b"%b%x\r\n%b\r\n" % (self._head, len(chunk), bytes(chunk)))
        elif not self._body_left:
            return True
        elif self._head:
            protocol.transport.write(self._head + bytes(chunk))
        else:
            protocol.transport.write(chunk)
        self._head = b""
        return not protocol.flow.write_paused

    def finish(self) -> None:
        if self.disconnected:
            return
        last = self._head + b"0\r\n\r\n" if self._chunked else self._head
        self._head = b""
        transport = self._protocol.transport
        if last:
            transport.write(last)
        self._over()
        if not self.keep_alive:
            transport.close()
        self._protocol.on_response_complete()

    def _over(self) -> None:
        """Let go of the exchange: objects in a circle wait for the garbage collector."""
        self.response_complete = True
        self.exchange = self._sink = None

    def cut(self) -> None:
        exchange = self.exchange
        if self.disconnected:
            return
        if not self.response_started:
            self.fail(None if exchange is None or exchange.error is None else exchange.error[0])
            return
        transport = self._protocol.transport
        if self._head:
            transport.write(self._head)
            self._head = b""
        self._over()
        if self._close_delimited or self._protocol.flow.write_paused:
            transport.abort()  # an orderly end would say that this was all, or wait for who reads nothing
        else:
            self._protocol.close()

    # The request's content

    def received(self, chunk: bytes) -> None:
        """Take content that has come."""
        if self.response_complete or self._unwanted:
            return
        self._taken += len(chunk)
        if self._too_large():
            cast("Exchange", self.exchange).refuse(("body-too-large",))
        elif self._sink is not None and not self._full:
            if not self._sink.write(chunk):
                self._full = True
                self._protocol.flow.pause_reading()
        else:
            self._chunks.append(chunk)
            self._pending += len(chunk)
            if self._full or self._pending > HIGH_WATER:
                self._protocol.flow.pause_reading()
            self._tell()

    def _too_large(self) -> bool:
        exchange = self.exchange
        return exchange is not None and 0 < exchange.admission.runtime.limits.max_body < self._taken

    def complete(self) -> None:
        """Take note that the content is complete."""
        self.more_body = False
        if not self._chunks:
            self._finish_content()
        self._tell()

    def _finish_content(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.finish()

    def when_begun(self, call: Callable[[], None] | None) -> None:
        self._begun = call
        if call is not None and (self._chunks or not self.more_body):
            self._protocol.loop.call_soon(self._tell)

    def _tell(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()

    def attach(self, sink: ContentSink) -> None:
        self._sink = sink
        if self.waiting_for_100_continue and self.more_body and not self._chunks:
            self._protocol.transport.write(_CONTINUE)
        self.waiting_for_100_continue = False
        self.resume()

    def resume(self) -> None:
        chunks = self._chunks
        self._full = False
        while chunks and self._sink is not None:
            chunk = chunks.popleft()
            self._pending -= len(chunk)
            if not self._sink.write(chunk):
                self._full = True
                break
        if chunks or self._sink is None:
            return
        if not self.more_body:
            self._finish_content()
        elif not self._full:
            self._protocol.flow.resume_reading()

    def detach(self) -> None:
        self._sink = None
        self._unwanted = True
        self._chunks.clear()
        self._pending = 0
        self._protocol.flow.resume_reading()


def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b" % (status, reason_phrase(status))
