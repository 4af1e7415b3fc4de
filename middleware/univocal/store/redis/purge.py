"""Purges in Redis: each is noted, so that nothing fetched before is stored after, then done in steps.

Other nodes hear of a purge by the keys that `note.lua` writes and deletes: Redis tells every client that
tracks such keys (`tracking.py`), and `attachment.py` has each node's memory remove what the purge means. A
node that has lost its connection empties its memory.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from univocal.store.codec import variant
from univocal.store.purge_selectors import (
    Everything,
    Keys,
    Pattern,
    Prefix,
    Selector,
    Tags,
    Variants,
    located,
    matches,
    url_of,
)
from univocal.store.redis.scripts import COUNT, DROP, NOTE, PURGE_KEYS, PURGE_VARIANTS

if TYPE_CHECKING:
    from univocal.store.redis.commands import Link

__all__ = ["count", "purge"]

_Walked: TypeAlias = Prefix | Tags | Pattern | Everything
"""The selectors whose responses a walk over all keys finds."""

# How many keys one script works on, which nothing else in Redis runs beside; and one step of a walk looks at.
_BATCH: Final = 100
_STEP: Final = 1_000


async def purge(link: Link, selector: Selector, now: float, spared: tuple[bytes, str] | None = None) -> int:
    """Remove what is selected, or mark it stale; returns the number of responses that were meant.

    The lease of the `spared` key and token may still commit. Raises UnavailableError.
    """
    names = link.names
    lock, token = (names.lock(spared[0]), spared[1]) if spared else (names.root + b"l", "")
    soft = repr(float(now)).encode() if selector.soft else b""
    count = 0
    if isinstance(selector, Keys):
        for keys in _batches(selector.names):
            count += await link.run(PURGE_KEYS, [lock, *map(names.entry, keys)], [token, soft])
        return count
    if isinstance(selector, Variants):
        until = repr(float(selector.until)).encode()
        for key in {key for key, _ in selector.names}:
            meant = [variant(vary) for other, vary in selector.names if other == key]
            count += await link.run(PURGE_VARIANTS, [names.entry(key)], [soft, until, *meant])
        return count
    origin, meant = b"", list[bytes]()
    if isinstance(selector, Tags):
        origin, meant = selector.origin, sorted(selector.names)
    # Which of the leases a prefix or a pattern concerns is not asked: it ends them all.
    noted: list[bytes | int | str] = [secrets.token_hex(8), token, int(not meant), origin, *meant]
    await link.run(NOTE, [names.log, lock, *names.notices(selector)], noted)
    async for candidates in _candidates(link, selector):
        for entries in _batches(candidates):
            count += await link.run(DROP, entries, [soft, *meant])
    return count


async def count(link: Link, selector: Selector) -> int:
    """The number of responses that `purge` would mean. Raises UnavailableError.

    While Redis changes the size of its table, a walk may meet an entry twice, and counts it twice.
    """
    names, total = link.names, 0
    match selector:
        case Keys(keys):
            for some in _batches(keys):
                total += await link.run(COUNT, [names.entry(key) for key in some], [])
        case Variants(named):
            total = await count(link, Keys(frozenset(key for key, _ in named)))
        case Tags(tags, _, origin):
            before = list[bytes]()  # what has one of these was counted with it
            for tag in sorted(tags):
                only = Tags(frozenset((tag,)), origin=origin)
                total += await _counted(link, only, [tag, *before])
                before.append(tag)
        case _:
            total = await _counted(link, selector, [])
    return total


async def _counted(link: Link, selector: _Walked, tags: list[bytes]) -> int:
    total = 0
    async for candidates in _candidates(link, selector):
        for entries in _batches(candidates):
            total += await link.run(COUNT, entries, [*tags])
    return total


async def _candidates(link: Link, selector: _Walked) -> AsyncIterator[list[bytes]]:
    """The names of the entries that may be meant, some at a time."""
    names = link.names
    match selector:
        case Tags(tags, _, origin):
            begins = origin and origin + b" "
            for tag in sorted(tags):
                async for keys in link.members(names.tags + tag, _STEP):
                    yield [names.entry(key) for key in keys if located(key).startswith(begins)]
        case Prefix(prefixes):
            for prefix in sorted(prefixes):
                only = Prefix(frozenset((prefix,)))
                async for entries in link.scan(names.pattern(prefix), _STEP):
                    yield [name for name in entries if matches(only, names.key(name), None)]
        case Pattern(_, occurs):
            async for entries in link.scan(names.pattern(b""), _STEP):
                yield [
                    name for name in entries if _is_url(names.key(name)) and occurs(url_of(names.key(name)))
                ]
        case Everything():
            async for entries in link.scan(names.pattern(b""), _STEP):
                yield entries


def _is_url(key: bytes) -> bool:
    # Names that others write under our prefix need not be keys.
    return key.count(b" ") == 3


def _batches(names: Iterable[bytes]) -> Iterator[list[bytes]]:
    walk = iter(names)
    while batch := list(islice(walk, _BATCH)):
        yield batch
