"""A miss: join the flight of its key or lead one; what lands is committed and judged again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from typing import Protocol

from univocal.cache.decide import Refuse, Reuse, reuse_on_error
from univocal.cache.represent import not_modified
from univocal.engine.admission import Admission, Gate
from univocal.engine.broadcast import Reader
from univocal.engine.flight import Flight, Origin, for_refresh
from univocal.engine.outcome import Handling
from univocal.engine.recording import Recording
from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Response, values

__all__ = ["Client", "Fetcher", "Landing"]


class Client(Protocol):
    """Who waits for an answer."""

    def joined(self, reader: Reader) -> None: ...
    async def interim(self, status: int, fields: Fields) -> None: ...


@dataclass(frozen=True, slots=True)
class Landing:
    """What a request gets: a stored response where the decision says Reuse, else the origin's as it comes."""

    admission: Admission
    handling: Handling
    response: Response | None = None
    reader: Reader | None = None


class _OverdueError(Exception):
    """A flight that is waited for takes too long."""


class Fetcher:
    """Sends to the origin what the store cannot answer, once for all who ask at the same time."""

    def __init__(self, gate: Gate, clock: Callable[[], float]) -> None:
        self.gate = gate
        self.clock = clock
        self._flights: dict[Hashable, Flight] = {}
        self._refreshing: set[bytes] = set()  # keys of stored responses that are fetched again
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    async def fetch(self, admission: Admission, origin: Origin, client: Client) -> Landing:
        """What `admission` gets from the origin, by a flight that it joins or leads.

        Whoever joins one waits once: what does not satisfy its request then, it forwards for by itself.
        Raises Departed, CutShort, RefusedError or whatever the origin raised.
        """
        name = self.gate.flight_name(admission, self.clock())
        flight = self._flights.get(name) if name is not None else None
        landing = None
        if flight is not None and self._is_joined(flight):
            try:
                landing = await self._follow(flight, admission, client)
            except _OverdueError:  # whoever comes next waits for another one
                pass
            else:
                name = None
        landing = landing or await self._forward(admission, origin, name, client)
        again = landing.admission.decision
        if landing.handling.hit and isinstance(again, Reuse) and again.revalidate_in_background:
            self.refresh(landing.admission, origin)
        return landing

    def _is_joined(self, flight: Flight) -> bool:
        """Whether a flight serves who asks now: it must have missed no purge, here or on another node."""
        recording = flight.recording
        return recording.current and self.gate.heard_since(recording.began, self.clock())

    async def _forward(
        self, admission: Admission, origin: Origin, name: Hashable | None, client: Client
    ) -> Landing:
        admission = self.gate.again(admission, self.clock())  # it may have waited
        match admission.decision:
            case Reuse() as found:
                return Landing(admission, Handling.of_hit(found))
            case Refuse(reason=reason):
                raise RefusedError(reason)
        flight = self._launch(admission, origin, name)
        reader = flight.content.join()
        try:
            return await self._lead(flight, reader, client)
        except BaseException:
            flight.content.leave(reader)
            raise

    def refresh(self, admission: Admission, origin: Origin) -> None:
        """Fetch again what was served stale, in the background, unless that is under way (RFC 5861 §3).

        Nor if it was purged or replaced while it was being served.
        """
        stale = self.gate.again(admission, self.clock()).decision
        if not isinstance(stale, Reuse) or not stale.revalidate_in_background:
            return
        again = for_refresh(replace(admission, decision=stale))
        key = stale.stored.key
        name = self.gate.flight_name(again, self.clock())
        if key in self._refreshing or name in self._flights:
            return
        flight = self._launch(again, origin, name)
        flight.unattended = True
        assert flight.task is not None
        # Until it has ended, whatever it brings: its stale response is not to be fetched again for every hit.
        self._refreshing.add(key)
        flight.task.add_done_callback(lambda _: self._refreshing.discard(key))

    def _launch(self, admission: Admission, origin: Origin, name: Hashable | None) -> Flight:
        """Begin a flight and its lease in one go with the judgement of `admission`: no purge in between."""

        def ended(flight: Flight) -> None:
            if name is not None and self._flights.get(name) is flight:
                del self._flights[name]

        recording = Recording(self.gate, admission, self.clock)
        flight = Flight(self.gate, admission, recording, ended, named=name is not None)
        if name is not None:
            self._flights[name] = flight
        flight.task = asyncio.get_running_loop().create_task(flight.fly(origin))
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._tasks.discard)
        return flight

    async def _lead(self, flight: Flight, reader: Reader, client: Client) -> Landing:
        await _until_landed(flight, reader, client, interim=client.interim)
        admission, recording = flight.admission, flight.recording
        status = flight.response.status if flight.response is not None else None
        fwd = admission.decision.reason
        if isinstance(admission.decision, Reuse):
            flight.content.leave(reader)
            return _another_nodes(admission)
        stale = await self._in_place_of(flight, admission)
        if stale is not None:
            flight.content.leave(reader)
            return Landing(stale, Handling(fwd=fwd, fwd_status=status or 0, detail=stale.decision.reason))
        now = self.clock()
        if recording.updated is not None:
            flight.content.leave(reader)
            found = Reuse(recording.updated, recording.updated.age(now), fwd, revalidate_in_background=False)
            return Landing(replace(admission, decision=found), Handling(fwd=fwd, fwd_status=recording.status))
        handling = Handling(fwd=fwd, stored=recording.stores)
        assert flight.response is not None
        return self._streaming(flight, reader, admission, handling, now, flight.response)

    async def _follow(self, flight: Flight, admission: Admission, client: Client) -> Landing | None:
        reader = flight.content.join()
        try:
            try:
                async with asyncio.timeout(admission.runtime.limits.collapse_timeout):
                    await _until_landed(flight, reader, client)
            except TimeoutError:  # the flight's own may be one as well: that is for `_shared` to tell
                raise _OverdueError from None
            landing = await self._shared(flight, reader, admission)
        except BaseException:
            flight.content.leave(reader)
            raise
        if landing is None or landing.reader is None:
            flight.content.leave(reader)
        return landing

    async def _shared(self, flight: Flight, reader: Reader, admission: Admission) -> Landing | None:
        """What a flight that another request leads brings for this one, if anything."""
        handling = Handling(fwd=admission.decision.reason, collapsed=True)
        stale = await self._in_place_of(flight, admission)
        if stale is not None:
            return Landing(stale, replace(handling, detail=stale.decision.reason))
        now, recording = self.clock(), flight.recording
        theirs = flight.admission.decision
        landed = recording.updated or recording.storing
        if isinstance(theirs, Reuse):
            landed = theirs.stored
        if landed is None or not landed.reusable:
            return None
        again = self.gate.again(admission, now, [landed])
        if not isinstance(again.decision, Reuse):
            return None
        if isinstance(theirs, Reuse):
            return _another_nodes(again)
        if landed is recording.updated:
            return Landing(again, handling)
        if landed.whole and values(admission.request.fields, b"range") == []:
            # As it is stored: what may not be is for the client alone whose request brought it.
            response = Response(landed.status, landed.fields)
            return self._streaming(flight, reader, again, handling, now, response)
        return None

    async def _in_place_of(self, flight: Flight, admission: Admission) -> Admission | None:
        """What is served stale instead of the error that a flight brings; else raises the error."""
        error = flight.content.error if flight.response is None else None
        status = flight.response.status if flight.response is not None else None
        if error is None and (status is None or status < 500):
            return None
        now = self.clock()
        again = await self.gate.recalled(admission, now)
        if isinstance(again.decision, Reuse):
            return again
        stale = reuse_on_error(again.decision, again.request, again.rules, status, now)
        if stale is not None:
            return replace(again, decision=stale)
        if error is not None:
            raise error
        return None

    def _streaming(
        self,
        flight: Flight,
        reader: Reader,
        admission: Admission,
        handling: Handling,
        now: float,
        response: Response,
    ) -> Landing:
        if flight.recording.storing is not None:
            # The client's conditions were kept from the origin: they are answered here (RFC 9111 §4.3.2).
            unchanged = not_modified(admission.request, response, now)
            if unchanged is not None:
                flight.unattended = True
                flight.content.leave(reader)
                return Landing(admission, handling, unchanged)
        return Landing(admission, handling, response, reader)


def _another_nodes(admission: Admission) -> Landing:
    """What a request gets of the shared tier."""
    assert isinstance(admission.decision, Reuse)
    return Landing(admission, Handling.of_hit(admission.decision, detail="shared"))


async def _until_landed(
    flight: Flight,
    reader: Reader,
    client: Client,
    interim: Callable[[int, Fields], Awaitable[None]] | None = None,
) -> None:
    """Wait until it is known what a flight brings. Raises Departed.

    Interim responses are passed to `interim`: to nobody but the client whose request brought them.
    """
    client.joined(reader)
    told = 0
    while not flight.landed:
        await flight.content.news(reader)
        while interim is not None and told < len(flight.interims):
            status, fields = flight.interims[told]
            told += 1
            await interim(status, fields)
