"""The values a configuration holds: each is read by one function, whose ValueError says what is allowed."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator

from univocal.http.authority import DEFAULT_PORTS, parse_authority
from univocal.http.grammar import split_absolute
from univocal.http.upgrade import carries_http, is_protocol
from univocal.origin.addresses import UNIX_SOCKET, unix_socket
from univocal.store.redis import url as address

__all__ = [
    "Address",
    "Duration",
    "HostName",
    "Listen",
    "Network",
    "Only",
    "Origin",
    "OriginHost",
    "Prefix",
    "Size",
    "Store",
    "UpgradeName",
    "Upstream",
    "Variable",
    "masked",
    "parse_address",
]


class Address(NamedTuple):
    """The address that a listener binds; port 0 asks the system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Upstream(NamedTuple):
    """An origin server's URL, in two parts: the server to connect to, and the text before a target."""

    url: str  # scheme and authority alone, or unix:// and the path of a socket
    path: str  # as it is written; empty where the URL has none

    def __str__(self) -> str:
        return self.url + self.path


_UNITS: Final = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZE: Final = re.compile(r"([0-9]{1,15})(?: ?(B|[kMG]B|[KMG]iB))?")
_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_PATH: Final = re.compile(rb"(?:/[!-\"$->@-~]*)?")


def size(value: object) -> int:
    """Octets from a number, or from a text with a unit."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) * _UNITS[match[2] or ""]
    raise ValueError('a number of bytes, or a text such as "256 MiB" (units: B, kB, MB, GB, KiB, MiB, GiB)')


def parse_address(value: object) -> Address:
    """HOST:PORT; an IPv6 address stands in brackets."""
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[3] is None or int(match[3]) > 65535:
        raise ValueError('HOST:PORT such as "127.0.0.1:8080" or "[::1]:8080"')
    return Address(match[1] or match[2], int(match[3]))


def network(value: object) -> str:
    """A network in CIDR notation, or one address."""
    with contextlib.suppress(ValueError):
        if isinstance(value, str):
            return str(ipaddress.ip_network(value))
    raise ValueError('an address or a network without host bits, such as "192.0.2.7" or "10.0.0.0/8"')


def parse_upstream(value: object) -> Upstream:
    """The URL of one origin server, with or without a path."""
    if isinstance(value, list):
        raise ValueError("one URL as a text (several origins for one site are not in this version)")
    if isinstance(value, str) and unix_socket(value) is not None:
        return Upstream(value, "")
    if isinstance(value, str) and (url := split_absolute(value.encode("utf-8", "replace"))) is not None:
        at = _ADDRESS.fullmatch(url.authority.decode())
        named = url.scheme in DEFAULT_PORTS and at is not None and 0 < int(at[3] or 1) <= 65535
        if named and _PATH.fullmatch(url.rest):
            path = url.rest.decode()
            return Upstream(value.removesuffix(path), path)
    allowed = 'an http or https URL without user, query and fragment, such as "http://127.0.0.1:9000"'
    raise ValueError(f"{allowed}; or {UNIX_SOCKET}")


def origin_host(value: object) -> str:
    """The Host that the origin gets: "site", "upstream", or a host of its own, as an A-label."""
    if isinstance(value, str) and value:
        with contextlib.suppress(UnicodeError):
            written = value if value.isascii() else value.encode("idna").decode()
            if parse_authority(written.encode()) is not None:
                return written
    raise ValueError('"site", "upstream", or a host with or without a port')


def host_name(value: object) -> str:
    """A host in its one spelling, without port: a name as A-labels, or an address."""
    with contextlib.suppress(UnicodeError):
        written = value if not isinstance(value, str) or value.isascii() else value.encode("idna").decode()
        if isinstance(written, str):
            bare = f"[{written}]" if ":" in written and "[" not in written else written
            host = parse_authority(bare.encode())
            if host is not None and host[1] is None and not bare.endswith(":"):
                return host[0].decode()
    raise ValueError('the name of a host without a port, such as "localhost" or "univocal.internal"')


def variable(value: object) -> str:
    """The name of an environment variable."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        return value
    raise ValueError('the name of an environment variable, such as "UNIVOCAL_PURGE_TOKEN"')


def upgrade_name(value: object) -> str:
    """The name of a protocol that connections may switch to, in lower case."""
    if isinstance(value, str) and value.isascii() and is_protocol(name := value.lower().encode()):
        if not carries_http(name):
            return name.decode()
        raise ValueError("protocols other than HTTP and TLS: by those, requests would go past every check")
    raise ValueError('the name of a protocol, such as "websocket"')


def prefix(value: object) -> str:
    """The path that a route begins with."""
    if isinstance(value, str) and value.startswith("/"):
        return value
    raise ValueError('a path that begins with a slash, such as "/api/"')


def store(value: object) -> str:
    """The place of stored responses: memory alone, or a Redis or Valkey, too."""
    try:
        if value != "memory":
            address.check(value if isinstance(value, str) else "")
    except ValueError as error:
        raise ValueError(f"'memory', or {error}") from None
    return str(value)


def masked(text: str) -> str:
    """A URL without the password that may be in it."""
    return address.masked(text)


class Only:
    """A setting of which this version knows one value."""

    def __init__(self, value: str | int, why: str) -> None:
        self.value, self.why = value, why

    def __call__(self, found: object) -> str | int:
        if type(found) is type(self.value) and found == self.value:
            return self.value
        raise ValueError(f"{self.value!r} ({self.why})")


Size: TypeAlias = Annotated[int, PlainValidator(size)]
Network: TypeAlias = Annotated[str, PlainValidator(network)]
Listen: TypeAlias = Annotated[Address, PlainValidator(parse_address), PlainSerializer(str)]
Origin: TypeAlias = Annotated[Upstream, PlainValidator(parse_upstream), PlainSerializer(str)]
Duration: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OriginHost: TypeAlias = Annotated[str, PlainValidator(origin_host)]
HostName: TypeAlias = Annotated[str, PlainValidator(host_name)]
Variable: TypeAlias = Annotated[str, PlainValidator(variable)]
Store: TypeAlias = Annotated[str, PlainValidator(store), PlainSerializer(masked)]
UpgradeName: TypeAlias = Annotated[str, PlainValidator(upgrade_name)]
Prefix: TypeAlias = Annotated[str, PlainValidator(prefix)]
