"""The tables `[sites.access]` and `[sites.routes.access]` become bounds on the access to sites and routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from univocal.asgi.reverse_proxy import ReverseProxy
from univocal.http.errors import ConfigurationError, Objections
from univocal.judge.access import Restriction, rate_of
from univocal.judge.forward_auth import ForwardAuth
from univocal.judge.runtime import Runtime
from univocal.judge.trust import networks
from univocal_app.config.tables import AccessTable, Configuration
from univocal_app.config.values import authorization_server
from univocal_app.run.certificate_files import client_ca_of
from univocal_app.run.user_files import UserFile


def restrictions_of(
    configuration: Configuration,
    source: str,
    proxies: Mapping[str, ReverseProxy] = MappingProxyType({}),
) -> dict[str | tuple[str, bytes], Restriction]:
    """The bounds on access by the names of sites, and of routes that have settings of their own.

    Raises ConfigurationError for what does not go together, and for files of users that cannot be; they are
    relative to the file `source`. `proxies` are the ways to authorization servers, by the places of tables.
    """
    made: dict[str | tuple[str, bytes], Restriction] = {}
    objections = Objections()
    reader = _Reader(source, proxies)
    for number, table in enumerate(configuration.sites):
        name, place = table.hosts[0], f"sites[{number}].access"
        routes = {f"sites[{number}].routes[{index}].access": each for index, each in enumerate(table.routes)}
        authority = (client_ca_of(configuration, table) or "").encode()
        with objections:
            named = [table.access, *(route.access for route in table.routes)]
            if table.access.private and not (authority or any(each.basic or each.forward for each in named)):
                raise reader.nameless(place, "private", True, "basic` or `forward")
            if table.access.model_fields_set or authority:
                made[name] = reader.restriction(name, table.access, table.access, place, place, authority)
        for where, route in routes.items():
            if route.access.model_fields_set:
                own = route.access.model_dump(exclude_unset=True)
                merged = AccessTable(**{**table.access.model_dump(exclude_unset=True), **own})
                with objections:
                    made[name, route.path.encode()] = reader.restriction(
                        f"{name}{route.path}", merged, route.access, where, place, authority
                    )
    objections.conclude()
    return made


def user_files(runtime: Runtime) -> Iterator[UserFile]:
    """The files of users that a runtime knows, each once."""
    files = (each.users for each in runtime.restrictions.values())
    yield from {id(each): each for each in files if isinstance(each, UserFile)}.values()


@dataclass(frozen=True)
class _Reader:
    """Reads tables of access; makes one object of what several of them name."""

    source: str
    proxies: Mapping[str, ReverseProxy]
    files: dict[Path, UserFile] = field(default_factory=dict)
    servers: dict[tuple[str, tuple[str, ...], float], ForwardAuth] = field(default_factory=dict)

    def restriction(
        self, name: str, table: AccessTable, own: AccessTable, where: str, site: str, authority: bytes
    ) -> Restriction:
        """The bounds of a `table`, of which `own` is at the place `where`, and all else at the `site`'s."""

        def place_of(key: str) -> str:
            return where if key in own.model_fields_set else site

        users = self._users(table.basic, f"{place_of('basic')}.basic") if table.basic else None
        forward = self._forward(place_of("forward"), table) if table.forward else None
        names = "basic` or `forward"
        if own.private and not (users or forward or authority):
            raise self.nameless(where, "private", True, names)
        if forward and not table.private and "private" in table.model_fields_set:
            allowed = "true: what is stored behind `forward` is always kept by user"
            raise ConfigurationError(self.source, f"{place_of('private')}.private", False, allowed)
        if table.forward_fields and not forward and "forward_fields" in own.model_fields_set:
            raise self.nameless(where, "forward_fields", table.forward_fields, "forward")
        if own.limits and not (users or authority or (forward and table.forward_fields)):
            raise self.nameless(where, "limits", own.limits.rate, "basic` or `forward` with `forward_fields")
        rate = rate_of(table.rate) if table.rate else None
        return Restriction(
            name,
            networks(table.allow),
            networks(table.deny),
            rate,
            users,
            table.reading == "canonical",
            table.private and bool(users is not None or authority),
            forward,
            rate_of(table.limits.rate) if table.limits else None,
            authority,
        )

    def nameless(self, place: str, key: str, found: object, lacking: str) -> ConfigurationError:
        """The error of a setting about users where nobody has a name."""
        unset = {True: "false"}.get(found if isinstance(found, bool) else False, "none")
        allowed = f"{unset} without `{lacking}`: nobody has a name"
        return ConfigurationError(self.source, f"{place}.{key}", found, allowed)

    def _users(self, name: str, key: str) -> UserFile:
        """The users of a file, which is read once; one that cannot be is told at each key that names it."""
        path = Path(self.source).parent / name
        if path not in self.files:
            self.files[path] = UserFile(path, key, self.source)
        return self.files[path]

    def _forward(self, place: str, table: AccessTable) -> ForwardAuth:
        known = place, tuple(table.forward_fields), table.forward_ttl
        if known not in self.servers:
            names = dict.fromkeys(name.lower().encode() for name in table.forward_fields)
            proxy = self.proxies.get(place)
            next_hop = None if proxy is None else proxy.upstream
            target = authorization_server(table.forward)[1].encode()
            self.servers[known] = ForwardAuth(next_hop, target, list(names), table.forward_ttl)
        return self.servers[known]
