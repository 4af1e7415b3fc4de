"""One request under way to the origin server, by the shared tier, and its answer's way to all who wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeAlias

from univocal.cache.decide import (
    Forward,
    Reuse,
    Validate,
    forwarded_fields,
    keeps_conditions,
    lacks_condition,
    revalidation,
)
from univocal.cache.personal import oddities
from univocal.cache.rules import READS
from univocal.cache.stored import Stored
from univocal.cache.storing import clock_lag
from univocal.cache.vary import named_besides
from univocal.engine.broadcast import WINDOW, Broadcast, CutShortError, Reader, Sink
from univocal.engine.recording import PASSED_ON, Completing, Kept, Mismatched, PassedOn, Recording, Updated
from univocal.http.bonds import challenges_connection
from univocal.http.errors import RefusedError, lacks_memory
from univocal.http.messages import NO_NAMES, SAFE, Fields, Response, without
from univocal.http.pipe import Pipe
from univocal.http.roles import CallLater, Due, Origin, OriginRequest, UnderWay, Watch
from univocal.http.tables import moves
from univocal.judge.admission import Admission, Apart, Gate, obsolete
from univocal.judge.failed_refreshes import FailedRefresh
from univocal.judge.own_spelling import OWN_SPELLING, REDIRECTS, OwnSpellings, named_spelling, respelled
from univocal.store.tiers import Tiers
from univocal.uri.target import origin_target

logger: Final = logging.getLogger("univocal")


class FlightState:
    """A state of a flight, with the data of this state alone."""


class Begun(FlightState):
    """The store is asked."""


class Asking(FlightState):
    """The origin server is asked."""


class Skipping(FlightState):
    """The response leads to another request, and is read to its end for the connection's sake."""

    def __init__(self, instead: Admission) -> None:
        self.instead = instead
        self.spare = _SPARE


class Judging(FlightState):
    """The response's head is there, and the store is asked about it."""

    def __init__(self) -> None:
        self.pending: list[bytes | Exception | None] = []  # content, an error, or the end, which have come


class Answering(FlightState):
    """Content comes."""


class Settling(FlightState):
    """All of the response is there, and the store takes it."""


class Ended(FlightState):
    """Nothing more comes."""


class Unrecorded(Ended):
    """Nothing more comes, and the lease is to end."""


class Recorded(Ended):
    """The lease is ended, and readers may still take what was kept."""


MOVES: Final[Mapping[type[FlightState], Mapping[type[FlightState], str]]] = {
    Begun: {
        Asking: "the store has no answer",
        Unrecorded: "another node has stored one, or no request waits any more",
    },
    Asking: {
        Skipping: "the response leads to another request",
        Judging: "the response's head comes",
        Unrecorded: "the request fails, or no request waits any more",
    },
    Skipping: {Asking: "the response has ended, or is long", Unrecorded: "no request waits any more"},
    Judging: {Answering: "the store has told", Unrecorded: "no request waits any more"},
    Answering: {
        Asking: "the response is of another representation",
        Settling: "the response ends",
        Unrecorded: "the response is cut, or no reader is left",
    },
    Settling: {Asking: "a part belongs to no stored response", Unrecorded: "the store has taken it"},
    Unrecorded: {Recorded: "all nodes have what was stored"},
    Recorded: {},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)
_BEGUN: Final = Begun()
_SET_COOKIE: Final = (b"set-cookie",)
_MOST_CLOCKS: Final = 64
# Bytes of content that are read for the connection's sake, though no client gets them.
_SPARE: Final = 16 * 1024


# The landing: what a flight brings to all who wait for it. It is known at the response's head, or at its end
# where a stored response is validated.


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared tier holds an answer, and the request is judged by that now."""

    admission: Admission

    @property
    def stored(self) -> Stored:
        assert isinstance(self.admission.decision, Reuse)
        return self.admission.decision.stored


@dataclass(frozen=True, slots=True)
class Renewed:
    """A stored response, renewed or completed by the origin server's response with `status`."""

    stored: Stored
    status: int
    server: str = ""  # the origin server's URL
    seconds: float = 0.0  # until its response's head came


class Relayed:
    """The origin server's own response; its content follows."""

    def __init__(self, response: Response) -> None:
        self.response = response


class Failed:
    """No response: an error in its place."""

    def __init__(self, error: Exception) -> None:
        self.error = error


Landing: TypeAlias = Shared | Renewed | Relayed | Failed


Reading: TypeAlias = Reader | Broadcast | None
"""The readers of the content: a single one gets it at once, a Broadcast is for several or a slow one."""


class Passenger(Sink, Protocol):
    """The one who waits for a flight's landing; the flight sets its `reader`, which reads the content."""

    reader: Reader

    def interim(self, status: int, fields: Fields) -> None:
        """Take an interim response: told to the one whose request the flight makes."""

    def landed(self, landing: Landing) -> None:
        """Handle what the flight brings; called once, unless it is `freed` before."""

    def freed(self) -> None:
        """Wait for the flight no longer: it is another's, and has taken as long as an answer does."""


class Flights:
    """Every flight that can be joined, by what its requests have in common, and every refresh under way."""

    def __init__(self, gate: Gate, clock: Callable[[], float], call_later: CallLater) -> None:
        self.gate: Final = gate
        self.tiers: Final[Tiers] = gate.tiers
        self.clock: Final = clock
        self.call_later: Final = call_later
        self.in_background = True  # a stale response that answers is fetched again
        self.shows_clients = False  # the origin hears more of a client than the fields of its request
        self.watch: Callable[[OriginRequest], Watch] | None = None  # makes what hears of a request's way
        self.named: Final[dict[Hashable, Flight]] = {}  # those that can be joined
        self._refreshing: set[bytes] = set()  # keys of stored responses that are fetched again
        self.own_spellings: Final = OwnSpellings()
        self._slow_clocks = set[str]()  # origin servers of which the log has told

    def joinable(self, name: Hashable) -> Flight | None:
        """The flight for a request of this name, if it serves one: it has missed no purge, here or elsewhere.

        A request that is apart also waits for the others.
        """
        for each in (*name.others, name) if isinstance(name, Apart) else (name,):
            flight = self.named.get(each)
            recording = flight.recording if flight is not None else None
            if recording is not None and recording.current and flight is not None and not flight.held_up:
                return flight if self.tiers.trusted(recording.began, self.clock()) else None
        return None

    def ended(self, flight: Flight) -> None:
        """Close a flight to further requests."""
        name, flight.name = flight.name, None
        if name is not None and self.named.get(name) is flight:
            del self.named[name]

    def look_at_clock(self, response: Response, stored: Stored) -> None:
        """Say it once if an origin server's clock is so far behind that its response is stale at once."""
        lag = clock_lag(response.fields, stored.lifetime, stored.response_time)
        if lag and response.server not in self._slow_clocks and len(self._slow_clocks) < _MOST_CLOCKS:
            self._slow_clocks.add(response.server)
            logger.warning(
                "%s: clock %s behind, so its responses are stale as they come (%s with a lifetime of %d s). "
                "Set its clock, or let it send no Date",
                *(response.server or "the application", _in_words(lag)),
                *(stored.key.rpartition(b" ")[2].decode("latin-1")[:200], stored.lifetime),
            )

    def may_refresh(self, admission: Admission) -> bool:
        """Tell whether a request of ours fetches a response again that is served stale.

        It lacks fields that say whose request it is. An application may know that otherwise, by its scope or
        its context, and would answer the client: that client's own request has to bring the response.
        """
        if not self.in_background:
            return False
        if not self.shows_clients:
            return True
        return admission.request.names - READS <= for_refresh(admission).request.names

    def refresh(self, admission: Admission, origin: Origin) -> None:
        """Fetch a response that was served stale again, in the background (RFC 5861 §3).

        Not if that is under way, nor if it was purged or replaced while it was being served.
        """
        if not self.may_refresh(admission):
            return
        now = self.clock()
        stale = self.gate.again(admission, now).decision
        if not isinstance(stale, Reuse) or not stale.revalidate_in_background:
            return
        again = for_refresh(replace(admission, decision=stale))
        key = stale.stored.key
        name = self.gate.flight_name(again, now)
        if key in self._refreshing or (name is not None and name in self.named):
            return
        # Until it has ended, whatever it brings: its stale response is not to be fetched again for every hit.
        self._refreshing.add(key)
        flight = Flight(self, again, origin, name, over=lambda: self._refreshing.discard(key))
        flight.go_on_alone()
        flight.begin()


class Flight:
    """One request under way to the origin server, and all who wait for its answer.

    Others join it by its `name`, if it has one. It begins its lease in one go with the judgement of
    `admission`: no purge comes between the two. If the answer may not be stored, there is no recording, and
    no other request joins.

    A `leader` is aboard from the beginning on; others `join`. After `begin`, the origin calls `interim` any
    number of times, `start` once, `write` for each chunk, and `finish` or `fail` at last. Each passenger is
    called once with `landed`, at the head, or at the end where a stored response is validated.

    A redirect to the request's own key, and a 304 to no condition, are not passed on at once: the origin
    server is asked once more. `detail` is "own-spelling" after such a redirect.
    """

    def __init__(
        self,
        flights: Flights,
        admission: Admission,
        origin: Origin,
        name: Hashable | None = None,
        content: Pipe | None = None,
        over: Callable[[], object] | None = None,
        leader: Passenger | None = None,
    ) -> None:
        self._flights = flights
        self._origin = admission.settings.next_hop or origin  # which a reload may have replaced
        self._content = content
        self._over = over
        self._state: FlightState = _BEGUN
        self._under_way: UnderWay | None = None
        self._head: Response | None = None  # of the response to an unsafe request
        self._is_answer = False  # what comes is no failure of the origin server, unless it is cut short
        self._tried: Sequence[FailedRefresh] = ()  # others are served stale meanwhile
        self._reconsidered = False  # it was asked once more, without a condition or a range of ours
        self.detail = ""
        self._passengers: list[Passenger] = []  # until it has landed
        self.admission = admission
        self.name = name
        self.leader = leader
        self.landing: Landing | None = None
        self._unread_timer: Due | None = None  # the end of the time for which it goes on without a reader
        self.held_up = False  # what answers waits for the leader's client: none is to join
        self.reading: Reading = None
        if leader is not None:
            self.reading = leader.reader = Reader(leader, self._left)
            self._passengers.append(leader)
        decision = admission.decision
        self.recording: Recording | None = None
        if isinstance(decision, Validate) or (isinstance(decision, Forward) and decision.may_store):
            for_others = name is not None or isinstance(decision, Validate)
            for_others = for_others or admission.request.method not in SAFE
            self.recording = Recording(flights.tiers, admission, flights.clock, for_others=for_others)
        if name is not None:
            flights.named[name] = self

    def begin(self) -> None:
        """Ask the store's other tier, then the origin server."""
        failures = self._flights.gate.failures
        if failures.any and (stale := self._stale) is not None:
            self._tried = failures.begin(stale, self._odd)
        recording, tiers = self.recording, self._flights.tiers
        if recording is None or recording.lookup.lease is None or tiers.is_memory_alone:
            self._ask()
            return
        request, joined = self.admission.request, self.name is not None
        tiers.fill(recording.lookup.lease, request, self._judge, self._filled, joined=joined)

    @property
    def _stale(self) -> Stored | None:
        """The stored response that is to be refreshed."""
        decision = self.admission.decision
        if isinstance(decision, Validate):
            return decision.stored
        return decision.fallback if isinstance(decision, Forward) else None

    @property
    def _odd(self) -> frozenset[bytes]:
        """The client's fields that may provoke what comes, as those of a request of our own do not."""
        admission = self.admission
        return NO_NAMES if admission.ours else oddities(admission.request, admission.rules.ordinary)

    def _note_failure(self, status: int, *, provoked: bool = True) -> None:
        """Record a failed refresh of a stored response; status 0: no response came."""
        stale = self._stale
        if stale is not None:
            odd = self._odd if provoked else NO_NAMES
            self._flights.gate.failures.note(stale, odd, status, self._flights.clock())

    def note_delay(self) -> None:
        """Serve others the stored response, if it may be stale: its refresh takes too long."""
        stale = self._stale
        if stale is not None and not isinstance(self._state, Ended):
            self._note_failure(0)
            self._tried = self._flights.gate.failures.begin(stale, self._odd)

    def join(self, passenger: Passenger) -> None:
        """Wait for the landing; content comes from the first `resume` of the reader on."""
        broadcast = self.reading
        if not isinstance(broadcast, Broadcast):
            broadcast = self._share(broadcast)
            if isinstance(self._state, Ended):
                broadcast.end()
        passenger.reader = broadcast.join(passenger)
        if self.landing is None:
            self._passengers.append(passenger)

    def _share(self, single_reader: Reader | None) -> Broadcast:
        """Go on by a broadcast: who joins reads what is kept from its beginning."""
        recording = self.recording
        keeps = recording is not None and isinstance(recording.state, Kept)
        self.reading = broadcast = Broadcast(self._deserted, self._room, WINDOW)
        broadcast.begin(recording.chunks if recording is not None and keeps else None, single_reader)
        return broadcast

    @property
    def is_read(self) -> bool:
        """True if somebody reads, or waits to read."""
        reading = self.reading
        return bool(reading.readers) if isinstance(reading, Broadcast) else reading is not None

    @property
    def is_apart(self) -> bool:
        """True while the leader is not the only one to whom content is passed on, or the store is asked."""
        has_several = isinstance(self.reading, Broadcast) and len(self.reading.readers) > 1
        return has_several or isinstance(self._state, Judging)

    @property
    def needs_rest(self) -> bool:
        """True while the rest of the content must come: a part was sent, or it is to be stored alone."""
        readers = self.reading.readers if isinstance(self.reading, Broadcast) else []
        return self.unattended or any(reader.index for reader in readers)

    @property
    def unattended(self) -> bool:
        """True while it goes on without a reader."""
        return self._unread_timer is not None

    def go_on_alone(self) -> None:
        """Go on without a reader, to store what comes, for `Limits.unread_timeout` seconds at most."""
        if self._unread_timer is None and not isinstance(self._state, Ended):
            seconds = self.admission.runtime.limits.unread_timeout
            self._unread_timer = self._flights.call_later(seconds, self._expired)

    def overtake(self) -> None:
        """Close it to further requests, and store nothing: the content stalls. Others request it anew.

        Their response is newer than this one, whose content may still come for clients that have its head.
        """
        recording = self.recording
        if isinstance(self._state, Answering) and recording is not None and isinstance(recording.state, Kept):
            recording.stop_collapsing()
            self.note_delay()
            self.abandon()

    def abandon(self) -> None:
        """Close it to further requests, and store nothing: the content may end too early."""
        self._flights.ended(self)
        recording = self.recording
        if recording is not None and isinstance(recording.state, Kept):
            recording.drop("incomplete")
            self._let_go(recording)
        elif recording is not None:
            recording.forbidden = "incomplete"
        self.free()

    def free(self) -> None:
        """Have the followers make requests of their own, unless they have been sent something."""
        waiting, self._passengers = self._passengers, []
        if isinstance(self.reading, Broadcast):
            self.reading.free()
        for passenger in waiting:
            if passenger is self.leader:
                self._passengers.append(passenger)
            elif passenger.reader.sink is not None:
                try:
                    passenger.freed()
                except Exception as error:
                    passenger.fail(error)

    # The shared tier

    def _judge(self, servable: Sequence[Stored], askable: Sequence[Stored]) -> bool:
        """Judge the request by the responses that other nodes store; True if one answers it."""
        gate, now, admission = self._flights.gate, self._flights.clock(), self.admission
        again = self._wanted(gate.again(admission, now, servable))
        if not isinstance(again.decision, Reuse) and askable is not servable:
            again = self._wanted(gate.again(admission, now, askable))
        self.admission = again
        return isinstance(again.decision, Reuse)

    def _wanted(self, again: Admission) -> Admission:
        """In a refresh, take a stale response for one to be validated: it is the one to be fetched again."""
        stale = isinstance(again.decision, Reuse) and again.decision.revalidate_in_background
        return for_refresh(again) if self.unattended and stale else again

    def _filled(self, satisfied: bool) -> None:
        recording = self.recording
        assert recording is not None
        assert recording.lookup.lease is not None
        if isinstance(self._state, Ended):
            # The lease came when no request waited any more.
            self._flights.tiers.end(recording.lookup.lease, self._recorded_all)
        elif satisfied:
            _MOVES[type(self._state), Unrecorded]
            self._state = Unrecorded()
            self._land(Shared(self.admission))
            self._end(None)
        else:
            recording.began = self._flights.clock()  # what is fetched now is as old as from now on
            if recording.lookup.lease.waited:
                recording.stop_collapsing()
                self._flights.ended(self)
                self.note_delay()
                self.free()
            if not isinstance(self._state, Ended):
                self._ask()

    # The origin server

    def _ask(self) -> None:
        admission, decision = self.admission, self.admission.decision
        assert isinstance(decision, (Validate, Forward))
        if self.recording is not None and self.recording.decision is not decision:
            self.recording.restart(decision)
        _MOVES[type(self._state), Asking]
        self._state = Asking()
        fields = forwarded_fields(admission.request, decision)
        request = origin_request(admission, fields, self._content)
        request.is_unread = self._unread_timer is not None and not self.is_read
        try:
            if self._flights.watch is not None:
                request.watch = self._flights.watch(request)
            under_way = self._origin.ask(request, self)
        except Exception as error:
            if not lacks_memory(error):
                logger.exception("internal error while sending a request to the origin server")
                error = RefusedError("origin-unreachable")
            self._fail(error)
            return
        # Within the call the last client may have left, or an answer may have made it ask for something else.
        if isinstance(self._state, Ended) or self.admission is not admission:
            under_way.cancel()
        else:
            self._under_way = under_way

    def _ask_for_all(self) -> None:
        """Ask for all of it: what came is of another representation than the stored one (RFC 9111 §4.3.3)."""
        decision = self.admission.decision
        assert isinstance(decision, Validate)
        self._reconsidered = True
        whole = Forward(decision.reason, may_store=True, fallback=None)
        self._ask_instead(replace(self.admission, decision=whole))

    def _ask_instead(self, admission: Admission) -> None:
        """Ask otherwise: what is under way is of no use."""
        self._stop_asking()
        self.admission = admission
        self._ask()

    def _stop_asking(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.cancel()

    def _reconsider(self, response: Response) -> Admission | None:
        """The request that is made once more: a response leads to it, or answers no condition that it had."""
        admission, recording = self.admission, self.recording
        if response.status in REDIRECTS:
            target = named_spelling(admission, response)
            if target and self._origin.takes_targets and not self.detail:
                self.detail = OWN_SPELLING
                return respelled(admission, target)
            if target is not None and recording is not None:
                recording.forbidden = OWN_SPELLING
            if target is not None and self.detail:
                assert admission.canonical is not None
                self._flights.own_spellings.note(admission.canonical)
        elif response.status == 304 and not self._reconsidered:
            decision = admission.decision
            assert isinstance(decision, (Validate, Forward))
            if lacks_condition(admission.request, decision):
                self._reconsidered = True
                return replace(admission)
        return None

    # The answer

    def interim(self, status: int, fields: Fields) -> None:
        if self.leader is not None:
            self.leader.interim(status, fields)

    def start(self, response: Response) -> None:
        if self.admission.request.method not in SAFE:
            self._head = response
        if isinstance(self._state, Ended):
            return
        if response.status == 401 and self.recording is not None and challenges_connection(response.fields):
            self.recording.forbidden = "connection"  # it is about this client's connection
        elif 300 < response.status < 309:
            instead = self._reconsider(response)
            if instead is not None:
                _MOVES[type(self._state), Skipping]
                self._state = Skipping(instead)
                return
        _MOVES[type(self._state), Judging]
        self._state = Judging()
        admission = self.admission
        if admission.rules.removes_cookies and _drops_cookies(admission, response):
            response = replace(response, fields=without(response.fields, _SET_COOKIE))
        if admission.rules.keyed and response.status != 101:
            response = named_besides(response, admission.rules.keyed)
        self._is_answer = response.status < 500 and response.status != 429
        recording = self.recording
        if self._head is not None:
            lease, now = None if recording is None else recording.lookup.lease, self._flights.clock()
            invalidated = partial(self._invalidated, response)
            self._flights.tiers.invalidate(obsolete(self.admission, response), now, lease, invalidated)
        elif recording is not None and isinstance(recording.decision, Validate):
            recording.validate(recording.decision, response, self._started)
        else:
            if recording is not None:
                recording.assess(response)
            self._started(response)

    def _invalidated(self, response: Response) -> None:
        """Go on with the response to an unsafe request: what it makes obsolete is gone."""
        if self.recording is not None:
            self.recording.assess(response)
        self._started(response)

    def call_ended(self) -> None:
        """Invalidate once more after an unsafe request: the application may change more behind its answer."""
        selectors = [] if self._head is None else obsolete(self.admission, self._head)
        if not selectors:
            return
        tiers, now = self._flights.tiers, self._flights.clock()
        stored = None if self.recording is None else self.recording.still_stored()
        if stored is None:
            tiers.invalidate(selectors, now, None, _nothing)
            return
        lease = tiers.begin(stored.key, now)

        def store_again() -> None:
            tiers.commit(lease, stored)
            tiers.end(lease, _nothing)

        tiers.invalidate(selectors, now, lease, store_again)

    def _started(self, response: Response) -> None:
        if isinstance(self._state, Ended):
            return
        state = self._state
        _MOVES[type(state), Answering]
        self._state = Answering()
        if not self._is_answer:
            self._note_failure(response.status)
        recording = self.recording
        recorded = PASSED_ON if recording is None else recording.state
        if recording is not None and isinstance(recorded, (PassedOn, Mismatched)):
            self._let_go(recording)
        if isinstance(recorded, Kept):
            if isinstance(self.reading, Broadcast):
                self.reading.kept = True
            if recorded.storing.fresh_until <= recorded.storing.response_time:
                self._flights.look_at_clock(response, recorded.storing)
        if isinstance(recorded, (Kept, PassedOn)):
            if response.status == 304 and recording is not None:
                decision = self.admission.decision
                assert isinstance(decision, (Validate, Forward))
                if keeps_conditions(self.admission.request, decision):
                    self._fail(RefusedError("origin-bad-response"))  # it answers no condition of ours
                    return
            self._land(Relayed(response))
        if isinstance(state, Judging) and state.pending:
            self._catch_up(state.pending)

    def _catch_up(self, held: list[bytes | Exception | None]) -> None:
        """Take what came while the store was asked."""
        more = True
        for each in held:
            if not isinstance(self._state, Answering):
                return
            match each:
                case None:
                    self.finish()
                case Exception():
                    self.fail(each)
                case _:
                    more = self.write(each)
        if more and self._under_way is not None:
            self._under_way.resume()

    def write(self, chunk: bytes) -> bool:
        state = self._state
        if not isinstance(state, Answering) or not chunk:
            return self._set_aside(state, chunk)
        relayed, reading = isinstance(self.landing, Relayed), self.reading
        if relayed and isinstance(reading, Reader) and reading.blocked:
            reading = self._share(reading)
        recording = self.recording
        recorded = before = PASSED_ON if recording is None else recording.state
        if recording is not None and isinstance(before, (Kept, Completing)):
            unread = isinstance(reading, Broadcast) and reading.is_unread()
            if not recording.write(chunk, unread=unread):
                self._let_go(recording)
                recorded = recording.state
        if isinstance(recorded, Mismatched):
            if self._under_way is not None:  # else it comes within `ask`, which cannot be cancelled
                self._ask_for_all()
            return True
        dropped, more = recorded is not before, True
        if relayed and isinstance(reading, Reader):
            reading.pass_on(chunk)
        elif relayed:
            more = self._pass_on(chunk, 0 if dropped else WINDOW)
        if dropped and more:
            self._room()
        return more

    def _set_aside(self, state: FlightState, chunk: bytes) -> bool:
        """Keep content until it can be passed on, or read what no client gets, unless that is long."""
        if isinstance(state, Judging):
            state.pending.append(chunk)
            return False
        if isinstance(state, Skipping):
            state.spare -= len(chunk)
            if state.spare < 0 and self._under_way is not None:  # else it comes within `ask`
                self._ask_instead(state.instead)
        return True

    def _pass_on(self, chunk: bytes, little: int) -> bool:
        """Pass a chunk on to all who read; of content that is for no client, take no more than a `little`."""
        reading, recording = self.reading, self.recording
        stores = recording is not None and not isinstance(recording.state, PassedOn)
        if reading is None and stores:
            return True
        broadcast = reading if isinstance(reading, Broadcast) else self._share(reading)
        more = broadcast.write(chunk)
        if (
            not (broadcast.readers or stores)
            and broadcast.size > little
            and not isinstance(self._state, Ended)
        ):
            self._give_up()
        return more

    def _let_go(self, recording: Recording) -> None:
        """Close it to further requests; give up the lease, unless the whole response is requested next."""
        if isinstance(self.reading, Broadcast):
            self.reading.kept = False
        if recording.lookup.lease is None:
            return
        if self.name is not None:
            self._flights.ended(self)
        if not isinstance(recording.state, Mismatched):
            self._flights.tiers.let_go(recording.lookup.lease)

    def finish(self) -> None:
        state = self._state
        if isinstance(state, Judging):
            state.pending.append(None)
            return
        if isinstance(state, Ended):
            return
        self._under_way = None
        if isinstance(state, Skipping):
            self._ask_instead(state.instead)
            return
        _MOVES[type(self._state), Settling]
        self._state = Settling()
        recording = self.recording
        recorded = PASSED_ON if recording is None else recording.state
        if recording is None or isinstance(recorded, PassedOn):
            self._end(None)
        elif isinstance(recorded, Kept):
            recording.finish(recorded.storing)
            self._end(None)
        elif isinstance(recorded, Completing):
            recording.complete(recorded, partial(self._renewed, recording))
        else:
            self._renewed(recording)

    def _renewed(self, recording: Recording) -> None:
        """Answer with the stored response that is renewed or completed, if what came is about that."""
        if isinstance(self._state, Ended):
            return
        state = recording.state
        if isinstance(state, Mismatched):
            self._ask_for_all()
            return
        _MOVES[type(self._state), Unrecorded]
        self._state = Unrecorded()
        if isinstance(state, Updated):
            head = state.head
            self._land(Renewed(state.stored, head.status, head.server, head.seconds))
        self._end(None)

    def fail(self, error: Exception) -> None:
        state = self._state
        if isinstance(state, Judging):
            state.pending.append(error)
            return
        if isinstance(state, Ended):
            return
        self._under_way = None
        if isinstance(state, Skipping):
            self._ask_instead(state.instead)
            return
        if not self.is_read and not isinstance(error, (RefusedError, CutShortError)):
            logger.error("the application failed where no client waits for it", exc_info=error)
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        if isinstance(self._state, Ended):
            return
        if lacks_memory(error):
            self._flights.gate.tiers.memory.relieve()
            error = RefusedError("overloaded")
        self._stop_asking()
        _MOVES[type(self._state), Unrecorded]
        self._state = Unrecorded()
        self._flights.ended(self)  # who comes now asks anew
        recording, provoked = self.recording, not isinstance(error, RefusedError) or error.provoked
        if recording is not None and not isinstance(recording.state, PassedOn):
            self._note_failure(0, provoked=provoked)
            if provoked:
                recording.stop_collapsing()
        if self.landing is None:
            self._land(Failed(error))
        self._end(error)

    def _land(self, landing: Landing) -> None:
        self.landing = landing
        waiting, self._passengers = self._passengers, []
        for passenger in waiting:
            if passenger.reader.sink is not None:  # who waited too long may wait for another flight by now
                try:
                    passenger.landed(landing)
                except Exception as error:
                    passenger.fail(error)

    # The end

    def _end(self, error: BaseException | None) -> None:
        """Tell the readers that nothing more comes; until all nodes have the response, it can be joined."""
        if not isinstance(self._state, Unrecorded):
            _MOVES[type(self._state), Unrecorded]
            self._state = Unrecorded()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        for failure in self._tried:
            failure.tries = False
        failures, canonical = self._flights.gate.failures, self.admission.canonical
        if failures.any and self._is_answer and error is None and canonical is not None:
            failures.answered(canonical.key)
        recording, reading = self.recording, self.reading
        if error is not None and recording is not None:
            recording.fail()
        if isinstance(reading, Reader) and reading.blocked:
            reading = self._share(reading)
        if isinstance(reading, Reader):
            self.reading = None
            reading.tell(error)
        elif reading is not None:
            reading.end(error)
        if recording is None or recording.lookup.lease is None:
            self._recorded_all()
        else:
            self._flights.tiers.end(recording.lookup.lease, self._recorded_all)

    def _recorded_all(self) -> None:
        """Close it for good; called again once its last reader has left."""
        if isinstance(self._state, Unrecorded):  # else the lease came late, and is ended a second time
            _MOVES[type(self._state), Recorded]
            self._state = Recorded()
        if self.name is not None:
            self._flights.ended(self)
        reading, recording = self.reading, self.recording
        if isinstance(reading, Broadcast) and reading.readers:
            reading.close()
            if recording is not None and recording.whole is not None:
                reading.hand_over(recording.whole)
            if reading.readers:
                return
        if recording is not None and recording.lookup.lease is not None and recording.lookup.lease.reserved:
            self._flights.tiers.memory.leases.release(recording.lookup.lease)
        if recording is not None:
            recording.chunks.clear()  # the lease no longer counts them
        self.leader = self.reading = None  # objects in a circle wait for the garbage collector
        self._passengers.clear()
        if self._over is not None:
            over, self._over = self._over, None
            over()

    # The readers

    def _room(self) -> None:
        recording = self.recording
        lease = recording.lookup.lease if recording is not None else None
        if lease is not None and recording is not None and isinstance(recording.state, PassedOn):
            self._flights.tiers.memory.leases.release(lease)  # of what was kept, a window is held at most
        if self._under_way is not None:
            self._under_way.resume()

    def _left(self, reader: Reader) -> None:
        """Handle the only reader's leaving, unless it has got the end."""
        if self.reading is reader:
            self.reading = None
            self._deserted()

    def _deserted(self) -> None:
        if isinstance(self._state, Recorded):
            self._recorded_all()
        elif not isinstance(self._state, Unrecorded) and not self.unattended:
            self._give_up()

    def _expired(self) -> None:
        """Go on only as long as somebody reads."""
        self._unread_timer = None
        if not self.is_read:
            self._note_failure(0)
            if self.recording is not None:
                self.recording.give_up()
            self._give_up()

    def _give_up(self) -> None:
        """End the request: no request waits for its answer."""
        self._flights.ended(self)
        self._stop_asking()
        self._end(CutShortError())


def _nothing() -> None:
    """Wait for nothing."""


def _drops_cookies(admission: Admission, response: Response) -> bool:
    """Tell whether a response loses its cookies; one that switches protocols is one client's alone."""
    return admission.rules.ignores_cookies(admission.request.method) and response.status != 101


def _in_words(seconds: int) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def for_refresh(admission: Admission) -> Admission:
    """The request by which a response that is served stale is fetched again."""
    assert isinstance(admission.decision, Reuse)
    stored, rules = admission.decision.stored, admission.rules
    request, decision = revalidation(admission.request, stored, rules)
    return replace(admission, request=request, decision=decision, ours=True, origin_tag=b"")


def origin_request(admission: Admission, fields: Fields, content: Pipe | None) -> OriginRequest:
    """The request that an admitted one becomes."""
    canonical, settings = admission.canonical, admission.settings
    assert canonical is not None
    request = OriginRequest(
        admission.request.method,
        origin_target(canonical),
        fields,
        admission.received,
        content,
        scheme=canonical.scheme,
        chain=admission.peer.chain,
        key=canonical.key,
        references=canonical.reference_map,
        screened=True,
    )
    request.site = canonical.site.name
    edits, decision = settings.edits, admission.decision
    is_alone = edits.alone is not None and isinstance(decision, Forward) and not decision.may_store
    request.edits = edits.alone if is_alone else edits.request
    request.origin_tag = admission.origin_tag
    request.bond = None if admission.ours else admission.received.bond
    return request
