"""The names of the store's keys in Redis. The braces decide the slot in a cluster.

univocal:3:e:{KEY}          a hash: the stored responses of a cache key
univocal:3:t:{KEY}          whose turn it is to fetch that key
univocal:3:head:{journal}   a hash: the last purge's number and time, the horizon, whose history it is
univocal:3:log:{journal}    a stream: the last purges
univocal:3:last:{journal}   a sorted set: what was purged, by the number of its last purge
univocal:3:how:{journal}    a hash: that last purge of each of these
"""

from __future__ import annotations

from typing import Final

ROOT: Final = b"univocal:3:"
JOURNAL: Final = tuple(b"%b%b:{journal}" % (ROOT, name) for name in (b"head", b"log", b"last", b"how"))


def entry(key: bytes) -> bytes:
    """The stored responses of a cache key."""
    return b"%be:{%b}" % (ROOT, key)


def turn(key: bytes) -> bytes:
    """The key that says which process fetches a cache key."""
    return b"%bt:{%b}" % (ROOT, key)


def key_of(name: bytes) -> bytes | None:
    """The cache key of an entry's name; None for any other name."""
    begin = ROOT + b"e:{"
    return name[len(begin) : -1] if name.startswith(begin) and name.endswith(b"}") else None
