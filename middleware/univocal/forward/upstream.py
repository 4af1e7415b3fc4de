"""One upstream of a route: here alone a received request becomes one that is sent.

It goes to one origin server of several, and to another where that one does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from univocal.http.errors import Failure, RefusedError
from univocal.http.intermediary import (
    MOST_TIMES_HERE,
    VIA,
    Affinity,
    Switching,
    forwarded_names,
    forwards_left,
    request_fields,
    request_has_content,
    response_fields,
    switching_fields,
    times_here,
    upgrade_fields,
)
from univocal.http.messages import IDEMPOTENT, NO_NAMES, Fields, Response, imf_fixdate
from univocal.http.problem import ALLOWED
from univocal.http.references import MAPPED
from univocal.http.roles import Answer, OriginRequest, UnderWay
from univocal.origin.failures import Timeouts
from univocal.origin.servers import Balance, Balancing, Member, OriginServer, Pending
from univocal.origin.upkeep import HealthRule, Upkeep

_monotonic: Final = time.monotonic
# An origin server's failures: `overloaded` is none of its doing, and `bad-target` is the request's fault.
_FAILURES: Final = frozenset({"origin-unreachable", "origin-timeout", "origin-bad-response"})


class Attempt:
    """An `UnderWay` towards the flight, and the `Answer` to origin servers; fields go on by RFC 9110 §7.6.

    A request is sent again, to another origin server, if nothing of it was sent. An idempotent request is
    also sent again if none of its content was sent and no byte of a response has come (RFC 9110 §9.2.2).
    `Upstream.retries`, else `Balancing.retries`, limits the retries of a request; `Balance` those of all.
    """

    def __init__(self, upstream: Upstream, request: OriginRequest, answer: Answer, begun: float) -> None:
        self._upstream = upstream
        self._balance = upstream.balance
        self._begun = begun  # by the monotonic clock, with the origin server that is asked
        self._request = request
        self._target, self._fields = request.target, request.fields  # for each origin server
        self._answer = answer
        self._watch = request.watch
        self.member: Member[OriginServer] | None = None  # that is asked, until the end
        self._pending: Pending | None = None
        self._tried: tuple[Member[OriginServer], ...] = ()
        self._started = False  # the response's head has come
        self._sent = False  # to one that failed: the request may be what it failed of
        self.write = answer.write

    def ask(self, member: Member[OriginServer] | None) -> None:
        """Ask the `member` that the balance gave; None if all are down."""
        if member is None:
            self._answer.fail(_all_down(self._balance))
            return
        server, request = member.server, self._request
        request.target = server.mapped(self._target) if server.path else self._target
        fields, upgrade = self._fields, request.received.upgrade
        if request.own_host:
            fields = [(b"host", server.authority), *fields[1:]]
        if upgrade and server.switches:
            fields = [*fields, *upgrade_fields(upgrade)]
        if self._watch is not None:
            fields = self._watch.sending(server.url, fields)
        request.fields = fields
        try:
            pending = server.ask(request, self, self._upstream.timeouts, self._moved)
        except BaseException:
            if self.member is member:
                self._release(member)  # it would count as under way from now on
            raise
        if self.member is member:  # else it is over, or went on to another, within the call
            self._pending = pending

    # Called by the flight.

    def pause(self) -> None:
        if self._pending is not None:
            self._pending.pause()

    def resume(self) -> None:
        if self._pending is not None:
            self._pending.resume()

    def cancel(self) -> None:
        pending = self._pending
        if self.member is not None:
            self._release(self.member)
        if pending is not None:
            pending.cancel()

    # Called by origin servers.

    def interim(self, status: int, fields: Fields) -> None:
        self._answer.interim(status, response_fields(fields, status=status))

    def start(self, response: Response) -> None:
        member = self.member
        assert member is not None
        names = {name for name, _ in response.fields} if response.client_fields is None else NO_NAMES
        if response.status == 101:
            passed: Response = self._switched(response)
        elif response.client_fields is not None:
            passed = Response(response.status, response.client_fields)
            passed.client_fields = response.client_fields
        else:
            # RFC 9110 §6.6.1: a recipient with a clock appends a Date to a response without one.
            date = _date(int(time.time()))
            fields = response_fields(response.fields, status=response.status, date=date)
            passed = Response(response.status, fields)
            if b"date" in names and MAPPED.isdisjoint(names):
                response.client_fields = fields
        if not MAPPED.isdisjoint(names):
            passed.fields = self._mapped(passed.fields, member.server)
        passed.server = member.name
        self._started = True
        now = _monotonic()
        passed.seconds = now - self._begun
        if member.row:  # it has failed since its last answer
            self._balance.answered(member, now)
        if self._watch is not None:
            self._watch.answered(member.server.url, response.status)
        affinity = self._upstream.affinity
        if affinity is not None and affinity.concerns(self._fields, passed.fields):
            passed.origin_tag = member.tag
        self._answer.start(passed)

    def finish(self) -> None:
        member = self.member
        if member is not None:
            self.member = self._pending = None
            self._balance.ended(self, member)
            bond = self._request.bond
            if bond is not None and bond.holds:
                bond.answered(member.tag)
        self._answer.finish()

    def fail(self, error: Exception) -> None:
        member, pending = self.member, self._pending
        assert member is not None
        refused, now = error if isinstance(error, RefusedError) else None, _monotonic()
        if refused is not None:
            refused.seconds = now - self._begun
        if refused is not None and refused.reason in _FAILURES and not self._started:
            why = refused.reason if refused.failure is None else refused.failure.reason
            if why != "head-too-large":  # by a setting of ours
                self._balance.failed(member, now, why)
        if self._watch is not None and refused is not None and refused.failure is not None:
            self._watch.failed(refused.failure)
        self._release(member)
        if refused is not None and refused.failure is not None:
            if not self._started and (not refused.provoked or self._may_be_repeated(pending)):
                self._sent = self._sent or refused.provoked
                self._tried += (member,)
                retries = self._upstream.retries
                another = self._balance.another(self, self._request.key, now, self._tried, retries)
                if another is not None:
                    self._begun, self.member = now, another
                    self.ask(another)
                    return
            refused.provoked = refused.provoked or self._sent
        self._answer.fail(error)

    # Its own.

    def _mapped(self, fields: Fields, server: OriginServer) -> Fields:
        """The fields of a response for clients; the origin server may know itself by each of these hosts."""
        references = None if self._request.references is None else self._request.references()
        if references is None:
            return fields
        hosts = {each.server.authority for each in self._balance.members}
        if not self._request.own_host:
            hosts.add(self._fields[0][1].lower())
        return references.mapped(fields, hosts, server.scheme, server.path)

    def _switched(self, response: Response) -> Switching:
        """A 101 that answers what was asked, as it goes on."""
        if not isinstance(response, Switching):
            raise RefusedError("origin-bad-response")  # it came by no connection that can be given away
        fields = switching_fields(self._request.received.upgrade, self._fields, response.fields)
        return Switching(response.status, fields, response.line)

    def _may_be_repeated(self, pending: Pending | None) -> bool:
        has_content = self._request.content is not None
        begun = (
            has_content if pending is None else pending.came or pending.took
        )  # None: it failed within the call
        return not begun and self._request.method in IDEMPOTENT

    def _moved(self, address: str) -> None:
        """Another address of the same name has accepted a connection before this one (RFC 8305)."""
        before = self.member
        assert before is not None
        for member in self._balance.members:
            if member.server.address == address and member.server.url == before.server.url:
                self._balance.moved(self, before, member, _monotonic())
                self.member = member
                return

    def _release(self, member: Member[OriginServer]) -> None:
        self.member = self._pending = None
        self._balance.ended(self, member)
        if self._watch is not None and not self._started:
            self._watch.answered(member.server.url, 0)


_date: Final = lru_cache(maxsize=2)(imf_fixdate)


def _all_down(balance: Balance[OriginServer]) -> RefusedError:
    refused = RefusedError("origin-unreachable")
    urls = ", ".join(dict.fromkeys(member.server.url for member in balance.members))
    refused.failure = Failure(
        urls, "", "down", "every origin server is down, as its health checks say, or draining"
    )
    return refused


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Upstream:
    """The origin servers of a route, and the Host field that they are sent.

    An `Origin` (http/roles.py). An empty `host` is the request's own, None is each origin server's. The
    `affinity` keeps clients at one of them; None: none stays. A route with `timeouts` or `retries` of its own
    has a copy of its site's upstream.
    """

    balance: Balance[OriginServer]
    host: bytes | None = b""
    upkeep: Upkeep | None = None
    affinity: Affinity | None = None
    timeouts: Timeouts | None = None
    retries: int | None = None

    @classmethod
    def of(
        cls,
        servers: Sequence[OriginServer],
        origin_host: str = "site",
        weights: Sequence[int] = (),
        balancing: Balancing | None = None,
        rule: HealthRule | None = None,
        name: bytes = b"",
        backups: Container[str] = (),
        path: bytes = b"",
    ) -> Upstream:
        """The upstream of these servers; `origin_host` is "site", "upstream" or a literal.

        `rule` says how their health is checked, `name` is the site's host: the checks are for it. `backups`
        has the URLs of those that are asked while no other is up; `path` is a route's.
        """
        hosts = {server.authority for server in servers}
        own = next(iter(hosts)) if len(hosts) == 1 else None
        now = time.monotonic()
        members = [
            Member(server, server.url, weight, now, is_backup=server.url in backups)
            for server, weight in zip(servers, weights or [1] * len(servers), strict=True)
        ]
        host = {"site": b"", "upstream": own}.get(origin_host, origin_host.encode())
        balance = Balance(members, balancing)
        sticky = balance.settings.sticky
        upkeep = Upkeep(balance, rule, name if host == b"" else host or b"")
        return cls(balance, host, upkeep, Affinity(sticky, path) if sticky else None)

    def begin(self) -> None:
        """Begin to resolve the names of the origin servers and to check their health, in the event loop.

        Otherwise the first request does so.
        """
        if self.upkeep is not None:
            self.upkeep.begin()

    def succeed(self, before: Upstream) -> None:
        """Go on with the origin servers of `before` that have the same transport, before anything is asked.

        Their connections, their state and their numbers stay.
        """
        if self.upkeep is not None and before.upkeep is not None:
            self.upkeep.succeed(before.upkeep)

    def retire(self, kept: Container[int] = ()) -> None:
        """Resolve and check no more, and close every connection as soon as its request has ended.

        Later requests are still answered. Connections of the transports with an id in `kept` stay.
        """
        if self.upkeep is not None:
            self.upkeep.close()
        for server in self.servers:
            if id(server.transport) not in kept:
                server.retire()

    async def aclose(self) -> None:
        """Resolve and check no more, and close every connection; the next request begins it all anew."""
        if self.upkeep is not None:
            self.upkeep.close()
            self.upkeep.begun = False
        for server in self.servers:
            await server.aclose()

    @property
    def takes_targets(self) -> bool:
        """A target that one of them names itself may be asked for."""
        return True

    @property
    def servers(self) -> list[OriginServer]:
        """The origin servers, of which one answers each request."""
        return [member.server for member in self.balance.members]

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Send a request as RFC 9110 §7.6 has it, its target byte for byte; the response goes to `answer`.

        The fields that `edits` set come last: no later step removes them.
        """
        received, fields = request.received, request.fields
        names = forwarded_names(tuple([name for name, _ in fields]))
        if names.counts:
            counted = forwards_left(request.method, fields)
            if counted is None:  # RFC 9110 §7.6.2: here is the final recipient of an OPTIONS or TRACE
                answer.start(Response(200, [(b"content-length", b"0"), (b"allow", ALLOWED)]))
                answer.finish()
                return Attempt(self, request, answer, 0.0)
            fields = counted
        if names.has_via and times_here(fields) > MOST_TIMES_HERE:  # RFC 9110 §7.6: it goes in circles
            refused = RefusedError("origin-unreachable")
            refused.provoked = True  # its own doing, not that of others
            answer.fail(refused)
            return Attempt(self, request, answer, 0.0)
        authority = b"" if names.host < 0 else fields[names.host][1]
        if names.is_plain or not request_has_content(fields):
            request.content = None
        fields = request_fields(
            fields,
            host=self.host or authority,
            authority=authority,
            client=received.client,
            scheme=request.scheme,
            method=request.method,
            forwarded_for=request.chain,
            # RFC 9110 §7.6.3
            via=VIA if received.version == b"1.1" else b"%b univocal" % received.version,
            names=names,
            screened=request.screened,
        )
        request.fields = fields if request.edits is None else request.edits.supply(fields)
        if self.upkeep is not None and not self.upkeep.begun:
            self.upkeep.begin()
        request.own_host = self.host is None
        now = _monotonic()
        attempt = Attempt(self, request, answer, now)
        tag, bond = request.origin_tag, request.bond
        if not tag and bond is not None and bond.holds:
            tag = bond.last_of([member.tag for member in self.balance.members])
        attempt.member = self.balance.take(attempt, request.key, now, tag)
        attempt.ask(attempt.member)
        return attempt
