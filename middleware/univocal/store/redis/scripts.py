"""The names of the store's keys in Redis, and the scripts that read and write them.

The braces of a name decide its slot in a cluster:

univocal:3:e:{KEY}          a hash: the stored responses of a cache key
univocal:3:t:{KEY}          whose turn it is to fetch that key
univocal:3:head:{journal}   a hash: the last purge's number and time, the horizon, whose history it is
univocal:3:log:{journal}    a stream: the last purges
univocal:3:last:{journal}   a sorted set: what was purged, by the number of its last purge
univocal:3:how:{journal}    a hash: that last purge of each of these

Redis runs each script in one step, in Lua 5.1 (Redis 7.0, Valkey 7.2 or later).
They are the files in `lua/`, read when this module is imported. Bytes of others come as KEYS and ARGV alone.
Each script declares its keys, which are all in one slot of a cluster. Those that purge begin with a line of
flags that lets them write where memory is full and nothing is evicted.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final, Literal, TypeAlias

ROOT: Final = b"univocal:3:"
JOURNAL: Final = tuple(b"%b%b:{journal}" % (ROOT, name) for name in (b"head", b"log", b"last", b"how"))
# Descriptions and contents of all responses of one key together: what one reading moves at most.
MOST_OCTETS: Final = 16 << 20

_Part: TypeAlias = Literal["complete", "responses", "take"]
_FILES: Final = files("univocal.store.redis") / "lua"


def entry_name(key: bytes) -> bytes:
    """The stored responses of a cache key."""
    return b"%be:{%b}" % (ROOT, key)


def turn_name(key: bytes) -> bytes:
    """The key that says which process fetches a cache key."""
    return b"%bt:{%b}" % (ROOT, key)


def key_of(name: bytes) -> bytes | None:
    """The cache key of an entry's name; None for any other name."""
    begin = ROOT + b"e:{"
    return name[len(begin) : -1] if name.startswith(begin) and name.endswith(b"}") else None


def _file(name: str) -> str:
    return (_FILES / f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: _Part) -> str:
    """A script behind the parts that it uses; a line of flags stays the first."""
    text = _file(name)
    flags, rest = text.split("\n", 1) if text.startswith("#!") else ("#!lua", text)
    return "\n".join((flags, *map(_file, parts), rest))


LOOKUP: Final = _script("lookup", "responses", "take")
BEGIN: Final = _script("begin", "take")
COMMIT: Final = _script("commit", "responses")
FINISH: Final = _script("finish")
REMOVE: Final = _script("remove", "responses")
DESCRIBE: Final = _script("describe", "responses")
TIDY: Final = _script("tidy")
UNLINK: Final = _script("unlink")
ATTACH: Final = _script("attach", "complete")
PUBLISH: Final = _script("publish", "complete")
CATCH_UP: Final = _script("catch_up", "complete")
