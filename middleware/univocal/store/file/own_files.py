"""Directories and files that belong to this user alone: links and other users' are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG, S_ISVTX, S_IWOTH
from typing import Final

# The user that a container's kernel shows for those it cannot name.
_UNNAMED: Final = 65534


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
