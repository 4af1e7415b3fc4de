"""The journal in Redis: a stream that is followed by one connection, and what was purged before it.

`trusted_until` moves on with each reply that shows the journal's end; nothing else says that Redis is away. A
reply that lacks a number, a number that goes back, a server with another history: then the node reads what it
missed from the last purge of each name, or learns that its number is below the horizon.

Each worker of a program follows the journal by itself. The worker that publishes a purge raises a number,
which all of them compare with their own at each lookup. A worker that is behind serves nothing stored until
it has caught up. It does not wait for the stream to bring its own purge: the reply has the number.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from univocal.store.codec import decode_purge, encode_parts
from univocal.store.purge_selectors import Everything, Keys, Purge, Selector
from univocal.store.redis.commands import (
    ATTACH,
    AWAY,
    CATCH_UP,
    JOURNAL,
    PUBLISH,
    CommandPipe,
    Commands,
    RedisPlace,
    Word,
)
from univocal.store.redis.url import advice, misled
from univocal.store.roles import BeyondHorizonError, Purges, StoreUnavailableError, Watcher

logger: Final = logging.getLogger("univocal")

# Entries of the stream, and names whose last purge is kept; how many of either one reply has.
_MOST_ENTRIES: Final = 10_000
_MOST_NAMES: Final = 50_000
_AT_ONCE: Final = 1_000
# Purges that this node keeps for its tier, which reads them at its next lookup.
_KEPT: Final = 20_000
# Seconds before a lost connection is tried again: the first time, and at most.
_PAUSE: Final = (0.05, 1.0)
# Seconds for which a confirmed purge is published again should the server fail; and how many at most.
_AGAIN: Final = 60.0
_MOST_AGAIN: Final = 1_000
# Seconds that this clock and Redis's may differ without a word about it.
_SKEW: Final = 1.0
# Attempts to raise the number of all workers while another does so, and the seconds between two.
_ATTEMPTS: Final = 500
_SOON: Final = 0.001


class _Confirmed:
    """The purges of the last minute, in case the server that has them fails; `are_due`: it has."""

    __slots__ = ("_purges", "are_due")

    def __init__(self) -> None:
        self.are_due = False
        self._purges: deque[tuple[float, Selector]] = deque()

    def note(self, selector: Selector, now: float) -> None:
        """Record a purge; too many become one of everything."""
        while self._purges and self._purges[0][0] < now - _AGAIN:
            self._purges.popleft()
        if len(self._purges) >= _MOST_AGAIN:
            self._purges.clear()
            selector = Everything()
        self._purges.append((now, selector))

    def recent(self, now: float) -> list[Selector]:
        """The purges that were confirmed within the last minute."""
        return [selector for at, selector in self._purges if at >= now - _AGAIN]


class Siblings:
    """The workers of one program: a purge that one of them has confirmed is in force in all.

    Its number is in the file at `path`, which each maps, and reads at each lookup without a lock. A worker
    locks it to raise it, so that no smaller number replaces a greater one. The system takes the lock from a
    process that is killed. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        # Several processes are Unix's.
        from univocal.store.file.own_files import Cells  # noqa: PLC0415

        self._cells: Final = Cells(path, 1)
        self.cell: Sequence[int] = self._cells.integers

    async def raise_to(self, number: int) -> None:
        """Put purges up to a number in force. Raises StoreUnavailableError."""
        for _ in range(_ATTEMPTS):
            if self.cell[0] >= number or self._raise(number):
                return
            await asyncio.sleep(_SOON)
        raise StoreUnavailableError("another worker stands still while it publishes a purge")

    def _raise(self, number: int) -> bool:
        """Write the number unless there is a greater one; False while another process does so."""
        if not self._cells.locks.take(0):
            return False
        self._cells.integers[0] = max(self._cells.integers[0], number)
        self._cells.locks.give(0)
        return True

    def close(self) -> None:
        """Map it no longer; the cell keeps its last number."""
        self.cell = (self.cell[0],)
        self._cells.close()


class _Alone:
    """One process without siblings: it answers a purge only once it has followed to it."""

    cell: Sequence[int] = (0,)

    async def raise_to(self, number: int) -> None:
        pass

    def close(self) -> None:
        pass


class _Moment(NamedTuple):
    """A time by the system's clock and by one that is never set, and the last purge in force then."""

    clock: float
    steady: float
    number: int


_NEVER: Final = _Moment(float("-inf"), float("-inf"), 0)
# Purges nothing: the journal's end may have a number that is no purge's.
_NOTHING: Final = Keys(frozenset())


class _MissedError(Exception):
    """The stream does not go on where this node is: what comes between is read elsewhere."""


class RedisPurges(Purges):
    """The journal of all nodes that share a Redis.

    `heartbeat` is in seconds, as `clock` is. `siblings` are the program's other workers.
    """

    def __init__(
        self,
        commands: Commands,
        clock: Callable[[], float],
        heartbeat: float,
        siblings: Siblings | None = None,
    ) -> None:
        self._commands, self._clock, self._heartbeat = commands, clock, heartbeat
        self.bound = heartbeat + commands.timeout
        self._siblings: Siblings | _Alone = siblings or _Alone()
        self._watcher: Watcher  # from `start` on
        self._tasks: list[asyncio.Task[None]] = []
        self._position = self._horizon = 0
        # Of the server whose journal is known up to there, and followed.
        self._place: RedisPlace | None = None
        self._history = b""
        self._kept: deque[Purge] = deque()
        self._trusted_until = _NEVER
        self._is_there = False
        self._reason = ""
        self._moved = asyncio.Event()
        self._confirmed = _Confirmed()

    def last(self) -> int:
        number, position = self._siblings.cell[0], self._position
        return position if position > number else number  # noqa: FURB136  (each lookup calls this)

    def horizon(self) -> int:
        return self._horizon

    def trusted_until(self) -> float:
        # The system's clock may be set back; seconds that passed have passed.
        passed = monotonic() - self._trusted_until.steady
        until = self._trusted_until.clock
        return until if passed < 0.0 else min(until, self._clock() - passed)

    def follow(self, number: int) -> Sequence[Purge]:
        if number < self._horizon:
            raise BeyondHorizonError
        found = list[Purge]()
        for purge in reversed(self._kept):
            if purge.number <= number:
                break
            found.append(purge)
        if self._position > (found[0].number if found else number):
            found.insert(0, Purge(self._position, 0.0, _NOTHING))
        return found[::-1]

    async def reach(self, number: int, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._position < number:
                    await self._moved.wait()

    async def start(self, watcher: Watcher) -> None:
        self._watcher = watcher
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._watch())]

    async def close(self) -> None:
        left = self._tasks
        while left:  # the `wait_for` of Python 3.11, which redis-py calls, may lose a cancellation
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_PAUSE[1])
            left = [task for task in left if not task.done()]
        self._is_there = False
        self._trusted_until = _NEVER
        self._siblings.close()

    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        history, known = self._history, self.last()
        number = await self._publish(selector, now, cause)
        # The server that took it may be lost with it. Or it came back with an older journal: nodes that know
        # later numbers do not hear of this one.
        if self._history != history or number <= known:
            raise StoreUnavailableError("the journal is another one")
        self._confirmed.note(selector, self._clock())
        if number == self._position + 1 and self._is_followed():
            self._keep(Purge(number, now, selector, cause))
            self._advance(number)
        await self.reach(number, self._commands.timeout)  # where others' purges come before it
        if self._position < number:
            raise StoreUnavailableError("the journal is not followed")
        return number

    def _is_followed(self) -> bool:
        """True while the server that takes this node's purges is the one whose journal it follows."""
        with suppress(RedisError):
            return self._commands.servers.place(JOURNAL[0]) == self._place
        return False

    async def _publish(self, selector: Selector, now: float, cause: bytes) -> int:
        everything = selector.means_all and not selector.soft
        written, named = encode_parts(selector, now, cause)
        words: list[Word] = [written, _MOST_ENTRIES, _MOST_NAMES, int(everything), self._history]
        if not everything:
            words += [word for pair in named for word in pair]
        number: int = await self._commands.run("publish", PUBLISH, JOURNAL, words)
        if not number:
            raise StoreUnavailableError("the journal is gone")
        # A response that replaces another purges that one's variants: this is no order.
        if selector.is_ordered:
            await self._siblings.raise_to(number)
        return number

    # Following

    async def _run(self) -> None:
        pause = _PAUSE[0]
        while True:
            began = self._clock()
            try:
                await self._session()
            except (*AWAY, StoreUnavailableError) as error:
                self._reason = f"{type(error).__name__}: {str(error) or 'no answer in time'}"
            except Exception as error:
                logger.exception("internal error while following the store's purges")
                self._reason = type(error).__name__
            if not self._is_there:
                self._watcher.lost(self._reason)
            # A connection that held for a while is tried again at once, one that fails ever more rarely.
            pause = _PAUSE[0] if self._clock() - began > _PAUSE[1] else min(2 * pause, _PAUSE[1])
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """Tell the watcher once this node has not seen the journal's end for too long."""
        while True:
            left = self.trusted_until() - self._clock() if self._is_there else self.bound
            await asyncio.sleep(min(max(left, 0.01), self.bound))
            if self._is_there and self._clock() >= self.trusted_until():
                self._is_there = False
                self._watcher.lost(self._reason or "it does not answer")

    async def _session(self) -> None:
        """Follow until the connection is lost, or the journal is another one."""
        servers = self._commands.servers
        async with asyncio.timeout(4 * self._commands.timeout):
            await servers.refresh()
        place = servers.place(JOURNAL[0])
        pipe = CommandPipe(servers.connection(place))
        try:
            address = f"{place[0]}:{place[1]}"
            async with asyncio.timeout(4 * self._commands.timeout):
                await self._look_around(pipe)
            while True:
                try:
                    if self._place is None:
                        async with asyncio.timeout(4 * self._commands.timeout):
                            await self._attach(pipe, address)
                    self._place = place
                    await self._read(pipe)
                except _MissedError:
                    self._place = None
        finally:
            self._place = None
            await pipe.aclose()

    async def _look_around(self, pipe: CommandPipe) -> None:
        """Say what will hurt. Raises redis.RedisError for a server that another URL leads to."""
        info: bytes = await pipe.call("INFO")
        wrong = misled(info, self._commands.servers.address)
        if wrong:
            raise RedisError(wrong)
        for line in advice(info) if not self._history else ():
            logger.warning("%s", line)

    async def _attach(self, pipe: CommandPipe, address: str) -> None:
        """Know all of the journal, and publish again what its last server may have taken along."""
        since = self._now()
        # Its numbers go on after each that a worker of this program knows.
        told: list[Word] = [address, max(self._position, since.number)]
        number, horizon, history, seconds, micros = await _evaluate(pipe, ATTACH, JOURNAL, told)
        off = max(since.clock - seconds - micros / 1e6, seconds + micros / 1e6 - self._clock())
        if off > _SKEW and not self._history:
            logger.warning(
                "the clocks of this machine and of Redis differ by %.1f seconds: synchronize them", off
            )
        known, self._history = self._history, history
        if known and known != history:
            self._confirmed.are_due = True
            await self._commands.reset()
            if self._position < since.number:  # a purge of a sibling is perhaps lost with the last server
                horizon = number
        if not known or self._position < horizon:
            self._kept.clear()
            self._horizon = self._position = horizon
        await self._catch_up(pipe)
        if self._confirmed.are_due:
            await self._publish_again()
            self._confirmed.are_due = False
        self._confirm(since)

    async def _catch_up(self, pipe: CommandPipe) -> None:
        """Read the last purges of each name since the position. Raises _MissedError if some are lost."""
        is_all = False
        while not is_all:
            reply = await _evaluate(pipe, CATCH_UP, JOURNAL, [self._position, _AT_ONCE])
            if not reply:
                raise _MissedError
            number, *found = reply
            purges = [*zip(found[::2], found[1::2], strict=True)]
            is_all = len(purges) < _AT_ONCE
            if not is_all:
                number = purges[-1][0] - 1  # the rest of the last one may be in the next reply
                purges = [pair for pair in purges if pair[0] <= number]
            for at, some in groupby(purges, key=itemgetter(0)):
                self._keep(_joined([decode_purge(at, octets or b"") for _, octets in some]))
            self._advance(number)

    async def _publish_again(self) -> None:
        now = self._clock()
        for selector in self._confirmed.recent(now):
            await self._publish(selector, now, b"")

    async def _read(self, pipe: CommandPipe) -> None:
        """Wait for what comes next, for a heartbeat at most."""
        since, block = self._now(), int(1000 * self._heartbeat)
        words: list[Word] = ["COUNT", _AT_ONCE, "BLOCK", block, "STREAMS", JOURNAL[1], f"{self._position}-0"]
        async with asyncio.timeout(self._heartbeat + self._commands.timeout):
            reply = await pipe.call("XREAD", *words)
        if reply:
            ((_, entries),) = reply
            for name, fields in entries:
                number = int(name.partition(b"-")[0])
                if number <= self._position:  # this node published it meanwhile
                    continue
                if number != self._position + 1:
                    raise _MissedError
                self._keep(decode_purge(number, fields[1]))
                self._advance(number)
            if len(entries) < _AT_ONCE:
                self._confirm(since)
            return
        # A stream that is gone says nothing either.
        since, position = self._now(), self._position
        async with asyncio.timeout(self._commands.timeout):
            number = int(await pipe.call("HGET", JOURNAL[0], "number") or 0)
        if number < position:
            raise _MissedError
        if number <= self._position:
            self._confirm(since)
        else:
            await self._read_now(pipe, number)

    async def _read_now(self, pipe: CommandPipe, number: int) -> None:
        """The journal has moved on: then the stream tells how, or has lost it."""
        words: list[Word] = ["COUNT", 1, "STREAMS", JOURNAL[1], f"{self._position}-0"]
        async with asyncio.timeout(self._commands.timeout):
            reply = await pipe.call("XREAD", *words)
        if not reply and self._position < number:
            raise _MissedError

    def _keep(self, purge: Purge) -> None:
        self._kept.append(purge)
        if len(self._kept) > _KEPT:
            self._horizon = self._kept.popleft().number

    def _advance(self, number: int) -> None:
        self._position = max(self._position, number)
        if self._is_there:
            self._watcher.heard()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _now(self) -> _Moment:
        return _Moment(self._clock(), monotonic(), self._siblings.cell[0])

    def _confirm(self, since: _Moment) -> None:
        """Record the time before which every published purge is known.

        Raises StoreUnavailableError where a sibling's purge is not: then the journal is elsewhere.
        """
        if self._position < since.number:
            raise StoreUnavailableError("a purge that was confirmed is missing")
        self._trusted_until = _Moment(since.clock + self.bound, since.steady + self.bound, since.number)
        if not self._is_there and self._clock() < self.trusted_until():
            self._is_there, self._reason = True, ""
            self._watcher.returned()


def _joined(purges: list[Purge]) -> Purge:
    """One purge again of those of its names that nothing has purged since."""
    first, *others = purges
    joined = first.selector
    for other in others:
        joined = joined.joined(other.selector)
    return replace(first, selector=joined)


async def _evaluate(pipe: CommandPipe, script: str, keys: Sequence[bytes], args: Sequence[Word]) -> Any:
    """A script's result, without its being loaded before."""
    return await pipe.call("EVAL", script, len(keys), *keys, *args)
