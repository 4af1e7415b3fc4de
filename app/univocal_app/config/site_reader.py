"""The tables `[[sites]]` become Sites and Rules; errors name the file and the place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from univocal.cache.personal import PERSONAL
from univocal.cache.rules import SETTINGS, Rules
from univocal.http.errors import ConfigurationError, Objections
from univocal.http.field_edits import NO_EDITS, RouteEdits
from univocal.http.field_edits import edits_of as field_edits
from univocal.http.settings import settings_in
from univocal.origin.failures import Timeouts
from univocal.store.purge_selectors import compiled, grouping
from univocal.uri.profile import Profile
from univocal.uri.site import STAR, Matches, Route, Site
from univocal.uri.sites import Sites
from univocal_app.config.mistakes import unknown_profile
from univocal_app.config.tables import Configuration, FieldsTable, Name, RouteTable, SiteTable
from univocal_app.config.values import UpstreamSetting

# The settings of `[origin]` that are about one request: a route may have them beside its site's upstream.
OF_REQUESTS: Final = frozenset({"retries", *(each.key for each in settings_in(Timeouts).values())})
EVERYWHERE: Final = ["*"]  # the hosts of a site that is served under every authority


@dataclass(frozen=True)
class SiteReader:
    """Turns tables into sites; knows the file, for its errors, and the profiles."""

    source: str
    profiles: Mapping[str, Profile]
    objections: Objections = field(default_factory=Objections)

    def read(self, tables: Sequence[SiteTable]) -> Sites:
        """All sites. Raises ConfigurationError with every invalid setting."""
        named = dict[str, Site]()
        for number, table in enumerate(tables):
            place = f"sites[{number}]"
            with self.objections, self._placed(place):
                if self._has_stars(table, place):
                    named[place] = self._site(table, place)
        defaults = [f"sites[{number}]" for number, table in enumerate(tables) if table.default]
        sites = self._together(named, defaults)
        self.objections.conclude()
        return sites

    def _object(self, key: str, value: object, allowed: str, mistake: str = "") -> None:
        self.objections.errors.append(ConfigurationError(self.source, key, value, allowed, mistake))

    def _together(self, named: Mapping[str, Site], defaults: Sequence[str]) -> Sites:
        everywhere = [site for site in named.values() if not site.hosts]
        if len(everywhere) > 1:
            self._object("sites", [EVERYWHERE] * len(everywhere), 'one site with hosts = ["*"]')
        chosen = [place for place in defaults if place in named and named[place].hosts]
        for place in chosen[0 if everywhere else 1 :]:
            self._object(f"{place}.default", True, 'true for one site, where none has hosts = ["*"]')
        default = [*everywhere, *(named[place] for place in chosen)]
        refused, sites = Objections(), Sites([])
        with refused:
            sites = Sites([site for site in named.values() if site.hosts], default[0] if default else None)
        # Of two sites with one name the later is at fault.
        places = {f"site {site.name}": place for place, site in named.items()}
        for error in refused.errors:
            self._object(f"{places.get(error.source, 'sites')}.{error.key}", error.found, error.allowed)
        return sites

    def _site(self, table: SiteTable, place: str) -> Site:
        everywhere = table.hosts == EVERYWHERE
        if everywhere and table.aliases:
            self._object(f"{place}.aliases", table.aliases, 'none beside hosts = ["*"]')
        profile = self._profile(table.profile, place)
        owned = upstreams(place, table)
        routes = list[Route]()
        for number, route in enumerate(table.routes):
            name = f"{place}.routes[{number}]"
            chosen = self._profile(route.profile, name) if route.profile else profile
            wrong = route.origin.model_fields_set - OF_REQUESTS
            if route.upstream is None and wrong:
                found = route.origin.model_dump(include=wrong, exclude_unset=True)
                allowed = f"{', '.join(sorted(OF_REQUESTS))}, without an upstream of the route's own"
                self._object(f"{name}.origin", found, allowed)
            with self.objections, self._placed(name):
                upstream = name if name in owned else place
                routes.append(_route(route, chosen, upstream, owned[upstream], table))
        if not any(route.path == "/" for route in table.routes):
            routes.append(_route(RouteTable.defaults(path="/"), profile, place, owned[place], table))
        return Site(
            name=table.hosts[0],
            hosts=() if everywhere else tuple(table.hosts),
            routes=tuple(routes),
            aliases=() if everywhere else tuple(table.aliases),
            alias_answer=0 if table.alias_answer == "serve" else table.alias_answer,
            scheme=table.scheme.encode(),
            canonical=table.canonical,
            tests={host: _test_of(host) for host in table.hosts if is_tested(host)},
        )

    def _has_stars(self, table: SiteTable, place: str) -> bool:
        """Object to each upstream with a {1} that some host has nothing for; True if there is none."""
        exact = [host for host in table.hosts if not host.startswith("*") and table.hosts != EVERYWHERE]
        owned = upstreams(place, table).items() if exact else ()
        starred = [(name, each.path) for name, each in owned if STAR.decode() in each.path]
        for name, path in starred:
            self._object(f"{name}.upstream", path, f"no {{1}}, since {exact[0]!r} has no '*'")
        return not starred

    def _profile(self, name: str, place: str) -> Profile:
        """The profile of that name; any, where there is none, so that the rest of the site is read."""
        if name not in self.profiles:
            mistake = unknown_profile(name, self.profiles)
            self._object(f"{place}.profile", name, ", ".join(self.profiles), mistake)
        return self.profiles.get(name) or next(iter(self.profiles.values()))

    @contextmanager
    def _placed(self, place: str) -> Iterator[None]:
        try:
            yield
        except ConfigurationError as error:
            key = f"{place}.{error.key}"
            raise ConfigurationError(self.source, key, error.found, error.allowed) from None


def _route(
    route: RouteTable, profile: Profile, name: str, upstream: UpstreamSetting, site: SiteTable
) -> Route:
    redirect = route.redirect or (site.redirect if route.upstream is None else None)
    to = redirect.to if redirect is not None else ""
    return Route(
        prefix=route.path.encode(),
        profile=profile,
        upstream=name,
        upstream_path=upstream.path.encode(),
        final=route.final,
        expression=_expression(route.path) if route.path.startswith("~") else None,
        redirect=to.encode(),
        redirect_status=redirect.status if redirect is not None and to else 0,
        group=_group(route.path) if "{1}" in to and route.path.startswith("~") else None,
        **{**site.settings(Route), **route.settings(Route)},
    )


def _expression(path: str) -> tuple[Matches, Matches]:
    """The tests of an expression as it is written, and regardless of case. Raises ConfigurationError."""
    try:
        return compiled(path[1:]).search, compiled(f"(?i){path[1:]}").search
    except ValueError as error:
        raise ConfigurationError("routes", "path", path, f"an expression of RE2 ({error})") from None


def _group(path: str) -> Callable[[bytes], bytes]:
    """The first group of an expression's match; empty where there is none. Raises ConfigurationError."""
    expression = grouping(path[1:])
    if not expression.groups:
        raise ConfigurationError("routes", "redirect", "{1}", f"a group in the expression {path}")

    def group(text: bytes) -> bytes:
        match = expression.search(text)
        return match[1] or b"" if match else b""

    return group


def is_tested(host: str) -> bool:
    """Tell whether a site's host is an expression, or a name that ends with ".*"."""
    return host.startswith("~") or host.endswith(".*")


def _test_of(host: str) -> Matches:
    """The test of hosts, which are in lower case. Raises ConfigurationError."""
    if not host.startswith("~"):
        begin = host[:-1].lower().encode()
        return lambda name: name.startswith(begin) and len(name) > len(begin)
    try:
        if not host.isprintable():
            raise ValueError("it is no text on one line")
        return compiled(f"(?i){host[1:]}").search
    except ValueError as error:
        raise ConfigurationError("hosts", "hosts", host, f"an expression of RE2 ({error})") from None


def upstreams(place: str, table: SiteTable) -> dict[str, UpstreamSetting]:
    """The site's upstreams by the names that its routes call them: where in the file each stands."""
    own = ((f"{place}.routes[{number}]", route.upstream) for number, route in enumerate(table.routes))
    return {name: each for name, each in [(place, table.upstream), *own] if each is not None}


def url_key(place: str) -> str:
    """The key of the URLs in a table of a site, of a route, or of access to either."""
    return f"{place}.forward" if place.endswith(".access") else f"{place}.upstream"


def _granted(table: SiteTable) -> dict[bytes, bytes | None]:
    """The fields that authorization servers give, which no client of the site may send.

    Credentials may come from clients, too: where a server gives others, these take their place.
    """
    every = [table.access, *(route.access for route in table.routes)]
    names = {name.lower().encode() for access in every for name in access.forward_fields}
    return dict.fromkeys(sorted(names - PERSONAL))


def rules(
    configuration: Configuration,
    profiles: Mapping[str, Profile],
    edits: Mapping[Name, RouteEdits] = MappingProxyType({}),
    our_fields: Iterable[bytes] = (),
) -> dict[Name, Rules]:
    """The rules of each site by its name, and of each route that differs from its site by its prefix, too.

    A route's own settings come first, then its site's, then the profile's, then those for all sites, then the
    defaults. The fields that `edits` set in requests are ordinary ones, and so are `our_fields`.
    """
    for_all = {key: value for key, value in configuration.cache.written().items() if key in SETTINGS}
    made: dict[Name, Rules] = {}
    for each in configuration.tables():
        site, route, name = each.site, each.route, each.name
        profile, own = site.profile, site.cache.written()
        if route is not None:
            profile = route.profile or profile
            if profile == site.profile and not route.cache.model_fields_set and name not in edits:
                continue
            own |= route.cache.written()
        changed = edits.get(name) or edits.get(site.hosts[0], NO_EDITS)
        own_fields = frozenset(our_fields).union(() if changed.request is None else changed.request.names)
        settings = {**for_all, **profiles[profile].cache, **own}
        made[name] = replace(Rules.read(settings), own_fields=own_fields)
    return made


def edits_of(configuration: Configuration) -> dict[Name, RouteEdits]:
    """The changes of fields by the names that `rules` has, "" for requests to no site.

    For each field a route goes before its site, and this before all sites.
    """
    made: dict[Name, RouteEdits] = {}
    everywhere = configuration.request, configuration.response
    made[""] = _edits({}, [everywhere])
    for each in configuration.tables():
        site, route, name = each.site, each.route, each.name
        levels = [everywhere, (site.request, site.response)]
        if route is not None:
            if not (route.request.model_fields_set or route.response.model_fields_set):
                continue
            levels.append((route.request, route.response))
        made[name] = _edits(_granted(site), levels)
    return made


def _edits(
    granted: dict[bytes, bytes | None], levels: Sequence[tuple[FieldsTable, FieldsTable]]
) -> RouteEdits:
    """The changes of these levels, the last of which goes first; `granted` goes behind all."""
    requests, responses = zip(*levels, strict=True)
    request, named_request = field_edits(granted | _values(requests), PERSONAL)
    response, named_response = field_edits(_values(responses), added=_added(responses).items())
    return RouteEdits(request, response, named_request, named_response)


def _values(levels: Iterable[FieldsTable]) -> dict[bytes, bytes | None]:
    values: dict[bytes, bytes | None] = {}
    for level in levels:
        for name in level.added:
            values.pop(name.lower().encode(), None)
        values |= {name.lower().encode(): None for name in level.remove}
        values |= {name.lower().encode(): value.encode() for name, value in level.set.items()}
    return values


def _added(levels: Iterable[FieldsTable]) -> dict[bytes, bytes]:
    """The fields that are added; a level that sets or removes one goes before those around it."""
    added: dict[bytes, bytes] = {}
    for level in levels:
        for name in (*level.set, *level.remove):
            added.pop(name.lower().encode(), None)
        added |= {name.lower().encode(): value.encode() for name, value in level.added.items()}
    return added
