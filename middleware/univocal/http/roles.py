"""The roles in an exchange (RFC 9110 §3.3, §3.7) and the calls by which they speak with one another.

Everything is pushed: each call is plain, returns at once and awaits nothing. `write` returns False when no
more should come for now; `resume` then says when it may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from univocal.http.bonds import Bond
from univocal.http.errors import Failure
from univocal.http.field_edits import FieldEdits
from univocal.http.intermediary import Affinity
from univocal.http.messages import Fields, Received, Response
from univocal.http.pipe import Pipe
from univocal.http.references import ReferenceMap


class Client(Protocol):
    """The one who asked. It calls `resume` and `cancel` of the exchange that answers it."""

    def interim(self, status: int, fields: Fields) -> None:
        """Send a 1xx response (RFC 9110 §15.2), where the client can read one."""

    def start(self, status: int, fields: Fields) -> None:
        """Send the final response's head; the client frames what follows."""

    def write(self, chunk: bytes | memoryview) -> bool:
        """Send content; False: no more until the client calls `resume` of its exchange."""
        ...

    def finish(self) -> None:
        """End the response."""

    def cut(self) -> None:
        """End the connection in the middle of the response, so that the client sees that it is incomplete."""


class Answer(Protocol):
    """The one whom an origin server answers: interim responses, a head, content, and its end or a failure."""

    def interim(self, status: int, fields: Fields) -> None:
        """Take a 1xx response other than 101 (RFC 9110 §15.2)."""

    def start(self, response: Response) -> None:
        """Take the final response's head."""

    def write(self, chunk: bytes) -> bool:
        """Take content; False: no more until `resume` of what `ask` returned is called."""
        ...

    def finish(self) -> None:
        """Handle the end of the response; no other call follows."""

    def fail(self, error: Exception) -> None:
        """Handle the end of a response that is missing or cut; no other call follows.

        It may be called before `ask` has returned, since some requests cannot be sent at all.
        """


class UnderWay(Protocol):
    """A request that is under way to an origin server."""

    def pause(self) -> None:
        """Ask the origin server for no more content for now."""

    def resume(self) -> None:
        """Resume reading."""

    def cancel(self) -> None:
        """Give up: the answer hears nothing more."""


class OriginRequest:
    """A request on its way to an origin server: one object from the engine to the connection.

    `target` and `fields` are as they are to be sent. `received` is the request line that it came from, which
    `scheme` may contradict: a trusted proxy knows better. `chain` has the addresses that such a proxy named.
    `site` is the name of the site, `watch` hears of the request's way. A hash chooses by `key`. `references`
    gives the map of URLs in the response, where it has some. `edits` are the operator's. `origin_tag` names
    the origin server that the client stays with, `bond` has connections that are the client's own. No client
    reads the answer to one that `is_unread`. The gate has removed the untrusted fields of a `screened` one.
    """

    # On its connection, once it is spelled for the origin server that is asked (see origin/http1.py).
    wire: bytes  # its head
    length: int | None  # of the content behind it, in bytes; None: that is chunked
    expects_continue: bool  # RFC 9110 §10.1.1
    upgrades: bool
    authenticates: bool  # it has credentials for all of its connection

    def __init__(
        self,
        method: bytes,
        target: bytes,
        fields: Fields,
        received: Received,
        content: Pipe | None = None,
        *,
        scheme: bytes = b"http",
        chain: tuple[bytes, ...] = (),
        key: bytes = b"",
        references: Callable[[], ReferenceMap | None] | None = None,
        screened: bool = False,
    ) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.content = content
        self.received = received
        self.scheme = scheme
        self.chain = chain
        self.key = key
        self.references = references
        self.screened = screened
        self.site = ""
        self.watch: Watch | None = None
        self.edits: FieldEdits | None = None
        self.origin_tag = b""
        self.bond: Bond | None = None
        self.is_unread = False
        self.own_host = False  # by its upstream: Host, the first of the fields, is each server's own name


class Watch(Protocol):
    """A listener on a request's way to origin servers, that hears what each of them answers."""

    def sending(self, origin: str, fields: Fields) -> Fields:
        """Record the origin server that gets the request next; returns the fields to send."""
        ...

    def answered(self, origin: str, status: int) -> None:
        """Record the status of a response; 0: no response came, and none will come."""
        ...

    def failed(self, failure: Failure) -> None:
        """Record a failure, before the head of a response or after it."""
        ...


class Origin(Protocol):
    """The one who answers (RFC 9110 §3.6): origin servers over HTTP, or an application behind.

    `takes_targets` is True if it gets the target as it is: one that it names itself may be asked for.
    `affinity` keeps each client at one of its servers; None: it has one, or none stays.
    """

    @property
    def takes_targets(self) -> bool: ...

    @property
    def affinity(self) -> Affinity | None: ...

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Send a request; its response is pushed to `answer`, perhaps before this call returns."""
        ...


class Due(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not call."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Due]
"""Calls after so many seconds."""
