"""Received target in; Canonical or Rejected out (RFC 9112 §3)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from univocal.http.authority import DEFAULT_PORTS, parse_authority
from univocal.http.fields import ENCODINGS
from univocal.http.grammar import split_absolute
from univocal.uri.charset import known_charset
from univocal.uri.pipeline import Declared, Rejected, canonical_target, rejected, split
from univocal.uri.profile import Profile
from univocal.uri.segments import is_under, routing_view
from univocal.uri.site import PLACE, Route, Site, Sites
from univocal.uri.suspicious import is_utf_8

__all__ = [
    "Canonical",
    "declared_charsets",
    "encoding_fields",
    "origin_target",
    "path_tags",
    "resolve",
    "resolve_url",
]


@dataclass(frozen=True, slots=True)
class Canonical:
    """The one spelling of a target URI, and who owns it: the only URL that anything downstream sees.

    `key` is injective: none of the four parts that it joins holds a blank. If `observed` is not empty,
    `target` is the received one and the request goes past the cache. `redirect` is 0, or the status with
    which an alias is sent to `url`. `received` is what the origin gets where a route forwards targets as
    they came: an answer to it answers no other spelling.
    """

    scheme: bytes
    authority: bytes
    target: bytes
    key: bytes
    site: Site
    route: Route
    observed: tuple[str, ...] = ()
    redirect: int = 0
    received: bytes = b""

    @property
    def url(self) -> bytes:
        """The absolute URL."""
        return b"%b://%b%b" % (self.scheme, self.authority, b"" if self.target == b"*" else self.target)


def resolve(
    received: bytes,
    hosts: Sequence[bytes],
    scheme: bytes,
    sites: Sites,
    method: bytes = b"GET",
    encodings: tuple[bytes, bytes] = (b"", b""),
) -> Canonical | Rejected:
    """The site that a request is for and what it asks of it, in one spelling (RFC 9112 §3.2, §3.3).

    `received` is the request target as it came, `hosts` the values of all Host field lines, `scheme` the
    connection's, `encodings` the values of URI-Path-Encoding and URI-Query-Encoding, which count where a
    profile trusts them. Recent results are remembered: a bounded number, of targets up to 1024 octets.
    """
    if len(hosts) != 1:
        return rejected("bad-host")
    if received == b"*" and method != b"OPTIONS":
        return rejected("bad-target")
    if method == b"OPTIONS" and (absolute := split_absolute(received)) is not None and not absolute.rest:
        # RFC 9112 §3.2.4: without path and query it asks the server itself, if that is served here.
        found = _resolve(received, hosts[0], scheme, sites, _UNDECLARED)
        if isinstance(found, Rejected):
            return found
        received, hosts = b"*", [absolute.authority]
    declared = declared_charsets(encodings)
    if len(received) > _MEMORABLE or len(hosts[0]) > _MEMORABLE:
        return _resolve(received, hosts[0], scheme, sites, declared)
    return _remembered(received, hosts[0], scheme, sites, declared)


def declared_charsets(encodings: tuple[bytes, bytes]) -> Declared:
    """The charsets that URI-Path-Encoding and URI-Query-Encoding name, where they are known."""
    return (known_charset(encodings[0]), known_charset(encodings[1])) if any(encodings) else _UNDECLARED


def resolve_url(
    url: bytes, sites: Sites, method: bytes = b"GET", encodings: tuple[bytes, bytes] = (b"", b"")
) -> Canonical | Rejected:
    """The same for an absolute `url`, asked for on a connection of its own scheme."""
    absolute = split_absolute(url)
    if absolute is None:
        return rejected("bad-target")
    host = absolute.authority.rpartition(b"@")[2]
    return resolve(url, [host], absolute.scheme.lower(), sites, method, encodings)


def origin_target(canonical: Canonical) -> bytes:
    """The target as the origin gets it: the canonical one, the upstream's path in place of the prefix."""
    if canonical.received:
        return canonical.received
    path, query = split(canonical.target)
    if not canonical.route.upstream_path or path == b"*":
        return canonical.target
    return _at_upstream(path, canonical.route) + query


def encoding_fields(canonical: Canonical) -> list[tuple[bytes, bytes]]:
    """The fields that tell the origin that path or query are UTF-8, where the profile has made sure of it.

    The fields of draft-montenegro-httpbis-uri-encoding; a client's own never go on. They depend on the target
    alone: what a client declared is not to be told apart by the origin once it has one key.
    """
    charset = canonical.route.profile.charset
    sure = (charset.path or charset.trust_encoding_fields, charset.query or charset.trust_encoding_fields)
    if not any(sure):
        return []
    said = zip(ENCODINGS, split(canonical.target), sure, strict=True)
    return [(name, b"UTF-8") for name, text, transcoded in said if text and transcoded and is_utf_8(text)]


_MEMORABLE: Final = 1024
_UNDECLARED: Final = ("", "")

# What cannot stand on a request line without ending it; not even to observe is it forwarded as it came.
_UNSPEAKABLE: Final = re.compile(rb"[\x00-\x20\x7F]")


def _resolve(
    received: bytes, host: bytes, scheme: bytes, sites: Sites, declared: Declared
) -> Canonical | Rejected:
    authority = parse_authority(host)
    if authority is None:
        return rejected("bad-host")
    absolute = split_absolute(received)
    if absolute is not None:
        target_scheme = absolute.scheme.lower()
        if target_scheme not in DEFAULT_PORTS or b"@" in absolute.authority:
            return rejected("bad-target")
        authority = parse_authority(absolute.authority)
        if authority is None:
            return rejected("bad-host")
        if target_scheme != scheme:
            return rejected("unknown-host")
        # An empty path is "/" (RFC 9110 §4.2.3).
        received = absolute.rest if absolute.rest.startswith(b"/") else b"/" + absolute.rest
    port = authority[1] or DEFAULT_PORTS[scheme]
    located = sites.locate(authority[0], port)
    if located is None:
        return rejected("unknown-host")
    site, served_as = located
    redirect = site.alias_answer if served_as != (authority[0], port) else 0
    return _of_site(received, declared, site, redirect, *_served(site, served_as, scheme))


def _served(site: Site, served_as: tuple[bytes, int], scheme: bytes) -> tuple[bytes, bytes]:
    """The scheme and authority of the key; a port goes if it is the connection's default or the key's."""
    host, port = served_as
    if port == DEFAULT_PORTS[scheme]:
        port = DEFAULT_PORTS.get(site.scheme, port)
    unified = scheme if site.scheme == b"keep" else site.scheme
    return unified, host if port == DEFAULT_PORTS[unified] else b"%b:%d" % (host, port)


def _of_site(
    received: bytes, declared: Declared, site: Site, redirect: int, scheme: bytes, authority: bytes
) -> Canonical | Rejected:
    route = site.routes[-1]
    target: bytes | Rejected = received
    observed: tuple[str, ...] = ()
    if received != b"*":
        if len(site.routes) > 1:
            route = site.route_of(routing_view(split(received.partition(b"#")[0])[0]))
        target, observed = _accepted(received, declared, site, route)
    if isinstance(target, Rejected):
        return target
    key = b"%b %b %b %b" % (route.profile.digest, scheme, authority, target)
    came = received.partition(b"#")[0] if route.forward == "received" else b""
    if _UNSPEAKABLE.search(came):
        return rejected("control-character")
    return Canonical(scheme, authority, target, key, site, route, observed, redirect, came)


def _accepted(
    received: bytes, declared: Declared, site: Site, route: Route
) -> tuple[bytes | Rejected, tuple[str, ...]]:
    """The target to key and forward, or why there is none; and what a profile only observes."""
    trusted = declared if route.profile.charset.trust_encoding_fields else _UNDECLARED
    target = canonical_target(received, route.profile, trusted)
    if not isinstance(target, Rejected):
        strays = _strays(target, site, route)
        if not strays:
            return target, ()
        target = rejected(*strays)
    if route.profile.mode != "observe" or not received.startswith(b"/") or _UNSPEAKABLE.search(received):
        return target, ()
    if route.upstream_path and _strays(received, site, route):
        return target, ()  # there is no prefix to replace, or the result would leave the upstream's path
    return received, target.reasons


def _strays(target: bytes, site: Site, route: Route) -> list[str]:
    """The reasons for which `target` leaves `route`, or the path of its upstream."""
    path, _ = split(target)
    if len(site.routes) > 1 and not (
        site.route_of(routing_view(path)) is route and is_under(path, route.prefix)
    ):
        return ["crosses-route"]
    root = route.upstream_path.partition(PLACE)[0]
    if root and not is_under(routing_view(_at_upstream(path, route)), root):
        return ["above-root"]
    return []


def _at_upstream(path: bytes, route: Route) -> bytes:
    before, place, after = route.upstream_path.partition(PLACE)
    if place:
        return before.rstrip(b"/") + path + after
    rest = path[len(route.prefix.rstrip(b"/")) :]
    return route.upstream_path.rstrip(b"/") + rest if rest else route.upstream_path


_remembered = lru_cache(maxsize=4096)(_resolve)


def path_tags(target: bytes, profile: Profile) -> frozenset[bytes]:
    """The tags that the profile derives from the path of a canonical `target`."""
    if not profile.tags:
        return frozenset()
    path, _ = split(target)
    found = ((pattern.search(path), tag) for pattern, tag in _compiled(profile))
    return frozenset(match.expand(tag) for match, tag in found if match)


@lru_cache(maxsize=1024)
def _compiled(profile: Profile) -> list[tuple[re.Pattern[bytes], bytes]]:
    return [(re.compile(pattern), tag) for pattern, tag in profile.tags]
