"""The one spelling of a target URI, and what the origin server gets of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from univocal.http.compiling import mypyc_attr
from univocal.http.fields import ENCODINGS
from univocal.http.references import ReferenceMap
from univocal.uri.profile import Profile
from univocal.uri.query import split
from univocal.uri.readings import Readings, plain_reading, readings
from univocal.uri.segments import is_under, routing_view
from univocal.uri.site import PLACE, Route, Site
from univocal.uri.suspicious import is_utf_8

_PORT: Final = re.compile(rb":[0-9]*\Z")


@mypyc_attr(acyclic=True)
@dataclass(slots=True, init=False, unsafe_hash=True)
class Canonical:
    """The one spelling of a target URI, and who owns it: the only URL that anything downstream sees.

    It is immutable by convention: freezing it would make it take four times as long to build.

    `key` is injective: none of the four parts that it joins holds a blank. If `observed` is not empty,
    `target` is the received one and the request goes past the cache. `redirect` is 0, or the status with
    which an alias is sent to `own_url`, and a client of a route that redirects to `leads_to`. `verbatim`
    is what the origin gets where a route forwards targets as they came: an answer to it answers no other
    spelling. `respelled` is True where the site's `canonical` tells clients of the one spelling, and the
    target came in another. `upstream_path` is the route's, for this authority. `other_routes` are those in
    which the target lies by some reading; `chosen` are those of them that such a reading chooses. A
    `loose` target is spelled so that some server takes it for another path: no response to it is stored.
    """

    scheme: bytes
    authority: bytes
    target: bytes
    key: bytes = field(init=False)
    site: Site
    route: Route
    observed: tuple[str, ...]
    redirect: int
    verbatim: bytes
    respelled: bool
    upstream_path: bytes
    other_routes: tuple[Route, ...] = field(init=False, repr=False, compare=False)
    chosen: tuple[Route, ...] = field(init=False, repr=False, compare=False)
    loose: bool = field(init=False, repr=False, compare=False)
    leads_to: bytes = field(init=False, repr=False, compare=False)
    _readings: Readings | None = field(init=False, repr=False, compare=False)

    def __init__(
        self,
        scheme: bytes,
        authority: bytes,
        target: bytes,
        site: Site,
        route: Route,
        observed: tuple[str, ...] = (),
        redirect: int = 0,
        verbatim: bytes = b"",
        respelled: bool = False,
        upstream_path: bytes = b"",
    ) -> None:
        self.scheme = scheme
        self.authority = authority
        self.target = target
        self.key = b"%b %b %b %b" % (route.profile.digest, scheme, authority, target)
        self.site = site
        self.route = route
        self.observed = observed
        self.redirect = redirect
        self.verbatim = verbatim
        self.respelled = respelled
        self.upstream_path = upstream_path
        self.other_routes = ()
        self.chosen = ()
        self.loose = False
        self.leads_to = b""
        self._readings = None

    @property
    def readings(self) -> Readings:
        """The readings of the path that the origin server gets."""
        if self._readings is None:
            self._readings = readings(split(self.verbatim or self.target)[0])
        return self._readings

    @property
    def plain(self) -> bytes:
        """The target for which some server takes a loose one."""
        path, query = split(self.target)
        return plain_reading(path, self.route.profile.loose) + query

    def https_url(self, port: int) -> bytes:
        """The absolute URL under https, at a port of its own, to which clients are sent."""
        host = _PORT.sub(b"", self.authority) + (b"" if port == 443 else b":%d" % port)
        target = self.verbatim or self.target
        return b"https://%b%b" % (host, b"" if target == b"*" else target)

    def reference_map(self) -> ReferenceMap | None:
        """The map from the origin server's URLs to those of clients; None where its route maps nothing."""
        route, prefix, before, after = self.route, b"/", b"/", b""
        references, cookies = route.redirects == "map", route.cookie_path == "map"
        if not (references or cookies):
            return None
        if self.upstream_path:
            before, place, after = self.upstream_path.partition(PLACE)
            prefix = b"/" if place else route.replaced
        return ReferenceMap(self.scheme, self.authority, prefix, before, after, references, cookies)

    @property
    def own_url(self) -> bytes:
        """The absolute URL to which clients of an alias are sent: of the target that the origin would get."""
        if not self.verbatim:
            return self.url
        return b"%b://%b%b" % (self.scheme, self.authority, b"" if self.verbatim == b"*" else self.verbatim)

    @property
    def url(self) -> bytes:
        """The absolute URL."""
        return b"%b://%b%b" % (self.scheme, self.authority, b"" if self.target == b"*" else self.target)


# Clients send these as they stand in a reference: RFC 3986's path and query, "[" and "]". Browsers encode
# a "'" in a query and remove dot segments.
_UNCHANGED: Final = re.compile(
    rb"(?:/(?!\.{1,2}(?:/|\?|\Z))(?:[A-Za-z0-9._~!$&'()*+,;=:@\[\]-]|%[0-9A-F]{2})*)+"
    rb"(?:\?(?:[A-Za-z0-9._~!$&()*+,;=:@/?\[\]-]|%[0-9A-F]{2})*)?"
)


def survives_clients(target: bytes) -> bool:
    """Tell whether clients that are sent to `target` ask for exactly that (RFC 3986 §5.2, WHATWG URL)."""
    return _UNCHANGED.fullmatch(target) is not None


# "//" would name a host, and some clients, as Python's urljoin, lose these when they resolve a reference.
_UNEVEN: Final = re.compile(rb"//|;|\?\Z")


def reference(canonical: Canonical) -> bytes:
    """A reference to a canonical target, under the scheme and host by which a client came (RFC 3986 §4.2).

    The absolute URL where not every client resolves a shorter one alike.
    """
    return canonical.url if _UNEVEN.search(canonical.target) else canonical.target


def origin_target(canonical: Canonical) -> bytes:
    """The target as the origin gets it: the canonical one, the upstream's path in place of the prefix."""
    if canonical.verbatim:
        return canonical.verbatim
    if not canonical.upstream_path or canonical.target == b"*":
        return canonical.target
    path, query = split(canonical.target)
    return _at_upstream(path, canonical.route.replaced, canonical.upstream_path) + query


def encoding_fields(canonical: Canonical) -> list[tuple[bytes, bytes]]:
    """The fields that tell the origin that path or query are UTF-8, where the profile has made sure of it.

    The fields of draft-montenegro-httpbis-uri-encoding; a client's own never go on. They depend on the target
    alone: what a client declared is not to be told apart by the origin once it has one key.
    """
    charset = canonical.route.profile.charset
    sure = (charset.path or charset.trust_encoding_fields, charset.query or charset.trust_encoding_fields)
    if not (sure[0] or sure[1]) or charset.origin == charset.prefer == "legacy":
        return []
    parts = zip(ENCODINGS, split(canonical.target), sure, strict=True)
    return [(name, b"UTF-8") for name, text, transcoded in parts if text and transcoded and is_utf_8(text)]


def strays(target: bytes, site: Site, route: Route) -> list[str]:
    """The reasons for which `target` leaves `route`, or the path of its upstream, by any reading."""
    if len(site.routes) == 1 and not route.upstream_path:
        return []
    path, _ = split(target)
    if len(site.routes) > 1 and (not _stays(path, site, route) or _climbs_out(path, route)):
        return ["crosses-route"]
    # Any host does: none is a dot segment, or holds a slash.
    upstream_path = route.filled(b"h", b"h")
    if upstream_path:
        root = upstream_path.partition(PLACE)[0]
        rest = path if PLACE in upstream_path else _rest(path, route)
        leaves = not is_under(routing_view(_at_upstream(path, route.replaced, upstream_path)), root or b"/")
        if leaves or readings(rest).above:
            return ["above-root"]
    return []


def _stays(path: bytes, site: Site, route: Route) -> bool:
    view = site.view(path)
    return site.route_of(view) is route and route.holds(view if route.is_pattern else path)


def _climbs_out(path: bytes, route: Route) -> bool:
    """A ".." of some reading, its letters as they came, leaves the route's paths."""
    if b"." not in path and b"%" not in path:
        return False
    if route.is_pattern or route.prefix.endswith(b"*"):
        every = readings(path)
        return every.everywhere or not all(map(route.holds, every.climbed))
    return route.begin != b"/" and readings(_rest(path, route)).above


def _rest(path: bytes, route: Route) -> bytes:
    """The part of a path behind the route's whole segments."""
    return b"/" + path[len(route.replaced) :].removeprefix(b"/")


def _at_upstream(path: bytes, prefix: bytes, upstream_path: bytes) -> bytes:
    before, place, after = upstream_path.partition(PLACE)
    if place:
        return before.rstrip(b"/") + path + after
    rest = path[len(prefix.rstrip(b"/")) :]
    return upstream_path.rstrip(b"/") + rest if rest else upstream_path


def path_tags(target: bytes, profile: Profile) -> frozenset[bytes]:
    """The tags that the profile derives from the path of a canonical `target`."""
    if not profile.tags:
        return frozenset()
    path, _ = split(target)
    matches = ((pattern.search(path), tag) for pattern, tag in _compiled(profile))
    return frozenset(match.expand(tag) for match, tag in matches if match)


@lru_cache(maxsize=1024)
def _compiled(profile: Profile) -> list[tuple[re.Pattern[bytes], bytes]]:
    return [(re.compile(pattern), tag) for pattern, tag in profile.tags]
