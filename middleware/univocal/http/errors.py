"""The errors are a tree; the reasons for which a request is refused are a table.

UnivocalError
├── ConfigurationError      an invalid setting: file, key, value, allowed values
│   └── ProfileError        the same, of a profile
└── RefusedError            a request answered with problem+json: reason, status
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from univocal.http.compiling import mypyc_attr

Made = TypeVar("Made")

# Every reason for which univocal itself answers, with its status and a title. The order is the order of
# precedence: of several reasons the first in this table is the request's `reason`.
REASONS: Final[dict[str, tuple[int, str]]] = {
    "plain-http": (400, "This port needs HTTPS, but the request came by plain HTTP"),
    "bad-proxy-header": (400, "The connection must begin with a valid PROXY header"),
    "bad-framing": (400, "The request is malformed, or its length is ambiguous"),
    "bad-host": (400, "The Host field is missing, repeated or invalid"),
    "bad-target": (400, "The request target is invalid"),
    "no-leading-slash": (400, "The path must begin with a slash"),
    "fragment": (400, "The request target has a fragment (#)"),
    "control-character": (400, "The path has a control character"),
    "bad-escape": (400, "A percent sign is not followed by two hexadecimal digits"),
    "bad-utf-8": (400, "The path is not valid UTF-8"),
    "backslash": (400, "The path has a backslash"),
    "encoded-slash": (400, "The path has an encoded slash"),
    "encoded-dot-segment": (400, "A dot segment is spelled with an encoded character"),
    "encoded-dot": (400, "The path has an encoded dot"),
    "dot-segment-parameter": (400, "A dot segment has a parameter"),
    "dot-segment": (400, "The path has a dot segment"),
    "above-root": (400, "The path has more '..' than directories"),
    "dot-dot-after-empty-segment": (400, "A '..' follows an empty segment"),
    "empty-segment-parameter": (400, "An empty segment has a parameter"),
    "repeated-parameter": (400, "A segment has more than one parameter"),
    "crosses-route": (400, "By one of its readings the path belongs to another route"),
    "unknown-purge-field": (400, "A field names what to purge in a way that is not known here"),
    "unauthorized": (401, "This resource needs a user name and a password"),
    "certificate-required": (403, "This resource needs a client certificate"),
    "access-denied": (403, "This client is not allowed here"),
    "purge-forbidden": (403, "This client needs purge rights: an allowed address or the token"),
    "method-not-allowed": (405, "This method is not allowed here"),
    "request-timeout": (408, "The request took too long to arrive"),
    "body-too-large": (413, "The request body is too large"),
    "target-too-long": (414, "The request target is too long"),
    "too-many-requests": (429, "This client sends too many requests or has too many connections"),
    "fields-too-large": (431, "The request header is too large"),
    "unknown-host": (421, "No site is configured for this host"),
    "origin-unreachable": (502, "univocal could not reach the origin server"),
    "origin-bad-response": (502, "The origin server's response was malformed"),
    "authorization-unavailable": (503, "The authorization server did not answer, so nobody has access"),
    "overloaded": (503, "The server has no capacity for this request now"),
    "shared-store-unavailable": (503, "The shared store did not confirm the purge"),
    "origin-timeout": (504, "The origin server did not answer in time"),
    "only-if-cached": (504, "The request says only-if-cached, and no stored response fits"),
}

_UNPROVOKED: Final = frozenset({"origin-unreachable", "overloaded"})
_NO_MEMORY: Final = frozenset((12, -10))  # ENOMEM of every Unix, and EAI_MEMORY of Linux
_CAUSES: Final = 8  # errors of a chain that are looked at
_RANK: Final = {reason: rank for rank, reason in enumerate(REASONS)}


def status_of(reason: str) -> int:
    """The HTTP status with which `reason` is answered."""
    return REASONS[reason][0]


def by_rank(reasons: Iterable[str]) -> tuple[str, ...]:
    """The distinct `reasons`, the one that takes precedence first."""
    return tuple(sorted(set(reasons), key=_RANK.__getitem__))


def lacks_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that it comes from, says that the system gives no more memory."""
    for _ in range(_CAUSES):
        if error is None:
            return False
        no_thread = isinstance(error, RuntimeError) and str(error) == "can't start new thread"
        if isinstance(error, MemoryError) or no_thread:
            return True
        if isinstance(error, OSError) and error.errno in _NO_MEMORY:
            return True
        error = error.__cause__ or error.__context__
    return False


@mypyc_attr(allow_interpreted_subclasses=True)
class UnivocalError(Exception):
    """The root of every error that univocal raises on purpose."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfigurationError(UnivocalError):
    """A setting is invalid: the place, the value found, the values allowed.

    - `source` is a file name or "command line".
    - `key` is a dotted key such as "sites[0].upstream".
    - `line` and `column` are the place in the file, from 1; 0 if unknown.
    - `mistake` says what is wrong where that is plainer than the value.
    - `beside` are the other invalid settings.
    """

    def __init__(self, source: str, key: str, found: object, allowed: str, mistake: str = "") -> None:
        super().__init__(source, key, found, allowed)
        self.source, self.key, self.found, self.allowed = source, key, found, allowed
        self.mistake = mistake
        self.line = self.column = 0
        self.beside: tuple[ConfigurationError, ...] = ()

    def __str__(self) -> str:
        source = f"{self.source}:{self.line}" if self.line else self.source
        source = f"{source}:{self.column}" if self.column else source
        place = f"{source}: {self.key}" if self.key else source
        return (
            f"{place}: {self.mistake}"
            if self.mistake
            else f"{place}: found {self.found!r}; allowed: {self.allowed}"
        )


class ProfileError(ConfigurationError):
    """An invalid profile."""


class Objections:
    """Several invalid settings are collected here, and raised as one error.

    As a context manager it takes down the ConfigurationError that ends the block, and goes on behind it.
    """

    def __init__(self) -> None:
        self.errors: list[ConfigurationError] = []

    def __enter__(self) -> Objections:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, ConfigurationError):
            return False
        self.errors += (error, *error.beside)
        return True

    def attempt(self, make: Callable[[], Made], otherwise: Made) -> Made:
        """The result of `make`, or what stands for it where that raises ConfigurationError."""
        with self:
            return make()
        return otherwise

    def conclude(self) -> None:
        """Raise the first error, with the others beside it, if there is one."""
        if self.errors:
            first, *others = self.errors
            first.beside = tuple(others)
            raise first from None


class Failure(NamedTuple):
    """An origin server did not answer: for its operator's eyes, never for a client's."""

    origin: str  # its URL, as configured
    address: str  # the address that was tried last, "" if none was
    reason: str  # a word: refused, unresolved, certificate, tls, reset, closed, timeout, malformed, …
    error: str  # in the system's words, or the reader's


class RefusedError(UnivocalError):
    """A request that univocal answers itself, with problem details (RFC 9457).

    `provoked` is False if no request was sent that could have caused it. `failure` is the origin server's,
    if there was one.
    """

    def __init__(self, reason: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.reasons = by_rank({reason, *reasons})
        self.provoked = reason not in _UNPROVOKED
        self.failure: Failure | None = None
        self.seconds = 0.0  # that passed since the request was sent

    @property
    def status(self) -> int:
        """The HTTP status with which it is answered."""
        return status_of(self.reason)
