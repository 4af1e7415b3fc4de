"""Clients are counted by household, so that one of them does not take what others need."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

__all__ = ["UnderWay", "household"]


@lru_cache(maxsize=4096)
def household(address: str | None) -> str:
    """The name under which a client counts: its IPv4 address, or the /64 network that one site of IPv6 has.

    It is "" for a client without an address, as of a socket in the file system.
    """
    try:
        parsed = ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or IPv6Network((parsed, 64), strict=False))
    return str(parsed)


class UnderWay:
    """The numbers of requests that are under way, by household."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of.total()

    def begin(self, name: str, limit: int) -> bool:
        """Count a request, if its household has fewer than `limit` under way."""
        if self._of[name] >= limit:
            return False
        self._of[name] += 1
        return True

    def end(self, name: str) -> None:
        """Take note that a request has ended that was counted."""
        self._of[name] -= 1
        if not self._of[name]:
            del self._of[name]
