"""A validated configuration becomes what it describes: a Runtime, the proxy and its admin listener."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import Origins
from univocal.engine.outcome import Outcome, OutcomeListener
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Received
from univocal.judge.runtime import Runtime
from univocal.origin.servers import MemberState
from univocal.origin.upkeep import StateChange, log_change
from univocal.server.asgi_service import ExactProtocol
from univocal.server.clients import Clients, ConnectionLimits, ReadLimits
from univocal.server.http1.connection import Http1Connection
from univocal.server.introduction import Introduction
from univocal.server.listener import Listener
from univocal.server.tls import TlsConnection
from univocal.server.turn import EngineService
from univocal.store.memory import MemoryStore, in_slices
from univocal.store.purge_selectors import Profiles
from univocal_app.config.tables import Configuration
from univocal_app.observe.accesslog import AccessLog, Outlet, outlet_of
from univocal_app.observe.admin import Life, admin
from univocal_app.observe.admin_problems import Sparing
from univocal_app.observe.admin_views import Views
from univocal_app.observe.events import Events
from univocal_app.observe.figures import Figures
from univocal_app.observe.origin_states import Listed, states_of
from univocal_app.observe.survey import Survey
from univocal_app.processes.commons import Commons
from univocal_app.processes.shared_rates import SharedRates
from univocal_app.processes.states import SharedStates
from univocal_app.run import origins
from univocal_app.run.certificate_files import PERIOD, CertificateFiles, Contexts, contexts_of, expiries
from univocal_app.run.configured import (
    half_closed_timeout,
    memory_bounds,
    page_contents,
    read_limits,
    runtime_of,
    store_of,
)
from univocal_app.run.listeners import (
    ADMIN_CONNECTIONS,
    ADMIN_CONNECTIONS_PER_CLIENT,
    HTTPS,
    Bound,
    connection_limits,
    serving,
)
from univocal_app.run.reading import files_of, placed
from univocal_app.run.restrictions import user_files
from univocal_app.run.serve import Patience, Repeating, Served, Serving

if TYPE_CHECKING:
    from univocal_app.observe.telemetry import Telemetry

logger: Final = logging.getLogger("univocal")

LOOK: Final = 5.0  # seconds
STATES_PERIOD: Final = 1.0  # seconds between two looks at what other processes know of origin servers


@dataclass(frozen=True)
class Made:
    """A configuration, and all that is made from it; nothing of it is used yet."""

    configuration: Configuration
    runtime: Runtime
    ways: origins.Ways
    certificates: Contexts | None
    outlet: Outlet | None  # of the log; None: that of the proxy whose configuration goes before
    contents: Mapping[str, str]  # digests of the files and profiles that settings name, by the settings' keys

    @classmethod
    def of(cls, configuration: Configuration, https_port: int, before: Proxy | None = None) -> Made:
        """Make all of a configuration; what is running in `before` may go on.

        Nothing changes by that, so a thread may do it. Raises ConfigurationError: `read` has told of all
        that is wrong with a file, so this is what has become of it since, or what it cannot replace.
        """
        contents = dict(origins.contents_of(configuration))
        try:
            ways = origins.Ways.of(configuration, None if before is None else before.made.ways)
            runtime = runtime_of(configuration, ways.proxies, https_port)
            certificates = contexts_of(configuration)
            if before is not None and before.certificates is not None and certificates is not None:
                before.certificates.refuse_expired(configuration, certificates)
            # Last, and opened by nothing else: who reads a named pipe hears of each closing.
            has_log = before is not None and before.configuration.server.log == configuration.server.log
            outlet = None if has_log else outlet_of(configuration)
        except ConfigurationError as error:
            first, *others = placed((error, *error.beside), files_of(configuration.source))
            first.beside = tuple(others)
            raise first from None
        contents |= _profiles(configuration, runtime)
        contents |= page_contents(configuration, runtime)
        contents |= {} if certificates is None else certificates.contents
        return cls(configuration, runtime, ways, certificates, outlet, contents)

    def in_force(self) -> Made:
        """The part that the proxy keeps: certificates and outlet have owners of their own by now."""
        return replace(self, certificates=None, outlet=None)

    def drop(self) -> None:
        """Release it."""
        if self.outlet is not None:
            self.outlet.close()


def _profiles(configuration: Configuration, runtime: Runtime) -> Iterator[tuple[str, str]]:
    """The key of each setting that names a profile, and the digest of all that the profile says."""
    routes = ((site.name, route) for site in runtime.sites.all for route in site.routes)
    profiles = {(site, route.prefix): route.profile for site, route in routes}
    for each in configuration.tables():
        path = b"/" if each.route is None else each.route.path.encode()
        settings = repr(profiles[each.site.hosts[0], path].settings)
        yield f"{each.place}.profile", sha256(settings.encode()).hexdigest()


def _digests(runtime: Runtime) -> set[bytes]:
    return {route.profile.digest for site in runtime.sites.all for route in site.routes}


class Proxy:
    """All that `univocal serve` runs: `cache`, which answers clients, and the admin listener.

    `made` is of the configuration in force; see run.reload. Plain HTTP is sent to the listener at
    `https_port`. One of several processes has `commons`. Raises ConfigurationError.
    """

    telemetry: Telemetry | None = None

    def __init__(
        self, configuration: Configuration, commons: Commons | None = None, https_port: int = HTTPS
    ) -> None:
        self.figures = Figures(commons)
        store = store_of(configuration, commons, self.figures.commanded)
        # After the store: a start that fails makes no log.
        made = Made.of(configuration, https_port)
        self.made, self.https_port = made.in_force(), https_port
        self.drained: frozenset[str] = frozenset()  # origin servers that operators have taken out
        self.tells = commons is None or commons.leads  # of new states of origin servers, in the log
        self.states = SharedStates(commons)  # of the origin servers, for all upstreams and processes
        self._looking: asyncio.Task[None] | None = None
        self._told: dict[str, MemberState] = {}  # the state of each that the log has had last
        self.shared = None if isinstance(store, MemoryStore) else store
        memory = store if isinstance(store, MemoryStore) else store.memory
        if configuration.server.otel:
            from univocal_app.observe.telemetry import exported  # noqa: PLC0415 - slow to import, an extra

            self.telemetry = exported(self.figures, tells=self.tells)
        self.origins = Origins(made.ways.proxies)
        self.survey = Survey()
        self.views = Views(
            self.figures,
            survey=self.survey,
            origins=lambda: origins.places_of(self.configuration),
            listed=self._servers,
            certificates=lambda: expiries(self.configuration),
        )
        counters: list[OutcomeListener] = [self.figures, *self.views.listeners]
        self.cache = CacheMiddleware(self.origins, runtime=made.runtime, store=store, counters=counters)
        if commons is not None:
            self.cache.gate.rates = SharedRates(commons.directory / "rates")
        engine, audience = self.cache.engine, self.cache.engine.audience
        engine.flights.watch = (self.telemetry or self.figures).watch
        service = EngineService(engine, self.origins)
        clients = Clients(connection_limits(configuration))
        self.listener = Listener(service, read_limits(configuration), self._refused, clients)
        self.figures.attend(
            memory,
            self.shared,
            lambda: {"client": len(clients), "origin": self.origins.connections},
            lambda: states_of(self._servers()),
        )
        if self.telemetry is not None:
            audience.listeners.append(self.telemetry)
        self.events = Events(audience.listeners)
        sites, contexts = made.runtime.sites, made.certificates
        self.certificates = None if contexts is None else CertificateFiles(configuration, sites, contexts)
        assert made.outlet is not None  # as no configuration goes before
        self.log = AccessLog(made.outlet, commons)
        self.seat_log()
        self._repeating = self._repeated()
        self.attend()

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self.made.configuration

    def _repeated(self) -> list[Repeating]:
        """The work that is done again and again, in the event loop."""
        repeating = [Repeating(PERIOD, self.watch_users), Repeating(STATES_PERIOD, self.share_states)]
        if self.certificates is not None:
            repeating.append(Repeating(PERIOD, self.certificates.look))
        if self.shared is not None and self.tells:
            repeating.append(Repeating(LOOK, self.look_behind))
        if self.telemetry is not None:  # whose thread sends what was looked at last
            repeating.append(Repeating(LOOK, self.look))
        return repeating

    def _refused(self, received: Received, reasons: tuple[str, ...]) -> None:
        """Tell of a request that is refused before it is one of the proxy's."""
        runtime = self.cache.gate.runtime
        if runtime.request_ids is not None:
            runtime.request_ids.identify(received, [])
        refused = Outcome.refused(received, reasons, time.time(), runtime.sites)
        self.cache.engine.audience.announce(refused)

    def _servers(self) -> Iterable[Listed]:
        """The origin servers that there are now, in the states that any process has found."""
        self.share_states()
        return origins.listed(self.configuration, self.origins.proxies)

    def attend(self) -> None:
        """Hear of the origin servers' states, and have those drained that operators have taken out."""
        for origin in self.origins.proxies.values():
            if origin.upstream.upkeep is not None:
                origin.upstream.upkeep.tell = self._tell
                origin.upstream.upkeep.drain(self.drained)

    def _tell(self, change: StateChange) -> None:
        """Log a new state once, of whichever upstreams the origin server is; one process does so for all."""
        if self.tells and self._told.get(change.place, MemberState.UP) is not change.state:
            self._told[change.place] = change.state
            log_change(change)

    async def drain(self, urls: frozenset[str]) -> None:
        """Have the origin servers of these URLs get no new request, and all others."""
        self.drained = urls
        self.attend()
        self.share_states()

    def _lift_drains(self) -> None:
        """Give requests again to drained origin servers whose upstreams would have no other."""
        forsaken = self.views.origin_states.forsaken(self.drained)
        self.drained -= forsaken
        for url in sorted(forsaken):
            logger.warning("%s is drained no more: its upstream has no other origin server", url)

    def share_states(self) -> None:
        """Have every upstream, in every process, know the states of the origin servers that any has found."""
        self.states.settle([*origins.servers_of(self.configuration, self.origins.proxies)])
        if self.states.drained == self.drained:
            return
        if self.tells:  # its admin listener has taken them out
            self.states.drain(self.drained)
        else:
            self.drained = self.states.drained
            self.attend()

    def front(self, bound: Bound) -> Served:
        """The proxy on one of its sockets."""
        server, gate, listener = self.configuration.server, self.cache.gate, self.listener
        serves = serving(bound, lambda: self.configuration.server, lambda: gate.runtime.sites)
        listener = listener.beside(bound.name, lambda: gate.runtime.proxies(bound.name), serves)
        protocol = Http1Connection.of(listener)
        if self.certificates is not None and bound.is_tls:
            current, protocols = self.certificates.current, {"http/1.1": protocol}
            if server.http2:
                from univocal.server.http2.connection import Http2Connection  # noqa: PLC0415 - an extra

                protocols["h2"] = Http2Connection.of(listener)
            protocol = TlsConnection.with_protocols(current, protocols, listener)
        own = bound.own.proxy_protocol
        if server.proxy_protocol if own is None else own:
            protocol = Introduction.before(protocol, listener, listener.proxies, answers=not bound.is_tls)
        elif bound.is_unix:
            protocol = Introduction.before(protocol, listener)
        return Served(self.cache, bound.socket, protocol)

    def serving_of(self, front: Iterable[Bound], leaving: Callable[[], None] = lambda: None) -> Serving:
        """The proxy on its sockets for clients; `leaving` hears that it ends."""
        return Serving(
            [*map(self.front, front)],
            [self.start],
            [self.aclose],
            lambda _: self.events.close(),
            patience=self.patience,
            leaving=leaving,
            relieve=self.cache.tiers.memory.relieve,
        )

    def back(self, bound: Bound, life: Life | None = None, orders: Sequence[Route] | None = None) -> Served:
        """The admin application on its socket; a worker's takes `orders` of its parent."""
        app = admin(self.cache, lambda: self.configuration, self.views, self.events, life or Life(), orders)
        # A Unix socket has one client, such as the parent of workers.
        per_client = 0 if bound.is_unix else ADMIN_CONNECTIONS_PER_CLIENT
        clients = Clients(ConnectionLimits(ADMIN_CONNECTIONS, per_client))
        limits = ReadLimits(half_closed_timeout=half_closed_timeout(self.configuration))
        gate, tell = self.cache.gate, self.listener.tell
        protocol = ExactProtocol.with_limits(limits, tell, clients, lambda: gate.runtime.trusted)
        if bound.is_unix:
            protocol = Introduction.before(protocol, self.listener)
        return Served(Sparing(app, self.cache.tiers.memory.relieve), bound.socket, protocol)

    def patience(self) -> Patience:
        """The times of an end, as they are now."""
        server = self.configuration.server
        return Patience(server.drain, server.shutdown_timeout)

    def seat_log(self) -> None:
        """Log each exchange, or purges alone where hits are counted together."""
        audience = self.cache.engine.audience
        if self.log in audience.counters:
            audience.counters.remove(self.log)
        audience.hit_listeners = () if self.log.purges_only else (self.log,)
        if self.log.purges_only:
            audience.counters.insert(0, self.log)

    def look(self) -> None:
        """Write down all that has ended by now, and how this process is."""
        self.share_states()
        self.cache.engine.audience.settle()
        self.figures.look()

    def look_behind(self) -> None:
        """Ask the store behind memory what it holds, if it has answered the last time."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self.figures.look_behind())

    def watch_users(self) -> None:
        """Read the files of users again that have changed."""
        for file in user_files(self.cache.gate.runtime):
            file.look()

    def prepared(self, configuration: Configuration) -> Made:
        """Make what another configuration brings; nothing changes yet. Raises ConfigurationError."""
        return Made.of(configuration, self.https_port, self)

    async def adopt(self, made: Made) -> None:
        """Put a configuration into force: requests that begin from now on go by it."""
        configuration, gate, store = made.configuration, self.cache.gate, self.cache.store
        gone = _digests(gate.runtime) - _digests(made.runtime)
        self.made, gate.runtime = made.in_force(), made.runtime
        self.watch_users()  # who was removed while the rest was prepared
        self.cache.engine.forget()
        self.origins.change(made.ways.proxies)
        if self.tells:
            self._lift_drains()
        self.share_states()
        self.attend()
        self.listener.bounds.change(read_limits(configuration))
        self.listener.clients.limits = connection_limits(configuration)
        if self.certificates is not None and made.certificates is not None:
            self.certificates.adopt(configuration, made.runtime.sites, made.certificates)
            self.certificates.look()
        if made.outlet is not None:
            self.log.turn_to(made.outlet)
            self.seat_log()
        if self.shared is not None:
            self.shared.ttl = configuration.cache.detached_ttl
        if gone:
            # No purge reaches these any more: should the profile come back, they must not.
            await in_slices(store.purging(Profiles(frozenset(gone)), time.time()))
        await store.resize(*memory_bounds(configuration))

    async def start(self) -> None:
        """Look after the origin servers, and connect to the shared store, before clients are answered.

        Without the store, go on alone.
        """
        self.origins.begin()
        self.share_states()
        for each in self._repeating:
            each.begin()
        if self.shared is not None:
            await self.shared.start()
            if self.tells:
                self.look_behind()
        if self.telemetry is not None:
            self.look()

    async def aclose(self) -> None:
        """Close the connections to origin servers and to the shared store, and write the log to its end."""
        for each in self._repeating:
            each.end()
        if self._looking is not None:
            self._looking.cancel()
        try:
            await self.origins.aclose()
            if self.shared is not None:
                await self.shared.aclose()
        finally:
            self.look()
            self.log.finish()
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.close)
