"""A request's content on its way to the origin server: its framing, its pace, its end (RFC 9112 §6, §7.1)."""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

from univocal.http.roles import Content
from univocal.origin.failures import InvalidRequestError

# RFC 9110 §10.1.1: a client that waits for 100 (Continue) must not wait for ever.
CONTINUE_TIMEOUT: Final = 1.0


class Sending(Enum):
    """The states of a request's content on its way."""

    EXPECTS = "it waits for 100 (Continue)"
    FLOWS = "it goes out as it comes from the client"
    BLOCKED = "the origin takes no more for now"
    COMPLETE = "all of it was sent"
    ENDED = "no more will be sent, since nobody waits for it"


class Wire(Protocol):
    """The connection that takes the bytes."""

    def write(self, data: bytes) -> bool:
        """Send bytes; False: the origin server takes no more for now."""
        ...

    def fail(self, error: Exception) -> None:
        """Give the request up: its content is not what its head says."""

    def await_origin(self) -> None:
        """Start the timeout of the origin server's next step, if that is awaited."""


class Upload:
    """Frames the bytes that a request's content pushes (a `ContentSink`): `length` of them; None: chunks."""

    __slots__ = ("_content", "_length", "_sent", "_sent_all", "_wire", "_write", "state")

    def __init__(self, wire: Wire, content: Content, length: int | None, write: float | None) -> None:
        self.state = Sending.FLOWS
        self._wire = wire
        self._content = content
        self._length = length
        self._write = write
        self._sent = 0
        self._sent_all = False

    @property
    def seconds(self) -> float | None:
        """The seconds that this state may last; None: it has no limit."""
        if self.state is Sending.EXPECTS:
            return CONTINUE_TIMEOUT
        return self._write if self.state is Sending.BLOCKED else None

    def expect(self) -> None:
        """Hold the content until 100 (Continue), unless its client sends it at once."""
        self.state = Sending.EXPECTS
        self._wire.await_origin()
        self._content.when_begun(self.begin)

    def begin(self) -> None:
        """Start the content."""
        if self.state is Sending.EXPECTS:
            self._content.when_begun(None)
        self.state = Sending.FLOWS
        self._wire.await_origin()
        self._content.attach(self)

    def end(self, *, wanted: bool = False) -> None:
        """Stop the content; with `wanted`, another may still take all that waits."""
        state, self.state = self.state, Sending.ENDED
        if state is Sending.EXPECTS:
            self._content.when_begun(None)
        if state is not Sending.COMPLETE and not (wanted and state is Sending.EXPECTS):
            self._content.detach()

    def drained(self) -> None:
        """Go on, if it waits for that: the origin server takes more."""
        if self.state is not Sending.BLOCKED:
            return
        self._move(flows=True)
        if not self._sent_all:
            self._content.resume()

    # Called by the content.

    def write(self, chunk: bytes) -> bool:
        """Send bytes of content; False: no more until the content is resumed."""
        if self.state is Sending.ENDED or not chunk:
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
        if self.state is Sending.ENDED or self._sent_all:
            return
        if self._length is not None:
            self._wire.fail(InvalidRequestError("the content is shorter than Content-Length says"))
            return
        self._sent_all = True
        self._move(flows=self._wire.write(b"0\r\n\r\n"))

    def _move(self, *, flows: bool) -> None:
        """Enter the state that the last bytes brought about."""
        if not flows:
            state = Sending.BLOCKED
        elif self._sent_all:
            state = Sending.COMPLETE
        else:
            state = Sending.FLOWS
        if state is not self.state:
            self.state = state
            self._wire.await_origin()
