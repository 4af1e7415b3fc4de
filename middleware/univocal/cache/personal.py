"""The notions by which a request is one client's own, and what each keeps from being shared.

A response may have been made for one client without the origin server saying so. The fields of its request
hint at that:

| the request has | notion | consequence |
|---|---|---|
| Authorization | `CREDENTIALS` | others get the response only if the origin server says so (RFC 9111 §3.5) |
| Authorization or Cookie | `PERSONAL` | no rule of ours lends the response a lifetime |
| Authorization or Range | `SINGLE` | that it cannot be stored says nothing of what others get |
| any field that is not ordinary | `oddities` | requests with the same oddities do not wait for one another |
| ordinary fields alone | `ORDINARY` | heuristics may lend the response a lifetime |

A response that is kept for some requests has selecting header fields that those lack: `UNCREDENTIALED`,
`IMPERSONAL`.
"""

from __future__ import annotations

from typing import Final

from univocal.http.fields import ENCODINGS, cookie_names, first
from univocal.http.messages import Fields, Request, values

__all__ = [
    "CREDENTIALS",
    "IMPERSONAL",
    "ORDINARY",
    "PERSONAL",
    "SINGLE",
    "UNCREDENTIALED",
    "is_for_everybody",
    "oddities",
]

_LONGEST: Final = 4096

CREDENTIALS: Final = frozenset((b"authorization",))
"""The fields with credentials."""

PERSONAL: Final = CREDENTIALS | {b"cookie"}
"""The fields that say who asks: no setting makes them ordinary."""

SINGLE: Final = CREDENTIALS | {b"range"}
"""The fields that make the answer to a request that request's own."""

UNCREDENTIALED: Final[tuple[tuple[bytes, None], ...]] = tuple((name, None) for name in sorted(CREDENTIALS))
"""The selecting header fields that keep a response for requests without credentials."""

IMPERSONAL: Final[tuple[tuple[bytes, None], ...]] = tuple((name, None) for name in sorted(PERSONAL))
"""The selecting header fields that keep a response for requests that do not say who asks."""

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


def is_for_everybody(request: Request, fields: Fields, *, tells_cookies: bool) -> bool:
    """Neither request nor response, whose `fields` these are, hints at one client.

    It matters where the origin server does not say for whom the response is. With `tells_cookies` the rules
    name the cookies that matter, so that others tell nothing.
    """
    hints = CREDENTIALS if tells_cookies else PERSONAL
    return hints.isdisjoint(request.names) and first(fields, b"set-cookie") is None


def oddities(request: Request, ordinary: frozenset[bytes]) -> frozenset[bytes]:
    """The names of the fields and cookies that a request has and an ordinary one has not.

    Of cookies of more than 4,096 bytes the names are not read.
    """
    odd = request.names - ordinary
    if b"cookie" in odd and sum(map(len, values(request.fields, b"cookie"))) <= _LONGEST:
        odd |= {b"cookie:" + name for name in cookie_names(request.fields)}
    return odd
