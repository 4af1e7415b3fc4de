"""Origin servers: one, with its URL and the requests to it, and the balance of several of one application.

A balance knows whose turn it is, and who is out of service for a while. It has no sockets and no clock: `now`
is an argument, in seconds of a clock that never goes back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

from univocal.http.compiling import mypyc_attr
from univocal.http.errors import ConfigurationError
from univocal.http.grammar import split_absolute
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.http.settings import count, duration, number, one_of, positive, setting
from univocal.http.tables import moves
from univocal.origin.addresses import SERVICES, is_name, lacks_services, origin_url, written
from univocal.origin.failures import ConnectError, ConnectTimeoutError, Timeouts, origin_failure

if TYPE_CHECKING:
    from univocal.origin.client_library import ForeignWay, httpx
    from univocal.origin.pool import Endpoint, OriginConnections


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
        from univocal.origin.pool import Endpoint, OriginConnections  # noqa: PLC0415

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


SPAN: Final = 10  # seconds, counted whole
ALWAYS: Final = 3  # retries that need not be earned


class RetryBudget:
    """Grants retries: `share` of the requests of the last ten seconds, and always three.

    `now` is in seconds of a clock that never goes back.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._second = 0
        # By second, modulo their number.
        self._requests = [0] * SPAN
        self._retries = [0] * SPAN

    def earn(self, now: float) -> None:
        """Count a request."""
        second = int(now)
        if second != self._second:
            self._roll(second)
        self._requests[second % SPAN] += 1

    def spend(self, now: float) -> bool:
        """Count a retry, if there may be one more."""
        second = int(now)
        if second != self._second:
            self._roll(second)
        if sum(self._retries) >= max(ALWAYS, int(self._share * sum(self._requests))):
            return False
        self._retries[second % SPAN] += 1
        return True

    def _roll(self, second: int) -> None:
        """Forget what was counted more than `SPAN` seconds ago."""
        for gone in range(max(self._second, second - SPAN) + 1, second + 1):
            self._requests[gone % SPAN] = self._retries[gone % SPAN] = 0
        self._second = second


Server = TypeVar("Server")

_STICKY: Final = re.compile(r"cookie:[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token (RFC 6265 §4.1.1)
_BITS: Final = 52  # of a hash: half of one more is still a float of its own, and below 1


def _stickiness(value: object) -> str:
    if isinstance(value, str) and (value in {"", "cookie"} or _STICKY.fullmatch(value)):
        return value
    raise ValueError('"", "cookie", or "cookie:NAME" with the name of a cookie that the application sets')


@dataclass(frozen=True, slots=True)
class Balancing:
    """The settings: `retries` of a request; `fails` failures in a row eject for `eject` seconds.

    `sticky` keeps a client at one origin server: "" for no client, "cookie" for all, "cookie:NAME" for those
    with the application's cookie NAME. A name is looked up again after `resolve` seconds.
    """

    choice: Literal["round-robin", "least-requests", "hash"] = setting(
        "least-requests", one_of("round-robin", "least-requests", "hash")
    )
    retries: int = setting(1, count)
    retry_budget: float = setting(0.2, number)
    fails: int = setting(3, positive)
    eject: float = setting(10, duration)
    sticky: str = setting("", _stickiness)
    resolve: float = setting(5, duration)

    def of_no_client(self) -> Balancing:
        """The same, for requests of our own: no client is kept at a server."""
        return replace(self, choice="least-requests", sticky="")


class MemberState(Enum):
    """The states of an origin server; a member is in one of the first four."""

    UP = "up"
    FAILING = "failing"  # it has failed too often, and gets requests all the same: no other is better
    EJECTED = "ejected"  # it has failed too often, in the requests of clients
    DOWN = "down"  # its health checks say so
    DRAINING = "draining"  # an operator has taken it out: it gets no new request
    BACKUP = "backup"  # it is up, and waits until no other is


BACKUP: Final = 1 << 16
"""The rank of a backup; that of a service's record is below."""

MOVES: Final[Mapping[MemberState, Mapping[MemberState, str]]] = {
    MemberState.UP: {
        MemberState.FAILING: "the last one that is up has failed too often",
        MemberState.EJECTED: "it has failed too often, and another is up",
        MemberState.DOWN: "its health checks say so",
    },
    MemberState.FAILING: {
        MemberState.UP: "it answers",
        MemberState.EJECTED: "another is up again",
        MemberState.DOWN: "its health checks say so",
    },
    MemberState.EJECTED: {MemberState.UP: "it answers", MemberState.DOWN: "its health checks say so"},
    MemberState.DOWN: {MemberState.UP: "its health checks say so"},
}
"""The states that may follow each state by what is found here, and what causes the move.

`adopt` begins any state: that is another process's finding.
"""

_MOVES: Final = moves(MOVES)
_POOR: Final = (MemberState.FAILING, MemberState.EJECTED)


class Member(Generic[Server]):
    """One origin server of a balance, its state and its numbers.

    `name` identifies it permanently: a hash chooses by it, in every process alike. `since` is when its state
    began, `reason` why: one word, or a status. `is_drained` is a setting of operators, `state` is what
    requests and checks have found; `condition` is one word for all of that. One of a higher `rank` is a
    backup: it is asked while none of a lower rank is up.
    """

    def __init__(
        self, server: Server, name: str, weight: int = 1, now: float = 0.0, *, is_backup: bool = False
    ) -> None:
        self.become(server, name)
        self.weight = weight
        self.rank = BACKUP if is_backup else 0
        self.is_drained = False
        self.state = MemberState.UP
        self.since = now
        self.reason = ""
        self.requests = self.failures = self.under_way = 0
        self.row = 0  # failures since the last answer
        self.until = math.inf  # the end of its ejection
        self.trial: object = None  # the one request that tries it after that
        self.credit = 0  # the member with the most is chosen next (round-robin)

    def become(self, server: Server, name: str) -> None:
        """Stand for `server` from now on; the state and the numbers stay."""
        self.server, self.name = server, name
        self._secret = blake2b(name.encode()).digest()

    @property
    def tag(self) -> bytes:
        """The name that clients see: of so few bits that it tells no address."""
        return self._secret[:2].hex().encode()

    @property
    def condition(self) -> MemberState:
        """The state that operators are shown."""
        if self.is_drained:
            return MemberState.DRAINING
        is_waiting = self.rank > 0 and self.state is MemberState.UP
        return MemberState.BACKUP if is_waiting else self.state

    def score(self, key: bytes) -> float:
        """Its claim on a cache key: the highest of all members' wins (weighted rendezvous hashing)."""
        hashed = int.from_bytes(blake2b(key, digest_size=8, key=self._secret).digest()) >> 64 - _BITS
        return -self.weight / math.log((hashed + 0.5) / 2**_BITS)

    def enter(self, state: MemberState, now: float) -> None:
        """Move to a state."""
        self.begin(_MOVES[self.state, state], now)

    def begin(self, state: MemberState, now: float) -> None:
        """Be in a state from now on, whatever it was in before."""
        self.state, self.since = state, now
        self.until, self.trial = math.inf, None


class Balance(Generic[Server]):
    """Chooses among `members` and records how they answer.

    `take` counts a request, `another` a retry. For each member that they return, the caller reports
    `answered` when a response's head is there, or `failed`, and at last `ended`. An answer is news only of a
    member that has failed since its last one: see its `row`.

    Members change at any time. `change` takes the new ones: members that are the same objects keep their
    state and numbers. A removed member may still serve, and its answers are still reported. `mark` reports a
    health check. A server that is marked down or drained gets no request, a backup none while another is up.
    Failures eject a member, but never the last one. While none is up, all members that are not down are tried
    as if none were ejected. `changed` hears of each member whose state answers and failures have changed.
    """

    def __init__(self, members: Iterable[Member[Server]], settings: Balancing | None = None) -> None:
        self.settings = settings or Balancing()
        self._members = tuple(members)
        self._has_backups = any(each.rank for each in self._members)
        self.changed: Callable[[Member[Server]], None] | None = None
        self._budget = RetryBudget(self.settings.retry_budget)

    @classmethod
    def alone(cls, server: Server, name: str = "") -> Balance[Server]:
        """One origin server, which gets every request."""
        return cls([Member(server, name)])

    @property
    def members(self) -> tuple[Member[Server], ...]:
        """The origin servers, in their order."""
        return self._members

    def change(self, members: Iterable[Member[Server]], now: float) -> None:
        """Have these members from now on."""
        self._members = tuple(members)
        self._has_backups = any(each.rank for each in self._members)
        self._eject(now)

    def mark(self, member: Member[Server], now: float, *, up: bool, reason: str = "") -> None:
        """Record a health check's result and reason; it ends no ejection."""
        if up is not (member.state is MemberState.DOWN):
            return
        member.row, member.reason = 0, reason
        member.enter(MemberState.UP if up else MemberState.DOWN, now)
        self._eject(now)

    def adopt(self, member: Member[Server], state: MemberState, since: float, reason: str) -> None:
        """Have a member in the state that another process has found."""
        member.row, member.reason = self.settings.fails if state in _POOR else 0, reason
        member.begin(state, since)
        if state is MemberState.EJECTED:
            member.until = since + self.settings.eject

    # Called by attempts.

    def take(self, asker: object, key: bytes, now: float, tag: bytes = b"") -> Member[Server] | None:
        """The member to ask, that with this tag if it is up; None while all are down or drained."""
        members = self._members
        if len(members) == 1 and members[0].state is MemberState.UP and not members[0].is_drained:
            member = members[0]
            member.requests += 1
            member.under_way += 1
            return member
        self._budget.earn(now)
        chosen = self._tagged(tag) if tag else None
        chosen = chosen or self._choose(key, now, ())
        return None if chosen is None else self._give(asker, chosen)

    def another(
        self,
        asker: object,
        key: bytes,
        now: float,
        tried: Collection[Member[Server]],
        retries: int | None = None,
    ) -> Member[Server] | None:
        """The member to ask after those that failed; None if there is none, or no retry is left.

        `retries` are those of this request, in place of the balance's.
        """
        if len(tried) > (self.settings.retries if retries is None else retries):
            return None
        member = self._choose(key, now, tried)
        if member is None or not self._budget.spend(now):
            return None
        return self._give(asker, member)

    def answered(self, member: Member[Server], now: float) -> None:
        """A response's head has come: whatever it says, the origin server is there."""
        if member.row or member.state in _POOR:
            member.row = 0
            if member.state in _POOR:
                member.reason = ""
                self._enter(member, MemberState.UP, now)
            self._eject(now)  # who was spared as the last one is that no more

    def failed(self, member: Member[Server], now: float, reason: str = "") -> None:
        """No head has come, or none that can be read: the reason is a word."""
        member.failures += 1
        member.row += 1
        if member.state is MemberState.DOWN:
            return
        if member.row >= self.settings.fails or member.state is MemberState.EJECTED:
            member.reason = reason
        if member.state is MemberState.EJECTED:
            member.until = now + self.settings.eject
        elif member.row >= self.settings.fails:
            self._eject(now)
            if member.state is MemberState.UP:  # as the last one
                self._enter(member, MemberState.FAILING, now)

    def moved(self, asker: object, member: Member[Server], to: Member[Server], now: float) -> None:
        """A request goes to another member, where a connection was to be had sooner: so the first failed."""
        self.failed(member, now, "timeout")
        self.ended(asker, member)
        self._give(asker, to)

    def ended(self, asker: object, member: Member[Server]) -> None:
        """The request is over, answered or not."""
        member.under_way -= 1
        if member.trial is asker:
            member.trial = None

    # Its own.

    def _able(self, member: Member[Server]) -> bool:
        """True of one that is up, and has not failed so often that only its being the last spared it."""
        return member.state is MemberState.UP and member.row < self.settings.fails and not member.is_drained

    def _tagged(self, tag: bytes) -> Member[Server] | None:
        return next((each for each in self._members if each.tag == tag and self._able(each)), None)

    def _eject(self, now: float) -> None:
        """Eject who has failed too often, as long as somebody is able."""
        if any(map(self._able, self._members)):
            for member in self._members:
                is_there = member.state in (MemberState.UP, MemberState.FAILING)
                if is_there and member.row >= self.settings.fails:
                    self._enter(member, MemberState.EJECTED, now)
                    member.until = now + self.settings.eject

    def _enter(self, member: Member[Server], state: MemberState, now: float) -> None:
        member.enter(state, now)
        if self.changed is not None:
            self.changed(member)

    def _choose(self, key: bytes, now: float, tried: Collection[Member[Server]]) -> Member[Server] | None:
        left = [
            each
            for each in self._members
            if each.state is not MemberState.DOWN and not each.is_drained and each not in tried
        ]
        able = [each for each in left if self._able(each)]
        if self._has_backups and able:
            rank = min(each.rank for each in able)
            left, able = ([each for each in some if each.rank <= rank] for some in (left, able))
        if tried and able:
            return self._chosen(able, key)  # a request that has failed once makes no trial
        if not able:
            if any(map(self._able, self._members)):  # somebody is up still: who is ejected gets one at a time
                left = [each for each in left if each.trial is None]
            return self._chosen(left, key) if left else None
        due = [each for each in left if each.until <= now and each.trial is None]
        if due and self.settings.choice != "hash":
            return self._chosen(due, key)
        return self._chosen([*able, *due], key)  # a hash has each tried by its own keys

    def _give(self, asker: object, member: Member[Server]) -> Member[Server]:
        member.requests += 1
        member.under_way += 1
        if member.state is MemberState.EJECTED and member.trial is None:
            member.trial = asker
        return member

    def _chosen(self, among: Sequence[Member[Server]], key: bytes) -> Member[Server]:
        if self.settings.choice == "hash":
            return max(among, key=lambda member: member.score(key))
        if self.settings.choice == "least-requests":
            least = min(each.under_way / each.weight for each in among)
            among = [each for each in among if each.under_way / each.weight == least]
        return _in_turn(among)


def _in_turn(among: Sequence[Member[Server]]) -> Member[Server]:
    """The member whose turn it is, by weight, spread evenly (the smooth weighted round-robin of nginx)."""
    for each in among:
        each.credit += each.weight
    member = max(among, key=lambda each: each.credit)
    member.credit -= sum(each.weight for each in among)
    return member
