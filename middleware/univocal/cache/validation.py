"""Validation: conditional requests and what comes back; invalidation (RFC 9111 §4.3, §4.4, §3.2, §3.3).

Once the origin server has answered a request, no stored response that the request selects is used, unless the
answer confirmed it. See RFC 9111 §4.3.3 to §4.3.5 and RFC 9110 §13.1.2. There is one exception: a client may
have provoked an answer by its own request's fields. Such an answer is for that client alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from univocal.cache.directives import groups, tags
from univocal.cache.personal import CREDENTIALS, PERSONAL, oddities
from univocal.cache.ranges import content_range, is_doubted, missing
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored, with_content
from univocal.cache.storing import (
    ABOUT_RESOURCE,
    Fetched,
    assess,
    describe,
    forbids_storing,
    index_fields,
    may_set_cookies,
    may_store,
    storable_fields,
)
from univocal.cache.vary import could_answer, joint_vary, selection_renewed, vary_names
from univocal.http.messages import (
    SAFE,
    Fields,
    Request,
    Response,
    coding_of,
    content_length,
    entity_tag,
    first,
    opaque_tag,
    without,
)

CLIENT_CONDITIONS: Final = frozenset((b"if-none-match", b"if-modified-since"))
"""A client's preconditions that a cache evaluates itself, by what it stores (RFC 9111 §4.3.2)."""

# RFC 9111 §3.2: fields that a 304 or a HEAD does not update, since the stored content was framed by them.
_EXCEPTED: Final = frozenset({b"content-encoding", b"content-length", b"content-range", b"content-type"})


def conditions(stored: Stored) -> Fields:
    """The conditional fields that validate a stored response, none if it has no validator (§4.3.1)."""
    fields: Fields = []
    if stored.status >= 300 or not stored.whole:
        return fields
    if stored.etag is not None:
        fields.append((b"if-none-match", stored.etag))
    if stored.last_modified is not None:
        fields.append((b"if-modified-since", stored.last_modified))
    return fields


def completion(stored: Stored) -> Fields:
    """The fields that ask for what a stored 206 lacks; none if no single range would complete it.

    A weak validator identifies no bytes: with only a weak one, the request is for the whole. Without any
    validator the range goes on unchanged. Its answer is never combined: if it is a part, it is requested
    again.
    """
    lack = missing(stored.part, len(stored.body)) if stored.part is not None else None
    if lack is None:
        return []
    start, end = lack
    fields: Fields = [(b"range", b"bytes=%d-" % start if end is None else b"bytes=%d-%d" % (start, end))]
    if stored.strong is not None:
        return [*fields, (b"if-range", stored.strong)]
    return fields if stored.etag is None and stored.last_modified is None else []


def freshen(stored: Stored, fetched: Fetched, rules: Rules) -> Stored | None:
    """The stored response updated by a 304, or by a 200 to a HEAD (§4.3.4, §4.3.5).

    None if the response speaks of another representation: it then updates nothing. A response that may not be
    stored any longer comes back with `reusable` False: it answers this request, and its predecessor goes.
    The answer to one client's HEAD updates at most a response that it confirms, and ends none.
    """
    request, response = fetched.request, fetched.response
    confirmed = response.status == 304
    # §4.3.5: a HEAD's 200 updates a stored GET response if validators and Content-Length match.
    if not confirmed and (response.status != 200 or stored.status != 200 or stored.part is not None):
        return None
    personal = not confirmed and not PERSONAL.isdisjoint(request.names)
    likeness = likeness_of(stored, response)
    # Without a validator it is of what was asked about, unless one client may have provoked it.
    if likeness is Likeness.OTHER or (likeness is Likeness.UNKNOWN and personal):
        return None
    fields = _updated(stored.fields, _not_upgrading(stored, response.fields), rules)
    updated = Response(stored.status, fields, instructions=response.instructions)
    built = _rebuilt(stored, fetched, updated, rules, stored.body)
    if not may_set_cookies(assess(fetched, index_fields(fetched.response, rules), rules), rules):
        # That the stored response may be shared with its cookies was said of those, not of these.
        built = replace(built, reusable=False)
    return built if built.reusable or not personal else None


def _rebuilt(stored: Stored, fetched: Fetched, updated: Response, rules: Rules, body: bytes) -> Stored:
    """A stored response anew from its updated fields; its age is that of the fetched response."""
    dated = [field for field in fetched.response.fields if field[0] in {b"age", b"date"}]
    aged = replace(updated, fields=[*without(updated.fields, [b"date"]), *dated])
    request = fetched.request
    # The validating client's own fields do not make content personal that was just confirmed.
    own = oddities(request, rules.ordinary) - CREDENTIALS
    impersonal = replace(request, method=b"GET", fields=without(request.fields, own))
    news = Fetched(impersonal, aged, fetched.request_time, fetched.response_time)
    judged = may_store(stored.key, news, rules)
    kept = isinstance(judged, Stored)
    fresh = judged if isinstance(judged, Stored) else _described(stored.key, news, rules)
    vary = selection_renewed(stored, fresh, request)
    strong = None if is_doubted(stored) else fresh.strong
    # Tags that an application has given stand in no field: a 304 need not repeat them.
    given = stored.tags - tags(stored.fields) if stored.tags else stored.tags
    fresh = replace(
        fresh, vary=vary, strong=strong, bodiless=stored.bodiless, reusable=kept, tags=fresh.tags | given
    )
    return with_content(fresh, body)


def _described(key: bytes, fetched: Fetched, rules: Rules) -> Stored:
    return describe(key, fetched, assess(fetched, index_fields(fetched.response, rules), rules), rules)


def _not_upgrading(stored: Stored, fields: Fields) -> Fields:
    """A response's fields without an entity-tag that would make the stored weak one strong.

    A server may weaken the entity-tags of content that it compresses, and leave those of its 304s as they
    were. That promises nothing about the stored bytes.
    """
    etag = entity_tag(first(fields, b"etag"))
    upgrading = etag is not None and stored.etag == b"W/" + etag
    return without(fields, [b"etag"]) if upgrading else fields


def _updated(old: Fields, new: Fields, rules: Rules) -> Fields:
    """Every field of the new response in place of those of its name, but for the excepted ones (§3.2)."""
    news = without(storable_fields(new, index_fields(Response(200, new), rules)), _EXCEPTED)
    if first(old, b"vary") is not None and first(news, b"vary") is not None:
        news = [*without(news, (b"vary",)), *joint_vary(old, news)]
    return [*without(old, {name for name, _ in news}), *news]


def combine(stored: Stored, fetched: Fetched, body: bytes, rules: Rules) -> Stored | None:
    """A stored 206 and a new one as one response, a 200 once nothing lacks (§3.3, RFC 9110 §15.3.7.3).

    None if they do not share a strong validator and a coding, do not touch, or may not be stored together.
    """
    response = fetched.response
    old, new = stored.part, content_range(response.fields)
    if response.status != 206 or old is None or new is None or old.complete != new.complete:
        return None
    exact = (len(stored.body), len(body)) == (old.last - old.first + 1, new.last - new.first + 1)
    touching = new.first <= old.last + 1 and old.first <= new.last + 1
    other = _described(stored.key, fetched, rules)
    if not exact or not touching or stored.strong is None or stored.strong != other.strong:
        return None
    if coding_of(stored.fields) != coding_of(response.fields):
        return None
    # The newer bytes count where both have them.
    before = stored.body[: max(0, new.first - old.first)]
    after = stored.body[max(0, new.last + 1 - old.first) :]
    joined = before + body + after
    start = min(old.first, new.first)
    whole = start == 0 and len(joined) == old.complete
    fields = without(_updated(stored.fields, response.fields, rules), [b"content-range", b"content-length"])
    if not whole:
        total = b"*" if old.complete is None else b"%d" % old.complete
        fields.append((b"content-range", b"bytes %d-%d/%b" % (start, start + len(joined) - 1, total)))
    joint = Response(200 if whole else 206, fields, instructions=response.instructions)
    built = _rebuilt(stored, fetched, joint, rules, joined)
    return built if built.reusable else None


def invalidates(request: Request, response: Response) -> tuple[list[bytes], frozenset[bytes]] | None:
    """The URI references and groups that a response makes obsolete besides its target; None: not even that.

    The caller resolves the references and drops those of another origin (§4.4: they MUST NOT be invalidated).
    """
    # A cache MUST invalidate the target URI when it receives a non-error status code in response to an unsafe
    # request method, including methods whose safety is unknown: a non-error response is a 2xx or 3xx
    if request.method in SAFE or not 200 <= response.status < 400:
        return None
    # and can also invalidate the URIs in the Location and Content-Location header fields
    named = (first(response.fields, name) for name in (b"location", b"content-location"))
    references = [reference for reference in named if reference is not None]
    return list(dict.fromkeys(references)), groups(response.fields, b"cache-group-invalidation")


# An answer of the origin server comes after stored responses: it confirms, replaces or ends them.

UNKEEPABLE: Final = frozenset({"too-large", "no-room"})
"""Reasons for which a response is not stored that say nothing against it, or of whom it is for."""


class Effect(Enum):
    """The effects of an answer on the stored responses that its request selects."""

    CONFIRMS = "they are current: the one that the answer renews takes the place of all"
    REPLACES = "they are not current: the answer is stored in their place"
    ENDS = "they are not current, and nothing takes their place"
    AGES = "they may not be current: they are stale from now on"
    LEAVES = "the answer says nothing of them"


class Requester(Enum):
    """The senders of a request."""

    OURSELVES = "this cache, in the background"
    ANYBODY = "a client, with ordinary fields alone"
    SOMEBODY = "a client, with fields of its own"


class Likeness(Enum):
    """A response's validators and length beside those of a stored one."""

    SAME = "the same validators"
    UNKNOWN = "no validators, and no other length"
    OTHER = "other validators, or another length"


class Findings(NamedTuple):
    """The findings about an answer, beside a stored response that its request selects."""

    method: bytes
    status: int
    requester: Requester
    conditional: bool = False  # the request had a condition of ours
    unstorable: str = ""  # the reason for which it, or what it renews, is not stored
    likeness: Likeness = Likeness.UNKNOWN
    whole: bool = True  # the stored response could answer a GET with 200
    changes_use: bool = False  # of a 304: it forbids to store what it is about, or changes its Vary
    shortens: bool = False  # of a 304: what it is about is fresh for less time


def effect_of(answer: Findings) -> Effect:
    """The effect of an answer on the stored responses that its request selects."""
    status, stored = answer.status, not answer.unstorable
    if status == 304:
        return _effect_of_304(answer)
    if answer.method == b"HEAD":
        return _effect_of_head(answer)
    if answer.method != b"GET":  # whether it invalidates is another matter (§4.4)
        return Effect.REPLACES if stored else Effect.LEAVES
    if stored or answer.unstorable in UNKEEPABLE:
        # A part of what is stored as a whole does not displace it.
        if status == 206 and answer.whole and answer.likeness is Likeness.SAME:
            return Effect.LEAVES
        return Effect.REPLACES if stored else Effect.ENDS
    if status >= 500 or status == 429:
        return Effect.LEAVES
    match answer.requester:
        case Requester.OURSELVES:
            return Effect.ENDS
        case Requester.ANYBODY if status == 206:  # a Range field brings about a part, but no other validators
            return Effect.ENDS if answer.likeness is Likeness.OTHER else Effect.LEAVES
        case Requester.ANYBODY if tells_of_resource(status):
            return Effect.ENDS
        case _:
            return Effect.LEAVES


def _effect_of_304(answer: Findings) -> Effect:
    if not answer.unstorable:
        return Effect.CONFIRMS
    if answer.changes_use or answer.requester is not Requester.SOMEBODY:
        return Effect.ENDS
    # Effects of one client's fields, such as a cookie that is set, are not said of all.
    return Effect.AGES if answer.shortens else Effect.LEAVES


def _effect_of_head(answer: Findings) -> Effect:
    """A HEAD tells of the answer to a GET (RFC 9111 §4.3.5), as far as origin servers implement it."""
    replaces = Effect.ENDS if answer.unstorable else Effect.REPLACES
    somebody = answer.requester is Requester.SOMEBODY
    if answer.status != 200:
        if not answer.unstorable:
            # The answer to a GET has content besides.
            return Effect.LEAVES if answer.likeness is Likeness.SAME else Effect.REPLACES
        return Effect.AGES if answer.status in ABOUT_RESOURCE and not somebody else Effect.LEAVES
    if somebody and answer.unstorable:
        return Effect.LEAVES
    # A 200 to a condition that the stored response fulfils says that it is not current (RFC 9110 §13.1.2).
    unlike = answer.likeness is Likeness.OTHER or (answer.conditional and answer.likeness is Likeness.UNKNOWN)
    if not answer.whole or (unlike and answer.conditional):
        return replaces
    if somebody:
        return replaces if unlike else Effect.LEAVES
    return Effect.AGES if unlike else Effect.CONFIRMS


def tells_of_resource(status: int) -> bool:
    """True if a status tells of the resource, not of this request or a bad moment of the origin server."""
    return status < 400 or status in ABOUT_RESOURCE


def requester_of(request: Request, status: int, rules: Rules, older: Sequence[Stored]) -> Requester:
    """The sender of a client's request: somebody, if fields of its own may have brought the status about.

    A field that selects each of the older responses is not its own: whoever could get these has it, too.
    """
    unsatisfied = status == 416 and b"range" in request.names
    odd = request.names - rules.ordinary
    own = unsatisfied or not all(_selects(name, stored) for name in odd for stored in older)
    return Requester.SOMEBODY if own else Requester.ANYBODY


def _selects(name: bytes, stored: Stored) -> bool:
    """The response is for requests that have the same value of a field, not for those without it."""
    return any(selecting == name and value is not None for selecting, value in stored.vary)


def selected(request: Request, held: Sequence[Stored]) -> list[Stored]:
    """Those of the stored responses of a key that the request selects, newest first (RFC 9111 §4.1)."""
    presented = dict[bytes, bytes | None]()
    return [stored for stored in held if could_answer(stored, request, presented)]


def foremost(stored: Sequence[Stored]) -> Stored:
    """The one that an answer is compared with: the newest whole one, else the newest."""
    return next((one for one in stored if one.whole), stored[0])


def likeness_of(stored: Stored, response: Response) -> Likeness:
    """A response's likeness to a stored one, by its validators (§4.3.4), else by its status and length."""
    status = response.status
    length = content_length(response.fields)
    as_long = length is None or stored.bodiless or length == len(stored.body)
    as_long = status in {206, 304} or (as_long and status == stored.status)
    etag = entity_tag(first(response.fields, b"etag"))
    if etag is not None:
        same = stored.etag is not None and opaque_tag(etag) == opaque_tag(stored.etag)
    else:
        modified = first(response.fields, b"last-modified")
        # A 304 that confirms an entity-tag may bring the first date.
        if modified is None or (status == 304 and stored.etag is not None and stored.last_modified is None):
            return Likeness.UNKNOWN if as_long else Likeness.OTHER
        same = modified == stored.last_modified
    return Likeness.SAME if same and as_long else Likeness.OTHER


def changes_use(stored: Stored, renewed: Stored, rules: Rules) -> bool:
    """A renewed response may not be stored by the origin server's word, or is for other requests."""
    fields = renewed.fields
    return forbids_storing(Response(renewed.status, fields), rules) or (
        vary_names(fields) != vary_names(stored.fields)
    )
