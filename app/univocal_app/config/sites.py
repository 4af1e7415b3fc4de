"""The tables `[[sites]]` become Sites and Rules; errors name the file and the place in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from univocal.cache.rules import SETTINGS, Rules
from univocal.http.errors import ConfigurationError, Objections
from univocal.uri.profile import Profile
from univocal.uri.site import Route, Site, Sites
from univocal_app.config.tables import PolicyTable, RouteTable, SiteTable
from univocal_app.config.values import Upstream

__all__ = ["EVERYWHERE", "SiteReader", "rules", "upstreams"]

EVERYWHERE: Final = ["*"]  # the hosts of a site that is served under every authority


@dataclass(frozen=True)
class SiteReader:
    """Turns tables into sites; knows the file, for its errors, and the profiles."""

    source: str
    profiles: Mapping[str, Profile]

    def read(self, tables: Sequence[SiteTable]) -> Sites:
        """All sites. Raises ConfigurationError with every site's first setting that cannot be."""
        objections = Objections()
        named = dict[str, Site]()
        for number, table in enumerate(tables):
            with objections:
                named[f"sites[{number}]"] = self._site(table, f"sites[{number}]")
        with objections:
            sites = self._together(named)
        objections.conclude()
        return sites

    def _together(self, named: Mapping[str, Site]) -> Sites:
        default = [site for site in named.values() if not site.hosts]
        if len(default) > 1:
            raise ConfigurationError(
                self.source, "sites", [EVERYWHERE] * len(default), 'one site with hosts = ["*"]'
            )
        try:
            return Sites([site for site in named.values() if site.hosts], default[0] if default else None)
        except ConfigurationError as error:
            place = next((key for key, site in named.items() if error.source == f"site {site.name}"), "sites")
            raise ConfigurationError(
                self.source, f"{place}.{error.key}", error.found, error.allowed
            ) from None

    def _site(self, table: SiteTable, place: str) -> Site:
        everywhere = table.hosts == EVERYWHERE
        if everywhere and table.aliases:
            raise ConfigurationError(
                self.source, f"{place}.aliases", table.aliases, 'none beside hosts = ["*"]'
            )
        owned = upstreams(place, table)
        objections = Objections()
        routes = list[Route]()
        for number, route in enumerate(table.routes):
            with objections:
                routes.append(self._route(f"{place}.routes[{number}]", route, table, place, owned))
        objections.conclude()
        if not any(route.prefix == b"/" for route in routes):
            routes.append(self._route(place, RouteTable(path="/"), table, place, owned))
        with self._placed(place):
            return Site(
                name=table.hosts[0],
                hosts=() if everywhere else tuple(table.hosts),
                routes=tuple(routes),
                aliases=tuple(table.aliases),
                alias_answer=0 if table.alias_answer == "serve" else table.alias_answer,
                scheme=table.scheme.encode(),
            )

    def _route(
        self, place: str, route: RouteTable, table: SiteTable, site: str, owned: Mapping[str, Upstream]
    ) -> Route:
        profile = route.profile or table.profile
        if profile not in self.profiles:
            raise ConfigurationError(self.source, f"{place}.profile", profile, ", ".join(self.profiles))
        name = place if place in owned else site
        with self._placed(place):
            return Route(
                prefix=route.path.encode(),
                profile=self.profiles[profile],
                upstream=name,
                upstream_path=owned[name].path.encode(),
                forward=route.forward or table.forward,
            )

    @contextmanager
    def _placed(self, place: str) -> Iterator[None]:
        try:
            yield
        except ConfigurationError as error:
            raise ConfigurationError(
                self.source, f"{place}.{error.key}", error.found, error.allowed
            ) from None


def upstreams(place: str, table: SiteTable) -> dict[str, Upstream]:
    """The site's upstreams by the names that its routes call them: where in the file each stands."""
    own = {f"{place}.routes[{number}]": route.upstream for number, route in enumerate(table.routes)}
    return {place: table.upstream} | {
        name: upstream for name, upstream in own.items() if upstream is not None
    }


def rules(
    everywhere: PolicyTable, tables: Sequence[SiteTable], profiles: Mapping[str, Profile]
) -> dict[str | tuple[str, bytes], Rules]:
    """The rules of each site by its name, and of each route that has another profile than its site.

    A site's own settings come first, then its profile's, then those for all sites, then the defaults.
    """
    for_all = everywhere.model_dump(exclude_unset=True, include=set(SETTINGS))
    made: dict[str | tuple[str, bytes], Rules] = {}
    for table in tables:
        name, own = table.hosts[0], table.cache.model_dump(exclude_unset=True)
        made[name] = Rules.read({**for_all, **profiles[table.profile].cache, **own})
        for route in table.routes:
            if route.profile not in {None, table.profile}:
                settings = {**for_all, **profiles[route.profile or table.profile].cache, **own}
                made[name, route.path.encode()] = Rules.read(settings)
    return made
