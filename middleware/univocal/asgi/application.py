"""An ASGI application as an origin server, and requests that go to it without an exchange."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from enum import Enum
from typing import Final

from univocal.asgi.client import ScopeClient
from univocal.asgi.handlers import HandlerCall, Purger
from univocal.asgi.messages import DEBUG, App, ClientLeftError, Message, Scope, fields_of
from univocal.asgi.scope import AsgiRequest, adds_date, respell
from univocal.cache.decide import handling_of_forward
from univocal.cache.forms import is_compressible
from univocal.cache.personal import oddities
from univocal.cache.storing import DIRECTED, Fetched, Unstorable, may_store, uncollapsed_seconds
from univocal.engine.broadcast import CutShortError
from univocal.engine.exchange import Compressing, Engine, Exchange
from univocal.engine.flight import Flight
from univocal.http.errors import RefusedError
from univocal.http.intermediary import framed_anew, one_length
from univocal.http.messages import EARLY_HINT, INTERIM, NO_NAMES, Fields, Response
from univocal.http.pipe import NO_CONTENT, Pipe
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.http.tables import moves, remember
from univocal.judge.admission import Admission
from univocal.judge.runtime import cache_status
from univocal.uri.target import Canonical

logger: Final = logging.getLogger("univocal")

_DISCONNECT: Final = "http.disconnect"
_RECEIVED: Final = NO_CONTENT  # the application receives it itself


class UnstorableHead:
    """The head of a response that its own fields forbid to store, and the fields that the client gets."""

    def __init__(self, admission: Admission, message: Message, fields: Fields) -> None:
        self._runtime, self._rules = admission.runtime, admission.rules
        self._status: int = message["status"]
        # Copies: an application may change its own.
        self._received = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        self.fields = fields

    @property
    def octets(self) -> int:
        """The bytes of all fields."""
        return sum([len(name) + len(value) for name, value in self.fields])

    def is_of(self, admission: Admission, message: Message) -> bool:
        """Tell whether another response, judged by the same rules, has the same head."""
        is_same = self._rules is admission.rules and self._runtime is admission.runtime
        return (
            is_same and self._status == message["status"] and bool(self._received == message.get("headers"))
        )


class Mounted:
    """An ASGI application that a cache is mounted around, and all that its requests share."""

    def __init__(self, app: App, engine: Engine, cache: Purger, refreshes: set[asyncio.Task[None]]) -> None:
        self.app = app
        self.engine = engine
        self.cache = cache
        self.refreshes = refreshes
        self.heads: dict[bytes, UnstorableHead] = {}  # the last one of a key


class Application:
    """Answers the request of one scope by an ASGI application (an `Origin`, see http/roles.py).

    The client's own task runs the calls. A refresh in the background has a task, one of `refreshes`. So has a
    request that is made once more when the client's task has ended.
    """

    def __init__(self, mounted: Mounted, asked: AsgiRequest, admission: Admission) -> None:
        self.takes_targets: Final = False
        self.affinity: Final = None
        self.admission = admission
        self._mounted = mounted
        self._scope = asked.scope
        self.client = client = ScopeClient(
            asked.scope, asked.receive, asked.send, dated=adds_date(asked.receive, asked.send)
        )
        self.exchange = Exchange(mounted.engine, client, admission, self, _RECEIVED, asked.begun)
        client.exchange = self.exchange
        self.call: Call | None = None  # the latest of the client's task
        self.closed = False  # the client's task has ended
        self.error: Exception | None = None  # of a call whose exchange was answered otherwise, or will be
        self.passing: HandlerCall | None = None  # of a call that began without an exchange

    async def answer(self) -> None:
        """Answer the request; raises the application's error."""
        try:
            self.exchange.begin()
            if self.client.call is None and not self.exchange.over:
                self.client.watch()
            await self.client.deliver()
        finally:
            self.close()
        self._raise_error()

    async def conclude(self) -> None:
        """Deliver the rest of a response whose call began without an exchange; raises the call's error."""
        try:
            await self.client.deliver()
        finally:
            self.close()
        self._raise_error()

    def _raise_error(self) -> None:
        """Raise the application's error, unless the client was answered otherwise."""
        if self.exchange.error is not None:
            error, traceback = self.exchange.error
            raise error.with_traceback(traceback)
        if self.error is not None and not isinstance(self.error, RefusedError | CutShortError):
            logger.error("the application failed, and a stored response answered", exc_info=self.error)

    def take_over(self, handler: HandlerCall) -> Call:
        """Begin an exchange in the middle of a call, with the head of its response."""
        self.passing = handler
        self.exchange.lead_alone()
        assert self.call is not None
        return self.call

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Have the application called with a canonical scope."""
        assert isinstance(answer, Flight)
        self.admission = answer.admission  # credentials may have been verified since
        canonical, mounted = self.admission.canonical, self._mounted
        assert canonical is not None
        handler, self.passing = self.passing, None
        if handler is not None:
            self.call = call = Call(self, mounted.app, self._scope, request.content, answer, handler)
            self.client.leaving = call.client_left
            return call
        fields = framed_anew(request.fields)
        if request.edits is not None:
            fields = request.edits.supply(fields)
        scope = respell(self._scope, self.admission, request.method, fields)
        handler = HandlerCall(mounted.cache, canonical)
        call = Call(self, mounted.app, scope, request.content, answer, handler)
        if request.is_unread or self.closed:
            self._begin(call)
        else:
            self.call, self.client.call = call, call.run
            self.client.ring()
        return call

    def close(self) -> None:
        """Run no more calls in the client's task; a call that others wait for goes on by itself."""
        self.client.close()
        self.exchange.cancel()
        self.closed = True
        waiting, self.client.call = self.client.call, None
        if waiting is not None and self.call is not None:
            self._begin(self.call)

    def _begin(self, call: Call) -> None:
        call.task = asyncio.get_running_loop().create_task(call.run_alone())
        self._mounted.refreshes.add(call.task)
        call.task.add_done_callback(self._mounted.refreshes.discard)


class CallState(Enum):
    """The states of a call."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    BEGUN = "the application has not answered yet"
    STARTED = "the response's head is there"
    ANSWERED = "the response is complete"
    UNWANTED = "no client waits for the response any more"


MOVES: Final[Mapping[CallState, Mapping[CallState, str]]] = {
    CallState.BEGUN: {
        CallState.STARTED: "the application sends the head",
        CallState.ANSWERED: "the application fails, and nothing of its response has come",
        CallState.UNWANTED: "no client waits for the response any more",
    },
    CallState.STARTED: {
        CallState.ANSWERED: "the application sends the end of the content, or fails before it",
        CallState.UNWANTED: "no client waits for the rest any more",
    },
    CallState.ANSWERED: {},
    CallState.UNWANTED: {},
}
"""The states that may follow each state of a call, and what causes the move."""

_MOVES: Final = moves(MOVES)
_OVER: Final = tuple([state for state in CallState if not MOVES[state]])


class Call:
    """One call of the application, in the states of `MOVES`. With a `task` of its own, it has no client."""

    def __init__(
        self,
        door: Application,
        app: App,
        scope: Scope,
        content: Pipe | None,
        answer: Flight,
        handler: HandlerCall,
    ) -> None:
        self._door = door
        self._handler = handler
        self._app = app
        self._scope = scope
        self._content = content
        self._max_body = 0 if content is None else door.admission.max_body
        self._answer = answer
        self._state = CallState.BEGUN
        self.told = False  # of the leaving, while the response was not complete
        self._unbounded = False  # the response has no length
        self._streams = False  # so, and its content comes in several messages
        self.asked = False  # the application has received the end of the content
        self._octets = 0  # of content that it has received
        self._heard = False  # the client has left, and the application hears of it
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Call the application; its errors are raised, unless the client is answered otherwise."""
        if self._state is CallState.UNWANTED:
            return
        if self.task is None:
            self._door.client.leaving = self.client_left
        try:
            await self._handler.run(self._app, self._scope, self.receive, self.send)
        except Exception as error:
            if not self.fail(error):
                raise
        except BaseException:
            self.cancelled()
            raise
        else:
            if self._state not in _OVER:
                self.returned()
        finally:
            self._answer.call_ended()

    def returned(self) -> None:
        """End a call that has returned; log it if a client lacks its response, or a part of it."""
        if not (self._state in _OVER or self.told):
            missing = "starting" if self._state is CallState.BEGUN else "completing"
            logger.error("ASGI callable returned without %s response.", missing)  # uvicorn's words
        self.fail(CutShortError())

    def cancelled(self) -> None:
        """End the exchange of a call that was cancelled."""
        if self.task is None:
            self._door.client.leave()
        self.fail(CutShortError())

    async def run_alone(self) -> None:
        """Call the application where no client waits; its errors are logged."""
        try:
            await self.run()
        except Exception:
            logger.exception("the application failed where no client waits for it")

    def fail(self, error: Exception) -> bool:
        """End the exchange of a call by its error; True: it is the exchange's to answer."""
        door = self._door
        if self._state in _OVER:
            return self._state is CallState.UNWANTED and not door.client.left
        self._state = _MOVES[self._state, CallState.ANSWERED]
        self._answer.fail(error)
        if self.task is not None or (not door.client.left and door.exchange.error is None):
            door.error = error
            return True
        return False

    # Called by the flight

    def pause(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def cancel(self) -> None:
        """Tell the application that no client waits; a call without a client is cancelled."""
        if self._state in _OVER:
            return
        self._state = _MOVES[self._state, CallState.UNWANTED]
        self.resume()
        self._ring()
        if self.task is not None:
            self.task.cancel()

    def client_left(self) -> None:
        """Tell the application that its client has left, unless others have a part of the response."""
        self._heard = not self._answer.needs_rest
        if self._heard:
            self._ring()

    def _ring(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # Called by the application

    async def receive(self) -> Message:
        """The next message; an application that hears of the leaving may end what it has not completed."""
        message = await self._next()
        if message["type"] == _DISCONNECT and self._state not in _OVER:
            self.told = True
            if self._unbounded:
                self._answer.abandon()
        return message

    async def _next(self) -> Message:
        """The server's next message; a request that is made for others, too, has no content."""
        door = self._door
        if self._content is None:
            return await self._without_content()
        if self._state is CallState.UNWANTED:
            return {"type": _DISCONNECT}
        message = await door.client.receive()
        if message["type"] == _DISCONNECT:
            door.client.leave()
            return message
        self._octets += len(message.get("body", b""))
        if 0 < self._max_body < self._octets:
            door.exchange.refuse(("body-too-large",))
            await door.client.flush()
            return {"type": _DISCONNECT}
        return message

    async def _without_content(self) -> Message:
        if not self.asked and self._state not in _OVER:
            self.asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        if self._state not in _OVER and not self._heard:
            if self.task is None:
                self._door.client.watch(0)
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        if self._state is CallState.ANSWERED and self.task is None:
            return await self._behind_the_response()  # the server may not have sent all of it
        return {"type": _DISCONNECT}

    async def _behind_the_response(self) -> Message:
        """The server's own message, unless the application has been told of the content before."""
        message = await self._door.client.receive()
        while self.asked and message["type"] != _DISCONNECT:
            message = await self._door.client.receive()
        self.asked = True
        return message

    async def send(self, message: Message) -> None:
        """Push a message to all who wait, and await the server's `send` for the client's."""
        client, flight = self._door.client, self._answer
        if self._state in _OVER:
            await self._send_late(message)
            return
        self._push(message)
        state = self._door.exchange.state
        lags = client.delivering is not None or (isinstance(state, Compressing) and state.content.lags)
        if self.task is None and (lags or flight.is_apart):
            client.deliver_aside()
        elif self.task is None:
            flight.held_up = True  # by the client: no other is to wait for it, too
            await client.flush()
            flight.held_up = False
        while self._room is not None:
            await self._room
            if self.task is None and client.delivering is None and not flight.is_apart:
                await client.flush()

    def _push(self, message: Message) -> None:
        answer = self._answer
        match message["type"]:
            case "http.response.body" if self._state is CallState.STARTED:
                body, more = bytes(message.get("body", b"")), message.get("more_body", False)
                if self.told and self._unbounded and (more or not body):
                    answer.abandon()
                if body and not answer.write(body):
                    self.pause()
                if more:
                    self._streams = self._unbounded
                elif self._state not in _OVER:
                    self._handler.streamed = self._streams
                    self._state, self._room = _MOVES[self._state, CallState.ANSWERED], None
                    self._ring()
                    answer.finish()
            case "http.response.start" if self._state is CallState.BEGUN:
                answer.start(self._response_of(message))
                if self._state is CallState.BEGUN:
                    self._state = _MOVES[CallState.BEGUN, CallState.STARTED]
            case kind if kind == INTERIM:
                answer.interim(message["status"], fields_of(message))
            case kind if kind == EARLY_HINT:
                answer.interim(103, [(b"link", bytes(link)) for link in message["links"]])
            case kind if kind == DEBUG and self.task is None:
                self._door.client.debug(message)
            case "http.response.body" | "http.response.start" as kind:
                raise RuntimeError(f"Unexpected ASGI message '{kind}': a response is one start, then bodies.")

    async def _send_late(self, message: Message) -> None:
        """Take a message that is no part of any response; the server says what it thinks of it."""
        client = self._door.client
        if self._state is CallState.UNWANTED and message["type"] == "http.response.start":
            self._answer.start(
                self._response_of(message)
            )  # to an unsafe request it has its effect all the same
        if self.task is None and (client.left or self._state is CallState.ANSWERED):
            await client.pass_on(message)
        else:
            raise ClientLeftError("nobody waits for this response any more")

    def _response_of(self, message: Message) -> Response:
        fields = head_of(message)
        self._unbounded = b"content-length" not in [name for name, _ in fields]
        return self._handler.response(message["status"], fields)


def head_of(message: Message) -> Fields:
    """The fields of a response's first message. Raises RefusedError if its length can be read in two ways."""
    fields = one_length(fields_of(message))
    if fields is None:
        raise RefusedError("origin-bad-response")
    return fields


_MOST: Final = 1024  # heads that are remembered, and how many bytes one may have, with its key
_LONGEST: Final = 2048


class Passage:
    """A request without a flight: it waits for no other, and no other waits for it. Messages go through.

    Only the head is judged. If it may be stored or is special, an exchange begins there.
    """

    def __init__(self, mounted: Mounted, asked: AsgiRequest, admission: Admission) -> None:
        canonical = admission.canonical
        assert canonical is not None
        self._mounted = mounted
        self._asked, self._admission = asked, admission
        self._handler = HandlerCall(mounted.cache, canonical)
        self._is_asked = self._is_left = self._is_started = False
        self._application: Application | None = None
        self._call: Call | None = None  # from when there is an exchange

    async def run(self) -> None:
        """Call the application; raises its errors."""
        request = self._admission.request
        scope = respell(self._asked.scope, self._admission, request.method, request.fields)
        try:
            await self._handler.run(self._mounted.app, scope, self._hear, self._say)
        except Exception as error:
            if not self._is_started:
                self._take_over()
            if self._call is None or not self._call.fail(error):
                self._close()
                raise
        except BaseException:
            if self._call is not None:
                self._call.cancelled()
            self._close()
            raise
        else:
            if not self._is_started:
                self._take_over()
            if self._call is not None:
                self._call.returned()
        if self._application is not None:
            await self._application.conclude()

    def _close(self) -> None:
        if self._application is not None:
            self._application.close()

    def _take_over(self) -> Call:
        """Go on as an exchange, whose response was asked for when the call began."""
        application = Application(self._mounted, self._asked, self._admission)
        self._application, self._is_started = application, True
        self._call = call = application.take_over(self._handler)
        call.asked, call.told = self._is_asked, self._is_left
        return call

    async def _hear(self) -> Message:
        """The server's own message, without the content that HTTP/2 can send unannounced: it is not keyed."""
        if self._call is not None:
            return await self._call.receive()
        message = await self._asked.receive()
        while self._is_asked and message["type"] == "http.request":
            message = await self._asked.receive()
        if message["type"] == "http.request":
            self._is_asked = True
            has_content = message.get("body") or message.get("more_body")
            return {"type": "http.request", "body": b"", "more_body": False} if has_content else message
        self._is_left = True
        if self._application is not None:
            self._application.client.leave()
        return message

    def _say(self, message: Message) -> Awaitable[None]:
        """The server's own `send`, or that of the exchange: nothing is awaited between."""
        call = self._call
        if call is None and not self._is_started:
            fields = None
            if message["type"] == "http.response.start":
                if not isinstance(message.get("headers", []), list):  # an iterator can be read once
                    message = {**message, "headers": list(message["headers"])}
                fields = self._passed_fields(message)
            if fields is not None:
                self._is_started = True
                message = {"type": "http.response.start", "status": message["status"], "headers": fields}
            else:  # it may be stored or is special, an interim response, or one out of turn
                call = self._take_over()
        return self._asked.send(message) if call is None else call.send(message)

    def _passed_fields(self, message: Message) -> Fields | None:
        """The fields of a response that is passed on; None for one that may be stored, or is special."""
        mounted, admission, status = self._mounted, self._admission, message["status"]
        canonical, rules, request = admission.canonical, admission.rules, admission.request
        assert canonical is not None
        if 300 <= status < 400 or status == 401:
            return None
        known = mounted.heads.get(canonical.key) if self._handler.is_silent else None
        if known is not None and known.is_of(admission, message):
            fields = known.fields.copy()
        else:
            judged = self._judged_fields(canonical, message)
            if judged is None:
                return None
            fields = judged
        if not self._asked.line.version.startswith(b"1"):  # RFC 9113 §8.2.2
            fields = [field for field in fields if field[0] != b"connection"]
        odd = NO_NAMES if request.names <= rules.ordinary else oddities(request, rules.ordinary)
        until = mounted.engine.clock() + uncollapsed_seconds(rules, status)
        mounted.engine.gate.tiers.memory.stop_collapsing(canonical.key, until, odd)
        return fields

    def _judged_fields(self, canonical: Canonical, message: Message) -> Fields | None:
        """The same, of a head that is judged now."""
        admission, status, is_silent = self._admission, message["status"], self._handler.is_silent
        fields = head_of(message)
        if admission.codings is not None and is_compressible(status, fields):
            return None
        response = Response(status, fields) if is_silent else self._handler.response(status, fields)
        now = self._mounted.engine.clock()
        fetched = Fetched(admission.request, response, self._asked.begun[0], now)
        judged = may_store(canonical.key, fetched, admission.rules)
        if not isinstance(judged, Unstorable):
            return None
        handling = handling_of_forward("uri-miss", False, judged.reason)
        mode = admission.runtime.cache_status
        passed = [*fields, *cache_status(handling, canonical, mode)]
        if b"date" in dict(fields):
            dated = adds_date(self._asked.receive, self._asked.send)
            return [field for field in passed if field[0] != b"date"] if dated else passed
        if is_silent and mode != "key" and judged.reason in DIRECTED:
            known = UnstorableHead(admission, message, passed)
            if known.octets + len(canonical.key) <= _LONGEST:
                remember(self._mounted.heads, canonical.key, known, _MOST)
        return passed
