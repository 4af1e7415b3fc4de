"""Hosts and routes on their way into `[[sites]]`: each is tried with the reader of univocal.toml first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal.uri.profile import Profile
from univocal_app.config.site_reader import OF_REQUESTS, SiteReader, is_tested
from univocal_app.config.tables import validate
from univocal_learn.importers.imported import Notes, Table
from univocal_learn.importers.networks import CLOSED, closed_beside

# The discard port: a site needs an upstream, and for what the file gives none, 502 is the honest answer.
NOWHERE: Final = "http://127.0.0.1:9"
_OF_A_ROUTE: Final = ("cache", "request", "response", "access", "redirects", "cookie_path", "max_body")


Setting: TypeAlias = str | list[str | dict[str, Any]]
"""The value of `upstream`: a URL, or several, with weights."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A path that goes to an upstream; `forward` "received" is the target as it came."""

    path: str
    line: int
    upstream: Setting | None = None  # None: it forwards nothing
    forward: str = "canonical"
    host: str = ""  # the Host field that its requests have
    origin: Table = field(default_factory=dict)  # settings of connections
    tables: Mapping[str, Any] = field(default_factory=dict)  # access, request, response, cache, redirects
    is_closed: bool = False
    is_nowhere: bool = False  # its upstream stands for none
    is_implied: bool = False  # it gives way to a route of this path that the file has
    is_final: bool = False  # it goes before expressions
    holds_below: bool = False  # a closed one closes longer routes, too
    is_apart: bool = False  # what it has is not stored, so without it no other route's may be
    instead: tuple[Mapped, ...] = ()  # the routes that are written where univocal has no such path
    kind: str = ""  # the location of a path that univocal may not have
    profile: str = ""  # one of the further profiles of the import; "": the first
    redirect: Table = field(default_factory=dict)  # the setting, where clients are sent elsewhere

    def guarded(self) -> Mapped:
        """The same route, closed beside its own rules."""
        access = closed_beside(self.tables.get("access", {}))
        return replace(self, tables={**self.tables, "access": access})

    def closed(self) -> Mapped:
        """The same path, closed, and so forwarded nowhere."""
        tables = {"access": CLOSED}
        at = replace(self, upstream=None, forward="canonical", origin={}, redirect={})
        return replace(at, tables=tables, is_closed=True)

    @property
    def is_forwarded(self) -> bool:
        """True if an origin server gets its requests."""
        return self.upstream is not None and not (self.is_closed or self.is_nowhere)

    @property
    def is_stored(self) -> bool:
        """True if responses may be stored."""
        return self.is_forwarded and "bypass" not in self.tables.get("cache", {})


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
    notes: Notes = field(default_factory=Notes)
    sites: list[dict[str, Any]] = field(default_factory=list)
    others: Mapping[str, Profile] = field(default_factory=dict)  # by the names that routes have for them
    _taken: dict[str, int] = field(default_factory=dict)  # hosts, and where each was first named
    _unwritten: list[tuple[int, list[str]]] = field(default_factory=list)  # servers that only refuse

    def add(
        self, line: int, hosts: list[str], routes: list[Mapped], origin_host: str, extra: Table | None = None
    ) -> dict[str, Any] | None:
        """A site of those `hosts` and `routes` that univocal can have; None if there is none.

        Hosts of which nothing is forwarded are kept for no other site; `close_unwritten` writes them. `extra`
        are further settings of the site.
        """
        if not any(route.is_forwarded or route.redirect for route in routes):
            self._unwritten.append((line, self._hosts(line, hosts)))
            return None
        hosts = self._hosts(line, hosts)
        kept = self._routes(routes, hosts or ["*"])
        if not hosts or not any(route.is_forwarded or route.redirect for route in kept.values()):
            self.notes.say(line, "no site is written: nothing of it could be taken over")
            if hosts:
                self._unwritten.append((line, hosts))
            return None
        return self._write(line, hosts, kept, origin_host, extra or {})

    def close_unwritten(self) -> None:
        """Write sites that only refuse, for hosts that would else be those of a site for many hosts or ports.

        Without any other site all of them are written.
        """
        many = any(
            "*" in host or is_tested(host) or site.get("default")
            for site in self.sites
            for host in site["hosts"]
        )
        for line, hosts in self._unwritten:
            named = [host for host in hosts if host != "*"]
            if self.sites and not many:
                # A host with a port would else be that of the site without one.
                named = [host for host in named if ":" in host]
            if named:
                self.refuse(line, named)
        if any(is_tested(host) for _, hosts in self._unwritten for host in hosts):
            # Of two expressions that match, the first one counts.
            order = [*self._taken, ""]
            self.sites.sort(
                key=lambda site: min(
                    order.index(each.lower()) for each in [*filter(is_tested, site["hosts"])] or order[-1:]
                )
            )

    def refuse(self, line: int, hosts: list[str]) -> None:
        """Write a site that only refuses."""
        self._write(line, hosts, {"/": Mapped("/", line).closed()}, "site", {})

    def _write(
        self, line: int, hosts: list[str], kept: dict[str, Mapped], origin_host: str, extra: Table
    ) -> dict[str, Any]:
        if "/" not in kept:
            text = f"nothing is mapped at /: what no route takes is answered with 502 ({NOWHERE})"
            self.notes.say(line, text)
        root = kept.pop("/", Mapped("/", line))
        site: dict[str, Any] = {"hosts": hosts, **extra, "upstream": root.upstream or NOWHERE}
        site |= {"profile": root.profile} if root.profile else {}
        site |= {"forward": root.forward} if root.forward != "canonical" else {}
        site["origin_host"] = origin_host
        site |= {"origin": _whole(root.origin)} if root.origin else {}
        shared = _shared([root, *kept.values()])
        site |= shared
        routes = [self._route(route, site, shared) for route in kept.values()]
        own, final = {**_differing(root.tables, shared), **root.redirect}, self._final(root)
        if own or final:
            # A site's tables would hold for its other routes, too.
            routes.insert(0, {"path": "/", **final, **own})
        if routes:
            site["routes"] = routes
        if reason := self._refused(site):
            self.notes.ask(line, f"the site is closed: {reason}")
            default = {"default": True} if extra.get("default") else {}
            site = {"hosts": hosts, **default, "upstream": NOWHERE, "access": CLOSED}
        self.sites.append(site)
        return site

    def _hosts(self, line: int, hosts: list[str]) -> list[str]:
        kept = []
        for host in dict.fromkeys(hosts):
            if host.lower() in self._taken:
                text = f"the host {host!r} is line {self._taken[host.lower()]}'s, and one site's only"
                self.notes.ask(line, text)
            elif reason := self._refused({"hosts": [host], "upstream": NOWHERE}):
                self.notes.say(line, f"the host {host!r} is left out: {reason}")
            else:
                self._taken[host.lower()] = line
                kept.append(host)
        if "*" in kept and len(kept) > 1:
            self.notes.say(line, "the site is served under every host: its names are not needed")
            return ["*"]
        return kept

    def _routes(self, routes: list[Mapped], hosts: list[str]) -> dict[str, Mapped]:
        kept: dict[str, Mapped] = {}
        is_apart = False
        for route in sorted(routes, key=lambda route: route.is_implied):
            possible = list(self._possible(route, hosts))
            is_apart = is_apart or (not possible and route.is_apart)
            for each in possible:
                prefix = each.path.removeprefix("=")
                if each.is_implied and not {f"{prefix}*", prefix, each.path}.isdisjoint(kept):
                    continue
                if each.path not in kept:
                    kept[each.path] = each
                elif each.is_closed and not each.is_implied:
                    below = each.holds_below or kept[each.path].holds_below
                    kept[each.path] = replace(kept[each.path].guarded(), holds_below=below)
                elif not each.is_closed:
                    first = kept[each.path]
                    is_same = each.tables == first.tables
                    fate = "" if is_same else ": univocal refuses both (403)"
                    text = f"{each.path} is left out: line {first.line} has it, too{fate}"
                    self.notes.say(each.line, text, is_open_question=not is_same)
                    kept[each.path] = first if is_same else first.guarded()
        covered = [route.path.rstrip("*") for route in kept.values() if route.holds_below]
        made = {
            path: route.guarded() if _is_covered(route, covered) else route for path, route in kept.items()
        }
        return {path: _unstored(route) for path, route in made.items()} if is_apart else made

    def _possible(self, route: Mapped, hosts: list[str]) -> Iterator[Mapped]:
        """The route, or those in its place where univocal would not start with its path."""
        own = self._accepted(route, hosts)
        if own is not None:
            yield own
            return
        if route.kind:
            begins = ", ".join(each.path for each in route.instead)
            fate = f"univocal refuses all below {begins} (403)" if route.instead else "it is left out"
            text = f"{route.kind}: no path of a route, so {fate}"
            self.notes.say(route.line, text, is_open_question=bool(route.instead))
        for each in route.instead:
            yield from self._possible(each, hosts)

    def _accepted(self, route: Mapped, hosts: list[str]) -> Mapped | None:
        """The route, closed if univocal would not start with it, or None if its path is none."""
        closed = {"path": route.path, "access": CLOSED}
        is_path = not self._refused({"hosts": hosts, "upstream": NOWHERE, "routes": [closed]})
        if route.is_closed:
            return route.closed() if is_path else None
        to = {} if route.upstream is None else {"upstream": route.upstream}
        table = {"path": route.path, "forward": route.forward, **route.redirect, **to, **route.tables}
        reason = self._refused({"hosts": hosts, "upstream": NOWHERE, "routes": [table]})
        if not reason:
            return route
        if not is_path and route.kind:
            return None
        self.notes.say(route.line, f"{route.path} is left out: {reason}", is_open_question=is_path)
        return route.closed() if is_path else None

    def _route(self, route: Mapped, site: Table, shared: Mapping[str, Any]) -> Table:
        own = _differing(route.tables, shared)
        table: dict[str, Any] = {"path": route.path, **self._final(route)}
        if route.upstream is None:
            # An expression with the site's upstream would replace its path.
            nowhere = {"upstream": NOWHERE, "forward": "canonical"} if route.path.startswith("~") else {}
            return {**table, **nowhere, **route.redirect, **own}
        table["upstream"] = route.upstream
        if route.profile != site.get("profile", ""):
            table["profile"] = route.profile
        if route.forward != site.get("forward", "canonical"):
            table["forward"] = route.forward
        if origin := _differing(route.origin, site.get("origin", {})):
            table["origin"] = _whole(origin)
        is_plain = "{path}" not in str(route.upstream) and not has_path(route.upstream)
        is_same = is_plain and route.upstream == site["upstream"]
        if origin and is_same and origin.keys() <= OF_REQUESTS:
            del table["upstream"]  # the state of the servers is one, as in nginx
        return table | own

    def _final(self, route: Mapped) -> dict[str, bool]:
        return {"final": True} if route.is_final else {}

    def _refused(self, site: dict[str, Any]) -> str:
        """The reason why univocal would not start with this site; empty if it would."""
        try:
            read = validate({"sites": [{"profile": "", **site}]}, "")
            SiteReader("", {"": self.profile, **self.others}).read(read.sites)
        except ConfigurationError as error:
            return f"found {error.found!r}; allowed: {error.allowed}"
        except UnicodeEncodeError:
            return "found bytes that are no UTF-8"
        return ""


def _shared(routes: Sequence[Mapped]) -> dict[str, Any]:
    """The tables that all routes have alike, which the site has instead."""
    first = routes[0].tables
    asking = {"access": [route for route in routes if route.is_forwarded or route.redirect]}
    forwarding = [route for route in routes if route.is_forwarded]
    return {
        key: first[key]
        for key in _OF_A_ROUTE
        if key in first and all(each.tables.get(key) == first[key] for each in asking.get(key, forwarding))
    }


def _differing(tables: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    return {key: table for key, table in tables.items() if shared.get(key) != table}


def _is_covered(route: Mapped, covered: Sequence[str]) -> bool:
    return not (route.is_closed or route.is_final or route.path.startswith("=")) and route.path.startswith(
        tuple(covered)
    )


def _unstored(route: Mapped) -> Mapped:
    """The same route, whose responses are not stored: some have rules that no route says."""
    if not route.is_forwarded:
        return route
    kept = {key: value for key, value in route.tables.get("cache", {}).items() if key == "compress"}
    return replace(route, tables={**route.tables, "cache": {"bypass": ["*"], **kept}})


def has_path(upstream: Setting | None) -> bool:
    """Tell whether an upstream's path replaces that of its route."""
    first = upstream[0] if isinstance(upstream, list) else upstream or ""
    url = str(first["url"]) if isinstance(first, dict) else first
    return "{path}" not in url and "/" in url.partition("://")[2]


def _whole(times: Table) -> dict[str, Any]:
    return {
        key: int(value) if isinstance(value, float) and value == int(value) else value
        for key, value in times.items()
    }
