"""The failures of requests to origin servers: the times that these have, the errors, and their refusals."""

from __future__ import annotations

import socket
import ssl
from dataclasses import asdict, dataclass
from typing import ClassVar, Final

from univocal.http.errors import ConfigurationError, Failure, RefusedError, lacks_memory
from univocal.http.settings import duration, setting


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for the origin server, None without limit; `read` and `write` hold for each one.

    Raises ConfigurationError for an invalid time.
    """

    connect: float | None = setting(5, duration, "connect_timeout")
    read: float | None = setting(60, duration, "read_timeout")
    write: float | None = 60.0
    pool: float | None = 5.0

    def __post_init__(self) -> None:
        for name, seconds in asdict(self).items():
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (number and seconds > 0):
                raise ConfigurationError("Timeouts", name, seconds, "seconds, more than 0; None for ever")


_LONGEST: Final = 200  # characters of an error's text in a Failure


class TransportError(Exception):
    """A request could not be sent, or its response could not be read.

    `reason` is that of the RefusedError it becomes. It is `unsent` if it came before any byte of a request
    was sent: then no request can have caused it.
    """

    reason: ClassVar[str] = "origin-unreachable"
    unsent: ClassVar[bool] = False


class ConnectError(TransportError):
    """There is no connection to the origin server."""

    unsent = True


class ReadError(TransportError):
    """The connection was lost before the end of the response."""


class WriteError(TransportError):
    """The connection was lost before the end of the request."""


class UnsupportedSchemeError(TransportError):
    """The scheme of the origin server's URL is neither http nor https."""


class OriginTimeoutError(TransportError):
    """The origin server took too long."""

    reason = "origin-timeout"


class ConnectTimeoutError(OriginTimeoutError):
    """The origin server did not accept a connection in time."""

    unsent = True


class PoolTimeoutError(OriginTimeoutError):
    """No connection became free in time, or no descriptor is free for one."""

    reason = "overloaded"
    unsent = True


class ReadTimeoutError(OriginTimeoutError):
    """The origin server sent nothing in time."""


class WriteTimeoutError(OriginTimeoutError):
    """The origin server took nothing in time."""


class InvalidRequestError(TransportError):
    """The request cannot be sent, or its content has another length than its head says."""

    reason = "bad-target"


class InvalidResponseError(TransportError):
    """The response is malformed or incomplete."""

    reason = "origin-bad-response"


class ClosedError(InvalidResponseError):
    """The origin server closed the connection before the end of its response."""


class StaleConnectionError(ClosedError):
    """A connection that had served a request before died before any byte of this response."""


class HeadTooLargeError(InvalidResponseError):
    """The response's head has more bytes than the setting allows."""


# The system's errors and those above, the special before the general.
_WORDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (socket.gaierror, "unresolved"),
    (UnicodeError, "unresolved"),
    (ssl.SSLCertVerificationError, "certificate"),
    (ssl.SSLError, "tls"),
    (ConnectionRefusedError, "refused"),
    (ConnectionError, "reset"),
    (TimeoutError, "timeout"),
    (PoolTimeoutError, "overloaded"),
    (OriginTimeoutError, "timeout"),
    (ClosedError, "closed"),
    (HeadTooLargeError, "head-too-large"),
    (ReadError, "closed"),
    (WriteError, "closed"),
    (InvalidResponseError, "malformed"),
)


def origin_failure(error: Exception, origin: str = "", address: str = "") -> Exception:
    """The RefusedError for a TransportError, which is its cause; any other error as it is.

    `origin` is the origin server's URL, `address` the one that was tried last. A refusal of the origin
    server's own response is told of it, too.
    """
    if lacks_memory(error):
        refused = RefusedError("overloaded")  # here, and not there
        refused.__cause__ = error
        return refused
    if isinstance(error, TransportError):
        refused = RefusedError(error.reason)
        refused.__cause__ = error
        refused.provoked = not error.unsent
        if error.reason != "bad-target":
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
                phase = type(error).__name__.removesuffix("TimeoutError").lower()
                phase = f"{phase}: " if word == "timeout" else ""
                return word, f"{phase}{text or error}"[:_LONGEST]
    return "unreachable", str(error)[:_LONGEST]
