"""Reading that is held back until there is room for more."""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import FlowControl

__all__ = ["Flow"]


class Flow(FlowControl):
    """uvicorn's flow control, with a hold that an application's `receive` does not loosen."""

    held = False

    def resume_reading(self) -> None:
        """Read on, unless held."""
        if not self.held:
            super().resume_reading()

    def hold(self, held: bool) -> None:
        """Stop reading until the hold is given up."""
        before, self.held = self.held, held
        if held:
            self.pause_reading()
        elif before:
            self.resume_reading()
