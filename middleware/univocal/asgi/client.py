"""The client of an exchange at the ASGI door: it awaits `send` for what is pushed, in the server's task."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from univocal.asgi.messages import Message, Scope, Send, send_whole
from univocal.http.extensions import INTERIM
from univocal.http.messages import Fields
from univocal.http.problem import Problem


class _Resumable(Protocol):
    def resume(self) -> None: ...


# Bytes that wait for the server before no more are taken for now.
HIGH_WATER: Final = 128 * 1024
# Bytes of content in one message.
PIECE: Final = 256 * 1024


class ScopeClient:
    """Sends to the client of an http scope what an exchange pushes (see http.roles)."""

    __slots__ = (
        "_begun",
        "_dated",
        "_interims",
        "_messages",
        "_old",
        "_over",
        "_scope",
        "_send",
        "_waiting",
        "_wake",
    )

    def __init__(self, scope: Scope, send: Send, *, dated: bool = False) -> None:
        self._scope, self._send = scope, send
        self._dated = dated  # the server adds a Date
        self._interims = INTERIM in scope.get("extensions", {})
        self._old = scope.get("http_version", "").startswith("1")
        self._messages: deque[Message] = deque()
        self._waiting = 0  # bytes in _messages
        self._over = False
        self._begun = False  # the server has the response's head
        self._wake: asyncio.Future[None] | None = None

    # Pushed by the exchange

    def interim(self, status: int, fields: Fields) -> None:
        if self._interims:
            self._put({"type": INTERIM, "status": status, "headers": fields})

    def start(self, status: int, fields: Fields) -> None:
        if self._dated:
            fields = [field for field in fields if field[0] != b"date"]
        if not self._old:  # RFC 9113 §8.2.2: there is no Connection field beyond HTTP/1.1
            fields = [field for field in fields if field[0] != b"connection"]
        # A list of its own: who stands between may change it in place, and others get the same fields.
        self._put({"type": "http.response.start", "status": status, "headers": list(fields)})

    def write(self, chunk: bytes | memoryview) -> bool:
        """Take content, in pieces: a server copies what a slow client does not take at once."""
        self._waiting += len(chunk)
        for start in range(0, len(chunk), PIECE):
            piece = bytes(chunk[start : start + PIECE])
            self._put({"type": "http.response.body", "body": piece, "more_body": True})
        return self._waiting < HIGH_WATER

    def finish(self) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last["type"] == "http.response.body":
            last["more_body"] = False
        else:
            self._put({"type": "http.response.body", "body": b"", "more_body": False})
        self.cut()

    def cut(self) -> None:
        self._over = True
        self._ring()

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._ring()

    def _ring(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # Awaited by the door

    async def give_up(self, answer: Problem) -> None:
        """Answer a request that will get no other response, unless one has begun."""
        if not self._begun:
            with suppress(Exception):  # the server may take nothing any more
                await send_whole(self._send, answer)

    async def deliver(self, exchange: _Resumable) -> None:
        """Send what is pushed, until the exchange is over."""
        messages = self._messages
        while True:
            while messages:
                message = messages.popleft()
                self._begun = self._begun or message["type"] == "http.response.start"
                await self._send(message)
                if not self._over and (octets := len(message.get("body", b""))):
                    self._waiting -= octets
                    if self._waiting < HIGH_WATER <= self._waiting + octets:
                        exchange.resume()
            if self._over:
                return
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
