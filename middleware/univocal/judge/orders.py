"""PURGE: the right to purge, the dialects of clients, and the order, for methods and the admin listener."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from univocal.cache.stored import Stored
from univocal.cache.vary import vary_names
from univocal.http.errors import RefusedError
from univocal.http.grammar import split_absolute
from univocal.http.messages import Fields, Received, values
from univocal.judge.runtime import Right, Runtime
from univocal.judge.trust import Peer, within
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Prefix, Selector, Tags, compiled
from univocal.uri.purge_names import Beginning, beginnings, spelled_pattern
from univocal.uri.segments import merge_slashes
from univocal.uri.sites import meant, resolve, resolve_url, url_octets
from univocal.uri.target import Canonical, Rejected, path_tags

# Lists of tags, with commas or blanks between them: Varnish's xkey module, Fastly, Cloudflare, API Platform,
# FOSHttpCache, Drupal.
_TAGS: Final = (
    b"xkey-purge", b"xkey-softpurge", b"xkey", b"surrogate-key", b"cache-tag", b"cache-tags", b"x-cache-tags",
    b"purge-cache-tags",
)  # fmt: skip
# Patterns for a list of tags: of Magento and API Platform; with BAN, of FOSHttpCache and Drupal.
_PATTERNS: Final = (b"x-magento-tags-pattern", b"apiplatform-ban-regex")
_BANS: Final = (b"x-cache-tags", b"cache-tags", b"purge-cache-tags")
# FOSHttpCache's patterns with BAN, for URLs, hosts and media types.
_URL, _HOST, _TYPE = b"x-url", b"x-host", b"x-content-type"
_CLEAR: Final = b"clear-cache"
SOFT_FIELDS: Final = (b"soft-purge", b"fastly-soft-purge")
_SUPPORTED: Final = frozenset((*_TAGS, *_PATTERNS, *SOFT_FIELDS, _CLEAR, b"x-purge-method"))

# Words in the names of fields that purge, and of fields that have a secret.
_WORDS: Final = frozenset(
    b"ban bans invalidate invalidation invalidations key keys magento match pool purge purges purger "
    b"surrogate tag tags xkey ykey".split()
)
_SECRETS: Final = frozenset(b"auth authorization password secret signature token".split())
_UNRELATED: Final = frozenset((b"if-match", b"if-none-match", b"surrogate-capability", b"sec-websocket-key"))
_ONLY_NAMES: Final = frozenset((b"x-location-id", b"x-group-id", b"x-reg-url", b"x-ban-url"))

_ANY: Final = frozenset((b"", b".*", b"^.*", b".*$", b"^.*$"))
# The ends of a member in a pattern: "(^|,)", "($|\\,)".
_ENDS: Final = re.compile(rb"\((?:\?:)?(?:\^|\$|\\?,| |\\s|\|)*[\^$](?:\^|\$|\\?,| |\\s|\|)*\)")
_PIECE: Final = re.compile(
    rb"\\(?P<escaped>[^0-9A-Za-z])|(?P<between>\((?:\?:)?|[)|,\s^$])|(?P<plain>[^\\*+?{}\[\]])"
)


def unknown_field(method: bytes, fields: Fields) -> bytes:
    """The first field that names a purge in an unsupported dialect, or b""."""
    for name, value in fields:
        if name in {_URL, _HOST, _TYPE}:
            supported = method == b"BAN" and (name != _TYPE or value in _ANY)
        elif name in _SUPPORTED:
            pattern = name in _PATTERNS or (name in _BANS and method == b"BAN")
            supported = not pattern or value in _ANY or _tags_in_pattern(value) is not None
        else:
            words = set(name.split(b"-"))
            secret = name in _UNRELATED or not _SECRETS.isdisjoint(words)
            supported = name not in _ONLY_NAMES and (secret or _WORDS.isdisjoint(words))
        if not supported:
            return name
    return b""


def named_by_tags(method: bytes, fields: Fields) -> list[bytes] | None:
    """The tags that a PURGE or BAN names, [b"*"] for everything; None if it names none in this way."""
    tags = list[bytes]()
    found = method in {b"PURGEKEYS", b"PURGETAGS"}
    for name, value in fields:
        if name == _CLEAR and value.strip().lower() == b"true":
            return [b"*"]
        pattern = name in _PATTERNS or (name in _BANS and method == b"BAN")
        if pattern and value in _ANY:
            return [b"*"]
        if pattern or name in _TAGS:
            found = True
            tags += (_tags_in_pattern(value) or []) if pattern else value.replace(b",", b" ").split()
    return list(dict.fromkeys(tags)) if found else None


def _tags_in_pattern(value: bytes) -> list[bytes] | None:
    """The tags that a pattern of alternatives spells out; None for any other pattern."""
    return _read(_ENDS.sub(b"|", value)) if len(value) <= 65_536 else None


def _read(pattern: bytes) -> list[bytes] | None:
    pieces, at = list[bytes](), 0
    while at < len(pattern):
        found = _PIECE.match(pattern, at)
        if found is None:
            return None
        pieces.append(found["escaped"] or found["plain"] or b" ")
        at = found.end()
    return b"".join(pieces).split() or None


PURGES: Final = frozenset((b"PURGE", b"BAN", b"PURGEKEYS", b"PURGETAGS"))

_ESCAPED_SLASH: Final = re.compile(rb"%(?:2F|5C)")
# How many URLs are dealt with before the event loop gets to do something else: some 10 ms of work.
_SLICE: Final = 100
_NO_KEYS: Final = frozenset[bytes]()


@dataclass(frozen=True, slots=True)
class Order:
    """A purge as the store can carry it out, and its description in words."""

    selector: Selector
    by: str  # "key", "urls", "tag", "prefix", "pattern" or "all"
    names: tuple[str, ...]  # canonical URLs, tags, the prefix or the pattern; "*" for all
    canonical: Canonical | None = None  # of a purge by one URL
    also: tuple[Selector, ...] = ()  # the rest of many URLs, and what is derived: see [[tags]] of a profile

    @property
    def value(self) -> str:
        """The value that the answer shows: the name, or the number of URLs."""
        return str(len(self.names)) if self.by == "urls" else " ".join(self.names)

    @property
    def members(self) -> dict[str, object]:
        """The members of an answer that name what is purged."""
        return {"key": self.value} if self.by == "key" else {"by": self.by, "value": self.value}


# Rights


def may_purge(peer: Peer, fields: Fields, right: Right, names: Collection[bytes] = (b"localhost",)) -> bool:
    """Tell whether this client has a right: by the token, compared in constant time, or by its own address.

    A browser's address is not that of the author of the page it shows: a page's request counts only if the
    page comes from here: from an address, or from one of these `names`, which no stranger points anywhere.
    """
    tokens = [
        value[7:].strip() for value in values(fields, b"authorization") if value[:7].lower() == b"bearer "
    ]
    if right.token and len(tokens) == 1 and hmac.compare_digest(tokens[0], right.token):
        return True
    return peer.known and within(peer.client, right.networks) and not _from_elsewhere(fields, names)


# The values of browsers for a request that no other site has caused (Fetch Metadata §2.3).
_OWN: Final = frozenset((b"same-origin", b"none"))


def _from_elsewhere(fields: Fields, names: Collection[bytes]) -> bool:
    """Tell whether a browser sends this for the page of another site.

    The page's host must be the request's, and an address or one of `names`: any other name can be pointed
    anywhere (DNS rebinding).
    """
    if not _OWN.issuperset(values(fields, b"sec-fetch-site")):
        return True
    origins = values(fields, b"origin")
    if not origins:
        return False
    hosts = values(fields, b"host")
    if len(origins) > 1 or len(hosts) != 1 or origins[0].partition(b"://")[2] != hosts[0]:
        return True
    host = hosts[0].decode("latin-1")
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        return not ip_address(name.strip("[]"))
    except ValueError:
        return hosts[0].partition(b":")[0] not in names


# Orders


def order_of(received: Received, fields: Fields, peer: Peer, runtime: Runtime) -> Order:
    """The order that a PURGE or BAN gives. Raises RefusedError for its sender (403), then for its target.

    With BAN, or with `X-Purge-Method: regex` as WordPress's plugins send it, the target is a pattern for the
    paths of its host. With `X-Purge-Method: prefix` it is their beginning.
    """
    if not may_purge(peer, fields, runtime.purging):
        raise RefusedError("purge-forbidden")
    marks = [name for name, value in fields if name in SOFT_FIELDS and value.strip() == b"1"]
    soft = bool(marks or values(fields, b"xkey-softpurge"))
    tags = named_by_tags(received.method, fields)
    if unknown_field(received.method, fields):
        resolved = resolve(received.target, peer.hosts, peer.scheme, runtime.sites, encodings=peer.encodings)
        faults = resolved.reasons if isinstance(resolved, Rejected) else ()
        raise RefusedError("unknown-purge-field", ("unknown-purge-field", *faults))
    if tags == [b"*"]:
        return Order(Everything(soft=soft), "all", ("*",))
    if tags is not None:  # with no tag in its fields it means nothing, and not the target
        return Order(Tags(frozenset(tags), soft=soft), "tag", tuple(tag.decode("latin-1") for tag in tags))
    # PURGE removes both schemes, so an absolute-form may name either: the connection's does not matter.
    said = received.target.partition(b"://")[0].lower()
    scheme = said if said in {b"http", b"https"} else peer.scheme
    how = [value.strip().lower() for value in values(fields, b"x-purge-method")]
    if received.method == b"BAN" and (order := _order_of_ban(fields, peer, runtime, soft=soft)):
        return order
    if received.method == b"BAN" or how == [b"regex"]:
        return order_of_paths(received.target, peer.hosts, scheme, runtime, soft=soft)
    if how == [b"prefix"]:
        return _order_of_beginning(received.target, peer.hosts, scheme, runtime, soft=soft)
    canonical = accepted(
        resolve(received.target, peer.hosts, scheme, runtime.sites, encodings=peer.encodings)
    )
    return order_of_urls([canonical], "key", runtime, soft=soft)


def _order_of_ban(fields: Fields, peer: Peer, runtime: Runtime, *, soft: bool) -> Order | None:
    """The order of a BAN whose fields have patterns for URLs and hosts. Raises RefusedError."""
    hosts, urls = values(fields, _HOST), values(fields, _URL)
    if not (hosts or urls):
        return None
    root = resolve(b"/", peer.hosts, peer.scheme, runtime.sites)
    host, url = hosts[0] if hosts else b"", urls[0] if urls else b""
    try:
        if isinstance(root, Canonical):
            url = spelled_pattern(url, [route.profile for route in root.site.routes])
        names = tuple(pattern.decode("latin-1") or ".*" for pattern in (host, url))
        return Order(compiled("\n".join(names), soft=soft), "pattern", names)
    except ValueError as error:
        raise RefusedError("bad-target") from error


async def ordered(document: Mapping[str, object], runtime: Runtime) -> Order:
    """Make the order as `order_by_name` does, many URLs in slices: other requests are served in between.

    One URL that is refused refuses all of them. Raises what `order_by_name` does.
    """
    urls = document.get("urls")
    if not isinstance(urls, list) or len(urls) <= _SLICE:
        return order_by_name(document, runtime)
    names, selectors, seen = list[str](), list[Selector](), set[bytes]()
    for start in range(0, len(urls), _SLICE):
        order = order_by_name({**document, "urls": urls[start : start + _SLICE]}, runtime)
        names += order.names
        for selector in (order.selector, *order.also):
            selectors.append(selector.without(seen))  # what is marked stale twice counts once
            seen |= selector.keys() or _NO_KEYS
        await asyncio.sleep(0)
    return Order(selectors[0], "urls", tuple(names), also=tuple(selectors[1:]))


def order_by_name(document: Mapping[str, object], runtime: Runtime) -> Order:
    """The order that one of `url`, `urls`, `prefix`, `pattern`, `tag`, `all`, and `soft`, gives.

    Raises RefusedError for a URL that the canonicalizer refuses, ValueError for anything that names no purge.
    """
    soft = document.get("soft", False)
    (name,) = [name for name in document if name != "soft"] if len(document.keys() - {"soft"}) == 1 else [""]
    match name, document.get(name):
        case _ if not isinstance(soft, bool):
            raise ValueError("soft must be true or false")
        case "url", str(url):
            return order_of_urls([_named(url, runtime)], "key", runtime, soft=soft)
        case "urls", list(urls) if urls and all(isinstance(url, str) for url in urls):
            return order_of_urls([_named(url, runtime) for url in urls], "urls", runtime, soft=soft)
        case "prefix", str(prefix):
            return order_of_prefix(_octets(prefix), runtime, soft=soft)
        case "tag", str(tag) if tag:
            return Order(Tags(frozenset((_octets(tag),)), soft=soft), "tag", (tag,))
        case "pattern", str(expression):
            return Order(compiled(expression, soft=soft), "pattern", (expression,))
        case "all", True:
            return Order(Everything(soft=soft), "all", ("*",))
        case _:
            raise ValueError("give one of url, urls (a list), prefix, pattern, tag, or all: true")


def _named(url: str, runtime: Runtime) -> Canonical:
    return accepted(resolve_url(_octets(url), runtime.sites))


def _octets(name: str) -> bytes:
    octets = url_octets(name)
    if octets is None:
        raise ValueError("the text has half of a surrogate pair")
    return octets


# Selectors of URLs, prefixes and paths


def accepted(resolved: Canonical | Rejected) -> Canonical:
    """The canonical URL. Raises RefusedError if there is none."""
    if isinstance(resolved, Rejected):
        raise RefusedError(resolved.reason, resolved.reasons)
    return resolved


def _both_schemes(canonical: Canonical, runtime: Runtime) -> list[Canonical]:
    other = b"http" if canonical.scheme == b"https" else b"https"
    twin = resolve(canonical.target, [canonical.authority], other, runtime.sites)
    return [canonical, twin] if isinstance(twin, Canonical) else [canonical]


def order_of_urls(canonicals: Sequence[Canonical], by: str, runtime: Runtime, *, soft: bool) -> Order:
    """Every response of these URLs, under both schemes, and what is derived from them."""
    every = [each for one in canonicals for each in meant(one, runtime.sites)]
    by_key = {twin.key: twin for each in every for twin in _both_schemes(each, runtime)}
    others = derived(by_key.values(), soft=soft)
    keys = [key for key, each in by_key.items() if not (soft and _is_among(each, others))]
    names = tuple([each.url.decode("latin-1") for each in canonicals])
    only = canonicals[0] if by == "key" else None
    return Order(Keys(frozenset(keys), soft=soft), by, names, only, also=others)


def derived(canonicals: Iterable[Canonical], *, soft: bool) -> tuple[Tags, ...]:
    """Selectors of the responses that are derived from these URLs: they have their paths as tags."""
    paths: dict[bytes, set[bytes]] = {}
    for each in canonicals:
        if each.route.profile.tags:
            paths.setdefault(_origin(each), set()).add(each.target.partition(b"?")[0])
    return tuple([Tags(frozenset(names), soft, origin) for origin, names in paths.items()])


def _is_among(canonical: Canonical, derived: Iterable[Tags]) -> bool:
    """Tell whether responses of a URL have one of the tags: marked stale by that, they count once."""
    own = path_tags(canonical.target, canonical.route.profile)
    return any(tags.origin == _origin(canonical) and not own.isdisjoint(tags.parts) for tags in derived)


def _origin(place: Canonical | Beginning) -> bytes:
    return b"%b %b" % (place.scheme, place.authority)


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
    if isinstance(whole, Canonical) and not whole.target.startswith(tuple(each.target for each in begun)):
        twins = _both_schemes(whole, runtime)
        keys = frozenset(twin.key for twin in twins)
        if b"?" not in prefix:
            names |= {b"%b %b?" % (_origin(twin), twin.target) for twin in twins}
    selector = Prefix(frozenset(names), soft=soft)
    return Order(selector, "prefix", (begun[0].url.decode("latin-1"),), also=(Keys(keys, soft=soft),))


def _order_of_beginning(
    target: bytes, hosts: Sequence[bytes], scheme: bytes, runtime: Runtime, *, soft: bool
) -> Order:
    """Every response of the URLs that begin like a request's target. Raises RefusedError."""
    if split_absolute(target) is None:
        root = accepted(resolve(b"/", hosts, scheme, runtime.sites))
        if not target.startswith(b"/"):
            raise RefusedError("no-leading-slash")
        target = b"%b://%b%b" % (root.scheme, root.authority, target)
    try:
        return order_of_prefix(target, runtime, soft=soft)
    except ValueError as error:
        raise RefusedError("bad-target") from error


def order_of_paths(
    target: bytes, hosts: Sequence[bytes], scheme: bytes, runtime: Runtime, *, soft: bool
) -> Order:
    """Every response of a host whose target begins as a pattern describes. Raises RefusedError."""
    absolute = split_absolute(target)
    root, path = (b"%b://%b/" % absolute[:2], absolute.rest) if absolute is not None else (b"/", target)
    canonical = accepted(resolve(root, hosts, scheme, runtime.sites))
    if not path.startswith(b"/"):
        raise RefusedError("no-leading-slash")
    # A pattern is searched in canonical URLs: the characters that it spells out become canonical, too.
    path = spelled_pattern(path, [route.profile for route in canonical.site.routes])
    try:
        compiled(path.decode("latin-1"))  # by itself, so that it cannot end the group that it is put into
        loose = canonical.site.root.profile.loose
        plain = merge_slashes(_ESCAPED_SLASH.sub(b"/", path)) if "//" in loose else path
        either = b"%b|%b" % (path, plain) if plain != path else path
        expression = (rb"^https?://%b(?:%b)" % (re.escape(canonical.authority), either)).decode("latin-1")
        return Order(compiled(expression, soft=soft), "pattern", (expression,))
    except ValueError as error:
        raise RefusedError("bad-target") from error


def entries_of(url: str, runtime: Runtime, memory: MemoryStore, now: float) -> list[dict[str, Any]]:
    """The responses that memory has of a URL under both schemes, newest first.

    Raises RefusedError for a URL that is refused, ValueError for half of a surrogate pair.
    """
    twins = _both_schemes(_named(url, runtime), runtime)
    stored = {id(one): one for twin in twins for one in memory.lookup(twin.key)}
    newest = sorted(stored.values(), key=lambda one: one.response_time, reverse=True)
    return [_entry(one, now) for one in newest]


def _entry(stored: Stored, now: float) -> dict[str, Any]:
    """One response: sizes are bytes, times are seconds."""
    validator = stored.etag or stored.last_modified
    named = vary_names(stored.fields) or ()
    return {
        "status": stored.status,
        # Fields that it was asked for without are told where its Vary names them: others are our own doing.
        "variant": {
            name.decode("latin-1"): None if value is None else value.decode("latin-1")
            for name, value in stored.vary
            if value is not None or name in named
        },
        "bytes": len(stored.body),
        "age": stored.age(now),
        "ttl": int(stored.fresh_until - now),
        "validator": None if validator is None else validator.decode("latin-1"),
        "store": "memory",
        "blocks": None,
    }
