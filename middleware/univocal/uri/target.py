"""The one spelling of a target URI, by the steps of its profile, and what the origin server gets of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, TypeAlias

from univocal.http.compiling import mypyc_attr
from univocal.http.errors import by_rank
from univocal.http.grammar import without_port
from univocal.http.messages import ENCODINGS
from univocal.http.references import ReferenceMap
from univocal.uri.charset import UTF_8
from univocal.uri.percent_encoding import spellings
from univocal.uri.profile import Profile
from univocal.uri.query import BARE, UNRESERVED_ESCAPE, Respell, begun_at_semicolon, query_steps, split
from univocal.uri.readings import Readings, plain_reading, readings
from univocal.uri.rewrite import Rewrite, rewriter
from univocal.uri.segments import (
    add_trailing_slash,
    is_under,
    merge_leading_slashes,
    merge_slashes,
    remove_dot_segments,
    remove_empty_segments,
    remove_index_name,
    remove_servlet_dot_segments,
    remove_trailing_slash,
    routing_view,
    strip_parameters,
)
from univocal.uri.site import PLACE, Route, Site
from univocal.uri.suspicious import UTF_8_ESCAPES, Inspector, is_utf_8


@dataclass(frozen=True, slots=True)
class Stage:
    """A target before and after one step of a profile; `lossy` if it drops what an origin may read."""

    name: str
    before: bytes
    after: bytes
    lossy: bool


@dataclass(frozen=True, slots=True)
class Rejected:
    """A target is refused for these `reasons`; `reason` is the first of them."""

    reason: str
    reasons: tuple[str, ...]


Declared: TypeAlias = tuple[str, str]
"""The charsets that a client declares for path and query: "utf-8", one of CHARSETS, or "" for none."""


def canonical_target(target: bytes, profile: Profile, declared: Declared = ("", "")) -> bytes | Rejected:
    """The canonical form of an origin-form `target`, the same object if it is canonical already."""
    pipeline = _pipeline(profile, declared)
    if pipeline.plain.fullmatch(target):
        return target
    return pipeline.run(target, None)


def explain_target(
    target: bytes, profile: Profile, declared: Declared = ("", "")
) -> tuple[list[Stage], bytes | Rejected]:
    """The result of `canonical_target`, and each stage on the way, even of a target that is rejected."""
    stages: list[Stage] = []
    result = _pipeline(profile, declared).run(target, stages)
    return stages, result


# The path and the query of a target; the query is b"" or begins with "?".
_SEGMENT: Final = re.compile(rb"[^/]+")
_Parts: TypeAlias = tuple[bytes, bytes]
# The name of a step, the step, and whether it is lossy.
_Step: TypeAlias = tuple[str, Callable[[bytes, bytes], _Parts], bool]

MOST_ROUNDS: Final = 8
"""How often a target of a restless profile may change; if it never comes to rest, it is a bad one."""


class _Pipeline:
    """A profile's steps bring a target into its one spelling; `plain` matches targets that have it."""

    def __init__(self, profile: Profile, declared: Declared) -> None:
        self.plain = _plain(profile)
        self._declared = declared
        self._steps = tuple(_steps(profile, declared))
        # A target that was transcoded once is no longer in the charset that was declared.
        self._again = tuple(_steps(profile, ("", "")))
        self._rounds = MOST_ROUNDS if is_restless(profile) else 1
        self._refuses_fragment = "fragment" in profile.sequences
        self._refuses_raw = profile.raw == "refuse"
        self._semicolon_begins = profile.query.semicolon == "begins"
        listed = frozenset(profile.sequences)
        # Where bytes become UTF-8, that is asked behind the steps.
        self._minds_utf_8 = "bad-utf-8" in listed and _transcodes(profile)
        self._inspect = Inspector(
            listed - {"bad-utf-8"} if self._minds_utf_8 else listed,
            profile.ring.decoded,
            profile.parameter_delimiters,
            reads_parameters=profile.reads_parameters,
            unicode_escapes=profile.ring.unicode_escapes,
            merges=profile.merge_slashes is True,
        )

    def run(self, target: bytes, stages: list[Stage] | None) -> bytes | Rejected:
        """The canonical form of `target`, or why there is none; what each stage does goes to `stages`."""
        current, fragment, _ = target.partition(b"#")
        reasons: set[str] = set()
        if fragment:
            reasons |= {"fragment"} if self._refuses_fragment else set()
            if stages is not None:
                stages.append(Stage("fragment", target, current, lossy=True))
        if self._refuses_raw and not current.isascii():
            reasons.add("bad-target")
        reasons |= self._misdeclared(current)
        for number in range(self._rounds):
            respelled = self._round(current, reasons, stages, only_changes=number > 0)
            settled, current = respelled == current, respelled
            if settled:
                break
        else:
            reasons |= {"bad-target"} if self._rounds > 1 else set()
        if reasons:
            return rejected(*reasons)
        return target if current == target else current

    def _misdeclared(self, target: bytes) -> set[str]:
        parts = zip(split(target), self._declared, strict=True)
        return {"bad-utf-8"} if any(name == UTF_8 and not is_utf_8(part) for part, name in parts) else set()

    def _round(
        self, target: bytes, reasons: set[str], stages: list[Stage] | None, *, only_changes: bool
    ) -> bytes:
        if self._semicolon_begins and (begun := begun_at_semicolon(target)) is not target:
            if stages is not None:
                stages.append(Stage("semicolon", target, begun, lossy=False))
            target = begun
        path, query = split(target)
        reasons |= self._inspect(path)
        if not path.startswith(b"/"):
            reasons.add("no-leading-slash")
            return target
        for name, respell, lossy in self._again if only_changes else self._steps:
            before = path + query if stages is not None else b""
            path, query = respell(path, query)
            if stages is not None and not (only_changes and path + query == before):
                stages.append(Stage(name, before, path + query, lossy))
        if self._minds_utf_8 and not is_utf_8(path):
            reasons.add("bad-utf-8")
        return path + query


def is_restless(profile: Profile) -> bool:
    """Tell whether rewriting, index names and trailing slashes can each leave work for the others."""
    return bool(profile.rewrites or profile.index_names or profile.trailing_slash != "keep")


def _transcodes(profile: Profile) -> bool:
    return bool(profile.charset.path or profile.charset.trust_encoding_fields)


def _steps(profile: Profile, declared: Declared) -> Iterator[_Step]:
    adds = profile.trailing_slash == "add"
    for name, respell, lossy in _path_steps(profile, declared[0]):
        step = _on_path(respell)
        if adds and name == "index-names":
            yield name, _before_the_slash(step), lossy
        elif not (adds and name == "trailing-slash"):
            yield name, step, lossy
    if profile.rewrites:
        rewrite = _on_target(rewriter(profile.rewrites))
        yield "rewrite", _before_the_slash(rewrite) if adds else rewrite, True
    if adds:  # last: a rule may make a query of a path's end, and the slash belongs to the path
        yield "trailing-slash", _on_path(add_trailing_slash), True
    for name, respell, lossy in query_steps(profile.query, profile.charset, declared[1]):
        yield name, _on_query(respell), lossy


def _path_steps(profile: Profile, declared: str) -> Iterator[tuple[str, Respell, bool]]:
    """The steps by which `profile` changes a path: the name of each, the step, and whether it is lossy."""
    parameter = re.compile(rb"[%b][^/]*" % re.escape(profile.parameter_delimiters))
    if profile.parameters == "strip":
        yield "parameters", partial(strip_parameters, parameter=parameter), True
    yield "ring", profile.ring.canonical, False
    if profile.charset.path or declared:
        transcode = profile.charset.transcoder("path", declared)
        yield "charset", lambda path: _SEGMENT.sub(lambda segment: transcode(segment[0]), path), True
    if profile.merge_slashes is True and profile.reads_parameters:
        yield "slashes", partial(remove_empty_segments, parameter=parameter), False
    elif profile.merge_slashes is True:
        yield "slashes", merge_slashes, False
    # After the ring, since decoding can create dot segments.
    if profile.dot_segments == "rfc3986":
        yield "dot-segments", remove_dot_segments, False
    elif profile.dot_segments == "servlet":
        yield "dot-segments", partial(remove_servlet_dot_segments, parameter=parameter), False
    if profile.merge_slashes == "leading":  # a dot segment may leave slashes at the beginning
        yield "slashes", merge_leading_slashes, False
    if profile.index_names:
        yield "index-names", partial(remove_index_name, names=frozenset(profile.index_names)), True
    if profile.trailing_slash == "add":
        yield "trailing-slash", add_trailing_slash, True
    elif profile.trailing_slash == "remove":
        yield "trailing-slash", remove_trailing_slash, True


def _on_target(rewrite: Rewrite) -> Callable[[bytes, bytes], _Parts]:
    return lambda path, query: split(rewrite(path + query))


def _before_the_slash(respell: Callable[[bytes, bytes], _Parts]) -> Callable[[bytes, bytes], _Parts]:
    """Respell a path without the slash that is added to it; if nothing changes, the path with that slash."""

    def respelled(path: bytes, query: bytes) -> _Parts:
        bare = path[:-1]
        if add_trailing_slash(bare) == path:
            parts = respell(bare, query)
            if parts != (bare, query):
                return parts
        return respell(path, query)

    return respelled


def _on_path(respell: Callable[[bytes], bytes]) -> Callable[[bytes, bytes], _Parts]:
    return lambda path, query: (respell(path), query)


def _on_query(respell: Callable[[bytes], bytes]) -> Callable[[bytes, bytes], _Parts]:
    return lambda path, query: (path, respell(query))


def _plain(profile: Profile) -> re.Pattern[bytes]:
    """A pattern for most canonical targets and no others: no dot begins a segment, nothing is suspicious."""
    if is_restless(profile):
        return re.compile(b"(?!)")
    ring = profile.ring
    bare = set(ring.bare) - set(b"/?#\\") - set(profile.parameter_delimiters)
    escaped = set(ring.escaped) - set(b"/\\") - set(range(0x20)) - {0x7F}
    unit = spellings(bare, escaped)
    if _transcodes(profile) or "bad-utf-8" in profile.sequences:
        unit = spellings(bare, escaped - set(range(0x80, 0x100)))
    if "bad-utf-8" in profile.sequences and not _transcodes(profile):
        unit = b"(?:%b|%b)" % (unit, UTF_8_ESCAPES)
    segment = b"/(?![./])" if profile.merge_slashes is True else b"/(?!\\.)"
    begin = b"(?!//)" if profile.merge_slashes == "leading" else b""
    charset = profile.charset
    settings = profile.query
    decoded = b"(?!%b)" % UNRESERVED_ESCAPE if settings.decodes_unreserved else b""
    query = b"(?:\\?(?>(?:[%b]++|%b%%[0-9A-Fa-f]{2})*))?" % (re.escape(BARE), decoded)
    if settings.ring or settings != settings.octets_alone or charset.query or charset.trust_encoding_fields:
        query = b""
    return re.compile(b"%b(?>(?:%b%b*)+)%b" % (begin, segment, unit, query))


@lru_cache(maxsize=1024)
def _pipeline(profile: Profile, declared: Declared) -> _Pipeline:
    return _Pipeline(profile, declared)


def rejected(*reasons: str) -> Rejected:
    """Refused for `reasons`, in their order of precedence."""
    ranked = by_rank(reasons)
    return Rejected(ranked[0], ranked)


# The target and its URL


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
        host = without_port(self.authority) + (b"" if port == 443 else b":%d" % port)
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
