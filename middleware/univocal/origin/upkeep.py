"""Looking after the origin servers of a balance: where their names lead by now, and whether they are well."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from univocal.http.errors import RefusedError
from univocal.http.messages import Fields, Received, Response
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.http.settings import duration, positive, setting
from univocal.http.timer import Timer
from univocal.origin.addresses import Find, NameWatch, Resolve, Share, resolved, service_of
from univocal.origin.servers import Balance, Member, MemberState, OriginServer

_STATUSES: Final = re.compile(r"[1-5][0-9][0-9](?:-[1-5][0-9][0-9])?")
_ALLOWED: Final = 'status codes and ranges of them, from 100 to 599, such as "200-399" or "200, 204, 301-308"'


def statuses(text: object) -> frozenset[int]:
    """The status codes that a text lists. Raises ValueError, which says what is allowed."""
    listed = set[int]()
    for part in text.split(",") if isinstance(text, str) else ("",):
        if _STATUSES.fullmatch(part.strip()) is None:
            raise ValueError(_ALLOWED)
        first, _, last = part.strip().partition("-")
        codes = range(int(first), int(last or first) + 1)
        if not codes:
            raise ValueError(_ALLOWED)
        listed.update(codes)
    return frozenset(listed)


def _target(value: object) -> bytes:
    if isinstance(value, str) and re.fullmatch(r"/[!-\"$-~]*", value):
        return value.encode()
    raise ValueError('a path, with or without a query, in visible ASCII, such as "/healthz"')


@dataclass(frozen=True, slots=True)
class HealthRule:
    """The settings of checks: a GET of `path` every `interval` seconds.

    It passes if the head of a response with one of the statuses comes within `timeout` seconds.
    """

    path: bytes = setting(..., _target, keeps=True)
    interval: float = setting(5, duration)
    timeout: float = setting(2, duration)
    statuses: frozenset[int] = setting("200-399", statuses, "status", keeps=True)
    rises: int = setting(2, positive)
    falls: int = setting(3, positive)


class HealthTally:
    """Counts the checks of one origin server, which is `up`, or not, until enough of them say otherwise."""

    def __init__(self, rule: HealthRule, *, up: bool = True) -> None:
        self._rule = rule
        self._row = 0  # checks that contradict the state, one after the other
        self.up = up

    def adopt(self, *, up: bool) -> None:
        """Have the state that another process has found."""
        if up is not self.up:
            self.up, self._row = up, 0

    def hear(self, *, passed: bool) -> bool:
        """Record a check; True if it changes the state."""
        if passed is self.up:
            self._row = 0
            return False
        self._row += 1
        if self._row < (self._rule.falls if self.up else self._rule.rises):
            return False
        self.up, self._row = passed, 0
        return True


_LONGEST: Final = 64 * 1024  # bytes of content that are read, so that the connection can be kept


def check_fields(host: bytes) -> Fields:
    """The fields of a check's request."""
    return [(b"host", host), (b"user-agent", b"univocal"), (b"accept", b"*/*")]


class Check:
    """Asks an origin server at once, then at each interval (an `Answer`); `report` hears whether it passes.

    It hears the reason, too: a status, or the word for a failure. The second check comes after `share` (0 to
    1) of the interval: so the checks of many origin servers by many processes are spread in time. The next
    begins when the one before has ended.
    """

    def __init__(
        self,
        ask: Callable[[OriginRequest, Answer], UnderWay],
        rule: HealthRule,
        host: bytes,
        report: Callable[[bool, str], None],
        loop: asyncio.AbstractEventLoop,
        share: float = 1.0,
    ) -> None:
        self._ask = ask
        self._rule = rule
        self._fields = check_fields(host)
        self._report = report
        self._loop = loop
        self._share = share
        self._pending: UnderWay | None = None
        self._under_way = self._concluded = self._closed = False
        self._octets = 0
        self._reason = "timeout"  # of a failure, unless there is another
        self._begun = 0.0
        self._is_first = True
        self._deadline = Timer(loop, self._end)
        self._next = Timer(loop, self.begin)

    def begin(self) -> None:
        """Ask now."""
        self._under_way, self._concluded, self._octets, self._reason = True, False, 0, "timeout"
        self._begun = self._loop.time()
        self._deadline.set(self._rule.timeout)
        path = self._rule.path
        request = OriginRequest(b"GET", path, self._fields, Received(b"GET", path))
        pending = self._ask(request, self)
        if self._under_way:
            self._pending = pending

    def close(self) -> None:
        """Ask no more."""
        self._concluded = self._closed = True
        self._give_up()
        self._next.close()
        self._deadline.close()

    # Called by the origin server.

    def interim(self, status: int, fields: Fields) -> None:
        """Wait on."""

    def start(self, response: Response) -> None:
        self._reason = f"status {response.status}"
        self._conclude(response.status in self._rule.statuses)

    def write(self, chunk: bytes) -> bool:
        self._octets += len(chunk)
        if self._octets > _LONGEST:
            self._end()
        return True

    def finish(self) -> None:
        self._pending = None
        self._end()

    def fail(self, error: Exception) -> None:
        self._pending = None
        if isinstance(error, RefusedError):
            self._reason = error.reason if error.failure is None else error.failure.reason
        self._end()

    # Its own.

    def _conclude(self, passed: bool) -> None:
        if not self._concluded:
            self._concluded = True
            self._report(passed, self._reason)

    def _end(self) -> None:
        """Be done with this check, of which nothing more is wanted."""
        if self._closed:
            return
        self._give_up()
        self._deadline.clear()
        wait = self._rule.interval * (self._share if self._is_first else 1)
        self._is_first = False
        self._next.set(max(0.0, self._begun + wait - self._loop.time()))
        self._conclude(False)  # at last: who is told may close this

    def _give_up(self) -> None:
        self._under_way = False
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()


logger: Final = logging.getLogger("univocal")

QUIET: Final = 10.0  # seconds between two lines about the state of one member

_Member = Member[OriginServer]
_WHOLE: Final = Share(1, 0)


class StateChange(NamedTuple):
    """A new state of the origin server at `place`, its URL and address, and why; `is_checked`: by a check."""

    place: str
    state: MemberState
    reason: str
    is_checked: bool = False

    def line(self) -> str:
        """The line of the log."""
        if self.is_checked:
            return f"{self.place} is {self.state.value}, as its health checks say: {self.reason}"
        if self.state is MemberState.UP:
            return f"{self.place} is up again: it has answered"
        return f"{self.place} is {self.state.value}: {self.reason}"


def log_change(change: StateChange) -> None:
    """Log a new state of an origin server."""
    logger.warning("%s", change.line())


class Upkeep:
    """Keeps a member of the balance for each address of a name, and has every member's health checked.

    `rule` says how, None for not at all; `host` is the Host field of the checks, where it is empty each
    origin server's own. Until a name is resolved, its one member leaves that to the transport. `clock` is
    the balance's; `share` draws a number from 0 to 1; `loop` has the timers, if it is not the running one.
    `tell` hears of new states.
    """

    def __init__(
        self,
        balance: Balance[OriginServer],
        rule: HealthRule | None = None,
        host: bytes = b"",
        resolve: Resolve = resolved,
        clock: Callable[[], float] = time.monotonic,
        share: Callable[[], float] = random.random,
        loop: asyncio.AbstractEventLoop | None = None,
        find: Find = service_of,
    ) -> None:
        self._find = find
        self._balance = balance
        self._rule = rule
        self._host = host
        self._resolve = resolve
        self._clock = clock
        self._share = share
        self._loop = loop
        # By what is configured, the members that are asked in its place.
        self._members: dict[_Member, list[_Member]] = {each: [each] for each in balance.members}
        self._names = {each: each.server.name for each in balance.members}
        # The configured shares, of which each address has its part.
        self._shares = {each: Share(each.weight, each.rank) for each in balance.members}
        self._found = dict[_Member, Share]()
        self._watches: list[NameWatch] = []
        self._checks: dict[_Member, Check] = {}
        self._tallies: dict[_Member, HealthTally] = {}
        self._said: dict[_Member, tuple[MemberState, float]] = {}  # of each member, and when
        self._late: dict[_Member, asyncio.TimerHandle] = {}
        self.tell: Callable[[StateChange], None] = log_change
        self.begun = False

    def succeed(self, before: Upkeep) -> None:
        """Go on with the origin servers of `before` that have the same transport, before `begin`.

        All that is known of them stays, but the weight is the one that they are to have now.
        """
        theirs = {id(each.server.transport): each for each in before._members}
        members = dict[_Member, list[_Member]]()
        names, shares = dict[_Member, tuple[str, int] | None](), dict[_Member, Share]()
        for configured, group in self._members.items():
            there = theirs.get(id(configured.server.transport))
            share = self._shares[configured]
            if there is None:
                members[configured], names[configured] = group, self._names[configured]
                shares[configured] = share
                continue
            members[there], names[there] = before._members[there], before._names[there]
            shares[there] = share
            for member in members[there]:
                self._found[member] = before._found.get(member, _WHOLE)
                self._weigh(member, share)
        self._members, self._names, self._shares = members, names, shares
        everybody = [each for group in members.values() for each in group]
        self._balance.change(everybody, self._clock())
        if self._rule is None:
            for each in everybody:  # no other process would find that it is up again
                self._balance.mark(each, self._clock(), up=True)

    def drain(self, urls: Container[str]) -> None:
        """Have the origin servers of these URLs (scheme and authority) get no new request, and all others."""
        for configured, members in self._members.items():
            for member in (configured, *members):
                member.is_drained = configured.server.url in urls

    def adopt(self, member: _Member, state: MemberState, since: float, reason: str) -> None:
        """Have a member in the state that another process has found, and tell of it."""
        before = member.state
        self._balance.adopt(member, state, since, reason)
        tally = self._tallies.get(member)
        if tally is not None:
            tally.adopt(up=state is not MemberState.DOWN)
        if before is state:
            return
        if MemberState.DOWN in (before, state):
            self.tell(StateChange(_place(member), state, reason, is_checked=True))
        else:
            self._changed(member)

    def begin(self) -> None:
        """Begin in the running event loop; a second call changes nothing."""
        if self.begun:
            return
        self.begun = True
        self._balance.changed = self._changed
        for configured, name in self._names.items():
            if name is not None:
                self._watch(configured, *name)
            self._check(self._members[configured])

    def close(self) -> None:
        """Ask nothing more."""
        for watch in self._watches:
            watch.close()
        for check in self._checks.values():
            check.close()
        for late in self._late.values():
            late.cancel()
        self._balance.changed = None
        for kept in (self._watches, self._checks, self._tallies, self._late):
            kept.clear()

    # Addresses.

    def _watch(self, configured: _Member, host: str, port: int) -> None:
        def changed(addresses: tuple[str, ...]) -> None:
            self._settle(configured, addresses, watch)

        again = self._balance.settings.resolve
        watch = NameWatch(host, port, changed, self._resolve, self._loop, again, self._find)
        for member in self._members[configured]:
            self._attend(configured, member.server, watch)
        self._watches.append(watch)
        watch.begin()

    def _settle(self, configured: _Member, addresses: Sequence[str], watch: NameWatch) -> None:
        """Have a member for each address: those that were there go on, with all that is known of them."""
        before, now = self._members[configured], self._clock()
        unchecked = [each for each in addresses if each not in {member.server.address for member in before}]
        if not configured.server.address:
            # Until now it has stood for the whole name. Its numbers, and what it has under way, stay its own.
            self._part(configured)
            configured.become(*self._at(configured, addresses[0], watch))
            self._balance.mark(configured, now, up=True)
        known = {member.server.address: member for member in before}
        after = [known.get(address) or self._member(configured, address, watch, now) for address in addresses]
        for member, address in zip(after, addresses, strict=True):
            self._found[member] = watch.shares.get(address, _WHOLE)
            self._weigh(member, self._shares[configured])
        self._members[configured] = after
        self._balance.change((each for group in self._members.values() for each in group), now)
        for member in before:
            if member not in after:
                self._part(member)
        self._check(member for member in after if member.server.address in unchecked)

    def _member(self, configured: _Member, address: str, watch: NameWatch, now: float) -> _Member:
        server, name = self._at(configured, address, watch)
        member = Member(server, name, now=now)
        member.is_drained = configured.is_drained
        return member

    def _weigh(self, member: _Member, whole: Share) -> None:
        """Give a member its share of what is configured."""
        found = self._found[member]
        member.weight, member.rank = whole.weight * found.weight, whole.rank + found.rank

    def _at(self, configured: _Member, address: str, watch: NameWatch) -> tuple[OriginServer, str]:
        """The origin server at one address of its name, and what tells it apart."""
        server = configured.server.at(address)
        self._attend(configured, server, watch)
        return server, f"{server.url} {address}"

    def _attend(self, configured: _Member, server: OriginServer, watch: NameWatch) -> None:
        """Hear of what a server could not reach, and let it know its addresses of the other family."""
        server.unreached = watch.hurry
        if server.address and not server.has_ports:
            server.rivals = lambda: [
                member.server
                for member in self._members[configured]
                if member.state is MemberState.UP
                and (":" in member.server.address) is not (":" in server.address)
            ]

    def _part(self, member: _Member) -> None:
        self._found.pop(member, None)
        self._said.pop(member, None)
        self._tallies.pop(member, None)
        if member in self._late:
            self._late.pop(member).cancel()
        check = self._checks.pop(member, None)
        if check is not None:
            check.close()
            member.server.for_checks().forget()
        member.server.forget()

    # States.

    def _changed(self, member: _Member) -> None:
        """Log a new state: at once, or, of a member that changes often, when it has stood for a while."""
        if member in self._late:
            return
        state_before, when = self._said.get(member, (MemberState.UP, -math.inf))
        wait = when + QUIET - self._clock()
        if wait > 0:
            loop = self._loop or asyncio.get_running_loop()
            self._late[member] = loop.call_at(loop.time() + wait, partial(self._say, member))
        elif state_before is not member.state:
            self._say(member)

    def _say(self, member: _Member) -> None:
        self._late.pop(member, None)
        state_before, _ = self._said.get(member, (MemberState.UP, 0.0))
        if member.state is state_before or member.state is MemberState.DOWN:  # the checks have said so
            return
        self._said[member] = member.state, self._clock()
        self.tell(StateChange(_place(member), member.state, member.reason))

    # Health.

    def _check(self, members: Iterable[_Member]) -> None:
        if self._rule is None:
            return
        for member in members:
            check = self._checks[member] = self._check_of(member, self._rule)
            check.begin()

    def _check_of(self, member: _Member, rule: HealthRule) -> Check:
        tally, server = HealthTally(rule, up=member.state is not MemberState.DOWN), member.server
        self._tallies[member] = tally

        def report(passed: bool, reason: str) -> None:
            if tally.hear(passed=passed):
                self._balance.mark(member, self._clock(), up=tally.up, reason=reason)
                state = MemberState.UP if tally.up else MemberState.DOWN
                self.tell(StateChange(_place(member), state, reason, is_checked=True))

        loop = self._loop or asyncio.get_running_loop()
        host = self._host or server.authority
        return Check(server.for_checks().ask, rule, host, report, loop, self._share())


def _place(member: _Member) -> str:
    """The URL of an origin server, with the address of one that has several."""
    server = member.server
    return f"{server.url} ({server.address})" if server.address else server.url
