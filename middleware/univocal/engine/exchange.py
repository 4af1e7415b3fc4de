"""One request and its answer, from the admission to the Outcome: what was decided is carried out."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, cast

from univocal.cache.decide import Forward, Refuse, Reuse, Validate, reuse_on_error
from univocal.cache.directives import TAGGING
from univocal.cache.forms import forms_of, ranged, streamed, with_vary
from univocal.cache.ranges import Slice
from univocal.cache.represent import not_modified, represent, represent_ahead
from univocal.cache.stored import Stored
from univocal.cache.validation import CLIENT_CONDITIONS
from univocal.engine.broadcast import WINDOW, CutShortError, Reader
from univocal.engine.coding import CodedContent
from univocal.engine.engine import Engine
from univocal.engine.flight import Flight, Relayed, Renewed, Shared
from univocal.engine.outcome import Account, Purged, carry_out
from univocal.forward.tunnel import Tunnel
from univocal.http.client_counts import client_name
from univocal.http.errors import RefusedError, lacks_memory
from univocal.http.field_edits import FieldEdits, for_request
from univocal.http.fields import prefers_html, without
from univocal.http.grammar import is_token
from univocal.http.messages import Fields, Request, Response, values
from univocal.http.methods import RETRIEVAL
from univocal.http.pipe import Pipe
from univocal.http.problem import Problem, problem
from univocal.http.roles import Client, Due, Origin
from univocal.http.tables import moves
from univocal.http.upgrade import WEBSOCKET, Line, Switching
from univocal.judge.access import Challenge, Entered
from univocal.judge.admission import Admission, facts_of
from univocal.judge.cache_status import Handling, cache_status, handling_of_forward, handling_of_hit
from univocal.judge.forward_auth import Answered, Grant, Question, Ruling
from univocal.judge.orders import Order, unknown_field
from univocal.store.leases import Loan
from univocal.uri.target import Canonical, reference

logger: Final = logging.getLogger("univocal")

_NAMES_CANONICAL: Final = re.compile(rb"(?i);\s*rel\s*=\s*\"?[^\";,]*\bcanonical\b").search
RANGES: Final = frozenset((b"range", b"if-range"))


class Waiting:
    """The flight that a request waits for, and the end of its patience.

    `follows` is true while the flight was begun for another request. `stop` ends its patience, since the
    answer is there; `leave` ends all of it.
    """

    def __init__(self) -> None:
        self.flight: Flight | None = None
        self.reader: Reader | None = None  # of the flight's content
        self.follows = False
        self.timer: Due | None = None

    def stop(self) -> None:
        """Stop the timer of the wait."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def leave(self) -> None:
        """Wait for the flight no longer."""
        self.stop()
        reader, self.reader, self.flight = self.reader, None, None
        if reader is not None:
            reader.leave()


class Step(Enum):
    """The steps of an exchange."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    DECIDED = "the decision is there, and nothing is done yet"
    PURGING = "a purge is carried out"
    VERIFYING = "a password is verified, or an authorization server is asked"
    WAITING = "the flight that it leads or follows has not landed"
    RECALLING = "the shared tier is asked for a stale response in the place of an error"
    HOLDING = "another request's response is there, and goes out once its content goes on"
    RELAYING = "a flight's content goes out as it comes"
    SENDING = "content that is all there goes out as the client takes it"
    OVER = "the client has its answer, or has left"


MOVES: Final[Mapping[Step, Mapping[Step, str]]] = {
    Step.DECIDED: {
        Step.VERIFYING: "the access depends on a password, or on another server",
        Step.PURGING: "it is a purge",
        Step.WAITING: "the origin server is to answer",
        Step.SENDING: "a stored response answers, a redirect, or a problem",
    },
    Step.VERIFYING: {Step.DECIDED: "the client has access", Step.SENDING: "it has none"},
    Step.PURGING: {Step.SENDING: "the purge is carried out, or the shared store does not confirm it"},
    Step.WAITING: {
        Step.WAITING: "another's answer does not serve this request, or takes too long",
        Step.RECALLING: "the origin server failed, and memory has nothing to serve instead",
        Step.HOLDING: "another's response is there",
        Step.RELAYING: "its own response is there",
        Step.SENDING: "a stored response answers, or a problem",
    },
    Step.RECALLING: {
        Step.WAITING: "another's error is not its own",
        Step.HOLDING: "nothing is stored: another's response is an error that may be stored",
        Step.RELAYING: "nothing is stored: its own response is an error",
        Step.SENDING: "a stored response answers, or a problem",
    },
    Step.HOLDING: {
        Step.WAITING: "the content stalls, or is cut",
        Step.RELAYING: "the content goes on",
        Step.SENDING: "a stored response answers, or a problem",
    },
    Step.RELAYING: {Step.SENDING: "all of the content is there"},
    Step.SENDING: {},
    Step.OVER: {},
}
"""The steps that may follow each step, and what causes the move. `OVER` follows every other, too."""

_MOVES: Final = moves(MOVES)


class Exchange:
    """One request: begun by a door for its client, told of when the client takes more or leaves.

    The door calls `begin`, then `resume` whenever the client takes more, and `cancel` when the client leaves.
    The flight that it leads or follows calls `interim` any number of times and `landed` once. Then it calls
    `write` for each chunk and `ended` at last, or `rest` in their place if all of the content is there. A
    flight that it follows calls `freed` if it is to wait no longer.

    `error` is an error of the application behind, with its traceback; the door raises it again. `coded` takes
    the place of content that is compressed.
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
        self._engine = engine
        self._client = client
        self._origin = origin
        self._content = content
        self._step = Step.DECIDED
        self._account = Account(begun or (engine.clock(), time.perf_counter()), admission.reasons)
        self._wait = Waiting()
        # Another request's response, which waits for content that comes.
        self._pending_response: Response | None = None
        self._place: Slice | None = None  # of the range in another request's response, which is whole
        self._left: memoryview | None = None  # while SENDING: the content that the client has not taken, …
        self._loan: Loan | None = None  # … by which memory counts it
        self.coded: CodedContent | None = None
        self.fetches = False  # what is asked for may be another's: the client's content is not sent
        self.over = False
        self.error: tuple[BaseException, TracebackType | None] | None = None

    # Calls of the door

    def begin(self) -> None:
        """Carry out the decision."""
        admission = self.admission
        limit = admission.runtime.limits.max_requests_per_client
        if limit and not self._account.client and not self._may_begin(limit):
            self._refuse(("too-many-requests",))
            return
        if admission.denial is not None and admission.denial.challenge is not None:
            self._meet(admission.denial.challenge)
            return
        canonical = admission.canonical
        decision = admission.decision
        https = admission.runtime.https_port
        leads = canonical is not None and (canonical.redirect or canonical.respelled or https)
        # A redirect comes before only-if-cached: without TLS no client learns what is stored.
        if canonical is not None and leads and not isinstance(decision, Order):
            circles = canonical.key in self._engine.flights.own_spellings
            status, location = _redirection(admission, canonical, circles=circles)
            if status:
                self._respond(status, [(b"location", location), (b"content-length", b"0")], b"")
                return
        if isinstance(decision, (Forward, Validate)):
            stores = isinstance(decision, Validate) or decision.may_store
            self.fetches = stores and admission.request.method in RETRIEVAL
            if not self.fetches:
                self._account.handling = handling_of_forward(decision.reason, False, "")
                self._lead(None, self._content)
                return
            engine = self._engine
            name = engine.gate.flight_name(admission, engine.clock())
            flight = engine.flights.joinable(name) if name is not None else None
            if flight is None:
                self._lead(name)
            else:
                self._join(flight, name)
        elif isinstance(decision, Reuse):
            self._reuse(handling_of_hit(decision))
            self._refresh()
        elif isinstance(decision, Refuse):
            self._refuse(admission.reasons or (decision.reason,))
        else:
            self._purge(decision)

    def lead_alone(self) -> None:
        """Ask the origin server for a response that no other request waits for."""
        self.fetches = True
        self._lead(None)

    def _may_begin(self, limit: int) -> bool:
        """Count the request for its client, or for the connection's peer if no client is believed."""
        admission = self.admission
        name = client_name(admission.peer.client or admission.received.client)
        if name and not self._engine.under_way.add_below(limit, name):
            return False
        self._account.client = name
        return True

    def resume(self) -> None:
        """Send more: the client takes it."""
        self._attempt(self._resume)

    def _resume(self) -> None:
        match self._step:
            case Step.SENDING if self._left is not None:
                if self._loan is not None:
                    self._engine.gate.tiers.memory.taken(self._loan)
                self._send(self._left)
            case Step.RELAYING if self.coded is not None:
                if self.coded.resume():
                    self._finish()
            case Step.RELAYING if self._wait.reader is not None:
                self._wait.reader.resume()

    def cancel(self) -> None:
        """Give up: the client has left."""
        if not self.over:
            self._leave()
            self._end()

    def give_up(self, status: int) -> None:
        """Give up: the door itself answers, because of a fault of ours, or for lack of memory (503)."""
        if status == 503:
            self._engine.gate.tiers.memory.relieve()
            self._account.reasons = ("overloaded",)
            self._account.handling = Handling(detail="overloaded")
        self._account.status = self._account.status or status
        self.cancel()

    def refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem; in the middle of a response, cut it."""
        if not self.over:
            self._leave()
            self._refuse(reasons)

    # Answers of our own, and stored ones

    def _refuse(self, reasons: Sequence[str]) -> None:
        account = self._account
        account.reasons = tuple(reasons)
        account.handling = Handling(detail=reasons[0])
        if account.status:
            self._cut()  # too late for another status: the response ends without its end
            return
        fields, field = self.admission.request.fields, ""
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
        if not admission.runtime.pages or not prefers_html(admission.request.fields):
            return None
        peer = admission.peer
        return admission.runtime.error_page(
            reasons, admission.canonical, peer.hosts, peer.scheme, admission.received.target
        )

    def _purge(self, order: Order) -> None:
        """Carry out a PURGE, which may take more than a moment."""
        self._step = _MOVES[self._step, Step.PURGING]
        self._account.purged = Purged(order)
        self._run(self._carry_out(order))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._attend(work))
        self._engine.tasks.add(task)
        task.add_done_callback(self._engine.tasks.discard)

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
        self._step = _MOVES[self._step, Step.VERIFYING]
        if isinstance(challenge, Challenge):
            self._run(self._verify(challenge))
            return
        under_way = challenge.ask(self._take_ruling)
        if under_way is not None:
            self._wait.timer = under_way  # ended if the client leaves

    def _take_ruling(self, ruling: Ruling) -> None:
        """Go on with what an authorization server has granted, or pass its answer on."""
        self._wait.timer = None
        if not self.over:
            self._attempt(lambda: self._obey(ruling))

    def _obey(self, ruling: Ruling) -> None:
        if isinstance(ruling, Grant):
            self._enter(Entered(ruling))
        elif isinstance(ruling, Answered):
            self._account.reasons = reasons = ("access-denied",)
            self._account.handling = Handling(detail=reasons[0])
            self._respond(ruling.status, ruling.fields, ruling.body)
        else:
            self._account.failure, self._account.origin_seconds = ruling.failure, ruling.seconds
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
        if self.over:
            return
        if reasons:
            self._refuse(reasons)
            return
        self._enter(Entered())

    def _enter(self, entered: Entered) -> None:
        """Judge the request again, which has met a challenge."""
        self._step = _MOVES[self._step, Step.DECIDED]
        admission, engine = self.admission, self._engine
        fields, gate = admission.request.fields, engine.gate
        is_same = gate.runtime is admission.runtime  # by another, the client may have access no more
        now, met = engine.clock(), entered if is_same else None
        self.admission = gate.admit(admission.received, fields, now, None, met)
        self._account.reasons = self.admission.reasons
        self.begin()

    async def _carry_out(self, order: Order) -> None:
        account = self._account
        try:
            purged = account.purged = await carry_out(order, self._engine.gate.tiers, account.begun)
        except RefusedError as refused:
            if not self.over:
                self._refuse(refused.reasons)
            return
        body = purged.body()
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if not self.over:
            self._respond(200, fields, body)

    def _reuse(self, handling: Handling, fwd_status: int = 0) -> None:
        """Answer with the stored response; `fwd_status` is that of another's forward, for listeners."""
        admission = self.admission
        decision = admission.decision
        assert isinstance(decision, Reuse)
        request, stored, vary = admission.request, decision.stored, False
        if admission.codings is not None:
            request, stored, vary = self._formed(request, stored, admission.codings)
        response = represent(request, stored, decision.age, self._engine.clock())
        if vary:
            response = response._replace(fields=with_vary(response.fields))
        self._account.handling = replace(handling, fwd_status=fwd_status) if fwd_status else handling
        self._respond(response.status, response.fields, response.body, handling)

    def _formed(
        self, request: Request, stored: Stored, codings: tuple[bytes, ...]
    ) -> tuple[Request, Stored, bool]:
        """The request and the form that answers it, and whether Vary is to tell of others."""
        if not forms_of(stored).compressible:
            return request, stored, False
        request = ranged(request, stored)
        codings = () if b"range" in request.names else codings
        form = self._engine.gate.tiers.compression.choose(stored, codings)
        return request, form, form is stored

    def _respond(
        self, status: int, fields: Fields, body: bytes | memoryview, handling: Handling | None = None
    ) -> None:
        self._step = _MOVES[self._step, Step.SENDING]
        self._start(status, fields, handling)
        self._send(memoryview(body))

    def _send(self, content: memoryview) -> None:
        """Send content in pieces, as the client takes it, and end behind it.

        No more than one piece waits at the client's connection. The client may leave within each call.
        """
        more = True
        while more and len(content) and not self.over:
            piece, content = content[:WINDOW], content[WINDOW:]
            self._account.octets += len(piece)
            # A copy of the last piece does not keep all the content for a client that reads nothing.
            shared = len(content) or len(piece) == len(cast("bytes", piece.obj))
            more = self._client.write(piece if shared else bytes(piece))
        if len(content) and not self.over:
            self._hold(content)
        else:
            self._finish()

    def _hold(self, content: memoryview) -> None:
        """Hold content until the client takes more, or until memory needs the room for others.

        It may outlive the stored response.
        """
        canonical, self._left = self.admission.canonical, content
        if self._loan is None and canonical is not None:
            memory, whole = self._engine.gate.tiers.memory, cast("bytes", content.obj)
            self._loan = memory.lend(canonical.key, whole, self._recalled)

    def _recalled(self) -> None:
        self.refuse(("overloaded",))

    # The flight that answers

    def _join(self, flight: Flight, name: Hashable | None) -> None:
        """Wait for another's answer once, and ask by itself if that does not satisfy this request."""
        self._step = _MOVES[self._step, Step.WAITING]
        engine, wait = self._engine, self._wait
        wait.follows, wait.flight = True, flight
        wait.reader = flight.join(self)
        if flight.landing is not None:
            self.landed()
            return
        timeout = self.admission.runtime.limits.collapse_timeout
        lose_patience = partial(self._attempt, partial(self._lose_patience, flight, name))
        wait.timer = engine.call_later(timeout, lose_patience)

    def _lose_patience(self, flight: Flight, name: Hashable | None) -> None:
        """Go on without another's answer; if something stale serves in its place, it serves all who wait."""
        flight.note_delay()
        self._forward(name)
        if isinstance(self.admission.decision, Reuse):
            flight.free()

    def _forward(self, name: Hashable | None) -> None:
        """Stop waiting for another's answer: use a response stored by now, or ask the origin server."""
        engine = self._engine
        self._leave()
        self._wait.follows = False
        self.admission = engine.gate.again(self.admission, engine.clock())  # it has waited
        match self.admission.decision:
            case Reuse() as reuse:
                self._reuse(handling_of_hit(reuse))
                self._refresh()
            case Refuse(reason=reason):
                self._refuse((reason,))
            case _:
                self._lead(name)

    def _wait_for_whole(self) -> None:
        """Get this range from all of the representation, which one request asks for."""
        engine, request = self._engine, self.admission.request
        self._leave()
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
        flight = Flight(engine.flights, whole, self._origin, name)
        self._join(flight, None)
        flight.begin()

    def _lead(self, name: Hashable | None, content: Pipe | None = None) -> None:
        self._step = _MOVES[self._step, Step.WAITING]
        flights, wait = self._engine.flights, self._wait
        self._account.failure = None  # another's, if there was one
        wait.flight = flight = Flight(flights, self.admission, self._origin, name, content, leader=self)
        wait.reader = flight.single_reader
        flight.begin()

    def _refresh(self) -> None:
        decision = self.admission.decision
        if isinstance(decision, Reuse) and decision.revalidate_in_background:
            self._engine.flights.refresh(self.admission, self._origin)

    def _leave(self) -> None:
        """Wait for the flight no longer."""
        self._pending_response = None
        self._wait.leave()

    # Calls of the flight

    def interim(self, status: int, fields: Fields) -> None:
        if not self.over:
            self._client.interim(status, fields)

    def freed(self) -> None:
        self._forward(None)

    def landed(self) -> None:
        wait = self._wait
        if wait.timer is not None:
            wait.stop()
        flight = wait.flight
        if flight is None:
            return  # the client has left
        if not wait.follows:
            self.admission = flight.admission
        landing, account = flight.landing, self._account
        if isinstance(landing, Relayed):
            response = landing.response
            if not wait.follows:
                account.server, account.origin_seconds = response.server, response.seconds
            if response.status >= 500:
                self._recall_error(flight, response)
            else:
                self._relay(flight, response)
        elif isinstance(landing, Renewed):
            if not wait.follows:
                account.server, account.origin_seconds = landing.server, landing.seconds
            self._take_renewed(flight, landing.stored, landing.status)
        elif isinstance(landing, Shared):
            self._take_shared(landing.admission)
        elif landing is not None:
            self._recall_failure(flight, landing.error)

    def _recall_error(self, flight: Flight, response: Response) -> None:
        self._recall(flight, response.status, lambda: self._relay(flight, response))

    def _recall_failure(self, flight: Flight, error: Exception) -> None:
        if isinstance(error, RefusedError):
            self._account.failure, self._account.origin_seconds = error.failure, error.seconds
        self._recall(flight, None, lambda: self._be_refused(error))

    def _recall(self, flight: Flight, status: int | None, otherwise: Callable[[], None]) -> None:
        """Serve a stale response in place of an error, if there is any (RFC 9111 §4.2.4, RFC 5861 §4)."""
        engine = self._engine
        again = engine.gate.again(self.admission, engine.clock())
        had, has = _has_fallback(self.admission), _has_fallback(again)

        def recalled(held: Sequence[Stored]) -> None:
            if self._wait.flight is not flight:
                return  # the client has left meanwhile
            self._attempt(
                lambda: self._instead(engine.gate.again(again, engine.clock(), held), status, otherwise)
            )

        if had and not has:
            self._step = _MOVES[self._step, Step.RECALLING]
            canonical = again.canonical
            assert canonical is not None
            engine.gate.tiers.recall(canonical.key, again.request, engine.clock(), recalled)
        else:
            self._instead(again, status, otherwise)

    def _instead(self, again: Admission, status: int | None, otherwise: Callable[[], None]) -> None:
        decision = again.decision
        assert not isinstance(decision, Order)
        stale = (
            decision
            if isinstance(decision, Reuse)
            else reuse_on_error(decision, again.request, again.rules, status, self._engine.clock())
        )
        if stale is None:
            otherwise()
            return
        follows, fwd = self._wait.follows, _reason(self.admission)
        fwd_status = 0 if follows else status or 0
        handling = Handling(fwd=fwd, fwd_status=fwd_status, collapsed=follows, detail=stale.reason)
        self.admission = replace(again, decision=stale)
        self._leave()
        self._reuse(handling)

    # These answer the request that leads the flight, and those that follow it. What came for the leader
    # satisfies a follower only as far as it may be stored, and if it is what the follower asked for.

    def _be_refused(self, error: Exception) -> None:
        provoked = not isinstance(error, RefusedError) or error.provoked
        if self._wait.follows and provoked:
            self._forward(None)
        else:
            self._fail(error)

    def _relay(self, flight: Flight, response: Response) -> None:
        """Pass the origin server's own response on as it comes."""
        if self._wait.follows:
            self._relay_another(flight)
            return
        admission, recording = self.admission, flight.recording
        kept = recording is not None and recording.stored_at_head
        self._account.recording = recording if kept else None
        decision = admission.decision
        assert isinstance(decision, (Validate, Forward))
        unstorable = decision.unstorable if isinstance(decision, Forward) else ""
        unstorable = unstorable if recording is None else recording.unstorable
        handling = handling_of_forward(decision.reason, kept, unstorable)
        handling = replace(handling, detail=flight.detail) if flight.detail else handling
        self._account.handling = handling
        affinity, canonical = admission.settings.affinity, admission.canonical
        is_stored = recording is not None and recording.storing is not None
        if affinity is not None and canonical is not None and not is_stored:
            response = affinity.keep(response, admission.origin_tag, canonical.scheme)
        if admission.codings is not None:
            response = self._compressed(flight, response, admission.codings)
        conditional = not CLIENT_CONDITIONS.isdisjoint(admission.request.names)
        if is_stored and conditional and self._confirms(flight, response, handling):
            return
        self._step = _MOVES[self._step, Step.RELAYING]
        self._start(response.status, response.fields, handling)
        if self._wait.reader is not None:  # else the client has left
            self._wait.reader.resume()

    def _relay_another(self, flight: Flight) -> None:
        """Pass another request's response on, if it answers this one, too."""
        recording = flight.recording
        if recording is not None and recording.in_whole and b"range" in flight.admission.request.names:
            self._wait_for_whole()
            return
        storing = recording.storing if recording is not None else None
        again = self._satisfied_by(storing) if storing is not None and storing.whole else None
        if storing is None or again is None:
            self._forward(None)
            return
        handling = Handling(fwd=_reason(self.admission), collapsed=True)
        assert isinstance(again.decision, Reuse)
        self.admission = again
        # As it is stored, with its Age (RFC 9111 §5.1): what may not be is for the client alone whose request
        # brought it.
        fields = [*storing.fields, (b"age", b"%d" % again.decision.age)]
        response = Response(storing.status, fields)
        self._account.handling = handling
        if again.codings is not None:
            response = self._compressed(flight, response, again.codings)
        conditional = not CLIENT_CONDITIONS.isdisjoint(again.request.names)
        if not (conditional and self._confirms(flight, response, handling)):
            self._await_content(flight, response)

    def _take_renewed(self, flight: Flight, stored: Stored, status: int) -> None:
        """Answer with a stored response that the origin server has confirmed or completed."""
        fwd = _reason(self.admission)
        if not self._wait.follows:
            age = stored.age(self._engine.clock())
            decision = Reuse(stored, age, fwd, revalidate_in_background=False)
            again: Admission | None = replace(flight.admission, decision=decision)
            handling = Handling(fwd=fwd, fwd_status=status, detail=flight.detail)
        else:
            again = self._satisfied_by(stored)
            handling = Handling(fwd=fwd, collapsed=True)
        if again is None:
            self._forward(None)
            return
        self._leave()
        self.admission = again
        self._reuse(handling, status if handling.collapsed and status == 304 else 0)

    def _take_shared(self, admission: Admission) -> None:
        """Answer with what another node has stored."""
        assert isinstance(admission.decision, Reuse)
        again = self._satisfied_by(admission.decision.stored) if self._wait.follows else admission
        if again is None:
            self._forward(None)
            return
        assert isinstance(again.decision, Reuse)
        self._leave()
        self.admission = again
        self._reuse(handling_of_hit(again.decision, detail="shared"))
        self._refresh()

    def _satisfied_by(self, stored: Stored) -> Admission | None:
        """This request answered with a response that came for another; None if it asks for something else."""
        engine = self._engine
        again = engine.gate.again(self.admission, engine.clock(), [stored]) if stored.reusable else None
        return again if again is not None and isinstance(again.decision, Reuse) else None

    def _confirms(self, flight: Flight, response: Response, handling: Handling) -> bool:
        """Answer the client's conditions, which were kept from the origin server (RFC 9111 §4.3.2).

        True if they say that it has the response.
        """
        unchanged = not_modified(self.admission.request, response, self._engine.clock())
        if unchanged is not None:
            flight.go_on_alone()
            self._leave()
            self._respond(unchanged.status, unchanged.fields, b"", handling)
        return unchanged is not None

    def _compressed(self, flight: Flight, response: Response, codings: tuple[bytes, ...]) -> Response:
        """The response in a coding that the client takes, unless it is stored: then hits have forms of it."""
        request, recording = self.admission.request, flight.recording
        is_stored = recording is not None and recording.storing is not None
        coded, coding = streamed(request, response, () if is_stored else codings)
        if not coding:
            return coded
        self.coded = self._engine.streams.begin(coding, self._deliver, self._ask_for_more, self.fail)
        return streamed(request, response, ())[0] if self.coded is None else coded

    def _ask_for_more(self) -> None:
        if self._wait.reader is not None:
            self._wait.reader.resume()

    def _await_content(self, flight: Flight, response: Response) -> None:
        """Send another's response from the moment its content goes on, and nothing of it before that.

        A client that has been sent a head cannot be answered otherwise any more, should the content stall.
        """
        self._step = _MOVES[self._step, Step.HOLDING]
        wait, engine = self._wait, self._engine
        assert wait.reader is not None
        storing = flight.recording.storing if flight.recording is not None else None
        if storing is not None and b"range" in self.admission.request.names:
            placed = represent_ahead(self.admission.request, storing, response.fields)
            if placed is not None:
                response, self._place = Response(206, placed[0]), placed[1]
        self._pending_response = response
        timeout = self.admission.runtime.limits.collapse_timeout
        wait.timer = engine.call_later(timeout, flight.overtake)
        wait.reader.await_more()

    def _start_following(self, response: Response) -> None:
        """Send the head of another's response, whose content goes on."""
        self._step = _MOVES[self._step, Step.RELAYING]
        self._pending_response = None
        self._wait.stop()
        self._start(response.status, response.fields, self._account.handling)

    def write(self, chunk: bytes) -> bool:
        if self._pending_response is not None:
            self._start_following(self._pending_response)
            if self.over:
                return False  # the client has left
        if self._place is not None:
            return self._write_part(chunk, self._place)
        if self.coded is not None:
            return self.coded.write(chunk)
        self._account.octets += len(chunk)
        return self._client.write(chunk)

    def _deliver(self, octets: bytes) -> bool:
        self._account.octets += len(octets)
        return self._client.write(octets)

    def _write_part(self, chunk: bytes, place: Slice) -> bool:
        """Send the bytes of a chunk that are at a place in all of the content, and end behind it."""
        reader, flight = self._wait.reader, self._wait.flight
        assert reader is not None
        assert flight is not None
        end = reader.position
        begin, more = end - len(chunk), True
        piece = chunk[max(0, place.start - begin) : max(0, place.stop - begin)]
        if piece:
            self._account.octets += len(piece)
            more = self._client.write(piece)
        if end >= place.stop and not self.over:
            flight.go_on_alone()
            self._leave()
            self._finish()
        return more

    def rest(self, content: memoryview) -> bool:
        if self._step is not Step.RELAYING:
            return False  # its head waits for another's word
        if self._place is not None:
            assert self._wait.reader is not None
            passed = self._wait.reader.position
            content = content[max(0, self._place.start - passed) : self._place.stop - passed]
        self._step = _MOVES[self._step, Step.SENDING]
        self._wait.reader = self._wait.flight = None
        self._hold(content)
        return True

    def ended(self, error: BaseException | None) -> None:
        wait, held = self._wait, self._pending_response
        if wait.flight is not None and held is not None:
            if error is not None:
                self._forward(None)
                return
            self._start_following(held)
        wait.reader = wait.flight = None
        if error is None and self._place is not None:
            error = CutShortError()  # it ends before the range does
        coded = self.coded
        if coded is not None and error is not None:
            coded.flush()
        elif coded is not None and not coded.end():
            return  # it ends once the client takes more
        if error is None:
            self._finish()
        else:
            self._fail(error)

    def fail(self, error: Exception) -> None:
        """Answer with a problem, or cut the response: a call of this exchange raised the error."""
        told = not (self.over or self._account.status)  # the client is told, and the one who tells it logs it
        if not (told or isinstance(error, RefusedError) or lacks_memory(error)):
            logger.error("internal error where no client can be told of it", exc_info=error)
        try:
            self._fail(error)
        except MemoryError:
            self._cut()  # not even a problem can be made

    def _fail(self, error: BaseException) -> None:
        if lacks_memory(error):
            self._engine.gate.tiers.memory.relieve()
            error = RefusedError("overloaded")
        if self.over:
            return
        self._leave()
        if isinstance(error, RefusedError):
            self._account.failure, self._account.origin_seconds = error.failure, error.seconds
            self._refuse(error.reasons)
            return
        if not isinstance(error, CutShortError):
            self.error = error, error.__traceback__
        elif not self._account.status:
            self._refuse(("origin-bad-response",))
            return
        self._cut()

    # The client's side

    def _start(self, status: int, fields: Fields, handling: Handling | None) -> None:
        """Send a head; with a `handling` it has a Cache-Status."""
        admission, canonical = self.admission, self.admission.canonical
        if handling is not None:
            fields = [*fields, *cache_status(handling, canonical, admission.runtime.cache_status)]
        if admission.rules.strip_tags:
            fields = without(fields, TAGGING)
        if 200 <= status < 300 and canonical is not None and canonical.respelled:
            fields = _with_link(fields, admission, canonical)
        if admission.runtime.edits and (edits := self._response_edits()) is not None:
            fields = edits.apply(fields)
        self._account.status = status
        self._account.first = time.perf_counter()
        self._client.start(status, fields)

    def _response_edits(self) -> FieldEdits | None:
        admission, peer = self.admission, self.admission.peer
        if admission.canonical is not None:
            return admission.settings.edits.response
        target = admission.received.target
        edits = admission.runtime.edits_of_refused(peer.hosts, peer.scheme, target)
        return for_request(edits, facts_of(admission.received, peer)).response

    def _finish(self) -> None:
        if not self.over:
            self._end()  # first, since the client may begin with its next request at once
            self._client.finish()

    def _cut(self) -> None:
        self._client.cut()
        self._end()

    def _end(self) -> None:
        if self.over:
            return
        self._step, self.over = Step.OVER, True
        if self._loan is not None:
            self._engine.gate.tiers.memory.give_back(self._loan)
        self._loan = self._left = None
        if self.coded is not None:
            self.coded.close()
        engine = self._engine
        if self._account.client:
            engine.under_way.remove(self._account.client)
        if engine.audience.listeners or engine.audience.counters:
            engine.audience.announce(self._account.outcome(self.admission))


def _has_fallback(admission: Admission) -> bool:
    decision = admission.decision
    return isinstance(decision, Reuse) or (
        isinstance(decision, (Validate, Forward)) and decision.fallback is not None
    )


def _reason(admission: Admission) -> str:
    assert not isinstance(admission.decision, Order)
    return admission.decision.reason


def _redirection(admission: Admission, canonical: Canonical, *, circles: bool) -> tuple[int, bytes]:
    """The status and Location of a redirect to the site's own URL; status 0: the request is answered.

    `circles`: the origin server would send the client on to another spelling.
    """
    runtime = admission.runtime
    if runtime.leads_to_https(admission.peer.scheme, canonical.target):
        return 308, canonical.https_url(runtime.https_port)
    if canonical.redirect and not (canonical.leads_to and admission.denial is not None):
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


class SwitchingExchange(Exchange):
    """An exchange that may end as a tunnel; its Outcome is told when that ends."""

    _tunnel: Tunnel | None = None

    def cancel(self) -> None:
        if self._tunnel is None:
            super().cancel()
        else:
            self._tunnel.close()  # the end follows when the origin server has taken what was sent

    def send_away(self) -> None:
        """End the tunnel, if there is one, since this server goes down."""
        if self._tunnel is not None:
            self._tunnel.send_away()

    def ended(self, error: BaseException | None) -> None:
        super().ended(error if self._tunnel is None else None)  # a tunnel has no end but its connections'

    def _end(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()
            self._account.octets = self._tunnel.octets
        super()._end()

    def _relay(self, flight: Flight, response: Response) -> None:
        if not isinstance(response, Switching):
            super()._relay(flight, response)
            return
        runtime = self.admission.runtime
        self._step = _MOVES[self._step, Step.RELAYING]
        account, reader = self._account, self._wait.reader
        account.handling = handling = Handling(fwd="bypass")
        account.status, account.first = response.status, time.perf_counter()
        assert reader is not None
        reader.resume()  # it hears of the end
        told = cache_status(handling, self.admission.canonical, runtime.cache_status)
        near = cast("SwitchingClient", self._client).switch([*response.fields, *told])
        self._tunnel = Tunnel(
            near,
            response.line,
            self._engine.call_later,
            silence=runtime.limits.upgrade_timeout,
            frames=self.admission.received.upgrade.lower() == WEBSOCKET,
        )
