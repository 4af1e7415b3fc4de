"""An ASGI application as what answers the requests of a listener (a `Service`), as it does under uvicorn.

uvicorn --http univocal.protocol:ExactProtocol module:application
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, cast
from urllib.parse import quote, unquote_to_bytes

from univocal.http.errors import RefusedError
from univocal.http.framing import split_target
from univocal.http.intermediary import WEBSOCKET, one_length, requested_upgrade
from univocal.http.messages import EARLY_HINT, EXTENSION, INTERIM, Fields, Received
from univocal.http.problem import Problem, problem
from univocal.judge.hits import Hit
from univocal.judge.trust import Networks
from univocal.server.clients import Clients, ReadLimits
from univocal.server.http1.connection import Http1Connection
from univocal.server.listener import READ_LIMITS, Listener
from univocal.server.turn import Find, Responder, ServerState, Tell, Turn, Uvicorn

logger: Final = logging.getLogger("uvicorn.error")
access_logger: Final = logging.getLogger("uvicorn.access")

_BAD_NAME: Final = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_BROKEN: Final = Problem(
    500,
    [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"21"), (b"connection", b"close")],
    b"Internal Server Error",
)
_WEBSOCKETS: Final = frozenset((WEBSOCKET,))
_ASGI: Final = "2.3"  # the version of the specification of HTTP's messages

_Scope = dict[str, Any]
_Event = MutableMapping[str, Any]

_VISIBLE: Final = bytes(range(0x21, 0x7F))  # no terminal takes any of these for a command


class AsgiService:
    """Calls an application for each request, in a task; `config` is uvicorn's, and is loaded."""

    def __init__(self, config: Any, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._tells = access_logger.hasHandlers()
        self.clock = time.time
        self.at_a_glance: Find | None = None
        self.tell: Tell = _tell_no_listener
        self.dates = False  # uvicorn's default fields have one, or are to have none

    def respond(self, turn: Turn) -> Responder:
        """Make the one who calls the application, or who hands the connection to a WebSocket's protocol."""
        if turn.received.upgrade:
            return Handover(turn, self._web_socket)
        task = self._task
        default = self._server_state.default_headers
        return Cycle(turn, self._config.loaded_app, self._scope(turn), default, task, tells=self._tells)

    def upgrade(self, received: Received, fields: Fields) -> bytes:
        """`websocket`, if that is asked for and there is a protocol for it; others are ignored.

        A handshake's scope has no place for the received target, so it must be the one that it shows.
        """
        if self._config.ws_protocol_class is None:
            return b""
        version = received.version.decode()
        protocol = requested_upgrade(received.method, version, fields, _WEBSOCKETS)
        if protocol and (received.target[:1] != b"/" or b"#" in received.target):
            raise RefusedError("fragment" if b"#" in received.target else "bad-target")
        return protocol

    def _web_socket(self) -> Any:
        config = self._config
        return config.ws_protocol_class(
            config=config, server_state=self._server_state, app_state=self._app_state
        )

    def _task(self, coroutine: Any) -> None:
        """Run a call of the application as one of the server's tasks."""
        loop = asyncio.get_running_loop()
        if getattr(self._config, "reset_contextvars", False):
            task = loop.create_task(coroutine, context=contextvars.Context())
        else:
            task = loop.create_task(coroutine)
        task.add_done_callback(self._server_state.tasks.discard)
        self._server_state.tasks.add(task)

    def _scope(self, turn: Turn) -> _Scope:
        config, received, peer = self._config, turn.received, turn.peer
        target = split_target(received.target)
        path = unquote_to_bytes(target.path) if b"%" in target.path else target.path
        return {
            "type": "http",
            "asgi": {"version": config.asgi_version, "spec_version": _ASGI},
            "http_version": received.version.decode(),
            "server": peer.server,
            "client": peer.client,
            "scheme": peer.scheme.decode(),
            "method": received.method.decode("ascii"),
            "root_path": config.root_path,
            "path": config.root_path + path.decode("utf-8", "replace"),
            "raw_path": config.root_path.encode("ascii") + target.path,
            "query_string": target.query,
            "headers": turn.fields,
            "state": self._app_state.copy(),
            "extensions": {EXTENSION: {"target": received.target}, INTERIM: {}, EARLY_HINT: {}},
        }


class Cycle:
    """One call of an application (a `Responder`).

    The application may send interim responses before its response, as the extensions
    "http.response.informational" and "http.response.early_hint" say: {"status", "headers"} and {"links"}.
    """

    def __init__(
        self,
        turn: Turn,
        app: Callable[..., Awaitable[object]],
        scope: _Scope,
        default_fields: Fields,
        task: Callable[[Any], None],
        *,
        tells: bool,
    ) -> None:
        self._turn = turn
        self._app = app
        self._scope = scope
        self._default_fields = default_fields
        self._task = task
        self._tells = tells  # the access log of the request
        self._has_received = False  # all of the content
        self._news = asyncio.Event()  # for `receive`
        self._room = asyncio.Event()  # for `send`: the client takes more
        self._room.set()
        self._has_left = False
        self._is_started = False
        self._expected: int | None = None  # bytes of content that Content-Length announces and are not sent
        self.error: tuple[BaseException, TracebackType | None] | None = None

    # Called by the turn

    def begin(self) -> None:
        self._task(self._run())

    def resume(self) -> None:
        self._room.set()

    def cancel(self) -> None:
        self._has_left = True
        self._news.set()
        self._room.set()

    def refuse(self, reasons: Sequence[str]) -> None:
        self.cancel()  # its application hears no more
        turn = self._turn
        self._conclude(problem(reasons, turn.fields, request_id=turn.received.request_id))

    def give_up(self, status: int) -> None:  # noqa: ARG002
        self.cancel()

    # Called by the application

    async def receive(self) -> _Event:
        """The application's `receive`; asks a client that waits for it to go on (RFC 9110 §10.1.1)."""
        content = self._turn.content
        if self._has_received or self._is_over():
            pass  # what is left to hear is the end
        elif content is None:
            self._news.set()
        else:
            content.begin()
            content.when_begun(self._news.set)
        if not self._is_over():
            await self._news.wait()
            self._news.clear()
        if self._is_over():
            return {"type": "http.disconnect"}
        body = b"" if content is None else content.take()
        self._has_received = content is None or content.is_complete
        return {"type": "http.request", "body": body, "more_body": not self._has_received}

    async def send(self, event: _Event) -> None:
        """The application's `send`; raises RuntimeError for a message out of turn or against the framing."""
        if not self._has_left:
            await self._room.wait()
        if self._has_left:
            return
        kind = event["type"]
        if not self._is_started:
            if kind in {INTERIM, EARLY_HINT}:
                self._send_interim(event)
            elif kind == "http.response.start":
                self._start(event)
            else:
                raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{kind}'.")
        elif self._turn.is_over:
            raise RuntimeError(f"Unexpected ASGI message '{kind}' sent, after response already completed.")
        elif kind != "http.response.body":
            raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{kind}'.")
        else:
            self._send_content(event.get("body", b""), more=event.get("more_body", False))

    def _is_over(self) -> bool:
        return self._has_left or self._turn.is_over

    def _start(self, event: _Event) -> None:
        turn, status = self._turn, event["status"]
        if status < 200:
            raise RuntimeError("A final response has no informational status.")
        own = _checked(event.get("headers", ()))
        fields = one_length(own)
        if fields is None:
            raise RuntimeError("A response has one Content-Length, which is a number.")
        named = dict(fields)
        default = [(name.lower(), value) for name, value in self._default_fields]
        fields = [field for field in default if field[0] not in named] + fields
        if self._tells:
            self._tell(status)
        bare = status in {204, 304} or turn.received.method == b"HEAD"
        length = named.get(b"content-length")
        framed = length is not None and not bare and b"transfer-encoding" not in named
        self._expected = int(length) if framed and length is not None else None
        self._is_started = True
        turn.start(status, fields)

    def _send_content(self, body: bytes, *, more: bool) -> None:
        expected, turn = self._expected, self._turn
        if expected is not None:
            self._expected = expected = expected - len(body)
            if expected < 0:
                raise RuntimeError("Response content longer than Content-Length")
        if body and not turn.write(body):
            self._room.clear()
        if more:
            return
        if expected:
            raise RuntimeError("Response content shorter than Content-Length")
        turn.finish()
        self._news.set()

    def _send_interim(self, event: _Event) -> None:
        if event["type"] == EARLY_HINT:
            status, fields = 103, _checked([(b"link", link) for link in event["links"]])
        else:
            status, fields = event["status"], _checked(event.get("headers", ()))
        if not 100 <= status < 200 or status == 101:
            raise RuntimeError("An interim response has an informational status other than 101.")
        self._turn.interim(status, fields)

    def _tell(self, status: int) -> None:
        scope = self._scope
        path = quote(scope["path"])
        if scope["query_string"]:
            path = f"{path}?{quote(scope['query_string'], safe=_VISIBLE)}"
        client = ":".join(map(str, scope["client"] or ()))
        access_logger.info(
            '%s - "%s %s HTTP/%s" %d', client, scope["method"], path, scope["http_version"], status
        )

    # Its task

    async def _run(self) -> None:
        turn = self._turn
        try:
            result = await self._app(self._scope, self.receive, self.send)
        except BaseException as error:  # uvicorn's cancellation at its end, too
            logger.error("Exception in ASGI application\n", exc_info=error)
            self._conclude(_BROKEN)
            return
        if result is not None:
            logger.error("ASGI callable should return None, but returned '%s'.", result)
            turn.cut() if self._is_started else self._conclude(_BROKEN)
        elif not self._is_started and not self._has_left:
            logger.error("ASGI callable returned without starting response.")
            self._conclude(_BROKEN)
        elif not self._is_over():
            logger.error("ASGI callable returned without completing response.")
            turn.cut()

    def _conclude(self, answer: Problem) -> None:
        """Answer in the application's place, or cut what it has begun to answer."""
        turn = self._turn
        if self._is_started:
            turn.cut()
        elif not turn.is_over:
            self._is_started = True
            fields = [*self._default_fields, *answer.fields]
            turn.answer(Problem(answer.status, fields, answer.body))


class Handover:
    """Hands a connection over to the protocol of a WebSocket, with the handshake as it was received."""

    def __init__(self, turn: Turn, make: Callable[[], Any]) -> None:
        self._turn = turn
        self._make = make
        self.error: tuple[BaseException, TracebackType | None] | None = None

    def begin(self) -> None:
        received = self._turn.received
        lines = [b"%b: %b\r\n" % field for field in self._turn.fields]
        handshake = b"%b %b HTTP/1.1\r\n%b\r\n" % (received.method, received.target, b"".join(lines))
        protocol, line = self._make(), self._turn.switch(None)
        switched = line.switch(protocol)
        line.connection_lost(None)  # it is that protocol's alone
        protocol.connection_made(switched.transport)
        protocol.data_received(handshake + switched.early)

    def resume(self) -> None:
        """Nothing is sent."""

    def cancel(self) -> None:
        """The connection is another's."""

    def refuse(self, reasons: Sequence[str]) -> None:
        """The connection is another's."""

    def give_up(self, status: int) -> None:
        """The connection is another's."""


def _tell_no_listener(hit: Hit, received: Received, begun: float, ticks: float) -> None:
    """There are no hits."""


def _checked(fields: Any) -> Fields:
    """The fields in lower case. Raises RuntimeError where a name or value is none."""
    checked = [(bytes(name).lower(), bytes(value)) for name, value in fields]
    for name, value in checked:
        if not name or _BAD_NAME.search(name):
            raise RuntimeError("Invalid HTTP header name.")
        if _BAD_VALUE.search(value):
            raise RuntimeError("Invalid HTTP header value.")
    return checked


class ExactProtocol(Http1Connection):
    """HTTP/1.1 for an ASGI application: exact about targets, strict about framing, with limits and reasons.

    An application finds the received target in scope["extensions"]["univocal.target"]["target"]: with its
    fragment, in absolute-form, in asterisk-form. `path`, `raw_path` and `query_string` are without the
    fragment. The authority of an absolute-form replaces `Host` (RFC 9112 §3.2.2), so an application that
    reads nothing else is safe too. Before its response it may send interim ones: see the extensions
    "http.response.informational" and "http.response.early_hint".
    """

    __slots__ = ()

    def __init__(
        self,
        config: Any,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ReadLimits = READ_LIMITS,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
        proxies: Callable[[], Networks] = tuple,
        ticks: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not config.loaded:
            config.load()
        service = AsgiService(config, server_state, app_state)
        listener = Listener(service, limits, tell, clients, ticks)
        listener.proxies = proxies
        loop = _loop or asyncio.get_running_loop()
        super().__init__(listener, Uvicorn(config, server_state, app_state, loop))

    @classmethod
    def with_limits(
        cls,
        limits: ReadLimits,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
        proxies: Callable[[], Networks] = tuple,
    ) -> type[asyncio.Protocol]:
        """A protocol for uvicorn's `http` with these limits: a factory, since a new class cannot be pickled.

        `tell` hears of each request that no application will: all that is known of it, and the reasons.
        `clients` are those of one listener, whose number is bounded; `proxies` stand for many of them.
        """
        made = partial(cls, limits=limits, tell=tell, clients=clients, proxies=proxies)
        return cast("type[asyncio.Protocol]", made)
