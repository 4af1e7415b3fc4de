"""The site and route that own a request; hosts in their one spelling (RFC 9110 §4.2.3, RFC 3986 §3.2.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from univocal.http.errors import ConfigurationError
from univocal.uri.profile import Profile, ProfileName, chosen_profile
from univocal.uri.segments import is_under, routing_view

__all__ = ["HOST", "PLACE", "STAR", "Route", "Site"]


# In the path of an upstream: the canonical path, the site's host, and the part of it that "*" stands for.
PLACE: Final = b"{path}"
HOST: Final = b"{host}"
STAR: Final = b"{1}"
_WITHOUT_STAR: Final = "a path that ends with '/', without '*': it holds all paths below"


@dataclass(frozen=True, slots=True)
class Route:
    """A path prefix, how targets under it are read, and where they go.

    The prefix is of whole segments: /a holds /a and /a/b. With "*" at its end it is of bytes: /a* holds /ab.
    `upstream` names an origin server. An `upstream_path` replaces the prefix on the way there (its whole
    segments alone), or the canonical path replaces the `{path}` in it. `{host}` and `{1}` stand for the
    request's host and the part of it that the site's "*" matches. With `forward` "received", which excludes
    an `upstream_path`, the origin server gets the received target. The canonical one is the key nevertheless.
    `redirects` and `cookie_path` say whether URLs, and cookies' paths, are mapped back in its responses.
    """

    prefix: bytes
    profile: Profile
    upstream: str
    upstream_path: bytes = b""
    forward: str = "canonical"
    redirects: Literal["map", "keep"] = "map"
    cookie_path: Literal["map", "keep"] = "keep"

    def __post_init__(self) -> None:
        if self.forward == "received" and self.upstream_path:
            allowed = '"canonical" where the upstream has a path'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        charset = self.profile.charset
        if self.forward == "received" and (charset.path or charset.query or charset.trust_encoding_fields):
            # The origin would get bytes in a charset that nobody tells it.
            allowed = '"canonical" where the profile has a [charset]'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        # In place of "{path}" any segment may stand, so what follows it must not become a dot segment.
        upstream_path = (self.filled(b"h", b"h") or b"/").replace(PLACE, b"/", 1).replace(b"//", b"/")
        begin = self.begin
        if self.prefix.endswith(b"/*"):
            raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), _WITHOUT_STAR)
        for key, path in (("path", begin), ("upstream", upstream_path)):
            if not path.startswith(b"/") or b"?" in path or b"#" in path or routing_view(path) != path:
                allowed = "a path that begins with '/', percent-encoded, without dot segments, '?' and '#'"
                allowed += "; {path}, {host} and {1} in an upstream's" if key == "upstream" else ""
                raise ConfigurationError("routes", key, path.decode("latin-1"), allowed)
        if self.profile.ring.canonical(begin) != begin:
            allowed = f"a path as the profile {self.profile.name} spells it"
            raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), allowed)

    @property
    def begin(self) -> bytes:
        """The bytes that the paths of this route begin with."""
        return self.prefix.removesuffix(b"*")

    @property
    def replaced(self) -> bytes:
        """The whole segments in whose place an upstream's path stands."""
        return self.prefix[: self.prefix.rindex(b"/") + 1] if self.prefix.endswith(b"*") else self.prefix

    def holds(self, path: bytes) -> bool:
        """Tell whether a path begins with the prefix."""
        return path.startswith(self.begin) if self.prefix.endswith(b"*") else is_under(path, self.prefix)

    def filled(self, host: bytes, star: bytes) -> bytes:
        """The path of the upstream for a request to `host`, in which "*" matched `star`."""
        path = self.upstream_path
        return path.replace(HOST, host).replace(STAR, star) if b"{" in path else path


@dataclass(frozen=True, slots=True)
class Site:
    """Hosts that share one set of URLs, and their routes; the site itself is the route "/".

    `hosts` are names, "*.suffix" patterns or addresses, with or without a port. `aliases` are exact names:
    they become hosts[0], or are answered with `alias_answer` (301 or 308). `scheme` is b"keep", or the one
    scheme, b"http" or b"https". `canonical` chooses the answer to a GET of another spelling: as usual, a
    redirect (301 or 308), or a Link field ("link", RFC 6596).
    """

    name: str
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    aliases: tuple[str, ...] = ()
    alias_answer: int = 0
    scheme: bytes = b"keep"
    canonical: Literal["serve", "link", 301, 308] = "serve"

    def __post_init__(self) -> None:
        # /a goes before /a*, which holds the rest of what begins so.
        by_length = sorted(self.routes, key=lambda route: (-len(route.begin), len(route.prefix)))
        longest_first = tuple(by_length)
        object.__setattr__(self, "routes", longest_first)
        prefixes = [route.prefix for route in longest_first]
        if b"/" not in prefixes or len(set(prefixes)) < len(prefixes):
            texts = [prefix.decode("latin-1") for prefix in prefixes]
            raise ConfigurationError(
                f"site {self.name}", "routes", texts, "distinct prefixes, '/' among them"
            )
        exact = [host for host in self.hosts if not host.startswith("*.")]
        for route in longest_first:
            if exact and STAR in route.upstream_path:
                allowed = f"no {{1}}, since {exact[0]!r} has no '*'"
                raise ConfigurationError(
                    f"site {self.name}", "upstream", route.upstream_path.decode(), allowed
                )

    @classmethod
    def of(
        cls,
        hosts: str | Sequence[str],
        profile: ProfileName,
        *,
        routes: Mapping[str, ProfileName] = {},
        aliases: Sequence[str] = (),
        alias_answer: Literal["serve", 301, 308] = "serve",
        scheme: Literal["keep", "http", "https"] = "keep",
        canonical: Literal["serve", "link", 301, 308] = "serve",
    ) -> Site:
        """The site of these `hosts`, as `[[sites]]` of a file describes one.

        `routes` maps path prefixes to profiles, and `profile` has the other paths. Raises
        ConfigurationError; ProfileError for a profile's file.
        """
        names = (hosts,) if isinstance(hosts, str) else tuple(hosts)
        source = f"site {names[0]}" if names else "site"
        for key, value, allowed in (
            ("hosts", names, "a host name or address, with or without a port, or *.name"),
            ("scheme", scheme, "keep, http or https"),
            ("alias_answer", alias_answer, "serve, 301 or 308"),
            ("canonical", canonical, "serve, link, 301 or 308"),
        ):
            if not value or (key != "hosts" and str(value) not in re.split(", | or ", allowed)):
                raise ConfigurationError(source, key, value, allowed)
        own = {"/": profile, **routes}
        return cls(
            name=names[0],
            hosts=names,
            routes=tuple(
                Route(path.encode(), chosen_profile(each, source, f"routes[{path!r}]"), "")
                for path, each in own.items()
            ),
            aliases=tuple(aliases),
            alias_answer=0 if alias_answer == "serve" else alias_answer,
            scheme=scheme.encode(),
            canonical=canonical,
        )

    def route_of(self, view: bytes) -> Route:
        """The route with the longest prefix that begins `view` (see `routing_view`)."""
        return next((route for route in self.routes if route.holds(view)), self.routes[-1])
