"""One origin server: its URL, the transport that reaches it, and the requests to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, Protocol

from univocal.http.errors import ConfigurationError
from univocal.http.grammar import split_absolute
from univocal.http.messages import Fields
from univocal.http.roles import Answer, Content, UnderWay
from univocal.http.subclassing import mypyc_attr
from univocal.origin.addresses import origin_url
from univocal.origin.client_library import httpx
from univocal.origin.failures import origin_failure
from univocal.origin.foreign import ForeignRequest
from univocal.origin.resolving import is_name
from univocal.origin.timeouts import Timeouts

if TYPE_CHECKING:
    from univocal.origin.transport import Endpoint

__all__ = ["OriginServer", "Pending", "Timeouts"]


class Pending(UnderWay, Protocol):
    """A request that is under way to an origin server, which knows whether anything has come back."""

    @property
    def came(self) -> bool:
        """True if a byte of a response has come; of a transport that does not tell, False."""
        ...

    @property
    def took(self) -> bool:
        """True if the request's content was taken, and can be sent to nobody else."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class OriginServer:
    """An origin server by its URL: http, https, or unix:///PATH of a socket on this machine.

    `authority` is its name in `Host`, "localhost" for a socket. `path`, unchanged, stands before every
    target. Without a `transport` it has an OriginTransport of its own. Another httpx transport has to honour
    the "target" extension and to know a socket's path itself. Raises ConfigurationError for any other text.
    """

    def __init__(
        self, url: str, transport: httpx.AsyncBaseTransport | None = None, timeouts: Timeouts | None = None
    ) -> None:
        try:
            self._root, path, socket = origin_url(url)
        except ValueError as error:
            raise ConfigurationError("upstream", "", url, str(error)) from None
        self.url = url
        self.authority = self._root.netloc
        self.path = path.rstrip("/").encode()
        # Importing the library does not load the parser; forwarding by it does.
        from univocal.origin.transport import Endpoint, OriginTransport  # noqa: PLC0415

        self.transport = transport or OriginTransport()
        self._pushing = self.transport if isinstance(self.transport, OriginTransport) else None
        self._endpoint = Endpoint(self._root.scheme, self._root.raw_host, self._root.port, address=socket)
        self._timeouts = timeouts or Timeouts()
        self._retired = False
        self._foreign: set[asyncio.Task[None]] = set()  # requests under way by a foreign transport
        self._closing: asyncio.Task[None] | None = None
        # The upkeep of this server hears of each connection that there could not be, and knows the same
        # server at addresses of the other family, which race it.
        self.unreached: Callable[[], object] | None = None
        self.rivals: Callable[[], list[OriginServer]] | None = None

    @property
    def switches(self) -> bool:
        """True if its connections can be given to another protocol (RFC 9110 §7.8)."""
        return self._pushing is not None

    @property
    def connections(self) -> int:
        """The number of open connections to all addresses; 0 for a transport that does not tell."""
        return self._pushing.connections if self._pushing is not None else 0

    @property
    def name(self) -> tuple[str, int] | None:
        """The name to resolve, and the port; None of an address or a socket, or if the transport does it."""
        host = self._endpoint.host.decode("ascii")
        resolves = self._pushing is not None and not self._pushing.uds and not self._endpoint.address
        return (host, self._endpoint.number) if resolves and is_name(host) else None

    @property
    def address(self) -> str:
        """The address, or path of a socket, that is connected in place of a name; "" for none."""
        return self._endpoint.address

    def at(self, address: str) -> OriginServer:
        """The same origin server at one address of its name."""
        return self._with(self._endpoint._replace(address=address))

    def for_checks(self) -> OriginServer:
        """The same origin server over connections of their own, which wait for no request of a client."""
        return self if self._pushing is None else self._with(self._endpoint._replace(purpose="checks"))

    def forget(self) -> None:
        """Take note that its address is the name's no more: what is under way goes on."""
        if self._pushing is not None:
            self._pushing.forget(self._endpoint)

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
        method: bytes,
        target: bytes,
        fields: Fields,
        content: Content | None,
        answer: Answer,
        moved: Callable[[str], None] | None = None,
    ) -> Pending:
        """Send a request, its target byte for byte; the answer is told of what comes back.

        `moved` is told the address of the rival that the request goes to, if that accepts a connection first.
        Its failures are RefusedErrors: origin-unreachable, origin-timeout, origin-bad-response, overloaded,
        or bad-target for a target that no request line can hold; that one may reach it before this returns.
        """
        if self._pushing is None:
            return self._ask_foreign(method, target, fields, content, answer)
        try:
            return self._pushing.ask(
                self._endpoint,
                method,
                target,
                fields,
                content,
                answer,
                self._timeouts,
                self._failure,
                None if self.rivals is None else self._racing,
                moved,
            )
        except httpx.TransportError as error:
            answer.fail(self._failure(error))
            return _NeverSent()

    def retire(self) -> None:
        """Close every connection as soon as its request has ended; those that still ask are answered."""
        self._retired = True
        if self._pushing is not None:
            self._pushing.retire()
        else:
            self._close_unused()

    async def aclose(self) -> None:
        """Close every connection to the origin server."""
        await self.transport.aclose()

    def _with(self, endpoint: Endpoint) -> OriginServer:
        other = OriginServer(self.url, self.transport, self._timeouts)
        other._endpoint, other._foreign, other.unreached = endpoint, self._foreign, self.unreached
        return other

    def _racing(self) -> list[Endpoint]:
        return [each._endpoint for each in self.rivals()] if self.rivals is not None else []

    def _close_unused(self) -> None:
        """Close a foreign transport, which is retired, once it has no request under way."""
        if self._retired and not self._foreign:
            self._closing = asyncio.get_running_loop().create_task(self.transport.aclose())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._foreign.discard(task)
        self._close_unused()

    def _failure(self, error: Exception) -> Exception:
        if self.unreached is not None and isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            self.unreached()
        address = "" if self._pushing is None else self._pushing.tried(self._endpoint)
        return origin_failure(error, self.url, address)

    def _ask_foreign(
        self, method: bytes, target: bytes, fields: Fields, content: Content | None, answer: Answer
    ) -> Pending:
        try:
            # For test doubles and logs alone: URL classes respell paths, so the target goes beside it.
            url = self._root.copy_with(raw_path=target)
        except httpx.InvalidURL:
            url = self._root
        request = ForeignRequest(self.transport, answer, self._failure)
        extensions = {"target": target, "timeout": asdict(self._timeouts)}
        request.send(method, url, fields, content, extensions)
        self._foreign.add(request.task)
        request.task.add_done_callback(self._ended)
        return request


class _NeverSent:
    """A request that is over before it began (a `Pending`)."""

    came: Final = False
    took: Final = False

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def cancel(self) -> None: ...
