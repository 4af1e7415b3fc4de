"""Looking after the origin servers of a balance: where their names lead by now, and whether they are well."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from univocal.origin.balance import Balance, Member, MemberState
from univocal.origin.checking import Check
from univocal.origin.health import HealthJudge, HealthRule
from univocal.origin.resolving import NameWatch, Resolve, resolved
from univocal.origin.server import OriginServer

logger: Final = logging.getLogger("univocal")

QUIET: Final = 10.0  # seconds between two lines about the state of one member

_Member = Member[OriginServer]


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
    ) -> None:
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
        self._watches: list[NameWatch] = []
        self._checks: dict[_Member, Check] = {}
        self._judges: dict[_Member, HealthJudge] = {}
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
        names = dict[_Member, tuple[str, int] | None]()
        for configured, group in self._members.items():
            there = theirs.get(id(configured.server.transport))
            if there is None:
                members[configured], names[configured] = group, self._names[configured]
                continue
            members[there], names[there] = before._members[there], before._names[there]
            for member in members[there]:
                member.weight, member.is_backup = configured.weight, configured.is_backup
        self._members, self._names = members, names
        everybody = [each for group in members.values() for each in group]
        self._balance.change(everybody, self._clock())
        if self._rule is None:
            for each in everybody:  # nobody would ever find that it is up again
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
        judge = self._judges.get(member)
        if judge is not None:
            judge.adopt(up=state is not MemberState.DOWN)
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
        for kept in (self._watches, self._checks, self._judges, self._late):
            kept.clear()

    # Addresses.

    def _watch(self, configured: _Member, host: str, port: int) -> None:
        def changed(addresses: tuple[str, ...]) -> None:
            self._settle(configured, addresses, watch)

        again = self._balance.settings.resolve
        watch = NameWatch(host, port, changed, self._resolve, self._loop, again)
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
        self._members[configured] = after
        self._balance.change((each for group in self._members.values() for each in group), now)
        for member in before:
            if member not in after:
                self._part(member)
        self._check(member for member in after if member.server.address in unchecked)

    def _member(self, configured: _Member, address: str, watch: NameWatch, now: float) -> _Member:
        server, name = self._at(configured, address, watch)
        member = Member(server, name, configured.weight, now, is_backup=configured.is_backup)
        member.is_drained = configured.is_drained
        return member

    def _at(self, configured: _Member, address: str, watch: NameWatch) -> tuple[OriginServer, str]:
        """The origin server at one address of its name, and what tells it apart."""
        server = configured.server.at(address)
        self._attend(configured, server, watch)
        return server, f"{server.url} {address}"

    def _attend(self, configured: _Member, server: OriginServer, watch: NameWatch) -> None:
        """Hear of what a server could not reach, and let it know its addresses of the other family."""
        server.unreached = watch.hurry
        if server.address:
            server.rivals = lambda: [
                member.server
                for member in self._members[configured]
                if member.state is MemberState.UP
                and (":" in member.server.address) is not (":" in server.address)
            ]

    def _part(self, member: _Member) -> None:
        self._said.pop(member, None)
        self._judges.pop(member, None)
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
        judge, server = HealthJudge(rule, up=member.state is not MemberState.DOWN), member.server
        self._judges[member] = judge

        def report(passed: bool, reason: str) -> None:
            if judge.hear(passed=passed):
                self._balance.mark(member, self._clock(), up=judge.up, reason=reason)
                state = MemberState.UP if judge.up else MemberState.DOWN
                self.tell(StateChange(_place(member), state, reason, is_checked=True))

        loop = self._loop or asyncio.get_running_loop()
        host = self._host or server.authority
        return Check(server.for_checks(), rule, host, report, loop, self._share())


def _place(member: _Member) -> str:
    """The URL of an origin server, with the address of one that has several."""
    server = member.server
    return f"{server.url} ({server.address})" if server.address else server.url
