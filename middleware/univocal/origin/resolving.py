"""The addresses of a name, by the system's resolver."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

__all__ = ["Found", "Resolve", "resolved", "told"]

# An address as getaddrinfo tells it: family, kind, protocol, name, and the address with its port.
Found: TypeAlias = tuple[int, int, int, str, Any]

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[Found]]]

_STREAM: Final = socket.SOCK_STREAM


async def resolved(host: str, port: int) -> list[Found]:
    """The addresses of a host, in the order in which the system prefers them (RFC 6724); one of an address.

    Raises socket.gaierror, UnicodeError.
    """
    try:
        family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
    except ValueError:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=_STREAM)
        if not found:
            raise socket.gaierror(socket.EAI_NODATA, "the name has no address") from None
        return [*found]
    return [(family, _STREAM, socket.IPPROTO_TCP, "", (host, port))]


def told(found: Found) -> str:
    """An address and its port as they are written: `192.0.2.7:80`, `[2001:db8::7]:80`."""
    address, port = found[4][:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
