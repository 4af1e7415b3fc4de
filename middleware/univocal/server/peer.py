"""The two ends of a client's connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

# The name by which a transport tells what `Certificates.suits` gave for it.
SUITS: Final = "univocal.suits"
# The name by which a transport tells that a PROXY header named the client.
INTRODUCED: Final = "univocal.introduced"


class ClientPeer(NamedTuple):
    """The client at the other end of a connection, and our address and name that it came by."""

    client: tuple[str, int] | None
    address: str | None  # the client's, without port
    server: tuple[str, int | None] | None
    scheme: bytes  # b"http" or b"https"
    # The hosts that may be asked for here, by the listener and by the certificate that the client was shown;
    # None: all.
    suits: Callable[[bytes], bool] | None
    introduced: bool = False  # by a PROXY header


def peer_of(transport: asyncio.BaseTransport, serves: Callable[[bytes], bool] | None = None) -> ClientPeer:
    """The ends of a connection, as asyncio knows them; a Unix socket's have no port.

    `serves` tells which hosts the listener serves; None: all.
    """
    name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    client = (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
    server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else (own, None) if own else None
    scheme = b"https" if transport.get_extra_info("sslcontext") else b"http"
    address = None if client is None else client[0]
    suits = _both(transport.get_extra_info(SUITS), serves)
    return ClientPeer(
        client, address, server, scheme, suits, introduced=bool(transport.get_extra_info(INTRODUCED))
    )


def _both(
    suits: Callable[[bytes], bool] | None, serves: Callable[[bytes], bool] | None
) -> Callable[[bytes], bool] | None:
    """The hosts that suit the certificate and are served by the listener."""
    if suits is None or serves is None:
        return suits or serves
    return lambda host: suits(host) and serves(host)
