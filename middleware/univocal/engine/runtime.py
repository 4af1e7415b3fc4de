"""The whole configuration as one frozen value; a reload swaps it whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from univocal.cache.rules import DEFAULTS, Rules
from univocal.engine.trust import LOOPBACK, Family, Networks, networks
from univocal.engine.upstream import Upstream
from univocal.http.errors import ConfigurationError, ProfileError
from univocal.http.upgrade import WEBSOCKET
from univocal.uri.profile import FileName, Profile, ProfileName, Shelf, chosen_profile, parse, put_shelf
from univocal.uri.sites import Sites
from univocal.uri.target import Canonical

__all__ = [
    "Access",
    "Limits",
    "Runtime",
    "builtin_profiles",
    "canonicalize",
    "profile_rules",
    "read_profiles",
]


@dataclass(frozen=True, slots=True)
class Access:
    """The right to purge: of clients in these networks, and of those who know the token."""

    networks: Networks = field(default_factory=lambda: networks(LOOPBACK))
    token: bytes = b""  # empty: no token opens


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one request may ask of us; 0 is no limit, octets are inclusive."""

    max_body: int = 0
    max_target: int = 8192
    max_fields: int = 100
    max_requests_per_client: int = 0  # under way at the same time, by the believed address
    collapse_timeout: float = 5.0  # seconds a request waits for another's answer before it forwards by itself
    upgrade_timeout: float = 300.0  # seconds in which an octet passes after a 101, one way or the other
    unread_timeout: float = (
        60.0  # seconds for which a response is fetched to be stored, while no client reads
    )


@dataclass(frozen=True, slots=True)
class Runtime:
    """The configuration that one request sees from its beginning to its end."""

    sites: Sites
    # By the site's name; a route whose profile has defaults of its own also by its prefix.
    rules: Mapping[str | tuple[str, bytes], Rules] = field(default_factory=lambda: MappingProxyType({}))
    access: Access = field(default_factory=Access)
    trusted: Networks = ()  # proxies whose forwarded fields are believed …
    forwarded: Family = "x-forwarded"  # … those of this family
    limits: Limits = Limits()
    cache_status: Literal["plain", "key", "off"] = "plain"
    upgrades: frozenset[bytes] = frozenset((WEBSOCKET,))  # protocols to which clients may switch, lower case
    # By the names that routes call them; none: the application behind has its own.
    upstreams: Mapping[str, Upstream] = field(default_factory=lambda: MappingProxyType({}))

    def rules_of(self, found: Canonical) -> Rules:
        """The rules for what is at a canonical target: its route's, else its site's."""
        rules = self.rules
        return rules.get((found.site.name, found.route.prefix)) or rules.get(found.site.name, DEFAULTS)

    @classmethod
    def everywhere(cls, profile: Profile, rules: Rules | None = None, **settings: object) -> Runtime:
        """One profile and one set of rules for every authority; `settings` are this class's other fields.

        Without `rules`, the profile's own hold. Raises ProfileError.
        """
        return cls.of_sites(Sites.everywhere(profile), rules, **settings)

    @classmethod
    def of_sites(cls, sites: Sites, rules: Rules | None = None, **settings: object) -> Runtime:
        """The `rules` for all `sites`, or else each profile's own; `settings` are this class's other fields.

        Raises ProfileError.
        """
        chosen: dict[str | tuple[str, bytes], Rules] = {}
        for site in (*sites.sites, *([sites.default] if sites.default else [])):
            *routes, root = site.routes
            chosen[site.name] = rules or profile_rules(root.profile)
            for route in routes:
                if rules is None and route.profile is not root.profile:
                    chosen[site.name, route.prefix] = profile_rules(route.profile)
        return cls(sites=sites, rules=MappingProxyType(chosen), **settings)  # type: ignore[arg-type]


def profile_rules(profile: Profile, own: Mapping[str, Any] = MappingProxyType({})) -> Rules:
    """The rules that a profile has as defaults, under settings of one's `own`. Raises ProfileError."""
    try:
        return Rules.read({**profile.cache, **own}, f"profile {profile.name}")
    except ConfigurationError as error:
        raise ProfileError(error.source, error.key, error.found, error.allowed) from None


def read_profiles(directories: Iterable[Path], known: Mapping[str, Profile]) -> dict[str, Profile]:
    """The `known` profiles and those in every `*.toml` of `directories`. Raises ProfileError."""
    texts: dict[str, str] = {}
    for directory in directories:
        if not directory.is_dir():
            raise ProfileError(str(directory), "", "no directory", "a directory of profiles (*.toml)")
        try:
            files = sorted(file for file in directory.iterdir() if file.suffix == ".toml")
        except OSError as error:
            raise ProfileError(str(directory), "", error.strerror, "a readable directory") from None
        for file in files:
            texts[file.stem] = _text(file)
    profiles = parse(texts, known)
    for profile in profiles.values():
        profile_rules(profile)
    return dict(known) | profiles


def _read_file(file: str | FileName, known: Mapping[str, Profile]) -> Profile:
    path = Path(file)
    profile = parse({path.stem: _text(path)}, known)[path.stem]
    profile_rules(profile)
    return profile


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(str(file), "", str(error), "a readable TOML file in UTF-8") from None


def builtin_profiles() -> dict[str, Profile]:
    """The profiles that come with univocal, by name."""
    return dict(_builtin())


@cache
def _builtin() -> Mapping[str, Profile]:
    """The same, read once in a process: making their tables takes twenty milliseconds."""
    library = Path(__file__).parents[1]
    packaged = library / "profiles"
    directory = packaged if packaged.is_dir() else library.parents[1] / "profiles"
    return read_profiles([directory], {})


def canonicalize(url: str | bytes, profile: ProfileName) -> str:
    """The one spelling of an absolute `url` to origins of this profile, percent-encoded.

    Hosts may be U-labels, and bytes beyond ASCII may stand bare, as in `Sites.canonicalize`. Raises
    RefusedError for a URL that is refused and for anything that is no http or https URL; ConfigurationError
    for a profile that there is not.
    """
    return _everywhere(chosen_profile(profile, "canonicalize")).canonicalize(url)


@lru_cache(maxsize=128)
def _everywhere(profile: Profile) -> Sites:
    return Sites.everywhere(profile)


put_shelf(Shelf(_builtin, _read_file))
