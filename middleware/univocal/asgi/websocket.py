"""A WebSocket of an ASGI server is relayed to an origin server, message by message (RFC 6455)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from univocal.asgi.client import ScopeClient
from univocal.asgi.handshake import DENIAL, denial
from univocal.asgi.messages import Message, Receive, Scope, Send
from univocal.asgi.relay import Relay, relayed_request
from univocal.forward.upstream import Upstream
from univocal.http.fields import without
from univocal.http.messages import Fields, Response, values
from univocal.http.upgrade import WEBSOCKET, Switching

if TYPE_CHECKING:
    from univocal.origin.websocket import Closed, OriginSocket

logger: Final = logging.getLogger("univocal")

_GOING_AWAY, _BAD_GATEWAY = 1001, 1014  # RFC 6455 §7.4.1; IANA's registry of close codes
# The fields that an ASGI server writes into its own 101, or makes of its arguments.
_SERVERS: Final = (b"connection", b"date", b"sec-websocket-accept", b"sec-websocket-protocol", b"upgrade")


async def relay_websocket(upstream: Upstream, scope: Scope, receive: Receive, send: Send) -> None:
    """Open a WebSocket to an origin server, and relay messages and the closing, codes and reasons included.

    A handshake that the origin server refuses is refused with its response, where the ASGI server can send
    one; else with the server's own 403.
    """
    try:
        from univocal.origin.websocket import opening_fields  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        logger.error("a client requested a WebSocket, which needs: pip install 'univocal[websockets]'")
        await send({"type": "websocket.close", "code": 1011})
        return
    await receive()  # websocket.connect
    denies = DENIAL in scope.get("extensions", {})
    client = ScopeClient(scope, receive, denial(send))
    opening = _Opening(client, scope["headers"])
    fields = opening_fields(scope["headers"], scope.get("subprotocols", ()))
    request = relayed_request(b"GET", scope, fields, upgrade=WEBSOCKET)
    next_message = asyncio.ensure_future(receive())
    try:
        opening.under_way = upstream.send(request, opening)
        await asyncio.wait((opening.decided, next_message), return_when=asyncio.FIRST_COMPLETED)
        if not opening.decided.done():
            return  # the client has left
        if opening.socket is not None:
            await send(_accepted(opening.fields))
            await _relay(opening.socket, next_message, receive, send)
        elif denies:
            client.exchange = opening
            await client.deliver()
        else:
            await send({"type": "websocket.close", "code": 1008})
    finally:
        next_message.cancel()
        opening.cancel()


def _accepted(fields: Fields) -> Message:
    chosen = values(fields, b"sec-websocket-protocol")
    return {
        "type": "websocket.accept",
        "subprotocol": chosen[0].decode("latin-1") if chosen else None,
        "headers": without(fields, _SERVERS),
    }


async def _relay(socket: OriginSocket, first: asyncio.Future[Message], receive: Receive, send: Send) -> None:
    """Relay until one side closes."""
    there = asyncio.ensure_future(_to_origin(socket, first, receive))
    back = asyncio.ensure_future(_to_client(socket, send))
    try:
        await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
        for task in (there, back):
            if task.done():
                task.result()
    finally:
        for task in (there, back):
            task.cancel()
        await asyncio.gather(there, back, return_exceptions=True)


async def _to_origin(socket: OriginSocket, first: asyncio.Future[Message], receive: Receive) -> None:
    message = await first
    while message["type"] == "websocket.receive":
        text: str | None = message.get("text")
        message = await _sent(socket, message["bytes"] if text is None else text, receive)
    socket.close(message.get("code", 1005), message.get("reason") or "")


async def _sent(socket: OriginSocket, message: str | bytes, receive: Receive) -> Message:
    """Send a message; returns what the client sends next, or that it has left, which waits for nobody."""
    if not socket.full:
        await socket.send(message)
        return await receive()
    sending, following = asyncio.ensure_future(socket.send(message)), asyncio.ensure_future(receive())
    try:
        await asyncio.wait((sending, following), return_when=asyncio.FIRST_COMPLETED)
        if not (following.done() and following.result()["type"] == "websocket.disconnect"):
            await sending
        return await following
    finally:
        sending.cancel()
        following.cancel()


async def _to_client(socket: OriginSocket, send: Send) -> None:
    with suppress(OSError):  # ASGI: the client has left
        while isinstance(message := await socket.receive(), str | bytes):
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
        await send({"type": "websocket.close", **_code_and_reason(message)})


def _code_and_reason(end: Closed) -> dict[str, Any]:
    """A close code that may be sent: an origin server that has said nothing is a bad gateway's."""
    code = {1005: 1000, 1006: _BAD_GATEWAY}.get(end.code, end.code)
    return {"code": code, "reason": end.reason}


class _Opening(Relay):
    """The answer to a handshake: `socket`, or a response; it is known when `decided` is done."""

    def __init__(self, client: ScopeClient, request_fields: Fields) -> None:
        super().__init__(client, request_fields, behind_a_cache=False)
        self.decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.socket: OriginSocket | None = None
        self.fields: Fields = []  # of the 101

    def interim(self, status: int, fields: Fields) -> None:
        """Pass nothing on: a handshake's client hears one response."""

    def start(self, response: Response) -> None:
        if isinstance(response, Switching):
            from univocal.origin.websocket import OriginSocket  # noqa: PLC0415 - an extra

            self.fields, self.socket = response.fields, OriginSocket(response.line)
        else:
            super().start(response)
        self._decide()

    def fail(self, error: Exception) -> None:
        super().fail(error)
        self._decide()

    def cancel(self) -> None:
        """Give up, or close what is open: the client has left."""
        if self.socket is None:
            super().cancel()
        else:
            self.socket.close(_GOING_AWAY)

    def _decide(self) -> None:
        if not self.decided.done():
            self.decided.set_result(None)
