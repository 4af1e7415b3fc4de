"""A cache constructs responses (RFC 9111 §4): it decides about a request by the responses that it stores.

The other sections have modules of their own: storing (§3), which has freshness (§4.2), too, vary (§4.1), and
validation (§4.3), which has invalidation (§4.4). Reasons are the tokens of Cache-Status (RFC 9211 §2.2). Its
member about a request is the spelling of a `Handling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from univocal.cache.directives import RequestDirectives, request_directives
from univocal.cache.personal import IMPERSONAL, UNCREDENTIALED
from univocal.cache.ranges import cut, excessive, has_two_codings, is_strong_match, requested_ranges
from univocal.cache.rules import READS, Rules
from univocal.cache.stored import Stored
from univocal.cache.validation import CLIENT_CONDITIONS, completion, conditions
from univocal.cache.vary import chosen_by, matches, of_user, without_origin
from univocal.http.intermediary import METHOD_OVERRIDES
from univocal.http.messages import RETRIEVAL, Fields, Request, first, without

# Each request makes one of these: they have an `__init__` of their own, as messages have. Nothing changes
# them: type checkers and the compiled form refuse an assignment.


@dataclass(slots=True, init=False)
class Reuse:
    """Answer with a stored response, `age` seconds old; with the last flag set, validate it meanwhile."""

    stored: Final[Stored]
    age: Final[int]
    reason: Final[str]
    revalidate_in_background: Final[bool]

    def __init__(self, stored: Stored, age: int, reason: str, revalidate_in_background: bool) -> None:
        self.stored = stored
        self.age = age
        self.reason = reason
        self.revalidate_in_background = revalidate_in_background


@dataclass(slots=True, init=False)
class Validate:
    """Ask the origin with `fields` added whether the stored response still holds, or for what it lacks."""

    stored: Final[Stored]
    fields: Final[Fields]
    reason: Final[str]
    fallback: Final[Stored | None]  # what may be served on error

    def __init__(self, stored: Stored, fields: Fields, reason: str, fallback: Stored | None) -> None:
        self.stored = stored
        self.fields = fields
        self.reason = reason
        self.fallback = fallback


@dataclass(slots=True, init=False)
class Forward:
    """Ask the origin; without `may_store` its response is not stored, whatever it says.

    `unstorable` is the token that says why not. With `passes_conditions` the client's own conditions go to
    the origin server.
    """

    reason: Final[str]
    may_store: Final[bool]
    fallback: Final[Stored | None]
    unstorable: Final[str]
    passes_conditions: Final[bool]

    def __init__(
        self,
        reason: str,
        may_store: bool,
        fallback: Stored | None,
        unstorable: str = "",
        passes_conditions: bool = False,
    ) -> None:
        self.reason = reason
        self.may_store = may_store
        self.fallback = fallback
        self.unstorable = unstorable
        self.passes_conditions = passes_conditions


@dataclass(slots=True, init=False)
class Refuse:
    """Answer with an error of our own."""

    status: Final[int]
    reason: Final[str]

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason


Decision: TypeAlias = Reuse | Validate | Forward | Refuse

_NO_DIRECTIVES: Final = RequestDirectives()
_BYPASS: Final = Forward("bypass", may_store=False, fallback=None, unstorable="bypass")
_METHOD: Final = Forward("method", may_store=False, fallback=None, unstorable="method")
_POST: Final = Forward("method", may_store=True, fallback=None)
_UNKNOWN: Final = Forward("uri-miss", may_store=True, fallback=None)
_CONDITIONAL: Final = Forward("request", may_store=False, fallback=None, unstorable="conditional")

_RANGE: Final = Forward("miss", may_store=False, fallback=None, unstorable="two-codings")

# Preconditions that are the origin server's to evaluate; what comes back may be a 412 (RFC 9111 §4.3.2).
_FOR_ORIGIN: Final = frozenset({b"if-match", b"if-unmodified-since"})
# A POST with one of these asks for something else than a GET of the same URI would.
_NOT_A_POST: Final = _FOR_ORIGIN | METHOD_OVERRIDES
# The selecting fields of responses to requests that do not identify their client.
_UNASKED: Final = (
    without_origin(IMPERSONAL),
    without_origin(UNCREDENTIALED),
    without_origin(()),
    IMPERSONAL,
    UNCREDENTIALED,
)
_UNSIGNED: Final = frozenset({b"basic", b"bearer"})
# Failures that stale-if-error names (RFC 5861 §4).
_ERRORS: Final = frozenset({500, 502, 503, 504})


def decide(request: Request, variants: Sequence[Stored], rules: Rules, now: float) -> Decision:
    """The decision about a request, given the responses under its key, newest first (RFC 9111 §4)."""
    method = request.method
    # the request method associated with the stored response allows it to be used for the presented request
    if method not in RETRIEVAL:
        return _posted(request, rules) if method == b"POST" else _METHOD
    if rules.keyed:
        variants = chosen_by(variants, rules.keyed)
    if request.user:
        variants = of_user(variants, request.user)
    if rules.reads.isdisjoint(request.names):  # the policy reads none of them but the selecting ones
        if rules.bypass and rules.bypasses_path(request.target):
            return _BYPASS
        return _answer(request, variants, _NO_DIRECTIVES, now) if variants else _UNKNOWN
    honoured = rules.client_directives == "honour"
    directives = request_directives(request.fields) if honoured else _NO_DIRECTIVES
    decision = _bypass(request, rules) or _answer(request, variants, directives, now)
    if isinstance(decision, Forward) and directives.no_store and not decision.unstorable:
        decision = replace(decision, unstorable="request-no-store")
    if isinstance(decision, (Validate, Forward)) and _signs_conditions(request):
        decision = Forward(decision.reason, False, decision.fallback, "signed")
    # §5.2.1.7: only-if-cached: the cache responds using a stored response or with a 504
    if directives.only_if_cached and not isinstance(decision, Reuse):
        return Refuse(504, "only-if-cached")
    return decision


def _signs_conditions(request: Request) -> bool:
    """The client's conditions may be part of what it signed, so that they go on as they are.

    Credentials but those of Basic and Bearer sign the request, as S3's do.
    """
    if CLIENT_CONDITIONS.isdisjoint(request.names):
        return False
    credentials = first(request.fields, b"authorization")
    return credentials is not None and credentials.partition(b" ")[0].lower() not in _UNSIGNED


def _posted(request: Request, rules: Rules) -> Forward:
    """A POST is always forwarded; what answers it may be stored as the answer to a GET of the same URI."""
    fields = request.fields
    if rules.bypasses_path(request.target) or rules.bypasses_cookies(fields):
        return _BYPASS
    # §5.2.1.5: with no-store in a request a cache MUST NOT store any part of it or of any response to it
    forbidden = rules.client_directives == "honour" and request_directives(fields).no_store
    if forbidden:
        return replace(_METHOD, unstorable="request-no-store")
    return _POST if _NOT_A_POST.isdisjoint(request.names) else _METHOD


def _bypass(request: Request, rules: Rules) -> Forward | None:
    """A GET or HEAD passes the cache by the rules, for its content, or with preconditions for the origin."""
    fields = request.fields
    content = first(fields, b"content-length") not in {None, b"0"} or first(fields, b"transfer-encoding")
    if content or rules.bypasses_path(request.target) or rules.bypasses_cookies(fields):
        return _BYPASS
    return None if _FOR_ORIGIN.isdisjoint(request.names) else _CONDITIONAL


def _answer(
    request: Request, variants: Sequence[Stored], directives: RequestDirectives, now: float
) -> Decision:
    # §5.2.1.5: with no-store in a request a cache MUST NOT store any part of it or of any response to it
    may_store = not directives.no_store
    stored = select(request, variants) if variants else None
    if not variants and may_store:
        return _UNKNOWN
    if stored is None:
        # the presented target URI and that of the stored response match; selecting header fields match (§4.1)
        return Forward("vary-miss" if variants else "uri-miss", may_store, None)
    if b"range" in request.names and has_two_codings(stored, variants):
        return _RANGE
    if stored.part is not None or (stored.bodiless and request.method != b"HEAD"):
        return _from_part(request, stored, directives, may_store, now)
    return _judge(stored, directives, may_store, now)


def select(request: Request, variants: Sequence[Stored]) -> Stored | None:
    """The newest stored response whose selecting fields match, a whole one if there is one (§4.1)."""
    fallback = None
    presented: dict[bytes, bytes | None] = {}
    for stored in variants:
        if stored.vary and not matches(stored, request, presented):
            continue
        if stored.part is None and (not stored.bodiless or request.method == b"HEAD"):
            return stored
        fallback = fallback or stored
    return fallback


def is_selected(stored: Stored, *, personal: bool) -> bool:
    """Tell whether the fields of a plain GET decide if a stored response answers it (§4.1).

    `personal` are the request's fields that identify its client.
    """
    return bool(stored.vary) and (personal or stored.vary not in _UNASKED)


def _judge(stored: Stored, directives: RequestDirectives, may_store: bool, now: float) -> Decision:
    remaining = stored.fresh_until - now
    # the stored response does not contain the no-cache directive, unless successfully validated (§5.2.2.4)
    if stored.no_cache:
        return _ask(stored, "stale", may_store, None)
    # the presented request does not contain the no-cache directive, unless successfully validated (§5.2.1.4)
    if directives.no_cache:
        return _ask(stored, "request", may_store, None)
    contented = directives is _NO_DIRECTIVES or _content_with(stored, directives, remaining, now)
    # the stored response is fresh (§4.2): response_is_fresh = (freshness_lifetime > current_age)
    if remaining > 0:
        if contented:
            return Reuse(stored, stored.age(now), "hit", False)
        return _ask(stored, "request", may_store, stored)
    # or allowed to be served stale (§4.2.4): by the client, or while it is validated (RFC 5861 §3)
    if contented and _endures(stored, directives, remaining):
        return Reuse(stored, stored.age(now), "max-stale", False)
    if contented and -remaining < stored.stale_while_revalidate and _accepts_stale(directives, remaining):
        return Reuse(stored, stored.age(now), "stale-while-revalidate", True)
    # or successfully validated (§4.3)
    usable = stored.stale_usable or stored.stale_if_error > 0
    return _ask(stored, "stale", may_store, stored if usable else None)


def _content_with(stored: Stored, directives: RequestDirectives, remaining: float, now: float) -> bool:
    """A client's max-age and min-fresh allow the response (§5.2.1); max-age=0 never does."""
    too_old = directives.max_age is not None and (
        directives.max_age == 0 or now - stored.born > directives.max_age
    )
    too_stale = directives.min_fresh is not None and remaining < directives.min_fresh
    return not (too_old or too_stale)


def _endures(stored: Stored, directives: RequestDirectives, remaining: float) -> bool:
    """A client's max-stale allows the response (§5.2.1.2), if it was fresh once."""
    once_fresh = stored.stale_usable and stored.lifetime > 0
    return once_fresh and directives.max_stale is not None and -remaining <= directives.max_stale


def _accepts_stale(directives: RequestDirectives, remaining: float) -> bool:
    """A client that said max-age also allowed stale responses with max-stale, or it said none (§5.2.1.1)."""
    return directives.max_age is None or (
        directives.max_stale is not None and -remaining <= directives.max_stale
    )


def _ask(stored: Stored, reason: str, may_store: bool, fallback: Stored | None) -> Decision:
    fields = conditions(stored) if may_store else []
    return Validate(stored, fields, reason, fallback) if fields else Forward(reason, may_store, fallback)


def _from_part(
    request: Request, stored: Stored, directives: RequestDirectives, may_store: bool, now: float
) -> Decision:
    """A stored 206, or the answer to a HEAD: reused for what it holds, completed for the rest (§3.3)."""
    judged = _judge(stored, directives, may_store, now)
    if not isinstance(judged, Reuse):
        return Forward(judged.reason, may_store, None)
    if stored.part is None or request.method == b"HEAD":
        return Forward("miss", may_store, None)
    ranges = requested_ranges(request.fields)
    if ranges is not None:
        validator = first(request.fields, b"if-range")
        wanted = validator is None or is_strong_match(stored, validator)
        held = cut(ranges, stored.part, len(stored.body)) if wanted else None
        return judged if held else Forward("miss", may_store, None)
    lacking = completion(stored) if may_store and first(request.fields, b"range") is None else []
    return Validate(stored, lacking, "partial", None) if lacking else Forward("miss", may_store, None)


def reuse_on_error(
    decision: Decision, request: Request, rules: Rules, status: int | None, now: float
) -> Reuse | None:
    """The stale response that replaces an error: a `status` of the origin server, or None for no answer.

    A disconnected cache may serve a stale response (§4.2.4). A 5xx is only replaced within the stale-if-error
    of the response or the client (RFC 5861 §4).
    """
    stored = decision.fallback if isinstance(decision, (Validate, Forward)) else None
    if stored is None:
        return None
    stale_for = now - stored.fresh_until
    honour = rules.client_directives == "honour"
    window = request_directives(request.fields).stale_if_error if honour else None
    within = stale_for <= max(stored.stale_if_error, (window or 0) if stored.stale_usable else 0)
    if status is None and (stored.stale_usable or within):
        return Reuse(stored, stored.age(now), "disconnected", False)
    # A stored error is no better than a newer one.
    if status in _ERRORS and within and stored.status not in _ERRORS:
        return Reuse(stored, stored.age(now), "stale-if-error", False)
    return None


def revalidation(request: Request, stored: Stored, rules: Rules) -> tuple[Request, Decision]:
    """The request and the decision with which a response served stale is fetched again in the background.

    The request is our own: of the client's fields it has the selecting and the ordinary ones. So what comes
    holds for all whom the stored response answers, and no client provokes it. A response that is kept for
    one user is fetched again with that user's own fields.
    """
    carried = rules.ordinary | {name for name, _ in stored.vary} | (request.names if request.user else set())
    fields = [field for field in request.fields if field[0] in carried - READS]
    usable = stored.stale_usable or stored.stale_if_error > 0
    return replace(request, method=b"GET", fields=fields), _ask(
        stored, "stale", True, stored if usable else None
    )


def lacks_condition(request: Request, decision: Decision) -> bool:
    """Tell whether a GET or HEAD goes out without any condition, so that 304 cannot answer it."""
    if request.method not in RETRIEVAL:
        return False
    return all(not name.startswith(b"if-") for name, _ in forwarded_fields(request, decision))


def keeps_conditions(request: Request, decision: Decision) -> bool:
    """The client's If-None-Match and If-Modified-Since are answered here, by what is stored (§4.3.2)."""
    if isinstance(decision, Validate):
        return True
    stores = isinstance(decision, Forward) and decision.may_store and not decision.passes_conditions
    return stores and request.method in RETRIEVAL


def forwarded_fields(request: Request, decision: Decision) -> Fields:
    """The request's end-to-end fields as the origin is to see them under this decision.

    Where the response may be stored, If-None-Match and If-Modified-Since are ours to answer (§4.3.2): the
    client's are kept back, so that a complete response comes, and a Validate has its own. Range is passed on.
    """
    fields = request.fields
    if isinstance(decision, Validate):
        # To complete a 206 its own range is asked for, not the client's.
        own = {b"range", b"if-range"} if decision.reason == "partial" else set()
        fields = [*without(fields, CLIENT_CONDITIONS | own), *decision.fields]
    elif not CLIENT_CONDITIONS.isdisjoint(request.names) and keeps_conditions(request, decision):
        fields = without(fields, CLIENT_CONDITIONS)
    ranges = b"range" in request.names and excessive(fields)
    return without(fields, [b"range", b"if-range"]) if ranges else fields


@dataclass(slots=True)
class Handling:
    """The cache's handling of a request: the parameters of its Cache-Status member (RFC 9211 §2).

    Immutable by convention. `reported_detail` is the detail as far as `fwd` does not say it already. `plain`
    remembers its Cache-Status field without a key.
    """

    hit: bool = False
    fwd: str = ""  # why the request went to the origin
    fwd_status: int = 0  # the origin's status, where it is not the one the client sees
    stored: bool = False
    collapsed: bool = False
    ttl: int | None = None  # seconds the response stays fresh; negative: stale for so long
    detail: str = ""  # a reason of errors.REASONS, or why something stored answers
    unstorable: str = ""  # a token: what kept the origin's response from being stored
    reported_detail: str = field(default="", init=False, repr=False, compare=False)
    plain: Fields | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.reported_detail = self.detail or (self.unstorable if self.unstorable != self.fwd else "")

    def member(self, key: bytes = b"") -> bytes:
        """The member that says so, with the parameter `key`."""
        member = b"univocal"
        if self.hit:
            member += b"; hit"
        if self.fwd:
            member += b"; fwd=%b" % self.fwd.encode()
        if self.fwd_status:
            member += b"; fwd-status=%d" % self.fwd_status
        if self.stored:
            member += b"; stored"
        if self.collapsed:
            member += b"; collapsed"
        if self.ttl is not None:
            member += b"; ttl=%d" % self.ttl
        member += key
        if detail := self.reported_detail:
            member += b"; detail=%b" % detail.encode()
        return member


def handling_of_hit(decision: Reuse, detail: str = "") -> Handling:
    """The handling of a stored response that is served as it is."""
    return hit_for(ttl_of(decision.stored, decision.age), detail)


def ttl_of(stored: Stored, age: int) -> int:
    """The seconds for which a stored response of this age stays fresh."""
    return int(stored.fresh_until - stored.born - age)


# Most requests are handled like earlier ones: equal handlings are one object.


@lru_cache(maxsize=1024)
def hit_for(ttl: int, detail: str) -> Handling:
    """The handling of a stored response that is served as it is, and stays fresh for `ttl` seconds."""
    return Handling(hit=True, ttl=ttl, detail=detail)


@lru_cache(maxsize=1024)
def handling_of_forward(fwd: str, stored: bool, unstorable: str) -> Handling:
    """The handling of a request that its own forward answered."""
    return Handling(fwd=fwd, stored=stored, unstorable=unstorable)
