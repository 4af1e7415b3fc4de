"""What the shared tier's keys are called in Redis, and what a change of one of them means to a node.

    univocal:FORMAT:RUN_ID:e:KEY    a hash: the stored responses of a cache key
                           l:KEY    a hash: the leases under which it is being fetched
                           t:TAG    a sorted set: cache keys by when they expire
                           log      a hash: the purges that the live leases must not outlive
                           x:…      never there: written and deleted at once, so that every node hears of it

What varies stands last, as the octets it is, so no two things share a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from univocal.cache.codec import FORMAT
from univocal.cache.selectors import Everything, Keys, Pattern, Prefix, Selector, Tags

__all__ = ["Banned", "Fruitless", "Names"]

_GLOB: Final = re.compile(rb"([][*?\\^-])")


@dataclass(frozen=True, slots=True)
class Fruitless:
    """The fetch that others waited for ended with nothing that is stored for them."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Banned:
    """A ban was set on what this expression is found in."""

    expression: str


@dataclass(frozen=True, slots=True)
class Names:
    """The names within one namespace: that of one run of one server."""

    run_id: str
    root: bytes = field(init=False, repr=False)  # what every name begins with
    tracked: tuple[bytes, bytes] = field(init=False, repr=False)  # and those that every node hears of

    def __post_init__(self) -> None:
        root = b"univocal:%d:%b:" % (FORMAT, self.run_id.encode())
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "tracked", (root + b"e:", root + b"x:"))

    @property
    def log(self) -> bytes:
        """The log of purges."""
        return self.root + b"log"

    @property
    def tags(self) -> bytes:
        """What stands before a tag."""
        return self.root + b"t:"

    def entry(self, key: bytes) -> bytes:
        """The stored responses of a cache key."""
        return b"%be:%b" % (self.root, key)

    def lock(self, key: bytes) -> bytes:
        """The leases of a cache key."""
        return b"%bl:%b" % (self.root, key)

    def key(self, entry: bytes) -> bytes:
        """The cache key of an entry's name."""
        return entry[len(self.root) + 2 :]

    def fruitless(self, key: bytes) -> bytes:
        """The notice that a fetch ended with nothing."""
        return b"%bx:w%b" % (self.root, key)

    def notices(self, selector: Selector) -> list[bytes]:
        """The notices of a purge; that of keys is told by the entries themselves."""
        match selector:
            case Tags(names, _, origin):
                return [b"%bx:t%b\0%b" % (self.root, origin, name) for name in sorted(names)]
            case Prefix(names):
                return [b"%bx:p%b" % (self.root, name) for name in sorted(names)]
            case Pattern(expression):
                return [b"%bx:b%b" % (self.root, expression.encode())]
            case Everything():
                return [self.root + b"x:a"]
            case Keys():
                return []

    def heard(self, name: bytes) -> Selector | Banned | Fruitless | None:
        """What the change of a tracked name means; None for a name that is not ours."""
        if not name.startswith(self.tracked):
            return None
        said = name[len(self.root) + 2 :]
        if name.startswith(self.tracked[0]):
            return Keys(frozenset((said,)))
        match said[:1]:
            case b"t":
                origin, _, tag = said[1:].partition(b"\0")
                return Tags(frozenset((tag,)), origin=origin)
            case b"p":
                return Prefix(frozenset((said[1:],)))
            case b"b":
                return Banned(said[1:].decode(errors="replace"))
            case b"w":
                return Fruitless(said[1:])
            case _:
                return Everything()

    def pattern(self, prefix: bytes) -> bytes:
        """A glob that the entries under a prefix match, and few others: it begins past the digest."""
        blank = b"* " if prefix else b"*"
        return b"%be:%b%b*" % (self.root, blank, _GLOB.sub(rb"\\\1", prefix))
