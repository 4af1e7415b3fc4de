"""A client's connection under uvicorn: what is read from it is bounded in octets and in time.

llhttp, by httptools, takes messages apart; `univocal.protocol` decides what their heads mean. uvicorn's
protocol classes are no public interface: `OVERRIDES` and `RELIES_ON` name all that is used of one, and a test
compares those with the installed version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from univocal.errors import RefusedError
from univocal.framing import ReadLimits
from univocal.problem import Problem, problem

__all__ = ["BETWEEN", "CONTENT", "HEAD", "OVERRIDES", "PIECE", "RELIES_ON", "BoundedConnection"]

# HttpToolsProtocol's methods that are replaced or extended, here and in ExactProtocol …
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
)
# … and those that are called, or that uvicorn and asyncio call and that must go on doing what they do.
RELIES_ON: Final = (
    "_get_upgrade",
    "_should_upgrade",
    "_should_upgrade_to_ws",
    "_start_asgi_task",
    "_unset_keepalive_if_required",
    "eof_received",
    "handle_websocket_upgrade",
    "pause_writing",
    "resume_writing",
    "shutdown",
    "timeout_keep_alive_handler",
)

# Where the parser stands in a connection's octets.
BETWEEN, HEAD, CONTENT = range(3)

# Octets parsed at once. While a response is under way the next requests wait unparsed, so that what one
# connection has had parsed ahead is bounded by this and not by what the kernel had ready.
PIECE: Final = 16384
LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)
READ_LIMITS: Final = ReadLimits()


class Flow(FlowControl):
    """uvicorn's flow control, with a hold that an application's `receive` does not loosen."""

    held = False

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


class BoundedConnection(HttpToolsProtocol):
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
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = limits
        bounded = limits.max_target and limits.max_field_bytes
        self._max_silence = limits.max_target + limits.max_field_bytes + PIECE if bounded else 0
        self._phase = BETWEEN
        self._silence = 0  # octets that took the head, or the content, no further
        self._unparsed: bytes | memoryview = b""
        self._parsing = False
        self._heard = False
        self._websocket = False  # the connection is another protocol's now
        self._refusal: Problem | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: ReadLimits) -> type[asyncio.Protocol]:
        """What to give uvicorn as `http` for these limits: a factory, since a new class cannot be pickled."""
        return cast("type[asyncio.Protocol]", partial(cls, limits=limits))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = Flow(transport)
        self._await(self.limits.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        self._unparsed = b""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._heard = True
        if self._refusal is None:
            self._unparsed = bytes(self._unparsed) + data if self._unparsed else data
            self._parse()

    def _parse(self) -> None:
        """Parse what has come, until one request waits for another's response."""
        self._parsing = True
        try:
            while self._unparsed and not self.pipeline and not self.transport.is_closing():
                if len(self._unparsed) <= PIECE:
                    piece, self._unparsed = self._unparsed, b""
                else:
                    rest = memoryview(self._unparsed)
                    piece, self._unparsed = rest[:PIECE], rest[PIECE:]
                self._feed(piece)
        finally:
            self._parsing = False
        if self._refusal is None and not self._websocket:
            self.flow.hold(bool(self.pipeline or self._unparsed))
            self._mind_the_time()

    def _feed(self, piece: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._past_upgrade(bytes(piece[upgrade.args[0] :]))
        except httptools.HttpParserError as error:
            self._refuse(_reasons(error, bytes(piece)))
        else:
            self._silence += len(piece)
            if self._phase != BETWEEN and 0 < self._max_silence < self._silence:
                self._refuse(("fields-too-large",))

    def _past_upgrade(self, rest: bytes) -> None:
        """Go on after a head with Upgrade; `rest` is what follows it."""
        raise NotImplementedError

    def _idle(self) -> bool:
        """Whether every request so far is answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._silence = 0
        self._phase = HEAD

    def on_body(self, body: bytes) -> None:
        self._silence = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._phase = BETWEEN
        self._set_deadline(None)
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._refusal is not None:
            if last:
                self._answer(self._refusal)
        elif not self._parsing:
            self._parse()

    def _refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem once all before it is answered, and end the connection."""
        self._refusal = problem(reasons)
        self._unparsed = b""
        self._set_deadline(None)
        self.flow.hold(False)
        self.logger.warning("Refused a request: %s", ", ".join(reasons))
        cycle = self.cycle
        if self._phase != CONTENT:
            if self._idle():
                self._answer(self._refusal)
        elif self.pipeline:
            self.pipeline.popleft()  # its own content is at fault; its turn is the refusal's
        elif cycle.response_started:
            self.transport.close()  # cut short, as the client can see
        else:
            cycle.disconnected = True
            cycle.message_event.set()
            self._answer(self._refusal)

    def _answer(self, refusal: Problem) -> None:
        self._unset_keepalive_if_required()
        fields = [*self.server_state.default_headers, *refusal.fields, (b"connection", b"close")]
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n%b" % (refusal.status_line, lines, refusal.body))
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        # Closing on octets that were not read resets the connection, and the client may lose the answer.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._set_deadline(self.loop.call_later(LINGER, self.transport.abort))

    def _mind_the_time(self) -> None:
        if self._phase == CONTENT:
            self._await(self.limits.content_timeout)
            return
        if self._phase == HEAD or not self._idle():
            self._unset_keepalive_if_required()
        if self._phase == HEAD or (self._idle() and self.timeout_keep_alive_task is None):
            self._await(self.limits.header_timeout)

    def _await(self, seconds: float) -> None:
        if self._deadline is None and seconds:
            self._heard = False
            self._deadline = self.loop.call_later(seconds, self._overdue, seconds)

    def _overdue(self, seconds: float) -> None:
        self._deadline = None
        cycle = self.cycle
        if self.flow.read_paused:
            self._await(seconds)  # it is we who do not listen
        elif self._phase == CONTENT and (self._heard or cycle.waiting_for_100_continue):
            self._await(seconds)
        elif self._phase != BETWEEN:
            self._refuse(("request-timeout",))
        elif not self.transport.is_closing():
            self.transport.close()  # nothing was asked

    def _set_deadline(self, deadline: asyncio.TimerHandle | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = deadline


def _reasons(error: httptools.HttpParserError, piece: bytes) -> Sequence[str]:
    """Why the parser stopped; raises the error if it was by a fault of this program."""
    if isinstance(error, httptools.HttpParserCallbackError):
        if isinstance(error.__context__, RefusedError):
            return error.__context__.reasons
        raise error
    if not isinstance(error, httptools.HttpParserInvalidURLError):
        return ("bad-framing",)
    if "start char" in str(error) or "schema" in str(error):
        return ("no-leading-slash",)
    if "server" in str(error):
        return ("bad-target",)
    # llhttp lets no octet below 0x21 or above 0x7E pass and does not say which it was.
    return ("control-character",) if piece.isascii() else ("bad-target",)
