"""The messages of ASGI: their types, refusals as messages, and a `send` that notes a handshake's answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp as App
from starlette.types import Message, Receive, Scope, Send

from univocal.cache.decide import Handling
from univocal.engine.outcome import Account, Outcome
from univocal.http.messages import Fields
from univocal.http.problem import Problem, problem
from univocal.judge.admission import Admission

__all__ = ["App", "Message", "Receive", "Scope", "Send"]


DEBUG: Final = "http.response.debug"  # the message, and extension, by which test clients get the template


class ClientLeftError(OSError):
    """Something was sent when no client waited for it any more (ASGI, HTTP, "disconnected client")."""


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


DENIAL: Final = "websocket.http.response"  # the ASGI extension by which a handshake gets an HTTP response


def denial(send: Send) -> Send:
    """A `send` by which an http response refuses a handshake."""

    async def refuse(message: Message) -> None:
        await send({**message, "type": message["type"].replace("http", "websocket.http", 1)})

    return refuse


async def refuse_handshake(scope: Scope, send: Send, reasons: Sequence[str]) -> None:
    """Refuse a handshake: with the answer that a GET gets where the server can send it, else with its own."""
    if DENIAL in scope.get("extensions", {}):
        await send_problem(denial(send), reasons, scope)
    else:
        await send({"type": "websocket.close", "code": 1008})


class WatchedSend:
    """A `send` that notes what the client is told: a status, and the bytes of messages or content."""

    def __init__(self, send: Send, begun: tuple[float, float]) -> None:
        self._send = send
        self._account = Account(begun, ())

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        match message["type"]:
            case "websocket.accept":
                self._start(101)
            case "websocket.close" if not self._account.status:
                self._start(403)  # ASGI: the server's own refusal
            case "websocket.http.response.start" | "http.response.start":
                self._start(message["status"])
            case "websocket.http.response.body" | "http.response.body":
                self._account.octets += len(message.get("body", b""))
            case "websocket.send":
                text: str | None = message.get("text")
                self._account.octets += len(message["bytes"] if text is None else text.encode())
        await self._send(message)

    def _start(self, status: int) -> None:
        self._account.status, self._account.first = status, time.perf_counter()

    def outcome(self, admission: Admission, refused: Sequence[str]) -> Outcome:
        """The outcome of the handshake, or of the WebSocket that it opened; `refused` are the reasons."""
        account = self._account
        account.handling = Handling(detail=refused[0]) if refused else Handling(fwd="bypass")
        account.reasons = tuple(refused) or admission.reasons
        return account.outcome(admission)
