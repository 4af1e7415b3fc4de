"""The whole configuration as one frozen value, with the names it gives requests; a reload swaps it whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import getrandbits
from typing import Final, Literal, TypeAlias

from univocal.cache.decide import Handling
from univocal.cache.rules import DEFAULTS, Rules
from univocal.http.errors import ConfigurationError
from univocal.http.field_edits import NO_EDITS, RouteEdits
from univocal.http.framing import split_target
from univocal.http.grammar import compile_globs, quoted
from univocal.http.intermediary import AS_CGI_READS, WEBSOCKET, Affinity
from univocal.http.messages import Fields, Received
from univocal.http.problem import ErrorPages
from univocal.http.roles import Origin
from univocal.http.settings import Setting, count, duration, flag, setting, size
from univocal.judge.access import Restriction
from univocal.judge.profiles import profile_rules
from univocal.judge.trust import LOOPBACK, NO_OWN_PROXIES, Family, Networks, networks, trusted_for, within
from univocal.uri.profile import Profile
from univocal.uri.readings import Readings, spelled_alike
from univocal.uri.sites import Sites
from univocal.uri.target import Canonical

# No character that a field, a line of the log, JSON or HTML would escape.
_KEPT: Final = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,128}").fullmatch


class RequestIds:
    """The field that names requests: a trusted proxy's is kept, all others get a name of ours.

    A name is made once, and stands in `Received.request_id` from then on. It is no secret: 32 hexadecimal
    digits by chance.
    """

    def __init__(
        self, name: bytes, trusted: Networks, trusted_at: Mapping[str, Networks] = NO_OWN_PROXIES
    ) -> None:
        self.name: Final = name.lower()
        self._read: Final = self.name.translate(AS_CGI_READS)
        self._trusted: Final = trusted
        self._trusted_at: Final = trusted_at  # by the names of listeners

    def identify(self, received: Received, fields: Fields) -> Fields:
        """Name a request, if it has no name; its fields with this name and no other."""
        read, length, given, named = self._read, len(self._read), list[bytes](), Fields()
        for name, value in fields:
            if len(name) != length or name.translate(AS_CGI_READS) != read:
                named.append((name, value))
            elif name == self.name:
                given.append(value)
        if not received.request_id:
            is_kept = len(given) == 1 and _KEPT(given[0]) is not None
            is_kept = is_kept and within(
                received.client, trusted_for(received, self._trusted, self._trusted_at)
            )
            received.request_id = given[0] if is_kept else b"%032x" % getrandbits(128)
        named.append((self.name, received.request_id))
        return named

    def planned(self, received: Received, names: Sequence[bytes], given: Sequence[bytes]) -> bytes:
        """The name of an ordinary request, whose fields have these names and values."""
        if not received.request_id:
            is_given, name = self.name in names, self.name
            self.identify(received, [(name, given[names.index(name)].strip(b" \t"))] if is_given else [])
        return received.request_id


_CHALLENGE: Final = b"/.well-known/acme-challenge/"


Mode: TypeAlias = Literal["plain", "key", "off"]
"""The form of Cache-Status: without the key, with it, or no such field."""


def cache_status(handling: Handling, canonical: Canonical | None, mode: Mode) -> Fields:
    """The Cache-Status field for a response: a list of one field, or of none (RFC 9211).

    No parameter holds a byte of the client's but `key`, which is canonical: visible ASCII.
    """
    if mode == "off":
        return []
    if mode == "key" and canonical is not None and not canonical.observed:
        return [(b"cache-status", handling.member(b"; key=" + quoted(canonical.url)))]
    if handling.plain is None:
        handling.plain = [(b"cache-status", handling.member())]
    return handling.plain


@dataclass(frozen=True, slots=True)
class Right:
    """A right, such as that to purge: of clients in these networks, and of those who know the token."""

    networks: Networks = field(default_factory=lambda: networks(LOOPBACK))
    token: bytes = b""  # empty: no token opens


MAX_TARGET: Final = Setting(8192, size)
MAX_FIELDS: Final = Setting(100, count)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one request may ask of us; 0 is no limit, bytes are inclusive."""

    max_body: int = setting(0, size)
    max_target: int = MAX_TARGET.field()
    max_segments: int = setting(512, count)  # of a target's path
    max_fields: int = MAX_FIELDS.field()
    max_requests_per_client: int = setting(0, count)  # under way at the same time, by the believed address
    collapse_timeout: float = 5.0  # seconds a request waits for another's answer before it forwards by itself
    # Seconds in which a byte passes after a 101, one way or the other.
    upgrade_timeout: float = setting(300, duration)
    unread_timeout: float = 60.0  # seconds for which a response without a reader is fetched to be stored
    trace: bool = setting(True, flag)  # TRACE is passed on

    def fault(self, target: bytes, method: bytes = b"GET", fields: int = 0) -> str:
        """The reason for which a request with this target and so many fields is refused, or ""."""
        if method == b"TRACE" and not self.trace:
            return "method-not-allowed"
        if 0 < self.max_target < len(target):
            return "target-too-long"
        # Nearly every target has fewer bytes than that; some server reads each of these as a slash.
        most = self.max_segments
        if 0 < most < len(target):
            count = split_target(target).path.lower().count
            if most < sum(map(count, (b"/", b"%2f", b"\\", b"%5c"))):
                return "target-too-long"
        return "fields-too-large" if 0 < self.max_fields < fields else ""


def _bypasses(bypass: tuple[str, ...], readings: Readings) -> bool:
    """Tell whether a glob means a reading; many servers take "/me/" for "/me"."""
    pattern = _alike(bypass)
    slashless = (reading.rstrip(b"/") for reading in readings.folded)
    return readings.everywhere or any(map(pattern.fullmatch, (*readings.folded, *slashless)))


@lru_cache(maxsize=1024)
def _alike(globs: tuple[str, ...]) -> re.Pattern[bytes]:
    """A pattern for readings of the paths that `globs` match; there is at least one."""
    pattern = compile_globs(alike for glob in globs for alike in sorted(spelled_alike(glob.encode())))
    return pattern or re.compile(b"(?!)")


@dataclass(frozen=True, slots=True)
class PlainSettings:
    """The settings that a route's table, or its site's, has as they are; None: as the listener's are."""

    max_body: int | None = setting(None, size)  # bytes of a request's content; 0: no limit


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """The settings of one route, or of a site without routes of its own, for hits and misses alike."""

    rules: Rules = DEFAULTS
    edits: RouteEdits = NO_EDITS
    restriction: Restriction | None = None  # None: everybody has access
    pages: ErrorPages | None = None
    next_hop: Origin | None = None  # None: the application behind has its own
    affinity: Affinity | None = None  # the next hop's
    plain: PlainSettings = PlainSettings()

    @property
    def hits_at_a_glance(self) -> bool:
        """False if a setting looks at each request: the route's hits take the long way."""
        edits = self.edits
        return self.restriction is None and edits.named_request is None and edits.named_response is None

    @property
    def looks_at_cookies(self) -> bool:
        """True if the answer to a request may depend on its cookies: no hit at a glance has any."""
        return self.rules.looks_at_cookies or self.affinity is not None

    @property
    def changes_messages(self) -> bool:
        """True if requests or responses go on otherwise than they came: no passage takes them."""
        return self.rules.changes_messages or self.affinity is not None or self.edits != NO_EDITS

    @property
    def changes_answers(self) -> bool:
        """True if an answer of univocal's own has the operator's page or fields."""
        edits = self.edits
        return self.pages is not None or edits.response is not None or edits.named_response is not None


NO_SETTINGS: Final = RouteSettings()


@dataclass(frozen=True, slots=True)
class Runtime:
    """The configuration that one request sees from its beginning to its end."""

    sites: Sites
    # By the site's name, "" for requests to no site; those of a route also by its prefix.
    settings: Mapping[str | tuple[str, bytes], RouteSettings] = field(default_factory=dict)
    purging: Right = field(default_factory=Right)  # to purge
    reading: Right = Right(())  # to see what an admin listener shows
    trusted: Networks = ()  # proxies whose forwarded fields are believed …
    forwarded: Family = "x-forwarded"  # … those of this family
    limits: Limits = Limits()
    cache_status: Mode = "plain"
    https_port: int = 0  # where requests by plain HTTP are sent; 0: they are answered
    upgrades: frozenset[bytes] = frozenset((WEBSOCKET,))  # protocols to which clients may switch, lower case
    # By the names of listeners that have settings of their own, in the place of `trusted` and of `limits`.
    trusted_at: Mapping[str, Networks] = field(default_factory=dict)
    max_body_at: Mapping[str, int] = field(default_factory=dict)
    request_ids: RequestIds | None = None  # None: requests have no names
    caches: bool = True  # False: nothing is stored, and nothing that is stored answers
    changes_answers: bool = field(init=False)  # False: to answer a refused request needs no route
    restricts: bool = field(init=False)  # False: everybody has access to every route

    def __post_init__(self) -> None:
        every = self.settings.values()
        object.__setattr__(self, "changes_answers", any(each.changes_answers for each in every))
        object.__setattr__(self, "restricts", any(each.restriction is not None for each in every))

    def settings_of(self, site: str, prefix: bytes) -> RouteSettings:
        """The settings of the route with this prefix, else its site's, else those of requests to no site."""
        settings = self.settings
        return settings.get((site, prefix)) or settings.get(site) or settings.get("", NO_SETTINGS)

    def proxies(self, listener: str) -> Networks:
        """The proxies that are trusted at a listener: their forwarded fields are believed."""
        return self.trusted_at.get(listener, self.trusted)

    def max_body_of(self, received: Received, settings: RouteSettings) -> int:
        """The bytes of content that a request may have, by its route, else by its listener; 0: no limit."""
        own = settings.plain.max_body
        return own if own is not None else self.max_body_at.get(received.listener, self.limits.max_body)

    def rules_of(self, canonical: Canonical) -> Rules:
        """The rules for what is at a canonical target: its route's, else its site's.

        The `bypass` of each route in which it lies by any reading holds, too. A lifetime of ours is given
        only if each route that a reading chooses gives one.
        """
        settings = self.settings_of(canonical.site.name, canonical.route.prefix)
        return self.protected(settings.rules, canonical)

    def protected(self, rules: Rules, canonical: Canonical) -> Rules:
        """The rules of a canonical target's route, as `rules_of` has them."""
        if not (rules.bypass or canonical.other_routes):
            return rules
        site = canonical.site.name
        others = [self.settings_of(site, route.prefix).rules for route in canonical.other_routes]
        if not rules.bypasses_path(canonical.target) and any(
            _bypasses(each.bypass, canonical.readings) for each in (rules, *others) if each.bypass
        ):
            return replace(rules, bypass=("*",))
        chosen = [self.settings_of(site, route.prefix).rules for route in canonical.chosen]
        if rules.gives_lifetimes and not all(each.gives_lifetimes for each in chosen):
            return replace(rules, ttl=0, ttl_by_status={}, heuristic=False)
        return rules

    def restrictions_of(self, canonical: Canonical) -> list[Restriction]:
        """The bounds on the access to each route in which a canonical target lies, else to its site."""
        site, found = canonical.site, list[Restriction]()
        for route in (canonical.route, *canonical.other_routes):
            each = self.settings_of(site.name, route.prefix).restriction
            if each is None or each in found:
                continue
            path = canonical.target.partition(b"?")[0]
            if route is canonical.route or not each.canonical_only or route.holds(site.view(path)):
                found.append(each)
        return found

    def leads_to_https(self, scheme: bytes, target: bytes) -> bool:
        """Tell whether a request by `scheme` is sent to https.

        The authority of an ACME challenge asks by plain HTTP, before there is a certificate (RFC 8555 §8.3).
        """
        return self.https_port > 0 and scheme == b"http" and not target.startswith(_CHALLENGE)

    @classmethod
    def everywhere(cls, profile: Profile, rules: Rules | None = None, **others: object) -> Runtime:
        """One profile and one set of rules for every authority; `others` are this class's other fields.

        Without `rules`, the profile's own hold. Raises ProfileError.
        """
        return cls.of_sites(Sites.everywhere(profile), rules, **others)

    @classmethod
    def of_sites(cls, sites: Sites, rules: Rules | None = None, **others: object) -> Runtime:
        """The `rules` for all `sites` without rules of their own, or else each profile's own.

        `others` are this class's other fields. Raises ConfigurationError, ProfileError.
        """
        settings: dict[str | tuple[str, bytes], RouteSettings] = {}
        for site in sites.all:
            *routes, root = site.routes
            own = site.rules
            if not isinstance(own, Rules | None):
                allowed = "Rules, such as Rules(ttl=60)"
                raise ConfigurationError(f"site {site.name}", "rules", own, allowed)
            own = rules if own is None else own
            settings[site.name] = RouteSettings(own or profile_rules(root.profile))
            for route in routes:
                if own is None and route.profile is not root.profile:
                    settings[site.name, route.prefix] = RouteSettings(profile_rules(route.profile))
        return cls(sites=sites, settings=settings, **others)  # type: ignore[arg-type]
