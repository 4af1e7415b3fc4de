"""The names of the shared tier's keys in Redis, and the meaning of a change of one of them to a node.

    univocal:FORMAT:marker              the namespace that all nodes work in: how every other name begins
    univocal:FORMAT:RUN_ID:TOKEN:e:KEY  a hash: the stored responses of a cache key
                                 l:KEY  a hash: the leases under which it is being fetched
                                 t:TAG  a sorted set: cache keys by when they expire
                                 log    a hash: the purges that the live leases must not outlive
                                 x:…    never there: written and deleted at once, for every node to hear of

What varies stands last, as the octets it is, so no two things share a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from univocal.store.codec import FORMAT
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Selector, Tags, Variants

__all__ = ["MARKER", "Banned", "Fruitless", "Moved", "Names"]

_COMMON: Final = b"univocal:%d:" % FORMAT
MARKER: Final = _COMMON + b"marker"
_GLOB: Final = re.compile(rb"([][*?\\^-])")


@dataclass(frozen=True, slots=True)
class Fruitless:
    """The fetch that others waited for ended with nothing that is stored for them."""

    key: bytes


@dataclass(frozen=True, slots=True)
class Banned:
    """A ban was set on the responses in whose URL this expression is found."""

    expression: str
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Moved:
    """The marker changed: the nodes may be in another namespace from now on."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names within one namespace: that of one run of one server, and a token drawn at random."""

    run_id: str
    token: str
    root: bytes = field(init=False, repr=False)  # what every name begins with
    tracked: tuple[bytes, ...] = field(init=False, repr=False)  # and those that every node hears of

    def __post_init__(self) -> None:
        root = b"%b%b:" % (self.begin(self.run_id), self.token.encode())
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "tracked", (root + b"e:", root + b"x:", MARKER))

    @staticmethod
    def begin(run_id: str) -> bytes:
        """The beginning that the namespaces of a run have in common."""
        return b"%b%b:" % (_COMMON, run_id.encode())

    @property
    def log(self) -> bytes:
        """The log of purges."""
        return self.root + b"log"

    @property
    def tags(self) -> bytes:
        """The beginning of a tag's name."""
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
        """The notices of a purge, soft or hard; that of keys is given with their entries."""
        how = b"s" if selector.soft else b"h"
        match selector:
            case Tags(names, _, origin):
                return [b"%bx:t%b%b\0%b" % (self.root, how, origin, name) for name in sorted(names)]
            case Prefix(names):
                return [b"%bx:p%b%b" % (self.root, how, name) for name in sorted(names)]
            case Pattern(expression):
                return [b"%bx:b%b%b" % (self.root, how, expression.encode())]
            case Everything():
                return [b"%bx:a%b" % (self.root, how)]
            case Keys() | Variants():
                return []

    def heard(self, name: bytes) -> Selector | Banned | Fruitless | Moved | None:
        """The meaning of a change of a tracked name; None for a name that is not ours."""
        if name == MARKER:
            return Moved()
        if not name.startswith(self.tracked):
            return None
        said = name[len(self.root) + 2 :]
        if name.startswith(self.tracked[0]):
            return Keys(frozenset((said,)))
        if said[:1] == b"w":
            return Fruitless(said[1:])
        soft, what = said[1:2] == b"s", said[2:]
        match said[:1]:
            case b"k":
                return Keys(frozenset((what,)), soft)
            case b"t":
                origin, _, tag = what.partition(b"\0")
                return Tags(frozenset((tag,)), soft, origin)
            case b"p":
                return Prefix(frozenset((what,)), soft)
            case b"b":
                return Banned(what.decode(errors="replace"), soft)
            case _:
                return Everything(soft)

    def pattern(self, prefix: bytes) -> bytes:
        """A glob that the entries under a prefix match, and few others: it begins past the digest."""
        blank = b"* " if prefix else b"*"
        return b"%be:%b%b*" % (self.root, blank, _GLOB.sub(rb"\\\1", prefix))
