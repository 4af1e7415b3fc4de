"""HTTP/2 towards clients (RFC 9113): uvicorn's protocol, exact about targets, with bounds and reasons.

zttp takes frames apart and refuses malformed messages; uvicorn gives each stream a task, in which the
application answers. `ZttpH2Protocol` is no public interface: `OVERRIDES` and `RELIES_ON` name all that is
used of it, and a test compares those with the installed version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

import zttp
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.zttp_h2_impl import RequestResponseCycle, ZttpH2Protocol
from uvicorn.server import ServerState

from univocal.http.extensions import EARLY_HINT, EXTENSION, INTERIM
from univocal.http.fields import without
from univocal.http.forward import HOP_BY_HOP
from univocal.http.framing import MIN_RATE, ReadLimits, faults, field_octets, split_target
from univocal.http.messages import Fields, Received, values
from univocal.http.problem import Problem, problem
from univocal.server.certificates import SUITS
from univocal.server.complaints import COMPLAINTS
from univocal.server.delivery import Delivery
from univocal.server.listener import Listener

__all__ = ["OVERRIDES", "RELIES_ON", "BoundedH2Protocol"]

# ZttpH2Protocol's methods that are replaced or extended …
OVERRIDES: Final = (
    "__init__",
    "connection_lost",
    "connection_made",
    "data_received",
    "events",
    "flush",
    "handle_request",
    "handle_rst_stream",
    "on_response_complete",
    "pause_writing",
    "resume_writing",
)
# … and those that are called.
RELIES_ON: Final = ("_close_connection", "resume_reading_if_idle")

# Octets that a stream's response may be ahead of the client's window: zttp holds what does not fit into it.
AHEAD: Final = 64 * 1024
# Streams that a client may cancel besides as many as it let be answered (CVE-2023-44487).
CANCELLED: Final = 100
NO_ERROR, ENHANCE_YOUR_CALM = 0, 11  # RFC 9113 §7
# The setting by which zttp offers WebSockets over HTTP/2 (RFC 8441 §3): browsers then try no other way.
EXTENDED_CONNECT: Final = b"\x00\x08\x00\x00\x00\x01"


class BoundedH2Protocol(ZttpH2Protocol):
    """uvicorn's protocol for HTTP/2 with the bounds that `Http1Connection` has."""

    delivery: Delivery

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        listener: Listener,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False
        self._listener, self._clients = listener, listener.clients
        self._suits: Callable[[bytes], bool] | None = None
        self._objection = ""
        self._answered = self._cancelled = 0
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None
        self.rested = 0.0

    @classmethod
    def of(cls, listener: Listener) -> type[asyncio.Protocol]:
        """A protocol for `TlsConnection`."""
        return cast("type[asyncio.Protocol]", partial(cls, listener=listener))

    @property
    def _limits(self) -> ReadLimits:
        return self._listener.limits

    def _tell(self, received: Received, reasons: tuple[str, ...]) -> None:
        if self._listener.tell is not None:
            self._listener.tell(received, reasons)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.delivery = Delivery(transport, self.loop, self._limits.send_timeout)
        self._suits = transport.get_extra_info(SUITS)
        self.rested = self.loop.time()
        self._objection = self._clients.enter(self, self.client[0] if self.client else None)
        # Until the first stream, uvicorn waits for the client as long as it likes.
        self.timeout_keep_alive_task = self.loop.call_later(
            self._limits.header_timeout or self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.leave(self)
        self.delivery.stop()
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
        for cycle in self.cycles.values():
            cast("BoundedCycle", cycle).credit.set()

    def forsake(self) -> None:
        """Give a client up that takes nothing."""
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.delivery.watch(self.forsake)

    def resume_writing(self) -> None:
        self.delivery.moved()
        super().resume_writing()

    # A client among others

    def is_resting(self) -> bool:
        """Tell whether no stream is open."""
        return not self.cycles

    def give_way(self) -> None:
        """Close, for another client that has come."""
        self._close_connection()

    # Frames

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        for cycle in self.cycles.values():
            cast("BoundedCycle", cycle).credit.set()  # the client may take more now

    def flush(self) -> None:
        """Write what zttp has to say; its SETTINGS come first, and offer what is not to be had here."""
        data = self.conn.data_to_send()
        if data and not self._greeted:
            self._greeted = True
            data = data.replace(EXTENDED_CONNECT, EXTENDED_CONNECT[:-1] + b"\0", 1)
        if data:
            self.transport.write(data)

    def events(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield what zttp has read, as long as the connection stands."""
        for event in super().events():
            if self.transport.is_closing():
                return
            if isinstance(event, zttp.Data) and (cycle := self.cycles.get(event.stream_id)) is not None:
                cast("BoundedCycle", cycle).arrived += len(event.data)
            yield event

    def handle_request(self, event: zttp.Request) -> None:
        """Let the application answer a stream, or answer why it will not."""
        fields = joined(event.headers)
        received = Received(
            event.method, event.target, b"https", self.client[0] if self.client else None, b"2"
        )
        app = self.app
        if reasons := self._faults(event, fields):
            hosts = values(fields, b"host")
            received.host = hosts[0] if len(hosts) == 1 else b""
            received.target = event.target[: self._limits.max_target or None]
            self._tell(received, tuple(reasons))
            app = Refusal(problem(reasons), self.server_state.default_headers)
        cycle = BoundedCycle(
            scope=self._scope(event, fields),
            conn=self.conn,
            stream=self.conn.stream(event.stream_id),
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],  # the application writes its own Date
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
            resume_reading=self.resume_reading_if_idle,
        )
        cycle.patience = self._limits.send_timeout
        cycle.expects = any(value.lower() == b"100-continue" for value in values(fields, b"expect"))
        if event.end_stream:  # no other event says so
            cycle.more_body = False
            cycle.message_event.set()
        self.cycles[event.stream_id] = cycle
        task = self.loop.create_task(cycle.run_asgi(cast("Any", app)))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _faults(self, event: zttp.Request, fields: Fields) -> Sequence[str]:
        limits = self._limits
        reasons = [*faults(event.method, event.target, "1.1", fields)]
        if 0 < limits.max_target < len(event.target):
            reasons.append("target-too-long")
        many = 0 < limits.max_fields < len(fields)
        if many or 0 < limits.max_field_bytes < field_octets(fields):
            reasons.append("fields-too-large")
        if self._suits is not None and not all(map(self._suits, values(fields, b"host"))):
            reasons.append("unknown-host")  # RFC 9110 §7.4, RFC 9113 §9.1.1
        if self._objection:
            self._objection = self._clients.objection(self)
        if self._objection or self.shutdown_requested:
            reasons.append(self._objection or "overloaded")
        return reasons

    def _scope(self, event: zttp.Request, fields: Fields) -> Any:
        target = split_target(event.target)
        path = target.path.decode("latin-1")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "2",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": event.method.decode("ascii"),
            "root_path": self.root_path,
            "path": self.root_path + unquote(path),
            "raw_path": self.root_path.encode("ascii") + target.path,
            "query_string": target.query,
            "headers": fields,
            "state": self.app_state.copy(),
            "extensions": {EXTENSION: {"target": event.target}, EARLY_HINT: {}, INTERIM: {}},
        }

    # Bounds

    def on_response_complete(self, stream_id: int) -> None:
        cycle = self.cycles.get(stream_id)
        if cycle is not None:  # or the client has cancelled it
            self._answered += 1
            cast("BoundedCycle", cycle).release()
        if self._objection:
            self.shutdown_requested = True  # one connection too many: this was its last word
        self.rested = self.loop.time()
        super().on_response_complete(stream_id)

    def handle_rst_stream(self, event: zttp.RstStream) -> None:
        cycle = self.cycles.get(event.stream_id)
        super().handle_rst_stream(event)
        if cycle is not None:
            cast("BoundedCycle", cycle).credit.set()
        self._cancelled += 1
        if self._cancelled > CANCELLED + self._answered and not self.transport.is_closing():
            self._give_up("too-many-requests")

    def _give_up(self, reason: str) -> None:
        """End the connection of a client that asks for more than it takes."""
        COMPLAINTS.note(f"Refused an HTTP/2 connection: {reason}")
        self._tell(Received(b"", b"", b"https", self.client[0] if self.client else None, b"2"), (reason,))
        self.conn.close(ENHANCE_YOUR_CALM)
        self.flush()
        self.transport.close()

    def _watch(self) -> None:
        if self._limits.content_timeout:
            self._timer = self.loop.call_later(self._limits.content_timeout, self._look)

    def _look(self) -> None:
        """Let streams end whose content does not come, or too slowly."""
        least = MIN_RATE * self._limits.content_timeout
        for cycle in [cast("BoundedCycle", each) for each in self.cycles.values()]:
            waited = cycle.is_waited_for and not self.flow.read_paused
            if waited and cycle.watched and cycle.arrived < least:
                cycle.fail()
            cycle.watched, cycle.arrived = waited, 0
        self.flush()
        self._watch()


class BoundedCycle(RequestResponseCycle):
    """A stream's request and response; what the client has no window for is not sent."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.credit = asyncio.Event()  # the client may take more, or has left
        self.patience = 0.0  # seconds in which it takes something
        self.expects = False  # it waits for 100 (Continue)
        self.arrived = 0  # octets of content since the last look
        self.watched = False  # content was waited for at the last look

    @property
    def is_waited_for(self) -> bool:
        """Tell whether the rest of the request's content is what is missing."""
        return self.more_body and not (self.body or self.disconnected or self.response_complete)

    async def receive(self) -> ASGIReceiveEvent:
        """The application's `receive`; asks a client that waits for it to go on (RFC 9110 §10.1.1)."""
        if self.expects and self.more_body and not (self.body or self.response_started):
            self._inform(100, [])
        self.expects = False
        return await super().receive()

    def _inform(self, status: int, fields: Fields) -> None:
        """Send an interim response; a 100 is for who waits for one (RFC 9110 §15.2.1), and 101 for nobody."""
        wanted = self.expects if status == 100 else status != 101
        if wanted and not (self.disconnected or self.response_started or self.transport.is_closing()):
            self.stream.send_informational(status, fields)
            self.transport.write(self.conn.data_to_send())

    async def send(self, message: ASGISendEvent) -> None:
        event: Mapping[str, Any] = message  # ASGI extensions have types of their own
        if event["type"] == INTERIM:
            self._inform(event["status"], interim_fields(event.get("headers", ())))
            self.expects = self.expects and event["status"] != 100
            return
        if message["type"] != "http.response.body" or not message.get("body"):
            await super().send(message)
            return
        content = memoryview(message.get("body", b""))
        while content and not self.disconnected:
            piece, content = content[:AHEAD], content[AHEAD:]
            await super().send({"type": "http.response.body", "body": bytes(piece), "more_body": True})
            await self._taken()
        if not message.get("more_body", False):
            await super().send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _taken(self) -> None:
        """Wait until the client has had a window for all that was sent."""
        while not self.disconnected and (waiting := self.stream.pending_bytes):
            self.credit.clear()
            try:
                async with asyncio.timeout(self.patience or None):
                    await self.credit.wait()
                    while not self.disconnected and self.stream.pending_bytes == waiting:
                        self.credit.clear()
                        await self.credit.wait()
            except TimeoutError:
                self.fail()

    def release(self) -> None:
        """Ask the client for no more of its content, of which the response had no need (RFC 9113 §8.1)."""
        if self.more_body and not (self.disconnected or self.transport.is_closing()):
            self.stream.reset(NO_ERROR)
            self.transport.write(self.conn.data_to_send())

    def fail(self) -> None:
        """Reset the stream: its client does not go on."""
        self.abort_stream()
        self.credit.set()
        self.message_event.set()


class Refusal:
    """An application whose answer is always the same."""

    def __init__(self, answer: Problem, fields: Fields) -> None:
        self._answer, self._fields = answer, [*fields, *answer.fields]

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        answer = self._answer
        await send({"type": "http.response.start", "status": answer.status, "headers": self._fields})
        await send({"type": "http.response.body", "body": answer.body})


def interim_fields(fields: Iterable[tuple[bytes, bytes]]) -> Fields:
    """An interim response's fields as HTTP/2 has them (RFC 9113 §8.2); it has no content, and no length."""
    spelled = [(name.lower(), value.strip(b" \t")) for name, value in fields]
    return without(spelled, {*HOP_BY_HOP, b"content-length"})


def joined(headers: Any) -> Fields:
    """The fields, with the cookies in one: HTTP/1 and ASGI know one Cookie field (RFC 9113 §8.2.3)."""
    fields: Fields = [(name, value) for name, value in headers if name != b"cookie"]
    if cookies := [value for name, value in headers if name == b"cookie"]:
        fields.append((b"cookie", b"; ".join(cookies)))
    return fields
