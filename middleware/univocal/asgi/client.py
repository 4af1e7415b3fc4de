"""The client of an exchange at the ASGI door: whoever awaits the server's `send` delivers what is pushed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from univocal.asgi.messages import Message, Receive, Scope, Send, send_whole
from univocal.http.messages import INTERIM, Fields
from univocal.http.pipe import Pipe
from univocal.http.problem import Problem

# Seconds before a waiting client is watched: most answers are there by then, and watching costs a task.
PATIENCE: Final = 0.1
# Bytes that wait for the server before no more are taken for now.
HIGH_WATER: Final = 128 * 1024
# Bytes of content in one message.
PIECE: Final = 256 * 1024


class _Exchange(Protocol):
    fetches: bool

    def resume(self) -> None: ...

    def cancel(self) -> None: ...


class ScopeClient:
    """Sends to the client of an http scope what an exchange pushes (see http.roles).

    The call of the application that brings the answer delivers each message within its own `send`. Only
    while others read the answer, too, does a task do so: a slow client does not hold them back.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, dated: bool = False) -> None:
        self._receive = receive
        self._send = send
        self._dated = dated  # the server adds a Date
        self._interims = INTERIM in scope.get("extensions", {})
        self._old = scope.get("http_version", "").startswith("1")
        self._messages: deque[Message] = deque()
        self._waiting = 0  # bytes in _messages
        self._begun = False  # the server has the response's head
        self._coming: asyncio.Future[Message] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.Future[None] | None = None
        self.delivering: asyncio.Task[None] | None = None  # once a task of its own does so alone
        self.exchange: _Exchange | None = None
        self.call: Callable[[], Awaitable[None]] | None = None  # of the application, that is to be made
        self.leaving: Callable[[], object] | None = None  # told that the client has left
        self.over = False  # nothing more is pushed
        self.left = False  # the client is known to have left

    # Pushed by the exchange

    def interim(self, status: int, fields: Fields) -> None:
        if self._interims:
            self._put({"type": INTERIM, "status": status, "headers": fields})

    def start(self, status: int, fields: Fields) -> None:
        # A list of its own: who stands between may change it in place, and others get the same fields.
        own = [field for field in fields if not (self._dated and field[0] == b"date")]
        if not self._old:  # RFC 9113 §8.2.2: there is no Connection field beyond HTTP/1.1
            own = [field for field in own if field[0] != b"connection"]
        self._put({"type": "http.response.start", "status": status, "headers": own})

    def write(self, chunk: bytes | memoryview) -> bool:
        """Take content, in pieces: a server copies what a slow client does not take at once."""
        self._waiting += len(chunk)
        if len(chunk) <= PIECE:
            self._put({"type": "http.response.body", "body": bytes(chunk), "more_body": True})
            return self._waiting < HIGH_WATER
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
        self.over = True
        self.ring()

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self.ring()

    def ring(self) -> None:
        """Wake the one who waits for news."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def debug(self, message: Message) -> None:
        """Pass on what the application says of its response to a test client."""
        if not self.over:
            self._put(message)

    # Awaited by the door and by the call of the application

    async def flush(self) -> None:
        """Deliver what has been pushed, and what is pushed meanwhile."""
        messages = self._messages
        while messages:
            message = messages.popleft()
            self._begun = self._begun or message["type"] == "http.response.start"
            try:
                await self._send(message)
            except Exception:
                self.leave()
                raise
            if octets := len(message.get("body", b"")):
                self._waiting -= octets
                if self._waiting < HIGH_WATER <= self._waiting + octets and self.exchange is not None:
                    self.exchange.resume()

    async def deliver(self) -> None:
        """Deliver until the exchange is over; calls of the application run here, in the request's task."""
        while True:
            call, self.call = self.call, None
            if call is not None:
                await call()
            elif self.delivering is not None and self.over:
                await self.delivering
                return
            else:
                if self.delivering is None:
                    await self.flush()
                if self.call is None and not self.over:
                    await self._news()
                elif self.call is None and not self._messages:
                    return

    def deliver_aside(self) -> None:
        """Deliver in a task, at the client's own pace."""
        if self.delivering is None:
            self.delivering = asyncio.get_running_loop().create_task(self._deliver_alone())

    async def _deliver_alone(self) -> None:
        with suppress(Exception):  # it has left, by which its exchange ends
            while not self.over or self._messages:
                await self.flush()
                if not self.over:
                    await self._news()

    async def _news(self) -> None:
        """Wait until something is pushed, or somebody rings."""
        if self._wake is None or self._wake.done():
            self._wake = asyncio.get_running_loop().create_future()
        await self._wake

    async def pass_on(self, message: Message) -> None:
        """Pass a message that comes after the response to the server."""
        if self.over and not self._messages:
            await self._send(message)

    # From the client

    async def receive(self) -> Message:
        """The server's next message."""
        coming, self._coming = self._coming, None
        return await (self._receive() if coming is None else coming)

    def watch(self, seconds: float = PATIENCE) -> None:
        """Hear, after a while, of the client's leaving: ASGI tells it to whoever receives."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self._peek)

    def _peek(self) -> None:
        if self._coming is None and not self.left:
            self._coming = asyncio.ensure_future(self._receive())
            self._coming.add_done_callback(self._came)

    def _came(self, coming: asyncio.Future[Message]) -> None:
        if coming.cancelled() or coming.exception() is not None or self._coming is not coming:
            return  # the one who receives hears of it
        if coming.result()["type"] == "http.disconnect":
            self.leave()
        elif self.exchange is not None and self.exchange.fetches:
            self._coming = None  # it is for no one else
            self._peek()

    def leave(self) -> None:
        """End the exchange: the client has left, or its server takes nothing more for it."""
        if not self.over:
            self.left = self.over = True
            self._messages.clear()
        if self.exchange is not None:
            self.exchange.cancel()
        if self.leaving is not None:
            self.leaving()
        self.ring()

    def close(self) -> None:
        """Deliver and receive nothing more."""
        for waiting in (self._timer, self._coming, self.delivering):
            if waiting is not None:
                waiting.cancel()

    async def give_up(self, answer: Problem) -> None:
        """Answer a request that will get no other response, unless one has begun."""
        if not self._begun:
            with suppress(Exception):  # the server may take nothing any more
                await send_whole(self._send, answer)


class Reception:
    """Receives what a client sends, in a task of its own once somebody wants its `content`.

    `left` is called when the client leaves, `too_large` when its content has more than `limit` bytes; 0 is no
    limit.
    """

    def __init__(
        self, receive: Receive, left: Callable[[], None], too_large: Callable[[], None], limit: int
    ) -> None:
        self._receive = receive
        self._left = left
        self._too_large = too_large
        self._limit = limit
        self._room = asyncio.Event()
        self.content = Pipe(self._room.set, self._start)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Watch, after a while, for the client to leave: ASGI tells it to whoever receives."""
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._start)

    def close(self) -> None:
        """Receive no more."""
        self.content.drop()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        octets, content = 0, self.content
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left()
                return
            chunk = message.get("body", b"")
            octets += len(chunk)
            if 0 < self._limit < octets:
                self._too_large()
                return
            self._room.clear()
            has_room = content.write(chunk)
            if not message.get("more_body", False):
                content.finish()  # what is awaited from here on is the client's leaving
            elif not has_room:
                await self._room.wait()
