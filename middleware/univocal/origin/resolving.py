"""The addresses of a name, by the system's resolver, and those of a service, by SRV records (RFC 2782)."""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.http.timer import Timer

# An address as getaddrinfo tells it: family, kind, protocol, name, and the address with its port.
AddressInfo: TypeAlias = tuple[int, int, int, str, Any]

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[AddressInfo]]]

SOONEST: Final = 1.0  # seconds between two questions, where an address has not been reached
MOST: Final = 64  # addresses of one name
_LONGEST: Final = 5.0  # seconds that the targets of a service are asked for: a thread that asks delays an end

_STREAM: Final = socket.SOCK_STREAM


def is_name(host: str) -> bool:
    """True of a host that is no address."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


is_service: Final = re.compile(r"_[^.]+\._(?:tcp|udp)\.").match
"""Matches the name of a service, which SRV records explain."""

SERVICES: Final = "a URL without srv+, or the library dnspython: pip install 'univocal[srv]'"
"""The choices that are left where the library is missing."""


def lacks_services() -> bool:
    """Tell whether the library that asks for SRV records is missing."""
    return find_spec("dns") is None


class Share(NamedTuple):
    """The share of a service's requests that an address gets; one of a higher rank is a backup."""

    weight: int
    rank: int


class Service(NamedTuple):
    """The addresses of a service, each with its port, and the seconds for which that holds."""

    shares: Mapping[str, Share]
    seconds: float


Find: TypeAlias = Callable[[str], Awaitable[Service]]


async def service_of(name: str) -> Service:
    """The servers that the SRV records of a name say, by the system's name servers. Raises OSError.

    A thread asks: a socket of the event loop could stay behind where the question is given up.
    """
    return await asyncio.to_thread(find_service, name)


def find_service(name: str) -> Service:
    """The same, while nothing else goes on. A record of weight 0 counts as 1.

    Raises OSError, if no record has an address.
    """
    from dns.exception import DNSException  # noqa: PLC0415 - an extra
    from dns.resolver import Resolver  # noqa: PLC0415

    resolver, until = Resolver(), time.monotonic() + _LONGEST
    try:
        answer = resolver.resolve(name, "SRV", search=True, lifetime=_LONGEST)
    except DNSException as error:
        raise OSError(f"{name}: {error}") from None
    records = sorted(answer, key=lambda each: (each.priority, each.target, each.port))[:MOST]
    ranks = sorted({each.priority for each in records})
    addresses = dict[Any, list[str]]()
    found = dict[str, Share]()
    for each in records:
        if each.target not in addresses:
            addresses[each.target], left = [], max(0.0, until - time.monotonic())
            with suppress(DNSException):
                addresses[each.target] = sorted(resolver.resolve_name(each.target, lifetime=left).addresses())
        for address in addresses[each.target]:
            share = Share(max(1, each.weight), ranks.index(each.priority))
            found.setdefault(written(address, each.port), share)
    if not found or answer.rrset is None:
        raise OSError(f"{name}: no record has an address")
    return Service(found, answer.rrset.ttl)


async def _addresses_of_service(name: str) -> list[AddressInfo]:
    """The addresses of a service, the best first: until a watch has its servers, a connection goes there."""
    found = (await service_of(name)).shares
    infos = list[AddressInfo]()
    for each in sorted(found, key=lambda each: (found[each].rank, -found[each].weight)):
        host, _, port = each.rpartition(":")
        infos += await resolved(host.strip("[]"), int(port))
    return infos


async def resolved(host: str, port: int) -> list[AddressInfo]:
    """The addresses of a host, in the order in which the system prefers them (RFC 6724); one of an address.

    Those of a service have ports of their own. Raises socket.gaierror, UnicodeError.
    """
    if is_service(host):
        return await _addresses_of_service(host)
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
    return written(address, port)


def written(address: str, port: int) -> str:
    """An address and its port: `192.0.2.7:80`, `[2001:db8::7]:80`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class NameWatch:
    """Resolves a name every `again` seconds, while no request waits for it; `changed` gets new addresses.

    The system's resolver tells no time to live; records of a service do, and are asked for again when it is
    over. `shares` has those of a service's addresses. A resolution that fails leaves those that were found
    before.
    """

    def __init__(
        self,
        host: str,
        port: int,
        changed: Callable[[tuple[str, ...]], None],
        resolve: Resolve = resolved,
        loop: asyncio.AbstractEventLoop | None = None,
        again: float = 30.0,
        find: Find = service_of,
    ) -> None:
        self._again = again
        self._find = find
        self.shares: Mapping[str, Share] = {}
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
        shares: Mapping[str, Share] = {}
        seconds = math.inf
        try:
            if is_service(self._host):
                shares, seconds = await self._find(self._host)
                addresses = [*shares][:MOST]
            else:
                answers = await self._resolve(self._host, self._port)
                addresses = list(dict.fromkeys(str(answer[4][0]) for answer in answers))[:MOST]
        except (OSError, UnicodeError):
            return
        finally:
            self._task = None
        if seconds < self._again:
            self._timer.set(max(SOONEST, seconds))
        # Name servers turn the order round each time: that is no news.
        if set(addresses) != set(self._addresses) or shares != self.shares:
            self._addresses, self.shares = tuple(addresses), shares
            self._changed(self._addresses)
