"""The store in a directory for which the disk has no room: it is tried again until it can be opened."""

# ruff: noqa: ARG002  nothing is there

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from univocal.cache.stored import Stored
from univocal.http.messages import Request
from univocal.store.file.directory import InUseError
from univocal.store.leases import FetchLease, Numbered
from univocal.store.purge_selectors import Purge, Selector
from univocal.store.roles import Entries, Purges, StoreUnavailableError, Watcher

FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))
"""The errors of a disk, or a quota, without room."""

AGAIN: Final = 5.0  # seconds between two attempts


class Absent(Entries, Purges):
    """Both parts of a store that cannot be opened for a `reason`.

    `opened` opens it, or raises OSError or InUseError; `adopt` gets its parts.
    """

    def __init__(self, reason: str, opened: Callable[[], tuple[Entries, Purges]]) -> None:
        self._reason, self._opened = reason, opened
        self.adopt: Callable[[Entries, Purges], None] = lambda entries, purges: None  # noqa: ARG005
        self._task: asyncio.Task[None] | None = None

    async def start(self, watcher: Watcher) -> None:
        watcher.lost(self._reason)
        self._task = asyncio.get_running_loop().create_task(self._try_again(watcher))

    async def _try_again(self, watcher: Watcher) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            try:
                entries, purges = await asyncio.to_thread(self._opened)
            except (OSError, InUseError):
                continue
            self.adopt(entries, purges)
            await purges.start(watcher)
            return

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # Nothing is there

    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Numbered]:
        raise StoreUnavailableError(self._reason)

    async def begin(self, lease: FetchLease, now: float) -> float:
        return 0.0

    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        raise StoreUnavailableError(self._reason)

    async def end(self, lease: FetchLease) -> None:
        lease.has_lock = False

    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        raise StoreUnavailableError(self._reason)

    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        raise StoreUnavailableError(self._reason)

    def last(self) -> int:
        return 0

    def follow(self, number: int) -> Sequence[Purge]:
        return ()

    def horizon(self) -> int:
        return 0

    def trusted_until(self) -> float:
        return inf
