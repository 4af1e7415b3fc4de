"""The places of origin servers: their URLs, the addresses of a name, and of a service by its SRV records.

URLs are http, https, unix and the path of a socket, or a service. The system's resolver finds addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Final, NamedTuple, TypeAlias

import idna

from univocal.http.grammar import DEFAULT_PORTS, a_labels, parse_authority
from univocal.http.timer import Timer

ORIGIN_URLS: Final = (
    'an http or https URL without user, query and fragment, such as "http://127.0.0.1:9000"; '
    "srv+http://_http._tcp.NAME of servers that SRV records name, without a port; "
    "or unix:///PATH of a socket, of at most 107 bytes"
)

# Scheme, authority and path; nothing that a request line could not hold (RFC 9112 §3).
_URL: Final = re.compile(r"(https?)://([^/?#@\s]+)((?:/[!\x22$->@-~]*)?)")

# A service by its SRV records (RFC 2782): the labels in front of the name that they belong to.
_SERVICE: Final = re.compile(r"srv\+(https?://)(_[A-Za-z0-9-]+\._(?:tcp|udp)\.)([^\[].*)")

# The path is taken letter by letter: it is a file's name, not a URL's path, and nothing of it is decoded.
_SOCKET: Final = re.compile(r"unix://(/[^?#\x00-\x20\x7F]*[^/?#\x00-\x20\x7F])")
_LIKE_IPV4: Final = re.compile(rb"[0-9]+(?:\.[0-9]+){3}")
_LONGEST: Final = 107  # bytes that a socket's address has room for (unix(7))


class OriginUrl(NamedTuple):
    """The parts of an origin server's URL; before the path of a socket stands http://localhost."""

    scheme: str  # http, https; or srv+ before it, where SRV records of the host name the servers
    host: bytes  # a name as A-labels, or an address without brackets
    port: int | None  # None: the scheme's own
    path: str  # as it was written; it stands before every target
    socket: str  # the path of a socket, "" for none

    @property
    def protocol(self) -> str:
        """The scheme of requests."""
        return self.scheme.removeprefix("srv+")

    @property
    def service(self) -> str:
        """The name whose SRV records name the servers, "" for none."""
        return "" if self.protocol == self.scheme else self.host.decode("ascii")

    @property
    def name(self) -> bytes:
        """The name that certificates are for: a service's is its domain (RFC 6125), whatever records say."""
        return self.host.split(b".", 2)[2] if self.service else self.host

    @property
    def authority(self) -> bytes:
        """The origin server's name in a Host field (RFC 9110 §7.2)."""
        host = b"[%b]" % self.host if b":" in self.host else self.name
        return host if self.port is None else b"%b:%d" % (host, self.port)


def origin_url(url: str) -> OriginUrl:
    """The parts of a URL that can be an origin server's. Raises ValueError, which says what is allowed."""
    socket, labels = unix_socket(url), ""
    if served := _SERVICE.fullmatch(url):
        url, labels = served[1] + served[3], served[2]
    written = _URL.fullmatch(url if socket is None else "http://localhost")
    if written is not None:
        with contextlib.suppress(ValueError):
            host, port = _host_and_port(written[2])
            if labels and (port is not None or _LIKE_IPV4.fullmatch(host)):
                raise ValueError(url)
            port = None if port == DEFAULT_PORTS[written[1].encode()] else port
            scheme = f"srv+{written[1]}" if labels else written[1]
            return OriginUrl(scheme, labels.encode() + host, port, written[3], socket or "")
    raise ValueError(ORIGIN_URLS)


def _host_and_port(written: str) -> tuple[bytes, int | None]:
    """The parts of an authority. Raises ValueError, which UnicodeError is, for an invalid host."""
    authority = a_labels(written)
    parsed = parse_authority(authority)
    if parsed is None:
        raise ValueError(written)
    host, port = parsed
    if host.startswith(b"xn--"):
        idna.decode(host)
    if host.startswith(b"["):
        return host[1:-1], port
    if _LIKE_IPV4.fullmatch(host):
        ipaddress.IPv4Address(host.decode())
    if authority.partition(b":")[0].endswith(b"."):
        host += b"."  # such a name is resolved as it is, without the system's search list
    return host, port


def unix_socket(url: str) -> str | None:
    """The path of the socket that `url` names; None for any other text.

    nginx writes a path for requests behind a colon: that is none here, and is refused.
    """
    match = _SOCKET.fullmatch(url)
    if match is None or len(match[1].encode()) > _LONGEST or ":/" in match[1]:
        return None
    return match[1]


# An address as getaddrinfo tells it: family, kind, protocol, name, and the address with its port.
AddressInfo: TypeAlias = tuple[int, int, int, str, Any]

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[AddressInfo]]]

SOONEST: Final = 1.0  # seconds between two questions, where an address has not been reached
MOST: Final = 64  # addresses of one name
_PATIENCE: Final = (
    5.0  # seconds that the targets of a service are asked for: a thread that asks delays an end
)

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


class ServiceAddresses(NamedTuple):
    """The addresses of a service, each with its port, and the seconds for which that holds."""

    shares: Mapping[str, Share]
    seconds: float


Find: TypeAlias = Callable[[str], Awaitable[ServiceAddresses]]


async def service_of(name: str) -> ServiceAddresses:
    """The servers that the SRV records of a name say, by the system's name servers. Raises OSError.

    A thread asks: a socket of the event loop could stay behind where the question is given up.
    """
    return await asyncio.to_thread(find_service, name)


def find_service(name: str) -> ServiceAddresses:
    """The same, while nothing else goes on. A record of weight 0 counts as 1.

    Raises OSError, if no record has an address.
    """
    from dns.exception import DNSException  # noqa: PLC0415 - an extra
    from dns.resolver import Resolver  # noqa: PLC0415

    resolver, until = Resolver(), time.monotonic() + _PATIENCE
    try:
        answer = resolver.resolve(name, "SRV", search=True, lifetime=_PATIENCE)
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
    return ServiceAddresses(found, answer.rrset.ttl)


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
