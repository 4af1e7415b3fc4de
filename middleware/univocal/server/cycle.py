"""One request and its response under uvicorn, framed by RFC 9112 whatever the application says."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from univocal.http.extensions import EARLY_HINT, INTERIM
from univocal.http.forward import one_length
from univocal.http.messages import Fields

__all__ = ["ExactCycle"]

_FRAMING: Final = frozenset((b"content-length", b"transfer-encoding"))
_CODING: Final = frozenset((b"transfer-encoding",))
_LENGTH: Final = frozenset((b"content-length",))


class ExactCycle(RequestResponseCycle):
    """uvicorn's cycle with interim responses, one Date, and the framing that status and version demand."""

    bodyless = False  # a 204 or 304: whatever the application sends as content stays here
    close_delimited = False  # HTTP/1.0 and no length: the end of the connection is the end of the content

    async def send(self, message: ASGISendEvent) -> None:
        """The application's `send`; raises RuntimeError for a message out of turn or against the framing."""
        event: MutableMapping[str, Any] = message  # type: ignore[assignment]
        kind = event["type"]
        if not self.response_started:
            if kind in {INTERIM, EARLY_HINT}:
                await self._send_interim(event)
                return
            if kind == "http.response.start":
                event = self._framed(event)
        elif self.bodyless and kind == "http.response.body":
            self.expected_content_length = 0
            event = {"type": kind, "more_body": event.get("more_body", False)}
        elif self.close_delimited and kind == "http.response.body":
            self.expected_content_length = len(event.get("body", b""))
        await super().send(event)  # type: ignore[arg-type]

    def _framed(self, start: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The final response's head with one way to find its end."""
        status = start["status"]
        if status < 200:
            raise RuntimeError("A final response has no informational status.")
        fields = one_length([(name.lower(), value) for name, value in start.get("headers", ())])
        if fields is None:
            raise RuntimeError("A response has one Content-Length, which is a number.")
        names = {name for name, _ in fields}
        self.default_headers = [field for field in self.default_headers if field[0].lower() not in names]
        self.bodyless = status in {204, 304}
        old = self.scope["http_version"] == "1.0"
        if status == 204:  # RFC 9110 §8.6, RFC 9112 §6.1
            fields = _without(_FRAMING, fields)
        elif old or self.bodyless:  # RFC 9112 §6.1: no coding for a client that cannot know it
            fields = _without(_CODING, fields)
        elif b"transfer-encoding" in names:  # RFC 9112 §6.2
            fields = _without(_LENGTH, fields)
        if old and not self.bodyless and b"content-length" not in names:
            self.close_delimited, self.chunked_encoding = True, False
        if self.waiting_for_100_continue and self.more_body:
            # RFC 9110 §10.1.1: without a 100 the client may leave its content out, and what comes next
            # on this connection could be either.
            self.keep_alive = False
        return {**start, "headers": fields}

    async def _send_interim(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == EARLY_HINT:
            status, fields = 103, [(b"link", link) for link in message["links"]]
        else:
            status, fields = message["status"], list(message.get("headers", ()))
        if not 100 <= status < 200 or status == 101:
            raise RuntimeError("An interim response has an informational status other than 101.")
        for name, value in fields:
            if not name or HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("Invalid HTTP header in an interim response.")
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        # RFC 9110 §15.2: HTTP/1.0 has no interim responses. A 100 is for who waits for one (§10.1.1).
        unasked = status == 100 and not self.waiting_for_100_continue
        if self.disconnected or unasked or self.scope["http_version"] == "1.0":
            return
        if status == 100:
            self.waiting_for_100_continue = False
        lines = [b"%b: %b\r\n" % (name.lower(), value) for name, value in _without(_FRAMING, fields)]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n")))

    async def receive(self) -> ASGIReceiveEvent:
        """The application's `receive`; asks a client that waits for it to go on (RFC 9110 §10.1.1)."""
        if self.body or not self.more_body:
            self.waiting_for_100_continue = False  # it has not waited
        return await super().receive()


def _without(names: frozenset[bytes], fields: Fields) -> Fields:
    return [field for field in fields if field[0].lower() not in names]
