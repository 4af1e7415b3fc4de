"""The role that this room and the ASGI door have in common: the origin of a response (RFC 9110 §3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from univocal.http.bonds import Bond
from univocal.http.field_edits import FieldEdits
from univocal.http.messages import Fields, Received
from univocal.http.roles import Answer, Content, NextHop, UnderWay
from univocal.uri.target import Canonical


class OriginRequest:
    """A request as the origin server is to see it: the canonical target and the fields that go on.

    `received` is the request line that it came from, `chain` the addresses that a trusted proxy named.
    `next_hops` are the origin servers by the names that routes use. `origin_tag` names the one that the
    client stays with. No client waits for a request in the `background`. `edits` are the operator's. `bond`
    has connections that are the client's own.
    """

    __slots__ = (
        "background",
        "bond",
        "canonical",
        "chain",
        "edits",
        "fields",
        "method",
        "next_hops",
        "origin_tag",
        "received",
    )

    def __init__(
        self,
        method: bytes,
        fields: Fields,
        canonical: Canonical,
        received: Received,
        chain: tuple[bytes, ...],
        next_hops: Mapping[str, NextHop],
        background: bool = False,
        edits: FieldEdits | None = None,
        origin_tag: bytes = b"",
        bond: Bond | None = None,
    ) -> None:
        self.bond = bond
        self.method = method
        self.fields = fields
        self.canonical = canonical
        self.received = received
        self.chain = chain
        self.next_hops = next_hops
        self.background = background
        self.edits = edits
        self.origin_tag = origin_tag


class Origin(Protocol):
    """The one who answers: origin servers over HTTP, or an application behind.

    `takes_targets` is True if it gets the target as it is: one that it names itself may be asked for.
    """

    @property
    def takes_targets(self) -> bool: ...

    def ask(self, request: OriginRequest, content: Content | None, answer: Answer) -> UnderWay:
        """Send a request; its response is pushed to `answer`, perhaps before this call returns."""
        ...
