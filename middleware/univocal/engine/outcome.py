"""The end of one request, as every listener hears of it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from univocal.cache.decide import Decision, Refuse, Reuse
from univocal.engine.purge import Purged
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal.http.problem import problem
from univocal.judge.admission import Admission
from univocal.judge.cache_status import Handling
from univocal.judge.hits import Hit
from univocal.judge.orders import PURGES, Order
from univocal.uri.sites import Sites
from univocal.uri.target import Canonical

__all__ = ["Outcome", "Times"]

_Value: TypeAlias = bytes | None


class Times(NamedTuple):
    """Seconds: when the request came (wall clock), how long its first byte and its last took."""

    start: float
    first: float
    total: float


class Outcome(NamedTuple):
    """One exchange, ended; or ordinary hits that are alike, so many.

    Those are of one stored response by one spelling: `bytes` is what each sent, `times` are their mean, and
    what else tells of clients is the first one's.
    """

    site: str  # empty where no site was found
    received: Received
    canonical: Canonical | None
    decision: Decision | None  # None: a purge
    status: int  # 0: the client left before there was one
    bytes: int  # bytes of content sent
    times: Times
    client: str | None
    handling: Handling
    reasons: tuple[str, ...] = ()  # why it was refused, or would have been (mode "observe")
    agent: _Value = None  # the value of User-Agent, which is the client's, as the next three are
    referrer: _Value = None  # of Referer
    trace: _Value = None  # of traceparent
    trace_state: _Value = None  # of tracestate
    host: str = ""  # of a refused request: the authority it names, the client's bytes if that is none
    failure: Failure | None = None  # of the origin server
    purged: Purged | None = None  # what a purge was about, if that is known, and what came of it
    alike: int = 1
    server: str = ""  # the URL of the origin server that answered, if one did

    @classmethod
    def of(
        cls,
        admission: Admission,
        handling: Handling,
        status: int,
        octets: int,
        times: Times,
        reasons: tuple[str, ...],
        failure: Failure | None = None,
        purged: Purged | None = None,
        server: str = "",
    ) -> Outcome:
        """The outcome of a request that was admitted; `octets` of content were sent."""
        received, canonical, peer = admission.received, admission.canonical, admission.peer
        decision = admission.decision
        named = dict(reversed(admission.request.fields))
        site, host = canonical.site.name if canonical else "", ""
        if reasons:
            owner, host = admission.runtime.sites.owner(peer.hosts, peer.scheme)
            site = site or owner
        return cls(
            site=site,
            host=host,
            agent=named.get(b"user-agent"),
            referrer=named.get(b"referer"),
            trace=named.get(b"traceparent"),
            trace_state=named.get(b"tracestate"),
            received=received,
            canonical=canonical,
            decision=None if received.method in PURGES or isinstance(decision, Order) else decision,
            status=status,
            bytes=octets,
            times=times,
            client=peer.client,
            handling=handling,
            reasons=reasons,
            failure=failure,
            purged=purged,
            server=server,
        )

    @classmethod
    def of_hit(cls, hit: Hit, received: Received, begun: float, seconds: float) -> Outcome:
        """The outcome of an ordinary hit that began at `begun`, in seconds since the epoch."""
        stored, canonical, plan, values = hit.stored, hit.canonical, hit.plan, hit.values
        return cls(
            canonical.site.name,
            received,
            canonical,
            Reuse(stored, hit.age, "hit", False),
            stored.status,
            len(stored.body),
            Times(begun, seconds, seconds),
            hit.client,
            hit.hit_fields.handling,
            (),
            None if plan.agent < 0 else values[plan.agent],
            None if plan.referrer < 0 else values[plan.referrer],
            None if plan.trace < 0 else values[plan.trace],
            None if plan.trace_state < 0 else values[plan.trace_state],
        )

    @classmethod
    def refused(cls, received: Received, reasons: tuple[str, ...], now: float, sites: Sites) -> Outcome:
        """The outcome of a request with an unusable head; its sender is not looked for."""
        answer = problem(reasons)
        site, host = sites.owner([received.host], received.scheme)
        return cls(
            site=site,
            host=host,
            received=received,
            canonical=None,
            decision=None if received.method in PURGES else Refuse(answer.status, reasons[0]),
            status=answer.status,
            bytes=len(answer.body),
            times=Times(now, 0.0, 0.0),
            client=received.client,
            handling=Handling(detail=reasons[0]),
            reasons=reasons,
        )

    @classmethod
    def ordered(cls, purged: Purged, times: Times) -> Outcome:
        """The outcome of a purge that the program itself asked for."""
        canonical = purged.order.canonical
        received = Received(b"PURGE", canonical.target if canonical else b"*")
        if purged.count is None:
            return cls.of_purge(received, purged, 503, 0, times, None, ("shared-store-unavailable",))
        return cls.of_purge(received, purged, 200, 0, times, None)

    @classmethod
    def of_purge(
        cls,
        received: Received,
        purged: Purged | None,
        status: int,
        octets: int,
        times: Times,
        client: str | None,
        reasons: tuple[str, ...] = (),
    ) -> Outcome:
        """The outcome of a purge that names what it means otherwise than by its target."""
        canonical = purged.order.canonical if purged is not None else None
        return cls(
            site=canonical.site.name if canonical else "",
            received=received,
            canonical=canonical,
            decision=None,
            status=status,
            bytes=octets,
            times=times,
            client=client,
            handling=Handling(detail=reasons[0] if reasons else ""),
            reasons=reasons,
            purged=purged,
        )
