"""Hits at a glance: most requests are answered without an exchange of their own.

Nothing is judged here. A hit follows from conclusions that are remembered with all that they depend on:

| conclusion | drawn by | depends on |
|---|---|---|
| the request is ordinary: no field of it is weighed | `plan_of` | its field names |
| it has access and one spelling, and is for the cache | `Hits._locate` | target, host, scheme, runtime |
| what is stored for it | `MemoryStore` | the entry of its key |
| the response that answers it as it is | `decide` | that one (`Stored.answers`), while it is fresh |
| Age and Cache-Status | `Stored.age`, `cache_status` | age and freshness lifetime |

Which response that is, is asked each time if fields select it (`is_selected`, `select`). Any other request
takes the long way by `Gate.admit`, which would give the same answer.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, TypeAlias

from univocal.cache.decide import Handling, Reuse, decide, hit_for, is_selected, select, ttl_of
from univocal.cache.directives import TAGGING
from univocal.cache.forms import codings_among, forms_of
from univocal.cache.personal import PERSONAL
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.vary import chosen_by
from univocal.http.bonds import authenticates_connection
from univocal.http.compiling import mypyc_attr
from univocal.http.field_edits import FieldEdits
from univocal.http.messages import Fields, Received, Request, without
from univocal.judge.admission import Gate, Lookup, Plan, admitted
from univocal.judge.runtime import Mode, RequestIds, RouteSettings, cache_status
from univocal.judge.trust import trusted_for, within
from univocal.store.memory import NO_ENTRY, Entry
from univocal.uri.sites import MEMORABLE, resolve
from univocal.uri.target import Canonical

# The latest targets are remembered, so many of at most so many bytes: some 10 MB, whatever clients ask for.
_MOST_LOCATED: Final = 16_384
_LONGEST: Final = 256
# Content of more bytes is sent by an exchange, piece by piece, as the client takes it.
_LARGEST: Final = 256 * 1024


class AlikeHits:
    """Ordinary hits by one spelling, with one status and one length of content, in one `window` of time.

    `seconds` are the sum of all. `first` is kept for those who hear of Outcomes: then the hits are of its
    stored response.
    """

    __slots__ = ("begun", "canonical", "count", "first", "octets", "seconds", "status", "target", "window")

    def __init__(
        self, hit: Hit, received: Received, begun: float, seconds: float, window: int, *, is_kept: bool
    ) -> None:
        self.canonical = hit.tally.canonical
        self.target = received.target
        self.status = hit.stored.status
        self.octets = len(hit.stored.body)
        self.begun = begun  # the first, in seconds since the epoch
        self.count = 1
        self.seconds = seconds
        self.window = window
        self.first: tuple[Hit, Received] | None = (hit, received) if is_kept else None


class Tally:
    """The conclusions from a target that an audience needs, and the hits that are counted together by now."""

    __slots__ = ("alike", "canonical", "request_ids")

    def __init__(self, canonical: Canonical, request_ids: RequestIds | None = None) -> None:
        self.alike: AlikeHits | None = None
        self.canonical = canonical
        self.request_ids = request_ids  # None: its requests have no names


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Hit:
    """A stored response that answers an ordinary request as it is."""

    stored: Stored
    head: bytes  # the stored one, with the fields that the operator changes
    age: int  # seconds
    client: str | None  # the believed one
    hit_fields: HitFields
    tally: Tally
    plan: Plan
    values: Sequence[bytes]  # of the request's fields

    def __init__(
        self,
        stored: Stored,
        head: bytes,
        age: int,
        client: str | None,
        hit_fields: HitFields,
        tally: Tally,
        plan: Plan,
        values: Sequence[bytes],
    ) -> None:
        self.stored = stored
        self.head = head
        self.age = age
        self.client = client
        self.hit_fields = hit_fields
        self.tally = tally
        self.plan = plan
        self.values = values

    @property
    def canonical(self) -> Canonical:
        """The one spelling of the target URI."""
        return self.tally.canonical


@mypyc_attr(acyclic=True)
@dataclass(slots=True)
class HitFields:
    """The handling of a hit, and the fields that tell it, as fields and as lines."""

    handling: Handling
    fields: Fields
    lines: bytes


Answer: TypeAlias = tuple[Stored | None, bytes, int, HitFields | None, Tally | None, Lookup | None]
"""A stored response, its head as it is sent, its age, its fields, its tally; None for all: none answers.

Then there is a lookup, unless the target is refused. It is a tuple, of which compiled code makes no object.
"""


class Hits:
    """Finds the stored response for an ordinary request.

    Few of many keys are in the processor's caches. So a hit reads few places in memory: the conclusions from
    its target, and from there the entry in the store.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._runtime = gate.runtime  # the one that `_located` is of
        self._located: dict[tuple[bytes, bytes], dict[bytes, _Located]] = {}  # by host and scheme, by target
        self._order = deque[tuple[bytes, bytes, bytes]]()  # host, scheme and target of each, oldest first

    def find(
        self, received: Received, plan: Plan, values: Sequence[bytes], now: float
    ) -> Hit | Lookup | None:
        """The fresh stored response for a GET with these field values; else take the long way.

        A lookup spares that what was found out here.
        """
        runtime, peer = self._gate.runtime, None
        host, scheme, client = values[plan.host], received.scheme, received.client
        if plan.is_for_another:
            trusted = trusted_for(received, runtime.trusted, runtime.trusted_at)
            if within(client, trusted):
                peer = self._gate.sender(received, plan.fields(values))
                if len(peer.hosts) != 1:
                    return None
                host, scheme, client = peer.hosts[0], peer.scheme, peer.client
            elif not received.introduced:
                fields = partial(plan.fields, values)
                self._gate.likely_proxies.note(client, fields, trusted, runtime.forwarded)
        answer = self.answer(received.target, host, scheme, plan, values, now)
        stored, head, age, hit_fields, tally, lookup = answer
        if stored is None or hit_fields is None or tally is None:
            if lookup is not None:
                lookup.peer = peer
            return lookup
        return Hit(stored, head, age, client, hit_fields, tally, plan, values)

    def answer(
        self, target: bytes, host: bytes, scheme: bytes, plan: Plan, values: Sequence[bytes], now: float
    ) -> Answer:
        """The parts of the same `Hit`, for a request whose host and scheme are believed."""
        runtime = self._gate.runtime
        if runtime is not self._runtime:
            self._runtime = runtime
            self._located.clear()
            self._order.clear()
        there = self._located.get((host, scheme))
        located = None if there is None else there.get(target)
        behind: Sequence[Stored] = ()  # what a store behind memory has
        if located is None:
            found = self._locate(target, host, scheme, now)
            if not isinstance(found, tuple):
                return (None, b"", 0, None, None, found)
            located, behind = found
        if (
            (plan.cookie and located.looks_at_cookies)
            or len(values) > located.max_fields
            or (plan.credentials >= 0 and authenticates_connection(values[plan.credentials]))
        ):
            return (None, b"", 0, None, None, Lookup(located.canonical, runtime))

        personal = plan.personal and not located.is_impersonal(plan)
        held = behind or self._gate.tiers.revisit(located.entry, now) or self._look_up(located, now)
        if not held:
            held = behind = self._gate.tiers.glance(located.key, now, keeps=located.has_forms)
        variants = chosen_by(held, located.keyed) if located.keyed else held
        stored = variants[0] if variants else None
        if stored is not None and (located.keyed or (stored.vary and is_selected(stored, personal=personal))):
            stored = select(located.request(plan, values), variants)
        if stored is None or stored.fresh_until <= now:
            return self._in_vain(located.canonical, held)
        known = stored.answers
        answers = located.conclude(stored, held, plan, values, now) if known is None else known
        if not answers or (located.strips_tags and _has_tags(stored)):
            return self._in_vain(located.canonical, held)
        head, form = stored.head, stored
        if located.has_forms:
            head, form = self._form(stored, plan, values, located.rules)
        if len(form.body) > _LARGEST:
            return self._in_vain(located.canonical, held)
        stored.used = now
        age, lifetime, hit_fields = stored.age(now), stored.fresh_until - stored.born, located.hit_fields
        if behind or hit_fields is None or age != located.age or lifetime != located.lifetime:
            detail = "shared" if behind else ""
            hit_fields = _hit_fields(ttl_of(stored, age), located.canonical, runtime.cache_status, detail)
            located.age, located.lifetime, located.hit_fields = -1 if behind else age, lifetime, hit_fields
        edits = located.response_edits
        head = head if edits is None else edits.apply_to_head(head)
        return form, head, age, hit_fields, located, None

    def _in_vain(self, canonical: Canonical, held: Sequence[Stored]) -> Answer:
        """No answer: the long way decides about the responses that were found."""
        lookup = Lookup(canonical, self._runtime, held, self._gate.tiers.memory.version)
        return (None, b"", 0, None, None, lookup)

    def _look_up(self, located: _Located, now: float) -> Sequence[Stored]:
        """The stored responses of a target whose entry, if it had any, has left the store."""
        tiers = self._gate.tiers
        held = tiers.lookup(located.key, now)
        located.entry = tiers.memory.entry(located.key) if held else NO_ENTRY
        return held

    def _form(
        self, stored: Stored, plan: Plan, values: Sequence[bytes], rules: Rules
    ) -> tuple[bytes, Stored]:
        """The head and the form of a stored response for an ordinary request."""
        codings = () if plan.encoding < 0 else codings_among(values[plan.encoding], rules)
        form = self._gate.tiers.compression.choose(stored, codings)
        return (form.head, form) if form is not stored else (stored.head + forms_of(stored).vary, stored)

    def _locate(
        self, target: bytes, host: bytes, scheme: bytes, now: float
    ) -> tuple[_Located, Sequence[Stored]] | Lookup | None:
        """Resolve a target; a lookup if memory has nothing, or if more than that has to be looked at.

        With it comes what a store behind memory has of it, if memory has nothing. None: it is refused.
        """
        runtime, tiers = self._runtime, self._gate.tiers
        # A target that is too long to be remembered would be judged a second time by the long way.
        if len(target) > MEMORABLE:
            return None
        resolved = resolve(target, (host,), scheme, runtime.sites)
        if not isinstance(resolved, Canonical):
            return None
        is_in_memory = tiers.memory.may_hold(resolved.key)
        if not (is_in_memory or tiers.glances):
            # Most targets of misses are asked for once: they displace none that are hit. A tier of somebody's
            # own may find what memory lacks.
            return Lookup(resolved, runtime, (), tiers.memory.version)
        settings = runtime.settings_of(resolved.site.name, resolved.route.prefix)
        rules = runtime.protected(settings.rules, resolved)
        special = resolved.observed or resolved.redirect or resolved.verbatim or resolved.respelled
        special = special or resolved.loose or runtime.leads_to_https(scheme, resolved.target)
        special = special or not (runtime.caches and settings.hits_at_a_glance)
        special = special or bool(runtime.limits.fault(target))
        special = special or runtime.limits.max_requests_per_client > 0  # its client may have too many
        special = special or (runtime.restricts and bool(runtime.restrictions_of(resolved)))
        if special or rules.bypasses_path(resolved.target):
            return Lookup(resolved, runtime)
        behind = () if is_in_memory else tiers.glance(resolved.key, now, keeps=rules.has_forms)
        if not (is_in_memory or behind):
            return Lookup(resolved, runtime)
        located = _Located(
            resolved, settings, rules, runtime.limits.max_fields or sys.maxsize, runtime.request_ids
        )
        if len(target) + len(host) <= _LONGEST:
            if len(self._order) >= _MOST_LOCATED:
                self._forget_oldest()
            self._order.append((host, scheme, target))
            self._located.setdefault((host, scheme), {})[target] = located
        return located, behind

    def _forget_oldest(self) -> None:
        host, scheme, target = self._order.popleft()
        there = self._located[host, scheme]
        del there[target]
        if not there:
            del self._located[host, scheme]


class _Located(Tally):
    """The conclusions from a target, the host and the scheme; its entry in the store, its last hit's fields.

    It is the tally of its hits, and the attributes that each hit reads come first. So a hit reads fewer
    places in memory.
    """

    __slots__ = (
        "age", "dropped", "entry", "has_forms", "hit_fields", "key", "keyed", "lifetime", "looks_at_cookies",
        "max_fields", "ordinary", "request_edits", "response_edits", "rules", "strips_tags",
    )  # fmt: skip

    def __init__(
        self,
        canonical: Canonical,
        settings: RouteSettings,
        rules: Rules,
        max_fields: int,
        request_ids: RequestIds | None,
    ) -> None:
        super().__init__(canonical, request_ids)
        self.entry: Entry = NO_ENTRY
        # Of the last hit: its age, its freshness lifetime, and the fields that follow from these.
        self.age, self.lifetime = 0, 0.0
        self.hit_fields: HitFields | None = None
        self.max_fields = max_fields
        self.request_edits, self.response_edits = settings.edits.request, settings.edits.response
        self.has_forms = rules.has_forms
        self.strips_tags = rules.strip_tags
        self.dropped = _dropped(rules, self.request_edits)  # personal fields that go no further
        self.looks_at_cookies = settings.looks_at_cookies and b"cookie" not in self.dropped
        self.rules = rules
        self.ordinary = rules.ordinary  # the names of fields that tell no client from others
        self.key = canonical.key
        self.keyed = rules.keyed

    def is_impersonal(self, plan: Plan) -> bool:
        """Tell whether a request goes further without a field that tells its client or origin from others."""
        return b"origin" not in plan.names and self.ordinary.issuperset(
            [name for name in plan.names if name not in self.dropped]
        )

    def request(self, plan: Plan, values: Sequence[bytes]) -> Request:
        """An ordinary request with these field values, as stored responses are compared with it."""
        fields, canonical = plan.fields(values), self.canonical
        rules, edits = self.rules, self.request_edits
        request = admitted(b"GET", fields, canonical, plan, rules, edits, is_as_planned=True)
        return replace(request, fields=without(request.fields, self.dropped)) if self.dropped else request

    def conclude(
        self, stored: Stored, held: Sequence[Stored], plan: Plan, values: Sequence[bytes], now: float
    ) -> bool:
        """Remember whether `decide` answers an ordinary request with the fresh response that it selects."""
        decision = decide(self.request(plan, values), held, self.rules, now)
        is_same = isinstance(decision, Reuse) and decision.stored is stored
        stored.answers = is_same and decision.reason == "hit"
        return stored.answers


def _has_tags(stored: Stored) -> bool:
    return any(stored.line(name) is not None for name in TAGGING)


def _dropped(rules: Rules, edits: FieldEdits | None) -> frozenset[bytes]:
    """The fields that identify a request's client, but that the route removes from it."""
    dropped = PERSONAL & edits.names if edits is not None else frozenset[bytes]()
    return dropped | {b"cookie"} if rules.ignores_cookies(b"GET") else dropped


def _hit_fields(ttl: int, canonical: Canonical, mode: Mode, detail: str) -> HitFields:
    """The handling and fields of a hit that stays fresh for `ttl` seconds."""
    return _with_lines(ttl, canonical, mode, detail) if mode == "key" else _keyless(ttl, mode, detail)


@lru_cache(maxsize=1024)
def _keyless(ttl: int, mode: Mode, detail: str) -> HitFields:
    return _with_lines(ttl, None, mode, detail)


def _with_lines(ttl: int, canonical: Canonical | None, mode: Mode, detail: str) -> HitFields:
    handling = hit_for(ttl, detail)
    fields = cache_status(handling, canonical, mode)
    return HitFields(handling, fields, b"".join([b"%b: %b\r\n" % field for field in fields]))
