"""The bounds of a listener on what one connection may send."""

from __future__ import annotations

from typing import Final

from univocal.http.framing import ReadLimits

READ_LIMITS: Final = ReadLimits()

# Seconds that one connection has of a turn of the event loop; then others have theirs.
A_TURN: Final = 0.002

# Bytes parsed at once. While a response is under way the next requests wait unparsed, so that what one
# connection has had parsed ahead is bounded by this and not by what the kernel had ready.
PIECE: Final = 16384


class Bounds:
    """The limits on requests, and what follows from them.

    A head of at most `longest_glance` bytes and `most_fields` fields is within all limits. More than
    `max_silence` bytes (0: any number) that take a head or a chunk's frame no further are too many.
    """

    __slots__ = ("limits", "longest_glance", "max_silence", "most_fields")

    def __init__(self, limits: ReadLimits = READ_LIMITS) -> None:
        self.change(limits)

    def change(self, limits: ReadLimits) -> None:
        """Have these limits from now on; a wait that has begun goes on as it is."""
        self.limits = limits
        bounded = limits.max_target and limits.max_field_bytes
        # Bytes that take a head, or a chunk's frame, no further.
        self.max_silence = limits.max_target + limits.max_field_bytes + PIECE if bounded else 0
        # A head of so few bytes and fields is within all bounds.
        self.longest_glance = min([PIECE, *filter(None, (limits.max_target, limits.max_field_bytes // 2))])
        self.most_fields = limits.max_fields or PIECE
