"""A client's connection under uvicorn: reading from it is bounded in octets and in time.

llhttp, by httptools, takes messages apart; `univocal.server.protocol` judges their heads. uvicorn's
protocol classes are no public interface: `OVERRIDES` and `RELIES_ON` name all that is used of one, and a test
compares those with the installed version.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from univocal.http.framing import MIN_RATE, ReadLimits
from univocal.http.messages import Received, values
from univocal.http.problem import FAULT, Problem, problem
from univocal.server.clients import Clients
from univocal.server.complaints import COMPLAINTS
from univocal.server.delivery import Delivering, Delivery
from univocal.server.llhttp import (
    METHODS,
    PLACEHOLDER,
    MessageEnds,
    new_parser,
    split_method,
    version_of,
    why,
    without_empty_lines,
)

__all__ = [
    "BETWEEN",
    "CONTENT",
    "HEAD",
    "NEVER",
    "OVERRIDES",
    "PIECE",
    "RELIES_ON",
    "BoundedConnection",
    "Flow",
]

# HttpToolsProtocol's methods that are replaced or extended, here and in the classes below …
OVERRIDES: Final = (
    "__init__",
    "connection_lost",
    "connection_made",
    "data_received",
    "on_body",
    "on_header",
    "on_headers_complete",
    "on_message_begin",
    "on_message_complete",
    "on_response_complete",
    "on_url",
    "pause_writing",
    "resume_writing",
    "shutdown",
)
# … and those that are called, or that uvicorn and asyncio call and that must go on doing what they do.
RELIES_ON: Final = (
    "_get_upgrade",
    "_should_upgrade",
    "_should_upgrade_to_ws",
    "_start_asgi_task",
    "eof_received",
    "handle_websocket_upgrade",
)

# Where the parser stands in a connection's octets.
BETWEEN, HEAD, CONTENT = range(3)

# Octets parsed at once. While a response is under way the next requests wait unparsed, so that what one
# connection has had parsed ahead is bounded by this and not by what the kernel had ready.
PIECE: Final = 16384
# Steps that one connection may take before others have their turn, a few milliseconds: a piece of content is
# one of them, and what may be a message this many.
_AT_ONCE: Final = 512
_MESSAGE: Final = 16
LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)
NEVER: Final = math.inf
# Reasons that one client gives for many connections: each is said once, by `Clients`.
_SAID: Final = frozenset(("too-many-requests", "overloaded"))
READ_LIMITS: Final = ReadLimits()


class BoundedConnection(Delivering, HttpToolsProtocol):
    """uvicorn's httptools protocol with bounds, deadlines, and refusals that say why and keep their turn."""

    flow: Flow

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ReadLimits = READ_LIMITS,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = new_parser(self)
        self._tell = tell
        self._clients = Clients() if clients is None else clients
        self._objection = ""  # the reason for which this is one connection too many
        self.rested = 0.0  # the loop's time since which no request is under way, if none is
        self._keep_alive = max(self.timeout_keep_alive, 0.001)  # uvicorn's 0 is no time, not all time
        self.bound_by(limits)
        self._phase = BETWEEN
        self._silence = 0  # octets that took the head, or the content, no further
        self._arrived = 0  # octets of content since it was last seen to keep its pace
        self._unparsed: bytes | memoryview = b""
        self._parsing = False
        self._steps = 0  # that this turn of the event loop has taken
        self._later: asyncio.Handle | None = None  # the next turn, in which parsing goes on
        self._ends = MessageEnds()
        self._start = b""  # of a message, while it is not known with which method it begins
        self._line: bytes | None = None  # the last octets of a request line that has not ended
        self._version = ""  # of the last request line, "" if it is not HTTP/1's
        self._method = b""  # one that llhttp does not know
        self._websocket = False  # the connection is another protocol's now
        self._undecided = False  # a handshake waits for its answer: what comes may be another protocol's
        self._refusal: Problem | None = None
        self._due = NEVER  # the loop's time at which the client must have gone on
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(
        cls,
        limits: ReadLimits,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http` with these limits: a factory, since a new class cannot be pickled.

        `tell` hears of each request that no application will: all that is known of it, and the reasons.
        `clients` are those of one listener, whose number is bounded.
        """
        return cast("type[asyncio.Protocol]", partial(cls, limits=limits, tell=tell, clients=clients))

    def bound_by(self, limits: ReadLimits) -> None:
        """Have these limits from now on; a wait that has begun goes on as it is."""
        self.limits = limits
        if self.transport is not None:
            self.delivery.seconds = limits.send_timeout
        bounded = limits.max_target and limits.max_field_bytes
        self._max_silence = limits.max_target + limits.max_field_bytes + PIECE if bounded else 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        self.delivery = Delivery(transport, self.loop, self.limits.send_timeout)
        self.rested = self.loop.time()
        self._objection = self._clients.enter(self, self.client[0] if self.client else None)
        self._wait(self.limits.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._part()
        self._unparsed = b""
        super().connection_lost(exc)
        # They know this connection: a circle would wait for the garbage collector.
        self.pipeline.clear()
        self.cycle = cast("Any", None)

    def _part(self) -> None:
        """Be no client's connection any more, as far as it is watched here."""
        self._clients.leave(self)
        self.delivery.stop()
        self._due = NEVER
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # A client among others

    def is_resting(self) -> bool:
        """Tell whether no request is under way; one whose head is not complete is not."""
        return self._idle() and not self.pipeline and not self._unparsed

    def give_way(self) -> None:
        """Close, for another client that has come; say why, if a request has begun to arrive."""
        if self._phase == HEAD and self._refusal is None:
            if self._tell is not None:
                self._tell(self._received(), ("request-timeout",))
            self._write_problem(problem(("request-timeout",)))
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    # What the client takes

    def close(self) -> None:
        """Close once the client has taken all that was written, and see to it that it takes it."""
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.delivery.watch(self.forsake)

    # Octets

    def data_received(self, data: bytes) -> None:
        if self._refusal is None:
            self._unparsed = bytes(self._unparsed) + data if self._unparsed else data
            if self._later is None:
                self._parse()

    def _parse(self) -> None:
        """Parse what has come, until one request waits for another's response, or others for their turn."""
        self._parsing, self._steps = True, 0
        try:
            while self._unparsed and self._steps < _AT_ONCE and self._takes_more():
                if len(self._unparsed) <= PIECE:
                    piece, self._unparsed = self._unparsed, b""
                else:
                    rest = memoryview(self._unparsed)
                    piece, self._unparsed = rest[:PIECE], rest[PIECE:]
                self._feed(piece)
        finally:
            self._parsing = False
        if self._refusal is not None or self._websocket:
            return
        if self._unparsed and self._takes_more():
            self._later = self.loop.call_soon(self._parse_on)
        held = bool(self.pipeline or self._unparsed)
        if held is not self.flow.held:
            self.flow.hold(held)
        if self._phase == CONTENT:
            if self._due == NEVER or self._arrived >= MIN_RATE * self.limits.content_timeout:
                self._await_content()
        elif self._phase == HEAD and self._due == NEVER:
            self._wait(self.limits.header_timeout)

    def _takes_more(self) -> bool:
        """Tell whether what comes next may be parsed: nobody waits for another's response, or has left."""
        return not (self.pipeline or self._undecided or self.transport.is_closing())

    def _parse_on(self) -> None:
        self._later = None
        if self._refusal is None and not self.transport.is_closing():
            self._parse()

    def _feed(self, piece: bytes | memoryview) -> None:
        """Feed the parser message by message."""
        octets, start = bytes(piece), 0
        while start < len(octets) and self._refusal is None and not self._websocket:
            end = self._ends.behind(octets, start, in_content=self._phase == CONTENT)
            self._feed_message(octets[start:end])
            start = end
            self._steps += _MESSAGE
            # Of those that wait behind another one is enough: parsed, they take many times their octets.
            waits = self.pipeline and self._phase == BETWEEN
            if self._undecided or ((waits or self._steps >= _AT_ONCE) and start < len(octets)):
                self._unparsed = octets[start:] + bytes(self._unparsed)
                return

    def _feed_message(self, piece: bytes) -> None:
        if self._start or self._phase == BETWEEN:
            piece = self._begin(self._start + piece)
        if self._line is not None:
            line, newline, _ = piece.partition(b"\n")
            self._line = (self._line + line + newline)[-16:]
            if newline:
                self._version, self._line = version_of(self._line), None
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._past_upgrade()
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserInvalidURLError) and not self._method:
                self._method = self.parser.get_method()
            try:
                reasons = why(error, piece)
            except httptools.HttpParserCallbackError:
                self._fail(error.__context__)
            else:
                self._refuse(reasons)
        else:
            if self._phase != BETWEEN:
                self._silence += len(piece)
                if 0 < self._max_silence < self._silence:
                    self._refuse(("fields-too-large",))

    def _begin(self, octets: bytes) -> bytes:
        """Replace a method that llhttp does not know where a message begins; returns the octets to parse."""
        self._start = b""
        octets = without_empty_lines(octets)
        if octets[:1] == b"\r":  # of an empty line; alone it is none
            if octets != b"\r":
                self._phase, self.url = HEAD, b""
                self._refuse(("bad-framing",))
            else:
                self._start = octets
            return b""
        self._line = b"" if octets else None
        if octets.startswith(METHODS) or (found := split_method(octets)) is None:
            return octets
        method, rest = found
        if rest:
            self._method = method
            return PLACEHOLDER + rest
        self._start, self.url = octets, b""
        if self._phase != HEAD:
            self._phase, self._due = HEAD, NEVER
        return b""

    def _past_upgrade(self) -> None:
        """Go on after a head with Upgrade, which is all that the parser has been fed."""
        raise NotImplementedError

    # Turns

    def _idle(self) -> bool:
        """Tell whether every request so far is answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _await_content(self) -> None:
        """Give the client its time for the next octets of content."""
        self._arrived = 0
        self.flow.paused_lately = self.flow.read_paused
        self._wait(self.limits.content_timeout)

    def on_body(self, body: bytes) -> None:
        self._silence = 0
        self._steps += 1
        self._arrived += len(body)
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._phase = BETWEEN
        self._due = NEVER
        cycle = self.cycle
        cycle.more_body = False
        cycle.message_event.set()
        if cycle.response_complete and not cycle.keep_alive:
            self.transport.close()
        elif cycle.response_complete:
            self._wait(self._keep_alive)

    def _heed_trailers(self) -> None:
        """End the connection with this message if llhttp does, which heeds `Connection: close` in trailers.

        They are no place for it (RFC 9110 §6.5.1), but llhttp takes nothing behind them.
        """
        if not self.parser.should_keep_alive():
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        self.rested = self.loop.time()
        self._undecided = False
        if self.transport.is_closing():
            if self.transport.get_write_buffer_size():
                self.delivery.watch(self.forsake)
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._refusal is not None:
            self._answer(self._refusal)
        elif self._phase == BETWEEN:
            self._wait(self._keep_alive)
        if (self._unparsed or self.flow.held) and not self._parsing and self._later is None:
            self._parse()

    def _refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem once all before it is answered, and end the connection."""
        if reasons[0] not in _SAID:
            COMPLAINTS.note(f"Refused a request: {', '.join(reasons)}")
        self._end_with(problem(reasons), tuple(reasons))

    def _fail(self, error: BaseException | None) -> None:
        """Answer that there is a fault here, and end the connection."""
        self.logger.error("a request could not be answered", exc_info=error)
        self._end_with(FAULT, (), tell=False)

    def _end_with(self, answer: Problem, reasons: tuple[str, ...], *, tell: bool = True) -> None:
        self._refusal = answer
        self._unparsed = b""
        self._due = NEVER
        self.flow.hold(False)
        cycle = self.cycle
        if self._phase != CONTENT:
            if self._tell is not None and tell:
                self._tell(self._received(), reasons)
            if self._idle():
                self._answer(self._refusal)
        elif self.pipeline:
            self.pipeline.popleft()  # its own content is at fault; its turn is the refusal's
        elif cycle.response_started:
            self._give_up(cycle, reasons)
            self.close()  # cut short, as the client can see
        else:
            self._give_up(cycle, reasons)
            self._answer(self._refusal)

    def _give_up(self, cycle: Any, reasons: Sequence[str]) -> None:  # noqa: ARG002
        """Let a request's response not come, or come no further: its content is faulty."""
        cycle.disconnected = True
        cycle.message_event.set()

    def _received(self) -> Received:
        """The known part of a request that no application gets."""
        target = self.url[: self.limits.max_target or None]
        method = self._method or (self.parser.get_method() if target else b"")
        client = self.client[0] if self.client else None
        scheme = b"https" if self.scheme == "https" else b"http"
        hosts = values(self.headers, b"host") if target else []
        version = self._version.encode() or b"1.1"
        return Received(method, target, scheme, client, version, hosts[0] if len(hosts) == 1 else b"")

    def _answer(self, refusal: Problem) -> None:
        self._write_problem(refusal)
        if not self.transport.can_write_eof():
            self.close()
            return
        # Closing on octets that were not read resets the connection, and the client may lose the answer.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._wait(LINGER)

    def _write_problem(self, refusal: Problem) -> None:
        fields = [*self.server_state.default_headers, *refusal.fields, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n%b" % (refusal.status_line, lines, refusal.body))

    # Time

    def _rest(self) -> None:
        """Take note that a request is answered, and give the client its time for the next."""
        self.rested = now = self.loop.time()
        self._due = due = now + self._keep_alive
        if self._timer is None:
            self._timer = self.loop.call_at(due, self._tick)
        elif self._timer.when() > due:
            self._timer.cancel()
            self._timer = self.loop.call_at(due, self._tick)

    def _wait(self, seconds: float) -> None:
        """Give the client so many seconds from now on; 0: all it likes. One lazy timer serves all waits."""
        if not seconds:
            self._due = NEVER
            return
        self._due = due = self.loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self.loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._due == NEVER or self.transport.is_closing():
            return
        if self.loop.time() < self._due:
            self._timer = self.loop.call_at(self._due, self._tick)
        elif self._refusal is not None:
            self.transport.abort()
        elif self._later is not None:
            self._wait(self._keep_alive)  # requests have come that are still to be parsed
        elif self._phase == BETWEEN:
            self.close()  # nothing was asked
        # It is the client that waits, for us to read or to ask.
        elif self._phase == HEAD and self.flow.read_paused:
            self._wait(self.limits.header_timeout)
        elif self._phase == CONTENT and (
            self.flow.read_paused or self.flow.paused_lately or self.cycle.waiting_for_100_continue
        ):
            self._await_content()
        else:
            self._refuse(("request-timeout",))


class Flow(FlowControl):
    """uvicorn's flow control, with a hold that an application's `receive` does not loosen."""

    held = False
    paused_lately = False  # since it was last set back

    def pause_reading(self) -> None:
        """Stop reading."""
        self.paused_lately = True
        super().pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless held."""
        if not self.held:
            super().resume_reading()

    def hold(self, held: bool) -> None:
        """Stop reading until the hold is given up."""
        before, self.held = self.held, held
        if held:
            self.pause_reading()
        elif before:
            self.resume_reading()
