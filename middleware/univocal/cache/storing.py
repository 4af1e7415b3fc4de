"""A cache may store a response, or must not (RFC 9111 §3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from univocal.cache.directives import TAGGING, ResponseDirectives, excessive, response_directives
from univocal.cache.facts import (
    HEURISTIC_STATUS,
    Assessed,
    Fetched,
    FieldIndex,
    assess,
    describe,
    index_fields,
)
from univocal.cache.freshness import explicit_lifetime
from univocal.cache.personal import is_for_everybody, is_ordinary
from univocal.cache.ranges import content_range, unified
from univocal.cache.rules import Rules
from univocal.cache.stored import NO_CONTENT, Stored, with_content
from univocal.cache.vary import vary_names
from univocal.http.fields import content_length_value, first, firsts
from univocal.http.grammar import TOKEN_OCTETS
from univocal.http.messages import Response
from univocal.http.methods import RETRIEVAL

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
_PASSED_BY: Final = 120.0
_ERROR_PASSED_BY: Final = 10.0


def passed_by(rules: Rules, status: int) -> float:
    """Seconds for which requests do not wait for one another after an answer that could not be stored.

    The status 0 says that there was no answer.
    """
    most = _PASSED_BY if 0 < status < 400 else _ERROR_PASSED_BY
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
