"""One request and its response over HTTP/2: what a `Turn` writes to (RFC 9113 §5, §8.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from enum import Enum
from typing import Final, Protocol

from univocal.http.fields import without
from univocal.http.forward import HOP_BY_HOP
from univocal.http.messages import Fields
from univocal.http.states import moves
from univocal.http.upgrade import Line
from univocal.server.http2.fields import block_of
from univocal.server.http2.frames import LONGEST, ErrorCode
from univocal.server.http2.session import Session
from univocal.server.peer import ClientPeer
from univocal.server.turn import Turn

# Bytes that wait for the client's window before the turn is told to write no more.
_AHEAD: Final = 16 * 1024


class ResponsePhase(Enum):
    """The stages of a stream's response; `PHASES` has the moves between them."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    WAITING = "no head was sent"
    STARTED = "the head was sent, content may follow"
    FINISHED = "all of it was given; the last of it may wait for the client's window"
    OVER = "its end was sent, or it was reset: nothing follows"


PHASES: Final = moves(
    {
        ResponsePhase.WAITING: (ResponsePhase.STARTED, ResponsePhase.OVER),
        ResponsePhase.STARTED: (ResponsePhase.FINISHED, ResponsePhase.OVER),
        ResponsePhase.FINISHED: (ResponsePhase.OVER,),
    }
)


class StreamWire(Protocol):
    """The part of a connection that a stream needs."""

    session: Session
    peer: ClientPeer

    def send_soon(self, stream: Http2Stream) -> None:
        """Call `send` of the stream once in this turn of the event loop, and again while it may go on."""

    def flush_soon(self) -> None:
        """Write what the session has to say in this turn of the event loop."""

    def close_stream(self, stream: Http2Stream) -> None:
        """Forget a stream whose response is over."""


class Http2Stream:
    """A stream that a client has opened. `number` is its identifier; `turn` is set once it is made.

    The turn calls `interim`, `start`, `write`, `finish`, `cut`, `pause`, `resume` (see server.turn); the
    connection calls `receive`, `complete`, `send` and `lose`.
    """

    def __init__(
        self, number: int, wire: StreamWire, *, is_complete: bool, is_malformed: bool = False
    ) -> None:
        self.number = number
        self.peer = wire.peer
        self.is_complete = is_complete  # the request is
        self.is_malformed = is_malformed  # its stream ends with an error whatever it is answered
        self.phase = ResponsePhase.WAITING
        self.turn: Turn | None = None
        self._arrived: int | None = None  # bytes since the last look, if they were waited for all the time
        self._sent: int | None = None
        self._wire = wire
        self._ended = False  # the head was all of the response
        self._chunks: deque[memoryview] = deque()  # of the response, for which there was no window yet
        self._waiting = 0  # bytes in them
        self._is_full = False  # the turn was told to write no more
        self._flows = False  # the request's content is taken as it comes
        self._unread = 0  # bytes of its frames for which the client has no new window

    def _move(self, phase: ResponsePhase) -> None:
        self.phase = PHASES[self.phase, phase]

    # The request's content

    def receive(self, content: bytes, octets: int) -> None:
        """Take content, and the number of bytes that it took of the windows."""
        if self.phase is ResponsePhase.OVER:
            self._wire.session.consumed(self.number, octets)
            return
        self._unread += octets
        if self._arrived is not None:
            self._arrived += len(content)
        if self.turn is not None:
            self.turn.receive(content)
        self._give_window()

    def complete(self) -> None:
        """Handle the end of the request."""
        self.is_complete = True
        if self.turn is not None:
            self.turn.complete()

    def pause(self) -> None:
        self._flows, self._arrived = False, None

    def resume(self) -> None:
        self._flows = True
        self._give_window()

    def _give_window(self) -> None:
        if self._flows and self._unread:
            octets, self._unread = self._unread, 0
            self._wire.session.consumed(self.number, octets)
            self._wire.flush_soon()

    @property
    def awaits_content(self) -> bool:
        """The client is the one who does not go on: it has a window, and need not wait for 100 (Continue)."""
        turn = self.turn
        if self.is_complete or turn is None or turn.content is None:
            return False
        return not turn.content.awaits_continue and (self._flows or not self._unread)

    def is_slow(self, least: int) -> bool:
        """Look at the content that comes: since the last look it was waited for, and less has come."""
        arrived = self._arrived
        waits = self.awaits_content
        self._arrived = 0 if waits else None
        return waits and arrived is not None and arrived < least

    # The response

    @property
    def awaits_window(self) -> bool:
        """Content waits for the client, or for others' content before it."""
        return self._waiting > 0

    def is_stuck(self) -> bool:
        """Look at the content that waits: since the last look nothing of it was sent."""
        sent, self._sent = self._sent, 0 if self._waiting else None
        return self._waiting > 0 and sent == 0

    def interim(self, status: int, fields: Fields) -> None:
        self._wire.session.head(self.number, status, block_of(without(fields, HOP_BY_HOP)))
        self._wire.flush_soon()

    def start(self, status: int, fields: Fields, names: Collection[bytes], has_content: bool) -> None:
        self._move(ResponsePhase.STARTED)
        if not HOP_BY_HOP.isdisjoint(names):  # §8.2.2
            fields = without(fields, HOP_BY_HOP)
        self._ended = not (has_content or self.is_malformed)
        self._wire.session.head(self.number, status, block_of(fields), ends=self._ended)
        self._wire.flush_soon()

    def write(self, chunk: bytes | memoryview) -> bool:
        if self.phase is not ResponsePhase.STARTED:
            return True
        if chunk:
            self._chunks.append(memoryview(chunk))
            self._waiting += len(chunk)
            self._wire.send_soon(self)
        self._is_full = self._waiting > _AHEAD
        return not self._is_full

    def finish(self) -> None:
        if self.phase is ResponsePhase.STARTED:
            self._move(ResponsePhase.FINISHED)
            self._wire.send_soon(self)

    def cut(self) -> None:
        if self.phase is ResponsePhase.STARTED:
            while self.send():
                pass
            if self._ended:
                self._end(self._wire.session)  # its head was all of it
            else:
                self.reset(ErrorCode.INTERNAL_ERROR)

    def upgrade(self, fields: Fields | None) -> Line:  # noqa: ARG002
        raise RuntimeError("HTTP/2 has no 101 (RFC 9113 §8.6).")

    def send(self) -> bool:
        """Send a frame of what waits, within the client's window; True: more may be sent at once."""
        session = self._wire.session
        if self.phase is ResponsePhase.OVER:
            return False
        room = min(session.window(self.number), LONGEST) if self._chunks else 0
        if room > 0:
            self._send_piece(session, room)
        if not self._chunks and self.phase is ResponsePhase.FINISHED:
            self._end(session)
            return False
        if self._is_full and self._waiting <= _AHEAD:
            self._is_full = False
            if self.turn is not None:
                self.turn.resume()
        return room > 0 and bool(self._chunks)

    def _send_piece(self, session: Session, room: int) -> None:
        content = self._chunks[0]
        if len(content) > room:
            self._chunks[0] = content[room:]
            content = content[:room]
        else:
            self._chunks.popleft()
        self._waiting -= len(content)
        if self._sent is not None:
            self._sent += len(content)
        self._ended = self.phase is ResponsePhase.FINISHED and not self._chunks and not self.is_malformed
        session.content(self.number, content, ends=self._ended)

    def _end(self, session: Session) -> None:
        """End the response; content of the request that still comes is of no use (§8.1)."""
        if self.is_malformed:
            self.reset(ErrorCode.PROTOCOL_ERROR)
            return
        if not self._ended:
            session.end(self.number)
        if session.is_answered(self.number):
            self._let_go()
        else:
            self.reset(ErrorCode.NO_ERROR)

    # The end

    def reset(self, code: ErrorCode, reasons: tuple[str, ...] = ()) -> None:
        """End the stream at once."""
        if self.phase is not ResponsePhase.OVER:
            self._wire.session.reset(self.number, code)
            self._let_go(reasons)

    def lose(self, reasons: tuple[str, ...] = ()) -> None:
        """Handle a client's reset, its leaving, or faulty content."""
        if self.phase is not ResponsePhase.OVER:
            self._let_go(reasons)

    def _let_go(self, reasons: tuple[str, ...] = ()) -> None:
        self._move(ResponsePhase.OVER)
        self._chunks.clear()
        self._waiting = 0
        turn, self.turn = self.turn, None  # objects in a circle wait for the garbage collector
        if turn is not None and not turn.is_over:
            turn.end(reasons)
        octets, self._unread = self._unread, 0
        self._wire.session.consumed(self.number, octets)
        self._wire.close_stream(self)
