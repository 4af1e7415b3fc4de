"""Door two: a protocol class for uvicorn's `http` setting that hands over the target as it was received.

    uvicorn --http univocal.protocol:ExactProtocol module:application

llhttp, by httptools, is the one parser; `univocal.http.framing` decides what that leaves open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import unquote

from uvicorn._types import ASGI3Application

from univocal.http.errors import RefusedError
from univocal.http.extensions import EARLY_HINT, EXTENSION, INTERIM
from univocal.http.forward import request_has_content
from univocal.http.framing import WATCHED, ReadLimits, faults, field_octets, split_target
from univocal.http.messages import Fields, values
from univocal.server.bounds import BETWEEN, CONTENT, HEAD, NEVER, PIECE, BoundedConnection
from univocal.server.certificates import SUITS
from univocal.server.complaints import COMPLAINTS
from univocal.server.cycle import ExactCycle
from univocal.server.llhttp import new_parser

__all__ = ["ExactProtocol", "ReadLimits"]


class ExactProtocol(BoundedConnection):
    """uvicorn's httptools protocol, exact about targets, strict about framing, with limits and reasons.

    An application finds the target in scope["extensions"]["univocal.target"]["target"], as it was received:
    with its fragment, in absolute-form, in asterisk-form. `path`, `raw_path` and `query_string` are without
    the fragment, and an absolute-form's authority stands in place of `Host` (RFC 9112 §3.2.2), so that an
    application that reads nothing else is safe too. Before its response it may send interim ones, as the
    extensions "http.response.informational" and "http.response.early_hint" say (see `univocal.server.cycle`).
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._watched: Fields = []
        self._framing = b""  # of content that follows a head whose Upgrade is ignored
        self._suits: Callable[[bytes], bool] | None = None  # hosts, the certificate that the client was shown

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._suits = transport.get_extra_info(SUITS)

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._watched = []
        self._silence = 0
        if self._phase != HEAD:  # else its first octets have come before
            self._phase, self._due = HEAD, NEVER

    def on_url(self, url: bytes) -> None:
        self.url += url
        if 0 < self.limits.max_target < len(self.url):
            raise RefusedError("target-too-long")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == CONTENT:
            return  # a trailer: RFC 9110 §6.5.1 forbids to take it for a field of the head
        name, value = name.lower(), value.rstrip(b" \t")  # RFC 9112 §5.1; llhttp takes off what leads only
        self.headers.append((name, value))
        if name in WATCHED:
            self._watched.append((name, value))

    def on_headers_complete(self) -> None:
        if self._framing:  # the head is our own: _past_upgrade
            self._framing = b""
        else:
            self._judge()
        self._phase, self._silence, self._due = CONTENT, 0, NEVER

    def _judge(self) -> None:
        """Judge a head that is complete, and hand the request over."""
        method, version = self._method or self.parser.get_method(), self._version
        if reasons := self._faults(method, version):
            raise RefusedError(reasons[0], reasons)
        self._method = b""
        if length := values(self._watched, b"content-length"):
            self._ends.counted = int(length[0])
        if not (self.parser.should_upgrade() and self._upgrade(method)):
            self._hand_over(method, version)

    def _faults(self, method: bytes, version: str) -> Sequence[str]:
        limits = self.limits
        reasons = (*faults(method, self.url, version, self._watched), *self._objections())
        many = 0 < limits.max_fields < len(self.headers)
        # A head that fitted into less than the limit with a piece to spare need not be counted.
        if not many and 0 < limits.max_field_bytes < self._silence + PIECE:
            many = field_octets(self.headers) > limits.max_field_bytes
        return (*reasons, "fields-too-large") if many else reasons

    def _objections(self) -> Sequence[str]:
        """The reasons for which the connection is not for this request, now that it is known."""
        if self._suits is not None and not all(map(self._suits, values(self._fields(), b"host"))):
            return ("unknown-host",)  # RFC 9110 §7.4: over another connection it may be known
        if self._objection:
            self._objection = self._clients.objection(self)
        limit = self.limit_concurrency
        over = limit is not None and (len(self.connections) >= limit or len(self.tasks) >= limit)
        if over and not self._objection:
            COMPLAINTS.note("Exceeded concurrency limit.")
            return ("overloaded",)
        return (self._objection,) if self._objection else ()

    def _upgrade(self, method: bytes) -> bool:
        """Tell whether the connection becomes a WebSocket's; other upgrades are ignored (RFC 9110 §7.8)."""
        if self._should_upgrade() and self._idle():
            # A handshake's scope has no place for the received target, so it must be the one that it shows.
            if self.url[:1] != b"/" or b"#" in self.url:
                raise RefusedError("fragment" if b"#" in self.url else "bad-target")
            self._websocket = True
            self.scope = {"method": method.decode("ascii"), "headers": self.headers}  # type: ignore[typeddict-item]
            return True
        self._ignore_upgrade()
        return False

    def _ignore_upgrade(self) -> None:
        """Note the framing of the content behind this head, in which llhttp sees none any more."""
        if values(self._watched, b"transfer-encoding"):
            self._framing = b"transfer-encoding: chunked"
        elif length := values(self._watched, b"content-length"):
            self._framing = b"content-length: " + length[0]

    def _past_upgrade(self) -> None:
        """Go on after a head with Upgrade, which llhttp takes for the end of the message and of HTTP."""
        if self._websocket:
            self._unparsed = b""
            self._part()
            self.handle_websocket_upgrade()
            return
        if self._framing:
            self.parser = new_parser(self)
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + self._framing + b"\r\n\r\n")

    def on_message_complete(self) -> None:
        if self._websocket:
            self._phase = BETWEEN
        elif not self._framing:  # else it is the head's end alone: _past_upgrade
            self._heed_trailers()
            super().on_message_complete()

    def _hand_over(self, method: bytes, version: str) -> None:
        """Give the request to the application, now or when those before it are answered."""
        app: ASGI3Application = self.app
        idle = self._idle()
        self.cycle = ExactCycle(
            scope=cast("Any", self._scope(method, version)),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=version == "1.1" and self._expects_continue(),
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if idle:
            self._start_asgi_task(self.cycle, app)
        else:
            self.pipeline.appendleft((self.cycle, app))

    def _fields(self) -> Fields:
        """The header fields; an absolute-form's authority replaces Host (RFC 9112 §3.2.2)."""
        if self.url[:1] == b"/" or (authority := split_target(self.url).authority) is None:
            return self.headers
        return [(b"host", authority), *(field for field in self.headers if field[0] != b"host")]

    def _expects_continue(self) -> bool:
        """RFC 9110 §10.1.1: a client without content waits for nothing, whatever it says."""
        asks = any(value.lower() == b"100-continue" for value in values(self._watched, b"expect"))
        return asks and request_has_content(self._watched)

    def _scope(self, method: bytes, version: str) -> dict[str, Any]:
        target = split_target(self.url)
        path = target.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": method.decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + (unquote(path) if "%" in path else path),
            "raw_path": self.root_path.encode("ascii") + target.path,
            "query_string": target.query,
            "headers": self._fields(),
            "state": self.app_state.copy(),
            "extensions": {EXTENSION: {"target": self.url}, INTERIM: {}, EARLY_HINT: {}},
        }
