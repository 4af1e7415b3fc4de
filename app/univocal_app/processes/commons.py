"""A directory that the processes of one program have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from univocal.store.file.own_files import ByteLocks

TURN: Final = 0.005  # seconds for which a process waits for its turn: its event loop stands still
_PAUSE: Final = 0.0002  # between two tries

PARENT: Final = "parent"  # the name of the process that has the admin listener


@dataclass(frozen=True)
class Commons:
    """A directory that every process of the program uses, and the name that one process alone has in it.

    A process in the place of one that has ended takes its name, too. `store` is the directory in memory
    where all of them store responses, if they do.
    """

    directory: Path
    process: str
    store: Path | None = None

    @property
    def leads(self) -> bool:
        """True for the process that has the admin listener."""
        return self.process == PARENT

    @property
    def name(self) -> bytes:
        """A name of the program that no other one has."""
        return str(self.directory).encode()

    @property
    def in_force(self) -> Path:
        """The file of the last purge that is in force in all of them."""
        return self.directory / "purges"

    @contextmanager
    def alone(self, patience: float = TURN) -> Iterator[bool]:
        """One process at a time; False: another one has had the turn for `patience` seconds.

        The system takes the lock from a process that is killed, but not from one that is stopped.
        """
        is_ours = self._locks.take_soon(0, patience, _PAUSE)
        try:
            yield is_ours
        finally:
            if is_ours:
                self._locks.give(0)

    @cached_property
    def _locks(self) -> ByteLocks:
        return ByteLocks(self.directory / "lock")
