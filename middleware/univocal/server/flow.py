"""The two directions of a client's connection: what is read for now, and what it takes."""

from __future__ import annotations

import asyncio

__all__ = ["Flow"]


class Flow:
    """Pauses reading, which two have a say in: a request's content, and the connection that holds more.

    A hold keeps reading paused whatever the content says. `write_paused`: the client takes no more for now.
    `arrived` are bytes of content since the client was last seen to keep its pace.
    """

    __slots__ = ("_transport", "arrived", "held", "paused_lately", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.held = False
        self.read_paused = self.write_paused = False
        self.paused_lately = False  # since it was last set back
        self.arrived = 0

    def pause_reading(self) -> None:
        """Stop reading."""
        self.paused_lately = True
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless held."""
        if self.read_paused and not self.held:
            self.read_paused = False
            self._transport.resume_reading()

    def hold(self, held: bool) -> None:
        """Stop reading until the hold is given up."""
        before, self.held = self.held, held
        if held:
            self.pause_reading()
        elif before:
            self.resume_reading()
