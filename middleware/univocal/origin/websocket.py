"""A WebSocket to an origin server, message by message: the library websockets reads and writes its frames."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, OPEN, Protocol
from websockets.utils import generate_key

from univocal.http.intermediary import Line
from univocal.http.messages import Field, Fields

MAX_MESSAGE: Final = 16 * 1024 * 1024  # bytes; ASGI has messages whole, and its servers take no larger ones
HIGH_WATER: Final = 64 * 1024  # bytes of messages that wait for who receives them
_COST: Final = 64  # bytes that a message takes beside its own
LINGER: Final = 10.0  # seconds that the origin server has to close the connection

NO_CODE, NO_CLOSE, TOO_BIG = 1005, 1006, 1009  # RFC 6455 §7.4.1
_NEVER_SENT: Final = frozenset((1004, NO_CODE, NO_CLOSE, 1015))

# The fields that the handshake with the origin server has of its own.
_OWN: Final = frozenset(
    (
        *(b"sec-websocket-key", b"sec-websocket-version"),
        *(b"sec-websocket-extensions", b"sec-websocket-protocol"),
    )
)


class WebSocketClose(NamedTuple):
    """The end of a WebSocket: 1005 if no code was given, 1006 if there was no close frame."""

    code: int
    reason: str = ""


def opening_fields(fields: Sequence[Field], subprotocols: Sequence[str]) -> Fields:
    """The fields of a handshake with the origin server: a key of its own, and no extensions."""
    handshake_fields = [field for field in fields if field[0] not in _OWN]
    handshake_fields += [(b"sec-websocket-version", b"13"), (b"sec-websocket-key", generate_key().encode())]
    if subprotocols:
        handshake_fields.append((b"sec-websocket-protocol", ", ".join(subprotocols).encode("latin-1")))
    return handshake_fields


class OriginSocket(asyncio.Protocol):
    """The WebSocket that a connection becomes behind a 101; pings are answered here."""

    def __init__(self, line: Line) -> None:
        self._codec = Protocol(CLIENT, max_size=MAX_MESSAGE)
        self._line = line
        self._messages: deque[str | bytes] = deque()
        self._waiting = 0  # bytes in _messages
        self._begun = bytearray()  # of a message that is not whole
        self._is_text = False
        self._lost = False
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._aborting: asyncio.TimerHandle | None = None
        self._transport: Any
        self._transport, _, self._full = line.switch(self)

    # Awaited by the relay

    @property
    def full(self) -> bool:
        """True while the origin server takes no more."""
        return self._full and not self._lost

    async def receive(self) -> str | bytes | WebSocketClose:
        """The next message, or the end, which every later call returns too."""
        while not self._messages:
            if (end := self._end()) is not None:
                return end
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        before, self._waiting = self._waiting, self._waiting - len(message) - _COST
        if before > HIGH_WATER:
            self._read_on()
        return message

    async def send(self, message: str | bytes) -> None:
        """Send a message, as soon as the origin server takes it; none behind the end."""
        while self.full:
            self._room.clear()
            await self._room.wait()
        if self._lost or self._codec.state is not OPEN:
            return
        if isinstance(message, str):
            self._codec.send_text(message.encode())
        else:
            self._codec.send_binary(message)
        self._flush()

    def close(self, code: int, reason: str = "") -> None:
        """Close it; a code that may not be sent is left out (RFC 6455 §7.4.1)."""
        if self._lost:
            return
        if self._codec.state is OPEN:
            if 1000 <= code < 5000 and code not in _NEVER_SENT:
                self._codec.send_close(code, reason)
            else:
                self._codec.send_close()
        self._flush()
        if self._aborting is None:
            self._aborting = asyncio.get_running_loop().call_later(LINGER, self._transport.abort)

    # Called by the event loop

    def data_received(self, data: bytes) -> None:
        codec = self._codec
        codec.receive_data(data)
        for frame in codec.events_received():
            assert isinstance(frame, Frame)
            self._take(frame)
        self._flush()
        if self._waiting > HIGH_WATER:
            self._transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._codec.receive_eof()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._aborting is not None:
            self._aborting.cancel()
        self._codec.receive_eof()
        self._news.set()
        self._room.set()
        self._line.connection_lost(exc)

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()  # or one that pings and does not read has pongs wait without a bound

    def resume_writing(self) -> None:
        self._full = False
        self._room.set()
        self._read_on()

    # Its own

    def _read_on(self) -> None:
        if not (self._full or self._lost or self._waiting > HIGH_WATER):
            self._transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        """Take a frame; a message is told of when it is whole."""
        if frame.opcode in {Opcode.TEXT, Opcode.BINARY}:
            self._is_text = frame.opcode is Opcode.TEXT
        elif frame.opcode is not Opcode.CONT:
            return
        self._begun += frame.data
        if not frame.fin:
            return
        whole, self._begun = bytes(self._begun), bytearray()
        try:
            self._messages.append(whole.decode() if self._is_text else whole)
        except UnicodeDecodeError:
            self._codec.fail(1007)  # RFC 6455 §8.1
        else:
            self._waiting += len(self._messages[-1]) + _COST

    def _end(self) -> WebSocketClose | None:
        """The end, if it has come."""
        codec = self._codec
        if codec.close_rcvd is not None:
            return WebSocketClose(codec.close_rcvd.code, codec.close_rcvd.reason)
        if codec.state is OPEN and not self._lost:
            return None
        too_big = codec.close_sent is not None and codec.close_sent.code == TOO_BIG
        return WebSocketClose(TOO_BIG if too_big else NO_CLOSE)

    def _flush(self) -> None:
        for octets in self._codec.data_to_send():
            if octets and not self._transport.is_closing():
                self._transport.write(octets)
