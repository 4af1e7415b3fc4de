"""The landing of a flight: what it brings to all who wait for it.

It is known at the response's head, or at its end where a stored response is validated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from univocal.cache.stored import Stored
from univocal.engine.broadcast import Taker
from univocal.http.messages import Fields, Response
from univocal.judge.admission import Admission


@dataclass(frozen=True, slots=True)
class Shared:
    """The shared tier holds an answer: the request is judged by that now."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class Renewed:
    """A stored response, renewed or completed by the origin server's response with `status`."""

    stored: Stored
    status: int
    server: str = ""  # the origin server's URL
    seconds: float = 0.0  # until its response's head came


class Relayed:
    """The origin server's own response; its content follows."""

    def __init__(self, response: Response) -> None:
        self.response = response


class Failed:
    """No response: an error in its place."""

    def __init__(self, error: Exception) -> None:
        self.error = error


Landing: TypeAlias = Shared | Renewed | Relayed | Failed


class Passenger(Taker, Protocol):
    """The one who waits for a flight's landing."""

    def interim(self, status: int, fields: Fields) -> None:
        """Take an interim response: told to the one whose request the flight makes."""

    def landed(self) -> None:
        """Handle the flight's `landing`; called once, unless it is `freed` before."""

    def freed(self) -> None:
        """Wait for the flight no longer: it is another's, and has taken as long as an answer does."""
