"""Reading what all nodes store under a key: much content only if it is of use to who asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from univocal.cache.codec import decode, usable_until
from univocal.cache.scripts import LOOKUP
from univocal.cache.stored import Stored
from univocal.cache.vary import matches
from univocal.messages import Fields

if TYPE_CHECKING:
    from univocal.cache.link import Link

__all__ = ["Reading", "read"]

# More octets than these are not given unless they are asked for: whoever sends a selecting field of another
# value each time, for which nothing is stored, moves no more of a large entry than this.
_AT_ONCE: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Reading:
    """What is of use: whole responses, others without their content, and the token of the last commit."""

    whole: list[Stored]
    others: list[Stored]
    seen: bytes

    @property
    def all(self) -> list[Stored]:
        """All of it, newest first."""
        return sorted((*self.whole, *self.others), key=lambda one: one.response_time, reverse=True)


async def read(link: Link, key: bytes, now: float, fields: Fields | None) -> Reading:
    """What is stored under a key; with `fields`, the content of those responses that they select at least.

    Raises UnavailableError.
    """
    entry = [link.names.entry(key)]
    seen, *found = await link.run(LOOKUP, entry, [_AT_ONCE])
    whole, others = list[Stored](), dict[bytes, Stored]()
    for variant, described, body in _triples(found):
        one = decode(key, described, body)
        if one is not None and usable_until(one) > now:
            if body is None:
                others[variant] = one
            else:
                whole.append(one)
    asked = [variant for variant, one in others.items() if fields is None or matches(one, fields)]
    if asked:
        _, *found = await link.run(LOOKUP, entry, [0, *asked])
        for _, described, body in _triples(found):
            one = decode(key, described, body or b"")
            if one is not None:
                whole.append(one)
    return Reading(whole, [one for variant, one in others.items() if variant not in asked], seen)


def _triples(found: list[bytes | None]) -> zip[tuple[bytes, bytes, bytes | None]]:
    return zip(found[::3], found[1::3], found[2::3], strict=True)  # type: ignore[arg-type]
