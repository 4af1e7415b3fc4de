"""One end of the conversation between the parent and a worker, and the answers that the parent waits for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar, cast

from univocal_app.processes.commons import Row
from univocal_app.processes.messages import Asking, Done, Frames, Message, MessageError, Rows, frame

MOST_WAITING: Final = 2 << 20  # bytes that may wait to be sent when one more message comes
MOST_ROWS: Final = 100_000  # of one answer

Heard = TypeVar("Heard")


class Channel(asyncio.Protocol, Generic[Heard]):
    """Calls `hear` with each message of the other end, in order, and `over` once, when nothing more comes.

    `over` gets the error that ended the channel, or None. `hear` may raise MessageError, too.
    """

    def __init__(
        self,
        read: Callable[[bytes], Heard],
        hear: Callable[[Heard], None],
        over: Callable[[MessageError | None], None],
    ) -> None:
        self._frames, self._hear, self._over = Frames(read), hear, over
        self._is_over, self._has_ended = False, False
        self._taken = asyncio.Event()
        self._taken.set()

    @property
    def waiting(self) -> int:
        """The number of bytes that wait to be sent."""
        return self._transport.get_write_buffer_size()

    def say(self, message: Message) -> bool:
        """Send a message; False if too much waits, or if there is nobody to hear it. Raises MessageError."""
        if self._has_ended or self._transport.is_closing() or self.waiting > MOST_WAITING:
            return False
        self._transport.write(frame(message))
        return True

    async def taken(self) -> None:
        """Return when the other end has taken nearly all that was said, or takes nothing any more."""
        await self._taken.wait()

    def end(self) -> None:
        """Say no more, and still hear; to a worker that is the message to end."""
        if not self._has_ended and not self._transport.is_closing():
            self._transport.write_eof()
        self._has_ended = True

    def close(self) -> None:
        """Say and hear no more."""
        self._has_ended = True
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            for message in self._frames.feed(data):
                self._hear(message)
        except MessageError as error:
            self._conclude(error)
            self.close()

    def eof_received(self) -> bool:
        self._conclude(None)
        return True  # a worker that is to end gives signs of life until it has

    def pause_writing(self) -> None:
        self._taken.clear()

    def resume_writing(self) -> None:
        self._taken.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._taken.set()
        self._conclude(None)

    def _conclude(self, error: MessageError | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._over(error)


async def connect(
    bound: socket.socket,
    read: Callable[[bytes], Heard],
    hear: Callable[[Heard], None],
    over: Callable[[MessageError | None], None],
) -> Channel[Heard]:
    """Talk over one socket of a pair from now on."""
    channel = Channel(read, hear, over)
    await asyncio.get_running_loop().create_connection(lambda: channel, sock=bound)
    return channel


class WorkerAnswer(NamedTuple):
    """The end of an answer, and the rows before it."""

    done: Done
    rows: list[Row]


@dataclass(eq=False)
class _Awaited:
    answer: asyncio.Future[WorkerAnswer]
    rows: list[Row] = field(default_factory=list)


class WorkerAnswers:
    """The answers of one other end, by the numbers of what it was asked."""

    def __init__(self) -> None:
        self._awaited: dict[int, _Awaited] = {}
        self._has_ended = False

    async def to(self, message: Asking, channel: Channel[Heard], seconds: float) -> WorkerAnswer:
        """Send a message and return its answer. Raises TimeoutError if there is none in time, or no more."""
        awaited = self._awaited[message.number] = _Awaited(asyncio.get_running_loop().create_future())
        try:
            if self._has_ended or not channel.say(message):
                raise TimeoutError("it takes no more messages")
            return await asyncio.wait_for(awaited.answer, seconds)
        finally:
            del self._awaited[message.number]

    def hear(self, message: Rows | Done) -> None:
        """Take a part of an answer; one that nobody waits for any more is let go. Raises MessageError."""
        awaited = self._awaited.get(message.number)
        if awaited is None or awaited.answer.done():
            return
        if isinstance(message, Done):
            awaited.answer.set_result(WorkerAnswer(message, awaited.rows))
            return
        awaited.rows += message.read()
        if len(awaited.rows) > MOST_ROWS:
            raise MessageError(f"an answer of more than {MOST_ROWS} rows")

    def end(self) -> None:
        """Take note that no more answers come."""
        self._has_ended = True
        for awaited in self._awaited.values():
            if not awaited.answer.done():
                awaited.answer.set_exception(TimeoutError("it has ended"))
