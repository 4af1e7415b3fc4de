"""A log once more, through the gate, the policy and the store that requests go through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from univocal.cache.decide import Reuse, decide
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.http.messages import Request, Response
from univocal.http.tables import remember
from univocal.store.memory import MemoryStore
from univocal.uri.profile import Profile
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites, resolve
from univocal.uri.target import Canonical, Rejected

# A lifetime beyond the length of any log.
FOREVER: Final = 1e9
EXAMPLES: Final = 5
_Known: TypeAlias = tuple[bytes, Request, bool]  # the key, the request, whether its path is loose
_HOST: Final = b"log.invalid"  # of requests whose log does not tell
_MEMORY: Final = 200_000


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay came to this; `refused` counts by first reason, `examples` are targets and clients."""

    profile: str
    requests: int
    keys: int
    hits: int
    held: int  # bytes in the store at the end
    evictions: int
    refused: Mapping[str, int]
    examples: Mapping[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    loose: int = 0  # requests for paths in a loose spelling, whose responses are not stored
    folded: int = 0  # spellings beyond the first of each key: what a purge by another one would have missed

    @property
    def hit_ratio(self) -> float:
        """Hits by requests, 0 to 1."""
        return self.hits / self.requests if self.requests else 0.0

    def told(self) -> dict[str, Any]:
        """The object that `replay --json` prints of it."""
        return {
            "profile": self.profile,
            "requests": self.requests,
            "keys": self.keys,
            "hits": self.hits,
            "hit_ratio": round(self.hit_ratio, 6),
            "bytes": self.held,
            "evictions": self.evictions,
            "refused": dict(self.refused),
        }


def sites_of(profile: Profile, aliases: Mapping[str, str] = {}) -> Sites:
    """Sites with one profile for every host, and hosts that are others' aliases."""
    routes = (Route(b"/", profile, ""),)
    by_host: dict[str, list[str]] = {}
    for alias, host in aliases.items():
        by_host.setdefault(host, []).append(alias)
    named = [Site(host, (host,), routes, tuple(others)) for host, others in by_host.items()]
    return Sites(named, default=Site("*", (), routes))


class Replay:
    """One cache that is fed the GETs of a log, one by one; `sites` None keys by targets as they came."""

    def __init__(
        self, name: str, sites: Sites | None, ttl: float | None = None, max_bytes: int = 256 << 20
    ) -> None:
        self._name, self._sites = name, sites
        lifetime = FOREVER if ttl is None else ttl
        self._rules = Rules(ttl=lifetime, ttl_by_status={404: lifetime, 410: lifetime})
        self._store = MemoryStore(max_bytes)
        self._requests = self._hits = self._loose = 0
        self._refused: Counter[str] = Counter()
        self._examples: dict[str, dict[bytes, bytes]] = {}
        self._policy: dict[int, Stored | None] = {}
        self._keys: set[int] = set()
        self._spellings: set[int] = set()
        self._known: dict[tuple[bytes, bytes], _Known | Rejected] = {}

    def add(
        self, host: bytes, target: bytes, status: int, size: int, now: float, client: bytes = b""
    ) -> None:
        """One GET that was answered so."""
        self._requests += 1
        known = self._known.get((host, target)) or self._met(host, target)
        if isinstance(known, Rejected):
            self._refused[known.reason] += 1
            some = self._examples.setdefault(known.reason, {})
            if len(some) < EXAMPLES:
                some.setdefault(target, client)
            return
        key, request, loose = known
        if loose:
            self._loose += 1
            return
        decision = decide(request, self._store.lookup(key), self._rules, now)
        if isinstance(decision, Reuse):
            self._hits += 1
        else:
            self._fetch(key, 200 if status in {206, 304} else status, max(size, 0), now)

    def _met(self, host: bytes, target: bytes) -> _Known | Rejected:
        """The gate's answer for a target that was not met before, or long ago."""
        if self._sites is None:
            known: _Known | Rejected
            known = b"- http %b %b" % (host or _HOST, target), Request(b"GET", target, []), False
        else:
            url = resolve(target, [host or _HOST], b"http", self._sites)
            if isinstance(url, Canonical):
                known = url.key, Request(b"GET", url.target, []), url.loose
            else:
                known = url
        if not isinstance(known, Rejected):
            self._keys.add(hash(known[0]))
            self._spellings.add(hash((host, target)))
        remember(self._known, (host, target), known, _MEMORY)
        return known

    def _fetch(self, key: bytes, status: int, size: int, now: float) -> None:
        answered = self._answered(status)
        if answered is None:
            return
        # Content is only counted: a log of a terabyte is replayed without holding a byte of it.
        cost = answered.cost + len(key) - len(answered.key) + size + len(str(size)) - 1
        stored = replace(
            answered,
            key=key,
            response_time=now,
            born=now,
            fresh_until=now + answered.lifetime,
            modified=now,
            cost=cost,
        )
        lease = self._store.leases.begin(key, now)
        self._store.commit(lease, stored)
        self._store.leases.release(lease)

    def _answered(self, status: int) -> Stored | None:
        """The response that the policy stores for this status, without content, at the time 0."""
        if status not in self._policy:
            request = Request(b"GET", b"/", [])
            stored = may_store(b"", Fetched(request, Response(status, []), 0.0, 0.0), self._rules)
            self._policy[status] = complete(stored, b"") if isinstance(stored, Stored) else None
        return self._policy[status]

    def outcome(self) -> Replayed:
        """The outcome so far."""
        stats = self._store.stats
        return Replayed(
            self._name,
            self._requests,
            len(self._keys),
            self._hits,
            stats.bytes,
            stats.evictions,
            dict(self._refused),
            {reason: tuple(some.items()) for reason, some in self._examples.items()},
            self._loose,
            len(self._spellings) - len(self._keys),
        )
