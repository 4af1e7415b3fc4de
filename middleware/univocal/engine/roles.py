"""The roles of the engine's neighbours that http/roles.py does not have: who answers, and who calls later."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from univocal.engine.admission import Admission
from univocal.http.messages import Fields
from univocal.http.roles import Answer, Asked, Content
from univocal.uri.target import Canonical

__all__ = ["CallLater", "Due", "Origin", "OriginRequest"]


class OriginRequest(NamedTuple):
    """A request as the origin server is to see it: the canonical target and the fields that go on."""

    method: bytes
    fields: Fields
    canonical: Canonical
    admission: Admission


class Origin(Protocol):
    """The one who answers: origin servers over HTTP, or an application behind."""

    def ask(self, request: OriginRequest, content: Content | None, answer: Answer) -> Asked:
        """Send a request; its response is pushed to `answer`, perhaps before this call returns."""
        ...


class Due(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not call."""


CallLater: TypeAlias = Callable[[float, Callable[[], None]], Due]
"""Calls after so many seconds."""
