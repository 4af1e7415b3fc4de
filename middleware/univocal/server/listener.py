"""The listener, and the part of its clients' connections that no version of HTTP or TLS changes."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import struct
import sys
import termios
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from univocal.http.bonds import Bond
from univocal.http.framing import faults, field_octets
from univocal.http.grammar import split_absolute
from univocal.http.messages import Fields, Received, values
from univocal.http.problem import Problem, problem
from univocal.judge.admission import Plan, ordinary_plan
from univocal.judge.trust import Networks, within
from univocal.server.clients import ClientPeer, Clients, ReadLimits, Refusal, peer_of
from univocal.server.turn import Service, Uvicorn, under_uvicorn

READ_LIMITS: Final = ReadLimits()

# Bytes parsed at once. While a response is under way the next requests wait unparsed, so that what one
# connection has had parsed ahead is bounded by this and not by what the kernel had ready.
PIECE: Final = 16384


class Bounds:
    """The limits on requests, and what follows from them.

    A head of at most `longest_glance` bytes and `most_fields` fields is within all limits. More than
    `max_silence` bytes (0: any number) that take a head or a chunk's frame no further are too many.
    """

    def __init__(self, limits: ReadLimits = READ_LIMITS) -> None:
        self.change(limits)

    def change(self, limits: ReadLimits) -> None:
        """Have these limits from now on; a wait that has begun goes on as it is."""
        self.limits = limits
        bounded = limits.max_target and limits.max_field_bytes
        # Bytes that take a head, or a chunk's frame, no further.
        self.max_silence = limits.max_target + limits.max_field_bytes + PIECE if bounded else 0
        # A head of so few bytes and fields is within all bounds.
        self.longest_glance = min([PIECE, *filter(None, (limits.max_target, limits.max_field_bytes // 2))])
        self.most_fields = limits.max_fields or PIECE


MOST: Final = 10
"""The number of complaints that are written in `SPAN`."""

SPAN: Final = 60.0
"""Seconds."""


class Complaints:
    """Writes warnings of what clients do, `MOST` of them in `SPAN` seconds, and counts those beyond."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._since = float("-inf")
        self._written = self._unwritten = 0

    def note(self, complaint: str) -> None:
        """Write a complaint, or count it."""
        now = self._clock()
        if now - self._since >= SPAN:
            if self._unwritten:
                self._logger.warning("%d more like these were not written", self._unwritten)
            self._since, self._written, self._unwritten = now, 0, 0
        if self._written == MOST:
            self._unwritten += 1
            return
        self._written += 1
        last = f" (more within {SPAN:.0f} s are counted, not written)" if self._written == MOST else ""
        self._logger.warning("%s%s", complaint, last)


COMPLAINTS: Final = Complaints(logging.getLogger("uvicorn.error"))
"""The complaints about all clients of this process."""


# Reasons that one client gives for many connections: each is said once, by `Clients`.
_SAID: Final = frozenset(("too-many-requests", "overloaded"))


class Listener:
    """The service behind a listener, the bounds on requests, and the clients.

    `tell` hears of each request that no responder gets: all that is known of it, and the reasons. `ticks` are
    seconds that never go back, by which a connection has no more than its part of the loop's iteration.
    `serves` tells whether a host, as a Host field has it, is served here; None: all are. `proxies` are those
    that are trusted here. Requests carry the `name`, by which the listener's own settings are found.
    """

    def __init__(
        self,
        service: Service,
        limits: ReadLimits = READ_LIMITS,
        tell: Callable[[Received, tuple[str, ...]], None] | None = None,
        clients: Clients | None = None,
        ticks: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.service = service
        self.tell = tell
        self.clients = Clients() if clients is None else clients
        self.bounds = Bounds(limits)
        self.ticks = ticks
        self.serves: Callable[[bytes], bool] | None = None
        self.proxies: Callable[[], Networks] = tuple
        self.name = ""

    def beside(
        self, name: str, proxies: Callable[[], Networks], serves: Callable[[bytes], bool] | None
    ) -> Listener:
        """A listener with settings of its own, which shares all else with this one."""
        other = Listener(self.service, tell=self.tell, clients=self.clients, ticks=self.ticks)
        other.bounds, other.serves, other.proxies, other.name = self.bounds, serves, proxies, name
        return other

    def is_proxy(self, address: str | None, *, introduced: bool) -> bool:
        """Tell whether a peer is trusted; a client that a PROXY header introduced is not."""
        return not introduced and within(address, self.proxies())

    def faults(
        self,
        received: Received,
        fields: Fields,
        peer: ClientPeer,
        watched: Fields | None = None,
        octets: int = sys.maxsize,
    ) -> list[str]:
        """The reasons to refuse a head at once, the first of them by rank; none: it may have its turn.

        `watched` are the fields that `framing.WATCHED` names, where they have been set aside. `octets` is the
        largest size of all fields, in bytes, where that is known.
        """
        limits, target = self.bounds.limits, received.target
        framing = fields if watched is None else watched
        # RFC 9113 §8.1: HTTP/2 says of a message's end what its frames say, and has fields as HTTP/1.1 has.
        version = "1.1" if received.version == b"2" else received.version.decode()
        reasons = [*faults(received.method, target, version, framing)]
        if 0 < limits.max_target < len(target):
            reasons.append("target-too-long")
        # RFC 9110 §7.4: over another connection it may be known.
        if peer.suits is not None and not all(map(peer.suits, _hosts(target, fields))):
            reasons.append("unknown-host")
        many = 0 < limits.max_fields < len(fields)
        if many or (0 < limits.max_field_bytes < octets and field_octets(fields) > limits.max_field_bytes):
            reasons.append("fields-too-large")
        return reasons

    def refuse_head(self, received: Received, fields: Fields, reasons: Sequence[str]) -> Problem:
        """Handle a head that gets no responder; of its target so much is told as a target may have."""
        hosts = values(fields, b"host")
        received.host = hosts[0] if len(hosts) == 1 else b""
        received.target = received.target[: self.bounds.limits.max_target or None]
        return self.refuse(received, reasons)

    def refuse(self, received: Received, reasons: Sequence[str]) -> Problem:
        """Handle a request without a responder; returns the answer to its client."""
        self.complain(reasons)
        if self.tell is not None:
            self.tell(received, tuple(reasons))
        return problem(reasons, request_id=received.request_id)

    def complain(self, reasons: Sequence[str]) -> None:
        """Log that a request is refused."""
        if reasons[0] not in _SAID:
            COMPLAINTS.note(f"Refused a request: {', '.join(reasons)}")


class Delivery:
    """Watches what waits to be sent over one transport: whether anything of it moves in so many `seconds`.

    None: it is never looked at. It need not be watched while the transport takes more, so it costs nothing
    while the client reads.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, bounds: Bounds) -> None:
        self._transport = transport
        self._loop = loop
        self._bounds = bounds
        self._timer: asyncio.TimerHandle | None = None
        self._before = 0  # bytes that the client had not taken yet when it was last looked
        self._moved = False  # since then the transport has taken more

    @property
    def seconds(self) -> float | None:
        """Seconds in which a client takes something; None: it has all time."""
        return self._bounds.limits.send_timeout or None

    def watch(self, give_up: Callable[[], None]) -> None:
        """Look from time to time, as long as something waits; `give_up` is called once nothing of it moves.

        The timer alone holds `give_up`, which belongs to the connection that holds this object.
        """
        seconds = self.seconds
        if self._timer is None and seconds:
            self._moved = False
            self._before = self._untaken()
            self._timer = self._loop.call_later(seconds, self._look, give_up)

    def moved(self) -> None:
        """Note that the client has taken something."""
        self._moved = True

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, give_up: Callable[[], None]) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        if self._moved or self._untaken() < self._before:
            self.watch(give_up)
        else:
            give_up()

    def _untaken(self) -> int:
        """The bytes that the client has not confirmed: those that wait here and in the system's queue.

        A transport reports free room in that queue late. A slow client may need longer than its timeout until
        then.
        """
        waiting = self._transport.get_write_buffer_size()
        socket = self._transport.get_extra_info("socket")
        if socket is None or sys.platform != "linux":
            return waiting
        try:
            queued = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return waiting
        return waiting + int(struct.unpack("i", queued)[0])


class ClientConnection(asyncio.Protocol):
    """The part of a client's connection that does not depend on the version of HTTP: an `Evictable`."""

    transport: asyncio.Transport
    peer: ClientPeer

    def __init__(self, listener: Listener, uvicorn: Uvicorn) -> None:
        self.listener = listener
        self._config, self._state, _, self._loop = uvicorn
        # uvicorn's 0 is no time, not all time.
        self._keep_alive: float = max(self._config.timeout_keep_alive, 0.001)
        self._delivery: Delivery
        self._is_proxy = False
        self._bond: Bond | None = None  # of HTTP/1.1; None: the connection is not one client's
        self._suited: bytes | None = None  # the last host that did, since the last reload
        self._refusal_reason = ""  # the reason for which this is one connection too many
        self.rested = 0.0  # the loop's time since which no request is under way, if none is

    @classmethod
    def of(cls, listener: Listener) -> type[asyncio.Protocol]:
        """The connections of a listener, for uvicorn's `http` setting."""
        return under_uvicorn(partial(cls, listener))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        listener = self.listener
        self.transport = transport
        self.peer = peer = peer_of(transport, listener.serves)
        self._delivery = Delivery(transport, self._loop, listener.bounds)
        self._state.connections.add(self)
        self.rested = self._loop.time()
        self._is_proxy = listener.is_proxy(peer.address, introduced=peer.introduced)
        self._refusal_reason = listener.clients.enter(self, peer.address, is_proxy=self._is_proxy)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._state.connections.discard(self)
        self.listener.clients.leave(self)
        self._delivery.stop()

    def _received(self, method: bytes, target: bytes, version: bytes) -> Received:
        """A request line that has come by this connection."""
        peer = self.peer
        return Received(
            method,
            target,
            peer.scheme,
            peer.address,
            version,
            introduced=peer.introduced,
            bond=self._bond,
            certificate=peer.certificate,
            listener=self.listener.name,
        )

    def _plan(self, names: tuple[bytes, ...], values: tuple[bytes, ...]) -> Plan | None:
        """The plan for a GET with these fields; None if it may not be answered at a glance here."""
        plan, suits = ordinary_plan(names, values), self.peer.suits
        if plan is None or self._refusal_reason or len(values) > self.listener.bounds.most_fields:
            return None
        host = values[plan.host]
        if suits is not None and host != self._suited:
            if not suits(host):
                return None
            self._suited = host
        return plan

    def _refusal_reasons(self) -> tuple[str, ...]:
        """The reasons for which the connection is not for any request."""
        if self._refusal_reason:
            self._refusal_reason = self.listener.clients.refusal_reason(self)
        return (self._refusal_reason,) if self._refusal_reason else ()

    def is_resting(self) -> bool:
        """Tell whether no request is under way."""
        raise NotImplementedError

    def evict(self) -> None:
        """Close, for another client that has come."""
        raise NotImplementedError


class Newcomer(asyncio.Protocol):
    """A connection before its protocol has it: an `Evictable`, for as long as a request's head may take.

    `refusal` is the answer to a client that gets no protocol.
    """

    below: asyncio.Transport  # the socket's

    def __init__(self, uvicorn: Uvicorn, listener: Listener, scheme: bytes) -> None:
        self._uvicorn = uvicorn  # for the protocol that takes the connection over, too
        self._loop = uvicorn.loop
        self._connections = uvicorn.state.connections
        self._listener = listener
        self._scheme = scheme
        self._address: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.refusal: Refusal | None = None
        self.rested = self._loop.time()

    def enter(self, address: str | None, *, introduced: bool = False) -> None:
        """Stand among the clients, and begin to wait."""
        self._address = address
        self._connections.add(self)
        listener = self._listener
        listener.clients.enter(self, address, is_proxy=listener.is_proxy(address, introduced=introduced))
        if timeout := listener.bounds.limits.header_timeout:
            self._timer = self._loop.call_later(timeout, self._late)

    def part(self) -> None:
        """Leave: the connection is lost, or its protocol has it."""
        self._listener.clients.leave(self)
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refuse(self, complaint: str, reason: str, scheme: bytes = b"", *, answers: bool = True) -> None:
        """End the connection: with a problem by HTTP if it `answers`."""
        COMPLAINTS.note(complaint)
        request_id = self._tell(reason, scheme or self._scheme)
        self.part()
        if answers:
            self.refusal = Refusal(self.below, self._loop, (reason,), request_id)
            self._timer = self.refusal.timer
        else:
            self.below.abort()

    def _late(self) -> None:
        self._tell("request-timeout", self._scheme)
        self.below.abort()

    def _tell(self, reason: str, scheme: bytes) -> bytes:
        """Tell of a connection without a request; returns the name that it has for one."""
        received = Received(b"", b"", scheme, self._address)
        if self._listener.tell is not None:
            self._listener.tell(received, (reason,))
        return received.request_id

    def is_resting(self) -> bool:
        """A connection without a request makes room for others."""
        return True

    def evict(self) -> None:
        """Close, for another client that has come."""
        self.below.abort()

    def shutdown(self) -> None:
        """Close, as the server ends: uvicorn calls this."""
        self.below.abort()


def _hosts(target: bytes, fields: Fields) -> list[bytes]:
    """The hosts that a request names: by Host fields, and by its target (RFC 9112 §3.2)."""
    absolute = None if target[:1] == b"/" else split_absolute(target)
    return [*values(fields, b"host"), *([] if absolute is None else [absolute.authority])]
