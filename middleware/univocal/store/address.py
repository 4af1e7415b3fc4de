"""The store at an address: a Redis, or a directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from errno import EDQUOT, ENOENT, ENOSPC
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from univocal.http.errors import ConfigurationError
from univocal.store.memory import MemoryStore
from univocal.store.redis.url import check, masked
from univocal.store.roles import Absent, Entries, InUseError, Purges, StoreReport, unreported
from univocal.store.shared import SharedTier

DISK_BYTES: Final = 1 << 30
# The part of `disk_bytes` that the journal of a directory takes, and bytes of it.
_JOURNAL_PART: Final = 16
_LEAST_JOURNAL: Final = 256 << 10
_MOST_JOURNAL: Final = 4 << 20
# The part that a damaged file may take to be kept.
_ASIDE_PART: Final = 8
# The errors of a disk, or a quota, without room.
_FULL: Final = frozenset((ENOSPC, EDQUOT))


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The settings of a store in Redis.

    `timeout`: seconds for one command, the connection for it included. `connections`: at most so many to each
    server. `heartbeat`: seconds between two signs that the journal is followed to its end.
    """

    timeout: float = 1.0
    connections: int = 32
    heartbeat: float = 0.5


DEFAULT: Final = RedisSettings()


def directory_of(url: str) -> Path | None:
    """The directory of a file store's URL; None for any other. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ValueError("a directory: file:///PATH")
    return Path(unquote(parts.path))


def store_at(
    url: str,
    memory: MemoryStore,
    clock: Callable[[], float],
    detached_ttl: float = 5.0,
    disk_bytes: int = DISK_BYTES,
    report: StoreReport = unreported,
    redis: RedisSettings = DEFAULT,
    in_force: Path | None = None,
    program: tuple[bytes, bool] | None = None,
) -> SharedTier:
    """A tier over the store at a URL. Raises ConfigurationError.

    See `redis_tier` for `in_force` and `file_tier` for `program`.
    """
    try:
        path = directory_of(url)
    except ValueError as error:
        raise ConfigurationError("cache", "store", url, str(error)) from None
    if path is None:
        return redis_tier(url, memory, clock, detached_ttl, settings=redis, report=report, in_force=in_force)
    return file_tier(path, memory, clock, disk_bytes, report, detached_ttl, program=program)


def redis_tier(
    url: str,
    memory: MemoryStore,
    clock: Callable[[], float],
    detached_ttl: float = 5.0,
    *,
    settings: RedisSettings = DEFAULT,
    patience: float = 5.0,
    report: StoreReport = unreported,
    in_force: Path | None = None,
) -> SharedTier:
    """A tier over a Redis; nothing is connected yet. Raises ConfigurationError, also without redis-py.

    `in_force`: a file for the processes of one program, which put each other's purges in force at once.
    """
    try:
        check(url)
        # The base install has no redis-py.
        from univocal.store.redis.commands import Commands, servers_at  # noqa: PLC0415
        from univocal.store.redis.entries import RedisEntries  # noqa: PLC0415
        from univocal.store.redis.purges import RedisPurges, Siblings  # noqa: PLC0415
    except ModuleNotFoundError:
        allowed = "redis-py: install univocal[redis]"
        raise ConfigurationError("cache", "store", masked(url), allowed) from None
    except ValueError as error:
        raise ConfigurationError("cache", "store", masked(url), str(error)) from None

    def opened() -> tuple[Entries, Purges]:
        commands = Commands(servers_at(url, settings.timeout), settings.timeout, settings.connections, report)
        try:
            siblings = None if in_force is None else Siblings(in_force)
        except OSError as error:
            allowed = f"a directory for temporary files with free space ({error.strerror or error})"
            raise ConfigurationError("cache", "store", masked(url), allowed) from None
        entries = RedisEntries(commands, lambda: memory.max_variants)
        return entries, RedisPurges(commands, clock, settings.heartbeat, siblings)

    return SharedTier(memory, opened, clock, detached_ttl, patience=patience, name="Redis")


def file_tier(
    path: Path,
    memory: MemoryStore,
    clock: Callable[[], float],
    disk_bytes: int = DISK_BYTES,
    report: StoreReport = unreported,
    detached_ttl: float = 5.0,
    *,
    is_durable: bool = True,
    program: tuple[bytes, bool] | None = None,
) -> SharedTier:
    """A tier over a directory, which is locked for this program. Raises ConfigurationError.

    On a full disk memory serves alone until there is room, or until another process has made the directory.
    `detached_ttl` is as in `SharedTier`.
    `program`: a name that all its processes have, and whether this one makes the directory. Without, they are
    those that multiprocessing or a fork has made of one process.
    """
    # SQLite is for these alone.
    from univocal.store.file.directory import Directory, DirectoryUser  # noqa: PLC0415
    from univocal.store.file.entries import FileEntries  # noqa: PLC0415
    from univocal.store.file.ring import FilePurges  # noqa: PLC0415

    whose = None if program is None else DirectoryUser(*program)
    capacity = min(max(disk_bytes // _JOURNAL_PART, _LEAST_JOURNAL), _MOST_JOURNAL)
    before = list[Directory]()  # that a fork has inherited

    def opened() -> tuple[Entries, Purges]:
        aside = disk_bytes // _ASIDE_PART
        while before:
            before.pop().close()
        directory = Directory(path, is_durable=is_durable, program=whose, capacity=capacity, aside=aside)
        if not directory.is_in_place:  # the process that makes it may have no room yet
            directory.close()
            raise FileNotFoundError(ENOENT, "its directory is not there")
        before.append(directory)
        purges = FilePurges(directory.ring, report, lambda: directory.is_in_place)
        return FileEntries(directory, disk_bytes, report), purges

    def parts() -> tuple[Entries, Purges]:
        try:
            return opened()
        except InUseError:
            allowed = "a directory that no other program uses"
            raise ConfigurationError("cache", "store", f"file://{path}", allowed) from None
        except OSError as error:
            reason = str(error.strerror or error)
            waits = whose is not None and not whose.makes and error.errno == ENOENT
            if error.errno not in _FULL and not waits:
                allowed = f"a directory that can be written ({reason})"
                raise ConfigurationError("cache", "store", f"file://{path}", allowed) from None
            absent = Absent(reason, opened)
            return absent, absent

    return SharedTier(memory, parts, clock, detached_ttl, name=str(path))
