"""All sites by their hosts, and the one spelling of a URL by them (RFC 9112 §3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from univocal.http.errors import ConfigurationError, Objections, RefusedError
from univocal.http.framing import split_target
from univocal.http.grammar import (
    DEFAULT_PORTS,
    LONGEST_AUTHORITY,
    Absolute,
    Authority,
    a_labels,
    parse_authority,
    split_absolute,
)
from univocal.uri.charset import known_charset
from univocal.uri.percent_encoding import RINGS
from univocal.uri.profile import Profile, ProfileName, chosen_profile
from univocal.uri.query import split
from univocal.uri.readings import is_loose
from univocal.uri.site import Matches, Route, Site
from univocal.uri.target import (
    Canonical,
    Declared,
    Rejected,
    canonical_target,
    rejected,
    strays,
    survives_clients,
)

EVERYWHERE: Final = "*"  # the name of a site that owns every authority
_UNCLAIMED: Final = "a host that no other entry names"
LONGEST: Final = 255  # bytes of a host that are told of
# A site that owns a host, and the authority that it is served as where that is another.
_Entry: TypeAlias = tuple[Site, Authority | None]


class Sites:
    """All sites by host; `default` owns every authority that no other does."""

    def __init__(self, sites: Sequence[Site], default: Site | None = None) -> None:
        self.sites = tuple(sites)
        self.default = default
        self._exact: dict[Authority, _Entry] = {}
        self._suffixes: dict[Authority, _Entry] = {}
        self._ports: dict[int, Site] = {}  # of "*:port"
        tests = [(host, test, site) for site in self.sites for host, test in site.tests.items()]
        tests.sort(key=_rank_of_test)
        self._tests = tuple([(test, site) for _, test, site in tests])
        objections, claimed = Objections(), set[str]()
        for site in self.sites:
            for host in site.hosts:
                if host in site.tests:
                    with objections:
                        if host in claimed:
                            raise ConfigurationError(f"site {site.name}", "hosts", host, _UNCLAIMED)
                        claimed.add(host)
                    continue
                if host.startswith("*:"):
                    with objections:
                        self._own_port(site, host)
                    continue
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

    @property
    def all(self) -> tuple[Site, ...]:
        """The sites, and the default behind them."""
        return self.sites if self.default is None else (*self.sites, self.default)

    @classmethod
    def of(cls, profiles: Mapping[str, ProfileName], profile: ProfileName | None = None) -> Sites:
        """The sites that a mapping of hosts, or hosts and path prefixes, to profiles describes.

        Hosts are "wiki.example", "*.shop.example", an address, each with or without a port; a prefix follows
        as in "wiki.example/api/". "*" is for all hosts that are not named, and "/api/" for their paths below
        that prefix. The paths of a host that no prefix names have the profile of the longest pattern for that
        host, that of "*", or `profile`. With `profile` None, and without "*", hosts that are not named are
        refused (421). Raises ConfigurationError; ProfileError for a profile's file.
        """
        objections, prefixes = Objections(), dict[str, dict[str, Profile]]()
        places: Iterable[object] = profiles  # as str, compiled code would refuse others with a TypeError
        for each in places:
            with objections:
                place = _required_text(each)
                host, slash, rest = place.partition("/")
                own = prefixes.setdefault(host or EVERYWHERE, {})
                own[slash + rest or "/"] = chosen_profile(profiles[place], "sites", place)
        objections.conclude()
        default = _default(prefixes.pop(EVERYWHERE, {}), profile)
        whole = cls([Site.of(host, paths["/"]) for host, paths in prefixes.items() if "/" in paths], default)
        sites = list[Site]()
        for host, paths in prefixes.items():
            with objections:
                sites.append(Site.of(host, paths.get("/") or whole.profile_of(host), routes=paths))
        objections.conclude()
        return cls(sites, default)

    @classmethod
    def everywhere(cls, profile: Profile) -> Sites:
        """One site with this profile for every authority."""
        return cls((), default=_everywhere(profile))

    def profile_of(self, text: str) -> Profile:
        """The profile of the path "/" under a host or pattern. Raises ConfigurationError if there is none."""
        name = text.removeprefix("*.")
        authority = _authority(name)
        if authority is None:
            raise ConfigurationError("sites", text, text, _HOSTS)
        host, port = authority
        located = self.locate(host if name == text else b"*." + host, port or 0)
        if located is None:
            allowed = f"a profile for {text!r}, too, or one for all hosts: there are prefixes of it alone"
            raise ConfigurationError("sites", text, None, allowed)
        return located[0].root.profile

    def canonicalize(self, url: str | bytes) -> str:
        """The one spelling of an absolute `url`: its site's scheme and host, its route's target.

        Hosts may be U-labels, and bytes beyond ASCII may stand bare: in a text as UTF-8, or as
        `os.fsdecode` gives other bytes. User information stays. Raises RefusedError.
        """
        octets = url_octets(url)
        spelled = rejected("bad-target") if octets is None else canonical_url(octets, self)
        if isinstance(spelled, Rejected):
            raise RefusedError(spelled.reason, spelled.reasons)
        return spelled[0].decode("ascii")

    def _own(
        self, site: Site, key: str, text: str, real: Authority | None, host: str, *, wildcard: bool
    ) -> None:
        authority = _configured(site, key, host)
        table = self._suffixes if wildcard else self._exact
        if authority in table:
            raise ConfigurationError(f"site {site.name}", key, text, _UNCLAIMED)
        table[authority] = (site, real)

    def _own_port(self, site: Site, text: str) -> None:
        """Have a site own all hosts at a port that no other entry names with it."""
        authority = _authority(f"all{text[1:]}")
        if authority is None or authority[1] is None:
            raise ConfigurationError(f"site {site.name}", "hosts", text, _HOSTS)
        port = _configured(site, "hosts", f"all{text[1:]}")[1]
        if port is None or port in self._ports:
            raise ConfigurationError(f"site {site.name}", "hosts", text, _UNCLAIMED)
        self._ports[port] = site

    @property
    def ports(self) -> list[int]:
        """The ports with which hosts are named, each once."""
        named = [port for _, port in (*self._exact, *self._suffixes) if port is not None]
        return sorted({*named, *self._ports})

    def locate(self, host: bytes, port: int) -> tuple[Site, tuple[bytes, int]] | None:
        """The site that owns `host` and the authority it is served as: its own, or hosts[0] for an alias.

        Exact names go before patterns, longer patterns before shorter ones, entries with a port before those
        without. Names that have a test come last. Where a site has all hosts at a port, "*:port", no entry
        without that port counts.
        """
        entry = self._entry(self._exact, host, port)
        if entry is None and (dot := self._star(host, port)) >= 0:
            entry = self._entry(self._suffixes, host[dot + 1 :], port)
        if entry is not None:
            site, real = entry
            return site, (host, port) if real is None else (real[0], real[1] or port)
        if port in self._ports:
            return self._ports[port], (host, port)
        for test, tested in self._tests:
            if test(host):
                return tested, (host, port)
        return (self.default, (host, port)) if self.default else None

    def _entry(self, table: Mapping[Authority, _Entry], host: bytes, port: int) -> _Entry | None:
        """The entry of a name with this port, or that without one, which one site's "*:port" rules out."""
        entry = table.get((host, port))
        return table.get((host, None)) if entry is None and port not in self._ports else entry

    def _star(self, host: bytes, port: int) -> int:
        """The length of what "*" stands for in the longest pattern that owns `host`; -1 if none does."""
        dot = host.find(b".")
        while dot >= 0 and self._entry(self._suffixes, host[dot + 1 :], port) is None:
            dot = host.find(b".", dot + 1)
        return dot

    def upstream_path(self, route: Route, host: bytes, port: int) -> bytes:
        """The path of a route's upstream for a request that is served as `host` and `port`."""
        if b"{" not in route.upstream_path:
            return route.upstream_path
        dot = self._star(host, port)
        star = host if dot < 0 else host[:dot]
        return route.filled(*(text.replace(b"[", b"%5B").replace(b"]", b"%5D") for text in (host, star)))

    def place(self, hosts: Sequence[bytes], scheme: bytes, target: bytes) -> tuple[str, bytes]:
        """The name of the site, or "", and the route's prefix that a received target would have."""
        service = _service(hosts[0], scheme, self) if len(hosts) == 1 else None
        if service is None or service.site is None:
            return "", b"/"
        site = service.site
        return site.name, site.route_of(site.view(split_target(target).path)).prefix

    def owner(self, hosts: Sequence[bytes], scheme: bytes) -> tuple[str, str]:
        """The name of the site that serves a Host field's value, or "", and that value.

        A value that is no authority is given as it came, at most `LONGEST` bytes of it; several are joined.
        """
        authority = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if authority is None:
            return "", b", ".join(hosts)[:LONGEST].decode("latin-1")
        host, port = authority
        located = self.locate(host, port or DEFAULT_PORTS[scheme])
        text = host[:LONGEST].decode("ascii")
        return "" if located is None else located[0].name, text if port is None else f"{text}:{port}"


def _rank_of_test(entry: tuple[str, Matches, Site]) -> tuple[bool, int]:
    """The place of a name with a test: the longest "prefix.*" first, expressions last in their order."""
    is_expression = entry[0].startswith("~")
    return is_expression, 0 if is_expression else -len(entry[0])


def _everywhere(profile: Profile, prefixes: Mapping[str, Profile] = {}) -> Site:
    return Site(
        name=EVERYWHERE,
        hosts=(),
        routes=tuple(
            Route(prefix=prefix.encode(), profile=each, upstream="")
            for prefix, each in {"/": profile, **prefixes}.items()
        ),
    )


def _default(prefixes: Mapping[str, Profile], profile: ProfileName | None) -> Site | None:
    """The site of hosts that are not named; None: there is none. Raises ConfigurationError."""
    root = prefixes.get("/") or (None if profile is None else chosen_profile(profile, "sites"))
    if root is not None:
        return _everywhere(root, prefixes)
    if prefixes:
        first = next(iter(prefixes))
        raise ConfigurationError(
            "sites", first, None, 'a profile for "*", too: there are prefixes of it alone'
        )
    return None


def _required_text(place: object) -> str:
    if not isinstance(place, str) or not place or "://" in place:
        raise ConfigurationError("sites", "", place, f'{_HOSTS}, "*", or a path such as "/api/"')
    return place


def resolve(
    target: bytes,
    hosts: Sequence[bytes],
    scheme: bytes,
    sites: Sites,
    method: bytes = b"GET",
    encodings: tuple[bytes, bytes] = (b"", b""),
) -> Canonical | Rejected:
    """The site that a request is for, and its canonical target (RFC 9112 §3.2, §3.3).

    `target` is the received request target, `hosts` the values of all Host field lines, `scheme` the
    connection's. `encodings` are the values of URI-Path-Encoding and URI-Query-Encoding, which count where a
    profile trusts them. Recent results are remembered: a bounded number, of targets up to 1,024 bytes.
    """
    if len(hosts) != 1:
        return rejected("bad-host")
    if target == b"*" and method != b"OPTIONS":
        return rejected("bad-target")
    if method == b"OPTIONS" and (absolute := split_absolute(target)) is not None and not absolute.rest:
        # RFC 9112 §3.2.4: without path and query it asks the server itself, if that is served here.
        resolved = _resolve(target, hosts[0], scheme, sites, _UNDECLARED)
        if isinstance(resolved, Rejected):
            return resolved
        target, hosts = b"*", [absolute.authority]
    declared = declared_charsets(encodings) if encodings[0] or encodings[1] else _UNDECLARED
    if len(target) > MEMORABLE or len(hosts[0]) > MEMORABLE:
        return _resolve(target, hosts[0], scheme, sites, declared)
    return _remembered(target, hosts[0], scheme, sites, declared)


def declared_charsets(encodings: tuple[bytes, bytes]) -> Declared:
    """The charsets that URI-Path-Encoding and URI-Query-Encoding name, where they are known."""
    return (known_charset(encodings[0]), known_charset(encodings[1])) if any(encodings) else _UNDECLARED


def resolve_url(
    url: bytes, sites: Sites, encodings: tuple[bytes, bytes] = (b"", b"")
) -> Canonical | Rejected:
    """The same for an absolute `url`, asked for on a connection of its own scheme.

    U-labels of its host become A-labels (RFC 5890 §2.3.2.1).
    """
    absolute = split_absolute(url)
    if absolute is None:
        return rejected("bad-target")
    scheme, authority, rest = absolute
    if not authority.isascii():
        labels = ascii_authority(authority)
        if labels is None:
            return rejected("bad-host")
        url, authority = b"%b://%b%b" % (scheme, labels, rest), labels
    if scheme.lower() not in DEFAULT_PORTS:
        return rejected("bad-target")
    host = authority.rpartition(b"@")[2]
    return resolve(url, [host], scheme.lower(), sites, encodings=encodings)


def meant(canonical: Canonical, sites: Sites) -> list[Canonical]:
    """A canonical target, and those that a purge of it means, too.

    They are the target for which some server takes a loose one, and that of a file with a last slash.
    """
    targets = [canonical.plain] if canonical.loose else []
    path, query = split(canonical.target)
    if b"." in path[path.rfind(b"/") :]:
        targets.append(path + b"/" + query)
    resolved = [resolve(each, [canonical.authority], canonical.scheme, sites) for each in targets]
    return [canonical, *[each for each in resolved if isinstance(each, Canonical)]]


def canonical_url(url: bytes, sites: Sites) -> tuple[bytes, tuple[str, ...]] | Rejected:
    """The one spelling of an absolute `url`, and the reasons that its profile only observes.

    User information stays, in the spelling of RFC 3986; it is no part of any key (§3.2.1).
    """
    scheme, slashes, rest = url.partition(b"://")
    user, at = b"", b""
    if slashes:
        authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
        user, at, _ = authority.rpartition(b"@")
    resolved = resolve_url(scheme + slashes + rest[len(user + at) :], sites)
    if isinstance(resolved, Rejected):
        return resolved
    user = RINGS["rfc3986"].canonical(user).replace(b"@", b"%40") + at if user else b""
    scheme, slashes, rest = resolved.url.partition(b"://")
    return scheme + slashes + user + rest, resolved.observed


_AUTHORITY_END: Final = re.compile(rb"[/?#]")


def ascii_authority(authority: bytes) -> bytes | None:
    """An authority in UTF-8 with A-labels in place of U-labels (RFC 5890 §2.3.2.1); None if it cannot be."""
    try:
        return a_labels(authority.decode())
    except UnicodeError:
        return None


def url_octets(url: str | bytes) -> bytes | None:
    """The bytes of a URL as a user gives it: UTF-8, and what `os.fsdecode` makes of other bytes.

    None for half of a surrogate pair, for which no bytes stand.
    """
    if isinstance(url, bytes):
        return url
    try:
        return url.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


MEMORABLE: Final = 1024  # bytes of a target or a host that is remembered
_UNDECLARED: Final = ("", "")

_UNEVEN: Final = re.compile(rb"//|[%;\\]|/\.")  # no path without these is loose

# Bytes that would end a request line; not even to observe are they forwarded as they came.
_UNSPEAKABLE: Final = re.compile(rb"[\x00-\x20\x7F]")


def _resolve(
    target: bytes, host: bytes, scheme: bytes, sites: Sites, declared: Declared
) -> Canonical | Rejected:
    if len(host) > LONGEST_AUTHORITY:
        return rejected("bad-host")
    service = _serving(host, scheme, sites)
    if service is None:
        return rejected("bad-host")
    absolute = None if target[:1] == b"/" else split_absolute(target)
    if absolute is not None:
        named = _named(absolute, scheme, sites)
        if isinstance(named, Rejected):
            return named
        service = named
        # An empty path is "/" (RFC 9110 §4.2.3).
        target = absolute.rest if absolute.rest.startswith(b"/") else b"/" + absolute.rest
    site, redirect = service.site, service.redirect
    if site is None:
        return rejected("unknown-host")
    route, whole = site.root, target.partition(b"#")[0]
    if len(site.routes) > 1 and target != b"*":
        route = site.route_of(site.view(split(whole)[0]))
    spelled, observed = _accepted(target, declared, site, route)
    if isinstance(spelled, Rejected):
        return spelled
    verbatim = whole if route.forward == "received" else b""
    if _UNSPEAKABLE.search(verbatim):
        return rejected("control-character")
    respelled = site.canonical != "serve" and whole != spelled and _is_settled(spelled, declared, site, route)
    canonical = Canonical(
        service.scheme, service.authority, spelled, site, route, observed, redirect, verbatim, respelled
    )
    path, mark, query = spelled.partition(b"?")
    if route.redirect_status and not redirect and spelled != b"*":
        canonical.redirect = route.redirect_status
        canonical.leads_to = route.location(service.scheme, service.authority, path, mark + query)
    if route.upstream_path:
        canonical.upstream_path = sites.upstream_path(route, *service.served_as)
    canonical.loose = _UNEVEN.search(path) is not None and is_loose(path, route.profile.loose)
    if len(site.routes) > 1:
        lies_in, chosen = site.lying_in(site.view(path), canonical.readings)
        others = tuple([each for each in site.routes if each in lies_in and each is not route])
        canonical.other_routes, canonical.chosen = others, tuple([each for each in others if each in chosen])
    return canonical


def _named(absolute: Absolute, scheme: bytes, sites: Sites) -> _Service | Rejected:
    """The service of a target in absolute-form, which goes before the Host field (RFC 9112 §3.2.2)."""
    target_scheme = absolute.scheme.lower()
    if target_scheme not in DEFAULT_PORTS or b"@" in absolute.authority:
        return rejected("bad-target")
    service = _service(absolute.authority, scheme, sites)
    if service is None:
        return rejected("bad-host")
    return service if target_scheme == scheme else rejected("unknown-host")


class _Service(NamedTuple):
    """The site that serves an authority, and the scheme and authority of its keys; None: there is no site."""

    site: Site | None
    served_as: tuple[bytes, int]
    redirect: int  # the status that sends who asks an alias to the site's own host; 0: it is served
    scheme: bytes
    authority: bytes


def _service(host: bytes, scheme: bytes, sites: Sites) -> _Service | None:
    """The service of a Host field's value on a connection of this scheme; None if it names no host."""
    authority = parse_authority(host)
    if authority is None:
        return None
    service = authority[0], authority[1] or DEFAULT_PORTS[scheme]
    located = sites.locate(*service)
    if located is None:
        return _Service(None, service, 0, scheme, host)
    site, served_as = located
    redirect = site.alias_answer if served_as != service else 0
    return _Service(site, served_as, redirect, *_served(site, served_as, scheme))


_serving: Final = lru_cache(maxsize=1024)(_service)


def _served(site: Site, served_as: tuple[bytes, int], scheme: bytes) -> tuple[bytes, bytes]:
    """The scheme and authority of the key; a port goes if it is the connection's default or the key's."""
    host, port = served_as
    if port == DEFAULT_PORTS[scheme]:
        port = DEFAULT_PORTS.get(site.scheme, port)
    unified = scheme if site.scheme == b"keep" else site.scheme
    return unified, host if port == DEFAULT_PORTS[unified] else b"%b:%d" % (host, port)


def _is_settled(target: bytes, declared: Declared, site: Site, route: Route) -> bool:
    """Tell whether clients may be told of a canonical target: what they then ask for is that (law 1)."""
    return (
        declared == _UNDECLARED
        and survives_clients(target)
        and _accepted(target, declared, site, route) == (target, ())
    )


def _accepted(
    raw: bytes, declared: Declared, site: Site, route: Route
) -> tuple[bytes | Rejected, tuple[str, ...]]:
    """The target to key and forward, or why there is none; and what a profile only observes."""
    if raw == b"*":
        return raw, ()
    trusted = declared if route.profile.charset.trust_encoding_fields else _UNDECLARED
    target = canonical_target(raw, route.profile, trusted)
    if route is not site.root and (refused := _refused_by_site(raw, site, route)):
        own = target.reasons if isinstance(target, Rejected) else ()
        return rejected(*own, *refused), ()
    if not isinstance(target, Rejected):
        # The canonical target is what the site's origin server gets: its profile has to take that, too.
        elsewhere = route is not site.root and target != raw
        reasons = _refused_by_site(target, site, route) if elsewhere else []
        if not reasons and (len(site.routes) > 1 or route.upstream_path):
            reasons = strays(target, site, route)
        return (rejected(*reasons), ()) if reasons else (target, ())
    unobservable = _UNSPEAKABLE.search(raw) or "bad-target" in target.reasons
    if route.profile.mode != "observe" or not raw.startswith(b"/") or unobservable:
        return target, ()
    # A profile is observed, but no route is: its target stays where it belongs.
    crossing = strays(raw.partition(b"#")[0], site, route)
    return (rejected(*target.reasons, *crossing), ()) if crossing else (raw, target.reasons)


def _refused_by_site(raw: bytes, site: Site, route: Route) -> list[str]:
    """The reasons for which the site's profile refuses a target that goes to the site's origin server."""
    whole = site.root.profile
    if route.profile is whole or route.upstream != site.root.upstream or whole.mode == "observe":
        return []
    refused = canonical_target(raw, whole)
    reasons = refused.reasons if isinstance(refused, Rejected) else ()
    return [reason for reason in reasons if reason not in route.profile.allowed]


_remembered: Final = lru_cache(maxsize=4096)(_resolve)


_HOST: Final = "a host name or address, with or without a port"
_HOSTS: Final = f"{_HOST}, *.name, or *:port"


def _authority(text: str) -> Authority | None:
    """A host and its port; U-labels become A-labels (RFC 5890 §2.3.2.1). None if it is no host."""
    try:
        return parse_authority(a_labels(text))
    except UnicodeError:
        return None


def _configured(site: Site, key: str, text: str) -> Authority:
    authority = _authority(text)
    if authority is None:
        allowed = _HOSTS if key == "hosts" else _HOST
        raise ConfigurationError(f"site {site.name}", key, text, allowed)
    if site.scheme != b"keep" and authority[1] in DEFAULT_PORTS.values():
        raise ConfigurationError(
            f"site {site.name}", key, text, "a host without port, as the scheme is unified"
        )
    return authority
