"""The directory of a file store: who may use it, what is in it, and what becomes of damage.

lock            the program that uses it; its process group shares it
journal         purges, see ring.py
turns           no bytes: its locks name the keys being fetched
entries-N.db    SQLite; N is the journal's generation
damaged.db      the last such file that could not be read
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from univocal.store.file.ring import Ring
from univocal.store.file.turns import Turns
from univocal.store.roles import StoreUnavailableError

__all__ = ["Directory", "InUseError", "new_in_memory"]

logger: Final = logging.getLogger("univocal")

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the directory in it is drawn at random, 0700
_PREFIX: Final = "univocal-store-"


class InUseError(Exception):
    """Another program uses the directory."""


class Directory:
    """A directory that is made, locked and opened. Raises OSError, InUseError.

    `is_durable`: it is on a disk, and what was confirmed survives a loss of power.
    """

    def __init__(self, path: Path, *, is_durable: bool = True) -> None:
        self.path: Final = path
        self.is_durable: Final = is_durable
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        self._lock: Final = _locked(path / "lock")
        try:
            self.ring: Final = self._journal()
            self.turns: Final = Turns(path / "turns")
            self._tidy()
        except BaseException:
            os.close(self._lock)
            raise

    def _journal(self) -> Ring:
        try:
            ring = Ring(self.path / "journal", is_durable=self.is_durable)
        except StoreUnavailableError as error:
            raise OSError(str(error)) from None
        if ring.is_new and list(self.path.glob("entries-*.db")):
            logger.warning("%s: the journal is unreadable; the store starts empty", self.path)
        return ring

    def _tidy(self) -> None:
        """Remove the entries of other generations: nobody can tell what was purged of them."""
        current = self.entries(self.ring.generation).name
        for file in self.path.glob("entries-*.db*"):
            if file.name.split(".db")[0] + ".db" != current:
                with suppress(OSError):
                    file.unlink()

    def entries(self, generation: int) -> Path:
        """The file of the entries of a generation."""
        return self.path / f"entries-{generation}.db"

    def put_aside(self, generation: int, reason: str) -> None:
        """Put a damaged file of entries aside; all processes go on with another."""
        if not self.ring.renew(generation):
            return
        damaged = self.entries(generation)
        with suppress(OSError):
            damaged.replace(self.path / "damaged.db")
        for end in ("-wal", "-shm"):
            damaged.with_name(damaged.name + end).unlink(missing_ok=True)
        logger.warning("%s is damaged (%s): moved to damaged.db, the store starts empty", damaged, reason)

    def close(self) -> None:
        """Let other programs use it."""
        self.ring.close()
        self.turns.close()
        os.close(self._lock)


def _locked(path: Path) -> int:
    """Lock a directory for this process group. Raises InUseError."""
    group = b"%d" % os.getpgrp()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.pwrite(file, group, 0)
        except BlockingIOError:
            if os.pread(file, 32, 0) != group:
                raise InUseError from None
        fcntl.flock(file, fcntl.LOCK_SH)
    except BaseException:
        os.close(file)
        raise
    return file


def new_in_memory() -> Path:
    """A new directory in memory; those of programs that were killed are removed."""
    base = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    for path in base.glob(_PREFIX + "*"):
        with suppress(OSError):
            if path.stat().st_uid == os.getuid() and _is_left(path):
                shutil.rmtree(path)
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))


def _is_left(path: Path) -> bool:
    """Tell whether no process uses a directory any longer."""
    file = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True
