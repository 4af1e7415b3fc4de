"""The sender of a request: a trusted proxy's forwarded fields are believed, and no other's.

Requests and connections are counted by client, so that one client does not take what others need.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from univocal.http.compiling import mypyc_attr
from univocal.http.errors import ConfigurationError
from univocal.http.grammar import TOKEN, unquoted
from univocal.http.intermediary import speaks_for_another
from univocal.http.messages import ENCODINGS, Fields, Received, values

logger: Final = logging.getLogger("univocal")

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")
NO_OWN_PROXIES: Final[Mapping[str, Networks]] = MappingProxyType({})  # every listener has the server's

# RFC 7239 §4; a value that should have been quoted, as `for=192.0.2.1:80`, is read all the same.
_FORWARDED_PAIR: Final = re.compile(
    rb"(" + TOKEN + rb")=([^\x00-\x20\",;\\]+|\"(?:[^\"\\]|\\.)*\")", re.DOTALL
)
_SEGMENT: Final = rb"[ \t]*(?:%b[ \t]*)?" % _FORWARDED_PAIR.pattern
_FORWARDED_ELEMENT: Final = re.compile(rb"%b(?:;%b)*" % (_SEGMENT, _SEGMENT), re.DOTALL)

# The most that is read of a chain, from its end: addresses (more proxies do not stand behind one another),
# commas of `Forwarded`, and bytes of one of its elements.
_MOST_HOPS: Final = 64
_MOST_COMMAS: Final = 256
_LONGEST_ELEMENT: Final = 1024

Family: TypeAlias = Literal["x-forwarded", "forwarded"]
"""The fields by which proxies tell for whom they ask: X-Forwarded-For, -Host and -Proto, or Forwarded."""

# The field of each family that names the client.
_NAMING: Final[dict[Family, bytes]] = {"x-forwarded": b"x-forwarded-for", "forwarded": b"forwarded"}

# An address and perhaps a port, obfuscated or not (RFC 7239 §6); an IPv6 address without port may stand bare.
_PORT: Final = rb"(?::[0-9A-Za-z._-]{1,64})?"
_NODE: Final = re.compile(rb"\"?(?:\[([0-9A-Fa-f:.]+)\]%b|([0-9.]+)%b|([0-9A-Fa-f:.]+))\"?" % (_PORT, _PORT))

_OTHER: Final[dict[Family, Family]] = {"x-forwarded": "forwarded", "forwarded": "x-forwarded"}

# At which of its requests the log names a peer, and how many peers it names.
_LOGGED_AT: Final = 2
_MOST_LOGGED: Final = 16


def parsed_address(text: str) -> IPv4Address | IPv6Address:
    """An address; that of an IPv4 client at a socket of both families is IPv4 (RFC 4291 §2.5.5.2).

    Raises ValueError.
    """
    address = ip_address(text)
    return getattr(address, "ipv4_mapped", None) or address


def networks(texts: Iterable[str]) -> Networks:
    """The networks written in `texts` (CIDR notation or single addresses). Raises ConfigurationError."""
    parsed = []
    for text in texts:
        try:
            parsed.append(_unmapped(ip_network(text)))
        except ValueError:
            raise ConfigurationError(
                "networks", "", text, "an address or a network, such as 10.0.0.0/8"
            ) from None
    return tuple(parsed)


def family_named(name: object) -> Family:
    """The family of forwarded fields called `name`. Raises ConfigurationError."""
    for known in _READERS:
        if name == known:
            return known
    raise ConfigurationError("CacheMiddleware", "forwarded", name, "x-forwarded, forwarded")


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """The network of the IPv4 addresses that a network maps; its members are compared as those."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    return (
        network if mapped is None or network.prefixlen < 96 else IPv4Network((mapped, network.prefixlen - 96))
    )


@lru_cache(maxsize=4096)
def within(address: str | None, allowed: Networks) -> bool:
    """Tell whether `address` (textual, without port) lies in one of the `allowed` networks."""
    if address is None or not allowed:
        return False
    try:
        parsed = parsed_address(address)
    except ValueError:
        return False  # a socket's path, a test client's name
    return any(parsed in network for network in allowed)


def trusted_for(received: Received, trusted: Networks, trusted_at: Mapping[str, Networks]) -> Networks:
    """The proxies that are trusted to have sent a request: its listener's own, else the server's.

    A PROXY header introduces a client, whatever its address, and no proxy.
    """
    return () if received.introduced else trusted_at.get(received.listener, trusted)


@mypyc_attr(acyclic=True)
class Peer:
    """The sender of a request, as far as it is believed; immutable by convention."""

    def __init__(
        self,
        hosts: list[bytes],
        scheme: bytes,
        client: str | None,
        chain: tuple[bytes, ...] = (),
        encodings: tuple[bytes, bytes] = (b"", b""),
        known: bool = True,
    ) -> None:
        self.hosts = hosts  # every value that names the authority: of more than one none is believed
        self.scheme = scheme
        self.client = client
        self.chain = chain  # the client and the trusted proxies after it, where one reported them
        self.encodings = encodings  # charsets it declares, of path and query
        self.known = (
            known  # False: somebody else may have asked, and there is no right by the client's address
        )


class _Members(NamedTuple):
    """The members of a family's fields, in order."""

    addresses: list[bytes]
    hosts: list[bytes]
    schemes: list[bytes]


def believe(
    received: Received,
    fields: Fields,
    trusted: Networks,
    family: Family = "x-forwarded",
    trusted_at: Mapping[str, Networks] = NO_OWN_PROXIES,
) -> Peer:
    """The request's authority, scheme and client; of a trusted peer's fields, those of `family` count.

    `trusted` and `trusted_at` are as in `trusted_for`.

    The last value of each field counts, since the trusted peer wrote it. Of the chain of addresses, the last
    that is not itself trusted counts, and none before it: strangers may have written those. Of `Forwarded`
    (RFC 7239) the last element has host and scheme. Its addresses are those that end the list without a gap.
    """
    # RFC 9112 §3.3: HTTP/1.0 may go without Host, and means the server by the address that it asked.
    hosts = [value for name, value in fields if name == b"host"]
    if not hosts and received.server:
        hosts = [received.server]
    names = {name for name, _ in fields}
    encodings = (b"", b"") if names.isdisjoint(ENCODINGS) else _declared(fields)
    if not speaks_for_another(names):
        return Peer(hosts, received.scheme, received.client, (), encodings)
    trusted = trusted_for(received, trusted, trusted_at)
    if not within(received.client, trusted):
        return Peer(hosts, received.scheme, received.client, (), encodings, known=False)
    forwarded = _READERS[family](fields)
    client, chain = _last_stranger(forwarded.addresses, received.client, trusted)
    return Peer(
        hosts=forwarded.hosts[-1:] or hosts,
        scheme=_scheme(forwarded.schemes, received.scheme),
        client=client,
        chain=chain,
        encodings=encodings,
        known=bool(chain) and client is not None and not _contradicted(client, fields, trusted, family),
    )


def _contradicted(client: str, fields: Fields, trusted: Networks, family: Family) -> bool:
    """Tell whether another field names another client.

    The proxy in front may be one that writes that field alone, and the one that counts is from a stranger.
    """
    other = _OTHER[family]
    if any(name == _NAMING[other] for name, _ in fields):
        named, _ = _last_stranger(_READERS[other](fields).addresses, None, trusted)
        if named != client:
            return True
    real = values(fields, b"x-real-ip")
    return bool(real) and {_address(value) for value in real} != {client}


def _declared(fields: Fields) -> tuple[bytes, bytes]:
    """The fields of draft-montenegro-httpbis-uri-encoding; one that is repeated does not count."""
    path, query = (values(fields, name) for name in ENCODINGS)
    return path[0] if len(path) == 1 else b"", query[0] if len(query) == 1 else b""


def _scheme(names: list[bytes], otherwise: bytes) -> bytes:
    scheme = names[-1].lower() if names else otherwise
    return scheme if scheme in {b"http", b"https"} else otherwise


def _last_stranger(
    members: Sequence[bytes], peer: str | None, trusted: Networks
) -> tuple[str | None, tuple[bytes, ...]]:
    """The last address that is not trusted, else the first, else the peer's; and the addresses from it on."""
    client, chain = peer, list[bytes]()
    for member in reversed(members):
        client = _address(member)
        chain.append(client.encode() if client is not None else b"unknown")  # RFC 7239 §6.2
        if not within(client, trusted):  # a member that is no address is not known, so not trusted
            break
    return client, tuple(reversed(chain))


def _address(member: bytes) -> str | None:
    """The address in its one spelling, without port; None for what is none, or of another machine's zone."""
    node = _NODE.fullmatch(member.strip(b" \t"))
    if node is None:
        return None
    try:
        return str(parsed_address(next(filter(None, node.groups())).decode("ascii")))
    except ValueError:
        return None


def _members(fields: Fields, name: bytes) -> list[bytes]:
    """The members of a list that end it."""
    nearest = b",".join(values(fields, name)).rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:]
    return [member for part in nearest if (member := part.strip(b" \t"))]


def _x_forwarded(fields: Fields) -> _Members:
    return _Members(
        addresses=_members(fields, b"x-forwarded-for"),
        hosts=_members(fields, b"x-forwarded-host"),
        schemes=_members(fields, b"x-forwarded-proto"),
    )


def _forwarded(fields: Fields) -> _Members:
    """The addresses of the elements that end the list and have one; host and scheme of the last element."""
    chain: list[bytes] = []
    last: dict[bytes, bytes] | None = None
    for element in _elements(b",".join(values(fields, b"forwarded"))):
        if last is None:
            last = element
        if b"for" not in element or len(chain) == _MOST_HOPS:
            break
        chain.append(element[b"for"])
    host, proto = ([last[name]] if last and name in last else [] for name in (b"host", b"proto"))
    return _Members(chain[::-1], host, proto)


_READERS: Final[dict[Family, Callable[[Fields], _Members]]] = {
    "x-forwarded": _x_forwarded,
    "forwarded": _forwarded,
}


def _elements(value: bytes) -> Iterator[dict[bytes, bytes]]:
    """The elements of `Forwarded`, the last first, down to the first malformed one (RFC 7239 §4).

    They are read from the end. A quoted string that a stranger leaves open does not reach into the trusted
    proxy's elements. Commas inside the proxy's own quoted strings do not split them.
    """
    end = comma = len(value)
    for _ in range(_MOST_COMMAS):
        if end <= 0 or comma < 0:
            return
        comma = value.rfind(b",", 0, comma)
        if end - comma > _LONGEST_ELEMENT:
            return
        if (element := _FORWARDED_ELEMENT.fullmatch(value, comma + 1, end)) is not None:
            pairs = _FORWARDED_PAIR.findall(element[0])
            if pairs:
                yield {name.lower(): _unquoted(said) for name, said in pairs}
            end = comma


def _unquoted(value: bytes) -> bytes:
    return unquoted(value) if value[:1] == b'"' else value


# Where proxies in front are: this machine and the networks that are not routed on the Internet.
_NEAR: Final = networks(
    (
        *LOOPBACK,
        *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
        *("fc00::/7", "fe80::/10"),
    )
)


class LikelyProxies:
    """Peers near by that send forwarding fields without being configured as trusted proxies.

    The log names each at its second request, and once; 16 at most, since a network may be large.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def note(
        self, client: str | None, fields: Callable[[], Fields], trusted: Networks, family: Family
    ) -> None:
        """Report a request whose peer, `client`, has sent fields that name no client."""
        if client is None or not within(client, _NEAR):
            return
        seen = self._seen.get(client, 0)
        if seen >= _LOGGED_AT or (seen == 0 and len(self._seen) >= _MOST_LOGGED):
            return
        setting = _advice(client, fields(), trusted, family)
        if setting:
            self._seen[client] = seen + 1
            if seen + 1 == _LOGGED_AT:
                logger.warning(
                    "univocal ignores the forwarded fields of %s: its clients have its address, https is not "
                    "seen, and only the token may purge. If it is your proxy, set %s "
                    "(under [server] or at its listener in univocal.toml, or of CacheMiddleware)",
                    client,
                    setting,
                )


def _advice(client: str, fields: Fields, trusted: Networks, family: Family) -> str:
    """The settings by which a peer's fields would be believed; empty where nothing would be gained."""
    addresses = {each: read(fields).addresses for each, read in _READERS.items()}
    sent: Family = family if addresses[family] or not any(addresses.values()) else _OTHER[family]
    settings = [] if sent == family else [f'forwarded = "{sent}"']
    if not within(client, trusted):
        if addresses[sent] and _last_stranger(addresses[sent], None, ())[0] == client:
            return ""  # the server has believed them before us, and the client is known
        settings.insert(0, f'trusted_proxies = ["{client}"]')
    return " and ".join(settings)


# Counts by client


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
