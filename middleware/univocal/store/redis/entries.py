"""The entries of the store in Redis: one hash for each cache key, and the lock of who fetches it."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from univocal.cache.stored import Stored
from univocal.cache.vary import matches
from univocal.http.messages import Request
from univocal.store.codec import decode, encode, encode_softened, usable_until, variant
from univocal.store.leases import FetchLease, Numbered
from univocal.store.purge_selectors import Selector
from univocal.store.redis.commands import (
    BEGIN,
    COMMIT,
    DESCRIBE,
    FINISH,
    JOURNAL,
    LOOKUP,
    MOST_OCTETS,
    REMOVE,
    ROOT,
    TIDY,
    UNLINK,
    Commands,
    FullError,
    Word,
    entry_name,
    key_of,
    lock_name,
)
from univocal.store.roles import Entries, LeftOf, Refusals, StoreStats, StoreUnavailableError

# More bytes than these are not given unless they are asked for: whoever sends a selecting field of another
# value each time, for which nothing is stored, moves no more of a large entry than this.
_AT_ONCE: Final = 256 << 10
# Milliseconds after which a fetch lock ends by itself.
_LOCK: Final = 10_000
_FIRST_LINE: Final = re.compile(rb"([0-9]{1,16})( [^\n]{1,100}\n)")
# How many keys are removed at the same time.
_TOGETHER: Final = 100
# Names that one step looks at, seconds between two steps, and between two walks.
_STEP: Final = 200
_PACE: Final = 0.05
_IDLE: Final = 60.0
# Seconds between two looks at the purged names, and how many begin a walk: a node keeps some 40,000.
_LOOK: Final = 0.5
_PRESSED: Final = 5_000
# Milliseconds for which one node walks and others do not.
_WALK: Final = 60_000
_WALKER: Final = b"%bwalk:{journal}" % ROOT
_FIGURE: Final = re.compile(
    rb"^(used_memory|maxmemory|total_system_memory|evicted_keys):([0-9]{1,18})\r?$", re.MULTILINE
)


class RedisEntries(Entries):
    """The entries of all nodes that share a Redis. `most_variants` gives how many a key may have."""

    def __init__(self, commands: Commands, most_variants: Callable[[], int]) -> None:
        self._commands = commands
        self._most_variants = most_variants
        self._refusals = Refusals("Redis")

    async def lookup(self, key: bytes, now: float, request: Request | None = None) -> Sequence[Numbered]:
        _, numbered = await self._lookup(key, b"", now, request)
        return numbered

    async def lookup_or_begin(
        self, lease: FetchLease, now: float, request: Request
    ) -> tuple[Sequence[Numbered], float]:
        lock, numbered = await self._lookup(lease.key, lease.token, now, request)
        if numbered:
            return numbered, 0.0
        # An entry of which nothing can be read, or all has expired, is as good as none.
        return numbered, _waiting(lease, *lock) if lock[0] >= 0 else await self.begin(lease, now)

    async def _lookup(
        self, key: bytes, token: bytes, now: float, request: Request | None
    ) -> tuple[tuple[int, bytes], list[Numbered]]:
        place = [entry_name(key), lock_name(key)]
        wait, holder, *replies = await self._commands.run("lookup", LOOKUP, place, [_AT_ONCE, token, _LOCK])
        numbered, others = list[Numbered](), dict[bytes, Numbered]()
        for name, text, body in _triples(replies):
            one = _read(key, text, body)
            if one is not None and usable_until(one.stored) > now:
                if one.has_content:
                    numbered.append(one)
                else:
                    others[name] = one
        presented: dict[bytes, bytes | None] = {}
        selected = [
            name for name, one in others.items() if request is None or matches(one.stored, request, presented)
        ]
        if selected:
            _, _, *replies = await self._commands.run("lookup", LOOKUP, place, [0, b"", 0, *selected])
            for name, text, body in _triples(replies):
                one = _read(key, text, body)
                if one is not None and one.has_content:
                    others[name] = one
        numbered += others.values()
        return (wait, holder), sorted(numbered, key=lambda one: one.stored.response_time, reverse=True)

    async def begin(self, lease: FetchLease, now: float) -> float:  # noqa: ARG002
        lock = await self._commands.run("begin", BEGIN, [lock_name(lease.key)], [lease.token, _LOCK])
        return _waiting(lease, *lock)

    async def commit(self, lease: FetchLease, number: int, stored: Stored, now: float) -> bool:
        keep = int(1000 * (usable_until(stored) - now))
        text = _write(number, stored)
        if stored.search is not None or keep <= 0 or len(text) + len(stored.body) > MOST_OCTETS:
            return False
        token, lease.has_lock = lease.token if lease.has_lock else b"", False
        bounds: list[Word] = [keep, self._most_variants(), MOST_OCTETS, repr(now), _LOCK]
        try:
            outcome: int = await self._commands.run(
                "commit",
                COMMIT,
                [entry_name(stored.key), lock_name(stored.key)],
                [token, variant(stored.vary), text, stored.body, *bounds],
            )
        except FullError as error:
            self._refusals.refused(error)
            lease.has_lock = bool(token)
            return False
        self._refusals.stored()
        lease.has_lock = bool(token) and outcome == 0
        return outcome == 2

    async def end(self, lease: FetchLease) -> None:
        if lease.has_lock:
            lease.has_lock = False
            await self._commands.run("end", FINISH, [lock_name(lease.key)], [lease.token])

    async def remove(self, keys: Sequence[bytes]) -> Sequence[Numbered]:
        listed = await self._each("remove", REMOVE, map(entry_name, keys))
        read = (_read(key, text, None) for key, texts in zip(keys, listed, strict=True) for text in texts)
        return [one for one in read if one is not None]

    async def settle(self, selector: Selector, number: int, now: float, *, waits: bool) -> None:  # noqa: ARG002
        """End fetch locks from before the purge: who waits for them fetches what the purge leaves valid."""
        if selector.is_ordered and not selector.soft:
            with suppress(StoreUnavailableError):  # a lock ends by itself
                await self._each("settle", UNLINK, map(lock_name, selector.keys() or ()))

    def counts(self, selector: Selector) -> bool:
        return selector.keys() is not None

    async def _each(self, name: str, script: str, places: Iterable[bytes]) -> list[Any]:
        """The results of a script for each of some names, some at the same time."""
        listed, results = list(places), list[Any]()
        for at in range(0, len(listed), _TOGETHER):
            some = listed[at : at + _TOGETHER]
            results += await asyncio.gather(*(self._commands.run(name, script, [each], []) for each in some))
        return results

    async def holding(self) -> StoreStats:
        """The keys of all servers, but for the journal's: each is a URL with all its variants."""
        servers, figures = self._commands.servers, Counter[bytes]()
        for place in servers.places():
            figures[b"keys"] += await self._commands.ask(place, ["DBSIZE"])
            info = dict(_FIGURE.findall(await self._commands.ask(place, ["INFO"])))
            if not int(info.get(b"maxmemory", 0)):
                info[b"maxmemory"] = info.get(b"total_system_memory", 0)
            figures.update({name: int(number) for name, number in info.items()})
        journal = await self._commands.ask(servers.place(JOURNAL[0]), ["EXISTS", *JOURNAL, _WALKER])
        numbers = (figures[name] for name in (b"used_memory", b"maxmemory", b"evicted_keys"))
        return StoreStats(figures[b"keys"] - journal, *numbers)

    async def walk(self, left_of: LeftOf, followed: Callable[[], int], noted: Callable[[], int]) -> None:
        """Walk again and again, if a purge came since the last time. Ends when it is cancelled."""
        token, done = secrets.token_bytes(8), 0
        while True:
            number, most = followed(), noted() + _PRESSED
            with suppress(StoreUnavailableError):
                if number > done:
                    wait, holder = await self._commands.run("walk", BEGIN, [_WALKER], [token, _WALK])
                    if wait == 0 or holder == token:
                        await _walk(self._commands, left_of, number, lambda most=most: noted() >= most)  # type: ignore[misc]
                        done = number
            until = time.monotonic() + _IDLE
            while True:
                await asyncio.sleep(min(_LOOK, _IDLE))
                if time.monotonic() >= until or noted() >= most:
                    break

    async def close(self) -> None:
        await self._commands.aclose()


def _waiting(lease: FetchLease, wait: int, holder: bytes) -> float:
    """The seconds for which another has the lock; 0.0 if the lease has it."""
    lease.has_lock = wait == 0
    lease.holder = b"" if lease.has_lock else holder
    return wait / 1000


def _write(number: int, stored: Stored) -> bytes:
    """A description: the line that the scripts read, and what the codec says."""
    times = stored.response_time, stored.fresh_until, usable_until(stored)
    line = b"%d %d %.6f %.6f %.6f %b\n" % (number, len(stored.body), *times, b"w" if stored.whole else b"p")
    return line + encode(stored)


def _read(key: bytes, text: bytes, body: bytes | None) -> Numbered | None:
    """The response that is described; None if it cannot be read."""
    line = _FIRST_LINE.match(text)
    if line is None:
        return None
    stored = decode(key, text[line.end() :], body)
    return None if stored is None else Numbered(int(line[1]), stored, body is not None)


def _triples(replies: list[Any]) -> zip[tuple[bytes, bytes, bytes | None]]:
    return zip(replies[::3], replies[1::3], replies[2::3], strict=True)


async def _walk(commands: Commands, left_of: LeftOf, number: int, is_pressed: Callable[[], bool]) -> None:
    async for names in _steps(commands):
        for name in names:
            if not name.startswith(ROOT):
                await commands.run("walk", UNLINK, [name], [])
            elif (key := key_of(name)) is not None:
                await _tidy(commands, name, key, left_of, number)
        await asyncio.sleep(0 if is_pressed() else _PACE)


async def _steps(commands: Commands) -> AsyncIterator[Sequence[bytes]]:
    """The names of this program's keys on every server, some at a time."""
    for place in commands.servers.places():
        cursor: Word = 0
        while True:
            words: list[Word] = ["SCAN", cursor, "MATCH", b"univocal:*", "COUNT", _STEP]
            cursor, names = await commands.ask(place, words)
            yield [name for name in names if name not in JOURNAL]
            if int(cursor) == 0:
                break


async def _tidy(commands: Commands, name: bytes, key: bytes, left_of: LeftOf, number: int) -> None:
    """Remove what is no longer valid of one entry.

    A valid response, fresh or softened, gets the number, to outlive the horizon.
    """
    replies = await commands.run("walk", DESCRIBE, [name], [])
    words: list[Word] = []
    for place, text in zip(replies[::2], replies[1::2], strict=True):
        line, one = _FIRST_LINE.match(text), _read(key, text, None)
        left = None if one is None else left_of([one])[0]
        if line is None or one is None or left is None:
            words += [place, text, b""]
        elif one.number < number:
            described = text[line.end() :]
            described = described if left is one.stored else encode_softened(described, left)
            words += [place, text, b"%d%b%b" % (number, line[2], described)]
    if words:
        await commands.run("walk", TIDY, [name], words)
