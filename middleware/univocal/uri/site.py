"""The site and route that own a request; hosts in their one spelling (RFC 9110 §4.2.3, RFC 3986 §3.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from univocal.http.authority import DEFAULT_PORTS, Authority, parse_authority
from univocal.http.errors import ConfigurationError, Objections
from univocal.uri.profile import Profile
from univocal.uri.segments import is_under, routing_view

__all__ = ["PLACE", "Route", "Site", "Sites"]


LONGEST: Final = 255  # octets of a host that are told of
PLACE: Final = b"{path}"  # where a canonical path goes in an upstream's


@dataclass(frozen=True, slots=True)
class Route:
    """A path prefix, how targets under it are read, and where they go.

    `upstream` names an origin; with an `upstream_path`, that replaces the prefix on the way there, or the
    canonical path takes the place of the `{path}` in it. With `forward` "received", which goes with no
    `upstream_path`, the origin gets the target as it came; the canonical one is the key nevertheless.
    """

    prefix: bytes
    profile: Profile
    upstream: str
    upstream_path: bytes = b""
    forward: str = "canonical"

    def __post_init__(self) -> None:
        if self.forward == "received" and self.upstream_path:
            allowed = '"canonical" where the upstream has a path'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        charset = self.profile.charset
        if self.forward == "received" and (charset.path or charset.query or charset.trust_encoding_fields):
            # The origin would get octets in a charset that nobody tells it.
            allowed = '"canonical" where the profile has a [charset]'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        # In place of "{path}" any segment may stand, so what follows it must not become a dot segment.
        upstream_path = (self.upstream_path or b"/").replace(PLACE, b"/", 1).replace(b"//", b"/")
        for key, path in (("path", self.prefix), ("upstream", upstream_path)):
            if not path.startswith(b"/") or b"?" in path or b"#" in path or routing_view(path) != path:
                allowed = "a path that begins with '/', percent-encoded, without dot segments, '?' and '#'"
                raise ConfigurationError("routes", key, path.decode("latin-1"), allowed)
        if self.profile.ring.canonical(self.prefix) != self.prefix:
            allowed = f"a path as the profile {self.profile.name} spells it"
            raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), allowed)


@dataclass(frozen=True, slots=True)
class Site:
    """The hosts that are answered as one, and their routes; the site itself is the route "/".

    `hosts` are names, "*.suffix" patterns or addresses, with or without a port; `aliases` are exact and
    become hosts[0], or are answered with `alias_answer` (301 or 308). `scheme` is b"keep", or what it is
    unified to, b"http" or b"https".
    """

    name: str
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    aliases: tuple[str, ...] = ()
    alias_answer: int = 0
    scheme: bytes = b"keep"

    def __post_init__(self) -> None:
        longest_first = tuple(sorted(self.routes, key=lambda route: len(route.prefix), reverse=True))
        object.__setattr__(self, "routes", longest_first)
        prefixes = [route.prefix for route in longest_first]
        if b"/" not in prefixes or len(set(prefixes)) < len(prefixes):
            found = [prefix.decode("latin-1") for prefix in prefixes]
            raise ConfigurationError(
                f"site {self.name}", "routes", found, "distinct prefixes, '/' among them"
            )

    def route_of(self, view: bytes) -> Route:
        """The route with the longest prefix whose whole segments begin `view` (see `routing_view`)."""
        return next((route for route in self.routes if is_under(view, route.prefix)), self.routes[-1])


class Sites:
    """All sites by host; `default` owns every authority that no other does."""

    __slots__ = ("_exact", "_suffixes", "default", "sites")

    def __init__(self, sites: Sequence[Site], default: Site | None = None) -> None:
        self.sites = tuple(sites)
        self.default = default
        self._exact: dict[Authority, tuple[Site, Authority | None]] = {}
        self._suffixes: dict[Authority, tuple[Site, Authority | None]] = {}
        objections = Objections()
        for site in self.sites:
            for host in site.hosts:
                wildcard = host.startswith("*.")
                with objections:
                    self._own(site, "hosts", host, None, host[2:] if wildcard else host, wildcard=wildcard)
            first: Authority | None = None
            if site.aliases:
                with objections:
                    first = _configured(site, "hosts", site.hosts[0] if site.hosts else "")
            for alias in site.aliases:
                with objections:
                    self._own(site, "aliases", alias, first, alias, wildcard=False)
        objections.conclude()

    def _own(
        self, site: Site, key: str, text: str, real: Authority | None, host: str, *, wildcard: bool
    ) -> None:
        authority = _configured(site, key, host)
        table = self._suffixes if wildcard else self._exact
        if authority in table:
            raise ConfigurationError(f"site {site.name}", key, text, "a host that no other entry names")
        table[authority] = (site, real)

    @property
    def ports(self) -> list[int]:
        """The ports with which hosts are named, each once."""
        return sorted({port for _, port in (*self._exact, *self._suffixes) if port is not None})

    def locate(self, host: bytes, port: int) -> tuple[Site, tuple[bytes, int]] | None:
        """The site that owns `host` and the authority it is served as: its own, or hosts[0] for an alias.

        Exact names go before patterns, longer patterns before shorter ones, entries with a port before those
        without.
        """
        found = self._exact.get((host, port)) or self._exact.get((host, None))
        dot = host.find(b".")
        while not found and dot >= 0:
            suffix = host[dot + 1 :]
            found = self._suffixes.get((suffix, port)) or self._suffixes.get((suffix, None))
            dot = host.find(b".", dot + 1)
        if found:
            site, real = found
            return (site, (host, port)) if real is None else (site, (real[0], real[1] or port))
        return (self.default, (host, port)) if self.default else None

    def owner(self, hosts: Sequence[bytes], scheme: bytes) -> tuple[str, str]:
        """The name of the site that serves a Host field's value, or "", and that value.

        A value that is no authority is given as it came, at most `LONGEST` octets of it; several are joined.
        """
        authority = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if authority is None:
            return "", b", ".join(hosts)[:LONGEST].decode("latin-1")
        host, port = authority
        located = self.locate(host, port or DEFAULT_PORTS[scheme])
        text = host[:LONGEST].decode("ascii")
        return "" if located is None else located[0].name, text if port is None else f"{text}:{port}"


def _configured(site: Site, key: str, text: str) -> Authority:
    try:
        authority = parse_authority(text.encode("idna") if not text.isascii() else text.encode())
    except UnicodeError:
        authority = None
    if authority is None:
        allowed = "a host name or address, with or without a port" + (", or *.name" if key == "hosts" else "")
        raise ConfigurationError(f"site {site.name}", key, text, allowed)
    if site.scheme != b"keep" and authority[1] in DEFAULT_PORTS.values():
        raise ConfigurationError(
            f"site {site.name}", key, text, "a host without port, as the scheme is unified"
        )
    return authority
