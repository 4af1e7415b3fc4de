"""Scripts, each of which Redis runs in one step, in Lua 5.1 (Redis 7.0, Valkey 7.2 or later).

They are the files in `lua/`, read when this module is imported. The first line of each says what it may do:
those that purge may also write where memory is full and nothing is evicted.

Bytes of others come as KEYS and ARGV alone. A lease is a field of its key's lock: its token, with `deadline
id number`. Until the deadline (milliseconds) others wait for it if it is the lock's leader; `id` and `number`
say after which purge of the log it began. Without that log, or in another one, no lease holds; nor does it if
the entry is not the one that these scripts last left there, which the lock's field `entry` says, unless it
merely expired. So what Redis evicts, and what is deleted by hand, makes a commit fail, never succeed.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final, Literal, TypeAlias

__all__ = [
    "ATTACH",
    "BEGIN",
    "COMMIT",
    "COUNT",
    "DESCRIBED",
    "DROP",
    "LOOKUP",
    "MOST_OCTETS",
    "MOVED",
    "NOTE",
    "PURGE_KEYS",
    "PURGE_VARIANTS",
    "RELEASE",
    "VERIFY",
]

# The first word of the error that a script ends with if the marker names another namespace than its caller.
MOVED: Final = "NAMESPACE"

# Descriptions and contents of all responses of one key together: what one reading moves at most.
MOST_OCTETS: Final = 16 << 20

_Part: TypeAlias = Literal["namespace", "entries", "leases"]
_FILES: Final = files("univocal.store.redis") / "lua"


def _file(name: str) -> str:
    return (_FILES / f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: _Part) -> str:
    """A script behind the parts that it uses; its first line stays the first."""
    flags, rest = _file(name).split("\n", 1)
    return "\n".join((flags, *map(_file, parts), rest))


ATTACH: Final = _script("attach")
VERIFY: Final = _script("verify", "namespace")
DESCRIBED: Final = _script("described", "namespace")
LOOKUP: Final = _script("lookup", "namespace", "entries")
BEGIN: Final = _script("begin", "namespace", "leases")
COMMIT: Final = _script("commit", "namespace", "entries", "leases")
RELEASE: Final = _script("release", "namespace", "leases")
NOTE: Final = _script("note", "namespace", "leases")
PURGE_KEYS: Final = _script("purge_keys", "namespace", "entries", "leases")
PURGE_VARIANTS: Final = _script("purge_variants", "namespace", "entries")
DROP: Final = _script("drop", "namespace", "entries")
COUNT: Final = _script("count", "namespace", "entries")
