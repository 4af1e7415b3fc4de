"""Ordinary requests: browsers ask so, and nothing in them says who asks or what else is wanted.

A response to any other request may have been made for it alone, without the origin server saying so.
"""

from __future__ import annotations

from typing import Final

from univocal.http.fields import ENCODINGS, cookie_names
from univocal.http.messages import Request, values

__all__ = ["ORDINARY", "PERSONAL", "is_ordinary", "oddities"]

_LONGEST: Final = 4096

PERSONAL: Final = frozenset({b"cookie", b"authorization"})
"""The fields that say who asks: no setting makes them ordinary."""

# The fields by which proxies, traces and test suites tell one request from the next: an origin that chose its
# answer by one of them would have another resource for every request.
NUMBERING: Final = frozenset(
    b"b3 baggage req-num request-id test-id test-name traceparent tracestate x-amzn-trace-id "
    b"x-cloud-trace-context x-correlation-id x-request-id x-trace-id".split()
)

# The fields that browsers send on their own with a GET; Via; and Connection, which is for one hop. An API's
# key or a WebDAV client's wish is in none of them; what an origin makes of them is the matter of Vary.
ORDINARY: Final = (
    frozenset(
        b"accept accept-charset accept-encoding accept-language cache-control connection device-memory "
        b"dnt downlink dpr ect host if-modified-since if-none-match if-range origin pragma priority "
        b"purpose range referer rtt save-data sec-ch-dpr sec-ch-prefers-color-scheme "
        b"sec-ch-prefers-reduced-motion sec-ch-ua sec-ch-ua-arch sec-ch-ua-bitness sec-ch-ua-form-factors "
        b"sec-ch-ua-full-version sec-ch-ua-full-version-list sec-ch-ua-mobile sec-ch-ua-model "
        b"sec-ch-ua-platform sec-ch-ua-platform-version sec-ch-ua-wow64 sec-ch-viewport-width "
        b"sec-ch-width sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-storage-access "
        b"sec-fetch-user sec-gpc sec-purpose "
        b"upgrade-insecure-requests user-agent via viewport-width width".split()
    )
    | frozenset(ENCODINGS)
    | NUMBERING
)


def is_ordinary(request: Request, ordinary: frozenset[bytes]) -> bool:
    """The request has neither Cookie nor Authorization, nor any other field but ordinary ones."""
    for name, _ in request.fields:  # noqa: SIM110  (a generator costs three times as much)
        if name not in ordinary:
            return False
    return True


def oddities(request: Request, ordinary: frozenset[bytes]) -> frozenset[bytes]:
    """The names of the fields and cookies that a request has and an ordinary one has not.

    Of cookies of more than 4,096 octets the names are not read.
    """
    odd = {name for name, _ in request.fields} - ordinary
    if b"cookie" in odd and sum(map(len, values(request.fields, b"cookie"))) <= _LONGEST:
        odd |= {b"cookie:" + name for name in cookie_names(request.fields)}
    return frozenset(odd)
