"""PURGE: who may, what goes. The same for the methods and for the admin listener."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from .cache.store import Everything, Keys, Prefix, Selector, Tags
from .errors import RefusedError
from .messages import Fields, Received, values
from .patterns import compiled
from .runtime import Runtime
from .trust import Peer, within
from .uri.target import Canonical, Rejected, resolve, resolve_url

if TYPE_CHECKING:
    from .gate import Gate

__all__ = ["PURGES", "Order", "Purged", "carry_out", "may_purge", "order_by_name", "order_of"]

PURGES: Final = frozenset((b"PURGE", b"BAN"))

# What names tags in a PURGE: Varnish's xkey module, Fastly's and Cloudflare's fields.
TAG_FIELDS: Final = (b"xkey-purge", b"xkey-softpurge", b"xkey", b"surrogate-key", b"cache-tag")
SOFT_FIELDS: Final = (b"soft-purge", b"fastly-soft-purge")
_ABSOLUTE: Final = re.compile(rb"https?://[^/]*", re.IGNORECASE)
_ESCAPED: Final = re.compile(rb"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True, slots=True)
class Order:
    """A purge as the store can carry it out, and what it is about in words."""

    selector: Selector
    by: str  # "key", "urls", "tag", "prefix", "pattern" or "all"
    names: tuple[str, ...]  # canonical URLs, tags, the prefix or the pattern; "*" for all
    canonical: Canonical | None = None  # of a purge by one URL
    also: Selector | None = None  # what is derived from the URLs: see [[tags]] of a profile

    @property
    def value(self) -> str:
        """What the answer says of it: the name, or how many URLs there were."""
        return str(len(self.names)) if self.by == "urls" else " ".join(self.names)


@dataclass(frozen=True, slots=True)
class Purged:
    """What came of an order: how many stored responses went or were marked stale; None: not confirmed."""

    order: Order
    count: int | None = None

    def body(self) -> bytes:
        """The answer's content (JSON)."""
        order = self.order
        told: dict[str, object] = {"softened" if order.selector.soft else "purged": self.count}
        if order.by == "pattern":
            told = {"banned": True}  # it works lazily: nobody knows yet how many it means
        if order.by == "key":
            told["key"] = order.value
        else:
            told |= {"by": order.by, "value": order.value}
        return json.dumps(told).encode() + b"\n"


async def carry_out(order: Order, gate: Gate, now: float) -> Purged:
    """Purge the store, on every node. Raises RefusedError if the shared store did not confirm (503)."""
    count = await gate.purge(order.selector, now)
    if order.also is not None:
        count += await gate.purge(order.also, now)
    return Purged(order, count)


# Who may


def may_purge(peer: Peer, fields: Fields, runtime: Runtime) -> bool:
    """Whether this client may purge: by the token, compared in constant time, or by its address.

    The address of a browser is not that of whoever wrote the page which it shows: what a page asks for
    counts only where the page comes from here.
    """
    given = [
        value[7:].strip() for value in values(fields, b"authorization") if value[:7].lower() == b"bearer "
    ]
    if runtime.access.token and len(given) == 1 and hmac.compare_digest(given[0], runtime.access.token):
        return True
    return within(peer.client, runtime.access.networks) and not _from_elsewhere(fields)


def _from_elsewhere(fields: Fields) -> bool:
    """Whether a browser sends this for the page of another site.

    The page's host must be the request's, and an address: a name can be pointed anywhere (DNS rebinding).
    """
    origins, hosts = values(fields, b"origin"), values(fields, b"host")
    if not origins:
        return False
    if len(origins) > 1 or len(hosts) != 1 or origins[0].partition(b"://")[2] != hosts[0]:
        return True
    host = hosts[0].decode("latin-1")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        return not ip_address(name.strip("[]"))
    except ValueError:
        return name != "localhost"


# What goes


def order_of(received: Received, fields: Fields, peer: Peer, runtime: Runtime) -> Order:
    """What a PURGE or BAN request asks for. Raises RefusedError: who may (403), then target and host.

    With `X-Purge-Method: regex`, as WordPress's plugins send it, and with BAN the target is a pattern for the
    paths of its host.
    """
    if not may_purge(peer, fields, runtime):
        raise RefusedError("purge-forbidden")
    soft = any(value.strip() == b"1" for name in SOFT_FIELDS for value in values(fields, name))
    soft = soft or bool(values(fields, b"xkey-softpurge"))
    tags = [tag for name in TAG_FIELDS for value in values(fields, name) for tag in _tags_in(name, value)]
    if tags:
        return Order(Tags(frozenset(tags), soft=soft), "tag", tuple(tag.decode("latin-1") for tag in tags))
    # PURGE removes both schemes, so an absolute-form may name either: the connection's does not matter.
    said = received.target.partition(b"://")[0].lower()
    scheme = said if said in {b"http", b"https"} else peer.scheme
    if received.method == b"BAN" or values(fields, b"x-purge-method") == [b"regex"]:
        return _paths(received.target, peer.hosts, scheme, runtime, soft=soft)
    found = _found(resolve(received.target, peer.hosts, scheme, runtime.sites, encodings=peer.encodings))
    return _urls([found], "key", runtime, soft=soft)


def _tags_in(name: bytes, value: bytes) -> list[bytes]:
    """The tags that a field's value names: Cache-Tag has commas between them, the others blanks."""
    if name != b"cache-tag":
        return value.split()
    return [tag for part in value.split(b",") if (tag := part.strip(b" \t"))]


def order_by_name(asked: Mapping[str, object], runtime: Runtime) -> Order:
    """What one of `url`, `urls`, `prefix`, `pattern`, `tag`, `all`, and `soft`, ask for.

    Raises RefusedError for a URL that the canonicalizer refuses, ValueError for anything that names no purge.
    """
    soft = asked.get("soft", False)
    (name,) = [name for name in asked if name != "soft"] if len(asked.keys() - {"soft"}) == 1 else [""]
    match name, asked.get(name):
        case _ if not isinstance(soft, bool):
            raise ValueError("soft is true or false")
        case "url", str(url):
            return _urls([_named(url, runtime)], "key", runtime, soft=soft)
        case "urls", list(urls) if urls and all(isinstance(url, str) for url in urls):
            # One that is refused refuses all.
            return _urls([_named(url, runtime) for url in urls], "urls", runtime, soft=soft)
        case "prefix", str(prefix):
            return _prefix(_named(prefix, runtime), runtime, soft=soft)
        case "tag", str(tag) if tag:
            return Order(Tags(frozenset((tag.encode(),)), soft=soft), "tag", (tag,))
        case "pattern", str(expression):
            return Order(compiled(expression, soft=soft), "pattern", (expression,))
        case "all", True:
            return Order(Everything(soft=soft), "all", ("*",))
        case _:
            raise ValueError("one of url, urls (a list), prefix, pattern, tag, or all: true")


def _named(url: str, runtime: Runtime) -> Canonical:
    return _found(resolve_url(url.encode("utf-8"), runtime.sites))


def _found(found: Canonical | Rejected) -> Canonical:
    if isinstance(found, Rejected):
        raise RefusedError(found.reason, found.reasons)
    return found


def _both_schemes(found: Canonical, runtime: Runtime) -> Iterable[Canonical]:
    twins = (
        resolve(found.target, [found.authority], scheme, runtime.sites) for scheme in (b"http", b"https")
    )
    return [found, *(twin for twin in twins if isinstance(twin, Canonical))]


def _urls(found: Sequence[Canonical], by: str, runtime: Runtime, *, soft: bool) -> Order:
    keys = frozenset(twin.key for each in found for twin in _both_schemes(each, runtime))
    names = tuple(each.url.decode("latin-1") for each in found)
    # A tag that a path was given by its profile is the path of what it was made from: a thumbnail's original.
    paths = frozenset(each.target.partition(b"?")[0] for each in found if each.route.profile.tags)
    also = Tags(paths, soft=soft) if paths else None
    return Order(Keys(keys, soft=soft), by, names, found[0] if by == "key" else None, also)


def _prefix(found: Canonical, runtime: Runtime, *, soft: bool) -> Order:
    twins = _both_schemes(found, runtime)
    prefixes = frozenset(b"%b %b %b" % (twin.scheme, twin.authority, twin.target) for twin in twins)
    return Order(Prefix(prefixes, soft=soft), "prefix", (found.url.decode("latin-1"),))


def _paths(target: bytes, hosts: Sequence[bytes], scheme: bytes, runtime: Runtime, *, soft: bool) -> Order:
    absolute = _ABSOLUTE.match(target)
    root, path = (absolute[0] + b"/", target[absolute.end() :]) if absolute else (b"/", target)
    found = _found(resolve(root, hosts, scheme, runtime.sites))
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
