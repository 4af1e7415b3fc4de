"""The words of ASGI: types of messages and of the calls that carry them, and a problem as messages."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp as App
from starlette.types import Message, Receive, Scope, Send

from univocal.http.messages import Fields
from univocal.http.problem import Problem, problem

__all__ = [
    "App",
    "ClientLeftError",
    "Message",
    "Receive",
    "Scope",
    "Send",
    "fields_of",
    "send_problem",
    "send_whole",
    "with_pairs",
]


class ClientLeftError(OSError):
    """Something was sent when nobody waited for it any more (ASGI, HTTP, "disconnected client")."""


def fields_of(message: Message) -> Fields:
    """The header fields of a message, their names in lower case."""
    return [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]


def with_pairs(scope: Scope) -> Scope:
    """A scope whose header fields are a list of tuples: ASGI lets servers hand over other sequences.

    Compiled code takes no others.
    """
    fields = scope["headers"]
    if isinstance(fields, list):
        for field in fields:
            if type(field) is not tuple:
                break
        else:
            return scope
    return {**scope, "headers": [(bytes(name), bytes(value)) for name, value in fields]}


async def send_problem(send: Send, reasons: Sequence[str], scope: Scope) -> None:
    """Answer the request of a scope with problem details (RFC 9457), or with a page."""
    await send_whole(send, problem(reasons, scope["headers"]))


async def send_whole(send: Send, answer: Problem) -> None:
    """Send a complete response."""
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.fields)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
