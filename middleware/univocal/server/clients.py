"""The client at the other end of a connection, and all connections: how many, and which is closed first.

Which connection has been longest without a request under way is found out only when one must go: each is
noted with the time at which it was last known to rest, the earliest first, and is asked then. So a request
that is answered costs nothing here. A `Scheduler` leaves others time in each iteration of the loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from email.utils import formatdate
from enum import Enum
from typing import Final, NamedTuple, Protocol

from univocal.http.messages import ClientCertificate
from univocal.http.problem import problem
from univocal.http.settings import count, duration, setting, size
from univocal.http.tables import moves
from univocal.judge.runtime import MAX_FIELDS, MAX_TARGET
from univocal.judge.trust import ClientCounts, client_name, parsed_address

ITERATION_SHARE: Final = 0.002
"""Seconds that one connection has of an iteration of the event loop."""


class SchedulerState(Enum):
    """The states of a scheduler."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    RESTING = "the connection has nothing to do"
    WORKING = "it works"
    WAITING = "it goes on in the next iteration of the event loop"


_RESTING: Final = SchedulerState.RESTING
_WORKING: Final = SchedulerState.WORKING
_WAITING: Final = SchedulerState.WAITING

MOVES: Final[Mapping[SchedulerState, Mapping[SchedulerState, str]]] = {
    SchedulerState.RESTING: {SchedulerState.WORKING: "`run`", SchedulerState.WAITING: "`go_on_later`"},
    SchedulerState.WORKING: {SchedulerState.RESTING: "nothing is left to do, or the time is over"},
    SchedulerState.WAITING: {SchedulerState.RESTING: "the next iteration of the event loop comes"},
}
"""The states that may follow each state, and what causes the move."""

_MOVES: Final = moves(MOVES)


class Scheduler:
    """Lets a connection work for `most` steps or `ITERATION_SHARE`; calls `go_on` if there is more to do.

    `step` works, and returns how many steps that took. 0: nothing is left to do; -1: the rest has to wait.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ticks: Callable[[], float],
        most: int,
        step: Callable[[], int],
        go_on: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._ticks = ticks  # seconds that never go back
        self._most = most
        self._step: Callable[[], int] | None = step
        self._continue: Callable[[], None] | None = go_on
        self._handle: asyncio.Handle | None = None
        self.state = _RESTING

    def run(self) -> bool:
        """Work, unless that is under way or waits for the next iteration; True: nothing is left to do."""
        self.state = _MOVES[self.state, _WORKING]
        left, ticks, step = self._most, self._ticks, self._step
        end = ticks() + ITERATION_SHARE
        try:
            while left > 0 and step is not None and ticks() < end:
                steps = step()
                if steps <= 0:
                    return steps == 0
                left -= steps
        finally:
            self.state = _MOVES[self.state, _RESTING]
        return False

    def go_on_later(self) -> None:
        """Go on in the next iteration, behind the others, unless that is to be anyway."""
        if self.state is not _WAITING:
            self.state = _MOVES[self.state, _WAITING]
            self._handle = self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._handle = None
        self.state = _MOVES[self.state, _RESTING]
        if self._continue is not None:
            self._continue()

    def stop(self) -> None:
        """Go on no more, and let go of the connection: circles wait for the garbage collector."""
        self._continue = self._step = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


# The name by which a transport tells what `Certificates.suits` gave for it.
SUITS: Final = "univocal.suits"
# The name by which a transport tells that a PROXY header named the client.
INTRODUCED: Final = "univocal.introduced"
# The name by which a transport tells the client's certificate, where it was asked for one and showed it.
CERTIFICATE: Final = "univocal.certificate"


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
    certificate: ClientCertificate | None = None


def peer_of(transport: asyncio.BaseTransport, serves: Callable[[bytes], bool] | None = None) -> ClientPeer:
    """The ends of a connection, as asyncio knows them; a Unix socket's have no port.

    `serves` tells which hosts the listener serves; None: all.
    """
    name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    client = (as_ipv4(str(name[0])), int(name[1])) if isinstance(name, tuple) else None
    server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else (own, None) if own else None
    scheme = b"https" if transport.get_extra_info("sslcontext") else b"http"
    address = None if client is None else client[0]
    suits = _both(transport.get_extra_info(SUITS), serves)
    introduced = bool(transport.get_extra_info(INTRODUCED))
    certificate = transport.get_extra_info(CERTIFICATE)
    return ClientPeer(client, address, server, scheme, suits, introduced, certificate)


def as_ipv4(address: str) -> str:
    """The address of a client of IPv4 at a socket for both families (RFC 4291 §2.5.5.2), as IPv4."""
    return str(parsed_address(address)) if address.startswith("::ffff:") else address


def _both(
    suits: Callable[[bytes], bool] | None, serves: Callable[[bytes], bool] | None
) -> Callable[[bytes], bool] | None:
    """The hosts that suit the certificate and are served by the listener."""
    if suits is None or serves is None:
        return suits or serves
    return lambda host: suits(host) and serves(host)


def is_gone(transport: asyncio.Transport) -> bool:
    """Tell whether the client has reset the connection or closed all of it, as far as the system knows.

    A transport whose client sends no more reads nothing, and does not hear of that.
    """
    socket = transport.get_extra_info("socket")
    if socket is None or sys.platform != "linux":
        return False
    poll = select.poll()
    poll.register(socket.fileno(), 0)  # errors and the end of both directions are told unasked
    return bool(poll.poll(0))


LINGER: Final = 2.0  # seconds in which a client may still read why it was refused (RFC 9112 §9.6)
LINGER_BYTES: Final = 1024 * 1024  # that it may still send meanwhile; they are neither parsed nor kept


class Refusal:
    """An answer by HTTP/1.1 that is the last: its client may read it, and then the connection ends.

    The caller hands over what still comes, and cancels the `timer` when the connection is lost.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        reasons: Sequence[str],
        request_id: bytes = b"",
    ) -> None:
        answer = problem(reasons, request_id=request_id)
        lines = [b"HTTP/1.1 %b\r\ndate: %b\r\n" % (answer.status_line, formatdate(usegmt=True).encode())]
        lines += [b"%b: %b\r\n" % field for field in answer.fields]
        transport.write(b"".join([*lines, b"connection: close\r\n\r\n", answer.body]))
        if transport.can_write_eof():
            transport.write_eof()
        self._transport = transport
        self._left = LINGER_BYTES
        self.timer = loop.call_later(LINGER, transport.abort)

    def discard(self, octets: int) -> None:
        """Drop received bytes; close the connection of a client that sends too many."""
        self._left -= octets
        if self._left < 0:
            self._transport.abort()


logger: Final = logging.getLogger("univocal")

# Connections that are looked at, at most, for each one that comes: a millisecond's work.
_MOST_LOOKED_AT: Final = 1_000
# The time noted of one that is to be refused: it is the first to give way.
_FIRST: Final = -math.inf


MIN_RATE: Final = 100  # bytes of a request's content a second, averaged over `content_timeout`


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds on what is read of one request, and on its pace; 0 is no limit. Numbers are inclusive."""

    max_target: int = MAX_TARGET.field()
    max_fields: int = MAX_FIELDS.field()
    max_field_bytes: int = setting(65536, size)  # of all field lines together: name, ": ", value, CRLF
    # Seconds to the head's end, from its first byte or the connection.
    header_timeout: float = setting(15, duration)
    # Seconds in which content that is waited for comes, MIN_RATE for each.
    content_timeout: float = setting(60, duration)
    send_timeout: float = setting(60, duration)  # seconds in which a client takes a byte of what it is sent
    # Seconds for which a client that sends no more is answered (RFC 9112 §9.6); 0: it has left.
    half_closed_timeout: float = 0.0

    def __reduce__(self) -> tuple[type[ReadLimits], tuple[object, ...]]:
        """Be made anew in another process: a frozen class cannot be filled there."""
        return ReadLimits, tuple(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds on the connections of clients; 0 is no limit."""

    connections: int = setting(0, count, "max_connections")  # of all of them
    per_client: int = setting(0, count, "max_connections_per_client")  # of one address


class Evictable(Protocol):
    """A client's connection, as far as it matters here."""

    rested: float  # the loop's time since which no request is under way, if none is

    def is_resting(self) -> bool:
        """Tell whether no request is under way; one whose head is not complete is not."""
        ...

    def evict(self) -> None:
        """Close, for another that has come."""


class Clients:
    """The connections of clients, and those of proxies, which stand for many clients each."""

    def __init__(self, limits: ConnectionLimits = ConnectionLimits()) -> None:
        self.limits = limits
        self._connections: dict[Evictable, str] = {}  # and the name of each client, if it counts
        self._of = ClientCounts()
        self._noted: list[tuple[float, int, Evictable]] = []
        self._number = 0
        self._said = set[str]()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: Evictable, address: str | None, *, is_proxy: bool = False) -> str:
        """Take in a connection, in another's place if there are too many.

        Returns the reason for which its request will be refused, "" for none; ask `refusal_reason` by then.
        A proxy's connection does not count for `per_client`.
        """
        limits = self.limits
        if 0 < limits.connections <= len(self._connections):
            self._say("max_connections", limits.connections, "those longest without a request give way")
            self._make_room(connection.rested)
        name = client_name(address) if limits.per_client > 0 and not is_proxy else ""
        self._connections[connection] = name
        if name:
            self._of.add(name)
        reason = self.refusal_reason(connection)
        if reason == "too-many-requests":
            self._say("max_connections_per_client", limits.per_client, "further ones get 429")
        self._note(_FIRST if reason else connection.rested, connection)
        return reason

    def leave(self, connection: Evictable) -> None:
        """Remove a connection that is closed or handed over; a second time does nothing."""
        name = self._connections.pop(connection, None)
        if name:
            self._of.remove(name)
        if not self._connections:
            self._noted.clear()  # the last one may be all that knows of these clients: no circle is left
        elif len(self._noted) > 2 * len(self._connections) + 100:
            self._noted = [each for each in self._noted if each[2] in self._connections]
            heapq.heapify(self._noted)
        if len(self._connections) * 2 < self.limits.connections:
            self._said.discard("max_connections")

    def refusal_reason(self, connection: Evictable) -> str:
        """The reason for which a connection is one too many, "" if it is not, or no longer."""
        limits, name = self.limits, self._connections.get(connection, "")
        if name and self._of.of(name) > limits.per_client:
            return "too-many-requests"
        return "overloaded" if 0 < limits.connections < len(self._connections) else ""

    def _make_room(self, now: float) -> None:
        """Close the connections above the limit that have been idle for longest."""
        for _ in range(_MOST_LOOKED_AT):
            if not self._noted:
                return
            noted, _, connection = heapq.heappop(self._noted)
            if connection not in self._connections:
                continue
            if not connection.is_resting():
                self._note(now, connection)
                if noted >= now:
                    return  # all have been asked
            elif connection.rested > noted and not (noted == _FIRST and self.refusal_reason(connection)):
                self._note(connection.rested, connection)
            else:
                self.leave(connection)
                connection.evict()
                if len(self._connections) < self.limits.connections:
                    return

    def _note(self, since: float, connection: Evictable) -> None:
        self._number += 1
        heapq.heappush(self._noted, (since, self._number, connection))

    def _say(self, setting: str, limit: int, what: str) -> None:
        if setting not in self._said:
            self._said.add(setting)
            logger.warning("%s = %d is reached: %s (logged once)", setting, limit, what)
