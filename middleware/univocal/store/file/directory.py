"""The directory of a file store: who may use it, what is in it, and what becomes of damage.

lock            the program that uses it: its processes share a lock of it
journal         purges, see ring.py
turns           no bytes: its locks name the keys being fetched
entries-N.db    SQLite; N is the journal's generation.
entries-N.content   larger contents.
damaged.db      the last such file that could not be read, if it is small
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from os import getpid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

from univocal.store.file.own_files import ByteLocks, open_directory
from univocal.store.file.ring import CAPACITY, Ring
from univocal.store.roles import InUseError, StoreUnavailableError

logger: Final = logging.getLogger("univocal")

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the directory in it is drawn at random, 0700
DAMAGED: Final = "damaged.db"
_PREFIX: Final = "univocal-store-"
# Bytes for each key in the file of locks: the length of a lock says which it is.
_ROOM: Final = 20
_LEAST: Final = 16 << 20  # bytes in memory that a program begins with
# Seconds for which another process may be writing its name, and between two looks.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.01


class RemovedError(Exception):
    """The program's directory is not there any longer."""


def _own_name() -> bytes:
    return _process_name(os.getpid())


def _program_name() -> bytes:
    """The process that stands for the program: this one, or the one that it shares its work with."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        return _process_name(parent.pid)
    mine, others = _command_line("self"), _command_line(str(os.getppid()))
    return _process_name(os.getppid()) if mine and mine == others else _own_name()


@dataclass(frozen=True, slots=True)
class DirectoryUser:
    """A program, and whether this process of it may make a directory; else another has.

    `name` is the same in all its processes. Without one, those that multiprocessing or a fork has made of one
    process are one program.
    """

    name: bytes = field(default_factory=_program_name)
    makes: bool = True


def locked(path: Path, directory: int | None = None, program: DirectoryUser | None = None) -> ByteLocks:
    """Lock a directory by the file at `path`, for as long as a process of the program lives.

    Without a `program` it is this one. Raises InUseError, RemovedError, OSError.
    """
    program = DirectoryUser() if program is None else program
    try:
        locks = ByteLocks(path, directory, os.O_RDWR | os.O_CREAT if program.makes else os.O_RDWR)
    except FileNotFoundError:
        raise RemovedError from None
    try:
        _claim(locks, program)
    except BaseException:
        locks.close()
        raise
    return locks


def _claim(locks: ByteLocks, program: DirectoryUser) -> None:
    if program.makes and locks.take(0):
        written = b"%b\n%b\n" % (program.name, _process_name(os.getppid()))
        os.ftruncate(locks.file, 0)
        os.pwrite(locks.file, written, 0)
    until = time.monotonic() + _PATIENCE
    while not locks.share(0):
        if time.monotonic() > until:
            raise InUseError
        time.sleep(_PAUSE)
    name, parent, *_ = [*os.pread(locks.file, 4096, 0).split(b"\n"), b"", b""]
    if name == program.name:
        return
    if not program.makes:
        raise RemovedError
    if parent != _own_name():  # a process may use what one that it started uses
        raise InUseError


def _process_name(process: int) -> bytes:
    """A name of a process that no other one has, in any container of this machine, now or later."""
    try:
        space = os.readlink("/proc/self/ns/pid")
        begun = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return b"%d" % process
    return b"%b %d %b" % (space.encode(), process, begun)


def _command_line(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


class FetchLocks:
    """Locks of keys that are being fetched, on bytes of an empty file; they end with their process.

    Two keys of one digest wait for one another, which costs time alone.
    """

    def __init__(self, path: Path, directory: int | None = None) -> None:
        self._locks: Final = ByteLocks(path, directory)
        self._mine: dict[int, int] = {}  # the length of each lock
        self._numbers: Final = count(getpid() * 7919)

    def take(self, key: bytes) -> bool:
        """Take a key's lock; False if another has it."""
        place = _place(key)
        length = 1 + next(self._numbers) % ((1 << _ROOM) - 2)
        if place in self._mine or not self._locks.take(place, length):
            return False
        self._mine[place] = length
        return True

    def holder(self, key: bytes) -> bytes:
        """A name of a key's lock, as it is taken now; b"" if none has it."""
        place = _place(key)
        length = self._mine.get(place) or self._locks.length(place)
        return b"%d" % length if length else b""

    def give(self, key: bytes) -> None:
        """Release a key's lock."""
        place = _place(key)
        length = self._mine.pop(place, 0)
        if length:
            self._locks.give(place, length)

    def lead(self) -> bool:
        """Take the one lock of who looks after the store, for as long as this process lives."""
        if 0 not in self._mine and self._locks.take(0):
            self._mine[0] = 1
        return 0 in self._mine

    def close(self) -> None:
        """Release all locks."""
        self._locks.close()


def _place(key: bytes) -> int:
    return (1 + int.from_bytes(blake2b(key, digest_size=5).digest(), "big")) << _ROOM


class Directory:
    """A directory that is made, locked and opened. Raises OSError, InUseError.

    `is_durable`: it is on a disk, and what was confirmed survives a loss of power. `program`: whose processes
    have it in common; once it was removed, each of them goes on without. `capacity`: bytes of the journal.
    `aside`: bytes that a damaged file may have to be kept, since they are bytes that no response can have.
    """

    def __init__(
        self,
        path: Path,
        *,
        is_durable: bool = True,
        program: DirectoryUser | None = None,
        capacity: int = CAPACITY,
        aside: int = 8 << 20,
    ) -> None:
        self._capacity, self._aside = capacity, aside
        self.path: Final = path
        self.is_durable: Final = is_durable
        self._file, self._lock = -1, cast("ByteLocks | None", None)  # there is neither once it was removed
        makes = program is None or program.makes
        with ExitStack() as opened:
            try:
                self._file = open_directory(path) if makes else _reopened(path)
                opened.callback(os.close, self._file)
                self._lock = locked(path / "lock", self._file, program)
                opened.callback(self._lock.close)
                self.ring = self._journal()
                opened.callback(self.ring.close)
                self.fetch_locks = FetchLocks(path / "turns", self._file)
                opened.callback(self.fetch_locks.close)
                self._tidy()
            except RemovedError:
                opened.close()
                self._file, self._lock = -1, None
                with TemporaryDirectory(prefix=_PREFIX) as name:  # in which no purge is ever confirmed
                    self.ring = Ring(Path(name) / "journal", is_durable=False)
                    self.fetch_locks = FetchLocks(Path(name) / "turns")
                opened.callback(self.ring.close)
                opened.callback(self.fetch_locks.close)
            self._opened: Final = opened.pop_all()

    @property
    def is_in_place(self) -> bool:
        """True while it is where it was opened, with its lock and its journal."""
        if self._lock is None:
            return False
        try:
            is_same = os.path.samestat(os.stat(self.path), os.fstat(self._file))
            held = os.path.samestat(os.stat("lock", dir_fd=self._file), os.fstat(self._lock.file))
        except OSError:
            return False
        return is_same and held and self.ring.is_in_place

    def _journal(self) -> Ring:
        try:
            ring = Ring(
                self.path / "journal", self._capacity, directory=self._file, is_durable=self.is_durable
            )
        except StoreUnavailableError as error:
            raise OSError(str(error)) from None
        if ring.is_new and self._databases():
            logger.warning("%s: the journal is unreadable; the store starts empty", self.path)
        return ring

    @property
    def other_bytes(self) -> int:
        """The bytes of all that is in it but entries."""
        total = 0
        for name in self._names():
            with suppress(FileNotFoundError):  # another process removes what is damaged
                total += 0 if name.startswith("entries-") else os.stat(name, dir_fd=self._file).st_size
        return total

    def _databases(self) -> list[str]:
        return [name for name in self._names() if name.startswith("entries-")]

    def _names(self) -> list[str]:
        # Opened anew: threads that list one open directory take names from one another.
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._file)
        try:
            return os.listdir(opened)
        finally:
            os.close(opened)

    def _tidy(self) -> None:
        """Remove the entries of other generations, whose purges are not known, and a large file
        put aside."""
        names = self._databases()  # first: another process may begin the next generation
        current = self.entries(self.ring.generation).name
        for name in names:
            if not name.startswith(current.removesuffix("db")):
                self._remove(name)
        if self._drops_damaged():
            logger.warning("%s: damaged.db is removed: disk_bytes have no room for it", self.path)

    def _drops_damaged(self) -> bool:
        """Remove the file put aside if it is too large to be kept."""
        with suppress(OSError):
            if os.stat(DAMAGED, dir_fd=self._file, follow_symlinks=False).st_size > self._aside:
                os.unlink(DAMAGED, dir_fd=self._file)
                return True
        return False

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._file)

    def entries(self, generation: int) -> Path:
        """The file of the entries of a generation, in the open directory, wherever that is by now."""
        opened = Path(f"/proc/self/fd/{self._file}")
        return (opened if opened.exists() else self.path) / f"entries-{generation}.db"

    def put_aside(self, generation: int, reason: str) -> None:
        """Put a damaged file of entries aside; all processes go on with another."""
        if not self.ring.renew(generation):
            return
        damaged, moved = self.entries(generation), "nothing of it is left"
        with suppress(OSError):
            os.replace(damaged.name, DAMAGED, src_dir_fd=self._file, dst_dir_fd=self._file)
            moved = f"moved to {DAMAGED}"
        if self._drops_damaged():
            moved = "removed, since disk_bytes have no room for it"
        for end in ("-wal", "-shm"):
            self._remove(damaged.name + end)
        self._remove(damaged.with_suffix(".content").name)
        damaged = self.path / damaged.name
        logger.warning("%s is damaged (%s): %s, the store starts empty", damaged, reason, moved)

    def close(self) -> None:
        """Release it for other programs; once more, it changes nothing."""
        self._opened.close()


def _reopened(path: Path) -> int:
    """Open a directory that another process has made. Raises RemovedError."""
    if path.is_dir():
        with suppress(OSError):
            return open_directory(path)
    raise RemovedError


def _is_left(path: Path) -> bool:
    """Tell whether no program uses a directory any longer.

    One that begins there has a minute for its lock, and writes in it once it holds it: to try the lock before
    that could take it from the program.
    """
    lock = path / "lock"
    is_written = lock.exists() and lock.stat().st_size > 0
    if not is_written and time.time() - path.stat().st_mtime < 60:
        return False
    if not lock.exists():
        return not any(path.iterdir())
    locks = ByteLocks(lock, flags=os.O_RDWR)
    try:
        return locks.take(0)
    finally:
        locks.close()


def _free(directory: Path) -> int:
    return shutil.disk_usage(directory).free


def _remove_left(base: Path) -> None:
    for path in base.glob(_PREFIX + "*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.geteuid() and _is_left(path):
                shutil.rmtree(path)


def new_in_memory() -> Path:
    """A new directory in memory, or else among the temporary files; those of killed programs are removed."""
    bases = [SHARED_MEMORY] if os.access(SHARED_MEMORY, os.W_OK) else []
    others = list[Path]()
    with suppress(FileNotFoundError):  # a container that is read-only has none
        others.append(Path(tempfile.gettempdir()))
    for base in [*bases, *others]:
        _remove_left(base)
    if not bases or _free(SHARED_MEMORY) < _LEAST:
        bases += others
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=max(bases, key=_free, default=None)))
    if len(bases) > 1:
        logger.warning("%s is nearly full: %s is used", SHARED_MEMORY, directory)
    return directory
