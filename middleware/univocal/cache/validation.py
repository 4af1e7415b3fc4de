"""Validation: conditional requests and what comes back; invalidation (RFC 9111 §4.3, §4.4, §3.2, §3.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from univocal.cache.directives import groups, tags
from univocal.cache.personal import CREDENTIALS, PERSONAL, oddities
from univocal.cache.ranges import content_range, is_doubted, missing
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored, with_content
from univocal.cache.storing import (
    Fetched,
    assess,
    describe,
    index_fields,
    may_set_cookies,
    may_store,
    storable_fields,
)
from univocal.cache.vary import joint_vary, selection_renewed
from univocal.http.fields import coding_of, content_length, entity_tag, first, opaque_tag, without
from univocal.http.messages import Fields, Request, Response
from univocal.http.methods import SAFE

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
    if not _same(stored, response) or not (confirmed or _same_content(stored, response)):
        return None
    personal = not confirmed and not PERSONAL.isdisjoint(request.names)
    if personal and not _validated(stored, response):
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


def _same(stored: Stored, response: Response) -> bool:
    """A response's validators, if it has any, are those of the stored one (§4.3.4)."""
    etag = entity_tag(first(response.fields, b"etag"))
    if etag is not None:
        return stored.etag is not None and opaque_tag(etag) == opaque_tag(stored.etag)
    modified = first(response.fields, b"last-modified")
    # If the new response does not include any form of validator, it is of what was asked about; its date is
    # only that of a stored response that is known by its date, or whose entity-tag a 304 has confirmed.
    if modified is None or modified == stored.last_modified:
        return True
    return stored.last_modified is None and stored.etag is not None and response.status == 304


def _validated(stored: Stored, response: Response) -> bool:
    """A response that is no 304 names the stored one: by its entity-tag, without one by its date."""
    etag = entity_tag(first(response.fields, b"etag"))
    modified = first(response.fields, b"last-modified")
    return etag is not None or (modified is not None and modified == stored.last_modified)


def _same_content(stored: Stored, response: Response) -> bool:
    # §4.3.5: a HEAD's 200 updates a stored GET response if validators and Content-Length match
    is_whole = response.status == stored.status == 200 and stored.part is None
    return is_whole and is_as_long(stored, response)


def is_as_long(stored: Stored, response: Response) -> bool:
    """The Content-Length of a response, if it has one, is that of the stored content."""
    length = content_length(response.fields)
    return length is None or stored.bodiless or length == len(stored.body)


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
