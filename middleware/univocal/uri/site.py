"""The site and route that own a request; hosts in their one spelling (RFC 9110 §4.2.3, RFC 3986 §3.2.2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from univocal.http.errors import ConfigurationError
from univocal.http.grammar import compile_globs, without_port
from univocal.http.settings import one_of, setting
from univocal.uri.profile import Profile, ProfileName, chosen_profile
from univocal.uri.readings import Readings, spelled_alike
from univocal.uri.segments import is_under, merge_leading_slashes, routing_view

# In the path of an upstream: the canonical path, the site's host, and the part of it that "*" stands for.
PLACE: Final = b"{path}"
HOST: Final = b"{host}"
STAR: Final = b"{1}"
_WITHOUT_STAR: Final = "a path that ends with '/', without '*': it holds all paths below"
_PATHS: Final = (
    "a prefix such as '/a/', one path such as '=/a', a glob such as '*.png' or an expression '~^/a'"
)

# A path, or a URL whose authority nothing follows that could be part of a host.
_LOCATION: Final = re.compile(
    rb"(?:https?://(?:\{host\}|[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?(?=[/?]|\{path\}|\{query\}|\Z)|(?=/(?!/)))"
    rb"(?:[!-z|~]|\{(?:path|query|rest|host|1)\})*"
)
_LOCATIONS: Final = (
    "a path, or http:// or https://, a host or {host}, and a path, "
    "with {path}, {query}, {rest}, {host} and {1} in it"
)
_NAMED: Final = re.compile(rb"\{\w+\}")

Matches: TypeAlias = Callable[[bytes], bool]
"""A test of a path, in time linear in its length."""

AliasAnswer: TypeAlias = Literal["serve", 301, 308]
CanonicalAnswer: TypeAlias = Literal["serve", 301, 308, "link"]
SiteScheme: TypeAlias = Literal["keep", "http", "https"]


@dataclass(frozen=True, slots=True)
class Route:
    """The paths of one kind, how targets under them are read, and where they go.

    The `prefix` is one, or one path, a glob or an expression:

    - "/a" is of whole segments: it holds /a and /a/b. "/a*" is of bytes: it holds /ab, too. If the longest
      prefix is `final`, no glob and no expression goes before it.
    - "=/a" holds /a alone.
    - "*.png" is a glob: "*" stands for any bytes.
    - "~^/a[0-9]" is an expression. `expression` has its test, and its test regardless of case.

    `upstream` names an origin server. An `upstream_path` replaces the prefix on the way there (its whole
    segments alone), or the canonical path replaces the `{path}` in it. `{host}` and `{1}` stand for the
    request's host and the part of it that the site's "*" matches. With `forward` "received", which excludes
    an `upstream_path`, the origin server gets the received target. The canonical one is the key nevertheless.
    `redirects` and `cookie_path` say whether URLs, and cookies' paths, are mapped back in its responses.
    With a `redirect_status`, clients are sent to `redirect`, a path or an absolute URL. `{path}` and
    `{query}` in it are the canonical ones. `{rest}` is what follows the prefix, `{host}` the host,
    and `{1}` what the expression's `group` gives.
    """

    prefix: bytes
    profile: Profile
    upstream: str
    upstream_path: bytes = b""
    forward: Literal["canonical", "received"] = setting("canonical", one_of("canonical", "received"))
    redirects: Literal["map", "keep"] = setting("map", one_of("map", "keep"))
    cookie_path: Literal["map", "keep"] = setting("keep", one_of("map", "keep"))
    final: bool = False
    redirect: bytes = b""
    redirect_status: int = 0
    group: Callable[[bytes], bytes] | None = field(default=None, repr=False, compare=False)
    expression: tuple[Matches, Matches] | None = field(default=None, repr=False, compare=False)
    _matches: Matches | None = field(init=False, repr=False, compare=False)  # of a glob or an expression
    _means: Matches = field(init=False, repr=False, compare=False)  # of a reading

    def __post_init__(self) -> None:
        if self.forward == "received" and self.upstream_path:
            allowed = '"canonical" where the upstream has a path'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        charset = self.profile.charset
        if self.forward == "received" and (charset.path or charset.query or charset.trust_encoding_fields):
            # The origin server would get bytes in a charset that no field names.
            allowed = '"canonical" where the profile has a [charset]'
            raise ConfigurationError("routes", "forward", self.forward, allowed)
        if self.redirect_status and not _LOCATION.fullmatch(self.redirect):
            raise ConfigurationError("routes", "redirect", self.redirect.decode("latin-1"), _LOCATIONS)
        if STAR in self.redirect and self.group is None:
            allowed = "no {1}, which is the first group of a route's expression"
            raise ConfigurationError("routes", "redirect", self.redirect.decode("latin-1"), allowed)
        self._check_paths()
        exact, means = _tests(self)
        object.__setattr__(self, "_matches", exact)
        object.__setattr__(self, "_means", means)

    def _check_paths(self) -> None:
        # In place of "{path}" any segment may stand, so what follows it must not become a dot segment.
        upstream_path = (self.filled(b"h", b"h") or b"/").replace(PLACE, b"/", 1).replace(b"//", b"/")
        paths = [("upstream", upstream_path)]
        if not self.is_pattern:
            if self.prefix.endswith(b"/*"):
                raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), _WITHOUT_STAR)
            paths.append(("path", self.begin))
            if self.profile.ring.canonical(self.begin) != self.begin:
                allowed = f"a path as the profile {self.profile.name} spells it"
                raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), allowed)
        elif not self.prefix.startswith(b"~") and (b"?" in self.prefix or not self.prefix.strip(b"*")):
            raise ConfigurationError("routes", "path", self.prefix.decode("latin-1"), _PATHS)
        elif self.upstream_path and PLACE not in self.upstream_path:
            allowed = "no path, or one with {path}, where the route's path is no prefix"
            raise ConfigurationError("routes", "upstream", self.upstream_path.decode("latin-1"), allowed)
        for key, path in paths:
            if not path.startswith(b"/") or b"?" in path or b"#" in path or routing_view(path) != path:
                allowed = "a path that begins with '/', percent-encoded, without dot segments, '?' and '#'"
                allowed += "; {path}, {host} and {1} in an upstream's" if key == "upstream" else ""
                raise ConfigurationError("routes", key, path.decode("latin-1"), allowed)

    @property
    def is_one_path(self) -> bool:
        """The route holds one path alone."""
        return self.prefix.startswith(b"=")

    @property
    def is_pattern(self) -> bool:
        """The route's path is a glob or an expression."""
        return self.prefix[:1] in {b"*", b"~"} or bool(_STAR_WITHIN.search(self.prefix))

    @property
    def begin(self) -> bytes:
        """The bytes that the paths of this route begin with."""
        return b"/" if self.is_pattern else self.prefix.removesuffix(b"*").removeprefix(b"=")

    @property
    def replaced(self) -> bytes:
        """The whole segments in whose place an upstream's path stands."""
        begin = self.begin
        return begin[: begin.rindex(b"/") + 1] if self.prefix.endswith(b"*") else begin

    def holds(self, path: bytes) -> bool:
        """Tell whether a path is one of this route's."""
        if self._matches is not None:
            return self._matches(path)
        return path.startswith(self.begin) if self.prefix.endswith(b"*") else is_under(path, self.prefix)

    def means(self, reading: bytes) -> bool:
        """Tell whether a reading of a path, with folded letters, is one of this route's.

        Many servers take "/a.png/" for the file "/a.png".
        """
        return self._means(reading) or (self._matches is not None and self._means(reading.rstrip(b"/")))

    def location(self, scheme: bytes, authority: bytes, path: bytes, query: bytes) -> bytes:
        """The absolute URL to which clients of a canonical path and query are sent."""
        begin = self.begin
        values = {
            PLACE: path,
            b"{query}": query,
            b"{rest}": path[len(begin) :] if path.startswith(begin) else b"",
            HOST: without_port(authority),
            STAR: self.group(path) if self.group is not None else b"",
        }
        filled = _NAMED.sub(lambda named: values[named[0]], self.redirect)
        return b"%b://%b%b" % (scheme, authority, filled) if filled.startswith(b"/") else filled

    def filled(self, host: bytes, star: bytes) -> bytes:
        """The path of the upstream for a request to `host`, in which "*" matched `star`."""
        path = self.upstream_path
        return path.replace(HOST, host).replace(STAR, star) if b"{" in path else path


@dataclass(frozen=True, slots=True)
class Site:
    """Hosts that share one set of URLs, and their routes; the site itself is the route "/".

    `hosts` are names, "*.suffix" patterns or addresses, with or without a port. Others, "prefix.*" and
    expressions, have a test each in `tests`, by the text of the host. `aliases` are exact names:
    they become hosts[0], or are answered with `alias_answer` (301 or 308). `scheme` is b"keep", or the one
    scheme, b"http" or b"https". `canonical` chooses the answer to a GET of another spelling: as usual, a
    redirect (301 or 308), or a Link field ("link", RFC 6596). `rules` are the cache's, in place of the
    profiles' own and of those for all sites.
    """

    name: str
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    aliases: tuple[str, ...] = ()
    alias_answer: int = 0
    scheme: bytes = b"keep"
    canonical: CanonicalAnswer = "serve"
    rules: Any = field(default=None, repr=False, compare=False)  # this room knows nothing of a cache
    tests: Mapping[str, Matches] = field(default_factory=dict, repr=False, compare=False)

    root: Route = field(init=False, repr=False, compare=False)  # of the paths that no other route holds
    _prefixes: tuple[Route, ...] = field(init=False, repr=False, compare=False)  # the longest first
    _patterns: tuple[Route, ...] = field(init=False, repr=False, compare=False)  # in their order
    _one_paths: tuple[Route, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        one_paths = tuple(route for route in self.routes if route.is_one_path)
        patterns = tuple(route for route in self.routes if route.is_pattern)
        prefixes = [route for route in self.routes if not (route.is_one_path or route.is_pattern)]
        # /a goes before /a*, which holds the rest of what begins so.
        prefixes.sort(key=lambda route: (-len(route.begin), len(route.prefix)))
        object.__setattr__(self, "_one_paths", one_paths)
        object.__setattr__(self, "_patterns", patterns)
        object.__setattr__(self, "_prefixes", tuple(prefixes))
        ordered = (*one_paths, *patterns, *prefixes)
        object.__setattr__(self, "routes", ordered)
        paths = [route.prefix for route in ordered]
        if b"/" not in paths or len(set(paths)) < len(paths):
            texts = [path.decode("latin-1") for path in paths]
            raise ConfigurationError(f"site {self.name}", "routes", texts, "distinct paths, '/' among them")
        object.__setattr__(self, "root", ordered[-1])
        exact = [host for host in self.hosts if not host.startswith(("*.", "*:"))]
        for route in ordered:
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
        alias_answer: AliasAnswer = "serve",
        scheme: SiteScheme = "keep",
        canonical: CanonicalAnswer = "serve",
        rules: object = None,
    ) -> Site:
        """The site of these `hosts`, as `[[sites]]` of a file describes one.

        `routes` maps path prefixes to profiles, and `profile` has the other paths. `rules` are `Rules`, which
        `Runtime.of_sites` checks. Raises ConfigurationError; ProfileError for a profile's file.
        """
        named: object = (hosts,) if isinstance(hosts, str) else hosts
        for key, listed in (("hosts", named), ("aliases", aliases)):
            if not _are_texts(listed):
                raise ConfigurationError("site", key, listed, "a list of host names")
        names = (hosts,) if isinstance(hosts, str) else tuple(hosts)
        source = f"site {names[0]}" if names else "site"
        for key, value, allowed in (
            ("hosts", names, "a host name or address, with or without a port, *.name, or *:port"),
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
            rules=rules,
        )

    def view(self, path: bytes) -> bytes:
        """The view of a path by which routes are chosen; the site may merge leading slashes."""
        view = routing_view(path)
        return merge_leading_slashes(view) if self.root.profile.merge_slashes else view

    def route_of(self, view: bytes) -> Route:
        """The route of a path's `view`: its one path, a final prefix, a pattern, the longest prefix."""
        for route in self._one_paths:
            if route.holds(view):
                return route
        longest = self.longest_prefix(view)
        if self._patterns and not longest.final:
            return next((route for route in self._patterns if route.holds(view)), longest)
        return longest

    def longest_prefix(self, view: bytes) -> Route:
        """The route with the longest prefix that begins `view`."""
        return next((route for route in self._prefixes if route.holds(view)), self.root)

    def of_beginning(self, path: bytes) -> list[Route]:
        """The routes of all paths that begin with the bytes of `path`; first the one with the longest prefix.

        Its last segment may be incomplete, so it counts for prefixes of bytes alone.
        """
        view, complete = self.view(path), self.view(path[: path.rindex(b"/") + 1])
        longest = next(
            route
            for route in self._prefixes
            if route.holds(complete) or (route.prefix.endswith(b"*") and route.holds(view))
        )
        below = [route for route in self.routes if not route.is_pattern and route.begin.startswith(view)]
        found = [longest, *(route for route in below if route is not longest)]
        if all(route.final for route in found if not route.is_one_path):
            return found
        return [*found, *self._patterns]

    def lying_in(self, view: bytes, readings: Readings) -> tuple[set[Route], set[Route]]:
        """The routes in which a path lies by its `view` or any reading, and those that a reading chooses."""
        route = self.route_of(view)
        lies_in, chosen = {route}, {route}
        if not route.is_one_path:
            lies_in.add(self.longest_prefix(view))
            lies_in.update([pattern for pattern in self._patterns if pattern.holds(view)])
        if readings.everywhere:
            return set(self.routes), set(self.routes)
        for reading in readings.decoded_once if self._patterns else ():
            patterns = [pattern for pattern in self._patterns if pattern.means(reading)]
            lies_in.update(patterns)
            if not self._longest(reading)[0].final:
                chosen.update(patterns[:1])
        for reading in readings.folded:
            if one_paths := [route for route in self._one_paths if route.means(reading)]:
                lies_in.update(one_paths)
                chosen.update(one_paths)
                continue
            longest = self._longest(reading)
            patterns = [pattern for pattern in self._patterns if pattern.means(reading)]
            lies_in.update(longest, patterns)
            chosen.update(longest if longest[0].final or not patterns else patterns[:1])
        return lies_in, chosen

    def _longest(self, reading: bytes) -> list[Route]:
        """The routes with the longest prefix that begins a reading; several differ in case alone."""
        longest = next((route for route in self._prefixes if route.means(reading)), self.root)
        length = len(longest.begin)
        return [
            each
            for each in self._prefixes
            if each is longest or (len(each.begin) == length and each.means(reading))
        ]


_STAR_WITHIN: Final = re.compile(rb"\*(?!\Z)")


def _are_texts(listed: object) -> bool:
    if isinstance(listed, str | bytes) or not isinstance(listed, Iterable):
        return False
    return all(isinstance(each, str) for each in listed)


def _tests(route: Route) -> tuple[Matches | None, Matches]:
    """The tests of a path and of a reading; the former is None for a prefix."""
    path = route.prefix
    if path.startswith(b"~"):
        if route.expression is None:
            raise ConfigurationError("routes", "path", path.decode("latin-1"), _PATHS)
        return route.expression
    if route.is_pattern:
        globs, alike = compile_globs([path]), compile_globs(sorted(spelled_alike(path)))
        return lambda view: bool(globs and globs.fullmatch(view)), lambda reading: bool(
            alike and alike.fullmatch(reading)
        )
    begins = spelled_alike(route.begin)
    if route.is_one_path:
        one = {begin.rstrip(b"/") for begin in begins}
        return lambda view: view == route.begin, lambda reading: reading.rstrip(b"/") in one
    if path.endswith(b"*"):
        return None, lambda reading: any(map(reading.startswith, begins))
    return None, lambda reading: any(is_under(reading, begin) for begin in begins)
