"""Invalidating stored responses (RFC 9111 §4.4, RFC 9875 §3)."""

from __future__ import annotations

from typing import Final

from univocal.cache.tags import groups
from univocal.fields import first
from univocal.messages import Request, Response

__all__ = ["SAFE_METHODS", "invalidates"]

SAFE_METHODS: Final = frozenset({b"GET", b"HEAD", b"OPTIONS", b"TRACE"})


def invalidates(request: Request, response: Response) -> tuple[list[bytes], frozenset[bytes]] | None:
    """What a response makes obsolete besides the target itself: URI references, and groups; None: nothing.

    The caller resolves the references and drops those of another origin (§4.4: they MUST NOT be invalidated).
    """
    # A cache MUST invalidate the target URI when it receives a non-error status code in response to an unsafe
    # request method, including methods whose safety is unknown: a non-error response is a 2xx or 3xx
    if request.method in SAFE_METHODS or not 200 <= response.status < 400:
        return None
    # and can also invalidate the URIs in the Location and Content-Location header fields
    named = (first(response.fields, name) for name in (b"location", b"content-location"))
    references = [reference for reference in named if reference is not None]
    return list(dict.fromkeys(references)), groups(response.fields, b"cache-group-invalidation")
