"""The origin servers of a configuration: how each is reached, and what proves that it is the right one."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import Final, NamedTuple, TypeAlias

from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.forward.upstream import Upstream
from univocal.http.errors import ConfigurationError, Objections
from univocal.http.roles import Origin
from univocal.origin.addresses import SERVICES, lacks_services, origin_url, unix_socket
from univocal.origin.pool import OriginConnections, PoolSettings
from univocal.origin.servers import Balancing, OriginServer, Transport
from univocal.origin.upkeep import HealthRule
from univocal_app.config.files import path_of
from univocal_app.config.site_reader import is_tested, url_key
from univocal_app.config.tables import Configuration, OriginTable, Placed, SiteTable
from univocal_app.config.values import MASK, UpstreamSetting, authorization_server, origin_host
from univocal_app.observe.origin_states import Listed
from univocal_app.processes.states import UpstreamServer
from univocal_app.run.certificate_files import digest_of, load_pair, reason_of

_Trust: TypeAlias = tuple[str, str, str, bool]  # tls_ca, tls_cert, tls_key and tls_verify

# The settings that name files.
_FILES: Final = ("tls_ca", "tls_cert", "tls_key")
# Those that are about all origin servers of a list together: each of them is the same with others.
_BALANCING: Final = {"health", *(setting.name for setting in fields(Balancing))}
# Those that decide whether a server can be reached and understood.
_REACHED: Final = (*_FILES, "tls_verify", "transport", "http2", "max_head_bytes")


class Recipe(NamedTuple):
    """All that the ways to an upstream, and to each of its servers, are made from."""

    upstream: str
    servers: tuple[str, ...]


@dataclass(frozen=True)
class Ways:
    """The ways to upstreams and authorization servers, by the names that routes call them; their recipes."""

    proxies: Mapping[str, ReverseProxy] = field(default_factory=dict)
    recipes: Mapping[str, Recipe] = field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Configuration, before: Ways | None = None) -> Ways:
        """The ways of a configuration.

        One of those `before` goes on where nothing about it has changed, and so does a transport of it.
        Raises ConfigurationError for an invalid certificate, key or transport.
        """
        proxies, recipes, objections = dict[str, ReverseProxy](), dict[str, Recipe](), Objections()
        before = before or cls()
        running = {recipe.upstream: before.proxies[name] for name, recipe in before.recipes.items()}
        transports, contexts = before._transports(), dict[_Trust, ssl.SSLContext]()
        for hop in hops(configuration):
            recipe = recipes[hop.name] = _recipe_of(configuration, hop)
            if recipe.upstream in running:
                proxies[hop.name] = running[recipe.upstream]
                continue
            had = [transports.get(each) for each in recipe.servers]
            with objections:
                proxies[hop.name] = ReverseProxy(_Way(configuration, hop, contexts).upstream(had))
        objections.conclude()
        return cls(proxies, recipes)

    def _transports(self) -> dict[str, Transport]:
        """The transports to origin servers, by their recipes."""
        transports = dict[str, Transport]()
        for name, recipe in self.recipes.items():
            # In the order of the setting; the addresses of one name share a transport.
            used = {id(each.transport): each.transport for each in self.proxies[name].upstream.servers}
            transports.update(zip(recipe.servers, used.values(), strict=True))
        return transports


def next_hop_of(
    configuration: Configuration, each: Placed, proxies: Mapping[str, ReverseProxy]
) -> Origin | None:
    """The upstream of a site or route; a route may ask its site's with times of its own."""
    proxy = proxies.get(each.place) or proxies.get(each.site_place)
    if proxy is None or each.table.upstream is not None or not each.table.origin.model_fields_set:
        return None if proxy is None else proxy.upstream
    table = _merged(configuration, each)
    return replace(proxy.upstream, timeouts=table.timeouts, retries=table.fill(Balancing).retries)


def _recipe_of(configuration: Configuration, hop: Hop) -> Recipe:
    """The recipe of the way to an upstream.

    The number of the site is no part of it: another before it changes nothing.
    """
    table, site, setting = hop.merged, hop.site, hop.setting
    named_files = (getattr(table, key) for key in _FILES)
    files = [name and digest_of(configuration.path(name)) for name in named_files]
    whose = [site.hosts[0], hop.path]
    named = [_name(site.hosts).decode(), setting.written(), site.origin_host]
    way = table.model_dump(mode="json", exclude=_BALANCING)
    return Recipe(
        json.dumps([whose, named, table.model_dump(mode="json"), files]),
        tuple(json.dumps([whose, url, way, files]) for url, *_ in setting.servers),
    )


def contents_of(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The key of each setting about origin servers that names a file, and the digest of what is in it."""
    tables = [("origin", configuration.origin)]
    tables += [(f"{each.place}.origin", each.table.origin) for each in configuration.tables()]
    for place, table in tables:
        for key in _FILES:
            if name := getattr(table, key):
                yield f"{place}.{key}", digest_of(configuration.path(name))


def most_connections(configuration: Configuration) -> int:
    """The number of connections that there may be to all origin servers together."""
    pools = ((hop.merged.fill(PoolSettings), len(hop.setting.servers)) for hop in hops(configuration))
    return sum(pool.max_connections * count for pool, count in pools)


class Hop(NamedTuple):
    """A server that requests lead to: an upstream, or an authorization server, of a site or a route."""

    name: str  # where in the file its table stands
    setting: UpstreamSetting
    site: SiteTable
    path: str | None  # of its route, if it has one
    merged: OriginTable  # all settings that hold
    own: Mapping[str, OriginTable]  # those that its route and its site say themselves, by their places

    @property
    def is_access(self) -> bool:
        """True of an authorization server."""
        return self.name.endswith(".access")


def hops(configuration: Configuration) -> Iterator[Hop]:
    """Each server that requests lead to, in the order of the configuration."""
    written = dict(configuration.as_written)
    for each in configuration.tables():
        site, place, route = each.site, each.place, each.route
        of_site = {each.site_place: site.origin}
        if (upstream := each.table.upstream) is not None:
            # A variable is shown by its name.
            path = None if route is None else written.get((*path_of(place), "path"), route.path)
            own = {place: each.table.origin} | of_site
            yield Hop(place, upstream, site, path, _merged(configuration, each), own)
        if forward := each.table.access.forward:
            # Of an authorization server, the times and the trust of the site's own hold.
            merged = configuration.origin.model_copy(update={**site.origin.written(), "health": None})
            name, path = f"{place}.access", f"access of {place.removeprefix(each.site_place)}.access"
            yield Hop(name, authorization_server(forward)[0], site, path, merged, of_site)


def _merged(configuration: Configuration, each: Placed) -> OriginTable:
    """The settings of `[origin]` that hold for a site's upstream, or for a route's.

    A route's go before its site's, these before all. A site's health check is of its own application: an
    upstream of a route does not take it over.
    """
    of_site = each.site.origin.written()
    if each.route is None:
        return configuration.origin.model_copy(update=of_site)
    of_site.pop("health", None)
    return configuration.origin.model_copy(update={**of_site, **each.route.origin.written()})


def places_of(configuration: Configuration) -> list[dict[str, str]]:
    """Each site with the URL of each of its origin servers."""
    kept = (hop for hop in hops(configuration) if not hop.is_access)
    shown = ((hop.site.hosts[0], _shown(configuration, hop)) for hop in kept)
    return [{"site": site, "url": url} for site, urls in shown for url in urls]


def listed(configuration: Configuration, proxies: Mapping[str, ReverseProxy]) -> Iterator[Listed]:
    """The origin servers behind `proxies`, in the order of the configuration."""
    for hop in hops(configuration):
        if not hop.is_access:
            shown = zip(hop.setting.servers, _shown(configuration, hop), strict=True)
            written = {server.url: url for server, url in shown}
            for member in proxies[hop.name].upstream.balance.members:
                yield Listed(hop.name, hop.site.hosts[0], written[member.server.url], member, hop.path or "/")


def servers_of(configuration: Configuration, proxies: Mapping[str, ReverseProxy]) -> Iterator[UpstreamServer]:
    """The origin servers behind `proxies`: those that are reached in one way are one, wherever they stand."""
    for hop in hops(configuration):
        upstream = proxies[hop.name].upstream
        if hop.is_access or upstream.upkeep is None:
            continue
        way = [getattr(hop.merged, key) for key in _REACHED]
        health = hop.merged.health
        checks = "" if health is None else f"{health.model_dump_json()} {_name(hop.site.hosts).decode()}"
        for member in upstream.balance.members:
            yield UpstreamServer(json.dumps([member.name, *way]), member, upstream.upkeep.adopt, checks)


def _shown(configuration: Configuration, hop: Hop) -> list[str]:
    """The URLs of an upstream as they are shown; a path that names a variable may be a secret."""
    upstream, setting = (*path_of(hop.name), "upstream"), hop.setting
    if setting.path and any(path[: len(upstream)] == upstream for path, _ in configuration.as_written):
        return [f"{server.url}/{MASK}" for server in setting.servers]
    return setting.urls


@dataclass(frozen=True)
class _Way:
    """The way to the origin servers of one site, or to an authorization server."""

    configuration: Configuration
    hop: Hop
    contexts: dict[_Trust, ssl.SSLContext]

    @property
    def table(self) -> OriginTable:
        return self.hop.merged

    def upstream(self, transports: Sequence[Transport | None]) -> Upstream:
        """Make the pools of an upstream, one for each of its origin servers, as far as there is none.

        Raises ConfigurationError.
        """
        hop, table, named = self.hop, self.table, self.hop.setting.servers
        self._check_services()
        pairs = zip(named, transports, strict=True)
        servers = [OriginServer(url, had or self._transport(url), table.timeouts) for (url, *_), had in pairs]
        balancing, origin_host = table.fill(Balancing), hop.site.origin_host
        if hop.is_access:
            balancing, origin_host = balancing.of_no_client(), "upstream"
        rule = None if table.health is None else table.health.fill(HealthRule)
        weights, backups = [each.weight for each in named], {each.url for each in named if each.backup}
        name, path = _name(hop.site.hosts), (hop.path or "").encode()
        return Upstream.of(servers, origin_host, weights, balancing, rule, name, backups, path)

    def _check_services(self) -> None:
        """Raise ConfigurationError for a service that cannot be looked up."""
        for server in self.hop.setting.servers:
            if server.url.startswith("srv+") and (lacks_services() or self.table.transport != "own"):
                allowed = SERVICES if lacks_services() else 'a URL without srv+ beside transport = "httpx"'
                raise self.configuration.error(url_key(self.hop.name), server.url, allowed)

    def _transport(self, url: str) -> Transport:
        """Make a transport to the server that `url` names. Raises ConfigurationError."""
        table, is_tls = self.table, origin_url(url).protocol == "https"
        settings = table.fill(PoolSettings)
        objections, context = Objections(), None
        with objections:
            self._check_http2()
        with objections:
            context = self._context() if is_tls or table.tls_ca or table.tls_cert or table.tls_key else None
        objections.conclude()
        if table.transport == "own":
            return OriginConnections(settings, ssl_context=context)
        from univocal.origin.client_library import httpx  # noqa: PLC0415 - slow to import

        limits = httpx.Limits(
            max_connections=settings.max_connections,
            max_keepalive_connections=settings.max_idle,
            keepalive_expiry=settings.idle_timeout,
        )
        verify = True if context is None else context
        return httpx.AsyncHTTPTransport(
            verify=verify, http2=table.http2, limits=limits, trust_env=False, uds=unix_socket(url)
        )

    def _check_http2(self) -> None:
        if self.table.http2 and self.table.transport == "own":
            raise self._cannot("http2", 'false, or true beside transport = "httpx"')
        if self.table.http2 and find_spec("h2") is None:
            raise self._cannot("http2", "false, as h2 is not installed: pip install 'univocal[http2]'")

    def _context(self) -> ssl.SSLContext:
        table = self.table
        trust = (table.tls_ca, table.tls_cert, table.tls_key, table.tls_verify)
        if trust not in self.contexts:
            self.contexts[trust] = self._made()
        return self.contexts[trust]

    def _made(self) -> ssl.SSLContext:
        table, objections = self.table, Objections()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with objections:
            try:
                context = ssl.create_default_context(cafile=self._file(table.tls_ca))
            except OSError as error:  # an SSLError, too, is one
                raise self._cannot("tls_ca", f"a file of certificates in PEM ({reason_of(error)})") from None
        context.set_alpn_protocols(["http/1.1"])
        if not table.tls_verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with objections:
            self._show(context)
        objections.conclude()
        return context

    def _show(self, context: ssl.SSLContext) -> None:
        """Add the client certificate, if there is one, to `context`."""
        table = self.table
        if table.tls_key and not table.tls_cert:
            raise self._cannot("tls_key", "none without tls_cert")
        certificate, key = self._file(table.tls_cert), self._file(table.tls_key)
        if certificate and (why := load_pair(context, certificate, key)):
            allowed = f"a file with a certificate in PEM, tls_key the one with its key ({why})"
            raise self._cannot("tls_cert", allowed)

    def _file(self, name: str) -> str | None:
        return str(self.configuration.path(name)) if name else None

    def _cannot(self, key: str, allowed: str) -> ConfigurationError:
        own = self.hop.own.items()
        place = next((f"{place}.origin" for place, table in own if key in table.model_fields_set), "origin")
        return self.configuration.error(f"{place}.{key}", getattr(self.table, key), allowed)


def _name(hosts: list[str]) -> bytes:
    """The first of a site's hosts that is no pattern, as it stands in a Host field; empty if none is."""
    for host in hosts:
        if is_tested(host):
            continue
        with suppress(ValueError):  # what is no host is refused elsewhere
            return origin_host(host).encode()
    return b""
