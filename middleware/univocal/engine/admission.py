"""The one place that judges a request: both doors ask it, and nothing else does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from univocal.cache.decide import Decision, Forward, Refuse, Reuse, Validate, decide
from univocal.cache.rules import Rules, strip_cookies
from univocal.cache.stored import Stored
from univocal.cache.validation import invalidates
from univocal.cache.vary import selecting_fields, selection
from univocal.engine.runtime import Runtime
from univocal.engine.trust import Peer, believe
from univocal.http.errors import RefusedError, by_rank, status_of
from univocal.http.fields import ENCODINGS, content_length
from univocal.http.forward import end_to_end, strip_untrusted
from univocal.http.framing import is_ambiguous
from univocal.http.messages import Fields, Received, Request, Response, values
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Selector, Tags
from univocal.uri.pipeline import Rejected
from univocal.uri.target import Canonical, encoding_fields, path_tags, resolve

if TYPE_CHECKING:
    from univocal.engine.recording import Recording
    from univocal.store.redis.tier import SharedStore

__all__ = ["Admission", "Gate"]

RULES: Final = Rules()
_CONDITIONS: Final = frozenset((b"if-none-match", b"if-modified-since"))
_OURS: Final = frozenset((b"host", *ENCODINGS))  # fields that are written anew
_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
_HAS_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:").match


@dataclass(frozen=True, slots=True)
class Admission:
    """A request as it was judged, with the configuration that it was judged by."""

    received: Received
    runtime: Runtime
    peer: Peer
    canonical: Canonical | None  # None: refused before its target was known
    request: Request  # the canonical target, and the fields that may go on
    rules: Rules
    decision: Decision
    reasons: tuple[str, ...] = ()  # why it is refused, or would be (mode "observe")


class Gate:
    """Judges requests by a runtime and a store; a reload sets `runtime` anew."""

    __slots__ = ("_sweeping", "runtime", "shared", "store")

    def __init__(self, runtime: Runtime, store: MemoryStore, shared: SharedStore | None = None) -> None:
        self.runtime = runtime
        self.store = store
        self.shared = shared
        self._sweeping = asyncio.Lock()

    def admit(self, received: Received, fields: Fields, now: float) -> Admission:
        """Who is asked for what, and what is to be done about it. Touches nothing but the memory store."""
        runtime = self.runtime
        peer = believe(received, fields, runtime.trusted)
        if fault := _fault(received, fields, runtime):
            return _refused(received, runtime, peer, (fault,))
        found = resolve(
            received.target, peer.hosts, peer.scheme, runtime.sites, received.method, peer.encodings
        )
        if isinstance(found, Rejected):
            return _refused(received, runtime, peer, found.reasons)
        rules = runtime.rules.get(found.site.name, RULES)
        tags = path_tags(found.target, found.route.profile)
        request = Request(received.method, found.target, _admitted(fields, found), tags, found.received)
        request = strip_cookies(request, rules)
        decision = self._decide(found, request, rules, now)
        return Admission(received, runtime, peer, found, request, rules, decision, found.observed)

    def _decide(self, found: Canonical, request: Request, rules: Rules, now: float) -> Decision:
        if found.observed or found.target == b"*":
            reason = "bypass" if request.method in {b"GET", b"HEAD"} else "method"
            return Forward(reason, may_store=False, fallback=None)
        decision = decide(request, self.known(found.key, now), rules, now)
        if isinstance(decision, Forward) and decision.may_store and self._passes(found, request, now):
            return replace(decision, may_store=False)
        return decision

    def _passes(self, found: Canonical, request: Request, now: float) -> bool:
        """Whether a client's own conditions go to the origin: not long ago its answer could not be stored."""
        conditional = any(name in _CONDITIONS for name, _ in request.fields)
        return conditional and self.store.is_uncacheable(found.key, now)

    def known(self, key: bytes, now: float) -> Sequence[Stored]:
        """What memory holds under a key: nothing while it may hold what another node purged long ago."""
        trusted = self.shared is None or now < self.shared.trusted_until
        return self.store.lookup(key) if trusted else ()

    def heard_since(self, then: float, now: float) -> bool:
        """Whether what other nodes have purged since then is known here, but for the last `bound` seconds."""
        shared = self.shared
        if shared is None or now < shared.trusted_until:
            return True
        return then >= shared.trusted_until and now - then <= shared.bound

    def again(self, admission: Admission, now: float, held: Sequence[Stored] | None = None) -> Admission:
        """The same request judged by what is stored now, or by the responses `held`.

        Whoever has waited asks this again: a decision is as old as what it was made from, and a lease that
        begins later knows nothing of the purges between them.
        """
        assert admission.canonical is not None
        variants = self.known(admission.canonical.key, now) if held is None else held
        return replace(admission, decision=decide(admission.request, variants, admission.rules, now))

    async def recalled(self, admission: Admission, now: float) -> Admission:
        """The same request judged by what is stored now, on whichever node: should the origin fail."""
        again = self.again(admission, now)
        if self.shared is None or not _has_fallback(admission.decision) or _has_fallback(again.decision):
            return again
        assert again.canonical is not None
        held = await self.shared.lookup(again.canonical.key, now, again.request)
        return self.again(again, now, held)

    async def keeps(self, stored: Stored, now: float) -> bool:
        """Whether a response is still stored, on whichever node, softened or not."""
        if _holds(self.known(stored.key, now), stored):
            return True
        # Memory may merely have forgotten it: it forgets all of a key that changes in the shared tier.
        return self.shared is not None and _holds(
            await self.shared.lookup(stored.key, now, Request(b"GET", b"", [])), stored
        )

    async def purge(self, selector: Selector, now: float, sparing: Recording | None = None) -> int:
        """Purge, on every node: the number of responses. Raises RefusedError if that is not confirmed.

        Where there are as many bans as may be, one more waits until the oldest have been tested everywhere.
        """
        if not self.store.has_room(selector):
            async with self._sweeping:
                while not self.store.has_room(selector):
                    self.store.sweep()
                    await asyncio.sleep(0)
        if self.shared is None:
            return self.store.purge(selector, now, sparing=sparing.lease if sparing else None)
        return await self.shared.purge(selector, now, sparing=sparing.shared if sparing else None)

    async def settle(
        self, admission: Admission, response: Response, now: float, sparing: Recording | None = None
    ) -> None:
        """Invalidate what a response to an unsafe request makes obsolete (RFC 9111 §4.4, RFC 9875 §3).

        The lease under which that response is itself being stored stays good.
        """
        found, obsolete = admission.canonical, invalidates(admission.request, response)
        if found is None or found.target == b"*" or obsolete is None:
            return
        references, groups = obsolete
        named = (_refer(reference, found, admission.runtime) for reference in references)
        keys = frozenset((found.key, *(each.key for each in named if each is not None)))
        with suppress(RefusedError):  # what is not confirmed is made up for
            await self.purge(Keys(keys), now, sparing)
        if groups:
            origin = b"%b %b" % (found.scheme, found.authority)
            with suppress(RefusedError):
                await self.purge(Tags(groups, origin=origin), now, sparing)

    def flight_name(self, admission: Admission, now: float) -> Hashable | None:
        """What requests must have in common to wait for one answer; None: this one waits for no other.

        Requests whose selecting header fields differ, as far as a stored response tells which those are, ask
        for different things; so do ranges, and a client that wants the origin's own word (RFC 9111 §5.2.1.4).
        """
        found, request = admission.canonical, admission.request
        assert found is not None
        if (
            request.method != b"GET"
            or admission.decision.reason == "request"
            or values(request.fields, b"range")
        ):
            return None
        if self.store.is_uncacheable(found.key, now):
            return None
        variants = self.store.lookup(found.key)
        if not variants:
            return found.key, selection([], request)
        return found.key, selecting_fields(tuple(name for name, _ in variants[0].vary), request)


def _has_fallback(decision: Decision) -> bool:
    return isinstance(decision, Reuse) or (
        isinstance(decision, Validate | Forward) and decision.fallback is not None
    )


def _holds(variants: Sequence[Stored], stored: Stored) -> bool:
    return any((one.response_time, one.head) == (stored.response_time, stored.head) for one in variants)


def _refer(reference: bytes, base: Canonical, runtime: Runtime) -> Canonical | None:
    """What a URI reference of `base`'s response names, if that is of the same origin (RFC 3986 §5.2)."""
    target = reference.partition(b"#")[0]
    if target.startswith(b"//"):
        target = base.scheme + b":" + target
    elif not _HAS_SCHEME(target) and not target.startswith(b"/"):
        path = base.target.partition(b"?")[0]
        target = (path if target[:1] in {b"", b"?"} else path[: path.rindex(b"/") + 1]) + target
    found = resolve(target, [base.authority], base.scheme, runtime.sites)
    same = isinstance(found, Canonical) and (found.scheme, found.authority) == (base.scheme, base.authority)
    return found if same and isinstance(found, Canonical) else None


def _fault(received: Received, fields: Fields, runtime: Runtime) -> str:
    """What forbids a message whatever it asks for."""
    limits = runtime.limits
    # Not every server refuses what another one behind us would read as two messages.
    if (framing := [field for field in fields if field[0] in _FRAMING]) and is_ambiguous(framing):
        return "bad-framing"
    if limits.max_target and len(received.target) > limits.max_target:
        return "target-too-long"
    if limits.max_fields and len(fields) > limits.max_fields:
        return "fields-too-large"
    if limits.max_body and (content_length(fields) or 0) > limits.max_body:
        return "body-too-large"
    return ""


def _admitted(fields: Fields, found: Canonical) -> Fields:
    """The fields that may go on: one Host, nothing that claims another URL, nothing for this hop (law 4)."""
    told = strip_untrusted(end_to_end(fields))
    kept = [field for field in told if field[0] not in _OURS]
    return [(b"host", found.authority), *kept, *encoding_fields(found)]


def _refused(received: Received, runtime: Runtime, peer: Peer, reasons: Sequence[str]) -> Admission:
    ranked = by_rank(reasons)
    decision = Refuse(status_of(ranked[0]), ranked[0])
    request = Request(received.method, b"", [])
    return Admission(received, runtime, peer, None, request, RULES, decision, ranked)
