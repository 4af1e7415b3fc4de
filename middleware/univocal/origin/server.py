"""One origin server: its URL, the transport that reaches it, and the requests to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from univocal.http.compiling import mypyc_attr
from univocal.http.errors import ConfigurationError
from univocal.http.grammar import split_absolute
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.origin.addresses import origin_url
from univocal.origin.failures import ConnectError, ConnectTimeoutError, origin_failure
from univocal.origin.resolving import SERVICES, is_name, lacks_services, written
from univocal.origin.timeouts import Timeouts

if TYPE_CHECKING:
    from univocal.origin.client_library import ForeignWay, httpx
    from univocal.origin.connections import Endpoint, OriginConnections

Transport: TypeAlias = "OriginConnections | httpx.AsyncBaseTransport"
"""The way to origin servers: connections of ours, or any transport of httpx."""


class Pending(UnderWay, Protocol):
    """A request that is under way to an origin server, which knows whether anything has come back."""

    @property
    def came(self) -> bool:
        """True if a byte of a response has come; of a transport that does not tell, False."""
        ...

    @property
    def took(self) -> bool:
        """True if the request's content was taken, and can be sent to no other server."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class OriginServer:
    """An origin server by its URL: http, https, unix:///PATH of a socket on this machine, or a service.

    `authority` is its name in `Host`, "localhost" for a socket. `path`, unchanged, stands before every
    target. Without a `transport` it has connections of its own. A foreign httpx transport has to honour the
    "target" extension and to know a socket's path itself; it knows no service. Raises ConfigurationError for
    any other text.
    """

    def __init__(
        self, url: str, transport: Transport | None = None, timeouts: Timeouts | None = None
    ) -> None:
        try:
            parts = origin_url(url)
        except ValueError as error:
            raise ConfigurationError("upstream", "", url, str(error)) from None
        if parts.service and lacks_services():
            raise ConfigurationError("upstream", "", url, SERVICES)
        self.url = url
        self.authority = parts.authority
        self.path = parts.path.rstrip("/").encode()
        self.scheme = parts.protocol.encode()
        # Importing the library does not load the parser; forwarding by it does.
        from univocal.origin.connections import Endpoint, OriginConnections  # noqa: PLC0415

        self.transport: Transport = OriginConnections() if transport is None else transport
        self._connections: OriginConnections | None = None
        self._foreign: ForeignWay | None = None
        own = getattr(self.transport, "origin_connections", self.transport)  # those of an OriginTransport
        if isinstance(own, OriginConnections):
            self._connections = own
        elif parts.service:
            raise ConfigurationError("upstream", "", url, "connections of univocal's own for a service")
        else:
            # Only those who pass a transport of httpx have to import it.
            from univocal.origin.client_library import ForeignWay  # noqa: PLC0415

            self._foreign = ForeignWay(own, parts)
        self._endpoint = Endpoint(
            parts.protocol, parts.name, parts.port, address=parts.socket, service=parts.service
        )
        self._timeouts = timeouts or Timeouts()
        # The upkeep of this server hears of each connection that there could not be, and knows the same
        # server at addresses of the other family, which race it.
        self.unreached: Callable[[], object] | None = None
        self.rivals: Callable[[], list[OriginServer]] | None = None

    @property
    def switches(self) -> bool:
        """True if its connections can be given to another protocol (RFC 9110 §7.8)."""
        return self._connections is not None

    @property
    def connections(self) -> int:
        """The number of open connections to all addresses; 0 for a transport that does not tell."""
        return self._connections.connections if self._connections is not None else 0

    @property
    def name(self) -> tuple[str, int] | None:
        """The name to resolve, and the port; None of an address or a socket, or if the transport does it.

        A service's is the name of its SRV records.
        """
        host = self._endpoint.service or self._endpoint.host.decode("ascii")
        resolves = self._connections is not None and not self._connections.uds and not self._endpoint.address
        return (host, self._endpoint.number) if resolves and is_name(host) else None

    @property
    def address(self) -> str:
        """The address, or path of a socket, that is connected in place of a name; "" for none.

        An address of a service has its port.
        """
        endpoint = self._endpoint
        return written(endpoint.address, endpoint.number) if self.has_ports else endpoint.address

    @property
    def has_ports(self) -> bool:
        """True of a service at an address: its record says the port."""
        return bool(self._endpoint.service and self._endpoint.address)

    def at(self, address: str) -> OriginServer:
        """The same origin server at one address of its name; that of a service is written with its port."""
        if not self._endpoint.service:
            return self._with(self._endpoint._replace(address=address))
        host, _, port = address.rpartition(":")
        return self._with(self._endpoint._replace(address=host.strip("[]"), port=int(port)))

    def for_checks(self) -> OriginServer:
        """The same origin server over connections of their own, which wait for no request of a client."""
        return self if self._connections is None else self._with(self._endpoint._replace(purpose="checks"))

    def forget(self) -> None:
        """Retire it, since its name has another address now: requests under way go on."""
        if self._connections is not None:
            self._connections.forget(self._endpoint)

    def mapped(self, target: bytes) -> bytes:
        """`target` below this URL's path, where there is one; the asterisk-form stays."""
        if not self.path or target == b"*":
            return target
        # A path cannot stand before an absolute-form's scheme and authority.
        absolute = None if target[:1] == b"/" else split_absolute(target)
        path = target if absolute is None else absolute.rest
        return self.path + (path if path.startswith(b"/") else b"/" + path)

    def ask(
        self,
        request: OriginRequest,
        answer: Answer,
        timeouts: Timeouts | None = None,
        moved: Callable[[str], None] | None = None,
    ) -> Pending:
        """Send a request, its target and fields byte for byte; the answer is told of what comes back.

        `timeouts` are those of this request alone. `moved` is told the address of the rival that the request
        goes to, if that accepts a connection first. A connection that is authenticated is its bond's, and is
        closed without one.
        Its failures are RefusedErrors: origin-unreachable, origin-timeout, origin-bad-response, overloaded,
        or bad-target for a target that no request line can hold; that one may reach it before this returns.
        """
        timeouts = timeouts or self._timeouts
        if self._connections is None:
            assert self._foreign is not None
            return self._foreign.ask(request, answer, timeouts, self._failure)
        connections, endpoint, elsewhere = self._connections, self._endpoint, None
        if self.rivals is not None and moved is not None:
            elsewhere = partial(connections.raced, endpoint, self._racing, moved)
        return connections.pool_of(endpoint).send(request, answer, timeouts, self._failure, elsewhere)

    def retire(self) -> None:
        """Close every connection as soon as its request has ended; those that still ask are answered."""
        if self._connections is not None:
            self._connections.retire()
        elif self._foreign is not None:
            self._foreign.retire()

    async def aclose(self) -> None:
        """Close every connection to the origin server."""
        await self.transport.aclose()

    def _with(self, endpoint: Endpoint) -> OriginServer:
        other = OriginServer(self.url, self.transport, self._timeouts)
        other._endpoint, other.unreached = endpoint, self.unreached
        return other

    def _racing(self) -> list[Endpoint]:
        return [each._endpoint for each in self.rivals()] if self.rivals is not None else []

    def _failure(self, error: Exception) -> Exception:
        if self.unreached is not None and isinstance(error, (ConnectError, ConnectTimeoutError)):
            self.unreached()
        address = "" if self._connections is None else self._connections.tried(self._endpoint)
        return origin_failure(error, self.url, address)
