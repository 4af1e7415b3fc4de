"""A cache may store a response, or must not (RFC 9111 §3), by what is found out once, when it comes.

That is all that reusing it takes: its freshness lifetime and its age at its arrival (§4.2) among them.
`Stored.age` in `stored.py` is the current age. `named` are a response's fields as `firsts` gives them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from univocal.cache.directives import (
    TAGGING,
    ResponseDirectives,
    excessive,
    instructed,
    no_vary_search,
    response_directives,
    tags,
)
from univocal.cache.personal import IMPERSONAL, UNCREDENTIALED, is_for_everybody, is_ordinary
from univocal.cache.ranges import content_range, unified
from univocal.cache.rules import Rules
from univocal.cache.stored import NO_CONTENT, Selecting, Stored, render_head, with_content
from univocal.cache.vary import for_origin, selection, vary_names
from univocal.http.compiling import mypyc_attr
from univocal.http.grammar import TOKEN_OCTETS
from univocal.http.intermediary import HOP_BY_HOP, connection_options
from univocal.http.messages import (
    RETRIEVAL,
    Fields,
    Request,
    Response,
    age_value,
    content_length_value,
    entity_tag,
    first,
    firsts,
    http_date,
    imf_fixdate,
    members,
    values,
    without,
)

# Freshness

HEURISTIC_LIMIT: Final = 86_400


def date_value(named: Mapping[bytes, bytes], response_time: float) -> float:
    """The time of the response's Date; without a readable one, that of its receipt (RFC 9110 §6.6.1)."""
    date = http_date(named.get(b"date"), response_time)
    return response_time if date is None else date


def initial_age(
    named: Mapping[bytes, bytes], date: float, request_time: float, response_time: float
) -> float:
    """The corrected initial age in seconds, never negative (RFC 9111 §4.2.3); `date` is the `date_value`."""
    # apparent_age = max(0, response_time - date_value); a Date has whole seconds, so its fraction is no age.
    apparent_age = max(0, int(response_time - date))
    age = age_value(named.items()) if b"age" in named else 0
    # response_delay = response_time - request_time; corrected_age_value = age_value + response_delay
    corrected_age_value = age + max(0.0, response_time - request_time)
    return max(apparent_age, corrected_age_value)


def clock_lag(fields: Fields, lifetime: float, response_time: float) -> int:
    """The seconds by which a sender's clock is behind, if that makes its response stale at once; else 0.

    A cache on the way says by Age that the response is old: that is no clock.
    """
    named = firsts(fields)
    if b"age" in named or lifetime <= 0:
        return 0
    behind = int(response_time - date_value(named, response_time))
    return behind if behind >= lifetime else 0


def explicit_lifetime(
    directives: ResponseDirectives, named: Mapping[bytes, bytes], response_time: float
) -> float | None:
    """Seconds that the origin server said, None if it said nothing (RFC 9111 §4.2.1)."""
    # If the cache is shared and s-maxage is present, use its value
    if directives.s_maxage is not None:
        return directives.s_maxage
    # If max-age is present, use its value
    if directives.max_age is not None:
        return directives.max_age
    # RFC 9213 §2.2: with a targeted field Expires does not count
    expires = None if directives.targeted else named.get(b"expires")
    if expires is None:
        return None
    # §5.3: an invalid date, especially "0", is a time in the past. Else: Expires minus Date
    instant = http_date(expires, response_time)
    return 0 if instant is None else max(0.0, instant - date_value(named, response_time))


def heuristic_lifetime(named: Mapping[bytes, bytes], response_time: float) -> float:
    """A tenth of the time since Last-Modified, a day at most (RFC 9111 §4.2.2)."""
    modified = http_date(named.get(b"last-modified"), response_time)
    if modified is None:
        return 0
    return min(max(0.0, (date_value(named, response_time) - modified) / 10), HEURISTIC_LIMIT)


# The facts of a response

# RFC 9110 §15.1 less 300, 301 and 308: a redirect that an unkeyed field talked the origin into would be kept
# for everybody, so redirects need explicit freshness. An error is stored so if `ABOUT_RESOURCE` has it.
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
    if not (response.fields is response.client_fields is fields and rules.targeted is targeted):
        named = dict(reversed(response.fields))
        index = FieldIndex(named, response_directives(response.fields, named, rules.targeted))
        if response.client_fields is response.fields:
            _last[0] = response.fields, rules.targeted, index
    if response.instructions is None:
        return index
    return FieldIndex(index.named, instructed(index.directives, response.instructions, response.status))


# The fields that were indexed last, of a head that the origin server repeats (`Response.client_fields`).
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


# The verdict

# Statuses that only update what is stored (304), that must not be stored (RFC 6585: 428, 429, 431, 511), or
# whose definition speaks of one client's request, of what is in no key: its credentials (401, 407), the
# representations it accepts (406), its pace, its framing, its content (408, 411, 413, 415, 422), its
# conditions, range and expectation (412, 416, 417), its connection (421, 425, 426). 400 and 403 may speak of
# the target, and are left to the origin server's word.
_NEVER: Final = frozenset(
    {304, 401, *range(406, 409), 411, 412, 413, *range(415, 418), 421, 422, 425, 426, 428, 429, 431, 511}
)

# Errors that tell of the resource whatever the request was like.
ABOUT_RESOURCE: Final = frozenset({404, 410})

# "Understood" as must-understand has it (RFC 9111 §5.2.2.3): the final statuses of RFC 9110 §15, and 451.
_UNDERSTOOD: Final = frozenset(
    {*range(200, 207), 300, 301, 302, 303, 307, 308, *range(400, 418), 421, 422, 426, 451, *range(500, 506)}
)

DIRECTED: Final = frozenset(("must-understand", "no-store", "private"))
"""The reasons that a response's own fields give, whatever was asked for and whenever it came."""


# Looked for as numbers: looking for bytes in bytes takes CPython a hidden exception.
_CR: Final = 0x0D
_LF: Final = 0x0A
_NUL: Final = 0
# The bytes of a field's name, in lower case (RFC 9110 §5.6.2).
_NAME: Final = TOKEN_OCTETS.lower()


@dataclass(slots=True, init=False)
class Unstorable:
    """A response is not stored, for this reason: a token, as in Cache-Status (RFC 9211 §2.8)."""

    reason: str

    def __init__(self, reason: str) -> None:
        self.reason = reason


def may_store(key: bytes, fetched: Fetched, rules: Rules) -> Stored | Unstorable:
    """The response as it would be stored, its content still to come, or why it must not be (RFC 9111 §3)."""
    if fetched.response.status == 206 and fetched.request.method == b"GET":
        whole, times = unified(fetched.response), (fetched.request_time, fetched.response_time)
        fetched = Fetched(fetched.request, whole, *times)
    index = index_fields(fetched.response, rules)
    # The directives say no to most of what is not stored: they are asked before anything else is read.
    if reason := _forbidden(key, fetched, index, rules):
        return Unstorable(reason)
    assessed = assess(fetched, index, rules)
    if assessed.streams:
        return Unstorable("streaming")
    if reason := _unkeepable(fetched.response, assessed) or _unlicensed(fetched, assessed, rules):
        return Unstorable("deceptive-type" if assessed.deceptive and reason in _WITHOUT_LIFETIME else reason)
    stored = describe(key, fetched, assessed, rules)
    # A response that is stale at once and cannot be validated would never be of use.
    usable = assessed.lifetime > 0 and not index.directives.no_cache
    validatable = stored.etag is not None or stored.last_modified is not None
    windows = stored.stale_while_revalidate > 0 or stored.stale_if_error > 0
    if usable or validatable or windows:
        return stored
    return Unstorable("deceptive-type" if assessed.deceptive else "no-freshness")


# The reasons that a lifetime by the rules would have removed.
_WITHOUT_LIFETIME: Final = frozenset(("status-no-freshness", "personal"))


def _forbidden(key: bytes, fetched: Fetched, index: FieldIndex, rules: Rules) -> str:
    """The reason for which RFC 9111 §3 says MUST NOT, or the rules do, or ""."""
    request, response = fetched.request, fetched.response
    status = response.status
    # the request method is understood by the cache
    if request.method not in RETRIEVAL and not _post_allows(key, fetched, index):
        return "method"
    # the response status code is final
    if status < 200 or status in _NEVER:
        return "status"
    # if the response status code is 206 or 304, or the must-understand cache directive is present: the cache
    # understands the response status code
    if status == 206 and content_range(response.fields) is None:
        return "partial"
    if reason := _directed(index.directives, status):
        return reason
    # if the cache is shared: the Authorization header field is not present in the request or a response
    # directive is present that explicitly allows shared caching (§3.5)
    if b"authorization" in request.names and not _shared(index.directives):
        return "authorization"
    # and of ours: an error that one request's own fields may have provoked is not everybody's
    is_provoked = status >= 400 and rules.errors == "safe" and status not in ABOUT_RESOURCE
    if is_provoked and status not in rules.ttl_by_status:
        return "error"
    return ""


def _directed(directives: ResponseDirectives, status: int) -> str:
    """The directive that forbids a shared cache to store the response, or ""."""
    if directives.must_understand:
        # and then no-store does not count (§5.2.2.3)
        if status not in _UNDERSTOOD:
            return "must-understand"
    # the no-store cache directive is not present in the response
    elif directives.no_store:
        return "no-store"
    # if the cache is shared: the private response directive is either not present or allows a shared cache to
    # store a modified response
    return "private" if directives.private else ""


def forbids_storing(response: Response, rules: Rules) -> bool:
    """The origin server lets no shared cache use this response for others, whoever asked."""
    directives = index_fields(response, rules).directives
    return bool(_directed(directives, response.status)) or vary_names(response.fields) is None


def _unkeepable(response: Response, assessed: Assessed) -> str:
    """The reason for which a response cannot be kept, or ""."""
    named = assessed.field_index.named
    # §4.1: a stored response with a Vary header field value containing "*" always fails to match
    if b"vary" in named and vary_names(response.fields) is None:
        starred = any(name == b"vary" and b"*" in value for name, value in response.fields)
        return "vary-star" if starred else "vary"
    # Bytes that would end a line early do not get into a head.
    text = b"".join([value for _, value in response.fields])
    if b"" in named or b"".join(named).translate(None, _NAME) or _CR in text or _LF in text or _NUL in text:
        return "malformed"
    if (assessed.tags or not TAGGING.isdisjoint(named)) and excessive(response.fields, assessed.tags):
        return "tags"
    return ""


def shares_with_credentials(stored: Stored, rules: Rules) -> bool:
    """The origin server lets answers to requests with Authorization be shared (§3.5)."""
    fields = stored.fields
    return _shared(response_directives(fields, firsts(fields), rules.targeted))


def _shared(directives: ResponseDirectives) -> bool:
    # must-revalidate, public, s-maxage (§3.5)
    return directives.must_revalidate or directives.public or directives.s_maxage is not None


def _post_allows(key: bytes, fetched: Fetched, index: FieldIndex) -> bool:
    request, response, response_time = fetched.request, fetched.response, fetched.response_time
    # RFC 9110 §9.3.3: responses to POST are only cacheable when they include explicit freshness information
    # and a Content-Location header field that has the same value as the POST's target URI
    if request.method != b"POST" or response.status != 200:
        return False
    if not explicit_lifetime(index.directives, index.named, response_time):
        return False
    scheme, authority = (*key.split(b" ")[1:3], b"", b"")[:2]
    return index.named.get(b"content-location") in {
        request.target,
        b"%b://%b%b" % (scheme, authority, request.target),
    }


def _unlicensed(fetched: Fetched, assessed: Assessed, rules: Rules) -> str:
    """The reason for which nothing allows to store the response, or ""."""
    status, directives = fetched.response.status, assessed.field_index.directives
    if b"set-cookie" in assessed.field_index.named and not may_set_cookies(assessed, rules):
        return "set-cookie"
    if assessed.lifetime > 0:
        return ""
    shared = _for_all(directives)
    # the response contains at least one of: a public response directive; an Expires header field; a max-age
    # or s-maxage response directive; a status code that is defined as heuristically cacheable; and, of ours,
    # a lifetime given by the rules, as above
    if not (shared or status in HEURISTIC_STATUS or assessed.explicit is not None):
        return "status-no-freshness"
    # A response that is validated at each use must not be one client's: its validator may be everybody's.
    # With no-cache the origin server has spoken of it; else none but ordinary requests will do.
    if shared:
        return ""
    spoken = assessed.explicit is not None or directives.no_cache
    names, selecting = fetched.request.names, vary_names(fetched.response.fields) or ()
    impersonal = spoken or is_ordinary(names, rules.ordinary, selecting)
    if impersonal and is_for_everybody(fetched.request, assessed.fields, tells_cookies=rules.tells_cookies):
        return ""
    # The rules have a lifetime, but none for a response that may be one client's.
    cookie = b"cookie" in fetched.request.names
    return "cookie" if rules.ttl > 0 and cookie and not rules.tells_cookies else "personal"


def may_set_cookies(assessed: Assessed, rules: Rules) -> bool:
    """The rules let a response be stored with the cookies that it sets, if any."""
    if b"set-cookie" not in assessed.field_index.named or first(assessed.fields, b"set-cookie") is None:
        return True
    shared = _for_all(assessed.field_index.directives)
    allowed = {"public": shared, "explicit": shared or assessed.explicit is not None, "never": False}
    return allowed[rules.set_cookie]


def _for_all(directives: ResponseDirectives) -> bool:
    return directives.public or directives.s_maxage is not None


# Seconds for which requests wait for one another no more, at most: once a response could not be stored, once
# there was an error or no response.
_UNCOLLAPSED: Final = 120.0
_ERROR_UNCOLLAPSED: Final = 10.0


def uncollapsed_seconds(rules: Rules, status: int) -> float:
    """Seconds for which requests do not wait for one another after an answer that could not be stored.

    The status 0 says that there was no answer.
    """
    most = _UNCOLLAPSED if 0 < status < 400 else _ERROR_UNCOLLAPSED
    return min(rules.ttl_by_status.get(status, rules.ttl) or most, most)


def complete(stored: Stored, body: bytes) -> Stored | None:
    """The stored response with its content; None if this cannot be all of it."""
    if not stored.bodiless:
        if stored.head.find(b"\r\ncontent-length: %d\r\n" % len(body)) < 0:
            length = content_length_value(stored.line(b"content-length"))
            if length is not None and length != len(body) and stored.status not in NO_CONTENT:
                return None
        # A 206 may be shorter than its Content-Range says (it is then never combined), but not longer.
        if stored.part is not None and not 0 < len(body) <= stored.part.last - stored.part.first + 1:
            return None
    return with_content(stored, body)


# Web cache deception: a path ends like a static file, and the response is none.

_JAVASCRIPT: Final = (
    b"text/javascript",
    b"application/javascript",
    b"application/x-javascript",
    b"text/ecmascript",
)
_SOUND: Final = (b"audio/", b"video/", b"application/ogg")
_ANY: Final = (b"application/",)
_TYPES: Final[dict[bytes, tuple[bytes, ...]]] = {
    b"css": (b"text/css",),
    b"js": _JAVASCRIPT,
    b"mjs": _JAVASCRIPT,
    b"map": (b"application/json", *_JAVASCRIPT),
    b"json": (b"application/", b"text/json", b"text/plain"),
    b"txt": (b"text/plain",),
    b"csv": (b"text/csv", b"text/plain", b"application/"),
    b"xml": (b"application/", b"text/xml"),
    b"pdf": (b"application/pdf",),
    b"wasm": (b"application/wasm",),
    **dict.fromkeys((b"png", b"jpg", b"jpeg", b"gif", b"webp", b"avif"), (b"image/",)),
    **dict.fromkeys((b"bmp", b"ico", b"svg", b"svgz"), (b"image/",)),
    **dict.fromkeys((b"woff", b"woff2", b"ttf", b"otf", b"eot"), (b"font/", b"application/")),
    **dict.fromkeys((b"mp4", b"webm", b"mkv", b"mov", b"m4v", b"ogv"), (b"video/",)),
    **dict.fromkeys((b"mp3", b"ogg", b"oga", b"wav", b"flac", b"m4a", b"aac"), _SOUND),
    **dict.fromkeys((b"zip", b"gz", b"tgz", b"bz2", b"xz", b"zst", b"7z", b"rar", b"tar", b"jar"), _ANY),
    **dict.fromkeys((b"doc", b"docx", b"xls", b"xlsx", b"ppt", b"pptx"), _ANY),
    **dict.fromkeys((b"exe", b"msi", b"dmg", b"iso"), _ANY),
}


# The bytes at which some server ends a name, as they are or escaped: anything but letters, digits and
# "-._~".
_DELIMITER: Final = re.compile(rb"%[0-9A-Fa-f]{2}|[^0-9A-Za-z._~-]")
_DOT: Final = re.compile(rb"%2[Ee]")


def contradicts(target: bytes, content_type: bytes | None) -> bool:
    """The Content-Type is none of those that an extension at the end of the path stands for.

    The end is the last segment with a name, with what follows it: "/a.css/", "/a;x.css", "/a.css%20".
    """
    path = target.partition(b"?")[0]
    if b"%2" in path:
        path = _DOT.sub(b".", path)
    if b"." not in path:
        return False
    names = _last_names(path)
    essence = (content_type or b"").partition(b";")[0].strip(b" \t").lower()
    return any(_is_none_of(_TYPES.get(name.rpartition(b".")[2].lower()), essence) for name in names)


def _last_names(path: bytes) -> list[bytes]:
    names: list[bytes] = []
    for segment in reversed(path.split(b"/")):
        pieces = _DELIMITER.split(segment)
        names += [piece for piece in pieces if b"." in piece]
        if pieces[0]:
            break
    return names


def _is_none_of(expected: tuple[bytes, ...] | None, essence: bytes) -> bool:
    if expected is None:
        return False
    html = essence in {b"application/xhtml+xml", b"text/html"}
    return html or not (essence.startswith(expected) or essence == b"application/octet-stream")
