"""A log once more, through the gate, the policy and the store that requests go through."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from univocal.cache.decide import Reuse, complete, decide, may_store
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.http.messages import Request, Response
from univocal.store.memory import MemoryStore
from univocal.uri.profile import Profile
from univocal.uri.site import Route, Site, Sites
from univocal.uri.target import Canonical, Rejected, resolve

__all__ = ["EXAMPLES", "Outcome", "Replay", "sites_of"]

# A lifetime beyond the length of any log.
FOREVER: Final = 1e9
EXAMPLES: Final = 5
_HOST: Final = b"log.invalid"  # of requests whose log does not tell
_MEMORY: Final = 200_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay came to; `refused` counts by first reason, `examples` has targets and clients of each."""

    profile: str
    requests: int
    keys: int
    hits: int
    held: int  # octets in the store at the end
    evictions: int
    refused: Mapping[str, int]
    examples: Mapping[str, tuple[tuple[bytes, bytes], ...]] = field(default_factory=dict)
    folded: int = 0  # spellings beyond the first of each key: what a purge by another one would have missed

    @property
    def hit_ratio(self) -> float:
        """Hits by requests, 0 to 1."""
        return self.hits / self.requests if self.requests else 0.0

    def told(self) -> dict[str, Any]:
        """What `replay --json` prints of it."""
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
        self._requests = self._hits = 0
        self._refused: Counter[str] = Counter()
        self._examples: dict[str, dict[bytes, bytes]] = {}
        self._keys: set[int] = set()
        self._spellings: set[int] = set()
        self._known: OrderedDict[tuple[bytes, bytes], Canonical | Rejected | bytes] = OrderedDict()

    def add(
        self, host: bytes, target: bytes, status: int, size: int, now: float, client: bytes = b""
    ) -> None:
        """One GET that was answered so."""
        self._requests += 1
        gate = self._gate(host, target)
        if isinstance(gate, Rejected):
            self._refused[gate.reason] += 1
            some = self._examples.setdefault(gate.reason, {})
            if len(some) < EXAMPLES:
                some.setdefault(target, client)
            return
        key, seen = (gate.key, gate.target) if isinstance(gate, Canonical) else (gate, target)
        self._keys.add(hash(key))
        self._spellings.add(hash((host, target)))
        variants = self._store.lookup(key)
        request = Request(b"GET", seen, [])
        if isinstance(decide(request, variants, self._rules, now, plain=True), Reuse):
            self._hits += 1
        else:
            self._fetch(key, request, 200 if status in {206, 304} else status, size, now)

    def _gate(self, host: bytes, target: bytes) -> Canonical | Rejected | bytes:
        known = self._known.get((host, target))
        if known is None:
            if self._sites is None:
                known = b"- http %b %b" % (host or _HOST, target)
            else:
                known = resolve(target, [host or _HOST], b"http", self._sites)
            self._known[host, target] = known
            if len(self._known) > _MEMORY:
                self._known.popitem(last=False)
        return known

    def _fetch(self, key: bytes, request: Request, status: int, size: int, now: float) -> None:
        lease = self._store.begin(key, now)
        try:
            stored = may_store(key, request, Response(status, []), self._rules, now, now)
            if isinstance(stored, Stored):
                whole = complete(stored, _content(max(size, 0)))
                if whole is not None:
                    self._store.commit(lease, whole)
        finally:
            self._store.release(lease)

    def outcome(self) -> Outcome:
        """What it has come to so far."""
        stats = self._store.stats
        return Outcome(
            self._name,
            self._requests,
            len(self._keys),
            self._hits,
            stats.bytes,
            stats.evictions,
            dict(self._refused),
            {reason: tuple(some.items()) for reason, some in self._examples.items()},
            len(self._spellings) - len(self._keys),
        )


@lru_cache(maxsize=256)
def _content(size: int) -> bytes:
    return bytes(size)
