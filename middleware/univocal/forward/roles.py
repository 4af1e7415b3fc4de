"""The role that this room and the ASGI door have in common: the origin of a response (RFC 9110 §3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from univocal.http.field_edits import FieldEdits
from univocal.http.messages import Fields, Received
from univocal.http.roles import Answer, Content, NextHop, UnderWay
from univocal.uri.target import Canonical

__all__ = ["Origin", "OriginRequest"]


class OriginRequest(NamedTuple):
    """A request as the origin server is to see it: the canonical target and the fields that go on.

    `received` is the request line that it came from, `chain` the addresses that a trusted proxy named.
    `next_hops` are the origin servers by the names that routes use. `origin_tag` names the one that the
    client stays with.
    """

    method: bytes
    fields: Fields
    canonical: Canonical
    received: Received
    chain: tuple[bytes, ...]
    next_hops: Mapping[str, NextHop]
    background: bool = False  # no client waits for it
    edits: FieldEdits | None = None  # of the operator
    origin_tag: bytes = b""


class Origin(Protocol):
    """The one who answers: origin servers over HTTP, or an application behind."""

    def ask(self, request: OriginRequest, content: Content | None, answer: Answer) -> UnderWay:
        """Send a request; its response is pushed to `answer`, perhaps before this call returns."""
        ...
