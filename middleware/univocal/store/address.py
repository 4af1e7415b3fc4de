"""The store at an address: a Redis, or a directory."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from univocal.http.errors import ConfigurationError
from univocal.store.file.directory import Directory, InUseError
from univocal.store.file.entries import FileEntries
from univocal.store.file.purges import FilePurges
from univocal.store.memory import MemoryStore
from univocal.store.patterns import compiled
from univocal.store.redis.tier import SharedStore, TrackedTier
from univocal.store.roles import StoreReport, unreported
from univocal.store.shared import SharedTier

__all__ = ["DISK_BYTES", "OpenTier", "directory_of", "file_tier", "store_at"]

DISK_BYTES: Final = 1 << 30

OpenTier = SharedTier | TrackedTier
"""A tier over a store that is started and closed."""


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
) -> OpenTier:
    """A tier over the store at a URL. Raises ConfigurationError."""
    try:
        path = directory_of(url)
    except ValueError as error:
        raise ConfigurationError("cache", "store", url, str(error)) from None
    if path is None:
        return TrackedTier(SharedStore.at(url, memory, clock, detached_ttl))
    return file_tier(path, memory, clock, disk_bytes, report)


def file_tier(
    path: Path,
    memory: MemoryStore,
    clock: Callable[[], float],
    disk_bytes: int = DISK_BYTES,
    report: StoreReport = unreported,
    *,
    is_durable: bool = True,
) -> SharedTier:
    """A tier over a directory, which is locked for this program. Raises ConfigurationError."""
    try:
        directory = Directory(path, is_durable=is_durable)
    except InUseError:
        allowed = "a directory that no other program uses"
        raise ConfigurationError("cache", "store", f"file://{path}", allowed) from None
    except OSError as error:
        allowed = f"a directory that can be written ({error.strerror or error})"
        raise ConfigurationError("cache", "store", f"file://{path}", allowed) from None
    compiler = compiled if find_spec("re2") else None
    entries = FileEntries(directory, disk_bytes, report)
    purges = FilePurges(directory.ring, compiler, report)
    return SharedTier(memory, entries, purges, clock, name=str(path))
