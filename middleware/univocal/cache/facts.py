"""A response's facts: everything that reusing it takes, found out once, when it comes (RFC 9111 §3, §4.2).

`named` are a response's fields as `firsts` gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from univocal.cache.deception import contradicts
from univocal.cache.directives import TAGGING, ResponseDirectives, instructed, response_directives, tags
from univocal.cache.freshness import explicit_lifetime, heuristic_lifetime, initial_age
from univocal.cache.no_vary_search import no_vary_search
from univocal.cache.personal import IMPERSONAL, UNCREDENTIALED, is_for_everybody, is_ordinary
from univocal.cache.ranges import content_range
from univocal.cache.rules import Rules
from univocal.cache.stored import Selecting, Stored, render_head
from univocal.cache.vary import for_origin, selection, vary_names
from univocal.http.compiling import mypyc_attr
from univocal.http.fields import entity_tag, first, http_date, imf_fixdate, members, without
from univocal.http.forward import HOP_BY_HOP, connection_options
from univocal.http.messages import Fields, Request, Response, values

# RFC 9110 §15.1 less 300, 301 and 308: a redirect that an unkeyed field talked the origin into would be kept
# for everybody, so redirects need explicit freshness. An error is stored so if `storing` names it, too.
HEURISTIC_STATUS: Final = frozenset({200, 203, 204, 206, 404, 405, 410, 414, 501})
# RFC 9111 §3.1: fields of one connection, and those specific to a client's proxy; Age is computed anew each
# time.
_DROPPED: Final = HOP_BY_HOP | {b"age"}


@mypyc_attr(acyclic=True)
class Fetched:
    """A request, its response's head, and when the one was sent and the other came (seconds)."""

    def __init__(
        self, request: Request, response: Response, request_time: float, response_time: float
    ) -> None:
        self.request = request
        self.response = response
        self.request_time = request_time
        self.response_time = response_time


@mypyc_attr(acyclic=True)
class FieldIndex:
    """A response's fields as one pass over them finds them."""

    def __init__(self, named: dict[bytes, bytes], directives: ResponseDirectives) -> None:
        self.named = named  # the first line of each name
        self.directives = directives


@mypyc_attr(acyclic=True)
class Assessed:
    """The findings about a response on the way to the verdict."""

    def __init__(
        self,
        field_index: FieldIndex,
        fields: Fields,
        tags: frozenset[bytes],
        explicit: float | None,
        licensed: bool,
        lifetime: float,
        kept_for: Selecting = (),
        deceptive: bool = False,
        streams: bool = False,
    ) -> None:
        self.field_index = field_index
        self.fields = fields  # those that may be stored
        self.tags = tags  # those that the response names
        self.explicit = explicit
        # The origin gave a lifetime, the rules did, or it said that the response is public.
        self.licensed = licensed
        self.lifetime = lifetime
        self.kept_for = kept_for  # what requests must have in common with it beyond what its Vary names
        self.streams = streams  # they would have, but the content comes as it is made
        self.deceptive = deceptive  # the rules would have given a lifetime, but for its Content-Type


def index_fields(response: Response, rules: Rules) -> FieldIndex:
    """The first line of each of a response's fields, and the directives that are for this cache."""
    fields, targeted, index = _last[0]
    if not (response.fields is response.forwarded is fields and rules.targeted is targeted):
        named = dict(reversed(response.fields))
        index = FieldIndex(named, response_directives(response.fields, named, rules.targeted))
        if response.forwarded is response.fields:
            _last[0] = response.fields, rules.targeted, index
    if response.instructions is None:
        return index
    return FieldIndex(index.named, instructed(index.directives, response.instructions, response.status))


# The fields that were indexed last, of a head that the origin server repeats (`Response.forwarded`).
_last: Final[list[tuple[Fields, Iterable[bytes], FieldIndex]]] = [
    ([], (), FieldIndex({}, response_directives([], {}, ())))
]


def assess(fetched: Fetched, index: FieldIndex, rules: Rules) -> Assessed:
    """The findings about a response: its directives and its freshness lifetime."""
    request, response, response_time = fetched.request, fetched.response, fetched.response_time
    named, directives = index.named, index.directives
    fields = response.fields
    if directives.withheld or not _DROPPED.isdisjoint(named):
        fields = storable_fields(fields, index)
    own_tags = frozenset[bytes]() if TAGGING.isdisjoint(named) else tags(response.fields)
    if response.instructions is not None and response.instructions.tags:
        own_tags |= response.instructions.tags
    explicit = explicit_lifetime(directives, named, response_time)
    if explicit is not None:
        return Assessed(index, fields, own_tags, explicit, True, explicit)
    # Of ours: a response with fields for one client gets no lifetime but its origin server's.
    if (
        directives.malformed
        or directives.withheld
        or not is_for_everybody(request, fields, tells_cookies=rules.tells_cookies)
    ):
        return Assessed(index, fields, own_tags, None, False, 0)
    lifetime = _assigned_lifetime(fetched, index, rules)
    # Of ours: a response that says nothing of its freshness may be one client's without saying so.
    if lifetime > 0 and not is_ordinary(request.names, rules.ordinary, vary_names(response.fields) or ()):
        return Assessed(index, fields, own_tags, None, directives.public, 0)
    if lifetime > 0 and _streams(named):
        return Assessed(index, fields, own_tags, None, False, 0, streams=True)
    if contradicts(request.target, first(fields, b"content-type")):
        return Assessed(index, fields, own_tags, None, False, 0, deceptive=lifetime > 0)
    if lifetime <= 0:
        return Assessed(index, fields, own_tags, None, directives.public, lifetime)
    # The rules alone let it be shared: it answers requests whose own response they would let be stored.
    kept_for: Selecting = UNCREDENTIALED if rules.tells_cookies else IMPERSONAL
    kept_for = for_origin(() if directives.public else kept_for, request, fields)
    return Assessed(index, fields, own_tags, None, True, lifetime, kept_for)


# Content that is a conversation with one client, and lists that come while they are made.
_EVENTS: Final = frozenset((b"text/event-stream", b"multipart/x-mixed-replace"))
_LINES: Final = frozenset(
    (b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/json-seq")
)


def _streams(named: Mapping[bytes, bytes]) -> bool:
    """Tell whether content comes as it is made, by its type; a list of known length is whole."""
    media_type = named.get(b"content-type", b"").partition(b";")[0].strip(b" \t").lower()
    return media_type in _EVENTS or (media_type in _LINES and b"content-length" not in named)


def _assigned_lifetime(fetched: Fetched, index: FieldIndex, rules: Rules) -> float:
    """The lifetime of a response without explicit freshness: by the rules, else by heuristics (§4.2.2)."""
    response = fetched.response
    if response.status in rules.ttl_by_status:
        return rules.ttl_by_status[response.status]
    if rules.ttl and response.status in HEURISTIC_STATUS and response.status < 400:
        return rules.ttl
    # §4.2.2: a cache MUST NOT use heuristics when explicit freshness is present, and only if the status is
    # defined as heuristically cacheable or the response is marked as explicitly cacheable
    suits = response.status in HEURISTIC_STATUS or index.directives.public
    if rules.heuristic and suits:
        return heuristic_lifetime(index.named, fetched.response_time)
    return 0


def storable_fields(fields: Fields, index: FieldIndex) -> Fields:
    """The fields that may be stored (§3.1)."""
    named, withheld = index.named, index.directives.withheld
    if _DROPPED.isdisjoint(named) and not withheld:
        return fields
    connected = connection_options(fields) if b"connection" in named else frozenset[bytes]()
    return without(fields, _DROPPED | connected | withheld)


def describe(key: bytes, fetched: Fetched, assessed: Assessed, rules: Rules) -> Stored:
    """A response with all its facts but no content yet; whether it may be stored is not asked here."""
    request, response, response_time = fetched.request, fetched.response, fetched.response_time
    named, directives, fields = assessed.field_index.named, assessed.field_index.directives, assessed.fields
    date_line, modified_line, etag_line = named.get(b"date"), named.get(b"last-modified"), named.get(b"etag")
    if date_line is None:
        # RFC 9110 §6.6.1: a recipient MUST record the time it was received and append a Date if it is cached
        fields = [*fields, (b"date", imf_fixdate(response_time))]
    date = None if date_line is None else http_date(date_line, response_time)
    dated = response_time if date is None else date
    modified = None if modified_line is None else http_date(modified_line, response_time)
    etag = None if etag_line is None else entity_tag(etag_line)
    # RFC 9110 §8.8.2.2: a Last-Modified is strong if it is at least a second before the Date
    strong = modified_line if modified is not None and date is not None and modified < date else None
    if etag is not None:
        strong = None if etag.startswith(b"W/") else etag
    born = response_time - initial_age(named, dated, fetched.request_time, response_time)
    stale_usable, while_revalidate, if_error = _windows(assessed, rules)
    return Stored(
        key=key,
        status=response.status,
        head=render_head(response.status, fields),
        body=b"",
        vary=selection(response.fields, request, assessed.kept_for)
        if b"vary" in named or b"content-encoding" in named or request.verbatim or request.user
        else assessed.kept_for,
        response_time=response_time,
        born=born,
        fresh_until=born + assessed.lifetime,
        no_cache=directives.no_cache,
        stale_usable=stale_usable,
        stale_while_revalidate=while_revalidate,
        stale_if_error=if_error,
        etag=etag,
        last_modified=modified_line if modified is not None else None,
        modified=int(dated) if modified is None else modified,
        strong=strong,
        part=content_range(response.fields) if response.status == 206 else None,
        bodiless=request.method == b"HEAD",
        language=_language(fields) if b"content-language" in named else None,
        search=no_vary_search(fields) if b"no-vary-search" in named else None,
        tags=assessed.tags | request.tags if assessed.tags else request.tags,
        reusable=True,
        cost=0,
    )


def _language(fields: Fields) -> bytes | None:
    value = b",".join(values(fields, b"content-language"))
    languages = members(value.lower()) if len(value) <= 256 else []  # it is one tag that is looked for
    return languages[0] if len(languages) == 1 else None


def _windows(assessed: Assessed, rules: Rules) -> tuple[bool, float, float]:
    """Whether a response may be served stale, and for how long while it is validated, and on error."""
    directives = assessed.field_index.directives
    if directives.must_revalidate or directives.proxy_revalidate or directives.no_cache:
        return False, 0, 0
    # §4.2.4: a cache MUST NOT generate a stale response if it is prohibited by an explicit in-protocol
    # directive: no-cache, must-revalidate, an applicable s-maxage or proxy-revalidate; and what nothing
    # licensed to be fresh is not reused unvalidated under another name
    usable = directives.s_maxage is None and assessed.licensed
    # s-maxage implies proxy-revalidate, but "s-maxage=1, stale-while-revalidate=59" is said everywhere and
    # means what it says: an explicit window wins over the implication, and over it alone.
    window: float | None = directives.stale_while_revalidate
    if window is None:
        # Grace begins where a lifetime ends: without one there is nothing to prolong.
        window = rules.grace if usable and assessed.lifetime > 0 else 0
    return usable, window, directives.stale_if_error or 0
