"""A call of the application that is passed by: its response is most likely one that cannot be stored."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from univocal.asgi.application import Application, Call, Mounted, UnstorableHead, head_of
from univocal.asgi.glance import adds_date
from univocal.asgi.handlers import HandlerCall
from univocal.asgi.messages import Message
from univocal.asgi.scope import AsgiRequest, respell
from univocal.cache.facts import Fetched
from univocal.cache.forms import is_compressible
from univocal.cache.personal import oddities
from univocal.cache.storing import DIRECTED, Unstorable, passed_by, verdict
from univocal.engine.broadcast import CutShortError
from univocal.http.messages import NO_NAMES, Fields, Response
from univocal.http.remembering import remember
from univocal.judge.admission import Admission
from univocal.judge.cache_status import Handling, cache_status
from univocal.uri.target import Canonical

_MOST: Final = 1024  # heads that are remembered, and how many bytes one may have, with its key
_LONGEST: Final = 2048


class Passage:
    """A request that waits for nobody, and for which nobody waits: messages go through as they come.

    Only the head is judged. Once it may be stored, or is special, there is an exchange as for any request.
    """

    def __init__(self, mounted: Mounted, asked: AsgiRequest, admission: Admission, number: int) -> None:
        canonical = admission.canonical
        assert canonical is not None
        self._mounted = mounted
        self._asked, self._admission = asked, admission
        self._number = number  # of the last purge before the call
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

    def _say(self, message: Message) -> Awaitable[None]:
        """The server's own `send`, or that of the exchange: nothing is awaited between."""
        call = self._call
        if call is None and not self._is_started:
            fields = self._passed_fields(message) if message["type"] == "http.response.start" else None
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
        odd = NO_NAMES if request.names <= rules.ordinary else oddities(request, rules.ordinary)
        until = mounted.engine.clock() + passed_by(rules, status)
        mounted.engine.gate.tiers.memory.pass_by(canonical.key, until, odd)
        return fields

    def _judged_fields(self, canonical: Canonical, message: Message) -> Fields | None:
        """The same, of a head that is judged now."""
        admission, status, is_silent = self._admission, message["status"], self._handler.is_silent
        fields = head_of(message)
        if admission.rules.compress and is_compressible(status, fields):
            return None
        response = Response(status, fields) if is_silent else self._handler.response(status, fields)
        now = self._mounted.engine.clock()
        fetched = Fetched(admission.request, response, self._asked.begun[0], now)
        judged = verdict(canonical.key, fetched, admission.rules)
        if not isinstance(judged, Unstorable):
            return None
        handling = Handling.of_forward("uri-miss", False, judged.reason)
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
