"""A refusal of a connection that no protocol has read a request of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from email.utils import formatdate
from typing import Final

from univocal.http.problem import problem

__all__ = ["LINGER", "refuse_connection"]

LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)


def refuse_connection(
    transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, reasons: Sequence[str]
) -> asyncio.TimerHandle:
    """Answer by HTTP/1.1 with a problem, write nothing more, and close when the client has read it.

    The caller drops what comes meanwhile, and cancels the timer when the connection is lost.
    """
    answer = problem(reasons)
    lines = [b"HTTP/1.1 %b\r\ndate: %b\r\n" % (answer.status_line, formatdate(usegmt=True).encode())]
    lines += [b"%b: %b\r\n" % field for field in answer.fields]
    transport.write(b"".join([*lines, b"connection: close\r\n\r\n", answer.body]))
    if transport.can_write_eof():
        transport.write_eof()
    return loop.call_later(LINGER, transport.abort)
