"""Hosts and routes on their way into `[[sites]]`: each is tried with the reader of univocal.toml first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal.uri.profile import Profile
from univocal_app.config.sites import SiteReader
from univocal_app.config.tables import validate
from univocal_app.importers.imported import Note, Table

__all__ = ["CLOSED", "NOWHERE", "Mapped", "Setting", "SiteWriter", "literal_beginning"]

# The discard port: a site needs an upstream, and for what the file gives none, 502 is the honest answer.
NOWHERE: Final = "http://127.0.0.1:9"
# The access of nobody.
CLOSED: Final[dict[str, Any]] = {"deny": ["0.0.0.0/0", "::/0"]}
_OF_A_ROUTE: Final = ("cache", "request", "response", "access")


Setting: TypeAlias = str | list[str | dict[str, Any]]
"""The value of `upstream`: a URL, or several, with weights."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A path that goes to an upstream; `forward` "received" is the target as it came."""

    path: str
    upstream: Setting | None  # None: it forwards nothing
    forward: str
    line: int
    read_timeout: float | None = None  # seconds; None: the default
    tables: Mapping[str, Table] = field(default_factory=dict)  # access, request, response, cache
    is_closed: bool = False
    is_implied: bool = False  # it gives way to a route of this path that the file has

    def guarded(self) -> Mapped:
        """The same route, with access for nobody."""
        return replace(self, tables={**self.tables, "access": CLOSED})

    def closed(self) -> Mapped:
        """The same path, with access for nobody, and so forwarded nowhere."""
        return replace(self, upstream=None, forward="canonical", tables={"access": CLOSED}, is_closed=True)


def literal_beginning(path: str, star: str = "") -> tuple[str, str]:
    """A path without any "*" at its end, and what a closed route has there: `star`, unless the path had one.

    A "*" of a server's path stands for itself, and at the end of a route for any bytes: a route for all that
    begins like the path refuses that and more. Where the rest ends with "/", its route has all below, anyway.
    """
    literal = path.rstrip("*")
    if literal == path:
        return path, star
    return literal, "" if literal.endswith("/") else "*"


@dataclass(slots=True)
class SiteWriter:
    """Collects sites, which share a profile and do not name it; and a note for whatever is not in them."""

    profile: Profile
    notes: list[Note] = field(default_factory=list)
    sites: list[Table] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=dict)  # hosts, and where each was first named
    _unwritten: list[tuple[int, list[str]]] = field(default_factory=list)  # guarded servers
    _lost: list[tuple[int, str]] = field(default_factory=list)  # names of guarded servers that no site has

    def add(
        self, line: int, hosts: list[str], routes: list[Mapped], origin_host: str, *, is_guarded: bool = False
    ) -> None:
        """A site of those `hosts` and `routes` that univocal can have; none if nothing is left of it.

        Without routes, as of a redirect to https, the hosts stay free for the server that has them next.
        """
        if all(route.is_closed for route in routes):
            if routes:
                self.notes.append(Note(line, "no site is written: nothing of it could be taken over"))
            if routes or is_guarded:
                self._unwritten.append((line, hosts))
            return
        hosts = self._hosts(line, hosts)
        kept = self._routes(routes, hosts or ["*"])
        if not hosts or not kept:
            self.notes.append(Note(line, "no site is written: nothing of it could be taken over"))
            return
        self._write(line, hosts, kept, origin_host)

    def lose_hosts(self, line: int, name: str) -> None:
        """Take note of a name of a guarded server that stands for hosts which no site can have."""
        self._lost.append((line, name))

    def close_unwritten(self) -> None:
        """Write closed sites for hosts that would else be those of a site for many hosts."""
        many = next((host for host in self._taken if host.startswith("*")), None)
        if many is None:
            return
        for line, name in self._lost:
            text = f"its hosts are those of the site for {many}, without this server's guards"
            self.notes.append(Note(line, f"server_name {name}: {text}", is_open_question=True))
        for line, hosts in self._unwritten:
            free = self._hosts(line, [host for host in hosts if host != "*" and host not in self._taken])
            if free:
                root = Mapped("/", None, "canonical", line).closed()
                self._write(line, free, {"/": root}, "site")

    def _write(self, line: int, hosts: list[str], kept: dict[str, Mapped], origin_host: str) -> None:
        root = kept.pop("/", None)
        if root is None:
            self.notes.append(
                Note(line, f"nothing is mapped at /: what no route takes is answered with 502 ({NOWHERE})")
            )
        site: dict[str, Any] = {"hosts": hosts, "upstream": (root and root.upstream) or NOWHERE}
        if root and root.forward != "canonical":
            site["forward"] = root.forward
        site["origin_host"] = origin_host
        if root and root.read_timeout is not None:
            site["origin"] = {"read_timeout": _number(root.read_timeout)}
        shared = _shared([root, *kept.values()]) if root else {}
        site |= shared
        routes = [self._route(route, site, shared) for route in kept.values()]
        own = {key: table for key, table in root.tables.items() if key not in shared} if root else {}
        if own:
            # A site's tables would hold for its other routes, too.
            routes.insert(0, {"path": "/", **own})
        if routes:
            site["routes"] = routes
        self.sites.append(site)

    def _hosts(self, line: int, hosts: list[str]) -> list[str]:
        kept = []
        for host in dict.fromkeys(hosts):
            if host in self._taken:
                self.notes.append(
                    Note(line, f"the host {host!r} is line {self._taken[host]}'s, and one site's only")
                )
            elif reason := self._refused({"hosts": [host], "upstream": NOWHERE}):
                self.notes.append(Note(line, f"the host {host!r} is left out: {reason}"))
            else:
                self._taken[host] = line
                kept.append(host)
        if "*" in kept and len(kept) > 1:
            self.notes.append(Note(line, "the site is served under every host: its names are not needed"))
            return ["*"]
        return kept

    def _routes(self, routes: list[Mapped], hosts: list[str]) -> dict[str, Mapped]:
        kept: dict[str, Mapped] = {}
        for route in sorted(routes, key=lambda route: route.is_implied):
            if route.path not in kept:
                if (own := self._accepted(route, hosts)) is not None:
                    kept[route.path] = own
            elif not route.is_closed:
                text = f"{route.path} is left out: line {kept[route.path].line} has it, too"
                self.notes.append(Note(route.line, text))
        closed = [route.path for route in routes if route.is_closed and not route.is_implied]
        return {
            path: route.guarded() if any(_is_below(path, each) for each in closed) else route
            for path, route in kept.items()
        }

    def _accepted(self, route: Mapped, hosts: list[str]) -> Mapped | None:
        """The route, closed if univocal would not start with it, or None if its path is none."""
        if route.is_closed:
            route = route.closed()
        else:
            table: dict[str, Any] = {"path": route.path, "upstream": route.upstream, "forward": route.forward}
            tried = {"hosts": hosts, "upstream": NOWHERE, "routes": [table | dict(route.tables)]}
            reason = self._refused(tried)
            if not reason:
                return route
            self.notes.append(Note(route.line, f"{route.path} is left out: {reason}"))
            route = route.closed()
        closed = {"path": route.path, **route.tables}
        is_path = not self._refused({"hosts": hosts, "upstream": NOWHERE, "routes": [closed]})
        return route if is_path else None

    def _route(self, route: Mapped, site: Table, shared: Mapping[str, Table]) -> Table:
        own = {key: table for key, table in route.tables.items() if key not in shared}
        if route.upstream is None:
            return {"path": route.path, **own}
        table: dict[str, Any] = {"path": route.path, "upstream": route.upstream}
        if route.forward != site.get("forward", "canonical"):
            table["forward"] = route.forward
        timeout = None if route.read_timeout is None else {"read_timeout": _number(route.read_timeout)}
        if timeout is not None and timeout != site.get("origin"):
            table["origin"] = timeout
        return table | own

    def _refused(self, site: dict[str, Any]) -> str:
        """The reason why univocal would not start with this site; empty if it would."""
        try:
            read = validate({"sites": [site | {"profile": self.profile.name}]}, "")
            SiteReader("", {self.profile.name: self.profile}).read(read.sites)
        except ConfigurationError as error:
            return f"found {error.found!r}; allowed: {error.allowed}"
        return ""


def _shared(routes: Sequence[Mapped]) -> dict[str, Table]:
    """The tables that all routes have alike, which the site has instead."""
    first = routes[0].tables
    forwarding = [route for route in routes if route.upstream is not None]
    return {
        key: first[key]
        for key in _OF_A_ROUTE
        if key in first and all(route.tables.get(key) == first[key] for route in forwarding)
    }


def _is_below(path: str, closed: str) -> bool:
    return path == closed or path.startswith(closed if closed.endswith("/") else closed + "/")


def _number(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds
