"""The URLs by which origin servers are named: http, https, unix and the path of a socket, or a service."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import Final, NamedTuple

import idna

from univocal.http.grammar import DEFAULT_PORTS, a_labels, parse_authority

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
    """The parts of an authority. Raises ValueError, which UnicodeError is, for a host that cannot be."""
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
