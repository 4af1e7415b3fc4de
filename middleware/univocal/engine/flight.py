"""One request under way to the origin server, by the shared tier, and what of its answer is stored."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from univocal.cache.decide import Decision, Forward, Reuse, Validate, forwarded_fields, revalidation
from univocal.cache.stored import Stored
from univocal.engine.admission import Admission, Gate
from univocal.engine.broadcast import Broadcast, CutShort
from univocal.engine.recording import Recording
from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Request, Response

if TYPE_CHECKING:
    from univocal.store.redis.tier import SharedStore

__all__ = ["Answer", "Flight", "Origin", "for_refresh"]

logger: Final = logging.getLogger("univocal")


class Mismatched(Exception):  # noqa: N818  (an event, not a fault)
    """What comes is of no use: not of the representation that is stored, or too large to complete it."""


class Answer(Protocol):
    """Where an origin writes its response: interim ones, a head, content, the end."""

    async def interim(self, status: int, fields: Fields) -> None: ...
    async def start(self, response: Response) -> None: ...
    async def write(self, chunk: bytes) -> None: ...
    async def finish(self) -> None: ...


Origin: TypeAlias = Callable[[Request, Answer], Awaitable[None]]


class Flight:
    """One request under way to the origin server, and all who wait for its answer."""

    def __init__(
        self,
        gate: Gate,
        admission: Admission,
        recording: Recording,
        ended: Callable[[Flight], None],
        *,
        named: bool,
    ) -> None:
        self.gate = gate
        self.named = named  # others wait for it, on other nodes, too
        self.admission = admission
        self.recording = recording
        self.content = Broadcast(self._deserted)
        self.interims: list[tuple[int, Fields]] = []
        self.response: Response | None = None
        self.task: asyncio.Task[None] | None = None
        self.unattended = False  # goes on though nobody reads
        self._ended = ended

    @property
    def landed(self) -> bool:
        """Whether it is known what this flight brings."""
        return self.response is not None or self.content.ended

    async def interim(self, status: int, fields: Fields) -> None:
        self.interims.append((status, fields))
        self.content.ring()

    async def start(self, response: Response) -> None:
        await self.recording.start(response)
        self.content.kept = self.recording.storing is not None
        if not self.recording.joinable:
            await self._let_go()
        if self.recording.presentable:
            if response.status == 304:  # no condition was sent that it could be the answer to
                raise RefusedError("origin-bad-response")
            self.response = response
            self.content.ring()

    async def write(self, chunk: bytes) -> None:
        kept = self.recording.write(chunk)
        if self.content.kept and not kept:
            self.content.kept = False
            await self._let_go()
        if self.recording.mismatched:
            raise Mismatched
        if self.recording.presentable:
            await self.content.write(chunk)

    async def finish(self) -> None:
        await self.recording.finish()
        if not self.recording.mismatched:
            self.content.end()
            # It can be joined until all nodes have what was stored. What the application does after its
            # response concerns nobody who asks from then on.
            await self._close()
            self._leave()

    async def fly(self, origin: Origin) -> None:
        """Ask the origin; whatever happens, the waiting hear of it and the lease is given back."""
        error: BaseException | None = CutShort()
        try:
            if self.gate.shared is not None and await self._from_another_node(self.gate.shared):
                error = None
                return
            decision = self.admission.decision
            with contextlib.suppress(Mismatched):
                await self._ask(origin, forwarded_fields(self.admission.request, decision))
            if self.recording.mismatched:
                # What came is not of the representation that is stored: ask for all of it (RFC 9111 §4.3.3).
                again = Forward(decision.reason, may_store=True, fallback=None)
                self.recording.restart(again)
                await self._ask(origin, forwarded_fields(self.admission.request, again))
        except Exception as raised:  # every reader raises it again
            error = raised
            heard = not self.content.ended and self.content.readers > 0
            if not heard and not isinstance(raised, RefusedError):
                logger.exception("the application failed where no client waits for it")
        finally:
            if not self.content.ended:
                self.content.end(error)
            self._leave()
            await self._close()

    async def _from_another_node(self, shared: SharedStore) -> bool:
        """Ask the shared tier, and wait for who fetches this elsewhere; else it has its lease.

        What the origin is asked about is read once more under that lease: what was read before it may have
        been purged between the two.
        """
        asked = self.admission
        assert asked.canonical is not None

        def judge(held: Sequence[Stored]) -> Admission | None:
            self.admission = self._judged(asked, held, shared)
            return self.admission if isinstance(self.admission.decision, Reuse) else None

        key, lease = asked.canonical.key, self.recording.lease
        request = asked.request
        found = await (shared.obtain(key, judge, lease, request) if self.named else shared.begin(key, lease))
        if isinstance(found, Admission):
            return True
        self.recording.shared = found
        if not self.named or _is_about_stored(self.admission.decision):
            held = await shared.lookup(key, shared.clock(), request)
            self.recording.held = held if shared.connected else None
            if judge(held) is not None:
                return True
        self.recording.restart(self.admission.decision)
        return False

    def _judged(self, asked: Admission, held: Sequence[Stored], shared: SharedStore) -> Admission:
        """The request judged by what the shared tier holds.

        What memory alone still holds may be served for a moment, but it may have been purged elsewhere: the
        origin is asked about no such response, unless it is one that never goes into the shared tier.
        """
        now, canonical = shared.clock(), asked.canonical
        assert canonical is not None
        known = held or self.gate.known(canonical.key, now)
        again = self._wanted(self.gate.again(asked, now, known))
        if held or isinstance(again.decision, Reuse) or not shared.connected:
            return again
        return self._wanted(self.gate.again(asked, now, [one for one in known if one.search is not None]))

    def _wanted(self, again: Admission) -> Admission:
        """What is fetched again in the background is not had by having what is stale."""
        stale = isinstance(again.decision, Reuse) and again.decision.revalidate_in_background
        return for_refresh(again) if self.unattended and stale else again

    async def _ask(self, origin: Origin, fields: Fields) -> None:
        await origin(replace(self.admission.request, fields=fields), self)

    async def _let_go(self) -> None:
        """Be of use to nobody who asks from now on; the lease stays if all of it is to be asked for."""
        self._ended(self)
        if self.gate.shared is not None and not self.recording.mismatched:
            await self.recording.let_go()

    def _leave(self) -> None:
        """Be joined no longer."""
        self._ended(self)
        self.content.close()

    async def _close(self) -> None:
        await self.recording.close()
        if not self.content.readers:
            self.recording.release()

    def _deserted(self) -> None:
        if self.content.ended:
            if self.recording.closed:
                self.recording.release()
        elif self.task is not None and not self.unattended:
            self.task.cancel()


def for_refresh(admission: Admission) -> Admission:
    """The request with which what is served stale is fetched again."""
    assert isinstance(admission.decision, Reuse)
    request, decision = revalidation(admission.request, admission.decision.stored)
    return replace(admission, request=request, decision=decision)


def _is_about_stored(decision: Decision) -> bool:
    return isinstance(decision, Validate) or (isinstance(decision, Forward) and decision.fallback is not None)
