"""What every exchange at the ASGI door shares, and the words of ASGI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .fetch import Fetcher
from .gate import Gate
from .outcome import Listener
from .problem import problem
from .scope import Scope

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
