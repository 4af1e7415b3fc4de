"""One request and its response at the ASGI door: the only `match` on decisions there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from univocal.asgi.departure import Departure
from univocal.asgi.door import Door, Message, Receive, Send, send_problem
from univocal.asgi.scope import CANONICAL, Scope, below_root, received, respell
from univocal.cache.decide import Forward, Refuse, Reuse, Validate, forwarded_fields
from univocal.cache.represent import represent
from univocal.cache.tags import TAGGING
from univocal.engine.admission import Admission
from univocal.engine.broadcast import WINDOW, CutShort, Departed, Reader
from univocal.engine.flight import Answer
from univocal.engine.outcome import Handling, Outcome, Times, announce, cache_status
from univocal.engine.purge import PURGES, Purged, carry_out, order_of
from univocal.engine.recording import Recording
from univocal.engine.trust import believe
from univocal.http.errors import RefusedError, status_of
from univocal.http.extensions import EARLY_HINT, INTERIM
from univocal.http.fields import without
from univocal.http.messages import Fields, Request, Response

__all__ = ["Responder"]

FETCHED: Final = frozenset((b"GET", b"HEAD"))  # whatever else is passed on, content and all


class Responder:
    """Carries out what the gate decides about one request."""

    def __init__(self, door: Door, scope: Scope, receive: Receive, send: Send) -> None:
        self._door = door
        self._scope = scope
        self._receive = receive
        self._send = send
        self._received = received(scope)
        self._begun = door.clock()
        self._ticks = time.perf_counter()
        self._first = 0.0
        self._status = 0
        self._octets = 0
        self._admission: Admission | None = None
        self._purged: Purged | None = None
        self._client = self._received.client
        self._handling = Handling()
        self._reasons: tuple[str, ...] = ()
        self._departure = Departure(receive)

    def admit(self) -> Admission:
        """Ask the gate; what would leave the application's root path is refused, too."""
        admission = self._door.gate.admit(self._received, self._scope["headers"], self._begun)
        found = admission.canonical
        if found is not None and not below_root(self._scope, found):
            refuse = Refuse(status_of("above-root"), "above-root")
            admission = replace(admission, decision=refuse, reasons=("above-root",))
        self._admission, self._reasons = admission, admission.reasons
        self._client = admission.peer.client
        return admission

    async def run(self) -> None:
        """Answer the request, and tell the listeners how it went."""
        try:
            if self._received.method in PURGES:
                await self._purge()
            else:
                await self._carry_out(self.admit())
        except RefusedError as refused:
            await self._refuse(refused.reasons)
        except (CutShort, Departed):
            pass  # the server closes the connection of a response without an end
        finally:
            self._departure.end()
            self._announce()

    async def _carry_out(self, admission: Admission) -> None:
        found = admission.canonical
        if found is not None and found.redirect and not isinstance(admission.decision, Refuse):
            fields = [(b"location", found.url), (b"content-length", b"0")]
            await self._respond(found.redirect, fields, b"")
            return
        match admission.decision:
            case Refuse(reason=reason):
                await self._refuse(admission.reasons or (reason,))
            case Reuse(revalidate_in_background=refresh) as decision:
                await self._reuse(admission, Handling.of_hit(decision))
                if refresh:
                    self._door.fetcher.refresh(admission, self.origin)
            case Validate() | Forward(may_store=True) if admission.request.method in FETCHED:
                await self._fetch(admission)
            case _:
                await self._pass(admission)

    # What a decision asks for

    async def _refuse(self, reasons: Sequence[str]) -> None:
        self._reasons = tuple(reasons)
        self._handling = Handling(detail=reasons[0])
        if self._status:
            return  # too late for another status: the response ends without its end
        self._first = time.perf_counter()
        # After ambiguous framing nobody knows where the next request begins (RFC 9112 §6.3).
        close = reasons[0] == "bad-framing" and self._scope.get("http_version", "").startswith("1")
        self._status, self._octets = await send_problem(self._send, reasons, close=close)

    async def _purge(self) -> None:
        gate, fields = self._door.gate, self._scope["headers"]
        runtime = gate.runtime
        peer = believe(self._received, fields, runtime.trusted)
        self._client = peer.client
        order = order_of(self._received, fields, peer, runtime)
        self._purged = Purged(order)
        self._purged = await carry_out(order, gate, self._begun)
        body = self._purged.body()
        await self._respond(
            200, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))], body
        )

    async def _reuse(self, admission: Admission, handling: Handling) -> None:
        assert isinstance(admission.decision, Reuse)
        shown = represent(
            admission.request, admission.decision.stored, admission.decision.age, self._door.clock()
        )
        self._handling = handling
        await self._respond(shown.status, [*shown.fields, *self._cache_status()], shown.body)

    async def _fetch(self, admission: Admission) -> None:
        landing = await self._door.fetcher.fetch(admission, self.origin, self)
        self._admission, self._handling = landing.admission, landing.handling
        response, reader = landing.response, landing.reader
        if response is None:
            await self._reuse(landing.admission, landing.handling)
        elif reader is None:
            await self._respond(response.status, [*response.fields, *self._cache_status()], b"")
        else:
            with reader:
                await self._start(response.status, [*response.fields, *self._cache_status()])
                more = True
                while more:
                    chunk, more = await reader.read()
                    await self._write(chunk, more=more)

    async def _pass(self, admission: Admission) -> None:
        """Past the flights: the application reads from the client and writes to it, nothing in between."""
        assert isinstance(admission.decision, Forward)
        gate, clock = self._door.gate, self._door.clock
        recording = Recording(gate, admission, clock) if admission.decision.may_store else None
        if recording is not None:
            await recording.begin()
        self._handling = Handling(fwd=admission.decision.reason)

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                response = _head(message)
                await gate.settle(admission, response, clock(), recording)
                if recording is not None:
                    await recording.start(response)
                    self._handling = replace(self._handling, stored=recording.stores)
                await self._start(response.status, [*response.fields, *self._cache_status()])
                return
            if message["type"] == "http.response.body":
                self._octets += len(message.get("body", b""))
                if (
                    recording is not None
                    and recording.write(message.get("body", b""))
                    and not message.get("more_body")
                ):
                    await recording.finish()
            await self._send(message)

        fields = forwarded_fields(admission.request, admission.decision)
        scope = self.inner_scope(replace(admission.request, fields=fields))
        try:
            await self._door.app(scope, self._limited(admission), send)
        finally:
            if recording is not None:
                try:
                    await recording.close()
                finally:
                    recording.release()

    def _limited(self, admission: Admission) -> Receive:
        limit = admission.runtime.limits.max_body
        taken = 0

        async def receive() -> Message:
            nonlocal taken
            message = await self._receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise RefusedError("body-too-large")
            return message

        return receive if limit else self._receive

    # The application as an origin server

    def inner_scope(self, request: Request) -> Scope:
        """The scope that the application sees: canonical, with the fields that may go on."""
        assert self._admission is not None
        found, peer = self._admission.canonical, self._admission.peer
        assert found is not None
        scope = respell(self._scope, found, request, peer.client)
        scope["extensions"][CANONICAL] = {
            "canonical": found,
            "peer": self._received.client,
            "chain": peer.chain,
        }
        return scope

    async def origin(self, request: Request, answer: Answer) -> None:
        """Ask the application on behalf of whoever waits: with no content, and nobody who could leave."""
        asked = False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            match message["type"]:
                case "http.response.start":
                    await answer.start(_head(message))
                case "http.response.body":
                    await answer.write(message.get("body", b""))
                    if not message.get("more_body", False):
                        await answer.finish()
                case kind if kind == INTERIM:
                    await answer.interim(message["status"], list(message["headers"]))
                case kind if kind == EARLY_HINT:
                    await answer.interim(103, [(b"link", link) for link in message["links"]])

        await self._door.app(self.inner_scope(request), receive, send)

    # The client, as fetch sees it

    def joined(self, reader: Reader) -> None:
        """From now on the client waits with this reader: watch whether it leaves."""
        self._departure.watch(reader.depart)

    async def interim(self, status: int, fields: Fields) -> None:
        """Pass an interim response on, where the server can (RFC 9110 §15.2)."""
        if INTERIM in self._scope.get("extensions", {}):
            await self._send({"type": INTERIM, "status": status, "headers": fields})

    # Sending

    def _cache_status(self) -> Fields:
        assert self._admission is not None
        assert self._admission.canonical is not None
        return cache_status(self._handling, self._admission.canonical, self._admission.runtime.cache_status)

    async def _respond(self, status: int, fields: Fields, body: bytes | memoryview) -> None:
        await self._start(status, fields)
        await self._write(body, more=False)

    async def _start(self, status: int, fields: Fields) -> None:
        self._status = status
        self._first = time.perf_counter()
        if self._admission is not None and self._admission.rules.strip_tags:
            fields = without(fields, TAGGING)
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def _write(self, chunk: bytes | memoryview, *, more: bool) -> None:
        """Send content, in pieces: a server copies what a slow client does not take at once."""
        self._octets += len(chunk)
        last = max(0, len(chunk) - 1) // WINDOW * WINDOW
        for start in range(0, last, WINDOW):
            piece = bytes(chunk[start : start + WINDOW])
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        rest = bytes(chunk[last:] if last else chunk)
        await self._send({"type": "http.response.body", "body": rest, "more_body": more})

    def _announce(self) -> None:
        if not self._door.listeners:
            return
        now = time.perf_counter()
        admission, purged = self._admission, self._purged
        found = admission.canonical if admission else purged.order.canonical if purged else None
        outcome = Outcome(
            site=found.site.name if found else "",
            received=self._received,
            canonical=found,
            decision=admission.decision if admission else None,
            status=self._status,
            bytes=self._octets,
            times=Times(self._begun, (self._first or now) - self._ticks, now - self._ticks),
            client=self._client,
            handling=self._handling,
            reasons=self._reasons,
            purged=purged,
        )
        announce(self._door.listeners, outcome)


def _head(message: Message) -> Response:
    fields = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
    return Response(message["status"], fields)
