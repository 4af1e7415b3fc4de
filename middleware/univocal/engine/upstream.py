"""One upstream of a route: here alone a received request becomes one that is sent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from univocal.http.errors import Failure, RefusedError
from univocal.http.fields import first, imf_fixdate
from univocal.http.forward import (
    MOST_PASSES,
    forwards_left,
    passes,
    request_fields,
    request_has_content,
    response_fields,
)
from univocal.http.messages import Fields, Response
from univocal.http.roles import Answer, Asked, Content
from univocal.origin.server import OriginServer

__all__ = ["Sender", "Upstream"]

_ALLOWED: Final = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


class Sender(NamedTuple):
    """The asker: its address, scheme and version of HTTP, and the addresses told by a trusted proxy."""

    client: str | None
    scheme: bytes
    chain: tuple[bytes, ...] = ()
    version: bytes = b"1.1"


@dataclass(frozen=True, slots=True)
class Upstream:
    """An origin server and the Host field that it is sent; an empty `host` is the request's own."""

    server: OriginServer
    host: bytes = b""

    def send(
        self,
        method: bytes,
        target: bytes,
        fields: Fields,
        sender: Sender,
        content: Content | None,
        answer: Answer,
        failed: Callable[[Failure], None] | None = None,
    ) -> Asked:
        """Send a request as RFC 9110 §7.6 has it, its target byte for byte; the response goes to `answer`."""
        counted = forwards_left(method, fields)
        if counted is None:
            return _answer_here(answer)
        if passes(counted) > MOST_PASSES:
            return _refuse_here(answer)
        authority = first(counted, b"host") or b""
        headers = request_fields(
            counted,
            host=self.host or authority,
            authority=authority,
            client=sender.client,
            scheme=sender.scheme,
            method=method,
            forwarded_for=sender.chain,
            via=b"%b univocal" % sender.version,  # by which the request was received (RFC 9110 §7.6.3)
        )
        sent = content if request_has_content(counted) else None
        return self.server.ask(method, self.server.mapped(target), headers, sent, _Relay(answer, failed))


class _Relay:
    """An answer that gets the response's fields as they go on (RFC 9110 §7.6)."""

    __slots__ = ("_answer", "_failed", "finish", "write")

    def __init__(self, answer: Answer, failed: Callable[[Failure], None] | None) -> None:
        self._answer = answer
        self._failed = failed
        self.write = answer.write
        self.finish = answer.finish

    def fail(self, error: Exception) -> None:
        if self._failed is not None and isinstance(error, RefusedError) and error.failure is not None:
            self._failed(error.failure)
        self._answer.fail(error)

    def interim(self, status: int, fields: Fields) -> None:
        self._answer.interim(status, response_fields(fields, status=status))

    def start(self, response: Response) -> None:
        # RFC 9110 §6.6.1: a recipient with a clock appends a Date to a response without one.
        date = _date(int(time.time()))
        fields = response_fields(response.fields, status=response.status, date=date)
        self._answer.start(Response(response.status, fields))


_date = lru_cache(maxsize=2)(imf_fixdate)


class _Answered:
    """A request that nobody is asked for any more."""

    def pause(self) -> None:
        """Hold nothing back."""

    def resume(self) -> None:
        """Hold nothing back."""

    def cancel(self) -> None:
        """Give nothing up."""


def _answer_here(answer: Answer) -> Asked:
    """Be the final recipient of an OPTIONS or TRACE whose Max-Forwards ran out (RFC 9110 §7.6.2)."""
    answer.start(Response(200, [(b"content-length", b"0"), (b"allow", _ALLOWED)]))
    answer.finish()
    return _Answered()


def _refuse_here(answer: Answer) -> Asked:
    """Forward a message to oneself no more (RFC 9110 §7.6); it is this request that did, not everybody's."""
    refused = RefusedError("origin-unreachable")
    refused.provoked = True
    answer.fail(refused)
    return _Answered()
