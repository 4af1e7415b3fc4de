"""Hosts and routes on their way into `[[sites]]`: each is tried with the reader of univocal.toml first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal.uri.profile import Profile
from univocal_app.config.sites import SiteReader
from univocal_app.config.tables import validate
from univocal_app.importers.imported import Note, Table

__all__ = ["NOWHERE", "Mapped", "Setting", "SiteWriter"]

# The discard port: a site needs an upstream, and for what the file gives none, 502 is the honest answer.
NOWHERE: Final = "http://127.0.0.1:9"


Setting: TypeAlias = str | list[str | dict[str, Any]]
"""The value of `upstream`: a URL, or several, with weights."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A path that goes to an upstream; `forward` "received" is the target as it came."""

    path: str
    upstream: Setting
    forward: str
    line: int
    read_timeout: float | None = None  # seconds; None: the default


@dataclass(slots=True)
class SiteWriter:
    """Collects sites, which share a profile and do not name it; and a note for whatever is not in them."""

    profile: Profile
    notes: list[Note] = field(default_factory=list)
    sites: list[Table] = field(default_factory=list)
    _taken: dict[str, int] = field(default_factory=dict)  # hosts, and where each was first named

    def add(self, line: int, hosts: list[str], routes: list[Mapped], origin_host: str) -> None:
        """A site of those `hosts` and `routes` that univocal can have; none if nothing is left of it.

        Without routes, as of a redirect to https, the hosts stay free for the server that has them next.
        """
        if not routes:
            return
        hosts = self._hosts(line, hosts)
        kept = self._routes(routes, hosts or ["*"])
        if not hosts or not kept:
            self.notes.append(Note(line, "no site is written: nothing of it could be taken over"))
            return
        root = kept.pop("/", None)
        if root is None:
            self.notes.append(
                Note(line, f"nothing is mapped at /: what no route takes is answered with 502 ({NOWHERE})")
            )
        site: dict[str, Any] = {"hosts": hosts, "upstream": root.upstream if root else NOWHERE}
        if root and root.forward != "canonical":
            site["forward"] = root.forward
        site["origin_host"] = origin_host
        if root and root.read_timeout is not None:
            site["origin"] = {"read_timeout": _number(root.read_timeout)}
        if kept:
            site["routes"] = [self._route(route, site) for route in kept.values()]
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
        for route in routes:
            table: dict[str, Any] = {"path": route.path, "upstream": route.upstream, "forward": route.forward}
            if route.path in kept:
                self.notes.append(
                    Note(route.line, f"{route.path} is left out: line {kept[route.path].line} has it, too")
                )
            elif reason := self._refused({"hosts": hosts, "upstream": NOWHERE, "routes": [table]}):
                self.notes.append(Note(route.line, f"{route.path} is left out: {reason}"))
            else:
                kept[route.path] = route
        return kept

    def _route(self, route: Mapped, site: Table) -> Table:
        table: dict[str, Any] = {"path": route.path, "upstream": route.upstream}
        if route.forward != site.get("forward", "canonical"):
            table["forward"] = route.forward
        timeout = None if route.read_timeout is None else {"read_timeout": _number(route.read_timeout)}
        if timeout is not None and timeout != site.get("origin"):
            table["origin"] = timeout
        return table

    def _refused(self, site: dict[str, Any]) -> str:
        """The reason why univocal would not start with this site; empty if it would."""
        try:
            read = validate({"sites": [site | {"profile": self.profile.name}]}, "")
            SiteReader("", {self.profile.name: self.profile}).read(read.sites)
        except ConfigurationError as error:
            return f"found {error.found!r}; allowed: {error.allowed}"
        return ""


def _number(seconds: float) -> float | int:
    return int(seconds) if seconds == int(seconds) else seconds
