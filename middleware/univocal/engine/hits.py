"""Hits at a glance: what most requests ask for is found without an exchange of their own.

A request is ordinary if it is a GET without any field that the gate or the policy would have to weigh. That
is a matter of its field names, so it is found out once for each set of them. For an ordinary request the
gate's judgement comes down to its canonical target and to the freshness of what is stored under it. Any other
request takes the long way by `Gate.admit`, which would give the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from univocal.cache.decide import Reuse, at_once
from univocal.cache.rules import READS
from univocal.cache.stored import Stored
from univocal.cache.vary import matches
from univocal.engine.admission import RULES, Gate, admitted
from univocal.engine.outcome import Handling, Listener, Outcome, Times, announce, cache_status
from univocal.engine.trust import FORWARDED, believe, within
from univocal.http.fields import ENCODINGS
from univocal.http.messages import Fields, Received, Request
from univocal.uri.target import Canonical, resolve

__all__ = ["Hit", "Hits", "Plan"]

# Fields that take the long way: the policy reads them, or the message is not over with its head, or the
# connection is to become something else.
_WEIGHED: Final = READS | {b"expect", b"http2-settings", b"te", b"trailer", b"upgrade", *ENCODINGS}
# Sets of names that are remembered, and how long one may be: clients choose them.
_MOST_PLANS: Final = 1024
_LONGEST: Final = 2048


class Plan(NamedTuple):
    """The names of an ordinary request's fields, as they came and in lower case."""

    names: tuple[bytes, ...]
    host: int  # where Host stands
    connection: int  # where Connection stands, -1: nowhere
    forwarded: bool  # a trusted proxy's word may be among them
    cookie: bool


class Hit(NamedTuple):
    """A stored response that answers an ordinary request as it is."""

    stored: Stored
    age: int  # seconds
    canonical: Canonical
    client: str | None  # the believed one
    handling: Handling
    told: Fields  # Cache-Status, or nothing


class Hits:
    """Finds the stored response for an ordinary request, and tells the listeners of it."""

    __slots__ = ("_gate", "_listeners", "_plans")

    def __init__(self, gate: Gate, listeners: Sequence[Listener]) -> None:
        self._gate = gate
        self._listeners = listeners
        self._plans: dict[tuple[bytes, ...], Plan | None] = {}

    def plan(self, names: tuple[bytes, ...]) -> Plan | None:
        """The plan for a request with these field names; None where it is no ordinary one."""
        try:
            return self._plans[names]
        except KeyError:
            plan = _plan(names)
            if sum(map(len, names)) <= _LONGEST:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                self._plans[names] = plan
            return plan

    def find(self, received: Received, plan: Plan, values: Sequence[bytes], now: float) -> Hit | None:
        """The fresh stored response for a GET with these field values; None: take the long way."""
        gate = self._gate
        runtime = gate.runtime
        limits = runtime.limits
        if 0 < limits.max_target < len(received.target) or 0 < limits.max_fields < len(values):
            return None
        host, scheme, client = values[plan.host], received.scheme, received.client
        if plan.forwarded and within(client, runtime.trusted):
            peer = believe(received, _fields(plan, values), runtime.trusted)
            if len(peer.hosts) != 1:
                return None
            host, scheme, client = peer.hosts[0], peer.scheme, peer.client
        found = resolve(received.target, (host,), scheme, runtime.sites)
        if not isinstance(found, Canonical) or found.observed or found.redirect or found.received:
            return None
        rules = runtime.rules.get(found.site.name, RULES)
        if rules.looks and (plan.cookie or rules.passes_path(found.target)):
            return None

        def selects(stored: Stored) -> bool:
            return matches(stored, Request(b"GET", found.target, admitted(_fields(plan, values), found)))

        stored = at_once(gate.tiers.lookup(found.key, now), selects, now)
        if stored is None or (rules.strip_tags and stored.tags):
            return None
        age = int(now - stored.born)
        handling, told = _told(int(stored.fresh_until - stored.born - age), runtime.cache_status)
        if runtime.cache_status == "key":
            told = cache_status(handling, found, "key")
        return Hit(stored, max(0, age), found, client, handling, told)

    def tell(self, hit: Hit, received: Received, begun: float, ticks: float) -> None:
        """Let the listeners know of a hit that was answered."""
        if self._listeners:
            seconds = time.perf_counter() - ticks
            stored = hit.stored
            outcome = Outcome(
                hit.canonical.site.name,
                received,
                hit.canonical,
                Reuse(stored, hit.age, "hit", False),
                stored.status,
                len(stored.body),
                Times(begun, seconds, seconds),
                hit.client,
                hit.handling,
            )
            announce(self._listeners, outcome)


@lru_cache(maxsize=1024)
def _told(ttl: int, mode: Literal["plain", "key", "off"]) -> tuple[Handling, Fields]:
    """How a hit that stays fresh for `ttl` seconds is handled, and the fields that say so."""
    handling = Handling(hit=True, ttl=ttl)
    return handling, [] if mode == "key" else cache_status(handling, None, mode)


def _fields(plan: Plan, values: Sequence[bytes]) -> Fields:
    return [(name, value.rstrip(b" \t")) for name, value in zip(plan.names, values, strict=True)]


def _plan(spelled: tuple[bytes, ...]) -> Plan | None:
    names = tuple(name.lower() for name in spelled)
    if len(set(names)) < len(names) or b"host" not in names or not _WEIGHED.isdisjoint(names):
        return None
    return Plan(
        names,
        names.index(b"host"),
        names.index(b"connection") if b"connection" in names else -1,
        not FORWARDED.isdisjoint(names),
        b"cookie" in names,
    )
