"""The two roles of a store behind memory: it keeps entries, and it numbers purges. Its reports and log lines.

**Validity by number.** A store has one journal of purges. A fetch notes the number of the last purge that
its node knows of. Its response is stored with a number up to which no purge means it. It is valid as long
as no later purge means it. Neither role decides this: `SharedTier` (`store/shared.py`) does, for every
store, by `Journal`. So no implementation compares numbers, and nothing is atomic across keys.

The rules for an implementation:

- `Entries` returns its entries, purged or not, each with its number. It may lose any entry at any time. It
  must not return an entry with a greater number than it was committed with, nor anything else than was
  committed.
- `Purges.publish` returns once the purge is in force for all who read the journal from then on. When it has
  returned, `last` and `follow` of the same node reach that number.
- A node's knowledge may lag. Then the numbers it notes are too small, and a response is thrown away too much.
- `trusted_until` bounds the lag: this node knows each purge that was confirmed elsewhere more than
  `bound` seconds before that time.
- `last` bounds it on one machine: it is the greatest number of a purge that a process of this program has
  confirmed, also where `follow` does not reach it yet. Until it does, the tier serves nothing that is stored.
- A purge that a response under way causes itself (it replaces older ones) has that lease's `token` as its
  `cause`. The tier spares the lease when it hears that purge, and commits with a number that is not less.

"""

# ruff: noqa: ARG002  a store need not use each argument

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from univocal.cache.stored import Stored
from univocal.http.messages import Request
from univocal.store.leases import FetchLease, Numbered
from univocal.store.purge_selectors import Purge, Selector

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")


class StoreUnavailableError(Exception):
    """The store did not answer, not in time, or with an error."""


class BeyondHorizonError(Exception):
    """Some of the purges that were asked for are not known any longer."""


class InUseError(Exception):
    """Another program uses the directory."""


class StoreStats(NamedTuple):
    """The responses that a store holds, the bytes that they take, and the most of these.

    `evictions` are the responses that the store has removed by itself to make room.
    """

    responses: int
    bytes: int
    max_bytes: int
    evictions: int = 0


class Watcher(Protocol):
    """The tier over a store, which hears whether that is there. All are called in the event loop."""

    def lost(self, reason: str) -> None:
        """The journal cannot be followed from now on: memory may hold what is purged elsewhere."""

    def returned(self) -> None:
        """The journal can be followed again; `last` is its end."""

    def heard(self) -> None:
        """The journal goes on: `last` has changed."""

    def adopt(self, entries: Entries, purges: Purges) -> None:
        """The store has these parts from now on; it could not be opened before."""


StoreReport: TypeAlias = Callable[[str, str, float], None]
"""Hears of each command to the store: its name, its result ("ok", "late", "error", "full"), its seconds."""


def unreported(command: str, result: str, seconds: float) -> None:
    """Hear nothing."""


async def reported(
    report: StoreReport, command: str, result: Awaitable[T], failures: tuple[type[Exception], ...]
) -> T:
    """The result of a command, which is reported. Raises StoreUnavailableError, also for these `failures`."""
    begun, word = time.perf_counter(), "ok"
    try:
        return await result
    except StoreUnavailableError:
        word = "late"
        raise
    except failures as error:
        word = "error"
        raise StoreUnavailableError(str(error)) from error
    finally:
        report(command, word, time.perf_counter() - begun)


LeftOf: TypeAlias = Callable[[Sequence[Numbered]], "Sequence[Stored | None]"]
"""Tells what purges have left of each response: itself, the same but stale, or None."""


class Settled(NamedTuple):
    """The purges up to `first` are forgotten. Those after `lost` have been carried out on all entries."""

    first: int
    lost: int


class Entries(ABC):
    """The stored responses of all nodes, by key. Every method but `close` may raise StoreUnavailableError.

    `glances`: some may be at hand, for `glance`.
    """

    glances: ClassVar[bool] = False

    @abstractmethod
    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Numbered]:
        """The responses of a key, newest first; expired ones may be left out.

        With a `request`, those that it does not select may come without content.
        """

    def glance(self, key: bytes, now: float, *, anew: bool = False) -> Sequence[Numbered] | None:
        """The responses of a key as `lookup` gives them; None where that takes a wait.

        Unless `anew`, what others have stored in the last seconds may be missing.
        """
        return None

    def take(self, lease: FetchLease) -> bool:
        """Take the fetch lock as `begin` does; False where that takes a wait, or another has it.

        False, too, if something may have been stored since the last glance.
        """
        return False

    @abstractmethod
    async def begin(self, lease: FetchLease, now: float) -> float:
        """Take the fetch lock of the lease's key: 0.0 and `has_lock` if it is free.

        Else the seconds for which another may still have it. It ends by itself.
        """

    async def lookup_or_begin(
        self, lease: FetchLease, now: float, request: Request
    ) -> tuple[Sequence[Numbered], float]:
        """Look up the lease's key and, if there is nothing, take the fetch lock.

        An implementation with a round trip for each command does both in one.
        """
        numbered, wait = await self.lookup(lease.key, now, request), 0.0
        if not numbered:
            wait = await self.begin(lease, now)
            if lease.has_lock:  # it may have been stored before the lock was free
                numbered = await self.lookup(lease.key, now, request)
        return numbered, wait

    @abstractmethod
    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        """Store a response with a number, in place of the one of the same key and selecting header fields.

        True if there was one. A response that is refused (too large, full) is reported, and False.
        The lease's fetch lock ends with it.
        """

    @abstractmethod
    async def end(self, lease: FetchLease) -> None:
        """Release the fetch lock, if the lease has it: others wait no longer."""

    @abstractmethod
    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        """Remove all responses of some keys, at once or as `settle` says.

        Returns them, with or without content.
        """

    async def settle(self, selector: Selector, number: int, now: float, *, waits: bool) -> None:  # noqa: B027
        """Carry out a purge that is in force with this number on the entries that it names.

        It is done when this returns, if that `waits` and the store can be written; else soon.
        """

    async def count(self, selector: Selector, after: int) -> int | None:
        """The number of responses with a number above `after` that a selector means; None: not known.

        It is asked for tags, prefixes and everything: keys are looked up, and patterns work lazily.
        """
        return None

    def counts(self, selector: Selector) -> bool:
        """True if `count` knows all that this selector means."""
        return True

    @property
    def evictions(self) -> int:
        """The number of responses that this process has removed to make room for others."""
        return 0

    async def holding(self) -> StoreStats | None:
        """The responses that the store holds by now; None if it does not say."""
        return None

    async def walk(  # noqa: B027
        self, left_of: LeftOf, followed: Callable[[], int], noted: Callable[[], int]
    ) -> None:
        """Clean up until it is cancelled, if the store does not by itself.

        `left_of` tells what purges have left of responses without content. The walk may give those the number
        `followed`, and softened ones their new freshness; it is 0 while the journal cannot be read. One node
        at a time walks. It hurries if `noted`, the count of purged names, grows fast: a forgotten name
        invalidates older entries.
        """

    @abstractmethod
    async def close(self) -> None:
        """Write what is under way, and let go."""


class Purges(ABC):
    """The journal of a store: all nodes' purges, in one order.

    Within `bound` seconds a purge that was confirmed on one node is in force on all others.
    """

    bound: float = 0.0

    @property
    def most(self) -> float:
        """The bytes that one purge may have."""
        return inf

    @abstractmethod
    async def start(self, watcher: Watcher) -> None:
        """Begin to follow; the watcher hears `returned` once that succeeds, at once or later."""

    @abstractmethod
    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        """Number a purge and put it in force; returns the number. Raises StoreUnavailableError."""

    @abstractmethod
    def last(self) -> int:
        """The number of the last purge in force here; asked at each lookup, so it is cheap."""

    @abstractmethod
    def follow(self, number: int) -> Sequence[Purge]:
        """The purges after a number, in order, up to the last that this node can read now.

        Raises BeyondHorizonError if some are gone.
        """

    async def reach(self, number: int, seconds: float) -> None:  # noqa: B027
        """Wait so long at most until `follow` reaches a number that `last` gave."""

    @abstractmethod
    def horizon(self) -> int:
        """The number from which on `follow` has every purge."""

    def settled(self) -> Settled | None:
        """The purges that need not be known any longer; None for a journal whose names are all kept."""
        return None

    @abstractmethod
    def trusted_until(self) -> float:
        """Until then (seconds since the epoch) this node knows what it has to; asked at each lookup."""

    @abstractmethod
    async def close(self) -> None:
        """Follow no longer."""


# Seconds without a refusal after which a store takes responses again: one that is nearly full takes small
# ones between refusals.
STEADY: Final = 10.0
# Seconds between two lines of responses that came too fast.
EVERY: Final = 60.0


class Refusals:
    """Says once that a store refuses responses, with the reason, and once that it takes them again.

    `name` is the store's; `clock` gives seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name: Final = name
        self._clock: Final = clock
        self._since: float | None = None
        self._last = 0.0

    @property
    def lasts(self) -> bool:
        """True from the first refusal until the store takes responses again."""
        return self._since is not None

    def refused(self, reason: object) -> None:
        """Count a response that the store refused."""
        self._last = self._clock()
        if self._since is None:
            self._since = self._last
            logger.warning("%s cannot be written (%s): nothing more is stored there", self.name, reason)

    def stored(self) -> None:
        """Count a response that the store took."""
        if self._since is None or self._clock() - self._last < STEADY:
            return
        seconds, self._since = self._clock() - self._since, None
        logger.warning("%s can be written again, after %.1f seconds", self.name, seconds)


class Overflow:
    """Says that responses come faster than a store can write them, then every `EVERY` seconds how many came.

    `name` is the store's; `clock` gives seconds.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name: Final = name
        self._clock: Final = clock
        self._count = 0
        self._since: float | None = None  # the last line; None when nothing has been lost since

    def dropped(self) -> None:
        """Count a response that is not written."""
        self._count += 1
        if self._since is None:
            self._since = self._clock()
            logger.warning(
                "%s: responses come faster than they can be written: some are not stored there", self.name
            )
        self.tell()

    def tell(self) -> None:
        """Say how many there were since the last line, if it is time for another."""
        if self._since is None or self._clock() - self._since < EVERY:
            return
        if not self._count:
            self._since = None
            return
        now = self._clock()
        logger.warning(
            "%s: in %.0f seconds %d responses came too fast to be written: they are not stored there",
            self.name,
            now - self._since,
            self._count,
        )
        self._count, self._since = 0, now


AGAIN: Final = 5.0  # seconds between two attempts to open a store


class Absent(Entries, Purges):
    """Both parts of a store that cannot be opened yet, for a `reason`: the disk has no room for it.

    `opened` opens it, or raises OSError or InUseError.
    """

    def __init__(self, reason: str, opened: Callable[[], tuple[Entries, Purges]]) -> None:
        self._reason, self._opened = reason, opened
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
            except Exception:  # the next attempt may go well
                logger.exception("internal error while a store is opened")
                continue
            watcher.adopt(entries, purges)
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
