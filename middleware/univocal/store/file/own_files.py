"""Directories and files that belong to this user alone, locks on their bytes, and memory that they hold.

Links and other users' files are refused. The system frees a lock with its process.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from stat import S_ISDIR, S_ISREG, S_ISVTX, S_IWOTH
from typing import Final

# The user that a container's kernel shows for those it cannot name.
_UNNAMED: Final = 65534
# Linux has locks of an open file, which are no other's of this process; elsewhere they are the process's.
_SET: Final[int] = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
_GET: Final[int] = getattr(fcntl, "F_OFD_GETLK", fcntl.F_GETLK)
_LOCK: Final = struct.Struct("hhqqi4x")


def open_directory(path: Path) -> int:
    """Make a directory for this user alone (0700) and open it. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    us, flags = os.geteuid(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    link = path.lstat()
    if S_ISDIR(link.st_mode):
        flags |= os.O_NOFOLLOW
    elif us == 0 or link.st_uid != 0:  # the superuser may direct others: systemd's DynamicUser does
        raise OSError(errno.ELOOP, "it is a link", str(path))
    for parent in path.resolve().parents:
        if parent.stat().st_uid not in {0, us, _UNNAMED}:
            raise OSError(errno.EPERM, f"{parent} belongs to another user", str(path))
        if us == 0 and is_open_to_all(parent) and not os.path.ismount(parent):  # all may have a volume
            raise OSError(errno.EPERM, f"all may exchange what is in {parent}: chmod o-w it", str(path))
    directory = os.open(path, flags)
    try:
        if os.fstat(directory).st_uid != us:
            raise OSError(errno.EPERM, "it belongs to another user", str(path))
        os.fchmod(directory, 0o700)
    except BaseException:
        os.close(directory)
        raise
    return directory


def is_open_to_all(directory: Path) -> bool:
    """Tell whether anybody may move what others have in a directory away, and something else there."""
    return directory.stat().st_mode & (S_IWOTH | S_ISVTX) == S_IWOTH


def open_file(path: Path, directory: int | None = None, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """Open a file of this user alone (0600), in an open directory if there is one. Raises OSError."""
    name = path if directory is None else path.name
    file = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    status = os.fstat(file)
    if not S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
        os.close(file)
        raise OSError(errno.EPERM, f"{path.name} is no file of this user alone", str(path))
    return file


class ByteLocks:
    """The locks on the bytes of the file at `path`; the bytes need not exist. Raises OSError.

    With an open `directory` the file is the one of that name there.
    """

    def __init__(self, path: Path, directory: int | None = None, flags: int = os.O_RDWR | os.O_CREAT) -> None:
        self.file: Final = open_file(path, directory, flags)

    def take(self, place: int, length: int = 1) -> bool:
        """Take the lock on so many bytes; False if another holds or shares one of them."""
        return self._set(fcntl.F_WRLCK, place, length)

    def take_soon(self, place: int, patience: float, pause: float) -> bool:
        """Take the lock on a byte that others hold for a moment; False if it is not free in these seconds."""
        until = time.monotonic() + patience
        while not self.take(place):
            if time.monotonic() > until:
                return False
            time.sleep(pause)
        return True

    def length(self, place: int) -> int:
        """The length of another's lock on a byte, 0 if it is free."""
        asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        kind, _, _, length, _ = _LOCK.unpack(fcntl.fcntl(self.file, _GET, asked))
        return 0 if kind == fcntl.F_UNLCK else int(length)

    def share(self, place: int) -> bool:
        """Share the lock on a byte, also in place of the whole of it; False if another holds it."""
        return self._set(fcntl.F_RDLCK, place)

    def give(self, place: int, length: int = 1) -> None:
        """Give the lock on so many bytes back."""
        self._set(fcntl.F_UNLCK, place, length)

    def _set(self, kind: int, place: int, length: int = 1) -> bool:
        try:
            fcntl.fcntl(self.file, _SET, _LOCK.pack(kind, os.SEEK_SET, place, length, 0))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def close(self) -> None:
        """Give all locks back."""
        os.close(self.file)


class Cells:
    """Numbers that processes have in common: `count` cells of 8 bytes in the file at `path`, which each maps.

    `integers` and `reals` are the same cells, 0 at first. A cell is one aligned word: no number is ever half
    written. To change one by what it has, take one of the `locks`. Raises OSError.
    """

    def __init__(self, path: Path, count: int) -> None:
        self.locks: Final = ByteLocks(path)
        try:
            if os.fstat(self.locks.file).st_size < 8 * count:
                # Not a hole, which would end the process if the disk had no room for it.
                os.posix_fallocate(self.locks.file, 0, 8 * count)
            self._map: Final = mmap.mmap(self.locks.file, 8 * count)
        except OSError as error:
            self.locks.close()
            raise OSError(error.errno, error.strerror, str(path)) from None
        self.integers: Final[memoryview[int]] = memoryview(self._map).cast("Q")
        self.reals: Final[memoryview[float]] = memoryview(self._map).cast("d")

    def close(self) -> None:
        """Map it no longer, and give all locks back."""
        self.integers.release()
        self.reals.release()
        self._map.close()
        self.locks.close()
