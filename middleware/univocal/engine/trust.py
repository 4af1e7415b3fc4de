"""The sender of a request: a trusted proxy's forwarded fields are believed, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal.http.fields import ENCODINGS
from univocal.http.grammar import TOKEN
from univocal.http.messages import Fields, Received, values

__all__ = ["FORWARDED", "LOOPBACK", "Networks", "Peer", "believe", "networks", "within"]

Networks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")

# RFC 7239 §4; a value that should have been quoted, as `for=192.0.2.1:80`, is read all the same.
_FORWARDED_PAIR: Final = re.compile(
    rb"(" + TOKEN + rb")=([^\x00-\x20\",;\\]+|\"(?:[^\"\\]|\\.)*\")", re.DOTALL
)
_SEGMENT: Final = rb"[ \t]*(?:%b[ \t]*)?" % _FORWARDED_PAIR.pattern
_FORWARDED_ELEMENT: Final = re.compile(rb"%b(?:;%b)*" % (_SEGMENT, _SEGMENT), re.DOTALL)
_QUOTED_PAIR: Final = re.compile(rb"\\(.)", re.DOTALL)

# What is read of a chain, from its end: so many addresses (more proxies do not stand behind one another), so
# many commas of `Forwarded`, and octets of one of its elements.
_MOST_HOPS: Final = 64
_MOST_COMMAS: Final = 256
_LONGEST_ELEMENT: Final = 1024

FORWARDED: Final = frozenset((b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded"))


def networks(texts: Iterable[str]) -> Networks:
    """The networks written in `texts` (CIDR notation or single addresses). Raises ConfigurationError."""
    found = []
    for text in texts:
        try:
            found.append(_unmapped(ip_network(text)))
        except ValueError:
            raise ConfigurationError(
                "networks", "", text, "an address or a network, such as 10.0.0.0/8"
            ) from None
    return tuple(found)


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
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False  # a socket's path, a test client's name
    mapped = getattr(parsed, "ipv4_mapped", None)
    return any((mapped or parsed) in network for network in allowed)


@dataclass(frozen=True, slots=True)
class Peer:
    """The sender of a request, as far as it is believed."""

    hosts: list[bytes]  # every value that names the authority: of more than one none is believed
    scheme: bytes
    client: str | None
    chain: tuple[bytes, ...] = ()  # addresses before `received.client`, as trusted proxies reported them
    encodings: tuple[bytes, bytes] = (
        b"",
        b"",
    )  # charsets it declares, of path and query


def believe(received: Received, fields: Fields, trusted: Networks) -> Peer:
    """The request's authority, scheme and client; a trusted peer's forwarded fields come before its own.

    The last value of each field counts, since it is the one that the trusted peer wrote; of the chain of
    addresses, the last that is not itself trusted. `Forwarded` (RFC 7239) is read where there is no
    X-Forwarded-* at all: its last element for host and scheme, and for addresses those that end the list
    without a gap, since what comes before is from who knows whom.
    """
    hosts = values(fields, b"host")
    if not within(received.client, trusted) or not any(name in FORWARDED for name, _ in fields):
        return Peer(hosts, received.scheme, received.client, (), _declared(fields))
    chain = _members(fields, b"x-forwarded-for")
    authority = _members(fields, b"x-forwarded-host")
    scheme = _members(fields, b"x-forwarded-proto")
    if not (chain or authority or scheme):
        chain, authority, scheme = _forwarded(fields)
    return Peer(
        hosts=authority[-1:] or hosts,
        scheme=_scheme(scheme, received.scheme),
        client=_client(chain, received.client, trusted),
        chain=tuple(chain),
        encodings=_declared(fields),
    )


def _declared(fields: Fields) -> tuple[bytes, bytes]:
    """The fields of draft-montenegro-httpbis-uri-encoding; one that is repeated does not count."""
    if not any(name in ENCODINGS for name, _ in fields):
        return b"", b""
    path, query = (values(fields, name) for name in ENCODINGS)
    return path[0] if len(path) == 1 else b"", query[0] if len(query) == 1 else b""


def _scheme(said: list[bytes], otherwise: bytes) -> bytes:
    scheme = said[-1].lower() if said else otherwise
    return scheme if scheme in {b"http", b"https"} else otherwise


def _client(chain: list[bytes], peer: str | None, trusted: Networks) -> str | None:
    client = peer
    for member in reversed(chain):
        client = _address(member)
        if not within(client, trusted):  # a member that is no address is nobody we know, so nobody we trust
            break
    return client


def _address(member: bytes) -> str | None:
    text = member.decode("latin-1").strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _members(fields: Fields, name: bytes) -> list[bytes]:
    """The members of a list that end it."""
    nearest = b",".join(values(fields, name)).rsplit(b",", _MOST_HOPS)[-_MOST_HOPS:]
    return [member for part in nearest if (member := part.strip(b" \t"))]


def _forwarded(fields: Fields) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The addresses of the elements that end the list and have one; host and scheme of the last element."""
    chain: list[bytes] = []
    last: dict[bytes, bytes] | None = None
    for element in _elements(b",".join(values(fields, b"forwarded"))):
        if last is None:
            last = element
        if b"for" not in element or len(chain) == _MOST_HOPS:
            break
        chain.insert(0, element[b"for"])
    host, proto = ([last[name]] if last and name in last else [] for name in (b"host", b"proto"))
    return chain, host, proto


def _elements(value: bytes) -> Iterator[dict[bytes, bytes]]:
    """The elements of `Forwarded`, the last first, down to the first that is none (RFC 7239 §4).

    They are read from their end, so that a quoted string which a stranger leaves open does not reach into
    what the trusted proxy wrote after it, and commas in one that it wrote itself do not part it.
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
    return _QUOTED_PAIR.sub(rb"\1", value[1:-1]) if value[:1] == b'"' else value
