"""One upstream of a route: here alone a received request becomes one that is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from univocal.forward.attempt import Attempt
from univocal.http.affinity import affinity_name
from univocal.http.errors import RefusedError
from univocal.http.fields import cookie_names
from univocal.http.forward import (
    MOST_PASSES,
    VIA,
    forwards_left,
    passage_of,
    request_fields,
    request_has_content,
    times_here,
)
from univocal.http.messages import Fields, Response
from univocal.http.problem import ALLOWED
from univocal.http.roles import Answer, OriginRequest, UnderWay, Watch
from univocal.origin.balance import Balance, Balancing, Member
from univocal.origin.server import OriginServer
from univocal.origin.timeouts import Timeouts
from univocal.origin.upkeep import HealthRule, Upkeep

_monotonic: Final = time.monotonic


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Upstream:
    """The origin servers of a route, and the Host field that they are sent.

    An empty `host` is the request's own, None is each origin server's. Clients with the `cookie` stay at one
    of them; b"": none do.
    """

    balance: Balance[OriginServer]
    host: bytes | None = b""
    upkeep: Upkeep | None = None
    cookie: bytes = b""

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
        cookie = affinity_name(path) if balance.settings.sticky else b""
        return cls(balance, host, Upkeep(balance, rule, name if host == b"" else host or b""), cookie)

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
    def servers(self) -> list[OriginServer]:
        """The origin servers, of which one answers each request."""
        return [member.server for member in self.balance.members]

    def send(
        self,
        request: OriginRequest,
        answer: Answer,
        watch: Watch | None = None,
        timeouts: Timeouts | None = None,
        retries: int | None = None,
    ) -> UnderWay:
        """Send a request as RFC 9110 §7.6 has it, its target byte for byte; the response goes to `answer`.

        The fields that `edits` set come last: nobody removes them. `timeouts` and `retries` are those of
        this request, in place of the upstream's.
        """
        received, fields = request.received, request.fields
        passage = passage_of(tuple([name for name, _ in fields]))
        if passage.counts:
            counted = forwards_left(request.method, fields)
            if counted is None:
                return _answer_here(answer)
            fields = counted
        if passage.passed and times_here(fields) > MOST_PASSES:
            return _refuse_here(answer)
        authority = b"" if passage.host < 0 else fields[passage.host][1]
        if passage.is_plain or not request_has_content(fields):
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
            passage=passage,
            screened=request.screened,
        )
        request.fields = fields if request.edits is None else request.edits.supply(fields)
        if self.upkeep is not None and not self.upkeep.begun:
            self.upkeep.begin()
        request.own_host = self.host is None
        request.keeps = self._keeps(request.fields) if self.cookie else None
        now = _monotonic()
        attempt = Attempt(self.balance, request, answer, watch, now, timeouts, retries)
        tag, bond = request.origin_tag, request.bond
        if not tag and bond is not None and bond.holds:
            tag = bond.tags.get(self.balance, b"")
        attempt.ask(self.balance.take(attempt, request.key, now, tag))
        return attempt

    def _keeps(self, fields: Fields) -> bytes:
        """The cookie by which a response keeps its client at one server; b"": it needs none."""
        session = self.balance.settings.sticky.partition(":")[2].encode()
        return b"" if session in cookie_names(fields) else session


@dataclass(frozen=True, slots=True)
class PatientUpstream:
    """An upstream as a route asks it that has timeouts and retries of its own: a `NextHop`.

    State and connections are the upstream's.
    """

    upstream: Upstream
    timeouts: Timeouts
    retries: int

    @property
    def cookie(self) -> bytes:
        """The upstream's cookie that keeps clients at one origin server."""
        return self.upstream.cookie

    def send(self, request: OriginRequest, answer: Answer, watch: Watch | None = None) -> UnderWay:
        """Send a request by these times."""
        return self.upstream.send(request, answer, watch, self.timeouts, self.retries)


class _Answered:
    """A request that nobody is asked for any more."""

    def pause(self) -> None:
        """Hold nothing back."""

    def resume(self) -> None:
        """Hold nothing back."""

    def cancel(self) -> None:
        """Give nothing up."""


def _answer_here(answer: Answer) -> UnderWay:
    """Be the final recipient of an OPTIONS or TRACE whose Max-Forwards ran out (RFC 9110 §7.6.2)."""
    answer.start(Response(200, [(b"content-length", b"0"), (b"allow", ALLOWED)]))
    answer.finish()
    return _Answered()


def _refuse_here(answer: Answer) -> UnderWay:
    """Refuse a request that goes in circles (RFC 9110 §7.6): its own doing, not that of others."""
    refused = RefusedError("origin-unreachable")
    refused.provoked = True
    answer.fail(refused)
    return _Answered()


class Forwarding:
    """Asks the origin servers that a request's route names (an `Origin`, see http/roles.py).

    `upstreams` are by the name that routes call them; the one named "" serves every other route. Those of the
    runtime that a request began with go first: under the same name a reload may bring another. `watch` gives
    who watches a request on its way.
    """

    def __init__(
        self, upstreams: Mapping[str, Upstream], watch: Callable[[OriginRequest], Watch] | None = None
    ) -> None:
        self.takes_targets: Final = True
        self._watch = watch
        self._upstreams = dict(upstreams)

    def ask(self, request: OriginRequest, answer: Answer) -> UnderWay:
        """Send a request; its response is pushed to `answer`."""
        next_hop = request.next_hop or self._upstreams.get(request.upstream) or self._upstreams[""]
        return next_hop.send(request, answer, None if self._watch is None else self._watch(request))

    async def aclose(self) -> None:
        """Close every connection to every origin server."""
        for upstream in self._upstreams.values():
            await upstream.aclose()
