"""The one place that judges a request, but for an ordinary hit (`Hits`); after a wait, it judges again.

Most requests are ordinary: a GET without content, none of whose fields concerns the gate or the policy of the
cache. For these a `Plan` has the conclusions from the field names, drawn once for each set of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from univocal.cache.decide import Decision, Forward, Refuse, Reuse, Validate, decide, reuse_on_error
from univocal.cache.forms import acceptable
from univocal.cache.personal import ORDINARY, oddities
from univocal.cache.rules import DEFAULTS, READS, Rules, strip_cookies
from univocal.cache.stored import Stored
from univocal.cache.storing import shares_with_credentials
from univocal.cache.validation import CLIENT_CONDITIONS, invalidates
from univocal.cache.vary import selecting_fields, selection
from univocal.http.bonds import authenticates_connection
from univocal.http.compiling import mypyc_attr
from univocal.http.errors import RefusedError, by_rank, status_of
from univocal.http.field_edits import FieldEdits, for_request, granting
from univocal.http.framing import is_ambiguous, is_authority
from univocal.http.intermediary import end_to_end, speaks_for_another, times_here
from univocal.http.messages import (
    ENCODINGS,
    FRAMING,
    NO_NAMES,
    RETRIEVAL,
    Fields,
    Received,
    Request,
    Response,
    content_length,
    first,
    reduce_codings,
)
from univocal.http.tables import remember
from univocal.judge.access import (
    Denial,
    Entered,
    OwnRates,
    Rates,
    denial_of,
    judged,
    paced_by_user,
    request_line,
    user_of,
)
from univocal.judge.failed_refreshes import Failures
from univocal.judge.forward_auth import Grant, Question
from univocal.judge.orders import PURGES, Order, derived, order_of
from univocal.judge.runtime import NO_SETTINGS, RouteSettings, Runtime
from univocal.judge.trust import LikelyProxies, Peer, believe, trusted_for
from univocal.store.leases import Lease
from univocal.store.purge_selectors import Keys, Selector, Tags
from univocal.store.tiers import Tiers
from univocal.uri.sites import meant, resolve
from univocal.uri.target import Canonical, Rejected, encoding_fields, path_tags

# Fields that take the long way: the policy reads them, or the message is not over with its head, or the
# connection is to become something else.
_WEIGHED: Final = READS | {
    *(b"expect", b"http2-settings", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    *ENCODINGS,
}
# Sets of names that are remembered, and how many bytes one may have: clients choose them.
_MOST_PLANS: Final = 1024
_LONGEST_NAMES: Final = 2048


class Plan:
    """The names of an ordinary request's fields, in lower case, and what follows from them.

    They are all different, and one of them is Host. Each place is -1 where a name is missing.
    """

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.name_set = frozenset(names)
        self.host = names.index(b"host")
        self.connection = _place(names, b"connection")
        self.is_for_another = speaks_for_another(set(names))  # somebody else made the request
        self.cookie = b"cookie" in names
        # They may tell the client from others, or its page's origin.
        self.personal = b"origin" in names or not ORDINARY.issuperset(names)
        # All of them may go on to the origin server.
        self.clean = len(end_to_end([(name, b"") for name in names])) == len(names)
        self.agent = _place(names, b"user-agent")
        self.referrer = _place(names, b"referer")
        self.trace = _place(names, b"traceparent")
        self.trace_state = _place(names, b"tracestate")
        self.encoding = _place(names, b"accept-encoding")
        self.credentials = _place(names, b"authorization")

    def suits(self, values: Sequence[bytes]) -> bool:
        """Tell whether a request with these values is ordinary: Connection may say keep-alive, no more."""
        return self.connection < 0 or values[self.connection].lower() == b"keep-alive"

    def kept_names(self, kept: Fields) -> frozenset[bytes] | None:
        """The names of a request's fields that go on, if they are all of its own; else None."""
        return self.name_set if self.clean and len(kept) == len(self.names) else None

    def fields(self, values: Sequence[bytes]) -> Fields:
        """The header fields with these values, without the whitespace behind them (RFC 9112 §5.1)."""
        names = self.names
        return [(names[place], value.rstrip(b" \t")) for place, value in enumerate(values)]


_plans: Final[dict[tuple[bytes, ...], Plan | None]] = {}


def plan_of(names: tuple[bytes, ...]) -> Plan | None:
    """The plan for a GET with these field names, in any case; None where it is no ordinary one."""
    try:
        return _plans[names]
    except KeyError:
        plan = _plan(names)
        if sum(map(len, names)) <= _LONGEST_NAMES:
            remember(_plans, names, plan, _MOST_PLANS)
        return plan


def _plan(spelled: tuple[bytes, ...]) -> Plan | None:
    names = tuple(name.lower() for name in spelled)
    if len(set(names)) < len(names) or b"host" not in names or not _WEIGHED.isdisjoint(names):
        return None
    return Plan(names)


def _place(names: tuple[bytes, ...], name: bytes) -> int:
    return names.index(name) if name in names else -1


def ordinary_plan(names: tuple[bytes, ...], values: tuple[bytes, ...]) -> Plan | None:
    """The plan for a GET with these fields; None if it is out of the ordinary, or is refused.

    It depends on nothing but these. The names are as they came.
    """
    plan = plan_of(names)
    if plan is None or not plan.suits(values):
        return None
    return plan if is_authority(values[plan.host]) else None


_OURS: Final = frozenset((b"host", *ENCODINGS))  # fields that are written anew
_RANGE: Final = frozenset((b"range",))
_CIRCLING: Final = 3  # times here: more than a proxy before a proxy before the origin server takes
_HAS_SCHEME: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*:").match

Judgement: TypeAlias = Decision | Order
"""The cache's decision about a request, or the order that a PURGE or BAN gives."""


@mypyc_attr(acyclic=True)
class Lookup:
    """A target, and what is stored for it, from the glance at a request to the recording of its response.

    This `runtime` resolved it. The `variants` are newest first, and memory's while that has this `version`.
    The version -1 says that they are others', or that none was looked up. A `peer` is the sender, if the
    glance had to know. A response that is to be stored has a `lease`. Where that begins late, it was `asked`
    for before, when the last purge had this `number`.
    """

    __slots__ = ("asked", "canonical", "lease", "number", "peer", "runtime", "variants", "version")

    def __init__(
        self, canonical: Canonical, runtime: Runtime, variants: Sequence[Stored] = (), version: int = -1
    ) -> None:
        self.canonical = canonical
        self.runtime = runtime
        self.variants = variants
        self.version = version
        self.peer: Peer | None = None
        self.lease: Lease | None = None
        self.asked: float | None = None  # seconds since the epoch
        self.number: int | None = None

    def held(self, tiers: Tiers, now: float) -> Sequence[Stored]:
        """The variants by now: the store is asked again if anything has changed in it."""
        if self.version != tiers.memory.version or not tiers.is_memory_alone:
            key, lease = self.canonical.key, self.lease
            self.variants = tiers.lookup(key, now) if lease is None else tiers.held(lease)
            self.version = tiers.memory.version
        return self.variants


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False)
class Admission:
    """A request as it was judged, with the configuration that it was judged by; immutable by convention."""

    received: Received
    runtime: Runtime
    peer: Peer
    canonical: Canonical | None  # None: refused before its target was known, or a purge of many
    given: Fields  # as they came from the client
    request: Request  # the canonical target, and the fields that may go on; else those that came
    rules: Rules
    decision: Judgement
    reasons: tuple[str, ...]  # why it is refused, or would be (mode "observe")
    ours: bool  # a request of our own, to fetch a stored response again
    origin_tag: bytes  # of the origin server that the client stays with
    codings: tuple[bytes, ...] | None  # that the client takes, the best first; None: there are no forms
    denial: Denial | None  # the reason for which the client has no access, until a challenge is met
    lookup: Lookup | None  # None: it was refused, or is a purge
    user: bytes  # whose password has opened the way to the target; empty: none
    settings: RouteSettings  # of the target's route; `rules` has those of other readings' routes, too

    def __init__(
        self,
        received: Received,
        runtime: Runtime,
        peer: Peer,
        canonical: Canonical | None,
        given: Fields,
        request: Request,
        rules: Rules,
        decision: Judgement,
        reasons: tuple[str, ...] = (),
        ours: bool = False,
        origin_tag: bytes = b"",
        codings: tuple[bytes, ...] | None = None,
        denial: Denial | None = None,
        lookup: Lookup | None = None,
        user: bytes = b"",
        settings: RouteSettings = NO_SETTINGS,
    ) -> None:
        self.received = received
        self.runtime = runtime
        self.peer = peer
        self.canonical = canonical
        self.given = given
        self.request = request
        self.rules = rules
        self.decision = decision
        self.reasons = reasons
        self.ours = ours
        self.origin_tag = origin_tag
        self.codings = codings
        self.denial = denial
        self.lookup = lookup
        self.user = user
        self.settings = settings

    @property
    def max_body(self) -> int:
        """The bytes of content that the request may have; 0: no limit."""
        return self.runtime.max_body_of(self.received, self.settings)

    @property
    def answer_settings(self) -> RouteSettings:
        """The settings for an answer of ours: without a canonical target, those of the path as it came."""
        runtime, peer = self.runtime, self.peer
        if self.canonical is not None or not runtime.changes_answers:
            return self.settings
        return runtime.settings_of(*runtime.sites.place(peer.hosts, peer.scheme, self.received.target))

    def refused(self, reasons: Sequence[str]) -> Admission:
        """The same request, refused."""
        ranked = by_rank(reasons)
        return replace(self, decision=Refuse(status_of(ranked[0]), ranked[0]), reasons=ranked)


class Accepted(NamedTuple):
    """A request that has access: its fields, its user's name, and for whom alone its response is kept."""

    fields: Fields
    user: bytes = b""
    only: bytes = b""
    grant: Grant | None = None


_UNRESTRICTED: Final = Accepted([])  # whose fields are those that came


class Apart(NamedTuple):
    """The name of a flight for which the `others` do not wait: these fields may provoke its answer."""

    others: tuple[Hashable, ...]
    fields: frozenset[bytes]


class Gate:
    """Judges requests by a runtime and what is stored; a reload sets `runtime` anew.

    `rates` are those of this process, until somebody sets those that several processes share.
    With the `plan` of an ordinary request, nothing that its field names rule out is looked for. A request
    that has `entered` has met the challenge of this runtime.
    """

    def __init__(self, runtime: Runtime, tiers: Tiers) -> None:
        self.runtime = runtime
        self.tiers = tiers
        self.likely_proxies = LikelyProxies()
        self.rates: Rates = OwnRates()
        self.monotonic: Callable[[], float] = time.monotonic  # for rates: no clock that is set back
        self.failures = Failures()  # of requests that were to refresh something stored

    def admit(
        self,
        received: Received,
        fields: Fields,
        now: float,
        plan: Plan | None = None,
        entered: Entered | None = None,
        lookup: Lookup | None = None,
    ) -> Admission:
        """Judge a request: its sender, its target, the decision about it. Touches nothing but memory.

        It does not ask again what its `lookup` at a glance has found.
        """
        runtime, given = self.runtime, fields
        lookup = lookup if lookup is not None and lookup.runtime is runtime else None  # None: a reload
        if plan is not None and not plan.is_for_another:
            peer = Peer([fields[plan.host][1]], received.scheme, received.client)
        else:
            known = None if lookup is None else lookup.peer
            peer = self.sender(received, fields) if known is None else known
        request_ids = runtime.request_ids
        fields = fields if request_ids is None else request_ids.identify(received, fields)
        fault = _framing_fault(fields) if plan is None else ""
        if fault := fault or runtime.limits.fault(received.target, received.method, len(given)):
            return _refused(received, given, runtime, peer, (fault,))
        if received.method in PURGES:
            return _ordered(received, given, peer, runtime)
        if lookup is None:
            target, method, encodings = received.target, received.method, peer.encodings
            resolved = resolve(target, peer.hosts, peer.scheme, runtime.sites, method, encodings)
            if isinstance(resolved, Rejected):
                return _refused(received, given, runtime, peer, resolved.reasons)
            lookup = Lookup(resolved, runtime)
        canonical = lookup.canonical
        settings = runtime.settings_of(canonical.site.name, canonical.route.prefix)
        accepted = _UNRESTRICTED
        if runtime.restricts:
            access = self._enter(received, fields, peer, canonical, entered)
            if isinstance(access, Denial):
                return _denied(received, given, runtime, peer, canonical, settings, access)
            accepted, fields = access, access.fields
        edits, grant = settings.edits, accepted.grant
        if grant or edits.named_request is not None or edits.named_response is not None:
            settings = _filled(settings, canonical, peer, received, accepted.user, grant)
        if plan is None and 0 < runtime.max_body_of(received, settings) < (content_length(fields) or 0):
            return _refused(received, given, runtime, peer, ("body-too-large",))
        return self._decided(received, fields, given, plan, peer, lookup, accepted, settings, now)

    def _enter(
        self, received: Received, fields: Fields, peer: Peer, canonical: Canonical, entered: Entered | None
    ) -> Denial | Accepted:
        """The entry of a client that has access; or why it has none.

        A client that is sent to https is asked there.
        """
        restrictions = self.runtime.restrictions_of(canonical)
        if not restrictions or self.runtime.leads_to_https(peer.scheme, canonical.target):
            return Accepted(fields)
        now, certificate, user, only = self.monotonic(), received.certificate, b"", b""
        denial = None
        for authority in [each.client_ca for each in restrictions if each.client_ca]:
            if certificate is None or certificate.authority != authority:
                return Denial("certificate-required", [])
            user = certificate.subject
        if entered is None:
            line, client = request_line(received.method, received.target, canonical), received.client
            denial = judged(
                restrictions, lambda each: denial_of(each, peer, client, fields, self.rates, now, line)
            )
        if denial is not None:
            return denial
        if any(restriction.users is not None for restriction in restrictions):
            user = user_of(first(fields, b"authorization") or b"") or user
            # Without the password, which is for this proxy alone.
            fields = [field for field in fields if field[0] != b"authorization"]
        if any(restriction.private for restriction in restrictions):
            only = b"%b:" % user  # no name has a colon (RFC 7617 §2)
        grant = None if entered is None else entered.grant
        asked = {id(each.forward): each.forward for each in restrictions if each.forward is not None}
        if len(asked) > 1:
            return Denial("crosses-route", [])
        for forward in asked.values():
            if grant is None:
                question = Question(forward, received, fields, peer, canonical, now)
                grant = forward.known(question)
                if grant is None:
                    return Denial("access-denied", [], question)
            user, only = grant.user or user, only + grant.whose
        denial = paced_by_user(restrictions, user, peer, received.client, self.rates, now)
        return Accepted(fields, user, only, grant) if denial is None else denial

    def sender(self, received: Received, fields: Fields) -> Peer:
        """The sender of a request, as far as it is believed."""
        runtime = self.runtime
        trusted, family, trusted_at = runtime.trusted, runtime.forwarded, runtime.trusted_at
        peer = believe(received, fields, trusted, family, trusted_at)
        if not (peer.known or received.introduced):
            trusted = trusted_for(received, trusted, trusted_at)
            self.likely_proxies.note(received.client, lambda: fields, trusted, family)
        return peer

    def _decided(
        self,
        received: Received,
        fields: Fields,
        given: Fields,
        plan: Plan | None,
        peer: Peer,
        lookup: Lookup,
        accepted: Accepted,
        settings: RouteSettings,
        now: float,
    ) -> Admission:
        """Admit a request that has access, with the decision about it; the `given` fields came."""
        runtime, canonical, tiers = lookup.runtime, lookup.canonical, self.tiers
        rules = settings.rules
        if rules.bypass or canonical.other_routes:
            rules = runtime.protected(rules, canonical)
        kept, tag = (fields, b"") if settings.affinity is None else settings.affinity.take(fields)
        request = admitted(
            received.method, kept, canonical, plan, rules, settings.edits.request, accepted.only,
            is_as_planned=kept is given,
        )  # fmt: skip
        if not runtime.caches:
            decision: Decision = Forward("bypass", may_store=False, fallback=None, unstorable="bypass")
        elif _goes_past(received, canonical, request):
            decision = _bypassing(received, request, rules, now)
        else:
            # A response may have been stored before a reload made its path loose.
            held = () if canonical.loose else lookup.held(tiers, now)
            decision = decide(request, held, rules, now)
            if canonical.loose:
                decision = _unstored(decision)
            # No flight asks for what only-if-cached refuses: another process may have stored it.
            elif isinstance(decision, Refuse) and (behind := tiers.glance(canonical.key, now)):
                lookup.variants, lookup.version = behind, -1
                decision = decide(request, behind, rules, now)
            if self.failures.any and not canonical.loose:
                decision = self._spared(decision, request, rules, now)
            if isinstance(decision, (Reuse, Validate)):
                decision.stored.used = now
            elif (
                isinstance(decision, Forward)
                and decision.may_store
                and not CLIENT_CONDITIONS.isdisjoint(request.names)
                # Not long ago the answer could not be stored: a client's own conditions go to the origin.
                and tiers.memory.is_uncollapsed(canonical.key, now, oddities(request, rules.ordinary))
            ):
                decision = replace(decision, passes_conditions=True)
        if settings.edits.alone is not None:
            decision = _alone(decision, request.method)
        return Admission(
            received, runtime, peer, canonical, given, request, rules, decision, canonical.observed,
            origin_tag=tag, lookup=lookup, user=accepted.user, settings=settings,
            # By what came: what the operator sets or removes is for the origin server.
            codings=acceptable(request, fields, rules) if rules.has_forms else None,
        )  # fmt: skip

    def again(self, admission: Admission, now: float, held: Sequence[Stored] | None = None) -> Admission:
        """The same request judged by what is stored now, or by the responses `held`.

        A request that has waited is judged again: a decision is as old as what it was made from, and a lease
        that begins later knows nothing of the purges between them. A request past the cache goes on past it.
        """
        known = admission.lookup
        assert known is not None
        past = known.canonical.loose or not known.runtime.caches
        if past or _goes_past(admission.received, known.canonical, admission.request):
            return admission
        request, rules = admission.request, admission.rules
        if held is None:
            lookup = Lookup(known.canonical, known.runtime, known.variants, known.version)
            decision = decide(request, lookup.held(self.tiers, now), rules, now)
            if self.failures.any:
                decision = self._spared(decision, request, rules, now)
        else:
            lookup = Lookup(known.canonical, known.runtime, held)
            decision = decide(request, held, rules, now)
        lookup.asked, lookup.number = known.asked, known.number
        return replace(admission, decision=decision, lookup=lookup)

    def _spared(self, decision: Decision, request: Request, rules: Rules, now: float) -> Decision:
        """The decision, but for a stale response that could just not be refreshed: it serves as it is."""
        match decision:
            case Reuse(stored=stored, revalidate_in_background=True):
                pass
            case Validate(reason="stale", fallback=fallback) | Forward(reason="stale", fallback=fallback):
                if fallback is None or (
                    rules.client_directives == "honour" and b"cache-control" in request.names
                ):
                    return decision
                stored = fallback
            case _:
                return decision
        failure = self.failures.of(stored, oddities(request, rules.ordinary), now)
        if failure is None:
            return decision
        if isinstance(decision, Reuse):
            return replace(decision, revalidate_in_background=False)
        return reuse_on_error(decision, request, rules, failure.status or 503, now) or decision

    def allows_passage(self, admission: Admission, now: float) -> bool:
        """Tell whether a request, which is asked now, needs the cache no sooner than its response has a head.

        The last answer to such a request could not be stored, nothing else is to be done, and there is memory
        alone.
        """
        lookup, decision, runtime = admission.lookup, admission.decision, admission.runtime
        if lookup is None or not isinstance(decision, Forward) or not decision.may_store:
            return False
        rules, request, canonical = admission.rules, admission.request, lookup.canonical
        if decision.reason != "uri-miss" or decision.passes_conditions:
            return False
        odd = NO_NAMES if request.names <= rules.ordinary else oddities(request, rules.ordinary)
        if not self.tiers.memory.is_uncollapsed(canonical.key, now, odd):
            return False
        leads = canonical.redirect or canonical.respelled or runtime.https_port
        if leads or admission.settings.changes_messages or runtime.limits.max_requests_per_client:
            return False
        number = self.tiers.number
        if number is not None:
            lookup.asked, lookup.number = now, number
        return number is not None

    def flight_name(self, admission: Admission, now: float) -> Hashable | None:
        """Name what requests have in common that wait for one answer; None: this one waits for no other.

        Requests differ if their selecting header fields differ, as far as a stored response shows these. So
        do requests for the origin server's own answer (RFC 9111 §5.2.1.4). One with fields or cookies that
        ordinary requests have not is `Apart`, and so are those for ranges. A request with Authorization waits
        for no other, unless a stored response says that such answers may be shared. A request that comes
        again and again would wait for itself.
        """
        lookup, request, decision = admission.lookup, admission.request, admission.decision
        assert lookup is not None
        own_word = not isinstance(decision, Order) and decision.reason == "request"
        names, ordinary = request.names, admission.rules.ordinary
        if request.method != b"GET" or own_word:
            return None
        if b"via" in names and times_here(request.fields) >= _CIRCLING:
            return None
        key, variants, memory = lookup.canonical.key, lookup.variants, self.tiers.memory
        odd = NO_NAMES if names <= ordinary else oddities(request, ordinary)
        ranges = b"range" in names
        if memory.is_uncollapsed(key, now, odd) or (ranges and memory.is_uncollapsed(key, now, odd | _RANGE)):
            return None
        if b"authorization" in names:
            # An answer to one client is not for others (§3.5), unless a response said that it is.
            stored = decision.stored if isinstance(decision, Validate) else next(iter(variants), None)
            if stored is None or not shares_with_credentials(stored, admission.rules):
                return None
        name: Hashable = key
        if keyed := admission.rules.keyed:
            name = name, selecting_fields(tuple(sorted(keyed)), request)
        if variants and variants[0].vary:
            name = name, selecting_fields(tuple([name for name, _ in variants[0].vary]), request)
        elif request.verbatim:
            name = name, selection([], request)
        if request.user:
            name = name, request.user
        if ranges:
            return Apart((name, Apart((name,), odd)) if odd else (name,), odd | _RANGE)
        return Apart((name,), odd) if odd else name


def _goes_past(received: Received, canonical: Canonical, request: Request) -> bool:
    """True of a request that nothing stored answers: a handshake, and whatever has no one spelling.

    A connection that switches is no answer to anybody else. A target that is only observed is of no resource
    that is known, even where what is stored answers for every query (No-Vary-Search). A connection that is
    authenticated, or about to be, is one client's.
    """
    if received.upgrade or canonical.observed or canonical.target == b"*":
        return True
    if received.bond is not None and received.bond.holds:
        return True
    credentials = first(request.fields, b"authorization") if b"authorization" in request.names else None
    return credentials is not None and authenticates_connection(credentials)


def _framing_fault(fields: Fields) -> str:
    """The reason "bad-framing", or "": not every server refuses what one behind us would read as two."""
    framing = [field for field in fields if field[0] in FRAMING]
    return "bad-framing" if framing and is_ambiguous(framing) else ""


def facts_of(
    received: Received, peer: Peer, canonical: Canonical | None = None, user: bytes = b""
) -> dict[str, bytes]:
    """The values that fields may name in braces, of one request; empty: it is not known."""
    client = peer.client.partition("%")[0].encode("ascii", "ignore") if peer.client else b""
    facts = {"client": client, "scheme": peer.scheme, "request_id": received.request_id, "user": user}
    if canonical is None:
        return {**facts, "host": b"", "path": b""}
    path = canonical.target.partition(b"?")[0]
    return {**facts, "scheme": canonical.scheme, "host": canonical.authority, "path": path}


def _filled(
    settings: RouteSettings,
    canonical: Canonical,
    peer: Peer,
    received: Received,
    user: bytes,
    grant: Grant | None = None,
) -> RouteSettings:
    """The settings with the changes of fields for this request alone."""
    edits = for_request(settings.edits, facts_of(received, peer, canonical, user))
    if grant is not None and grant.fields:
        edits = granting(edits, grant.fields)
    return replace(settings, edits=edits)


def _alone(decision: Decision, method: bytes) -> Decision:
    """The decision, where a request goes on with fields of its client unless its response may be stored."""
    if isinstance(decision, Forward) and decision.may_store and method not in RETRIEVAL:
        return replace(decision, may_store=False, unstorable="method")
    return decision


def _bypassing(received: Received, request: Request, rules: Rules, now: float) -> Decision:
    """The decision about a request that passes the cache by."""
    reads = request.method in RETRIEVAL
    decision = decide(request, (), rules, now) if received.upgrade or reads else None
    if isinstance(decision, Refuse):  # only-if-cached
        return decision
    reason = "bypass" if received.upgrade or reads else "method"
    return Forward(reason, may_store=False, fallback=None, unstorable=reason)


def _unstored(decision: Decision) -> Decision:
    """The decision for a loose target: no purge of its plain reading would reach what is stored for it."""
    if not isinstance(decision, Forward):
        return decision
    return Forward(decision.reason, False, decision.fallback, decision.unstorable or "loose-path")


def obsolete(admission: Admission, response: Response) -> list[Selector]:
    """The selectors that a response to an unsafe request invalidates by (RFC 9111 §4.4, RFC 9875 §3).

    The responses that a profile derives from the paths of these URLs are obsolete, too.
    """
    canonical, invalid = admission.canonical, invalidates(admission.request, response)
    if canonical is None or canonical.target == b"*" or invalid is None:
        return []
    references, groups = invalid
    named = (refer(reference, canonical, admission.runtime) for reference in references)
    invalidated = [canonical, *[each for each in named if each is not None]]
    every = [each for one in invalidated for each in meant(one, admission.runtime.sites)]
    keys = Keys(frozenset([each.key for each in every]))
    selectors: list[Selector] = [keys, *derived(every, soft=False)]
    if groups:
        selectors.append(Tags(groups, origin=b"%b %b" % (canonical.scheme, canonical.authority)))
    return selectors


def joined(reference: bytes, base: Canonical) -> bytes:
    """A URI reference of `base`'s response as a request target, without fragment (RFC 3986 §5.2)."""
    target = reference.partition(b"#")[0]
    if target.startswith(b"//"):
        return base.scheme + b":" + target
    if not _HAS_SCHEME(target) and not target.startswith(b"/"):
        path = base.target.partition(b"?")[0]
        return (path if target[:1] in {b"", b"?"} else path[: path.rindex(b"/") + 1]) + target
    return target


def refer(reference: bytes, base: Canonical, runtime: Runtime) -> Canonical | None:
    """Resolve a URI reference of `base`'s response; None unless it is of the same origin."""
    target = joined(reference, base)
    if runtime.limits.fault(target):
        return None  # no client gets what it refers to
    resolved = resolve(target, [base.authority], base.scheme, runtime.sites)
    same = isinstance(resolved, Canonical) and (resolved.scheme, resolved.authority) == (
        base.scheme,
        base.authority,
    )
    return resolved if same and isinstance(resolved, Canonical) else None


def _ordered(received: Received, fields: Fields, peer: Peer, runtime: Runtime) -> Admission:
    """Admit a PURGE or BAN with its order, or refuse it with the reason."""
    try:
        order = order_of(received, fields, peer, runtime)
    except RefusedError as refused:
        return _refused(received, fields, runtime, peer, refused.reasons)
    canonical, settings = order.canonical, NO_SETTINGS
    if canonical is not None:
        settings = runtime.settings_of(canonical.site.name, canonical.route.prefix)
        if settings.edits.named_response is not None:
            settings = _filled(settings, canonical, peer, received, b"")
    request = Request(received.method, b"", fields)
    return Admission(received, runtime, peer, canonical, fields, request, DEFAULTS, order, settings=settings)


def admitted(
    method: bytes,
    fields: Fields,
    canonical: Canonical,
    plan: Plan | None,
    rules: Rules,
    edits: FieldEdits | None,
    only: bytes = b"",
    *,
    is_as_planned: bool,
) -> Request:
    """The request for a canonical target, with the fields that may go on (law 4).

    That is one Host, nothing that claims another URL, nothing for this hop. Fields that the rules have in the
    key go on, whatever they claim. `edits` are the operator's. The response is kept for `only` one client, if
    that is not empty. `is_as_planned`: the fields are those of the plan.
    """
    keyed = rules.keyed
    place = -1 if plan is None or keyed or not plan.clean else plan.host
    if 0 <= place < len(fields) and fields[place][0] == b"host":  # where the plan says, and the only one
        kept = [(b"host", canonical.authority), *fields[:place], *fields[place + 1 :]]
    else:
        fields = (
            fields if plan is not None and plan.clean and not keyed else end_to_end(fields, method, keyed)
        )
        kept = [(b"host", canonical.authority), *[field for field in fields if field[0] not in _OURS]]
    charset = canonical.route.profile.charset
    if charset.path or charset.query or charset.trust_encoding_fields:
        kept += encoding_fields(canonical)
    encodes = plan is None or plan.encoding >= 0
    if encodes and rules.accept_encoding == "reduce" and method in RETRIEVAL:
        kept = reduce_codings(kept)
    names = plan.kept_names(kept) if plan is not None and is_as_planned and edits is None else None
    kept = kept if edits is None else edits.expose(kept)
    profile = canonical.route.profile
    tags = path_tags(canonical.target, profile) if profile.tags else NO_NAMES
    request = Request(method, canonical.target, kept, tags, canonical.verbatim, rules.ordinary, only, names)
    return strip_cookies(request, rules) if rules.removes_cookies else request


def _denied(
    received: Received,
    fields: Fields,
    runtime: Runtime,
    peer: Peer,
    canonical: Canonical,
    settings: RouteSettings,
    denial: Denial,
) -> Admission:
    """Refuse a request that has no access, until a challenge is met.

    At an alias that redirects, a request that may lack credentials alone is led on, and no server is asked.
    """
    refused = _refused(received, fields, runtime, peer, (denial.reason,))
    lacks_credentials = denial.reason == "unauthorized" or denial.challenge is not None
    if canonical.redirect and not canonical.leads_to and lacks_credentials:
        settings = _filled(settings, canonical, peer, received, b"")
        refused = replace(refused, canonical=canonical, reasons=canonical.observed)
        denial = denial._replace(challenge=None)
    # Content comes while a challenge is met.
    return replace(refused, denial=denial, settings=settings)


def _refused(
    received: Received, fields: Fields, runtime: Runtime, peer: Peer, reasons: Sequence[str]
) -> Admission:
    ranked = by_rank(reasons)
    decision = Refuse(status_of(ranked[0]), ranked[0])
    request = Request(received.method, b"", fields)
    return Admission(received, runtime, peer, None, fields, request, DEFAULTS, decision, ranked)
