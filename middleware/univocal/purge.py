"""PURGE: who may, what goes (DESIGN §9). The same for the method and for the admin listener."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .cache.store import Everything, Keys, MemoryStore, Prefix, Selector, Tags
from .errors import RefusedError
from .messages import Fields, Received, values
from .patterns import compiled
from .runtime import Runtime
from .trust import believe, within
from .uri.target import Canonical, Rejected, resolve, resolve_url

__all__ = ["Purged", "may_purge", "purge_received", "purge_selected"]

# What names tags in a PURGE: Varnish's xkey module, Fastly's and Cloudflare's fields.
TAG_FIELDS: Final = (b"xkey-purge", b"xkey", b"surrogate-key", b"cache-tag")
SOFT_FIELDS: Final = (b"soft-purge", b"fastly-soft-purge", b"xkey-softpurge")
_ABSOLUTE: Final = re.compile(rb"https?://[^/]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge removed, or marked stale."""

    count: int
    by: str  # "key", "urls", "tag", "prefix", "pattern" or "all"
    value: str
    soft: bool = False

    def body(self) -> bytes:
        """The answer's content (JSON)."""
        told: dict[str, object] = {"softened" if self.soft else "purged": self.count}
        if self.by == "pattern":
            told = {"banned": True}  # it works lazily: nobody knows yet how many it means
        if self.by == "key":
            told["key"] = self.value
        else:
            told |= {"by": self.by, "value": self.value}
        return json.dumps(told).encode() + b"\n"


def may_purge(client: str | None, fields: Fields, runtime: Runtime) -> bool:
    """Whether this client may purge: by its address, or by the token, compared in constant time."""
    if within(client, runtime.access.networks):
        return True
    if not runtime.access.token:
        return False
    given = [
        value[7:].strip() for value in values(fields, b"authorization") if value[:7].lower() == b"bearer "
    ]
    return len(given) == 1 and hmac.compare_digest(given[0], runtime.access.token)


def purge_received(
    received: Received, fields: Fields, runtime: Runtime, store: MemoryStore, now: float
) -> Purged:
    """Carry out a PURGE or BAN request. Raises RefusedError: who may (403), then target and host (400, 421).

    With `X-Purge-Method: regex`, as WordPress's plugins send it, and with BAN the target is a pattern for the
    paths of its host.
    """
    peer = believe(received, fields, runtime.trusted)
    if not may_purge(peer.client, fields, runtime):
        raise RefusedError("purge-forbidden")
    soft = any(value.strip() == b"1" for name in SOFT_FIELDS for value in values(fields, name))
    tags = (
        b" ".join(value for name in TAG_FIELDS for value in values(fields, name)).replace(b",", b" ").split()
    )
    if tags:
        count = store.purge(Tags(frozenset(tags), soft=soft), now)
        return Purged(count, "tag", b" ".join(tags).decode("latin-1"), soft)
    # PURGE removes both schemes, so an absolute-form may name either: the connection's does not matter.
    said = received.target.partition(b"://")[0].lower()
    scheme = said if said in {b"http", b"https"} else peer.scheme
    if received.method == b"BAN" or values(fields, b"x-purge-method") == [b"regex"]:
        return _ban_paths(received.target, peer.hosts, scheme, runtime, store, now, soft=soft)
    found = _found(resolve(received.target, peer.hosts, scheme, runtime.sites, encodings=peer.encodings))
    return _purge_url(found, runtime, store, now, soft=soft)


def purge_selected(asked: Mapping[str, object], runtime: Runtime, store: MemoryStore, now: float) -> Purged:
    """Carry out a purge named by one of `url`, `urls`, `prefix`, `pattern`, `tag`, `all`, and `soft`.

    Raises RefusedError for a URL that the canonicalizer refuses, ValueError for anything that names no purge.
    """
    soft = asked.get("soft", False)
    (name,) = [name for name in asked if name != "soft"] if len(asked.keys() - {"soft"}) == 1 else [""]
    match name, asked.get(name):
        case _ if not isinstance(soft, bool):
            raise ValueError("soft is true or false")
        case "url", str(url):
            return _purge_url(_named(url, runtime), runtime, store, now, soft=soft)
        case "urls", list(urls) if urls and all(isinstance(url, str) for url in urls):
            named = [_named(url, runtime) for url in urls]  # one that is refused refuses all
            purged = [_purge_url(each, runtime, store, now, soft=soft) for each in named]
            return Purged(sum(each.count for each in purged), "urls", str(len(purged)), soft)
        case "prefix", str(prefix):
            return _purge_prefix(_named(prefix, runtime), runtime, store, now, soft=soft)
        case "tag", str(tag) if tag:
            return Purged(store.purge(Tags(frozenset((tag.encode(),)), soft=soft), now), "tag", tag, soft)
        case "pattern", str(expression):
            return _ban(expression, store, now, soft=soft)
        case "all", True:
            return Purged(store.purge(Everything(soft=soft), now), "all", "*", soft)
        case _:
            raise ValueError("one of url, urls (a list), prefix, pattern, tag, or all: true")


def _named(url: str, runtime: Runtime) -> Canonical:
    return _found(resolve_url(url.encode("utf-8"), runtime.sites))


def _found(found: Canonical | Rejected) -> Canonical:
    if isinstance(found, Rejected):
        raise RefusedError(found.reason, found.reasons)
    return found


def _both_schemes(found: Canonical, runtime: Runtime) -> list[Canonical]:
    twins = (
        resolve(found.target, [found.authority], scheme, runtime.sites) for scheme in (b"http", b"https")
    )
    return [found, *(twin for twin in twins if isinstance(twin, Canonical))]


def _purge_url(found: Canonical, runtime: Runtime, store: MemoryStore, now: float, *, soft: bool) -> Purged:
    keys = frozenset(each.key for each in _both_schemes(found, runtime))
    return Purged(store.purge(Keys(keys, soft=soft), now), "key", found.url.decode("latin-1"), soft)


def _ban_paths(
    target: bytes,
    hosts: Sequence[bytes],
    scheme: bytes,
    runtime: Runtime,
    store: MemoryStore,
    now: float,
    *,
    soft: bool,
) -> Purged:
    absolute = _ABSOLUTE.match(target)
    root, path = (absolute[0] + b"/", target[absolute.end() :]) if absolute else (b"/", target)
    found = _found(resolve(root, hosts, scheme, runtime.sites))
    if not path.startswith(b"/"):
        raise RefusedError("no-leading-slash")
    try:
        compiled(path.decode("latin-1"))  # by itself, so that it cannot end the group that it is put into
        expression = rb"^https?://%b(?:%b)" % (re.escape(found.authority), path)
        return _ban(expression.decode("latin-1"), store, now, soft=soft)
    except ValueError as error:
        raise RefusedError("bad-target") from error


def _ban(expression: str, store: MemoryStore, now: float, *, soft: bool) -> Purged:
    count = store.purge(compiled(expression, soft=soft), now)
    return Purged(count, "pattern", expression, soft)


def _purge_prefix(
    found: Canonical, runtime: Runtime, store: MemoryStore, now: float, *, soft: bool
) -> Purged:
    twins = _both_schemes(found, runtime)
    prefixes = frozenset(b"%b %b %b" % (twin.scheme, twin.authority, twin.target) for twin in twins)
    selector: Selector = Prefix(prefixes, soft=soft)
    return Purged(store.purge(selector, now), "prefix", found.url.decode("latin-1"), soft)
