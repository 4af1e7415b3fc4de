"""The end of one request, said once: to the client as Cache-Status, to every listener as an Outcome."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from univocal.cache.decide import Decision, Refuse, Reuse
from univocal.engine.admission import Admission
from univocal.engine.purge import PURGES, Order, Purged
from univocal.http.errors import Failure
from univocal.http.fields import firsts
from univocal.http.grammar import quoted
from univocal.http.messages import Field, Received
from univocal.http.problem import problem
from univocal.uri.sites import Sites
from univocal.uri.target import Canonical

__all__ = ["Handling", "Outcome", "Times", "cache_status"]

_Value: TypeAlias = bytes | None


class Handling(NamedTuple):
    """The cache's handling of a request: the parameters of its Cache-Status member (RFC 9211 §2)."""

    hit: bool = False
    fwd: str = ""  # why the request went to the origin
    fwd_status: int = 0  # the origin's status, where it is not the one the client sees
    stored: bool = False
    collapsed: bool = False
    ttl: int | None = None  # seconds the response stays fresh; negative: stale for so long
    detail: str = ""  # a reason of errors.REASONS, or why something stored answers
    unstorable: str = ""  # a token: what kept the origin's response from being stored

    @property
    def told(self) -> str:
        """The detail, as far as `fwd` does not say it already; "" if there is none."""
        return self.detail or (self.unstorable if self.unstorable != self.fwd else "")

    @classmethod
    def of_hit(cls, decision: Reuse, detail: str = "") -> Handling:
        """The handling of a stored response that is served as it is."""
        return cls(hit=True, ttl=int(decision.stored.lifetime - decision.age), detail=detail)


class Times(NamedTuple):
    """Seconds: when the request came (wall clock), how long its first octet and its last took."""

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
    bytes: int  # octets of content sent
    times: Times
    client: str | None
    handling: Handling
    reasons: tuple[str, ...] = ()  # why it was refused, or would have been (mode "observe")
    agent: _Value = None  # the value of User-Agent, which is the client's, as the next three are
    referrer: _Value = None  # of Referer
    trace: _Value = None  # of traceparent
    trace_state: _Value = None  # of tracestate
    host: str = ""  # of a refused request: the authority it names, the client's octets if that is none
    failure: Failure | None = None  # of the origin server
    purged: Purged | None = None  # what a purge was about, if that is known, and what came of it
    alike: int = 1

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
    ) -> Outcome:
        """The outcome of a request that was admitted; `octets` of content were sent."""
        received, found, peer = admission.received, admission.canonical, admission.peer
        decision = admission.decision
        named = firsts(admission.request.fields)
        site, host = found.site.name if found else "", ""
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
            canonical=found,
            decision=None if received.method in PURGES or isinstance(decision, Order) else decision,
            status=status,
            bytes=octets,
            times=times,
            client=peer.client,
            handling=handling,
            reasons=reasons,
            failure=failure,
            purged=purged,
        )

    @classmethod
    def refused(cls, received: Received, reasons: tuple[str, ...], now: float, sites: Sites) -> Outcome:
        """The outcome of a request with an unusable head; its sender is not looked for."""
        told = problem(reasons)
        site, host = sites.owner([received.host], received.scheme)
        return cls(
            site=site,
            host=host,
            received=received,
            canonical=None,
            decision=None if received.method in PURGES else Refuse(told.status, reasons[0]),
            status=told.status,
            bytes=len(told.body),
            times=Times(now, 0.0, 0.0),
            client=received.client,
            handling=Handling(detail=reasons[0]),
            reasons=reasons,
        )

    @classmethod
    def ordered(cls, purged: Purged, times: Times) -> Outcome:
        """The outcome of a purge that the program itself asked for."""
        found = purged.order.canonical
        received = Received(b"PURGE", found.target if found else b"*")
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
        found = purged.order.canonical if purged is not None else None
        return cls(
            site=found.site.name if found else "",
            received=received,
            canonical=found,
            decision=None,
            status=status,
            bytes=octets,
            times=times,
            client=client,
            handling=Handling(detail=reasons[0] if reasons else ""),
            reasons=reasons,
            purged=purged,
        )


def cache_status(
    handling: Handling, canonical: Canonical | None, mode: Literal["plain", "key", "off"]
) -> list[Field]:
    """The Cache-Status field for a response: a list of one field, or of none (RFC 9211).

    No parameter holds an octet of the client's but `key`, which is canonical: visible ASCII.
    """
    if mode == "off":
        return []
    member = b"univocal"
    if handling.hit:
        member += b"; hit"
    if handling.fwd:
        member += b"; fwd=%b" % handling.fwd.encode()
    if handling.fwd_status:
        member += b"; fwd-status=%d" % handling.fwd_status
    if handling.stored:
        member += b"; stored"
    if handling.collapsed:
        member += b"; collapsed"
    if handling.ttl is not None:
        member += b"; ttl=%d" % handling.ttl
    if mode == "key" and canonical is not None and not canonical.observed:
        member += b"; key=" + quoted(canonical.url)
    if detail := handling.told:
        member += b"; detail=%b" % detail.encode()
    return [(b"cache-status", member)]
