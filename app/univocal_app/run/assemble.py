"""A validated configuration becomes what it describes: a Runtime, the proxy and its admin listener."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from univocal.asgi.middleware import CacheMiddleware
from univocal.asgi.reverse_proxy import Origins
from univocal.engine.outcome import Outcome
from univocal.http.framing import ReadLimits
from univocal.http.messages import Received
from univocal.judge.runtime import Runtime
from univocal.origin.upkeep import StateChange, log_change
from univocal.server.asgi_service import ExactProtocol
from univocal.server.clients import Clients, ConnectionLimits
from univocal.server.http1.connection import Http1Connection
from univocal.server.introduction import Introduction
from univocal.server.listener import Listener
from univocal.server.service import EngineService
from univocal.server.tls import TlsConnection
from univocal.store.memory import MemoryStore
from univocal.store.shared import SharedTier
from univocal.uri.sites import Sites
from univocal_app.config.tables import Configuration
from univocal_app.observe.accesslog import AccessLog, open_log
from univocal_app.observe.admin import admin
from univocal_app.observe.admin_events import Events
from univocal_app.observe.admin_life import Life
from univocal_app.observe.admin_views import Views
from univocal_app.observe.failures import Failures
from univocal_app.observe.figures import Figures
from univocal_app.observe.metrics import Metrics
from univocal_app.observe.origin_states import Listed, OriginStates, conditions_of, states_of
from univocal_app.observe.spellings import Spellings
from univocal_app.observe.stats import Stats
from univocal_app.observe.survey import Survey
from univocal_app.observe.top import Top
from univocal_app.processes.commons import Commons
from univocal_app.processes.shared_rates import SharedRates
from univocal_app.processes.states import Place, SharedStates
from univocal_app.run.certificate_files import CertificateFiles, contexts_of
from univocal_app.run.descriptors import ADMIN, connection_limits
from univocal_app.run.expiry import expiries
from univocal_app.run.listeners import HTTPS, Bound, serving
from univocal_app.run.origins import (
    Running,
    contents_of,
    listed,
    places_of,
    proxies_of,
    recipes_of,
)
from univocal_app.run.repeating import Repeating
from univocal_app.run.restrictions import user_files
from univocal_app.run.runtime import read_limits, runtime_of
from univocal_app.run.serve import Patience, Served
from univocal_app.run.stores import store_of
from univocal_app.run.telemetry_sdk import telemetry_of

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from univocal_app.observe.telemetry import Telemetry

LOOK: Final = 5.0  # seconds
SHARED: Final = 1.0  # seconds between two looks at what other processes know of origin servers
PERIOD: Final = 3.0  # seconds between two looks at the files of users


@dataclass
class House:
    """All that `univocal serve` serves: the proxy and its admin listener.

    `configuration` is the one in force, of the file `source`; see run.reload. `running` are the ways to the
    origin servers, by their recipes.
    """

    source: str
    configuration: Configuration
    running: Running
    contents: Mapping[str, str]  # of files that settings about origin servers name, see run.origins
    proxy: CacheMiddleware
    origins: Origins
    metrics: Metrics
    views: Views
    survey: Survey
    events: Events
    log: AccessLog
    listener: Listener
    shared: SharedTier | None = None
    certificates: CertificateFiles | None = None
    telemetry: Telemetry | None = None
    https_port: int = HTTPS  # of the listener to which plain HTTP is sent
    states: SharedStates | None = None  # of the origin servers, where several processes ask them
    tells: bool = True  # of new states of origin servers, in the log
    drained: frozenset[str] = frozenset()  # origin servers that operators have taken out

    def __post_init__(self) -> None:
        self.looking = Repeating(LOOK, self.look)
        self.watching = Repeating(PERIOD, self.watch_users)
        self.sharing = Repeating(SHARED, self.share_states)
        self.attend()

    def attend(self) -> None:
        """Hear of the origin servers' states, and have those drained that operators have taken out."""
        for proxy in self.origins.proxies.values():
            if proxy.upstream.upkeep is not None:
                proxy.upstream.upkeep.tell = log_change if self.tells else _say_nothing
                proxy.upstream.upkeep.drain(self.drained)

    def drain(self, urls: frozenset[str]) -> None:
        """Have the origin servers of these URLs get no new request, and all others."""
        self.drained = urls
        self.attend()
        self.share_states()

    def share_states(self) -> None:
        """Have every process know the states of the origin servers that any of them has found."""
        if self.states is None:
            return
        self.states.settle(self._places())
        if self.states.drained == self.drained:
            return
        if self.tells:  # its admin listener has taken them out
            self.states.drain(self.drained)
        else:
            self.drained = self.states.drained
            self.attend()

    def _places(self) -> list[Place]:
        proxies = self.origins.proxies
        return [
            Place(f"{each.site}{each.path} {each.url} {each.member.name}", each.member, upkeep.adopt)
            for each in listed(self.configuration, proxies)
            if (upkeep := proxies[each.place].upstream.upkeep) is not None
        ]

    def front(self, bound: Bound) -> Served:
        """The proxy on one of its sockets."""
        server, gate, listener = self.configuration.server, self.proxy.gate, self.listener
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
        return Served(self.proxy, bound.socket, protocol)

    def back(self, bound: Bound, life: Life | None = None) -> Served:
        """The admin application on its socket."""

        def in_force() -> Configuration:
            return self.configuration

        app = admin(self.proxy, in_force, self.metrics, self.views, self.events, life or Life())
        return self.serve_admin(app, bound)

    def serve_admin(self, app: Starlette, bound: Bound) -> Served:
        """An application that few clients ask, on its socket."""
        clients = Clients(ConnectionLimits(ADMIN))
        limits = ReadLimits(half_closed_timeout=self.configuration.origin.read_timeout)
        protocol = ExactProtocol.with_limits(limits, self.listener.tell, clients)
        if bound.is_unix:
            protocol = Introduction.before(protocol, self.listener)
        return Served(app, bound.socket, protocol)

    def patience(self) -> Patience:
        """The times of an end, as they are now."""
        server = self.configuration.server
        return Patience(server.drain, server.shutdown_timeout)

    def seat_log(self) -> None:
        """Log each exchange, or purges alone where hits are counted together."""
        audience = self.proxy.engine.audience
        if self.log in audience.counters:
            audience.counters.remove(self.log)
        audience.hit_listeners = () if self.log.purges_only else (self.log,)
        if self.log.purges_only:
            audience.counters.insert(0, self.log)

    def look(self) -> None:
        """Write down all that has ended by now, and how this process is."""
        self.share_states()
        self.proxy.engine.audience.settle()
        self.metrics.figures.look()

    def watch_users(self) -> None:
        """Read the files of users again that have changed."""
        for file in user_files(self.proxy.gate.runtime):
            file.look()

    def forget(self, process: str) -> None:
        """Handle the end of another process."""
        self.metrics.figures.forget(process)

    async def start(self) -> None:
        """Look after the origin servers, and connect to the shared store, before clients are answered.

        Without the store, go on alone.
        """
        self.origins.begin()
        self.watching.begin()
        if self.states is not None:
            self.share_states()
            self.sharing.begin()
        if self.certificates is not None:
            self.certificates.watch()
        if self.shared is not None:
            await self.shared.start()
        if self.telemetry is not None:
            self.look()  # again and again, for the thread that sends the metrics
            self.looking.begin()

    async def aclose(self) -> None:
        """Close the connections to origin servers and to the shared store, and write the log to its end."""
        self.looking.end()
        self.watching.end()
        self.sharing.end()
        if self.certificates is not None:
            self.certificates.end()
        try:
            await self.origins.aclose()
            if self.shared is not None:
                await self.shared.aclose()
        finally:
            self.look()
            self.log.finish()
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.close)


def assemble(
    configuration: Configuration, source: str, commons: Commons | None = None, https_port: int = HTTPS
) -> House:
    """Build the proxy; one of several processes has `commons`. Raises ConfigurationError."""

    def commanded(command: str, result: str, seconds: float) -> None:
        figures.commanded(command, result, seconds)

    memory, shared = _parts_of(store_of(configuration, source, commons, commanded))
    recipes, proxies = recipes_of(configuration, source), proxies_of(configuration, source)
    runtime = runtime_of(configuration, source, proxies, https_port)
    # The metrics tell of the connections, too, which come later.
    origins = Origins(proxies, lambda request: (telemetry or figures).watch(request))  # noqa: PLW0108

    def connections() -> dict[str, int]:
        return {"client": len(listener.clients), "origin": origins.connections}

    def servers() -> Iterable[Listed]:
        house.share_states()
        return listed(house.configuration, origins.proxies)

    figures = _figures(memory, shared, commons, connections, servers)
    metrics, survey = Metrics(figures), Survey()
    spellings, states = Spellings(survey), OriginStates(servers, survey)
    views = Views(
        Stats(figures),
        Top(spellings, survey),
        spellings,
        lambda: places_of(house.configuration),
        states,
        Failures(survey),
        lambda: expiries(house.configuration, house.source),
        *([] if shared is None else [shared.holding]),
    )
    proxy = _proxy(origins, runtime, shared or memory, [figures, *views.listeners], commons)
    listener = _listener(configuration, proxy, origins)
    telemetry = telemetry_of(configuration, source, metrics, commons)
    if telemetry is not None:
        proxy.engine.audience.listeners.append(telemetry)
    events = Events(proxy.engine.audience.listeners)
    files = _certificates(configuration, source, runtime.sites)
    written = source, configuration, Running.of(recipes, proxies), dict(contents_of(configuration, source))
    observers, log = (metrics, views, survey, events), _log_of(configuration, source, commons)
    house = House(*written, proxy, origins, *observers, log, listener, shared, files, telemetry, https_port)
    if commons is not None:
        house.states, house.tells = SharedStates(commons), commons.leads
        house.attend()
    house.seat_log()
    return house


def _say_nothing(_: StateChange) -> None:
    """Leave the line to the process that has the admin listener."""


def _certificates(configuration: Configuration, source: str, sites: Sites) -> CertificateFiles | None:
    contexts = contexts_of(configuration, source)
    return CertificateFiles(configuration, source, sites, contexts) if contexts else None


def _figures(
    memory: MemoryStore,
    shared: SharedTier | None,
    commons: Commons | None,
    connections: Callable[[], Mapping[str, int]],
    servers: Callable[[], Iterable[Listed]],
) -> Figures:
    """The counts of a process; `servers` gives the origin servers that there are then."""
    return Figures(
        memory, shared, commons, connections, lambda: states_of(servers()), lambda: conditions_of(servers())
    )


def _proxy(
    origins: Origins,
    runtime: Runtime,
    store: MemoryStore | SharedTier,
    counters: Sequence[Callable[[Outcome], None]],
    commons: Commons | None,
) -> CacheMiddleware:
    proxy = CacheMiddleware(origins, runtime=runtime, store=store, counters=counters)
    if commons is not None:
        proxy.gate.rates = SharedRates(commons.directory / "rates")
    return proxy


def _parts_of(store: MemoryStore | SharedTier) -> tuple[MemoryStore, SharedTier | None]:
    return (store, None) if isinstance(store, MemoryStore) else (store.memory, store)


def _log_of(configuration: Configuration, source: str, commons: Commons | None) -> AccessLog:
    server = configuration.server
    return open_log(server.access_log, server.access_log_format, source, commons)


def _listener(configuration: Configuration, proxy: CacheMiddleware, origins: Origins) -> Listener:
    """The parts that the connections of the proxy's clients share."""

    def refused(received: Received, reasons: tuple[str, ...]) -> None:
        sites, request_ids = proxy.gate.runtime.sites, proxy.gate.runtime.request_ids
        if request_ids is not None:
            request_ids.identify(received, [])
        proxy.engine.audience.announce(Outcome.refused(received, reasons, time.time(), sites))

    service = EngineService(proxy.engine, origins.forwarding)
    return Listener(service, read_limits(configuration), refused, Clients(connection_limits(configuration)))
