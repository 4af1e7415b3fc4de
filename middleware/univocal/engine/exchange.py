"""One request and its answer, from the admission to the Outcome: what was decided is carried out.

All exchanges share an engine, whichever door they come through.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, cast

from univocal.cache.decide import (
    Forward,
    Handling,
    Refuse,
    Reuse,
    Validate,
    handling_of_forward,
    handling_of_hit,
    reuse_on_error,
)
from univocal.cache.directives import TAGGING
from univocal.cache.forms import forms_of, ranged, streamed, with_vary
from univocal.cache.ranges import Slice
from univocal.cache.represent import not_modified, represent, represent_ahead
from univocal.cache.stored import Stored
from univocal.cache.validation import CLIENT_CONDITIONS
from univocal.engine.broadcast import WINDOW, CutShortError, Reader
from univocal.engine.coding import CodedContent, CodedStreams
from univocal.engine.flight import Flight, Flights, Landing, Relayed, Renewed, Shared
from univocal.engine.outcome import Account, Audience, OutcomeListener, Purged, carry_out
from univocal.engine.recording import Kept
from univocal.forward.tunnel import Tunnel
from univocal.http.errors import RefusedError, lacks_memory
from univocal.http.field_edits import RouteEdits, for_request
from univocal.http.grammar import is_token
from univocal.http.intermediary import WEBSOCKET, Line, Switching
from univocal.http.messages import (
    NO_NAMES,
    RETRIEVAL,
    Fields,
    Request,
    Response,
    prefers_html,
    values,
    without,
)
from univocal.http.pipe import Pipe
from univocal.http.problem import Problem, problem
from univocal.http.roles import CallLater, Client, Due, Origin
from univocal.http.tables import moves
from univocal.judge.access import Challenge, Entered
from univocal.judge.admission import Admission, Gate, facts_of
from univocal.judge.forward_auth import Answered, Grant, Question, Ruling
from univocal.judge.hits import Hits
from univocal.judge.orders import Order, unknown_field
from univocal.judge.runtime import cache_status
from univocal.judge.trust import ClientCounts, client_name
from univocal.store.memory import Loan
from univocal.uri.target import Canonical, reference


def call_later(seconds: float, call: Callable[[], None]) -> Due:
    """Call after so many seconds of the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)


class Engine:
    """The gate, the flights, the audience and the clock (seconds since the epoch) of all exchanges.

    `call_later` calls after so many seconds; without it the running event loop does.
    """

    def __init__(
        self,
        gate: Gate,
        listeners: Sequence[OutcomeListener] = (),
        clock: Callable[[], float] = time.time,
        call_later: CallLater = call_later,
        counters: Sequence[OutcomeListener] = (),
    ) -> None:
        self.gate = gate
        self.audience = Audience(listeners, counters, call_later)
        self.clock = clock
        self.call_later = call_later
        self.flights = Flights(gate, clock, call_later)
        self.hits = Hits(gate)
        self.under_way = ClientCounts()
        self.streams = CodedStreams()
        self.tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def forget(self) -> None:
        """Forget what was concluded from answers under other settings: a reload may mend what failed."""
        self.gate.failures.clear()
        self.gate.tiers.memory.collapse_all()
        self.flights.own_spellings.clear()

    def count_request(self, admission: Admission) -> str | None:
        """Count a request for its client, or for the connection's peer if no client is believed.

        Gives the name that it is counted for, empty if it is not; None: that has too many under way.
        """
        limit = admission.runtime.limits.max_requests_per_client
        name = client_name(admission.peer.client or admission.received.client) if limit else ""
        return None if name and not self.under_way.add_below(limit, name) else name


logger: Final = logging.getLogger("univocal")

_NAMES_CANONICAL: Final = re.compile(rb"(?i);\s*rel\s*=\s*\"?[^\";,]*\bcanonical\b").search
RANGES: Final = frozenset((b"range", b"if-range"))


class ExchangeState:
    """A state of an exchange, with the data of this state alone."""

    def resume(self) -> None:
        """Send more: the client takes it."""

    def leave(self) -> None:
        """Give up what it holds, or waits for."""


class Decided(ExchangeState):
    """The decision is there, and nothing is done yet."""


class Purging(ExchangeState):
    """A purge is carried out."""


class Verifying(ExchangeState):
    """A password is verified, or an authorization server is asked."""

    def __init__(self) -> None:
        self.question: Due | None = None  # that is under way to an authorization server

    def leave(self) -> None:
        if self.question is not None:
            self.question.cancel()


class InFlight(ExchangeState):
    """A state in which a flight is to bring the answer, or brings it."""

    flight: Flight
    reader: Reader  # of the flight's content

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def leave(self) -> None:
        if self.reader.sink is not None:  # else it has got the end
            self.reader.leave()

    # Calls of the reader

    def write(self, _chunk: bytes) -> bool:
        return False

    def rest(self, _content: memoryview) -> bool:
        return False  # its head waits for another's word

    def ended(self, error: BaseException | None) -> None:
        self.exchange._fail(error or CutShortError())

    def fail(self, error: Exception) -> None:
        self.exchange.fail(error)


class Waiting(InFlight):
    """A flight has not landed."""

    collapsed = False  # the flight was begun for another request

    def interim(self, status: int, fields: Fields) -> None:
        if self.reader.sink is self:
            self.exchange.client.interim(status, without(fields, _hidden(self.exchange.admission)))

    def landed(self, landing: Landing) -> None:
        """Answer with what the flight brings."""

    def freed(self) -> None:
        self.exchange._forward(None)

    def be_refused(self, error: Exception) -> None:
        """Answer where there is no response, and none in its place."""
        self.exchange._fail(error)

    def _confirms(self, response: Response) -> bool:
        """Answer the client's conditions, which were kept from the origin server (RFC 9111 §4.3.2).

        True if they say that it has the response.
        """
        exchange = self.exchange
        unchanged = not_modified(exchange.admission.request, response, exchange.engine.clock())
        if unchanged is not None:
            self.flight.go_on_alone()
            self.leave()
            exchange._respond(unchanged.status, unchanged.fields, b"", exchange.account.handling)
        return unchanged is not None

    def _failed(self, error: Exception) -> None:
        exchange = self.exchange
        if isinstance(error, RefusedError):
            exchange.account.failure, exchange.account.origin_seconds = error.failure, error.seconds
        self._recall(None, partial(self.be_refused, error))

    def _recall(self, status: int | None, otherwise: Callable[[], None]) -> None:
        """Serve a stale response in place of an error, if there is any (RFC 9111 §4.2.4, RFC 5861 §4)."""
        exchange, engine = self.exchange, self.exchange.engine
        now, tiers = engine.clock(), engine.gate.tiers
        again = engine.gate.again(exchange.admission, now)
        canonical = again.canonical
        if canonical is None or _has_fallback(again) or not _has_fallback(exchange.admission):
            self._instead(again, status, otherwise)
            return

        def recalled(held: Sequence[Stored]) -> None:
            if exchange.state is recalling:  # else the client has left meanwhile
                exchange._attempt(
                    lambda: self._instead(engine.gate.again(again, engine.clock(), held), status, otherwise)
                )

        _MOVES[type(exchange.state), Recalling]
        exchange.state = recalling = Recalling(self)
        tiers.recall(canonical.key, again.request, now, recalled)

    def _instead(self, again: Admission, status: int | None, otherwise: Callable[[], None]) -> None:
        """Answer with what may be stale after this status (None: no response came), or go on otherwise."""
        exchange, decision = self.exchange, again.decision
        assert not isinstance(decision, Order)
        stale = (
            decision
            if isinstance(decision, Reuse)
            else reuse_on_error(decision, again.request, again.rules, status, exchange.engine.clock())
        )
        if stale is None:
            otherwise()
            return
        follows, fwd = self.collapsed, _reason(exchange.admission)
        fwd_status = 0 if follows else status or 0
        handling = Handling(fwd=fwd, fwd_status=fwd_status, collapsed=follows, detail=stale.reason)
        exchange._reuse(handling, replace(again, decision=stale))


class Leading(Waiting):
    """The flight that was begun for it has not landed."""

    def landed(self, landing: Landing) -> None:
        exchange, flight, account = self.exchange, self.flight, self.exchange.account
        exchange.admission = flight.admission
        if isinstance(landing, Relayed):
            response = landing.response
            account.server, account.origin_seconds = response.server, response.seconds
            if response.status >= 500:
                self._recall(response.status, partial(self.relay, response))
            elif isinstance(response, Switching):
                self._switch(response)
            else:
                self.relay(response)
        elif isinstance(landing, Renewed):
            account.server, account.origin_seconds = landing.server, landing.seconds
            fwd, age = _reason(exchange.admission), landing.stored.age(exchange.engine.clock())
            decision = Reuse(landing.stored, age, fwd, revalidate_in_background=False)
            handling = Handling(fwd=fwd, fwd_status=landing.status, detail=flight.detail)
            exchange._reuse(handling, replace(flight.admission, decision=decision))
        elif isinstance(landing, Shared):
            exchange._hit(landing.admission, "shared")
        else:
            self._failed(landing.error)

    def relay(self, response: Response) -> None:
        """Pass the origin server's response on as it comes."""
        exchange, flight, recording = self.exchange, self.flight, self.flight.recording
        admission, decision = exchange.admission, exchange.admission.decision
        kept = recording is not None and recording.stored_at_head
        exchange.account.recording = recording if kept else None
        assert isinstance(decision, (Validate, Forward))
        unstorable = decision.unstorable if isinstance(decision, Forward) else ""
        unstorable = unstorable if recording is None else recording.unstorable
        handling = handling_of_forward(decision.reason, kept, unstorable)
        handling = replace(handling, detail=flight.detail) if flight.detail else handling
        exchange.account.handling = handling
        affinity, canonical = admission.settings.affinity, admission.canonical
        is_stored = recording is not None and isinstance(recording.state, Kept)
        if affinity is not None and canonical is not None and not is_stored:
            response = affinity.keep(response, admission.origin_tag, canonical.scheme)
        content: CodedContent | None = None
        if admission.codings is not None:  # hits have forms of what is stored
            response, content = self._compressed(response, () if is_stored else admission.codings)
        conditional = not CLIENT_CONDITIONS.isdisjoint(admission.request.names)
        if is_stored and conditional and self._confirms(response):
            return
        if content is None:
            _MOVES[type(exchange.state), Relaying]
            relaying = Relaying(self)
        else:
            _MOVES[type(exchange.state), Compressing]
            relaying = Compressing(self, content)
        exchange.state = relaying
        exchange._start(response.status, response.fields, handling)
        if self.reader.sink is not None:  # else the client has left
            self.reader.resume()

    def _compressed(
        self, response: Response, codings: tuple[bytes, ...]
    ) -> tuple[Response, CodedContent | None]:
        """The response in a coding that the client takes, and what codes its content."""
        exchange = self.exchange
        request, streams = exchange.admission.request, exchange.engine.streams
        coded, coding = streamed(request, response, codings)
        if not coding:
            return coded, None
        content = streams.begin(coding, exchange._deliver, self.reader.resume, exchange.fail)
        return (streamed(request, response, ())[0], None) if content is None else (coded, content)

    def _switch(self, response: Switching) -> None:
        """Go on as a tunnel."""
        exchange, admission = self.exchange, self.exchange.admission
        account, runtime = exchange.account, admission.runtime
        account.handling = handling = Handling(fwd="bypass")
        account.status, account.first = response.status, time.perf_counter()
        fields = without(response.fields, TAGGING) if admission.rules.strip_tags else response.fields
        fields = [*fields, *cache_status(handling, admission.canonical, runtime.cache_status)]
        tunnel = Tunnel(
            cast("SwitchingClient", exchange.client).switch(fields),
            response.line,
            exchange.engine.call_later,
            silence=runtime.limits.upgrade_timeout,
            frames=admission.received.upgrade.lower() == WEBSOCKET,
        )
        _MOVES[type(exchange.state), Tunnelling]
        exchange.state = Tunnelling(self, tunnel)
        self.reader.resume()  # it hears of the end


class Following(Waiting):
    """The flight that was begun for another request has not landed.

    A response satisfies this request only as far as it may be stored, and if it is what this one asks for.
    """

    collapsed = True

    def __init__(self, exchange: Exchange, flight: Flight) -> None:
        super().__init__(exchange)
        self.flight = flight
        self.timer: Due | None = None  # the end of its patience

    def leave(self) -> None:
        self._stop()
        super().leave()

    def _stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def lose_patience(self, name: Hashable | None) -> None:
        """Go on without another's answer; if something stale serves in its place, it serves all who wait."""
        exchange, flight = self.exchange, self.flight
        flight.note_delay()
        exchange._forward(name)
        if isinstance(exchange.admission.decision, Reuse):
            flight.free()

    def landed(self, landing: Landing) -> None:
        self._stop()
        exchange = self.exchange
        if isinstance(landing, Relayed):
            response = landing.response
            if response.status >= 500:
                self._recall(response.status, partial(self.relay, response))
            else:
                self.relay(response)
        elif isinstance(landing, (Renewed, Shared)):
            again = self._satisfied_by(landing.stored)
            if again is None:
                exchange._forward(None)
            elif isinstance(landing, Shared):
                exchange._hit(again, "shared")
            else:
                handling = Handling(fwd=_reason(exchange.admission), collapsed=True)
                exchange._reuse(handling, again, 304 if landing.status == 304 else 0)
        else:
            self._failed(landing.error)

    def relay(self, response: Response) -> None:
        """Pass another request's response on, if it answers this one, too."""
        exchange, flight, recording = self.exchange, self.flight, self.flight.recording
        if recording is not None and recording.in_whole and b"range" in flight.admission.request.names:
            exchange._wait_for_whole()
            return
        state = recording.state if recording is not None else None
        storing = state.storing if isinstance(state, Kept) else None
        again = self._satisfied_by(storing) if storing is not None and storing.whole else None
        if storing is None or again is None:
            exchange._forward(None)
            return
        assert isinstance(again.decision, Reuse)
        exchange.account.handling = Handling(fwd=_reason(exchange.admission), collapsed=True)
        exchange.admission = again
        # As it is stored, with its Age (RFC 9111 §5.1): what may not be is for the client alone whose request
        # brought it.
        fields = [*storing.fields, (b"age", b"%d" % again.decision.age)]
        response = Response(storing.status, fields)
        if again.codings is not None:
            response = streamed(again.request, response, ())[0]
        if not CLIENT_CONDITIONS.isdisjoint(again.request.names) and self._confirms(response):
            return
        place: Slice | None = None
        if b"range" in again.request.names:
            placed = represent_ahead(again.request, storing, response.fields)
            if placed is not None:
                response, place = Response(206, placed[0]), placed[1]
        _MOVES[type(exchange.state), Holding]
        exchange.state = Holding(self, response, place)
        self.reader.await_more()

    def _satisfied_by(self, stored: Stored) -> Admission | None:
        """This request answered with a response that came for another; None if it asks for something else."""
        admission, engine = self.exchange.admission, self.exchange.engine
        again = engine.gate.again(admission, engine.clock(), [stored]) if stored.reusable else None
        return again if again is not None and isinstance(again.decision, Reuse) else None

    def be_refused(self, error: Exception) -> None:
        if not isinstance(error, RefusedError) or error.provoked:
            self.exchange._forward(None)
        else:
            super().be_refused(error)


class Recalling(ExchangeState):
    """The shared tier is asked for a stale response in the place of an error."""

    def __init__(self, waiting: Waiting) -> None:
        self.waiting = waiting

    def leave(self) -> None:
        self.waiting.leave()


class Landed(InFlight):
    """The response is there, and its content follows."""

    def __init__(self, before: InFlight) -> None:
        self.exchange, self.flight, self.reader = before.exchange, before.flight, before.reader
        self.reader.sink = self


class Holding(Landed):
    """Another request's response is there, and goes out once its content goes on.

    A client that has been sent a head cannot be answered otherwise any more, should the content stall.
    """

    def __init__(self, following: Following, response: Response, place: Slice | None) -> None:
        super().__init__(following)
        self.response = response
        self.place = place  # of the range in the content, which is whole
        timeout = self.exchange.admission.runtime.limits.collapse_timeout
        self.timer = self.exchange.engine.call_later(timeout, self.flight.overtake)

    def leave(self) -> None:
        self.timer.cancel()
        self.reader.leave()

    def _begin_relaying(self) -> Relaying:
        """Send the head."""
        exchange, response, place = self.exchange, self.response, self.place
        self.timer.cancel()
        if place is None:
            _MOVES[type(exchange.state), Relaying]
            relaying = Relaying(self)
        else:
            _MOVES[type(exchange.state), RelayingPart]
            relaying = RelayingPart(self, place)
        exchange.state = relaying
        exchange._start(response.status, response.fields, exchange.account.handling)
        return relaying

    def write(self, chunk: bytes) -> bool:
        relaying = self._begin_relaying()
        return self.exchange.state is relaying and relaying.write(chunk)  # else the client has left

    def ended(self, error: BaseException | None) -> None:
        if error is None:
            self._begin_relaying().ended(None)
        else:
            self.exchange._forward(None)


class Relaying(Landed):
    """A flight's content goes out as it comes."""

    def resume(self) -> None:
        self.reader.resume()

    def write(self, chunk: bytes) -> bool:
        exchange = self.exchange
        exchange.account.octets += len(chunk)
        return exchange.client.write(chunk)

    def rest(self, content: memoryview) -> bool:
        exchange = self.exchange
        _MOVES[type(exchange.state), Sending]
        exchange.state = sending = Sending(exchange)
        sending.hold(content)
        return True

    def ended(self, error: BaseException | None) -> None:
        if error is None:
            self.exchange._finish()
        else:
            self.exchange._fail(error)


class RelayingPart(Relaying):
    """A range of another request's content goes out as that comes."""

    def __init__(self, before: InFlight, place: Slice) -> None:
        super().__init__(before)
        self.place = place

    def write(self, chunk: bytes) -> bool:
        """Send the bytes of a chunk that are in the range, and end behind it."""
        exchange, place, end = self.exchange, self.place, self.reader.position
        begin, more = end - len(chunk), True
        piece = chunk[max(0, place.start - begin) : max(0, place.stop - begin)]
        if piece:
            more = super().write(piece)
        if end >= place.stop and exchange.state is self:
            self.flight.go_on_alone()
            self.reader.leave()
            exchange._finish()
        return more

    def rest(self, content: memoryview) -> bool:
        place, passed = self.place, self.reader.position
        return super().rest(content[max(0, place.start - passed) : place.stop - passed])

    def ended(self, error: BaseException | None) -> None:
        super().ended(error or CutShortError())  # it ends before the range does


class Compressing(Relaying):
    """A flight's content goes out in a coding, as it comes."""

    def __init__(self, before: InFlight, content: CodedContent) -> None:
        super().__init__(before)
        self.content = content

    def resume(self) -> None:
        if self.content.resume():
            self._finish()

    def write(self, chunk: bytes) -> bool:
        return self.content.write(chunk)

    def ended(self, error: BaseException | None) -> None:
        if error is not None:
            self.content.flush()
            self.exchange._fail(error)
        elif self.content.end():  # else it ends once the client takes more
            self._finish()

    def _finish(self) -> None:
        self.content.close()
        self.exchange._finish()

    def leave(self) -> None:
        self.content.close()
        super().leave()


class Tunnelling(Relaying):
    """The connection is another protocol's, and ends with one of the tunnel's two connections."""

    def __init__(self, before: InFlight, tunnel: Tunnel) -> None:
        super().__init__(before)
        self.tunnel = tunnel

    def ended(self, _error: BaseException | None) -> None:
        self.leave()
        self.exchange._finish()

    def leave(self) -> None:
        super().leave()
        self.tunnel.close()
        self.exchange.account.octets = self.tunnel.octets


class Sending(ExchangeState):
    """Content that is all there goes out as the client takes it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.held: memoryview | None = None  # content that the client has not taken
        self.loan: Loan | None = None  # by which memory counts it

    def resume(self) -> None:
        content, self.held = self.held, None
        if content is None:
            return
        if self.loan is not None:
            self.exchange.engine.gate.tiers.memory.loans.taken(self.loan)
        self.send(content)

    def send(self, content: memoryview) -> None:
        """Send content in pieces, as the client takes it, and end behind it.

        No more than one piece waits at the client's connection. The client may leave within each call.
        """
        exchange, more = self.exchange, True
        while more and len(content) and exchange.state is self:
            piece, content = content[:WINDOW], content[WINDOW:]
            exchange.account.octets += len(piece)
            # A copy of the last piece does not keep all the content for a client that reads nothing.
            is_view = len(content) or len(piece) == len(cast("bytes", piece.obj))
            more = exchange.client.write(piece if is_view else bytes(piece))
        if exchange.state is not self:
            return
        if len(content):
            self.hold(content)
            return
        if self.loan is not None:
            self.leave()
        exchange._finish()

    def hold(self, content: memoryview) -> None:
        """Hold content until the client takes more, or until memory needs the room for others.

        It may outlive the stored response.
        """
        exchange, canonical = self.exchange, self.exchange.admission.canonical
        self.held = content
        if self.loan is None and canonical is not None:
            memory, whole = exchange.engine.gate.tiers.memory, cast("bytes", content.obj)
            self.loan = memory.lend(canonical.key, whole, partial(exchange.refuse, ("overloaded",)))

    def leave(self) -> None:
        if self.loan is not None:
            self.exchange.engine.gate.tiers.memory.loans.give_back(self.loan)


class Over(ExchangeState):
    """The client has its answer, or has left."""


_DECIDED: Final = Decided()
_OVER: Final = Over()

MOVES: Final[Mapping[type[ExchangeState], Mapping[type[ExchangeState], str]]] = {
    Decided: {
        Verifying: "the access depends on a password, or on another server",
        Purging: "it is a purge",
        Leading: "the origin server is to answer",
        Following: "what another request waits for may answer",
        Sending: "a stored response answers, a redirect, or a problem",
    },
    Verifying: {Decided: "the client has access", Sending: "it has none"},
    Purging: {Sending: "the purge is carried out, or the shared store does not confirm it"},
    Leading: {
        Recalling: "the origin server failed, and memory has nothing to serve instead",
        Relaying: "the response is there",
        Compressing: "the response is there, and the client takes a coding",
        Tunnelling: "the origin server switches protocols",
        Sending: "a stored response answers, or a problem",
    },
    Following: {
        Leading: "another's answer does not serve this request, or takes too long",
        Following: "another's answer is a part, and this request asks for another one",
        Recalling: "the origin server failed, and memory has nothing to serve instead",
        Holding: "another's response is there",
        Sending: "a stored response answers, or a problem",
    },
    Recalling: {
        Leading: "another's error is not its own",
        Holding: "nothing is stored: another's response is an error that may be stored",
        Relaying: "nothing is stored: its own response is an error",
        Compressing: "the same, and the client takes a coding",
        Sending: "a stored response answers, or a problem",
    },
    Holding: {
        Leading: "the content stalls, or is cut",
        Relaying: "the content goes on",
        RelayingPart: "the content goes on, and a range was asked for",
        Sending: "a stored response answers, or a problem",
    },
    Relaying: {Sending: "all of the content is there; or no head could be made: a problem"},
    RelayingPart: {Sending: "all of the content is there; or no head could be made: a problem"},
    Compressing: {Sending: "no head could be made: a problem"},
    Tunnelling: {},
    Sending: {},
    Over: {},
}
"""The states that may follow each state, and what causes the move. `Over` follows every other, too."""

_MOVES: Final = moves(MOVES)


class Exchange:
    """One request: begun by a door for its client, told of when the client takes more or leaves.

    The door calls `begin`, then `resume` whenever the client takes more, and `cancel` when the client leaves.
    Its `state` takes the calls of the flight that it leads or follows: `interim` any number of times and
    `landed` once. Then come `write` for each chunk and `ended` at last, or `rest` in their place if all of
    the content is there. A flight that it follows calls `freed` if it is to wait no longer.

    `error` is an error of the application behind, with its traceback; the door raises it again.
    """

    def __init__(
        self,
        engine: Engine,
        client: Client,
        admission: Admission,
        origin: Origin,
        content: Pipe | None = None,
        begun: tuple[float, float] | None = None,
    ) -> None:
        self.admission = admission
        self.engine = engine
        self.client = client
        self.origin = origin
        self._content = content
        self.state: ExchangeState = _DECIDED
        self.account = Account(begun or (engine.clock(), time.perf_counter()), admission.reasons)
        self.fetches = False  # what is asked for may be another's: the client's content is not sent
        self.error: tuple[BaseException, TracebackType | None] | None = None

    @property
    def over(self) -> bool:
        """True once the client has its answer, or has left."""
        return self.state is _OVER

    # Calls of the door

    def begin(self) -> None:
        """Carry out the decision."""
        admission = self.admission
        if not self.account.client and admission.runtime.limits.max_requests_per_client:
            client = self.engine.count_request(admission)
            if client is None:
                self._refuse(("too-many-requests",))
                return
            self.account.client = client
        if admission.denial is not None and admission.denial.challenge is not None:
            self._meet(admission.denial.challenge)
            return
        canonical = admission.canonical
        decision = admission.decision
        https = admission.runtime.https_port
        leads = canonical is not None and (canonical.redirect or canonical.respelled or https)
        # A redirect comes before only-if-cached: without TLS no client learns what is stored.
        if canonical is not None and leads and not isinstance(decision, Order):
            circles = canonical.key in self.engine.flights.own_spellings
            status, location = _redirection(admission, canonical, circles=circles)
            if status:
                self._respond(status, [(b"location", location), (b"content-length", b"0")], b"")
                return
        if isinstance(decision, (Forward, Validate)):
            stores = isinstance(decision, Validate) or decision.may_store
            self.fetches = stores and admission.request.method in RETRIEVAL
            if not self.fetches:
                self.account.handling = handling_of_forward(decision.reason, False, "")
                self._lead(None, self._content)
                return
            engine = self.engine
            name = engine.gate.flight_name(admission, engine.clock())
            flight = engine.flights.joinable(name) if name is not None else None
            if flight is None:
                self._lead(name)
            else:
                self._join(flight, name)
        elif isinstance(decision, Reuse):
            self._hit(admission)
        elif isinstance(decision, Refuse):
            self._refuse(admission.reasons or (decision.reason,))
        else:
            self._purge(decision)

    def lead_alone(self) -> None:
        """Ask the origin server for a response that no other request waits for."""
        self.fetches = True
        self._lead(None)

    def resume(self) -> None:
        """Send more: the client takes it."""
        self._attempt(self.state.resume)

    def cancel(self) -> None:
        """Give up: the client has left."""
        state = self.state
        if isinstance(state, Tunnelling):
            state.tunnel.close()  # the end follows when the origin server has taken what was sent
        elif state is not _OVER:
            state.leave()
            self._end()

    def send_away(self) -> None:
        """End the tunnel, if there is one, since this server goes down."""
        if isinstance(self.state, Tunnelling):
            self.state.tunnel.send_away()

    def give_up(self, status: int) -> None:
        """Give up: the door itself answers, because of a fault of ours, or for lack of memory (503)."""
        if status == 503:
            self.engine.gate.tiers.memory.relieve()
            self.account.reasons = ("overloaded",)
            self.account.handling = Handling(detail="overloaded")
        self.account.status = self.account.status or status
        self.cancel()

    def refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem; in the middle of a response, cut it."""
        if self.state is not _OVER:
            self.state.leave()
            self._refuse(reasons)

    # Answers of our own, and stored ones

    def _refuse(self, reasons: Sequence[str]) -> None:
        account = self.account
        account.reasons = tuple(reasons)
        account.handling = Handling(detail=reasons[0])
        if account.status:
            self._cut()  # too late for another status: the response ends without its end
            return
        fields, field = self.admission.given, ""
        if "unknown-purge-field" in reasons:
            name = unknown_field(self.admission.received.method, fields)
            field = name.decode("latin-1")[:64] if is_token(name) else ""
        name, own_page = self.admission.received.request_id, self._own_page(reasons)
        answer = problem(reasons, fields, field, name) if own_page is None else own_page.identified(name)
        # After ambiguous framing the next request may begin anywhere (RFC 9112 §6.3).
        close = [(b"connection", b"close")] if reasons[0] == "bad-framing" else []
        denial = self.admission.denial
        own = denial.fields if denial is not None and denial.reason == reasons[0] else []
        self._respond(answer.status, [*answer.fields, *close, *own], answer.body)

    def _own_page(self, reasons: Sequence[str]) -> Problem | None:
        admission = self.admission
        pages = admission.answer_settings.pages if prefers_html(admission.given) else None
        return None if pages is None else pages.page(reasons)

    def _purge(self, order: Order) -> None:
        """Carry out a PURGE, which may take more than a moment."""
        _MOVES[type(self.state), Purging]
        self.state = Purging()
        self.account.purged = Purged(order)
        self._run(self._carry_out(order))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(work))
        self.engine.tasks.add(task)
        task.add_done_callback(self.engine.tasks.discard)

    async def _attend(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Answer where the work fails: who calls would log it at best, and the client would wait on."""
        try:
            work()
        except Exception as error:
            self.fail(error)

    def _meet(self, challenge: Challenge | Question) -> None:
        """Have a password verified, or an authorization server asked, and go on then."""
        _MOVES[type(self.state), Verifying]
        self.state = verifying = Verifying()
        if isinstance(challenge, Challenge):
            self._run(self._verify(challenge))
        else:
            verifying.question = challenge.ask(self._hear_ruling)

    def _hear_ruling(self, ruling: Ruling) -> None:
        """Go on with what an authorization server has granted, or pass its answer on."""
        if isinstance(self.state, Verifying):
            self._attempt(lambda: self._obey(ruling))

    def _obey(self, ruling: Ruling) -> None:
        if isinstance(ruling, Grant):
            self._enter(Entered(ruling))
        elif isinstance(ruling, Answered):
            self.account.reasons = reasons = ("access-denied",)
            self.account.handling = Handling(detail=reasons[0])
            self._respond(ruling.status, ruling.fields, ruling.body)
        else:
            self.account.failure, self.account.origin_seconds = ruling.failure, ruling.seconds
            self._refuse(ruling.reasons)

    async def _verify(self, challenge: Challenge) -> None:
        """Verify the client's password, and go on, or refuse the request."""
        admission = self.admission
        try:
            is_right = await challenge.users.verify(challenge.credentials)
        except RefusedError as refused:
            reasons: Sequence[str] = refused.reasons
        else:
            reasons = () if is_right else admission.reasons
        if not isinstance(self.state, Verifying):
            return  # the client has left
        if reasons:
            self._refuse(reasons)
        else:
            self._enter(Entered())

    def _enter(self, entered: Entered) -> None:
        """Judge the request again, which has met a challenge."""
        _MOVES[type(self.state), Decided]
        self.state = Decided()
        admission, engine = self.admission, self.engine
        gate = engine.gate
        is_same = gate.runtime is admission.runtime  # by another, the client may have access no more
        now, met = engine.clock(), entered if is_same else None
        self.admission = gate.admit(admission.received, admission.given, now, None, met)
        self.account.reasons = self.admission.reasons
        self.begin()

    async def _carry_out(self, order: Order) -> None:
        account = self.account
        try:
            purged = account.purged = await carry_out(order, self.engine.gate.tiers, account.begun)
        except RefusedError as refused:
            if isinstance(self.state, Purging):  # else the client has left
                self._refuse(refused.reasons)
            return
        body = purged.body()
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if isinstance(self.state, Purging):
            self._respond(200, fields, body)

    def _hit(self, admission: Admission, detail: str = "") -> None:
        """Answer with the stored response, which is fetched again if it is stale."""
        decision = admission.decision
        assert isinstance(decision, Reuse)
        self._reuse(handling_of_hit(decision, detail=detail), admission)
        if decision.revalidate_in_background:
            self.engine.flights.refresh(admission, self.origin)

    def _reuse(self, handling: Handling, admission: Admission, fwd_status: int = 0) -> None:
        """Answer with the stored response; `fwd_status` is that of another's forward, for listeners."""
        self.state.leave()
        self.admission, decision = admission, admission.decision
        assert isinstance(decision, Reuse)
        request, stored, vary = admission.request, decision.stored, False
        if admission.codings is not None:
            request, stored, vary = self._formed(request, stored, admission.codings)
        response = represent(request, stored, decision.age, self.engine.clock())
        if vary:
            response = response._replace(fields=with_vary(response.fields))
        self.account.handling = replace(handling, fwd_status=fwd_status) if fwd_status else handling
        self._respond(response.status, response.fields, response.body, handling)

    def _formed(
        self, request: Request, stored: Stored, codings: tuple[bytes, ...]
    ) -> tuple[Request, Stored, bool]:
        """The request and the form that answers it, and whether Vary is to tell of others."""
        if not forms_of(stored).compressible:
            return request, stored, False
        request = ranged(request, stored)
        codings = () if b"range" in request.names else codings
        form = self.engine.gate.tiers.compression.choose(stored, codings)
        return request, form, form is stored

    def _respond(
        self, status: int, fields: Fields, body: bytes | memoryview, handling: Handling | None = None
    ) -> None:
        _MOVES[type(self.state), Sending]
        self.state = sending = Sending(self)
        self._start(status, fields, handling)
        sending.send(memoryview(body))

    # The flight that answers

    def _lead(self, name: Hashable | None, content: Pipe | None = None) -> None:
        """Ask the origin server."""
        self.account.failure = None  # another's, if there was one
        _MOVES[type(self.state), Leading]
        self.state = leading = Leading(self)
        flights = self.engine.flights
        leading.flight = flight = Flight(flights, self.admission, self.origin, name, content, leader=leading)
        flight.begin()

    def _join(self, flight: Flight, name: Hashable | None) -> None:
        """Wait for another's answer once, and ask by itself if that does not satisfy this request."""
        _MOVES[type(self.state), Following]
        self.state = following = Following(self, flight)
        flight.join(following)
        if flight.landing is not None:
            following.landed(flight.landing)
            return
        timeout = self.admission.runtime.limits.collapse_timeout
        lose_patience = partial(self._attempt, partial(following.lose_patience, name))
        following.timer = self.engine.call_later(timeout, lose_patience)

    def _forward(self, name: Hashable | None) -> None:
        """Stop waiting for another's answer: use a response stored by now, or ask the origin server."""
        engine = self.engine
        self.state.leave()
        self.admission = admission = engine.gate.again(self.admission, engine.clock())  # it has waited
        match admission.decision:
            case Reuse():
                self._hit(admission)
            case Refuse(reason=reason):
                self._refuse((reason,))
            case _:
                self._lead(name)

    def _wait_for_whole(self) -> None:
        """Get this range from all of the representation, which one request asks for."""
        engine, request = self.engine, self.admission.request
        self.state.leave()
        now = engine.clock()
        self.admission = again = engine.gate.again(self.admission, now)  # it has waited
        asked = replace(request, fields=without(request.fields, RANGES))
        whole = engine.gate.again(replace(again, request=asked), now)
        name = engine.gate.flight_name(whole, now)
        if not isinstance(whole.decision, (Forward, Validate)) or name is None:
            self._forward(None)
            return
        flight = engine.flights.joinable(name)
        if flight is not None:
            self._join(flight, None)
            return
        flight = Flight(engine.flights, whole, self.origin, name)
        self._join(flight, None)
        flight.begin()

    # Errors

    def fail(self, error: Exception) -> None:
        """Answer with a problem, or cut the response: a call of this exchange raised the error."""
        told = not (self.over or self.account.status)  # the client is told, and the one who tells it logs it
        if not (told or isinstance(error, RefusedError) or lacks_memory(error)):
            logger.error("internal error where no client can be told of it", exc_info=error)
        try:
            self._fail(error)
        except MemoryError:
            self._cut()  # not even a problem can be made

    def _fail(self, error: BaseException) -> None:
        if lacks_memory(error):
            self.engine.gate.tiers.memory.relieve()
            error = RefusedError("overloaded")
        if self.state is _OVER:
            return
        self.state.leave()
        if isinstance(error, RefusedError):
            self.account.failure, self.account.origin_seconds = error.failure, error.seconds
            self._refuse(error.reasons)
            return
        if not isinstance(error, CutShortError):
            self.error = error, error.__traceback__
        elif not self.account.status:
            self._refuse(("origin-bad-response",))
            return
        self._cut()

    # The client's side

    def _deliver(self, octets: bytes) -> bool:
        self.account.octets += len(octets)
        return self.client.write(octets)

    def _start(self, status: int, fields: Fields, handling: Handling | None) -> None:
        """Send a head; with a `handling` it has a Cache-Status."""
        admission, canonical = self.admission, self.admission.canonical
        if handling is not None:
            fields = [*fields, *cache_status(handling, canonical, admission.runtime.cache_status)]
        if admission.rules.strip_tags:
            fields = without(fields, TAGGING)
        if 200 <= status < 300 and canonical is not None and canonical.respelled:
            fields = _with_link(fields, admission, canonical)
        edits = admission.settings.edits if canonical is not None else self._edits_of_refused()
        if edits.response is not None:
            fields = edits.response.apply(fields)
        self.account.status = status
        self.account.first = time.perf_counter()
        self.client.start(status, fields)

    def _edits_of_refused(self) -> RouteEdits:
        admission = self.admission
        edits = admission.answer_settings.edits
        if edits.named_response is not None:
            edits = for_request(edits, facts_of(admission.received, admission.peer))
        return edits

    def _finish(self) -> None:
        if self.state is not _OVER:
            self._end()  # first, since the client may begin with its next request at once
            self.client.finish()

    def _cut(self) -> None:
        self.client.cut()
        self._end()

    def _end(self) -> None:
        if self.state is _OVER:
            return
        self.state = _OVER
        engine = self.engine
        if self.account.client:
            engine.under_way.remove(self.account.client)
        if engine.audience.listeners or engine.audience.counters:
            engine.audience.announce(self.account.outcome(self.admission))


def _has_fallback(admission: Admission) -> bool:
    decision = admission.decision
    return isinstance(decision, Reuse) or (
        isinstance(decision, (Validate, Forward)) and decision.fallback is not None
    )


def _reason(admission: Admission) -> str:
    assert not isinstance(admission.decision, Order)
    return admission.decision.reason


def _hidden(admission: Admission) -> frozenset[bytes]:
    """The names of fields that an interim response loses: its final one has none of these, or has others."""
    rules, edits = admission.rules, admission.settings.edits.response
    names = TAGGING if rules.strip_tags else NO_NAMES
    if rules.ignores_cookies(admission.request.method):
        names |= {b"set-cookie"}
    return names if edits is None else names | edits.names


def _redirection(admission: Admission, canonical: Canonical, *, circles: bool) -> tuple[int, bytes]:
    """The status and Location of a redirect to the site's own URL; status 0: the request is answered.

    `circles`: the origin server would send the client on to another spelling.
    """
    runtime = admission.runtime
    if runtime.leads_to_https(admission.peer.scheme, canonical.target):
        return 308, canonical.https_url(runtime.https_port)
    if canonical.redirect:
        return canonical.redirect, canonical.leads_to or canonical.own_url
    leads = _announces_canonical(admission, canonical) and not circles
    status = canonical.site.canonical if leads else "link"
    return (0, b"") if isinstance(status, str) else (status, reference(canonical))


def _with_link(fields: Fields, admission: Admission, canonical: Canonical) -> Fields:
    """A response's fields and a Link to the canonical URL (RFC 6596), where the origin server names none."""
    if canonical.site.canonical != "link" or not _announces_canonical(admission, canonical):
        return fields
    if any(_NAMES_CANONICAL(value) for value in values(fields, b"link")):
        return fields
    return [*fields, (b"link", b'<%b>; rel="canonical"' % canonical.url)]


def _announces_canonical(admission: Admission, canonical: Canonical) -> bool:
    """Tell whether the client is told of the canonical URL: it asks for a page by another spelling."""
    return canonical.respelled and admission.request.method in RETRIEVAL and not admission.received.upgrade


class SwitchingClient(Client, Protocol):
    """A client whose connection can become another protocol's."""

    def switch(self, fields: Fields) -> Line:
        """Send a 101, and give the connection away."""
        ...
