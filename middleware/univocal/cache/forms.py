"""Compressed forms of a response (RFC 9110 §8.4, §8.8.3). They are derived: no other node gets them.

A form has a weak validator: what a client holds of it means the same as the identity form, but other bytes.
Ranges are of the identity form alone.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from univocal.cache.rules import Rules
from univocal.cache.stored import Forms, Stored, costed, render_head
from univocal.cache.vary import vary_names
from univocal.http.messages import (
    Field,
    Fields,
    Request,
    Response,
    accepted_codings,
    combined,
    content_length,
    entity_tag,
    entity_tags,
    first,
    without,
)

_LONGEST: Final = 256  # bytes of an Accept-Encoding that are read
_LEAST: Final = 1024  # bytes of content; less is not compressed
# Text, by its media type: an event stream has no end.
_TEXT: Final = re.compile(
    rb"(?:text/(?!event-stream)[^;\s]+|application/(?:json|javascript|xml|wasm|x-javascript|rtf|[^;\s]+\+(?:json|xml))"
    rb"|image/(?:svg\+xml|bmp|x-icon|vnd\.microsoft\.icon)|font/(?:ttf|otf)|application/vnd\.ms-fontobject)\s*(?:;|$)",
    re.IGNORECASE,
)
_WITHOUT_CONTENT: Final = frozenset((204, 206, 304))
_VARY: Final[Field] = (b"vary", b"Accept-Encoding")
# Fields that say something of the bytes of the identity form.
_OF_OCTETS: Final = frozenset(
    b"accept-ranges content-digest content-length content-md5 digest etag repr-digest vary".split()
)


_NONE: Final = Forms(compressible=False)


def forms_of(stored: Stored) -> Forms:
    """The forms of a stored response, of which none is made yet."""
    if stored.forms is None:
        fields = stored.fields
        fits = stored.whole and len(stored.body) >= _LEAST and is_compressible(stored.status, fields)
        names = () if not fits else vary_names(fields) or ()
        vary = b"" if b"accept-encoding" in names else b"%b: %b\r\n" % _VARY
        stored.forms = Forms(compressible=True, vary=vary) if fits else _NONE
    return stored.forms


def is_compressible(status: int, fields: Fields) -> bool:
    """Tell whether the content of a response with this head is text that may be compressed."""
    if status < 200 or status in _WITHOUT_CONTENT:
        return False
    media_type = first(fields, b"content-type")
    if media_type is None or not _TEXT.match(media_type) or first(fields, b"content-encoding") is not None:
        return False
    length = content_length(fields)
    if length is not None and length < _LEAST:
        return False
    return not _forbids_change(fields)


def _forbids_change(fields: Fields) -> bool:
    """Tell whether an intermediary must not transform the content (RFC 9111 §5.2.1.6, §5.2.2.6)."""
    return b"no-transform" in (combined(fields, b"cache-control") or b"").lower()


def with_vary(fields: Fields) -> Fields:
    """The fields of an identity form whose other forms a client may get: with Accept-Encoding in Vary."""
    return fields if b"accept-encoding" in (vary_names(fields) or ()) else [*fields, _VARY]


def coded_fields(fields: Fields, etag: bytes | None, coding: bytes) -> Fields:
    """The fields of the form in this coding, but for its length; `etag` is that of the identity form."""
    others = combined(with_vary(fields), b"vary") or b""
    validator = [] if etag is None else [(b"etag", _weak(etag))]
    return [*without(fields, _OF_OCTETS), *validator, (b"vary", others), (b"content-encoding", coding)]


def _weak(etag: bytes) -> bytes:
    return etag if etag.startswith(b"W/") else b"W/" + etag


def coded_form(stored: Stored, coding: bytes, body: bytes) -> Stored:
    """The form of a stored response whose content is `body`, in this coding."""
    fields = coded_fields(stored.fields, stored.etag, coding)
    head = render_head(stored.status, [*fields, (b"content-length", b"%d" % len(body))])
    return costed(stored, head, body, None if stored.etag is None else _weak(stored.etag))


def streamed(request: Request, response: Response, codings: tuple[bytes, ...]) -> tuple[Response, bytes]:
    """The response as a client gets it that takes these codings, and the coding of its content; b"": none.

    It is not stored, so it has one form for each client. A range is of the identity form.
    """
    fields = response.fields
    if response.status == 304:
        return replace(response, fields=_confirmed(request, fields)), b""
    if not is_compressible(response.status, fields):
        return response, b""
    if not codings or request.method == b"HEAD" or b"range" in request.names:
        return replace(response, fields=with_vary(fields)), b""
    etag = entity_tag(first(fields, b"etag"))
    return replace(response, fields=coded_fields(fields, etag, codings[0])), codings[0]


def _confirmed(request: Request, fields: Fields) -> Fields:
    """The fields of a 304; a client that holds a compressed form keeps the validator of that."""
    etag, known = entity_tag(first(fields, b"etag")), combined(request.fields, b"if-none-match")
    if etag is None or known is None or etag.startswith(b"W/") or b"W/" + etag not in entity_tags(known):
        return fields
    return with_vary([(name, _weak(etag) if name == b"etag" else value) for name, value in fields])


def acceptable(request: Request, fields: Fields, rules: Rules) -> tuple[bytes, ...]:
    """The codings of the rules, in their order, that a client takes, whose `fields` came."""
    value = combined(fields, b"accept-encoding")
    if value is None or (b"cache-control" in request.names and _forbids_change(request.fields)):
        return ()
    return codings_among(value, rules)


def codings_among(value: bytes, rules: Rules) -> tuple[bytes, ...]:
    """The codings of the rules, in their order, that an Accept-Encoding of this value takes.

    A value above the limit takes none.
    """
    return _among(value, rules.compress) if len(value) <= _LONGEST else ()


@lru_cache(maxsize=1024)
def _among(value: bytes, offered: tuple[bytes, ...]) -> tuple[bytes, ...]:
    codings = (accepted_codings(value) or b"").split(b", ")  # none, if it is malformed
    return tuple(coding for coding in offered if coding in codings)


def ranged(request: Request, stored: Stored) -> Request:
    """The request without Range where its If-Range is a date: of two forms that is no strong validator."""
    validator = first(request.fields, b"if-range")
    if validator is None or validator.strip(b" \t") == stored.etag:
        return request
    fields = without(request.fields, (b"range",))
    return replace(request, fields=fields)
