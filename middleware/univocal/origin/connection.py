"""A connection to an origin server: an asyncio protocol that serves one request at a time (RFC 9112 §9)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import ssl
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Protocol

from univocal.http.bonds import Bond
from univocal.http.intermediary import Switched
from univocal.http.messages import IDEMPOTENT
from univocal.http.pipe import Pipe
from univocal.http.roles import Answer, OriginRequest
from univocal.http.tables import moves
from univocal.http.timer import Timer, batch_of
from univocal.origin.failures import (
    ClosedError,
    HeadTooLargeError,
    InvalidRequestError,
    InvalidResponseError,
    ReadError,
    ReadTimeoutError,
    StaleConnectionError,
    Timeouts,
    TransportError,
    WriteError,
    WriteTimeoutError,
)
from univocal.origin.http1 import HEAD_TOO_LARGE, Complete, Heads, ReadResponse, ResponseReader

# RFC 9110 §10.1.1: a client that waits for 100 (Continue) must not wait for ever.
CONTINUE_TIMEOUT: Final = 1.0


class UploadState(Enum):
    """The states of a request's content on its way."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    EXPECTS = "it waits for 100 (Continue)"
    FLOWS = "it goes out as it comes from the client"
    BLOCKED = "the origin takes no more for now"
    COMPLETE = "all of it was sent"
    ENDED = "no more will be sent, since no request waits for it"


UPLOAD_MOVES: Final[Mapping[UploadState, Mapping[UploadState, str]]] = {
    UploadState.FLOWS: {
        UploadState.EXPECTS: "the client waits for 100 (Continue)",
        UploadState.BLOCKED: "the origin server takes no more for now",
        UploadState.COMPLETE: "the last of it was sent",
        UploadState.ENDED: "the request is over",
    },
    UploadState.EXPECTS: {
        UploadState.FLOWS: "100 (Continue) comes, content comes at once, or the time for that is over",
        UploadState.ENDED: "a final response comes, or the request is over",
    },
    UploadState.BLOCKED: {
        UploadState.FLOWS: "the origin server takes more",
        UploadState.COMPLETE: "it takes more, and all of it was sent",
        UploadState.ENDED: "the request is over",
    },
    UploadState.COMPLETE: {UploadState.ENDED: "the request is over"},
    UploadState.ENDED: {
        UploadState.ENDED: "the request is over, behind a response that came instead of a 100"
    },
}
"""The states that may follow each state, and what causes the move."""

_UPLOAD_MOVES: Final = moves(UPLOAD_MOVES)


class Upload:
    """Frames the bytes that a request's content pushes (a `ContentSink`): `length` of them; None: chunks."""

    def __init__(self, wire: Connection, content: Pipe, length: int | None, write: float | None) -> None:
        self.state = UploadState.FLOWS
        self._wire = wire
        self._content = content
        self._length = length
        self._write = write
        self._sent = 0
        self._sent_all = False

    @property
    def seconds(self) -> float | None:
        """The seconds that this state may last; None: it has no limit."""
        if self.state is UploadState.EXPECTS:
            return CONTINUE_TIMEOUT
        return self._write if self.state is UploadState.BLOCKED else None

    def expect(self) -> None:
        """Hold the content until 100 (Continue), unless its client sends it at once."""
        self.state = _UPLOAD_MOVES[self.state, UploadState.EXPECTS]
        self._wire.await_origin()
        self._content.when_begun(self.begin)

    def begin(self) -> None:
        """Start the content."""
        if self.state is UploadState.EXPECTS:
            self._content.when_begun(None)
            self.state = _UPLOAD_MOVES[self.state, UploadState.FLOWS]
        self._wire.await_origin()
        self._content.attach(self)

    def end(self, *, wanted: bool = False) -> None:
        """Stop the content; with `wanted`, another may still take all that waits."""
        state, self.state = self.state, _UPLOAD_MOVES[self.state, UploadState.ENDED]
        if state is UploadState.EXPECTS:
            self._content.when_begun(None)
        if state is not UploadState.COMPLETE and not (wanted and state is UploadState.EXPECTS):
            self._content.detach()

    def drained(self) -> None:
        """Go on, if it waits for that: the origin server takes more."""
        if self.state is not UploadState.BLOCKED:
            return
        self._move(flows=True)
        if not self._sent_all:
            self._content.resume()

    # Called by the content.

    def write(self, chunk: bytes) -> bool:
        """Send bytes of content; False: no more until the content is resumed."""
        if self.state is UploadState.ENDED or not chunk:
            return True
        self._sent += len(chunk)
        if self._sent_all or (self._length is not None and self._sent > self._length):
            self._wire.fail(InvalidRequestError("the content is longer than Content-Length says"))
            return True
        # One write: writelines() of asyncio knows no back-pressure in some releases (3.12.1, 3.13.0).
        flows = self._wire.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._length is None else chunk)
        self._sent_all = self._sent == self._length  # the client's end may be long in coming
        self._move(flows=flows)
        return flows

    def finish(self) -> None:
        """Handle the end of the content."""
        if self.state is UploadState.ENDED or self._sent_all:
            return
        if self._length is not None:
            self._wire.fail(InvalidRequestError("the content is shorter than Content-Length says"))
            return
        self._sent_all = True
        self._move(flows=self._wire.write(b"0\r\n\r\n"))

    def _move(self, *, flows: bool) -> None:
        """Enter the state that the last bytes brought about."""
        if not flows:
            state = UploadState.BLOCKED
        elif self._sent_all:
            state = UploadState.COMPLETE
        else:
            state = UploadState.FLOWS
        if state is not self.state:
            self.state = _UPLOAD_MOVES[self.state, state]
            self._wire.await_origin()


class OriginState:
    """A state of a connection, with the data of this state alone."""


class Idle(OriginState):
    """It can serve a request."""


class Requested(OriginState):
    """It serves a request; `unsent` is its head until the end of this iteration of the event loop."""

    request: PendingRequest
    upload: Upload | None = None  # of a request that has content
    unsent = b""


class Tunnelled(Requested):
    """It is another protocol's, and the request is over when it is closed (RFC 9110 §7.8)."""


class Closed(OriginState):
    """It serves no more."""


MOVES: Final[Mapping[type[OriginState], Mapping[type[OriginState], str]]] = {
    Idle: {
        Requested: "a request is sent",
        Closed: "it was idle for too long, gives way to another, or is lost",
    },
    Requested: {
        Idle: "the response is complete",
        Tunnelled: "the origin server switches protocols",
        Closed: "the request fails, is not waited for any more, or no other may follow it",
    },
    Tunnelled: {Closed: "the connection ends, or the request is not waited for any more"},
    Closed: {Closed: "asyncio tells that it is closed"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)
_IDLE: Final = Idle()

# Seconds that a connection is idle at most, whatever the origin server grants.
_LONGEST_REST: Final = 300.0


class Keeper(Protocol):
    """The owner of connections between requests."""

    def put_back(self, connection: Connection) -> None:
        """Take a connection back that has served its request and can serve another."""

    def set_apart(self, connection: Connection, bond: Bond) -> None:
        """Keep a connection idle for the client of this bond alone."""

    def answered(self, connection: Connection) -> None:
        """Handle the head of a connection's first response."""

    def lost(self, connection: Connection) -> None:
        """Remove a closed connection: there is room for another."""

    def withdraw(self, connection: Connection) -> None:
        """Forget a connection, which can serve no other request."""

    def repeat(self, request: PendingRequest) -> None:
        """Send a request once more, over a connection that has not served before."""


class PendingRequest:
    """An `OriginRequest` under way (an `UnderWay`), and the connection that serves it once there is one.

    `read` is the seconds that the origin server may take for the head, and for the next bytes of content.
    `failure` turns an error into the one that the answer is told of. Then `came` is True if bytes of a
    response had come, `took` if the request's content was taken, and is of no use to another.
    """

    def __init__(
        self,
        asked: OriginRequest,
        answer: Answer,
        timeouts: Timeouts,
        failure: Callable[[Exception], Exception] | None = None,
    ) -> None:
        self.asked = asked
        self.answer = answer
        self.timeouts = timeouts
        self.failure = failure
        self.read = timeouts.read
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.came = self.paused = self.repeated = self.took = False

    def pause(self) -> None:
        """Ask the origin server for no more content for now."""
        if not self.paused:
            self.paused = True
            if self.connection is not None:
                self.connection.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self.paused:
            self.paused = False
            if self.connection is not None:
                self.connection.resume_reading()

    def cancel(self) -> None:
        """Give up, and close the connection in the middle of the response."""
        opening, self.opening = self.opening, None
        if opening is not None:
            opening.cancel()
        if self.connection is not None:
            self.connection.drop()

    def fail(self, error: Exception) -> None:
        """Tell the answer that there will be no more."""
        self.answer.fail(error if self.failure is None else self.failure(error))


class Connection(asyncio.Protocol):
    """One connection, which belongs to its keeper; `state` says what may be done with it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, keeper: Keeper, max_head: int) -> None:
        self.state: OriginState = _IDLE
        self.timer = Timer(loop, self._timed_out)
        self.reader = ResponseReader(max_head, self)
        self._loop = loop
        self._batch = batch_of(loop)
        self._keeper = keeper
        self._full = False  # the origin takes no more for now
        self._answered = False  # a response has come over it
        self._authenticated = False  # it is known whose it is, or was asked for (NTLM, Negotiate)
        self._transport: asyncio.Transport

    # Called by the pool.

    @property
    def closed(self) -> bool:
        """True once it can be used no more."""
        return isinstance(self.state, Closed)

    def send(self, request: PendingRequest) -> None:
        """Send a request; its response is what comes next."""
        if isinstance(self.state, Closed):
            request.fail(ClosedError("the origin closed the connection at once"))
            return
        _MOVES[type(self.state), Requested]
        self.state = requested = Requested()
        requested.request, request.connection = request, self
        asked = request.asked
        self._authenticated = self._authenticated or asked.authenticates
        self.reader.expect(request.answer, asked)
        if request.paused:
            self.pause_reading()
        if asked.length == 0:
            requested.unsent = asked.wire
            self._batch.add(self._loop, self._depart)
            self.timer.set(request.read)
        else:
            self._transport.write(asked.wire)
            self._send_content(requested, asked)

    def stand_by(self, seconds: float) -> None:
        """Be idle for a second less than the server grants, or half of one; else for `seconds` at most."""
        grants = self.reader.reading.grants
        self.timer.set(seconds if grants < 0 else min(max(grants - 1, 0.5), _LONGEST_REST))

    def close(self) -> None:
        """Close at once."""
        if not isinstance(self.state, Closed):
            _MOVES[type(self.state), Closed]
            self.state = Closed()
            self._keeper.withdraw(self)
            # Not close(): over TLS that waits for the peer's farewell, and the descriptor with it.
            self._transport.abort()

    # Called by requests.

    def pause_reading(self) -> None:
        """Read no more for now."""
        if not self._transport.is_closing():
            self._transport.pause_reading()
            self.await_origin()

    def resume_reading(self) -> None:
        """Read again."""
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self.await_origin()

    def drop(self) -> None:
        """Close in the middle of a request that is not waited for any more."""
        self.reader.stop()
        self._release()
        self.close()

    def fail(self, error: Exception) -> None:
        """End the request under way with `error`, and the connection with it."""
        requested = self.state
        upload = requested.upload if isinstance(requested, Requested) else None
        took = upload is not None and upload.state is not UploadState.EXPECTS
        self.reader.stop()
        self._release(wanted=True)
        self.close()
        if not isinstance(requested, Requested):
            return
        request = requested.request
        # RFC 9112 §9.3.1: it died while this request was on its way, without an answer. A request of
        # which no byte was sent may be sent again by any method (RFC 9110 §9.2.2).
        lost = isinstance(error, StaleConnectionError) and request.asked.method in IDEMPOTENT and not took
        if (requested.unsent or lost) and not request.repeated:
            request.repeated = True
            self._keeper.repeat(request)
        else:
            request.came, request.took = self.reader.reading.began, took
            request.fail(error)

    # Called by the tunnel after a 101.

    def switch(self, end: asyncio.Protocol) -> Switched:
        """Give the connection to `end` (RFC 9110 §7.8); the request is over when it is closed."""
        requested = self.state
        assert isinstance(requested, Requested)
        _MOVES[type(requested), Tunnelled]
        self.state = tunnelled = Tunnelled()
        tunnelled.request, tunnelled.upload = requested.request, requested.upload
        tunnelled.request.read = None
        self.timer.clear()

        def behind(octets: bytes) -> bool:
            end.data_received(octets)
            return True

        self.reader.divert(behind)
        self._transport.set_protocol(end)
        return Switched(self._transport, full=self._full)

    # Called by an upload.

    def write(self, data: bytes) -> bool:
        """Send bytes of content; False: the origin takes no more for now, or will never again."""
        self._transport.write(data)
        return not (self._full or self._transport.is_closing())

    def await_origin(self) -> None:
        """Start the timeout of the origin server's next step, if that is awaited."""
        requested = self.state
        if not isinstance(requested, Requested):
            return
        request, upload = requested.request, requested.upload
        if upload is not None and upload.state not in (UploadState.COMPLETE, UploadState.ENDED):
            self.timer.set(upload.seconds)
        elif request.paused:
            self.timer.clear()
        else:
            self.timer.set(request.read)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        self.unread = poll.poll

    def data_received(self, data: bytes) -> None:
        requested, reader = self.state, self.reader
        if not isinstance(requested, Requested):
            self.close()  # a response to no request
            return
        if requested.unsent:
            self.fail(StaleConnectionError("the origin answered before it was asked"))
            return
        reader.feed(data)
        requested, reading = self.state, reader.reading
        if not isinstance(requested, Requested):
            return  # whoever was told of a part had enough
        if not self._answered and not isinstance(reading.state, Heads):
            self._answered = True
            self._keeper.answered(self)
        if isinstance(reading.state, Complete):
            self._finish(requested)
        elif reading.fault:
            self.fail(_fault(reading))
        elif reading.progress:
            if requested.upload is not None and requested.upload.state is UploadState.EXPECTS:
                self._decide_upload(requested.upload)
            if not reading.takes:
                requested.request.pause()
            self.await_origin()

    def eof_received(self) -> None:
        requested = self.state
        if not isinstance(requested, Requested):
            self.close()
        elif self.reader.close() and self._closed_by_the_origin():
            self._finish(requested)
        else:
            self.fail(self._broken(ClosedError, "the origin closed the connection too early"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._keeper.lost(self)
        kind: type[TransportError] = ReadError
        requested = self.state
        upload = requested.upload if isinstance(requested, Requested) else None
        if upload is not None and upload.state is not UploadState.COMPLETE:
            kind = WriteError
            self._salvage()
        if isinstance(self.state, Tunnelled):
            request = self.state.request
            self._release()
            request.answer.finish()
        elif isinstance(self.state, Requested):
            why = "" if exc is None else f": {exc}"
            error = self._broken(kind, f"the connection to the origin was lost{why}")
            error.__cause__ = exc
            self.fail(error)
        _MOVES[type(self.state), Closed]
        self.state = Closed()
        self.timer.close()
        self.reader.end()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        requested = self.state
        if isinstance(requested, Requested) and requested.upload is not None:
            requested.upload.drained()

    # Its own.

    def _depart(self) -> None:
        """Send the head that waited for the end of the loop's iteration, if its answer is still wanted."""
        requested = self.state
        if isinstance(requested, Requested):
            head, requested.unsent = requested.unsent, b""
            self._transport.write(head)

    def _send_content(self, requested: Requested, asked: OriginRequest) -> None:
        if asked.content is None:
            self.fail(InvalidRequestError("the request announces content and has none"))
            return
        seconds = requested.request.timeouts.write
        requested.upload = upload = Upload(self, asked.content, asked.length, seconds)
        if asked.expects_continue:
            upload.expect()
        else:
            upload.begin()

    def _decide_upload(self, upload: Upload) -> None:
        """Send the content that waits for 100 (Continue), or withhold it after a final response."""
        state = self.reader.reading.state
        if not isinstance(state, Heads):
            upload.end()
        elif state.continued:
            upload.begin()

    def _finish(self, requested: Requested) -> None:
        """The response is complete: the connection goes back, or away."""
        # Unsent content would be read as the next request (RFC 9112 §9.3), and what is still in the
        # buffer is what this origin does not read.
        reading, request, upload = self.reader.reading, requested.request, requested.upload
        state = reading.state
        reusable = isinstance(state, Complete) and state.reusable and not self._full and reading.grants != 0
        request.connection = None
        if upload is not None:
            reusable = reusable and upload.state is UploadState.COMPLETE
            upload.end()
        if not reusable or self._transport.is_closing():
            self.close()
        else:
            _MOVES[type(requested), Idle]
            self.state = _IDLE
            if request.paused:
                self._transport.resume_reading()
            if self._authenticated or reading.challenges:
                self._belong_to(request.asked.bond)
            else:
                self._keeper.put_back(self)
        request.answer.finish()

    def _belong_to(self, bond: Bond | None) -> None:
        """Serve one client's connection alone from now on, or none: others would be taken for that one."""
        self._authenticated = True
        if bond is None or bond.is_over:
            self.close()
        else:
            self._keeper.set_apart(self, bond)

    def _release(self, *, wanted: bool = False) -> None:
        """Part from the request under way; its content that was not taken may be `wanted` still."""
        requested = self.state
        if isinstance(requested, Requested):
            requested.request.connection = None
            if requested.upload is not None:
                requested.upload.end(wanted=wanted)

    def _salvage(self) -> None:
        """Read an early refusal that arrived before the reset.

        An origin server that refuses a request may close without reading its content. The event loop then
        fails to write and reads no further, although the kernel still holds the response.
        """
        if self._transport.get_extra_info("sslcontext") is None:
            descriptor = self._transport.get_extra_info("socket").fileno()
            with contextlib.suppress(OSError):
                while isinstance(self.state, Requested) and (data := os.read(descriptor, 65536)):
                    self.data_received(data)

    def _closed_by_the_origin(self) -> bool:
        """Tell whether the end is the origin's word: over TLS that takes a closure alert (RFC 9112 §9.8)."""
        tls = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return True
        try:
            return not tls.read(1)  # nothing more, by the alert; without one, that is an error
        except ssl.SSLError:
            return False

    def _broken(self, kind: type[TransportError], message: str) -> Exception:
        if self._answered and not self.reader.reading.began:
            return StaleConnectionError(message)
        return kind(message)

    def _timed_out(self) -> None:
        match self.state:
            case Requested(upload=Upload(state=UploadState.EXPECTS) as upload):
                upload.begin()
            case Requested(upload=Upload(state=UploadState.BLOCKED)):
                self.fail(WriteTimeoutError("the origin took nothing in time"))
            case Requested():
                self.fail(ReadTimeoutError("the origin sent nothing in time"))
            case _:
                self.close()


def _fault(reading: ReadResponse) -> Exception:
    """The reason why the response is none, or the answer's own error."""
    if isinstance(reading.error, Exception):
        return reading.error
    kind = HeadTooLargeError if reading.fault == HEAD_TOO_LARGE else InvalidResponseError
    return kind(reading.fault)
