"""The addresses of a name, by the system's resolver: once, and again while a name is watched."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from univocal.http.timer import Timer

# An address as getaddrinfo tells it: family, kind, protocol, name, and the address with its port.
AddressInfo: TypeAlias = tuple[int, int, int, str, Any]

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[AddressInfo]]]

SOONEST: Final = 1.0  # seconds between two questions, where an address has not been reached
MOST: Final = 64  # addresses of one name

_STREAM: Final = socket.SOCK_STREAM


def is_name(host: str) -> bool:
    """True of a host that is no address."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


async def resolved(host: str, port: int) -> list[AddressInfo]:
    """The addresses of a host, in the order in which the system prefers them (RFC 6724); one of an address.

    Raises socket.gaierror, UnicodeError.
    """
    if is_name(host):
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=_STREAM)
        if not addresses:
            raise socket.gaierror(socket.EAI_NODATA, "the name has no address")
        return [*addresses]
    family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
    return [(family, _STREAM, socket.IPPROTO_TCP, "", (host, port))]


def address_text(address_info: AddressInfo) -> str:
    """An address and its port as they are written: `192.0.2.7:80`, `[2001:db8::7]:80`."""
    address, port = address_info[4][:2]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class NameWatch:
    """Resolves a name every `again` seconds, while no request waits for it; `changed` gets new addresses.

    The system's resolver tells no time to live. A resolution that fails leaves those that were found before.
    """

    __slots__ = (
        "_addresses",
        "_again",
        "_begun",
        "_changed",
        "_closed",
        "_host",
        "_loop",
        "_port",
        "_resolve",
        "_task",
        "_timer",
    )

    def __init__(
        self,
        host: str,
        port: int,
        changed: Callable[[tuple[str, ...]], None],
        resolve: Resolve = resolved,
        loop: asyncio.AbstractEventLoop | None = None,
        again: float = 30.0,
    ) -> None:
        self._again = again
        self._host, self._port = host, port
        self._changed = changed
        self._resolve = resolve
        self._addresses: tuple[str, ...] = ()
        self._begun = 0.0  # when the last resolution did
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._loop = loop or asyncio.get_running_loop()
        self._timer = Timer(self._loop, self.begin)

    def begin(self) -> None:
        """Resolve the name now, unless that is under way."""
        self._timer.set(self._again)
        if self._task is None:
            self._begun = self._loop.time()
            self._task = asyncio.get_running_loop().create_task(self._ask())

    def hurry(self) -> None:
        """Resolve it soon: an address that it has does not answer."""
        if self._task is None and not self._closed:
            self._timer.set(max(0.0, self._begun + SOONEST - self._loop.time()))

    def close(self) -> None:
        """Resolve it no more."""
        self._closed = True
        self._timer.close()
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        try:
            answers = await self._resolve(self._host, self._port)
        except (OSError, UnicodeError):
            return
        finally:
            self._task = None
        addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))[:MOST]
        # Name servers turn the order round each time: that is no news.
        if set(addresses) != set(self._addresses):
            self._addresses = tuple(addresses)
            self._changed(self._addresses)
