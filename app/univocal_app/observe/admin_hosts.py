"""The hosts of the admin listener: a request for any other is none of its own (RFC 9110 §7.4)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

from univocal.http.authority import parse_authority
from univocal.http.client_counts import parsed_address
from univocal.http.messages import values
from univocal_app.config.tables import ServerTable
from univocal_app.config.values import Address, host_name

# Balancers and orchestrators ask the first two by whatever name they know, and nothing is in the answers. The
# third asks for its sender's right first (see admin_purge), and tells of a purge that is refused.
EXEMPT: Final = frozenset(("/-/health", "/-/ready", "/-/purge"))


class Hosts:
    """The names in `admin_hosts`, the hosts that are listened on, and the listener's addresses.

    A page on the web can have its own name point here (DNS rebinding), and then reads what it is answered. It
    cannot choose the name under which its reader's browser asks. `server` gives the table in force.
    """

    def __init__(self, server: Callable[[], ServerTable]) -> None:
        self._server = server

    @property
    def names(self) -> frozenset[bytes]:
        """Those that are no addresses, or that are told by name."""
        server = self._server()
        listened = (host_name(each.host) for each in server.admin if isinstance(each, Address))
        return frozenset(name.encode() for name in (*server.admin_hosts, *listened))

    def has(self, scope: Any) -> bool:
        """Tell whether a request's Host is one of these. Its port does not matter: tunnels change it."""
        named = values(scope["headers"], b"host")
        authority = parse_authority(named[0]) if len(named) == 1 else None
        if authority is None:
            return False
        places = self._server().admin
        everywhere = any(_is_everywhere(each.host) for each in places if isinstance(each, Address))
        return authority[0] in self.names or _is_address(authority[0], scope.get("server"), everywhere)


def _is_everywhere(host: str) -> bool:
    """Tell whether who listens on a host listens on all addresses."""
    with suppress(ValueError):
        return ip_address(host).is_unspecified
    return False


def _is_address(host: bytes, server: tuple[str, int | None] | None, everywhere: bool) -> bool:
    """Tell whether a host is the address at which the connection has arrived.

    A listener `everywhere` has the loopback addresses, too: a container's port is published under one.
    """
    try:
        address = parsed_address(host.decode("ascii").strip("[]"))
        own = parsed_address(server[0].partition("%")[0]) if server is not None else None
    except ValueError:
        return False  # a name; or a socket's path
    return address == own or (everywhere and address.is_loopback)
