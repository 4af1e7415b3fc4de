"""The listener, which all its connections share, and the bounds on a head, for every version of HTTP."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from univocal.http.framing import ReadLimits, faults, field_octets
from univocal.http.grammar import split_absolute
from univocal.http.messages import Fields, Received, values
from univocal.http.problem import Problem, problem
from univocal.server.bounds import READ_LIMITS, Bounds
from univocal.server.clients import Clients
from univocal.server.complaints import COMPLAINTS
from univocal.server.peer import ClientPeer
from univocal.server.turn import Service

# Reasons that one client gives for many connections: each is said once, by `Clients`.
_SAID: Final = frozenset(("too-many-requests", "overloaded"))


class Listener:
    """The service behind a listener, the bounds on requests, and the clients.

    `tell` hears of each request that no responder gets: all that is known of it, and the reasons. `ticks` are
    seconds that never go back, by which a connection has no more than its part of a turn of the event loop.
    `serves` tells whether a host, as a Host field has it, is served here; None: all are.
    """

    __slots__ = ("bounds", "clients", "serves", "service", "tell", "ticks")

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

    def beside(self, serves: Callable[[bytes], bool]) -> Listener:
        """A listener for other hosts, which shares all else with this one."""
        other = Listener(self.service, tell=self.tell, clients=self.clients, ticks=self.ticks)
        other.bounds, other.serves = self.bounds, serves
        return other

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

    def refuse(self, received: Received | None, reasons: Sequence[str]) -> Problem:
        """Take note that a request gets no responder; returns what its client is answered.

        None: a responder has had it, and tells of it.
        """
        if reasons[0] not in _SAID:
            COMPLAINTS.note(f"Refused a request: {', '.join(reasons)}")
        if self.tell is not None and received is not None:
            self.tell(received, tuple(reasons))
        return problem(reasons)


def _hosts(target: bytes, fields: Fields) -> list[bytes]:
    """The hosts that a request names: by Host fields, and by its target (RFC 9112 §3.2)."""
    absolute = None if target[:1] == b"/" else split_absolute(target)
    return [*values(fields, b"host"), *([] if absolute is None else [absolute.authority])]
