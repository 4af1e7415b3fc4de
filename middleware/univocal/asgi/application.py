"""An ASGI application as the origin server of an exchange."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from univocal.asgi.handlers import HandlerCall, Purger
from univocal.asgi.messages import App, ClientLeftError, Message, Scope, fields_of
from univocal.asgi.scope import respell
from univocal.engine.broadcast import CutShortError
from univocal.forward.roles import OriginRequest
from univocal.http.errors import RefusedError
from univocal.http.extensions import EARLY_HINT, INTERIM
from univocal.http.forward import framed_anew, one_length
from univocal.http.roles import Answer, Content, UnderWay
from univocal.judge.admission import Admission

logger: Final = logging.getLogger("univocal")

# Bytes of a request's content that wait for the application.
HIGH_WATER: Final = 64 * 1024

# Seconds that an application may go on once nobody waits for its response: most end when they hear of it, and
# what they do beside answering is done.
LINGER: Final = 30.0
# Bytes that it may send in that time; with more, it waits for the end.
UNWANTED: Final = 1024 * 1024
# Messages that it may send then in one turn of the event loop before others have theirs.
_AT_ONCE: Final = 32


class Application:
    """Asks an ASGI application for the requests of one scope (an `Origin`, see forward/roles.py)."""

    __slots__ = ("_admission", "_app", "_cache", "_scope", "takes_targets")

    def __init__(self, app: App, scope: Scope, admission: Admission, cache: Purger) -> None:
        self.takes_targets: Final = False
        self._admission = admission
        self._app = app
        self._cache = cache
        self._scope = scope

    def ask(self, request: OriginRequest, content: Content | None, answer: Answer) -> UnderWay:
        """Call the application in a task of its own, with a canonical scope."""
        fields = framed_anew(request.fields)
        if request.edits is not None:
            fields = request.edits.supply(fields)
        scope = respell(self._scope, self._admission, request.method, fields)
        canonical = self._admission.canonical
        assert canonical is not None
        return _Call(self._app, scope, content, answer, HandlerCall(self._cache, canonical))


class _Call:
    """One call of the application; its content comes as it is received."""

    __slots__ = (
        "_answer",
        "_arrived",
        "_chunks",
        "_complete",
        "_content",
        "_finished",
        "_handler",
        "_news",
        "_obsolete",
        "_room",
        "_strict",
        "_task",
        "_this_turn",
        "_unwanted",
    )

    def __init__(
        self, app: App, scope: Scope, content: Content | None, answer: Answer, handler: HandlerCall
    ) -> None:
        self._answer = answer
        self._handler = handler
        self._content = content
        self._chunks: deque[bytes] = deque()
        self._complete = content is None  # all of the content is in _chunks
        self._arrived = False  # the application has been told of its end
        self._finished = False  # the response is complete
        self._obsolete = False  # nobody waits for the response any more
        self._unwanted = 0  # bytes sent since then
        self._this_turn = 0  # messages among them in this turn of the event loop
        # Since version 2.4 of the specification a send to nobody is an OSError; before, it has no effect.
        self._strict = _at_least_2_4(scope.get("asgi", {}).get("spec_version", "2.0"))
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._task = asyncio.get_running_loop().create_task(self._run(app, scope))

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await self._handler.run(app(scope, self._receive, self._send))
        except Exception as error:
            if self._finished:
                logger.exception("the application failed after its response")
            elif not self._obsolete:
                self._end()
                self._answer.fail(error)
        except asyncio.CancelledError:
            if not (self._finished or self._obsolete):  # it has cancelled itself, or the loop ends
                self._end()
                self._answer.fail(CutShortError())
            raise
        else:
            if not (self._finished or self._obsolete):
                self._end()
                self._answer.fail(CutShortError())

    def _end(self) -> None:
        self._finished = True
        if self._content is not None:
            self._content.detach()
        self._ring()

    # Called by the flight

    def pause(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def cancel(self) -> None:
        """Let the application hear that its client has left, and cancel it if it goes on for long."""
        if self._finished or self._obsolete:
            return
        self._obsolete = True
        if self._content is not None:
            self._content.detach()
        self._ring()
        self.resume()
        later = asyncio.get_running_loop().call_later(LINGER, self._task.cancel)
        self._task.add_done_callback(lambda _: later.cancel())

    # The request's content

    def write(self, chunk: bytes) -> bool:
        self._chunks.append(chunk)
        self._ring()
        return sum(map(len, self._chunks)) < HIGH_WATER

    def finish(self) -> None:
        self._complete = True
        self._ring()

    def _ring(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # Called by the application

    async def _receive(self) -> Message:
        """The content as it comes; the client has left when all have for whom the request is made."""
        if self._content is not None and not self._complete and self._news is None:
            self._content.attach(self)
        while not self._chunks and (not self._complete or self._arrived):
            if self._obsolete or self._finished:
                return {"type": "http.disconnect"}
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        body = b"".join(self._chunks)
        self._chunks.clear()
        self._arrived = self._complete
        if self._content is not None and not (self._complete or self._obsolete):
            self._content.resume()
        return {"type": "http.request", "body": body, "more_body": not self._complete}

    async def _send(self, message: Message) -> None:
        if self._obsolete:
            await self._sent_to_nobody(len(message.get("body", b"")))
        if self._finished or self._obsolete:
            return
        answer = self._answer
        match message["type"]:
            case "http.response.start":
                fields = one_length(fields_of(message))
                if fields is None:
                    raise RefusedError("origin-bad-response")
                answer.start(self._handler.response(message["status"], fields))
            case "http.response.body":
                body = bytes(message.get("body", b""))
                if body and not answer.write(body):
                    self.pause()
                if not message.get("more_body", False) and not self._obsolete:
                    self._end()
                    answer.finish()
                elif self._room is not None:
                    await self._room
            case kind if kind == INTERIM:
                answer.interim(message["status"], fields_of(message))
            case kind if kind == EARLY_HINT:
                answer.interim(103, [(b"link", bytes(link)) for link in message["links"]])

    async def _sent_to_nobody(self, octets: int) -> None:
        """Take a message that goes nowhere.

        A framework that hears of the leaving cancels what it does. That should meet its generator at an await
        of its own, and not here: a generator that is left at a `yield` ends with a garbage collection.
        """
        if self._strict:
            raise ClientLeftError("nobody waits for this response any more")
        self._unwanted += octets
        if self._unwanted > UNWANTED:
            await asyncio.get_running_loop().create_future()  # until the task is cancelled
        if not self._this_turn:
            asyncio.get_running_loop().call_soon(self._turned)
        self._this_turn += 1
        if self._this_turn > _AT_ONCE:
            await asyncio.sleep(0)

    def _turned(self) -> None:
        self._this_turn = 0


def _at_least_2_4(version: str) -> bool:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) >= (2, 4) if major.isdecimal() and minor.isdecimal() else False
