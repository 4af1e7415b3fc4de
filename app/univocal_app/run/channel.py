"""What a parent and its workers tell one another, and its octets on the sockets between them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration

__all__ = [
    "Adopt",
    "Alive",
    "Drop",
    "Frames",
    "Look",
    "Looked",
    "Message",
    "Prepare",
    "Reopen",
    "Told",
    "frame",
]

_LENGTH: Final = 4  # octets before each message


@dataclass(frozen=True)
class Alive:
    """A worker's sign of life."""


@dataclass(frozen=True)
class Reopen:
    """To a worker: open the log anew."""


@dataclass(frozen=True)
class Look:
    """To a worker: write down for the others what has been counted by now, and tell of it by this number."""

    number: int


@dataclass(frozen=True)
class Looked:
    """A worker's answer to Look: it is written down."""

    number: int


@dataclass(frozen=True)
class Prepare:
    """To a worker: make what this configuration brings, and tell of it."""

    configuration: Configuration


@dataclass(frozen=True)
class Adopt:
    """To a worker: put into force what is prepared, and tell of it."""


@dataclass(frozen=True)
class Drop:
    """To a worker: forget what is prepared."""


@dataclass(frozen=True)
class Told:
    """A worker's answer to Prepare and Adopt: it is done, or this is why not."""

    error: ConfigurationError | None = None


Message: TypeAlias = Alive | Reopen | Look | Looked | Prepare | Adopt | Drop | Told


def frame(message: Message) -> bytes:
    """The octets of a message."""
    content = pickle.dumps(message)
    return len(content).to_bytes(_LENGTH, "big") + content


class Frames:
    """Takes messages out of octets as they come; those who send them are processes of one program."""

    def __init__(self) -> None:
        self._octets = b""

    def feed(self, octets: bytes) -> Iterator[Message]:
        """The messages that are complete with these octets."""
        self._octets += octets
        while len(self._octets) >= _LENGTH:
            end = _LENGTH + int.from_bytes(self._octets[:_LENGTH], "big")
            if len(self._octets) < end:
                return
            content, self._octets = self._octets[_LENGTH:end], self._octets[end:]
            yield pickle.loads(content)  # noqa: S301
