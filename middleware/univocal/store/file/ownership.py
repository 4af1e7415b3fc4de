"""The program that a directory belongs to: its processes share a lock, and no other program has it."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from univocal.store.file.byte_locks import ByteLocks

# Seconds for which another process may be writing its name, and between two looks.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.01


class InUseError(Exception):
    """Another program uses the directory."""


class RemovedError(Exception):
    """The program's directory is not there any longer."""


def _this() -> bytes:
    return _identity(os.getpid())


def _head() -> bytes:
    """The process that stands for the program: this one, or the one that it shares its work with."""
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        return _identity(parent.pid)
    mine, others = _command("self"), _command(str(os.getppid()))
    return _identity(os.getppid()) if mine and mine == others else _this()


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and whether this process of it may make a directory; else another has.

    `name` is the same in all its processes. Without one, those that multiprocessing or a fork has made of one
    process are one program.
    """

    name: bytes = field(default_factory=_head)
    makes: bool = True


def locked(path: Path, directory: int, program: Program) -> ByteLocks:
    """Lock an open directory by the file at `path`, for as long as a process of the program lives.

    Raises InUseError, RemovedError, OSError.
    """
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


def _claim(locks: ByteLocks, program: Program) -> None:
    if program.makes and locks.take(0):
        written = b"%b\n%b\n" % (program.name, _identity(os.getppid()))
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
    if parent != _this():  # a process may use what one that it started uses
        raise InUseError


def is_left(path: Path) -> bool:
    """Tell whether no process uses the directory of this file any longer."""
    locks = ByteLocks(path, flags=os.O_RDWR)
    try:
        return locks.take(0)
    finally:
        locks.close()


def _identity(process: int) -> bytes:
    """A name of a process that no other one has, in any container of this machine, now or later."""
    try:
        space = os.readlink("/proc/self/ns/pid")
        begun = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[19]
    except (OSError, IndexError):
        return b"%d" % process
    return b"%b %d %b" % (space.encode(), process, begun)


def _command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
