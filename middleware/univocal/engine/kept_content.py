"""The content of a response that is kept to be stored, and the room for it in memory."""

from __future__ import annotations

import sys
from typing import Final

from univocal.http.subclassing import mypyc_attr
from univocal.store.tiers import TierLease, Tiers

__all__ = ["KeptContent"]

# The bytes that a chunk takes besides its own: content in crumbs takes more than its length.
_OBJECT: Final = sys.getsizeof(b"") + 8


@mypyc_attr(acyclic=True)
class KeptContent:
    """Chunks of content, for each of which a lease reserves room, and the room for those still to come.

    `whole` is all of the content once it is complete. `has_room` is true once the lease has reserved any.
    """

    __slots__ = ("_ahead", "_tiers", "chunks", "has_room", "lease", "whole")

    def __init__(self, tiers: Tiers, lease: TierLease | None) -> None:
        self._tiers = tiers
        self.lease = lease  # None: nothing can be kept yet
        self.chunks: list[bytes] = []
        self._ahead = 0  # bytes reserved for content that is still to come
        self.has_room = False
        self.whole: bytes | None = None

    @property
    def cost(self) -> int:
        """The bytes of memory that the chunks take."""
        return sum(map(len, self.chunks)) + _OBJECT * len(self.chunks)

    def set_aside(self, length: int) -> bool:
        """Reserve room for content of this length, which a head announces; False if there is none.

        It is the room for one chunk: each further one needs a little more for its object.
        """
        room = length + _OBJECT
        assert self.lease is not None
        if not self._tiers.reserve(self.lease, room):
            return False
        self._ahead = room
        self.has_room = True
        return True

    def give_way(self) -> None:
        """Give the room back that was reserved for content still to come."""
        self._reserve(-self._ahead)
        self._ahead = 0

    def add(self, chunk: bytes, *, unread: bool) -> bool:
        """Keep a chunk; False if there is no room for it.

        `unread` tells whether it comes far ahead of all readers, which matters to content without a length.
        """
        cost = len(chunk) + _OBJECT
        announced = min(cost, self._ahead)
        self._ahead -= announced
        if announced != cost and not self._reserve(cost - announced, unread=not announced and unread):
            return False
        self.chunks.append(chunk)
        self.has_room = True
        return True

    def with_chunk(self, chunk: bytes) -> int:
        """The bytes of memory that the chunks would take with one more."""
        return self.cost + len(chunk) + _OBJECT

    def joined(self) -> bytes:
        """All chunks as one."""
        return self.chunks[0] if len(self.chunks) == 1 else b"".join(self.chunks)

    def forget(self) -> None:
        """Keep no chunk any longer. Their room stays reserved: readers may hold them."""
        self.chunks.clear()

    def discard(self) -> None:
        """Keep no chunk any longer, and give their room back: nobody reads them."""
        if self.chunks:
            self._reserve(-self.cost)
            self.chunks.clear()

    def _reserve(self, nbytes: int, *, unread: bool = False) -> bool:
        assert self.lease is not None
        return self._tiers.reserve(self.lease, nbytes, unread=unread)
