"""What a purge by URLs, by a prefix or by a pattern of paths comes to: selectors of what is stored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from univocal.engine.runtime import Runtime
from univocal.http.errors import RefusedError
from univocal.store.patterns import compiled
from univocal.store.purge_selectors import Keys, Prefix, Selector, Tags
from univocal.uri.pipeline import Rejected
from univocal.uri.prefix import Beginning, beginnings
from univocal.uri.target import Canonical, path_tags, resolve, resolve_url

__all__ = ["Order", "accepted", "order_of_paths", "order_of_prefix", "order_of_urls"]

_ABSOLUTE: Final = re.compile(rb"https?://[^/]*", re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Order:
    """A purge as the store can carry it out, and what it is about in words."""

    selector: Selector
    by: str  # "key", "urls", "tag", "prefix", "pattern" or "all"
    names: tuple[str, ...]  # canonical URLs, tags, the prefix or the pattern; "*" for all
    canonical: Canonical | None = None  # of a purge by one URL
    also: tuple[Selector, ...] = ()  # the rest of many URLs, and what is derived: see [[tags]] of a profile

    @property
    def value(self) -> str:
        """What the answer says of it: the name, or how many URLs there were."""
        return str(len(self.names)) if self.by == "urls" else " ".join(self.names)


def accepted(found: Canonical | Rejected) -> Canonical:
    """The canonical URL. Raises RefusedError if there is none."""
    if isinstance(found, Rejected):
        raise RefusedError(found.reason, found.reasons)
    return found


def _both_schemes(found: Canonical, runtime: Runtime) -> list[Canonical]:
    other = b"http" if found.scheme == b"https" else b"https"
    twin = resolve(found.target, [found.authority], other, runtime.sites)
    return [found, twin] if isinstance(twin, Canonical) else [found]


def order_of_urls(found: Sequence[Canonical], by: str, runtime: Runtime, *, soft: bool) -> Order:
    """Every response of these URLs, under both schemes, and what is derived from them."""
    meant = {twin.key: twin for each in found for twin in _both_schemes(each, runtime)}
    derived = _derived(meant.values(), soft=soft)
    keys = frozenset(key for key, each in meant.items() if not (soft and _is_among(each, derived)))
    names = tuple(each.url.decode("latin-1") for each in found)
    return Order(Keys(keys, soft=soft), by, names, found[0] if by == "key" else None, also=derived)


def _derived(meant: Iterable[Canonical], *, soft: bool) -> tuple[Tags, ...]:
    """What profiles say is made from these URLs: it has their paths for tags, and their origin."""
    paths: dict[bytes, set[bytes]] = {}
    for each in meant:
        if each.route.profile.tags:
            paths.setdefault(_origin(each), set()).add(each.target.partition(b"?")[0])
    return tuple(Tags(frozenset(names), soft, origin) for origin, names in paths.items())


def _is_among(found: Canonical, derived: Iterable[Tags]) -> bool:
    """Whether what is stored under a URL has one of the tags: marked stale by that, it counts once."""
    own = path_tags(found.target, found.route.profile)
    return any(tags.origin == _origin(found) and not own.isdisjoint(tags.names) for tags in derived)


def _origin(found: Canonical | Beginning) -> bytes:
    return b"%b %b" % (found.scheme, found.authority)


def order_of_prefix(prefix: bytes, runtime: Runtime, *, soft: bool) -> Order:
    """Every response of the URLs that begin like `prefix`. Raises RefusedError, ValueError."""
    begun = beginnings(prefix, runtime.sites)
    if isinstance(begun, Rejected):
        raise RefusedError(begun.reason, begun.reasons)
    names = {b"%b %b" % (_origin(each), each.target) for each in begun}
    # The URL that ends where they begin is one of them, though it may be spelled without that end: "/d/" for
    # "/d/index.html", to which a query can be added.
    whole = resolve_url(prefix, runtime.sites)
    keys = frozenset[bytes]()
    if isinstance(whole, Canonical) and not whole.target.startswith(begun[0].target):
        twins = _both_schemes(whole, runtime)
        keys = frozenset(twin.key for twin in twins)
        if b"?" not in prefix:
            names |= {b"%b %b?" % (_origin(twin), twin.target) for twin in twins}
    selector = Prefix(frozenset(names), soft=soft)
    return Order(selector, "prefix", (begun[0].url.decode("latin-1"),), also=(Keys(keys, soft=soft),))


def order_of_paths(
    target: bytes, hosts: Sequence[bytes], scheme: bytes, runtime: Runtime, *, soft: bool
) -> Order:
    """Every response of a host whose target begins as a pattern describes. Raises RefusedError."""
    absolute = _ABSOLUTE.match(target)
    root, path = (absolute[0] + b"/", target[absolute.end() :]) if absolute else (b"/", target)
    found = accepted(resolve(root, hosts, scheme, runtime.sites))
    if not path.startswith(b"/"):
        raise RefusedError("no-leading-slash")
    # Canonical URLs are what a pattern is searched in: the octets that it spells out become canonical, too.
    ring = found.route.profile.ring
    path = _ESCAPED.sub(lambda octet: re.escape(ring.canonical(octet[0])), path)
    try:
        compiled(path.decode("latin-1"))  # by itself, so that it cannot end the group that it is put into
        expression = (rb"^https?://%b(?:%b)" % (re.escape(found.authority), path)).decode("latin-1")
        return Order(compiled(expression, soft=soft), "pattern", (expression,))
    except ValueError as error:
        raise RefusedError("bad-target") from error
