"""The protocol class by which the engine answers itself, without scope or task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from univocal.engine.handshake import Handshake
from univocal.http.authority import of_socket
from univocal.http.framing import ReadLimits, is_authority
from univocal.http.messages import Received
from univocal.http.upgrade import Switched, asked_upgrade
from univocal.judge.hits import Hit
from univocal.judge.plan import plan_of
from univocal.server.bounds import BETWEEN, NEVER, PIECE
from univocal.server.clients import Clients
from univocal.server.glance import CertifiedGlance, Glance
from univocal.server.protocol import ExactProtocol
from univocal.server.turn import Turn, Works

__all__ = ["DirectProtocol"]

# Content of more octets is not copied to stand behind its head.
JOINED: Final = 8 * 1024
# Seconds before the end of a shutdown's time at which tunnels are ended, so that clients can hear of it.
FAREWELL: Final = 1.0


class DirectProtocol(ExactProtocol):
    """`ExactProtocol` whose requests go to an engine instead of to an ASGI application."""

    _looks_at_all = False  # nothing is answered at a glance

    def __init__(self, *arguments: Any, works: Works, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._works = works
        self._engine = works.engine
        self._turn: Turn | None = None  # the one that is answered
        self._next: Turn | None = None  # the one that is to be answered
        self._beginning = False
        self._upgrading = b""  # the one that a handshake asks to switch to
        self._content: list[bytes] = []  # of the message that is being fed
        self._glance: Glance | None = None

    @classmethod
    def with_works(
        cls,
        works: Works,
        limits: ReadLimits,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http`: see `BoundedConnection.with_limits`."""
        made = partial(cls, works=works, limits=limits, tell=tell, clients=clients)
        return cast("type[asyncio.Protocol]", made)

    def bound_by(self, limits: ReadLimits) -> None:
        super().bound_by(limits)
        # A head of so few octets and fields is within all of them.
        least = min([PIECE, *filter(None, (limits.max_target, limits.max_field_bytes // 2))])
        self._longest = 0 if self._looks_at_all else least
        self._most_fields = limits.max_fields or PIECE

    def data_received(self, data: bytes) -> None:
        if not (self._phase == BETWEEN and data.endswith(b"\r\n\r\n") and self._answered(data)):
            super().data_received(data)

    def _may_look(self, data: bytes) -> bool:
        """Tell whether these octets may be an ordinary head: nothing is under way, or came before them."""
        cycle = self.cycle
        return (
            (cycle is None or cycle.response_complete)
            and len(data) <= self._longest
            and not (self._unparsed or self._start)
            and self._refusal is None
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _answered(self, data: bytes) -> bool:
        """Answer one ordinary GET whose head is all that has come; False: it is none.

        Nothing has been done then, and all the octets go through the other parser, callback by callback.
        """
        if not self._may_look(data):
            return False
        ticks = time.perf_counter()
        glance = self._glance
        if glance is None:
            glance = self._glance = self._new_glance()
        read = glance.read(data)
        if read is None:
            self._glance = None  # that parser may wait for more of this message
            return False
        target, names, values = read
        engine = self._engine
        hits = engine.hits
        plan = plan_of(names)
        if plan is None or not plan.suits(values):
            self._glance = None
            return False
        if len(names) > self._most_fields or (plan.forwarded and not is_authority(values[plan.host])):
            return False  # where another Host stands in for this one, it is at fault nevertheless
        begun = engine.clock()
        received = Received(b"GET", target, self._scheme, self._peer)
        hit = hits.find(received, plan, values, begun)
        if hit is not None:
            self._reply(hit)
            engine.audience.announce_hit(hit, received, begun, ticks)
        elif not is_authority(values[plan.host]):
            return False  # the other way refuses it, and closes the connection
        else:
            self._due = NEVER
            turn = Turn(self, self._works, received, plan.fields(values), plan=plan)
            self.cycle = cast("Any", turn)
            self._start_asgi_task(turn, self.app)
        return True

    def _new_glance(self) -> Glance:
        suits = self._suits
        return Glance() if suits is None else CertifiedGlance(suits)

    def _reply(self, hit: Hit) -> None:
        stored = hit.stored
        head = b"%bage: %d\r\n%b\r\n" % (stored.head, hit.age, hit.told.lines)
        if len(stored.body) > JOINED:
            self.transport.writelines((head, stored.body))
        else:
            self.transport.write(head + stored.body)
        self.server_state.total_requests += 1
        self._rest()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._scheme = b"https" if self.scheme == "https" else b"http"
        self._peer = self.client[0] if self.client else None
        if self._objection or self.limit_concurrency is not None:
            self._looks_at_all, self._longest = True, 0

    def connection_lost(self, exc: Exception | None) -> None:
        turn, self._turn, self._next = self._turn, None, None
        super().connection_lost(exc)
        if turn is not None:
            turn.end()

    def shutdown(self) -> None:
        """Close after what is under way; a tunnel, which has no end, before the time for that is over."""
        super().shutdown()
        exchange = None if self._turn is None else self._turn.exchange
        if isinstance(exchange, Handshake):
            seconds = self.config.timeout_graceful_shutdown or 0
            self.loop.call_later(max(0, seconds - FAREWELL), exchange.send_away)

    # A connection that is to be another protocol's

    def _upgrade(self, method: bytes) -> bool:
        """Note which protocol a handshake asks for; any other Upgrade field is ignored."""
        allowed = self._engine.gate.runtime.upgrades if self._idle() else ()
        self._upgrading = asked_upgrade(method, self._version, self.headers, allowed)
        if self._upgrading:
            self._undecided = True
        else:
            self._ignore_upgrade()
        return False

    def switch(self, end: asyncio.Protocol) -> Switched:
        """Give the connection to `end`, with what the client has sent behind its handshake."""
        early, self._unparsed = bytes(self._unparsed), b""
        self._due = NEVER
        self.delivery.stop()
        self.transport.set_protocol(end)
        return Switched(self.transport, early, full=self.flow.write_paused)

    def forsake(self) -> None:
        turn = self._turn
        if turn is not None and turn.exchange is not None:
            turn.exchange.refuse(("request-timeout",))
        elif self._tell is not None:
            if self._idle():
                self.url = b""  # what was asked for is answered, and told of
            self._tell(self._received(), ("request-timeout",))
        super().forsake()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._turn is not None and self._turn.exchange is not None:
            self._turn.exchange.resume()
        if self._next is not None:
            self._start_asgi_task(self._next, self.app)

    def on_body(self, body: bytes) -> None:
        self._silence = 0
        self._steps += 1
        self._arrived += len(body)
        self._content.append(body)

    def _feed_message(self, piece: bytes) -> None:
        super()._feed_message(piece)
        if self._content:
            try:
                self._pass_on()
            except Exception as error:
                self._fail(error)

    def _pass_on(self) -> None:
        """Hand over the content of a piece in one: chunks may be of one octet."""
        content, self._content = self._content, []
        if self._refusal is None:
            cast("Turn", self.cycle).received(content[0] if len(content) == 1 else b"".join(content))

    def on_message_complete(self) -> None:
        if self._content:
            self._pass_on()
        if not (self._framing or self._websocket):
            self._heed_trailers()
            cast("Turn", self.cycle).complete()
        super().on_message_complete()

    # Requests that take the long way

    def _hand_over(self, method: bytes, version: str) -> None:
        """Let the engine answer, now or when the requests before are answered."""
        # RFC 9112 §9.6: nothing is processed behind a response that ends the connection.
        begins = self._idle() and not self.transport.is_closing()
        turn = Turn(
            self,
            self._works,
            self._asked(method, version),
            self._fields(),
            version=version,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            expects_continue=version == "1.1" and self._expects_continue(),
        )
        self.cycle = cast("Any", turn)
        if begins:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.pipeline.appendleft((self.cycle, self.app))

    def _asked(self, method: bytes, version: str) -> Received:
        received = Received(method, self.url, self._scheme, self._peer, version.encode())
        received.upgrade, self._upgrading = self._upgrading, b""
        if version == "1.0" and self.server is not None:
            received.server = of_socket(*self.server)
        return received

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:  # noqa: ARG002
        """Begin a turn; one that is over within the call lets the next begin after it, not within it.

        While the client takes no more of what it was answered, the next waits.
        """
        self._next = cycle
        if self._beginning:
            return
        self._beginning = True
        try:
            while self._next is not None and not self.flow.write_paused:
                turn, self._turn, self._next = self._next, self._next, None
                try:
                    turn.begin()
                except Exception as error:
                    turn.fail(error)
        finally:
            self._beginning = False

    def _give_up(self, cycle: Any, reasons: Sequence[str]) -> None:
        turn: Turn = cycle
        turn.end(reasons)
