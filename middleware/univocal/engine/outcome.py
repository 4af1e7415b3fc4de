"""The end of one request, and the audience that hears of it; of a purge also the order that is carried out.

Listeners hear of each exchange, counters at once of ordinary hits that are alike.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from univocal.cache.decide import Decision, Handling, Refuse, Reuse
from univocal.cache.personal import telling
from univocal.engine.recording import Recording
from univocal.http.compiling import mypyc_attr
from univocal.http.errors import Failure, RefusedError
from univocal.http.messages import NO_NAMES, Fields, Received
from univocal.http.problem import problem
from univocal.http.roles import CallLater
from univocal.judge.access import user_of
from univocal.judge.admission import Admission, Plan
from univocal.judge.hits import AlikeHits, Hit
from univocal.judge.orders import PURGES, Order, ordered
from univocal.judge.runtime import Runtime
from univocal.store.purge_selectors import Everything
from univocal.store.tiers import Tiers
from univocal.uri.sites import Sites
from univocal.uri.target import Canonical

logger: Final = logging.getLogger("univocal")

# How many selectors the shared store is asked to confirm one by one, once it did not confirm.
_MOST_OWED: Final = 10


@dataclass(frozen=True, slots=True)
class Purged:
    """An order and the number of stored responses that went or were marked stale; None: not confirmed."""

    order: Order
    count: int | None = None
    is_exact: bool = True  # False: other nodes may have held more

    def body(self) -> bytes:
        """The answer's content (JSON)."""
        order = self.order
        members: dict[str, object] = {"softened" if order.selector.soft else "purged": self.count}
        if order.by == "pattern":
            members = {"banned": True}  # it works lazily: how many it means is not known yet
        elif not self.is_exact:
            members["exact"] = False
        return json.dumps(members | order.members).encode() + b"\n"


async def carry_out(order: Order, tiers: Tiers, now: float) -> Purged:
    """Purge the store, on every node. Raises RefusedError if the shared store did not confirm (503).

    Then all of it is purged here nevertheless, and there as soon as it is back.
    """
    count, unconfirmed = 0, list[RefusedError]()
    for selector in (order.selector, *order.also):
        if selector.is_empty:
            continue
        if len(unconfirmed) == _MOST_OWED:
            # Each takes its time to fail, and what is owed in plenty becomes everything anyway.
            with suppress(RefusedError):
                await tiers.purge(Everything(soft=order.selector.soft), now)
            break
        try:
            count += await tiers.purge(selector, now)
        except RefusedError as refused:
            unconfirmed.append(refused)
        await asyncio.sleep(0)
    if unconfirmed:
        raise unconfirmed[0]
    return Purged(order, count, all(map(tiers.counts, (order.selector, *order.also))))


async def foresee(document: Mapping[str, object], runtime: Runtime, tiers: Tiers) -> tuple[Order, int]:
    """The order by name, and the number of stored responses that it would mean: nothing is removed.

    Raises what `order_by_name` does, RefusedError too where the shared store does not tell (503).
    """
    # Of soft orders no response is meant by two selectors.
    soft = document.get("soft", False)
    order = await ordered({**document, "soft": True if soft is False else soft}, runtime)
    if order.by == "pattern":
        raise ValueError("a pattern works lazily: nobody knows beforehand how many it means")
    return order, sum([await tiers.count(selector) for selector in (order.selector, *order.also)])


# Compiled code makes an object quickly if it names the class, so the methods here that make one are static.
_Value: TypeAlias = bytes | None
_Names: TypeAlias = frozenset[bytes]
_PERSONAL: Final = frozenset(("personal", "cookie"))  # reasons for which a response is not stored
_Octets: TypeAlias = bytes
_NOTED: Final = frozenset((b"user-agent", b"referer", b"traceparent", b"tracestate", b"authorization"))


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Times:
    """Seconds: when the request came (wall clock), how long its first byte and its last took."""

    start: Final[float]
    first: Final[float]
    total: Final[float]

    def __init__(self, start: float, first: float, total: float) -> None:
        self.start = start
        self.first = first
        self.total = total


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class NotedFields:
    """The values of a request's fields that listeners record: the client's bytes; None: it has none."""

    agent: Final[_Value]  # User-Agent
    referrer: Final[_Value]  # Referer
    trace: Final[_Value]  # traceparent
    trace_state: Final[_Value]  # tracestate
    user: Final[bytes]  # of Basic credentials; empty: it names none

    def __init__(
        self,
        agent: _Value = None,
        referrer: _Value = None,
        trace: _Value = None,
        trace_state: _Value = None,
        user: bytes = b"",
    ) -> None:
        self.agent = agent
        self.referrer = referrer
        self.trace = trace
        self.trace_state = trace_state
        self.user = user

    @staticmethod
    def of(fields: Fields, user: bytes = b"") -> NotedFields:
        """Those of a request with these fields: the first of each name. `user` has opened the way to it."""
        agent: _Value = None
        referrer: _Value = None
        trace: _Value = None
        trace_state: _Value = None
        for name, value in reversed(fields):
            if name not in _NOTED:
                continue
            if name == b"user-agent":
                agent = value
            elif name == b"referer":
                referrer = value
            elif name == b"traceparent":
                trace = value
            elif name == b"authorization":
                user = user or user_of(value)
            else:
                trace_state = value
        return NotedFields(agent, referrer, trace, trace_state, user)

    @staticmethod
    def planned(plan: Plan, values: Sequence[bytes]) -> NotedFields:
        """Those of an ordinary request."""
        return NotedFields(
            None if plan.agent < 0 else values[plan.agent],
            None if plan.referrer < 0 else values[plan.referrer],
            None if plan.trace < 0 else values[plan.trace],
            None if plan.trace_state < 0 else values[plan.trace_state],
            b"" if plan.credentials < 0 else user_of(values[plan.credentials]),
        )


_NONE_NOTED: Final = NotedFields()


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Outcome:
    """The result of one exchange; for counters also of several hits: `alike` is their number.

    These are ordinary hits of one stored response by one spelling: `bytes` is each one's, `times` are their
    mean, and the client's values are the first one's. Immutable for type checkers and the compiled form.
    """

    site: Final[str]  # empty where no site was found
    received: Final[Received]
    canonical: Final[Canonical | None]
    decision: Final[Decision | None]  # None: a purge
    status: Final[int]  # 0: the client left before there was one
    bytes: Final[int]  # bytes of content sent
    times: Final[Times]
    client: Final[str | None]
    handling: Final[Handling]
    reasons: Final[tuple[str, ...]]  # why it was refused, or would have been (mode "observe")
    noted: Final[NotedFields]
    host: Final[str]  # of a refused request: the authority it names, the client's bytes if that is none
    failure: Final[Failure | None]  # of the origin server
    purged: Final[Purged | None]  # what a purge was about, if that is known, and what came of it
    alike: Final[int]
    server: Final[str]  # the URL of the origin server that answered, if one did
    origin_seconds: Final[float]  # from the request to it to the head of its response, or to its failure
    personal: Final[_Names]  # the names of the fields that kept a response from being stored

    def __init__(
        self,
        site: str,
        received: Received,
        canonical: Canonical | None,
        decision: Decision | None,
        status: int,
        bytes: int,  # noqa: A002
        times: Times,
        client: str | None,
        handling: Handling,
        reasons: tuple[str, ...] = (),
        noted: NotedFields = _NONE_NOTED,
        host: str = "",
        failure: Failure | None = None,
        purged: Purged | None = None,
        alike: int = 1,
        server: str = "",
        origin_seconds: float = 0.0,
        personal: _Names = NO_NAMES,
    ) -> None:
        self.site = site
        self.received = received
        self.canonical = canonical
        self.decision = decision
        self.status = status
        self.bytes = bytes
        self.times = times
        self.client = client
        self.handling = handling
        self.reasons = reasons
        self.noted = noted
        self.host = host
        self.failure = failure
        self.purged = purged
        self.alike = alike
        self.server = server
        self.origin_seconds = origin_seconds
        self.personal = personal

    @property
    def agent(self) -> _Value:
        """The value of the client's User-Agent field."""
        return self.noted.agent

    @property
    def user(self) -> _Octets:
        """The name in the client's credentials."""
        return self.noted.user

    @property
    def referrer(self) -> _Value:
        """The value of the client's Referer field."""
        return self.noted.referrer

    @staticmethod
    def of_hit(hit: Hit, received: Received, begun: float, seconds: float, alike: int = 1) -> Outcome:
        """The outcome of an ordinary hit that began at `begun`, in seconds since the epoch.

        Of several that are `alike` it is the first one, and `seconds` are their mean.
        """
        stored, canonical = hit.stored, hit.canonical
        request_ids = hit.tally.request_ids
        if request_ids is not None:
            request_ids.planned(received, hit.plan.names, hit.values)
        return Outcome(
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
            NotedFields.planned(hit.plan, hit.values),
            alike=alike,
        )

    @staticmethod
    def refused(received: Received, reasons: tuple[str, ...], now: float, sites: Sites) -> Outcome:
        """The outcome of a request with an unusable head; its sender is not looked for."""
        answer = problem(reasons, request_id=received.request_id)
        site, host = sites.owner([received.host], received.scheme)
        return Outcome(
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

    @staticmethod
    def ordered(purged: Purged, times: Times) -> Outcome:
        """The outcome of a purge that the program itself asked for."""
        canonical = purged.order.canonical
        received = Received(b"PURGE", canonical.target if canonical else b"*")
        if purged.count is None:
            return Outcome.of_purge(received, purged, 503, 0, times, None, ("shared-store-unavailable",))
        return Outcome.of_purge(received, purged, 200, 0, times, None)

    @staticmethod
    def of_purge(
        received: Received,
        purged: Purged | None,
        status: int,
        octets: int,
        times: Times,
        client: str | None,
        reasons: tuple[str, ...] = (),
        noted: NotedFields = _NONE_NOTED,
    ) -> Outcome:
        """The outcome of a purge that names what it means otherwise than by its target."""
        canonical = purged.order.canonical if purged is not None else None
        return Outcome(
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
            noted=noted,
            purged=purged,
        )


_UNHANDLED: Final = Handling()


class Account:
    """The status, the content and the times of an answer, and the reasons for it.

    `begun` is in seconds since the epoch, `ticks` and `first` (0: there was no head) are readings of the
    performance counter.
    """

    def __init__(self, begun: tuple[float, float], reasons: tuple[str, ...]) -> None:
        self.begun, self.ticks = begun
        self.first = 0.0
        self.status = 0  # 0: no head was sent
        self.octets = 0  # of content
        self.handling = _UNHANDLED
        self.reasons = reasons
        self.failure: Failure | None = None  # of the origin server
        self.purged: Purged | None = None
        self.recording: Recording | None = None  # of the response that Cache-Status calls stored
        self.server = ""  # the URL of the origin server that answered
        self.origin_seconds = 0.0  # that it took until the head of its response, or until it failed
        self.client = ""  # the client's name, under which its requests under way are counted

    def outcome(self, admission: Admission) -> Outcome:
        """The exchange's end, as listeners hear of it."""
        now = time.perf_counter()
        handling = self.handling
        if self.recording is not None and not self.recording.stored:
            # The response was too large, it was cut, or a purge met it.
            handling = replace(handling, stored=False, unstorable=self.recording.unstorable)
        received, canonical, peer = admission.received, admission.canonical, admission.peer
        decision, reasons = admission.decision, self.reasons
        site, host = canonical.site.name if canonical else "", ""
        if reasons:
            owner, host = admission.runtime.sites.owner(peer.hosts, peer.scheme)
            site = site or owner
        return Outcome(
            site=site,
            received=received,
            canonical=canonical,
            decision=None if received.method in PURGES or isinstance(decision, Order) else decision,
            status=self.status,
            bytes=self.octets,
            times=Times(self.begun, (self.first or now) - self.ticks, now - self.ticks),
            client=peer.client,
            handling=handling,
            reasons=reasons,
            noted=NotedFields.of(admission.given, admission.user),
            host=host,
            failure=self.failure,
            purged=self.purged,
            server=self.server,
            origin_seconds=self.origin_seconds,
            personal=_telling(admission) if handling.unstorable in _PERSONAL else NO_NAMES,
        )


def _telling(admission: Admission) -> frozenset[bytes]:
    rules = admission.rules
    return telling(admission.request.names, rules.ordinary, tells_cookies=rules.tells_cookies)


# The audience

OutcomeListener: TypeAlias = Callable[[Outcome], None]
News = TypeVar("News")

ALIKE: Final = 1e-4  # seconds: hits that took longer are told one by one
PATIENCE: Final = 1.0  # seconds after which counters have heard of a hit
# Hits counted together: so many in a second. Those whose stored responses are kept meanwhile, with so many
# bytes of content in all.
MOST_ALIKE: Final = 16_384
OCTETS: Final = 8 << 20
# Of those that have ended, so many are told with each exchange that follows, and in each turn of the event
# loop once they are due.
FEW: Final = 4
SLICE: Final = 128


class HitListener(Protocol):
    """A listener that hears of an ordinary hit as it was found, without an Outcome."""

    def __call__(self, outcome: Outcome) -> None:
        """Hear of any other exchange."""

    def hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Hear of a hit, which `Outcome.of_hit` would make an Outcome of."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HitCounter:
    """A counter that hears of ordinary hits by their numbers, without Outcomes."""

    def __call__(self, outcome: Outcome) -> None:
        """Hear of any other exchange."""

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        """Hear of hits: each element stands for those that are alike."""


class Audience:
    """All who are told of outcomes, in the order in which exchanges ended.

    Listeners hear of each exchange, hit listeners before the others. Counters hear of as many, but of
    ordinary hits that are alike by one Outcome that says how many: before any exchange that ends in another
    second, and after a second or so. All may come and go meanwhile. `since` and `until` are the second in
    which hits are counted together, in seconds since the epoch.
    """

    def __init__(
        self, listeners: Iterable[OutcomeListener], counters: Iterable[OutcomeListener], call_later: CallLater
    ) -> None:
        self.listeners, self.counters = list(listeners), list(counters)
        self.hit_listeners: tuple[HitListener, ...] = ()
        self.since = self.until = 0.0
        self._alike: list[AlikeHits] = []  # that are being counted, in this window
        self._window = 0
        self._octets = 0  # of content that is kept meanwhile
        self._ended = deque[Outcome | AlikeHits]()  # the next reports to counters
        self._call_later = call_later
        self._is_due = False

    @property
    def is_there(self) -> bool:
        """Tell whether anybody hears of exchanges now."""
        return bool(self.listeners or self.counters or self.hit_listeners)

    def announce(self, outcome: Outcome) -> None:
        """Tell everybody of an exchange.

        One who fails is logged and does not keep the others from hearing.
        """
        if self.hit_listeners:
            _tell(outcome, self.hit_listeners)
        if self.listeners:
            _tell(outcome, self.listeners)
        self._count(outcome, outcome.times.start + outcome.times.total)

    def announce_hit(self, hit: Hit, received: Received, begun: float, ticks: float) -> None:
        """Tell of a hit that was answered; it began at `begun`, when the performance counter said `ticks`."""
        seconds = time.perf_counter() - ticks
        for each in self.hit_listeners:
            try:
                each.hit(hit, received, begun, seconds)
            except Exception:
                logger.exception("a listener failed")
        if self.listeners:
            _tell(Outcome.of_hit(hit, received, begun, seconds), self.listeners)
        alike, stored = hit.tally.alike, hit.stored
        if (
            alike is not None
            and alike.window == self._window
            and seconds < ALIKE
            and self.since <= begun < self.until
            and alike.octets == len(stored.body)
            and alike.status == stored.status
            and (alike.first is None or alike.first[0].stored is stored)
        ):
            alike.count += 1
            alike.seconds += seconds
        elif self.counters:
            self.count_hit(hit, received, begun, seconds)

    def _count(self, ended: Outcome | AlikeHits, at: float) -> None:
        """Tell the counters of an exchange, after those that ended before it."""
        if self._alike and not self.since <= at < self.until:
            self._end_window()
        self._ended.append(ended)
        self._tell_some(FEW)

    def count_hit(self, hit: Hit, received: Received, begun: float, seconds: float) -> None:
        """Begin to count the ordinary hits that are alike.

        The first of a second is told alone, and one that took too long for that, or finds no room.
        """
        begins = not self.since <= begun < self.until
        if begins:
            self._end_window()
            self.since = float(int(begun))
            self.until = self.since + 1
        is_kept = any(not isinstance(each, HitCounter) for each in self.counters)
        alike = AlikeHits(hit, received, begun, seconds, self._window, is_kept=is_kept)
        octets = alike.octets if is_kept else 0
        full = len(self._alike) >= MOST_ALIKE or self._octets + octets > OCTETS
        if begins or full or seconds >= ALIKE:
            self._count(alike, begun + seconds)
            return
        self._alike.append(alike)
        hit.tally.alike = alike  # those that were before are told with all others
        self._octets += octets
        if self._ended:
            self._tell_some(FEW)
        if not self._is_due:
            self._is_due = True
            self._call_later(PATIENCE, self._due)

    def settle(self) -> None:
        """Tell the counters of all exchanges until now: whoever reads what they count calls this before."""
        self._end_window()
        self._tell_some(len(self._ended))

    def _end_window(self) -> None:
        """Have what was counted until now be told: no hit is counted with it from here on."""
        self._ended.extend(self._alike)
        self._alike, self._octets = [], 0
        self._window += 1

    def _tell_some(self, most: int) -> None:
        """Tell the counters of some of what has ended."""
        ended = self._ended
        while most > 0 and ended:  # a counter may have more of it told within the call
            each, hits = ended.popleft(), list[AlikeHits]()
            most -= 1
            if isinstance(each, Outcome):
                _tell(each, self.counters)
                continue
            hits.append(each)
            while most > 0 and ended and isinstance(following := ended[0], AlikeHits):
                ended.popleft()
                hits.append(following)
                most -= 1
            _tell_hits(hits, self.counters)

    def _due(self) -> None:
        self._is_due = False
        self._end_window()
        self._drain()

    def _drain(self) -> None:
        self._tell_some(SLICE)
        if self._ended:
            self._call_later(0, self._drain)


def _tell(news: News, listeners: Iterable[Callable[[News], None]]) -> None:
    for each in [*listeners]:  # one may leave within the call
        try:
            each(news)
        except Exception:
            logger.exception("a listener failed")


def _tell_hits(hits: Sequence[AlikeHits], counters: Iterable[OutcomeListener]) -> None:
    _tell(hits, [each.hits for each in counters if isinstance(each, HitCounter)])
    others = [each for each in counters if not isinstance(each, HitCounter)]
    for each in hits:
        if each.first is not None:
            (hit, received), each.first = each.first, None  # a tally may go on to refer to it
            if others:
                mean = each.seconds / each.count
                _tell(Outcome.of_hit(hit, received, each.begun, mean, each.count), others)
