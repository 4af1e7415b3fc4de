"""A refusal of a connection that no protocol has read a request of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email.utils import formatdate
from typing import Final

from univocal.http.problem import problem

LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)
LINGER_BYTES: Final = 1024 * 1024  # that it may still send meanwhile; nobody parses or keeps them


class Refusal:
    """An answer by HTTP/1.1 that is the last: its client may read it, and then the connection ends.

    The caller hands over what still comes, and cancels the `timer` when the connection is lost.
    """

    __slots__ = ("_left", "_transport", "timer")

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, reasons: Sequence[str]
    ) -> None:
        answer = problem(reasons)
        lines = [b"HTTP/1.1 %b\r\ndate: %b\r\n" % (answer.status_line, formatdate(usegmt=True).encode())]
        lines += [b"%b: %b\r\n" % field for field in answer.fields]
        transport.write(b"".join([*lines, b"connection: close\r\n\r\n", answer.body]))
        if transport.can_write_eof():
            transport.write_eof()
        self._transport = transport
        self._left = LINGER_BYTES
        self.timer = loop.call_later(LINGER, transport.abort)

    def pass_over(self, octets: int) -> None:
        """Let go of bytes that came; the connection of a client that sends too many ends."""
        self._left -= octets
        if self._left < 0:
            self._transport.abort()
