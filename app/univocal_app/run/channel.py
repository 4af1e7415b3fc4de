"""The messages between a parent and its workers, and their octets on the sockets between them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration

__all__ = ["Frames", "Look", "Message", "Prepare", "Told", "Word", "frame"]

_LENGTH: Final = 4  # octets before each message


class Word(Enum):
    """The messages that say nothing more."""

    ALIVE = "a worker's sign of life"
    REOPEN = "to a worker: open the log anew"
    ADOPT = "to a worker: put into force what is prepared, and tell of it"
    DROP = "to a worker: forget what is prepared"


@dataclass(frozen=True)
class Look:
    """To a worker: write down for the others what has been counted by now. It says the same once it has."""

    number: int


@dataclass(frozen=True)
class Prepare:
    """To a worker: make what this configuration brings, and tell of it."""

    configuration: Configuration


@dataclass(frozen=True)
class Told:
    """A worker's answer to Prepare and ADOPT: it is done, or this is why not."""

    error: ConfigurationError | None = None


Message: TypeAlias = Word | Look | Prepare | Told


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
