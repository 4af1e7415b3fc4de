"""The connections to origin servers, kept alive: a pool for each endpoint, opened on asyncio.

A pool has connections in use, idle ones, those that open, and the requests that wait for one.
"""

from __future__ import annotations

import asyncio
import errno
import math
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from aiohappyeyeballs import start_connection

from univocal.http.bonds import Bond
from univocal.http.compiling import mypyc_attr
from univocal.http.errors import lacks_memory
from univocal.http.roles import Answer, OriginRequest
from univocal.http.settings import count, positive, setting, size
from univocal.http.timer import Timer
from univocal.origin.addresses import AddressInfo, Resolve, address_text, resolved
from univocal.origin.connection import Connection, Keeper, PendingRequest
from univocal.origin.failures import (
    ConnectError,
    ConnectTimeoutError,
    InvalidRequestError,
    PoolTimeoutError,
    ReadError,
    Timeouts,
    TransportError,
    UnsupportedSchemeError,
)
from univocal.origin.http1 import spell

# Bounds of the seconds after which a new connection counts as held up.
SHORTEST: Final = 0.01
LONGEST: Final = 1.0

_TIMES: Final = 2  # the usual time of a first answer, so often, is too long
_WEIGHT: Final = 1 / 8  # of one answer in the usual time
_DOUBTFUL: Final = 1 / 64  # of one that may have been held up, or just slow
_MOST: Final = 1000  # connections closed that are remembered

Link = TypeVar("Link", bound=Hashable)


class FirstAnswers(Generic[Link]):
    """The new connections that may be in the origin server's queue, oldest first, and since when.

    The queue is served in order: an answer on a newer connection shows that none of the older ones is in it,
    however long their answers take. An interim response is no answer: a server in front of the workers may
    send it. Times are seconds of any one clock.
    """

    def __init__(self) -> None:
        self.waiting: dict[Link, float] = {}
        self._usual = math.inf  # seconds to a first answer that is not held up
        # The times at which connections were closed for those held up: each is served from then on.
        self._closed: deque[float] = deque(maxlen=_MOST)

    @property
    def patience(self) -> float:
        """The seconds that a first answer may take, infinite while none has ever come."""
        seconds = _TIMES * self._usual
        return seconds if seconds == math.inf else min(max(seconds, SHORTEST), LONGEST)

    @property
    def due(self) -> float:
        """The time from which on the oldest is held up."""
        for since in self.waiting.values():
            return since + self.patience
        return math.inf

    def sent(self, link: Link, now: float) -> None:
        """Record the first request over a new connection."""
        if not self.waiting:
            self._closed.clear()
        self.waiting[link] = now

    def answered(self, link: Link, now: float) -> None:
        """Handle the first answer on a connection."""
        since = self.waiting.get(link)
        if since is None:
            return
        self._learn(since, now)
        for older in tuple(self.waiting):
            del self.waiting[older]
            if older == link:
                return

    def _learn(self, since: float, now: float) -> None:
        seconds, weight = now - since, _WEIGHT
        if self._usual == math.inf:
            self._usual = seconds
            return
        if seconds > self.patience and self._closed:
            # Closings free workers in the order of the queue. It is served since its own worker was freed,
            # unless it was answered too soon after that: then it was served before, as far as can be known.
            served = now - max(since, self._closed[0])
            if served * _TIMES >= self._usual:
                self._closed.popleft()
                seconds = served
            else:
                weight = _DOUBTFUL
        self._usual += (seconds - self._usual) * weight

    def held_up(self, now: float) -> int:
        """The number of connections that have waited too long."""
        patience, count = self.patience, 0
        for since in self.waiting.values():
            if since + patience > now:
                break
            count += 1
        return count

    def relieved(self, now: float) -> None:
        """Count a connection that was closed for the sake of those held up."""
        self._closed.append(now)


Open: TypeAlias = Callable[[Keeper], Awaitable[Connection]]
Elsewhere: TypeAlias = Callable[[Timeouts], Awaitable[Connection]]


def _head_bytes(value: object) -> int:
    return count(size(value), 1024)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Bounds on the connections to one origin server.

    At most `max_idle` of `max_connections` stay idle. Where the origin server grants no time, they do so for
    `idle_timeout` seconds: choose less than origin servers have. A response's head has at most
    `max_head_bytes`.
    """

    max_connections: int = setting(1000, positive)
    max_idle: int = setting(1000, count)
    max_head_bytes: int = setting(64 * 2**10, _head_bytes)
    idle_timeout: float = 4.0


class Pool:
    """At most `max_connections` to one origin; idle ones are taken last in, first out.

    So the warmest serves next, and a connection that only a peak needed is idle for `idle_timeout` seconds
    and closed. At most `max_idle` are idle. None is kept while the first request of a newer connection waits
    for too long: the origin server may have no worker for it but the one that this connection holds.
    `open_connection` opens one for its keeper and raises ConnectError.
    """

    def __init__(
        self, open_connection: Open, settings: PoolSettings, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._open_connection = open_connection
        self._settings = settings
        self._free = settings.max_connections
        self._loop = loop or asyncio.get_running_loop()
        self._new: FirstAnswers[Connection] = FirstAnswers()
        self._relief = Timer(self._loop, self._relieve)
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self._apart: dict[Connection, Bond] = {}  # idle ones that belong to one client each
        self._waiting: OrderedDict[asyncio.Future[Connection | None], None] = OrderedDict()
        # The requests that wait for one to be opened, and since when: for ever, where no other is as good.
        self._opening: dict[PendingRequest, float] = {}
        self._closed = self._retired = False

    def __len__(self) -> int:
        return len(self._open)

    def send(
        self,
        asked: OriginRequest,
        answer: Answer,
        timeouts: Timeouts,
        failure: Callable[[Exception], Exception] | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> PendingRequest:
        """Send a request over an idle connection within this call, or over the next that there is.

        `failure` turns errors into the answer's. Where a connection has to be opened and may be, `elsewhere`
        gives it, perhaps one of another pool. These errors are TransportErrors.
        """
        request = PendingRequest(asked, answer, timeouts, failure)
        try:
            spell(asked)
        except InvalidRequestError as error:
            request.fail(error)
            return request
        connection = None if asked.bond is None else self._take_apart(asked.bond)
        connection = connection or self.take_idle()
        if connection is None:
            self._open_for(request, elsewhere=elsewhere if self._free else None)
        else:
            connection.send(request)
        return request

    def _take_apart(self, bond: Bond) -> Connection | None:
        """The idle connection that belongs to one client."""
        connection = bond.take(self)
        if not isinstance(connection, Connection):
            return None
        self._apart.pop(connection, None)
        if connection.unread(0):
            connection.close()
            return None
        return connection

    def take_idle(self) -> Connection | None:
        """The connection that became idle last."""
        while self._idle:
            connection = self._idle.popitem()[0]
            # Bytes behind a response are not yet read, perhaps: they answer no request of ours.
            if not connection.unread(0):
                return connection
            connection.close()
        return None

    async def connect(
        self, connect: float | None, pool: float | None, *, fresh: bool = False, by: Open | None = None
    ) -> Connection:
        """A new connection, or the next to become idle; with `fresh`, a new one, if need be in its place.

        `by` opens it in place of what this pool does so with. Raises PoolTimeoutError after `pool` seconds
        of waiting for others, ConnectTimeoutError after `connect` seconds of connecting, ConnectError.
        """
        if self._free and not self._closed:
            self._free -= 1
        else:
            if fresh or (self._apart and not self._idle):
                self._make_room()
            connection = await self._await_connection(pool)
            if connection is not None and not fresh:
                return connection
            if connection is not None:
                self._open.remove(connection)  # its place is the new one's
                connection.close()
        try:
            async with asyncio.timeout(connect):
                connection = await (by or self._open_connection)(self)
        except TimeoutError:
            self._give_to_waiter(None)
            raise ConnectTimeoutError("the origin did not accept the connection in time") from None
        except BaseException:
            self._give_to_waiter(None)
            raise
        self._open.add(connection)
        if connection.closed:
            self.lost(connection)
        else:
            self._new.sent(connection, self._loop.time())
            self._look_after_new()
        return connection

    def retire(self) -> None:
        """Keep no idle connection from now on: one that is not waited for is closed."""
        self._retired = True
        for connection in (*self._idle, *self._apart):
            connection.close()

    def close(self) -> None:
        """Close every connection and send away who waits for one."""
        self._closed = True
        self._relief.close()
        while self._waiting:
            waiter, _ = self._waiting.popitem()
            if not waiter.done():
                waiter.set_exception(ConnectError("the transport was closed"))
        for request in tuple(self._opening):
            if request.opening is not None:
                request.opening.cancel()
                request.opening = None
                request.fail(ConnectError("the transport was closed"))
        for connection in tuple(self._open):
            connection.fail(ReadError("the transport was closed"))

    # Reports of connections.

    def put_back(self, connection: Connection) -> None:
        """Take `connection`, which can serve the next request."""
        if self._closed:
            connection.close()
        elif self._new.waiting and self._is_held_up():
            self._let_go(connection)
        elif self._waiting:
            self._give_to_waiter(connection)
        elif self._opening and (stuck := self._stuck()) is not None:
            self._hand_over(connection, stuck)
        elif self._retired or not self._settings.max_idle:
            connection.close()
        else:
            if len(self._idle) == self._settings.max_idle:
                self._make_room()
            self._idle[connection] = None
            connection.stand_by(self._settings.idle_timeout)
            if self._new.waiting or self._opening:
                self._look_after_new()

    def set_apart(self, connection: Connection, bond: Bond) -> None:
        """Keep `connection`, which serves one client alone, idle until a request waits for its place."""
        if self._closed or self._retired or self._waiting:
            connection.close()
        else:
            self._apart[connection] = bond
            bond.keep(self, connection)
            connection.stand_by(self._settings.idle_timeout)

    def answered(self, connection: Connection) -> None:
        """Record the first answer on `connection`."""
        self._new.answered(connection, self._loop.time())

    def withdraw(self, connection: Connection) -> None:
        """Forget `connection`, which can serve no more."""
        self._idle.pop(connection, None)
        bond = self._apart.pop(connection, None)
        if bond is not None:
            bond.forget(self, connection)
        self._new.waiting.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Remove the closed `connection`: there is room for another."""
        self.withdraw(connection)
        if connection in self._open:
            self._open.remove(connection)
            self._give_to_waiter(None)

    def repeat(self, request: PendingRequest) -> None:
        """Send a request once more, over a new connection: one that has served may be dead, too."""
        self._open_for(request, fresh=True)

    # Its own.

    def _open_for(
        self, request: PendingRequest, *, fresh: bool = False, elsewhere: Elsewhere | None = None
    ) -> None:
        since = inf if fresh else self._loop.time()
        self._opening[request] = since
        sending = self._send_when_open(request, since, elsewhere)
        request.opening = asyncio.get_running_loop().create_task(sending)

    async def _send_when_open(
        self, request: PendingRequest, since: float, elsewhere: Elsewhere | None
    ) -> None:
        seconds = request.timeouts
        try:
            if elsewhere is None:
                connection = await self.connect(seconds.connect, seconds.pool, fresh=since == inf)
            else:
                connection = await elsewhere(seconds)
        except TransportError as error:
            request.opening = None
            request.fail(error)
        except Exception as error:
            request.opening = None
            request.fail(error if lacks_memory(error) else ConnectError(str(error)))
        else:
            request.opening = None
            connection.send(request)
        finally:
            if self._opening.get(request) == since:  # else it was handed over, and is repeated
                del self._opening[request]

    def _stuck(self) -> PendingRequest | None:
        """The request whose connection has been opening for longer than an answer may take.

        Servers whose queue is full take no more connections, and each is tried again after seconds.
        """
        patience, now = self._new.patience, self._loop.time()
        for request, since in self._opening.items():
            if since + patience <= now and request.opening is not None:
                return request
            if since < inf:
                break
        return None

    def _hand_over(self, connection: Connection, request: PendingRequest) -> None:
        """Send a request whose connection is still opening over one that is there, and open it no further."""
        opening, request.opening = request.opening, None
        del self._opening[request]
        assert opening is not None
        opening.cancel()
        connection.send(request)

    def _is_held_up(self) -> bool:
        """Tell whether a new connection waits for too long, so that another is to be closed for it."""
        new = self._new
        # An answer that has come and is not yet read is late by our own doing.
        return self._loop.time() >= new.due and not next(iter(new.waiting)).unread(0)

    def _let_go(self, connection: Connection) -> None:
        """Close a connection, so that one that is held up is served."""
        self._new.relieved(self._loop.time())
        connection.close()

    def _look_after_new(self) -> None:
        """Set a timer that closes idle connections when new or opening ones wait for too long."""
        due = min(self._new.due, min(self._opening.values(), default=inf) + self._new.patience)
        if self._idle and due < inf:
            self._relief.set(max(due - self._loop.time(), 0))

    def _relieve(self) -> None:
        """Close as many idle connections as there are new ones held up; use the rest for those that open."""
        new, now = self._new, self._loop.time()
        count = new.held_up(now)
        if count and self._is_held_up():
            for connection in tuple(self._idle)[:count]:
                self._let_go(connection)
        while self._idle and (stuck := self._stuck()) is not None:
            idle = self.take_idle()
            if idle is not None:
                self._hand_over(idle, stuck)
        if self._idle and count:
            self._relief.set(new.patience)
        else:
            self._look_after_new()

    def _make_room(self) -> None:
        """Close the connection that has been idle longest: another is worth more."""
        for connection in self._idle or self._apart:
            connection.close()
            return

    async def _await_connection(self, seconds: float | None) -> Connection | None:
        """A connection that another has done with; None: the right to open one."""
        while not self._closed:
            waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = None
            try:
                async with asyncio.timeout(seconds):
                    connection = await waiter
            except BaseException as error:
                self._waiting.pop(waiter, None)
                if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                    self._give_to_waiter(waiter.result())
                if isinstance(error, TimeoutError):
                    raise PoolTimeoutError("every connection to the origin stayed in use") from None
                raise
            if connection is not None and connection.unread(0):
                connection.close()
            if connection is None or not connection.closed:
                return connection
        raise ConnectError("the transport was closed")

    def _give_to_waiter(self, connection: Connection | None) -> None:
        """Give `connection`, or with None the right to open one, to the request that has waited longest."""
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection is None:
            self._free += 1
        elif not connection.closed:
            self.put_back(connection)


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
