"""What every exchange at the ASGI door shares, and the words of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from univocal.asgi.scope import Scope
from univocal.engine.admission import Gate
from univocal.engine.fetch import Fetcher
from univocal.engine.outcome import Listener
from univocal.http.problem import problem

__all__ = ["App", "Door", "Message", "Receive", "Send", "send_problem"]

Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Door:
    """What is behind the door, and who hears of what happens; `app` answers what the store does not."""

    app: App
    gate: Gate
    fetcher: Fetcher
    listeners: tuple[Listener, ...]
    clock: Callable[[], float]


async def send_problem(send: Send, reasons: Sequence[str], *, close: bool = False) -> tuple[int, int]:
    """Answer with problem details (RFC 9457); the status and the number of octets sent."""
    told = problem(reasons)
    fields = [*told.fields, (b"connection", b"close")] if close else list(told.fields)
    await send({"type": "http.response.start", "status": told.status, "headers": fields})
    await send({"type": "http.response.body", "body": told.body, "more_body": False})
    return told.status, len(told.body)
