"""A response on its way into the store: judged at its head, committed at its end (RFC 9111 §3, §4.3)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from univocal.cache.decide import Decision, Forward, Validate, reuse_on_error, select
from univocal.cache.stored import Stored
from univocal.cache.storing import Unstorable, complete, may_store
from univocal.cache.validation import combine, freshen
from univocal.http.errors import RefusedError
from univocal.http.fields import content_length
from univocal.http.messages import Response
from univocal.store.purge_selectors import Keys, Selector

if TYPE_CHECKING:
    from univocal.engine.admission import Admission, Gate
    from univocal.store.redis.tier import SharedLease

__all__ = ["Recording"]

# Seconds for which requests do not wait for one another, once a response could not be stored.
UNCACHEABLE: Final = 120.0
# Fields that make a response one client's own.
_PERSONAL: Final = frozenset((b"authorization", b"range"))


class Recording:
    """What becomes of one response of the origin's: kept as it is, or taken to renew what is stored.

    The lease is taken when it begins: what is purged from then on is not stored.
    """

    def __init__(self, gate: Gate, admission: Admission, clock: Callable[[], float]) -> None:
        assert admission.canonical is not None
        self.status = 0  # the origin's
        self.storing: Stored | None = None  # the head as it will be stored, its content still to come
        self.updated: Stored | None = None  # the stored response that the origin's renewed or completed
        self.stores = False  # as far as is known at the head: what is purged until then is not stored
        self.closed = False
        self.mismatched = False  # the origin's speaks of another representation than what is stored
        self._gate, self._store = gate, gate.store
        self.shared: SharedLease | None = None
        self.held: Sequence[Stored] | None = None  # by the shared tier, as its lease began
        self._owed: list[Stored | Selector] = []  # what the shared tier is to be told
        self._key = admission.canonical.key
        self._request = admission.request
        self._rules = admission.rules
        self._decision: Decision = admission.decision
        self._clock = clock
        self.began = clock()
        self.lease = self._store.begin(self._key, self.began)
        self._partial: Response | None = None  # a 206 that completes a stored one
        self._chunks: list[bytes] = []

    async def begin(self) -> None:
        """Take a lease of the shared tier's, too, waiting for no other node's."""
        if self._gate.shared is not None:
            self.shared = await self._gate.shared.begin(self._key, self.lease)

    async def close(self) -> None:
        """Settle, and give every lease back, but not yet what was reserved: it is still being read."""
        try:
            if self._gate.shared is not None and not self.closed:
                await self._settle()
                await self.let_go()
        finally:
            self._store.end(self.lease)
            self.closed = True

    async def _settle(self) -> None:
        """Tell the shared tier what came of the response: from here on other nodes have it, and memory."""
        shared = self._gate.shared
        while self._owed and shared is not None and self.shared is not None:
            match self._owed.pop(0):
                case Stored() as stored:
                    await shared.commit(self.shared, stored)
                case selector:
                    with suppress(RefusedError):
                        await self._gate.purge(selector, self._clock(), self)

    async def let_go(self) -> None:
        """Let other nodes wait no longer; a second time does nothing."""
        if self._gate.shared is not None and self.shared is not None:
            await self._gate.shared.release(self.shared)

    @property
    def current(self) -> bool:
        """Whether nothing has purged this response since it was asked for."""
        return self._store.holds(self.lease, self.storing)

    @property
    def joinable(self) -> bool:
        """Whether others may be satisfied by what comes."""
        return self.storing is not None or self.updated is not None or self._partial is not None

    @property
    def presentable(self) -> bool:
        """Whether the origin's response is itself an answer, not news about a stored one."""
        return self.updated is None and self._partial is None and not self.mismatched

    async def start(self, response: Response) -> None:
        """Judge a response by its head."""
        self.status = response.status
        decision = self._decision
        told_of = _told_of(decision, response.status)
        kept = told_of is None or await self._kept(told_of)
        now = self._clock()
        if not kept:
            self.mismatched = True  # what was purged is neither freshened nor completed
        elif told_of is not None and response.status == 304:
            self._renew(told_of, response, now)
        elif told_of is not None:
            self._partial = response
        elif isinstance(decision, Validate) and decision.reason == "partial" and response.status == 416:
            self.mismatched = True  # the range was ours: whoever asked for the whole is told nothing of it
        elif self._request.method == b"HEAD" and response.status == 200 and self._learn(response, now):
            pass
        elif _may_store(decision):
            self._consider(response, now)
            self.stores = self.storing is not None and self.current

    def write(self, chunk: bytes) -> bool:
        """Keep a chunk of the content; whether everything is kept so far."""
        if self.storing is None and self._partial is None:
            return False
        # The object itself costs, too: a body in crumbs is larger than its octets.
        if not self._store.reserve(self.lease, sys.getsizeof(chunk) + 8):
            # What would complete a stored part is of no use unless all of it is there.
            self.mismatched = self._partial is not None
            self.storing, self._partial = None, None
            self._chunks.clear()
            return False
        self._chunks.append(chunk)
        return True

    async def finish(self) -> None:
        """The content is complete: commit it."""
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        if self._partial is not None:
            assert isinstance(self._decision, Validate)
            old, kept = self._decision.stored, await self._kept(self._decision.stored)
            part, now = self._partial, self._clock()
            updated = combine(old, self._request, part, body, self._rules, self.began, now) if kept else None
            self._commit_updated(updated)
            self._partial = None
        elif self.storing is not None:
            stored = complete(self.storing, body)
            if stored is not None:
                self._commit(stored)

    async def _kept(self, stored: Stored) -> bool:
        """Whether a response was not purged since the decision; it may have been evicted or softened."""
        return self._store.holds(self.lease, stored) or await self._gate.keeps(stored, self._clock())

    def _commit(self, stored: Stored) -> None:
        if self._gate.shared is None:
            self._store.commit(self.lease, stored)
        else:
            self._owed.append(stored)

    def _purge(self, selector: Selector, now: float) -> None:
        self._store.purge(selector, now, sparing=self.lease)
        if self._gate.shared is not None:
            self._owed.append(selector)

    def restart(self, decision: Decision) -> None:
        """Begin anew with another request, under the same lease."""
        self.mismatched = False
        self._decision = decision
        self._chunks.clear()

    def release(self) -> None:
        """Give the lease and what was reserved under it back."""
        self._store.release(self.lease)

    def _renew(self, stored: Stored, response: Response, now: float) -> None:
        self._commit_updated(freshen(stored, self._request, response, self._rules, self.began, now))

    def _commit_updated(self, updated: Stored | None) -> None:
        if updated is None:
            self.mismatched = True
            return
        self.updated = updated
        if updated.reusable or (self._decision.reason == "stale" and not self._personal):
            self._commit(updated)

    def _learn(self, response: Response, now: float) -> bool:
        """Let the answer to a HEAD freshen the stored answer to a GET, or end it (RFC 9111 §4.3.5)."""
        if self._personal or any(name == b"cookie" for name, _ in self._request.fields):
            return False
        variants = self._store.lookup(self._key) if self.held is None else self.held
        stored = select(replace(self._request, method=b"GET"), variants)
        if stored is None or not stored.whole or stored.status != 200:
            return False
        updated = freshen(stored, self._request, response, self._rules, self.began, now)
        if updated is not None and updated.reusable:
            self._commit(updated)
        else:
            self._purge(Keys(frozenset((self._key,)), soft=updated is None), now)
        return True

    def _consider(self, response: Response, now: float) -> None:
        decision, request, rules = self._decision, self._request, self._rules
        if reuse_on_error(decision, request, rules, response.status, now) is not None:
            return  # an error that something stale is served for does not replace it
        verdict = may_store(self._key, request, response, rules, self.began, now)
        if not isinstance(verdict, Unstorable):
            # What is known to be too large is nobody's but the client's who asked: others do not wait for it.
            if (content_length(response.fields) or 0) <= self._store.max_object_bytes:
                self.storing = verdict
                return
        # What one client's request brought about says nothing of what others get.
        elif self._personal or request.method != b"GET" or not _of_the_resource(response.status):
            return
        elif decision.reason == "stale":
            # The origin no longer lets this be stored: what is stale is not to be served in its place.
            self._purge(Keys(frozenset((self._key,))), now)
        self._store.mark_uncacheable(self._key, now + UNCACHEABLE)

    @property
    def _personal(self) -> bool:
        return any(name in _PERSONAL for name, _ in self._request.fields)


def _told_of(decision: Decision, status: int) -> Stored | None:
    """The stored response that the origin's is about, if it is not an answer itself."""
    if not isinstance(decision, Validate):
        return None
    return decision.stored if status == 304 or (decision.reason == "partial" and status == 206) else None


def _of_the_resource(status: int) -> bool:
    """Whether a status tells of the resource, not of this request or a bad moment of the origin."""
    return status < 400 or status in {404, 410}


def _may_store(decision: Decision) -> bool:
    # A Validate is only ever decided where the response may be stored.
    return isinstance(decision, Validate) or (isinstance(decision, Forward) and decision.may_store)
