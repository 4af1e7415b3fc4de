"""The names of an origin server's failures, out of httpx's errors."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from univocal.http.errors import Failure, RefusedError
from univocal.origin.client_library import httpx

__all__ = ["ClosedError", "origin_failure"]

_LONGEST: Final = 200  # letters of an error that are told


class ClosedError(httpx.RemoteProtocolError):
    """The origin server closed the connection before the end of its response."""


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


# The system's errors, the special before the general.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (socket.gaierror, "unresolved"),
    (UnicodeError, "unresolved"),
    (ssl.SSLCertVerificationError, "certificate"),
    (ssl.SSLError, "tls"),
    (ConnectionRefusedError, "refused"),
    (ConnectionError, "reset"),
    (TimeoutError, "timeout"),
    (httpx.PoolTimeout, "overloaded"),
    (httpx.TimeoutException, "timeout"),
    (ClosedError, "closed"),
    (httpx.ReadError, "closed"),
    (httpx.WriteError, "closed"),
    (httpx.RemoteProtocolError, "malformed"),
)


def origin_failure(error: Exception, origin: str = "", address: str = "") -> Exception:
    """The RefusedError for a transport's error, which is its cause; any other error as it is.

    `origin` is the origin server's URL, `address` the one that was tried last. A refusal of the origin
    server's own response is told of it, too.
    """
    for kind, reason in REASONS:
        if isinstance(error, kind):
            refused = RefusedError(reason)
            refused.__cause__ = error
            refused.provoked = not isinstance(error, _UNSENT)
            if reason != "bad-target":
                refused.failure = Failure(origin, address, *_word_and_text(error))
            return refused
    if isinstance(error, RefusedError) and error.reason == "origin-bad-response" and error.failure is None:
        # Its head could not be passed on: two lengths, or a 101 to something else.
        error.failure = Failure(origin, address, "malformed", "a head that answers no such request")
    return error


def _word_and_text(error: Exception) -> tuple[str, str]:
    """The word for an error, from what caused it first, and its own words."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    for cause in reversed(causes):
        for kind, word in _WORDS:
            if isinstance(cause, kind):
                text = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else str(cause)
                phase = (
                    "" if word != "timeout" else f"{type(error).__name__.removesuffix('Timeout').lower()}: "
                )
                return word, f"{phase}{text or error}"[:_LONGEST]
    return "unreachable", str(error)[:_LONGEST]
