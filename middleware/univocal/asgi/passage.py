"""A call of the application that is passed by: its response is most likely one that cannot be stored."""

from __future__ import annotations

from dataclasses import replace

from univocal.asgi.application import Application, Call, Mounted, head_of
from univocal.asgi.glance import adds_date
from univocal.asgi.handlers import HandlerCall
from univocal.asgi.messages import Message
from univocal.asgi.scope import AsgiRequest, respell
from univocal.cache.facts import Fetched
from univocal.cache.forms import is_compressible
from univocal.cache.personal import oddities
from univocal.cache.storing import Unstorable, passed_by, verdict
from univocal.engine.broadcast import CutShortError
from univocal.http.messages import NO_NAMES
from univocal.judge.admission import Admission
from univocal.judge.cache_status import Handling, cache_status


class Passage:
    """A request that waits for nobody, and for which nobody waits: messages go through as they come.

    Only the head is judged. Once it may be stored, or is special, there is an exchange as for any request.
    """

    def __init__(self, mounted: Mounted, asked: AsgiRequest, admission: Admission) -> None:
        canonical = admission.canonical
        assert canonical is not None
        self._mounted = mounted
        self._asked, self._admission = asked, admission
        self._dated = adds_date(asked.receive, asked.send)
        self._number = mounted.engine.gate.tiers.number
        self._handler = HandlerCall(mounted.cache, canonical)
        self._is_asked = self._is_left = self._is_started = False
        self._application: Application | None = None
        self._call: Call | None = None  # from when there is an exchange

    async def run(self) -> None:
        """Call the application; raises its errors."""
        request = self._admission.request
        scope = respell(self._asked.scope, self._admission, request.method, request.fields)
        try:
            await self._handler.run(self._mounted.app(scope, self._hear, self._say))
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
                self._call.fail(CutShortError())
        if self._application is not None:
            await self._application.conclude()

    def _close(self) -> None:
        if self._application is not None:
            self._application.close()

    def _take_over(self) -> Call:
        """Go on as an exchange, whose response was asked for when the call began."""
        admission = replace(self._admission, asked=(self._asked.begun[0], self._number))
        application = Application(self._mounted, self._asked, admission)
        self._application, self._is_started = application, True
        self._call = call = application.take_over(self._handler)
        call.asked, call.told = self._is_asked, self._is_left
        return call

    async def _hear(self) -> Message:
        """The server's own message: a request that is passed by has no content."""
        if self._call is not None:
            return await self._call.receive()
        message = await self._asked.receive()
        if message["type"] == "http.request":
            self._is_asked = True
            return message
        self._is_left = True
        if self._application is not None:
            self._application.client.leave()
        return message

    async def _say(self, message: Message) -> None:
        call = self._call
        if call is None and not self._is_started and message["type"] == "http.response.start":
            fields = self._passed_fields(message)
            if fields is not None:
                self._is_started = True
                message = {"type": "http.response.start", "status": message["status"], "headers": fields}
            else:
                call = self._take_over()
        elif call is None and not self._is_started:
            call = self._take_over()  # an interim response, or one out of turn
        await (self._asked.send(message) if call is None else call.send(message))

    def _passed_fields(self, message: Message) -> list[tuple[bytes, bytes]] | None:
        """The fields of a response that is passed on; None for one that may be stored, or is special."""
        admission, status = self._admission, message["status"]
        if 300 <= status < 400 or status == 401:
            return None
        response = self._handler.response(status, head_of(message))
        canonical, rules, request = admission.canonical, admission.rules, admission.request
        assert canonical is not None
        if rules.compress and is_compressible(status, response.fields):
            return None
        now = self._mounted.engine.clock()
        judged = verdict(canonical.key, Fetched(request, response, self._asked.begun[0], now), rules)
        if not isinstance(judged, Unstorable):
            return None
        odd = NO_NAMES if request.names <= rules.ordinary else oddities(request, rules.ordinary)
        memory = self._mounted.engine.gate.tiers.memory
        memory.pass_by(canonical.key, now + passed_by(rules, status), odd)
        handling = Handling.of_forward("uri-miss", False, judged.reason)
        told = cache_status(handling, canonical, admission.runtime.cache_status)
        if not self._dated:
            return [*response.fields, *told]
        return [*[field for field in response.fields if field[0] != b"date"], *told]
