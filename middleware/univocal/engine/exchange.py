"""One request and its answer, from the admission to the Outcome: the only `match` on decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, cast

from univocal.cache.decide import Forward, Refuse, Reuse, Validate, reuse_on_error
from univocal.cache.represent import not_modified, represent
from univocal.cache.stored import Stored
from univocal.cache.tags import TAGGING
from univocal.engine.broadcast import WINDOW, CutShortError, Reader
from univocal.engine.engine import Engine
from univocal.engine.flight import Flight
from univocal.engine.landing import Failed, Found, Relayed, Renewed
from univocal.engine.outcome import Outcome, Times
from univocal.engine.purge import Purged, carry_out
from univocal.engine.queues import Place
from univocal.engine.recording import Recording
from univocal.forward.roles import Origin
from univocal.http.client_counts import client_name
from univocal.http.errors import Failure, RefusedError
from univocal.http.fields import without
from univocal.http.messages import Fields, Response, values
from univocal.http.problem import problem
from univocal.http.roles import Client, Content, Due
from univocal.judge.admission import Admission
from univocal.judge.handling import Handling, cache_status
from univocal.judge.orders import Order
from univocal.store.loans import Loan

__all__ = ["Exchange"]

FETCHED: Final = frozenset((b"GET", b"HEAD"))  # their answers are for all who ask at the same time


class Exchange:
    """One request: begun by a door for its client, told of when the client takes more or leaves.

    `error` is an error of the application behind, with its traceback; the door raises it again.
    """

    __slots__ = (
        "_client",
        "_content",
        "_counted",
        "_engine",
        "_failure",
        "_first",
        "_flight",
        "_follows",
        "_handling",
        "_head",
        "_loan",
        "_origin",
        "_pending",
        "_place",
        "_purged",
        "_reader",
        "_reasons",
        "_recording",
        "_status",
        "_ticks",
        "_timer",
        "admission",
        "begun",
        "error",
        "octets",
        "over",
    )

    def __init__(
        self,
        engine: Engine,
        client: Client,
        admission: Admission,
        origin: Origin,
        content: Content | None = None,
        begun: tuple[float, float] | None = None,
    ) -> None:
        self.admission = admission
        self._engine = engine
        self._client = client
        self._origin = origin
        self._content = content
        self.begun, self._ticks = begun or (engine.clock(), time.perf_counter())
        self._first = 0.0
        self._status = 0
        self.octets = 0
        self._handling = Handling()
        self._failure: Failure | None = None
        self._reasons = admission.reasons
        self._purged: Purged | None = None
        self._counted = ""  # the name of the client that it is counted for
        self._flight: Flight | None = None
        self._reader: Reader | None = None
        self._recording: Recording | None = None  # of the response that is said to be stored
        self._follows = False
        self._head: Response | None = None  # of another's response, which waits for content that comes
        self._timer: Due | None = None
        self._place: Place | None = None  # to ask by itself, after another's request has failed
        # Of content that is all there, what the client did not take; it may outlive what is stored.
        self._pending: memoryview | None = None
        self._loan: Loan | None = None
        self.over = False
        self.error: tuple[BaseException, TracebackType | None] | None = None

    # What the door calls

    def begin(self) -> None:
        """Carry out the decision."""
        admission = self.admission
        limit = admission.runtime.limits.max_requests_per_client
        if limit and not self._may_begin(limit):
            self._refuse(("too-many-requests",))
            return
        found = admission.canonical
        decision = admission.decision
        if found is not None and found.redirect and not isinstance(decision, Refuse | Order):
            fields = [(b"location", found.url), (b"content-length", b"0")]
            self._respond(found.redirect, fields, b"")
            return
        match decision:
            case Reuse():
                self._reuse(Handling.of_hit(decision))
                self._refresh()
            case Refuse(reason=reason):
                self._refuse(admission.reasons or (reason,))
            case Order():
                self._purge(decision)
            case Validate() | Forward(may_store=True) if admission.request.method in FETCHED:
                self._fetch()
            case _:
                self._handling = Handling(fwd=decision.reason)
                self._lead(None, self._content)

    def _may_begin(self, limit: int) -> bool:
        """Count the request for its client, or for the connection's peer if no client is believed."""
        admission = self.admission
        name = client_name(admission.peer.client or admission.received.client)
        if name and not self._engine.under_way.add_below(limit, name):
            return False
        self._counted = name
        return True

    def resume(self) -> None:
        """Send more: the client takes it."""
        if self.over:
            return
        if self._pending is not None:
            if self._loan is not None:
                self._engine.gate.tiers.memory.taken(self._loan)
            self._send_stored(self._pending)
        elif self._reader is not None and self._status:
            self._reader.resume()

    def cancel(self) -> None:
        """Give up: the client has left."""
        if not self.over:
            self._leave()
            self._end()

    def give_up(self, status: int) -> None:
        """Give up: the door itself answers, because of a fault of ours."""
        self._status = self._status or status
        self.cancel()

    def refuse(self, reasons: Sequence[str]) -> None:
        """Answer with a problem; in the middle of a response, cut it."""
        if not self.over:
            self._leave()
            self._refuse(reasons)

    # Answers of our own, and stored ones

    def _refuse(self, reasons: Sequence[str]) -> None:
        self._reasons = tuple(reasons)
        self._handling = Handling(detail=reasons[0])
        if self._status:
            self._cut()  # too late for another status: the response ends without its end
            return
        told = problem(reasons, self.admission.request.fields)
        # After ambiguous framing nobody knows where the next request begins (RFC 9112 §6.3).
        close = [(b"connection", b"close")] if reasons[0] == "bad-framing" else []
        self._respond(told.status, [*told.fields, *close], told.body)

    def _purge(self, order: Order) -> None:
        """Carry out a PURGE, which may take more than a moment."""
        self._purged = Purged(order)
        task = asyncio.get_running_loop().create_task(self._carry_out(order))
        self._engine.tasks.add(task)
        task.add_done_callback(self._engine.tasks.discard)

    async def _carry_out(self, order: Order) -> None:
        try:
            self._purged = await carry_out(order, self._engine.gate.tiers, self.begun)
        except RefusedError as refused:
            if not self.over:
                self._refuse(refused.reasons)
            return
        body = self._purged.body()
        fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if not self.over:
            self._respond(200, fields, body)

    def _reuse(self, handling: Handling) -> None:
        admission = self.admission
        decision = admission.decision
        assert isinstance(decision, Reuse)
        shown = represent(admission.request, decision.stored, decision.age, self._engine.clock())
        self._handling = handling
        self._respond(shown.status, [*shown.fields, *self._cache_status()], shown.body)

    def _respond(self, status: int, fields: Fields, body: bytes | memoryview) -> None:
        self._start(status, fields)
        self._send_stored(memoryview(body))

    def _send_stored(self, content: memoryview) -> None:
        """Send content in pieces, as the client takes it: of each connection no more than one piece waits."""
        more = True
        while more and len(content) and not self.over:  # it may leave within each call
            piece, content = content[:WINDOW], content[WINDOW:]
            self.octets += len(piece)
            # The last piece goes on its own: it must not hold all the content for who does not read.
            shared = len(content) or len(piece) == len(cast("bytes", piece.obj))
            more = self._client.write(piece if shared else bytes(piece))
        if self.over:
            return
        if len(content):
            self._wait_with(content)
        else:
            self._pending = None
            self._finish()

    def _wait_with(self, content: memoryview) -> None:
        """Hold content until the client takes more, or until others need the memory more."""
        self._pending = content
        found = self.admission.canonical
        if self._loan is None and found is not None:
            memory, whole = self._engine.gate.tiers.memory, cast("bytes", content.obj)
            self._loan = memory.lend(found.key, whole, lambda: self.refuse(("overloaded",)))

    # What the origin is asked for

    def _fetch(self) -> None:
        """Join the flight of the key, or lead one."""
        engine = self._engine
        name = engine.gate.flight_name(self.admission, engine.clock())
        flight = engine.flights.joinable(name)
        if flight is None:
            self._lead(name)
        else:
            self._join(flight)

    def _join(self, flight: Flight) -> None:
        """Wait for another's answer once, and ask by itself if that does not satisfy this request."""
        engine, name = self._engine, flight.name
        self._follows, self._flight = True, flight
        self._reader = flight.join(self)
        if flight.landing is not None:
            self.landed()
            return
        timeout = self.admission.runtime.limits.collapse_timeout
        self._timer = engine.call_later(timeout, lambda: self._forward(name))

    def _forward(self, name: object | None) -> None:
        """Stop waiting for another's answer: use a response stored by now, or ask the origin server."""
        engine = self._engine
        self._leave()
        self._follows = False
        self.admission = engine.gate.again(self.admission, engine.clock())  # it has waited
        match self.admission.decision:
            case Reuse() as found:
                self._reuse(Handling.of_hit(found))
                self._refresh()
            case Refuse(reason=reason):
                self._refuse((reason,))
            case _:
                self._lead(name)

    def _forward_in_turn(self, flight: Flight) -> None:
        """Ask by itself after a failure that the leader may have brought about alone, or after a stall.

        A thousand may have followed it, so a few ask at a time. The others wait, and take what those bring.
        """
        self._leave()
        self._follows = False
        self._place = place = self._engine.flights.queues.place(
            flight.name, lambda: self._go(place, flight.name)
        )
        place.begin()

    def _go(self, place: Place, name: Hashable | None) -> None:
        engine = self._engine
        self.admission = again = engine.gate.again(self.admission, engine.clock())
        flight = engine.flights.joinable(name)
        if flight is not None and flight.landing is not None:
            self._leave()
            self._join(flight)
        elif isinstance(again.decision, Reuse | Refuse) or not engine.gate.flight_name(again, engine.clock()):
            self._forward(None)
        else:
            # Who has to wait for long holds up nobody else.
            self._timer = engine.call_later(again.runtime.limits.collapse_timeout, place.end)
            self._lead(name if flight is None else None)

    def _lead(self, name: object | None, content: Content | None = None) -> None:
        flights = self._engine.flights
        self._failure = None  # another's, if there was one
        self._flight = flight = Flight(flights, self.admission, self._origin, name, content)
        self._reader = flight.join(self, leads=True)
        flights.launch(flight)
        flight.begin()

    def _refresh(self) -> None:
        decision = self.admission.decision
        if isinstance(decision, Reuse) and decision.revalidate_in_background:
            self._engine.flights.refresh(self.admission, self._origin)

    def _leave(self) -> None:
        """Wait for the flight no longer."""
        self._stop_waiting()
        reader, self._reader, self._flight = self._reader, None, None
        self._head = None
        if reader is not None:
            reader.leave()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        place, self._place = self._place, None
        if place is not None:
            place.end()

    # What the flight says

    def interim(self, status: int, fields: Fields) -> None:
        if not self.over:
            self._client.interim(status, fields)

    def landed(self) -> None:
        self._stop_waiting()
        flight = self._flight
        if flight is None:
            return  # the client has left
        if not self._follows:
            self.admission = flight.admission
        match flight.landing:
            case Failed(error):
                self._failure = error.failure if isinstance(error, RefusedError) else None
                self._recall(flight, None, lambda: self._be_refused(flight, error))
            case Relayed(response) if response.status >= 500:
                self._recall(flight, response.status, lambda: self._relay(flight, response))
            case Relayed(response):
                self._relay(flight, response)
            case Renewed(stored, status):
                self._take_renewed(flight, stored, status)
            case Found(admission):
                self._take_found(admission)

    def _recall(self, flight: Flight, status: int | None, otherwise: Callable[[], None]) -> None:
        """Serve something stale in place of an error, if there is any (RFC 9111 §4.2.4, RFC 5861 §4)."""
        engine = self._engine
        again = engine.gate.again(self.admission, engine.clock())
        had, has = _has_fallback(self.admission), _has_fallback(again)

        def recalled(held: Sequence[Stored]) -> None:
            if self._flight is not flight:
                return  # the client has left meanwhile
            found = engine.gate.again(again, engine.clock(), held)
            self._instead(found, status, otherwise)

        if had and not has:
            found = again.canonical
            assert found is not None
            engine.gate.tiers.recall(found.key, again.request, engine.clock(), recalled)
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
        told = 0 if self._follows else status or 0
        fwd = _reason(self.admission)
        handling = Handling(fwd=fwd, fwd_status=told, collapsed=self._follows, detail=stale.reason)
        self.admission = replace(again, decision=stale)
        self._leave()
        self._reuse(handling)

    # These answer the request that leads the flight, and those that follow it. What came for the leader
    # satisfies a follower only as far as it may be stored, and if it is what the follower asked for.

    def _be_refused(self, flight: Flight, error: Exception) -> None:
        provoked = not isinstance(error, RefusedError) or error.provoked
        if self._follows and provoked:
            self._forward_in_turn(flight)
        else:
            self._fail(error)

    def _relay(self, flight: Flight, response: Response) -> None:
        """Pass the origin server's own response on as it comes."""
        recording = flight.recording
        if not self._follows:
            kept = recording is not None and recording.stored_at_head
            self._recording = recording if kept else None
            handling = Handling(fwd=_reason(self.admission), stored=kept, unstorable=_unstorable(flight))
            self._stream(flight, response, handling)
            return
        storing = recording.storing if recording is not None else None
        whole = storing is not None and storing.whole and not values(self.admission.request.fields, b"range")
        again = self._satisfied_by(storing) if storing is not None and whole else None
        if storing is None and self._engine.gate.flight_name(self.admission, self._engine.clock()):
            self._forward_in_turn(flight)  # it was so for the leader: nothing says that it is for others
            return
        if storing is None or again is None:
            self._forward(None)
            return
        handling = Handling(fwd=_reason(self.admission), collapsed=True)
        self.admission = again
        # As it is stored: what may not be is for the client alone whose request brought it.
        self._stream(flight, Response(storing.status, storing.fields), handling)

    def _take_renewed(self, flight: Flight, stored: Stored, status: int) -> None:
        """Answer with a stored response that the origin server has confirmed or completed."""
        fwd = _reason(self.admission)
        if not self._follows:
            age = stored.age(self._engine.clock())
            decision = Reuse(stored, age, fwd, revalidate_in_background=False)
            again: Admission | None = replace(flight.admission, decision=decision)
            handling = Handling(fwd=fwd, fwd_status=status)
        else:
            again, handling = self._satisfied_by(stored), Handling(fwd=fwd, collapsed=True)
        if again is None:
            self._forward(None)
            return
        self._leave()
        self.admission = again
        self._reuse(handling)

    def _take_found(self, admission: Admission) -> None:
        """Answer with what another node has stored."""
        assert isinstance(admission.decision, Reuse)
        again = self._satisfied_by(admission.decision.stored) if self._follows else admission
        if again is None:
            self._forward(None)
            return
        assert isinstance(again.decision, Reuse)
        self._leave()
        self.admission = again
        self._reuse(Handling.of_hit(again.decision, detail="shared"))
        self._refresh()

    def _satisfied_by(self, stored: Stored) -> Admission | None:
        """This request answered with a response that came for another; None if it asks for something else."""
        engine = self._engine
        again = engine.gate.again(self.admission, engine.clock(), [stored]) if stored.reusable else None
        return again if again is not None and isinstance(again.decision, Reuse) else None

    def _stream(self, flight: Flight, response: Response, handling: Handling) -> None:
        self._handling = handling
        if flight.recording is not None and flight.recording.storing is not None:
            # The client's conditions were kept from the origin: they are answered here (RFC 9111 §4.3.2).
            unchanged = not_modified(self.admission.request, response, self._engine.clock())
            if unchanged is not None:
                flight.go_on_alone()
                self._leave()
                self._respond(unchanged.status, [*unchanged.fields, *self._cache_status()], b"")
                return
        if self._follows:
            self._await_content(flight, response)
            return
        self._start(response.status, [*response.fields, *self._cache_status()])
        if self._reader is not None:  # else the client has left
            self._reader.resume()

    def _await_content(self, flight: Flight, response: Response) -> None:
        """Send another's response from the moment its content goes on, and nothing of it before that.

        A client that has been sent a head cannot be answered otherwise any more, should the content stall.
        """
        reader, engine = self._reader, self._engine
        assert reader is not None
        self._head = response
        timeout = self.admission.runtime.limits.collapse_timeout
        self._timer = engine.call_later(timeout, lambda: self._overtake(flight))
        reader.await_more()

    def _overtake(self, flight: Flight) -> None:
        """Ask by itself: the content that this request waits for has stalled."""
        flight.overtake()
        self._forward_in_turn(flight)

    def _start_following(self, response: Response) -> None:
        """Send the head of another's response, whose content goes on."""
        self._head = None
        self._stop_waiting()
        self._start(response.status, [*response.fields, *self._cache_status()])

    def write(self, chunk: bytes) -> bool:
        if self._head is not None:
            self._start_following(self._head)
            if self.over:
                return False  # the client has left
        self.octets += len(chunk)
        return self._client.write(chunk)

    def rest(self, content: memoryview) -> bool:
        if not self._status:
            return False  # its head waits for another's word
        self._reader = self._flight = None
        self._wait_with(content)
        return True

    def ended(self, error: BaseException | None) -> None:
        flight, head = self._flight, self._head
        if flight is not None and head is not None:
            if error is not None:
                self._forward_in_turn(flight)
                return
            self._start_following(head)
        self._reader = self._flight = None
        if error is None:
            self._finish()
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self.over:
            return
        self._leave()
        if isinstance(error, RefusedError):
            self._failure = error.failure
            self._refuse(error.reasons)
            return
        if not isinstance(error, CutShortError):
            self.error = error, error.__traceback__
        elif not self._status:
            self._refuse(("origin-bad-response",))
            return
        self._cut()

    # What the client gets

    def _cache_status(self) -> Fields:
        found = self.admission.canonical
        assert found is not None
        return cache_status(self._handling, found, self.admission.runtime.cache_status)

    def _start(self, status: int, fields: Fields) -> None:
        self._status = status
        self._first = time.perf_counter()
        if self.admission.rules.strip_tags:
            fields = without(fields, TAGGING)
        self._client.start(status, fields)

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
        self.over = True
        if self._loan is not None:
            self._engine.gate.tiers.memory.give_back(self._loan)
            self._loan = self._pending = None
        if self._counted:
            self._engine.under_way.remove(self._counted)
        audience = self._engine.audience
        if not (audience.listeners or audience.counters):
            return
        now = time.perf_counter()
        if self._recording is not None and not self._recording.stored:
            why = self._recording.unstorable  # it was too large, cut, or purged
            self._handling = self._handling._replace(stored=False, unstorable=why)
        times = Times(self.begun, (self._first or now) - self._ticks, now - self._ticks)
        outcome = Outcome.of(
            self.admission,
            self._handling,
            self._status,
            self.octets,
            times,
            self._reasons,
            self._failure,
            self._purged,
        )
        audience.announce(outcome)


def _has_fallback(admission: Admission) -> bool:
    decision = admission.decision
    return isinstance(decision, Reuse) or (
        isinstance(decision, Validate | Forward) and decision.fallback is not None
    )


def _unstorable(flight: Flight) -> str:
    """The token that says why what a flight brings is not stored, "" if it is."""
    decision = flight.admission.decision
    if flight.recording is not None:
        return flight.recording.unstorable
    return decision.unstorable if isinstance(decision, Forward) else ""


def _reason(admission: Admission) -> str:
    assert not isinstance(admission.decision, Order)
    return admission.decision.reason
