"""The connections to origin servers: HTTP/1.1 on asyncio, targets byte for byte, pushed."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

from aiohappyeyeballs import start_connection

from univocal.http.compiling import mypyc_attr
from univocal.origin.connection import Connection, Keeper
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    PoolTimeoutError,
    UnsupportedSchemeError,
)
from univocal.origin.pool import Pool, PoolSettings
from univocal.origin.resolving import AddressInfo, Resolve, address_text, resolved
from univocal.origin.timeouts import Timeouts

# Seconds that one address of a name has before the next is tried beside it (RFC 8305 §8).
HEAD_START: Final = 0.25
_DEFAULTS: Final = PoolSettings()

_REMEMBERED: Final = 256  # endpoints whose last address is known, at least


class Endpoint(NamedTuple):
    """The place connections lead to (RFC 9110 §4.3.1); over TLS `sni` is asked for, if it is another name.

    `address` is connected in place of the host, if it is not empty: an IP address, or the path of a Unix
    socket. Without one, the SRV records of a `service` name what is connected. Connections for one `purpose`
    serve no other.
    """

    scheme: str
    host: bytes
    port: int | None
    sni: str | None = None
    address: str = ""
    purpose: str = ""
    service: str = ""

    @property
    def number(self) -> int:
        """The port, which is the scheme's own where none is named."""
        return self.port or (443 if self.scheme == "https" else 80)


@mypyc_attr(allow_interpreted_subclasses=True)
class OriginConnections:
    """The connections to origin servers, kept alive (RFC 9112): a pool of them for each endpoint.

    Without `ssl_context`, certificates are verified against the system's authorities. `uds` is the path of a
    Unix socket for every origin server.

    `resolve` finds a name's addresses, IPv6 and IPv4 by turns. The next one is tried when the one before has
    failed or has had a quarter of a second. The first that connects serves (RFC 8305). An object serves one
    event loop.
    """

    def __init__(
        self,
        settings: PoolSettings = _DEFAULTS,
        *,
        ssl_context: ssl.SSLContext | None = None,
        uds: str | None = None,
        resolve: Resolve = resolved,
    ) -> None:
        self._ssl_context = ssl_context
        self.uds = uds
        self._settings = settings
        self._resolve = resolve
        self._pools: dict[Endpoint, Pool] = {}
        self._retired = False
        self._forgotten: list[Pool] = []  # with the last requests to addresses that a name has no more
        self._tried: dict[Endpoint, str] = {}  # the last address of each

    def pool_of(self, endpoint: Endpoint) -> Pool:
        """The pool of connections to an endpoint. Raises UnsupportedSchemeError."""
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = self._pool(endpoint)
        return pool

    @property
    def connections(self) -> int:
        """The number of open connections, idle ones included."""
        return sum(map(len, (*self._pools.values(), *self._forgotten)))

    def retire(self) -> None:
        """Keep no idle connection from now on; requests are sent, and answered, as ever."""
        self._retired = True
        for pool in self._pools.values():
            pool.retire()

    async def aclose(self) -> None:
        """Close every connection; requests under way fail."""
        for pool in (*self._pools.values(), *self._forgotten):
            pool.close()
        self._pools.clear()
        self._forgotten.clear()
        await asyncio.sleep(0)  # sockets are closed in the event loop's next iteration

    def forget(self, endpoint: Endpoint) -> None:
        """Forget an endpoint that gets no further requests; those under way go on."""
        # A request that fails after this still names its address.
        for old in list(self._tried)[:-_REMEMBERED]:
            del self._tried[old]
        pool = self._pools.pop(endpoint, None)
        if pool is not None:
            pool.retire()
            self._forgotten = [each for each in (*self._forgotten, pool) if len(each)]

    def tried(self, endpoint: Endpoint) -> str:
        """The address that was tried last for an endpoint, "" if none was."""
        return self._tried.get(endpoint, "")

    def _pool(self, endpoint: Endpoint) -> Pool:
        if endpoint.scheme not in ("http", "https") or not endpoint.host:
            raise UnsupportedSchemeError(f"no origin speaks {endpoint.scheme!r}: http and https do")
        pool = Pool(partial(self._open, endpoint=endpoint), self._settings)
        if self._retired:
            pool.retire()
        return pool

    async def _open(
        self, keeper: Keeper, endpoint: Endpoint, sock: socket.socket | None = None
    ) -> Connection:
        """Open a connection; `sock` is connected already."""
        loop = asyncio.get_running_loop()

        def factory() -> Connection:
            return Connection(loop, keeper, self._settings.max_head_bytes)

        context, name = None, None
        if endpoint.scheme == "https":
            context, name = self._context(), endpoint.sni or endpoint.host.decode("ascii")
        place = self.uds or endpoint.address or endpoint.service or endpoint.host.decode("ascii")
        with _connecting():
            if place.startswith("/"):
                self._tried[endpoint] = place
                _, connection = await loop.create_unix_connection(
                    factory, place, ssl=context, server_hostname=name
                )
            else:
                if sock is None:
                    sock = await self._first(endpoint, await self._resolve(place, endpoint.number))
                _, connection = await loop.create_connection(
                    factory, sock=sock, ssl=context, server_hostname=name
                )
            return connection

    async def _first(self, endpoint: Endpoint, addresses: list[AddressInfo]) -> socket.socket:
        """Connect to the address that accepts first (RFC 8305), and remember which was tried last."""

        def made(place: AddressInfo) -> socket.socket:
            self._tried[endpoint] = address_text(place)
            return socket.socket(*place[:3])

        return await start_connection(addresses, happy_eyeballs_delay=HEAD_START, socket_factory=made)

    async def raced(
        self,
        endpoint: Endpoint,
        rivals: Callable[[], Iterable[Endpoint]],
        moved: Callable[[str], None],
        seconds: Timeouts,
    ) -> Connection:
        """A connection to the endpoint, or to the rival of it that accepts before it does (RFC 8305).

        Rivals differ only in the address. `moved` gets the address of the one that accepted first.
        """
        racers = {each.address: each for each in (endpoint, *rivals())}
        if len(racers) == 1:
            return await self.pool_of(endpoint).connect(seconds.connect, seconds.pool)
        with _connecting():
            addresses = [place for each in racers for place in await resolved(each, endpoint.number)]
            try:
                async with asyncio.timeout(seconds.connect):
                    held = [await self._first(endpoint, addresses)]
            except TimeoutError:
                raise ConnectTimeoutError("no address accepted the connection in time") from None
        try:
            winner = racers.get(held[0].getpeername()[0], endpoint)
            if winner is not endpoint:
                moved(winner.address)
            return await self.pool_of(winner).connect(
                seconds.connect, seconds.pool, by=lambda keeper: self._open(keeper, winner, held.pop())
            )
        finally:
            for sock in held:  # it was another's turn
                sock.close()

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


@contextmanager
def _connecting() -> Iterator[None]:
    """Make one error of all failures to connect."""
    try:
        yield
    # (uvloop has RuntimeErrors of its own where a descriptor is used anew)
    except (OSError, UnicodeError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
            raise PoolTimeoutError("there is no descriptor for one more connection") from error
        raise ConnectError(str(error)) from error
