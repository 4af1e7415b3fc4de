"""The names of an origin server's failures, out of httpx's errors."""

from __future__ import annotations

from typing import Final

import httpx

from univocal.http.errors import RefusedError

__all__ = ["origin_failure"]

# httpx's own tree, the special before the general.
REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (httpx.PoolTimeout, "overloaded"),
    (httpx.TimeoutException, "origin-timeout"),
    (httpx.LocalProtocolError, "bad-target"),
    (httpx.RemoteProtocolError, "origin-bad-response"),
    (httpx.TransportError, "origin-unreachable"),
)

# Failures before anything of a request is sent: they are no request's doing.
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def origin_failure(error: Exception) -> Exception:
    """The RefusedError for a transport's error, which is its cause; any other error as it is."""
    for kind, reason in REASONS:
        if isinstance(error, kind):
            refused = RefusedError(reason)
            refused.__cause__ = error
            refused.provoked = not isinstance(error, _UNSENT)
            return refused
    return error
