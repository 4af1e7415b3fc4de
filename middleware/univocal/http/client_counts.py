"""Requests and connections are counted by client, so that one client does not take what others need."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address


def parsed_address(text: str) -> IPv4Address | IPv6Address:
    """An address; that of an IPv4 client at a socket of both families is IPv4 (RFC 4291 §2.5.5.2).

    Raises ValueError.
    """
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=4096)
def client_name(address: str | None) -> str:
    """The name under which a client counts: its IPv4 address, or the /64 network that one site of IPv6 has.

    It is "" for a client without an address, as of a socket in the file system.
    """
    try:
        parsed = parsed_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    return str(IPv6Network((parsed, 64), strict=False) if isinstance(parsed, IPv6Address) else parsed)


class ClientCounts:
    """The numbers of requests, or of connections, that there are now, by the client's name.

    A client that has none takes no memory.
    """

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._of.total()

    def of(self, name: str) -> int:
        """The number that a client has."""
        return self._of[name]

    def add(self, name: str) -> None:
        """Count one more."""
        self._of[name] += 1

    def add_below(self, limit: int, name: str) -> bool:
        """Count one more, if the client has fewer than `limit`."""
        if self._of[name] >= limit:
            return False
        self._of[name] += 1
        return True

    def remove(self, name: str) -> None:
        """Count one less, of one that was counted."""
        self._of[name] -= 1
        if not self._of[name]:
            del self._of[name]
