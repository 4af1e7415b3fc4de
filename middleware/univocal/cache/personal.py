"""The notions by which a request is one client's own, and what each keeps from being shared.

A response may have been made for one client without the origin server saying so. The fields of its request
hint at that:

| the request has | notion | consequence |
|---|---|---|
| Authorization | `CREDENTIALS` | others get the response only if the origin server says so (RFC 9111 §3.5) |
| Authorization or Cookie | `PERSONAL` | no setting makes these ordinary |
| Authorization or Range | `SINGLE` | that it cannot be stored says nothing of what others get |
| any field that is not ordinary | `oddities` | requests with the same oddities do not wait for one another |
| ordinary fields alone | `ORDINARY` | the rules may lend the response a lifetime |

A response that is kept for some requests has selecting header fields that those lack: `UNCREDENTIALED`,
`IMPERSONAL`. Origin is another of them, with its value (`for_origin` in vary.py). `ODD` stands for any field
that is neither ordinary nor named by the response's Vary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from univocal.http.messages import ENCODINGS, Fields, Request, cookie_names, first, values

_LONGEST: Final = 4096

CREDENTIALS: Final = frozenset((b"authorization",))
"""The fields with credentials."""

PERSONAL: Final = CREDENTIALS | {b"cookie"}
"""The fields that say who asks: no setting makes them ordinary. A further one is one of CREDENTIALS."""

SINGLE: Final = CREDENTIALS | {b"range"}
"""The fields that make the answer to a request that request's own."""

# No field has a name with ":".
ODD: Final = b":odd"
"""The name under which a response is kept for requests without an odd field."""

UNCREDENTIALED: Final[tuple[tuple[bytes, bytes | None], ...]] = tuple(
    (name, None) for name in sorted(CREDENTIALS | {ODD})
)
"""The selecting header fields that keep a response for requests without credentials."""

IMPERSONAL: Final[tuple[tuple[bytes, bytes | None], ...]] = tuple(
    (name, None) for name in sorted(PERSONAL | {ODD})
)
"""The selecting header fields that keep a response for requests that do not say who asks."""

# The fields by which proxies, traces and test suites tell one request from the next: an origin that chose its
# answer by one of them would have another resource for every request.
NUMBERING: Final = frozenset(
    b"b3 baggage req-num request-id test-id test-name traceparent tracestate x-amzn-trace-id "
    b"x-cloud-trace-context x-correlation-id x-request-id x-trace-id".split()
)

# The fields that front servers and networks add by themselves: addresses, ports, their own numbers. Fields in
# which they name a user, such as Cf-Access-Authenticated-User-Email, are none of them.
_FORWARDING: Final = frozenset(
    b"cdn-loop cf-connecting-ip cf-connecting-ipv6 cf-ew-via cf-ipcontinent cf-ipcountry cf-ray "
    b"cf-request-id cf-visitor cf-worker client-ip fastly-client-ip fastly-ff fastly-ssl "
    b"fly-client-ip fly-dispatch-start fly-forwarded-port fly-forwarded-proto fly-forwarded-ssl "
    b"fly-region fly-request-id fly-traceparent fly-tracestate forwarded front-end-https newrelic "
    b"sentry-trace true-client-ip x-amz-cf-id x-azure-clientip x-azure-ref x-azure-socketip "
    b"x-b3-flags x-b3-parentspanid x-b3-sampled x-b3-spanid x-b3-traceid x-client-ip "
    b"x-cluster-client-ip x-datadog-origin x-datadog-parent-id x-datadog-sampling-priority "
    b"x-datadog-tags x-datadog-trace-id x-envoy-attempt-count x-envoy-expected-rq-timeout-ms "
    b"x-envoy-external-address x-envoy-internal x-forwarded x-forwarded-for x-forwarded-host "
    b"x-forwarded-port x-forwarded-prefix x-forwarded-proto x-forwarded-scheme x-forwarded-server "
    b"x-forwarded-ssl x-newrelic-id x-newrelic-transaction x-original-forwarded-for x-queue-start "
    b"x-real-ip x-request-start x-scheme x-varnish".split()
)

# The fields that browsers send on their own with a GET; Via; and Connection, which is for one hop. An API's
# key or a WebDAV client's wish is in none of them; what an origin makes of them is the matter of Vary.
ORDINARY: Final = (
    frozenset(
        b"accept accept-charset accept-encoding accept-language available-dictionary cache-control "
        b"connection device-memory dictionary-id early-data dnt downlink dpr ect host if-modified-since "
        b"if-none-match if-range origin pragma priority purpose range referer rtt save-data sec-ch-dpr "
        b"sec-ch-prefers-color-scheme sec-ch-device-memory sec-ch-prefers-contrast "
        b"sec-ch-prefers-reduced-data sec-ch-prefers-reduced-motion sec-ch-prefers-reduced-transparency "
        b"sec-ch-save-data sec-ch-ua sec-ch-ua-arch sec-ch-ua-bitness sec-ch-ua-form-factors "
        b"sec-ch-ua-full-version sec-ch-ua-full-version-list sec-ch-ua-mobile sec-ch-ua-model "
        b"sec-ch-ua-platform sec-ch-ua-platform-version sec-ch-ua-wow64 sec-ch-viewport-width "
        b"sec-ch-width sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-storage-access "
        b"sec-fetch-user sec-gpc sec-purpose sec-speculation-tags te upgrade-insecure-requests "
        b"user-agent via viewport-width width".split()
    )
    | frozenset(ENCODINGS)
    | NUMBERING
    | _FORWARDING
)


def is_for_everybody(request: Request, fields: Fields, *, tells_cookies: bool) -> bool:
    """Neither request nor response, whose `fields` these are, identifies the client.

    It matters where the origin server does not say for whom the response is. With `tells_cookies` the rules
    name the cookies that matter, so that others tell nothing.
    """
    hints = CREDENTIALS if tells_cookies else PERSONAL
    return hints.isdisjoint(request.names) and first(fields, b"set-cookie") is None


def telling(names: frozenset[bytes], ordinary: frozenset[bytes], *, tells_cookies: bool) -> frozenset[bytes]:
    """The names of a request's fields by which it may be one client's own."""
    return names - ordinary - ({b"cookie"} if tells_cookies else set())


def is_ordinary(names: frozenset[bytes], ordinary: frozenset[bytes], selecting: Iterable[bytes]) -> bool:
    """Tell whether the fields of a request tell its client from no other, but for the `selecting` ones.

    Cookies and credentials are not asked about.
    """
    return names <= ordinary or names - ordinary <= PERSONAL.union(selecting)


def oddities(request: Request, ordinary: frozenset[bytes]) -> frozenset[bytes]:
    """The names of the fields and cookies that a request has and an ordinary one has not.

    Of cookies of more than 4,096 bytes the names are not read.
    """
    odd = request.names - ordinary
    if b"cookie" in odd and sum(map(len, values(request.fields, b"cookie"))) <= _LONGEST:
        odd |= {b"cookie:" + name for name in cookie_names(request.fields)}
    return odd
