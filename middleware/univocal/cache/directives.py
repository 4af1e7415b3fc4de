"""Messages give directives to caches: Cache-Control and targeted fields (RFC 9111 §5.2, 9213, 5861).

Responses name themselves for purges: Surrogate-Key, xkey, Cache-Tag, Cache-Groups (RFC 9875). They
name the parts of a query that do not matter: No-Vary-Search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from univocal.http.grammar import TOKEN, unescape
from univocal.http.messages import (
    MAX_DELTA,
    Fields,
    Instructions,
    cache_control,
    combined,
    delta_seconds,
    members,
    structured,
    values,
)

# The fields of a response that name it for purges: of Fastly, Varnish, Cloudflare, FOSHttpCache, Magento,
# API Platform and Drupal.
_LISTS: Final = frozenset(
    b"cache-tag cache-tags purge-cache-tags surrogate-key x-cache-tags x-magento-tags xkey".split()
)
TAGGING: Final = _LISTS | {b"cache-groups"}

# A response with more tags than this is not stored: leaving some out would let it outlive its purge.
MAX_TAGS: Final = 1_024
# Bytes of a field of groups that is read (§2 asks for 32 groups of 32 characters).
_LONGEST_GROUPS: Final = 4096


def tags(fields: Fields) -> frozenset[bytes]:
    """The names that a response can be purged by, of each field in `TAGGING`; of Cache-Groups by §2."""
    names = set[bytes]()
    for name, value in fields:
        if name in _LISTS:  # every system's own clients and documents mix commas and blanks
            names.update(value.replace(b",", b" ").split())
    return frozenset(names | groups(fields, b"cache-groups"))


def excessive(fields: Fields, names: frozenset[bytes]) -> bool:
    """A response has more tags than are kept, or more groups than are read."""
    return len(names) > MAX_TAGS or _are_too_long(combined(fields, b"cache-groups"))


def _are_too_long(groups: bytes | None) -> bool:
    return groups is not None and len(groups) > _LONGEST_GROUPS


def groups(fields: Fields, name: bytes) -> frozenset[bytes]:
    """The members of a List of Strings (RFC 9875 §2, §3); none if it is malformed or too long to be read."""
    value = combined(fields, name)
    if value is None or _are_too_long(value):
        return frozenset()
    items = structured(value, "list") or ()
    return frozenset(item[0].encode() for item in items if isinstance(item, tuple) and type(item[0]) is str)


_SECONDS: Final = frozenset({"max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"})
_FLAGS: Final = frozenset(
    {
        "no-store",
        "public",
        "must-revalidate",
        "proxy-revalidate",
        "must-understand",
        "no-transform",
        "immutable",
    }
)
# The form of a readable directive (RFC 9111 §5.2), and the tokens to search for in an unreadable one.
_QUOTED: Final = rb'"(?:[^"\\]|\\.)*"'
_WELL_FORMED: Final = re.compile(TOKEN + rb"(?:=(?:" + TOKEN + rb"|" + _QUOTED + rb"))?", re.DOTALL)
_TOKENS: Final = re.compile(TOKEN)
_FORBIDDING: Final = frozenset({b"no-cache", b"no-store", b"private"})


@dataclass(frozen=True, slots=True)
class ResponseDirectives:
    """The effective directives of a response; an unreadable `max_age` or `s_maxage` is 0: stale (§4.2.1)."""

    no_store: bool
    no_cache: bool
    private: bool
    public: bool
    must_revalidate: bool
    proxy_revalidate: bool
    must_understand: bool
    max_age: int | None
    s_maxage: int | None
    stale_while_revalidate: int | None
    stale_if_error: int | None
    withheld: frozenset[bytes]  # fields named by a qualified no-cache or private: not stored
    malformed: bool  # a part of it cannot be read: no rule adds a lifetime
    targeted: bool  # from a targeted field: Cache-Control and Expires do not count (RFC 9213 §2.2)


@dataclass(frozen=True, slots=True)
class RequestDirectives:
    """A request's directives (RFC 9111 §5.2.1), None where absent or unreadable."""

    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    max_age: int | None = None
    min_fresh: int | None = None
    max_stale: int | None = None
    stale_if_error: int | None = None


# Bytes of Cache-Control, Pragma and targeted fields that are read. Longer ones forbid all that a field can.
_LONGEST: Final = 4096
# A time of nginx's that is over: none, or one as seconds since the epoch, which may be.
_UNSTORED: Final = re.compile(rb"0+|@.*", re.DOTALL)
# The longest Cache-Control line that is remembered: most responses of an origin share a few short ones, and
# the memo stays below a megabyte whatever is sent.
_MEMORABLE: Final = 256


def response_directives(
    fields: Fields, named: Mapping[bytes, bytes], targeted: Iterable[bytes]
) -> ResponseDirectives:
    """The directives for this cache: of the first valid field of the target list, else of Cache-Control.

    `named` are the fields as `firsts` gives them. nginx's "X-Accel-Expires: 0" forbids to store, before them.
    """
    if b"x-accel-expires" in named and any(map(_UNSTORED.fullmatch, values(fields, b"x-accel-expires"))):
        return _response({b"no-store": None}, malformed=False, targeted=True)
    for name in targeted:
        if (
            name in named
            and (value := combined(fields, name)) is not None
            and (directives := _structured(value))
        ):
            return _response(directives, malformed=False, targeted=True)
    line = named.get(b"cache-control", b"")
    lines = [line] if len(named) == len(fields) else values(fields, b"cache-control")
    return _response_line(line) if lines == [line] and len(line) <= _MEMORABLE else _response_lines(lines)


def instructed(directives: ResponseDirectives, said: Instructions, status: int) -> ResponseDirectives:
    """The directives with an application's instructions, which give no lifetime to errors.

    A response that forbids to be stored, or to be reused without validation, keeps that.
    """
    if said.no_store:
        return replace(directives, no_store=True, must_understand=False)
    if said.max_age is None and said.stale_while_revalidate is None:
        return directives
    kept = directives.no_store or directives.no_cache or directives.private or directives.malformed
    if kept or status >= 400:
        return directives
    if said.max_age is not None:
        # An s-maxage that lets a response to a request with Authorization be shared goes on doing so.
        shared = None if directives.s_maxage is None else said.max_age
        directives = replace(directives, max_age=said.max_age, s_maxage=shared, targeted=True)
    if said.stale_while_revalidate is not None:
        directives = replace(directives, stale_while_revalidate=said.stale_while_revalidate)
    return directives


@lru_cache(maxsize=1024)
def _response_line(line: bytes) -> ResponseDirectives:
    return _response_lines([line])


def _response_lines(lines: list[bytes]) -> ResponseDirectives:
    directives, malformed = _read(lines)
    return _response(directives, malformed=malformed, targeted=False)


def _read(lines: list[bytes]) -> tuple[dict[bytes, bytes | None], bool]:
    """The directives of Cache-Control, and whether it holds what is none.

    "no-cache; no-store" or "no-store no-cache" is no directive, but there is no doubt what was meant: in what
    cannot be read, each of the directives that forbid counts, without an argument.
    """
    if _is_too_long(lines):
        return dict.fromkeys(_FORBIDDING), True
    directives = cache_control(lines)
    malformed = [piece for line in lines for piece in members(line) if not _WELL_FORMED.fullmatch(piece)]
    named = {token.lower() for piece in malformed for token in _TOKENS.findall(piece)}
    return directives | dict.fromkeys(named & _FORBIDDING), bool(malformed)


def _is_too_long(lines: list[bytes]) -> bool:
    return sum(map(len, lines)) > _LONGEST


def _structured(value: bytes) -> dict[bytes, bytes | None] | None:
    """A targeted field, strictly a Dictionary whose known members have their type; or None (RFC 9213)."""
    if _is_too_long([value]):
        return dict.fromkeys(_FORBIDDING)
    parsed = structured(value, "dictionary")
    if parsed is None:
        return None
    directives: dict[bytes, bytes | None] = {}
    for name, item in parsed.items():
        bare = item[0] if isinstance(item, tuple) else item
        if name in _SECONDS:
            if not isinstance(bare, int) or isinstance(bare, bool):
                return None
            directives[name.encode()] = b"%d" % bare
        elif name in _FLAGS:
            if not isinstance(bare, bool):
                return None
            if bare:
                directives[name.encode()] = None
        elif bare is not False:
            # The arguments of no-cache and private are not narrowed down here: the whole response is meant.
            directives[name.encode()] = None
    return directives


def _response(
    directives: Mapping[bytes, bytes | None], *, malformed: bool, targeted: bool
) -> ResponseDirectives:
    withheld = _names(directives.get(b"no-cache")) | _names(directives.get(b"private"))
    return ResponseDirectives(
        no_store=b"no-store" in directives,
        no_cache=b"no-cache" in directives and not _names(directives[b"no-cache"]),
        private=b"private" in directives and not _names(directives[b"private"]),
        public=b"public" in directives,
        must_revalidate=b"must-revalidate" in directives,
        proxy_revalidate=b"proxy-revalidate" in directives,
        must_understand=b"must-understand" in directives,
        max_age=_lifetime(directives, b"max-age"),
        s_maxage=_lifetime(directives, b"s-maxage"),
        stale_while_revalidate=delta_seconds(directives.get(b"stale-while-revalidate")),
        stale_if_error=delta_seconds(directives.get(b"stale-if-error")),
        withheld=withheld,
        malformed=malformed,
        targeted=targeted,
    )


def _lifetime(directives: Mapping[bytes, bytes | None], name: bytes) -> int | None:
    return (delta_seconds(directives[name]) or 0) if name in directives else None


def _names(argument: bytes | None) -> frozenset[bytes]:
    return frozenset(name.lower() for name in members(argument)) if argument else frozenset()


def request_directives(fields: Fields) -> RequestDirectives:
    """A request's Cache-Control, or what its Pragma means in the absence of one (RFC 9111 §5.2.1, §5.4)."""
    lines = values(fields, b"cache-control")
    if not lines:
        pragma = values(fields, b"pragma")
        return RequestDirectives(no_cache=_is_too_long(pragma) or b"no-cache" in cache_control(pragma))
    if len(lines) == 1 and len(lines[0]) <= _MEMORABLE:
        return _request_line(lines[0])
    return _request_lines(lines)


@lru_cache(maxsize=256)
def _request_line(line: bytes) -> RequestDirectives:
    return _request_lines([line])


def _request_lines(lines: list[bytes]) -> RequestDirectives:
    directives, _ = _read(lines)
    max_stale = directives.get(b"max-stale")
    return RequestDirectives(
        no_cache=b"no-cache" in directives,
        no_store=b"no-store" in directives,
        only_if_cached=b"only-if-cached" in directives,
        max_age=delta_seconds(directives.get(b"max-age")),
        min_fresh=delta_seconds(directives.get(b"min-fresh")),
        # Without an argument a response of any age is accepted (§5.2.1.2).
        max_stale=MAX_DELTA if b"max-stale" in directives and max_stale is None else delta_seconds(max_stale),
        stale_if_error=delta_seconds(directives.get(b"stale-if-error")),
    )


# The parts of a query that do not matter (draft-ietf-httpbis-no-vary-search)

# Bytes of the field that are read.
_LONGEST_SEARCH: Final = 4096


@dataclass(frozen=True, slots=True)
class NoVarySearch:
    """A variance other than the default: queries it cannot tell apart have the same `canonical` form.

    `ignored` None stands for every parameter but those in `kept`.
    """

    any_order: bool
    ignored: frozenset[bytes] | None
    kept: frozenset[bytes]

    @property
    def names(self) -> frozenset[bytes]:
        """The parameters it names."""
        return self.ignored or self.kept

    def canonical(self, query: bytes) -> bytes:
        """A query's parameters that matter, spelled injectively; it is read as a form (WHATWG URL §5.1)."""
        pieces = [piece for piece in query.split(b"&") if piece]
        if b"%" in query or b"+" in query:
            pairs = [_decoded(piece) for piece in pieces]
        else:
            pairs = [(name, value) for name, _, value in (piece.partition(b"=") for piece in pieces)]
        if self.ignored is None:
            pairs = [pair for pair in pairs if pair[0] in self.kept]
        else:
            pairs = [pair for pair in pairs if pair[0] not in self.ignored]
        if self.any_order:
            pairs.sort(key=lambda pair: pair[0])
        return b"".join(b"%d:%b%d:%b" % (len(name), name, len(value), value) for name, value in pairs)

    def equivalent(self, key: bytes, other: bytes) -> bool:
        """Two cache keys are of one path and of queries that this variance cannot tell apart."""
        (path, query), (other_path, other_query) = split_key(key), split_key(other)
        return path == other_path and self.canonical(query) == self.canonical(other_query)


def split_key(key: bytes) -> tuple[bytes, bytes]:
    """A cache key up to its query, and the query."""
    path, _, query = key.partition(b"?")
    return path, query


def _decoded(piece: bytes) -> tuple[bytes, bytes]:
    name, _, value = piece.replace(b"+", b" ").partition(b"=")
    return (unescape(name), unescape(value)) if b"%" in piece else (name, value)


def no_vary_search(fields: Fields) -> NoVarySearch | None:
    """The variance a response asks for; None for the default one and for what cannot be read (§3)."""
    value = combined(fields, b"no-vary-search")
    if value is None or len(value) > _LONGEST_SEARCH:
        return None
    parsed = structured(value, "dictionary")
    if parsed is None:
        return None
    bare = {name: item[0] for name, item in parsed.items() if isinstance(item, tuple)}
    any_order, params, exceptions = (
        bare.get("key-order", False),
        bare.get("params", False),
        bare.get("except"),
    )
    if not isinstance(any_order, bool):
        return None
    if isinstance(params, bool):
        kept = _strings([] if exceptions is None else exceptions)
        if kept is None or (exceptions is not None and not params):
            return None
        ignored: frozenset[bytes] | None = None if params else frozenset()
    else:
        # "except" makes sense only where all other parameters are ignored.
        ignored, kept = _strings(params), frozenset()
        if ignored is None or exceptions is not None:
            return None
    return NoVarySearch(any_order, ignored, kept) if any_order or ignored is None or ignored else None


def _strings(items: object) -> frozenset[bytes] | None:
    """The names in an inner list of Strings, read like a parameter's name."""
    if not isinstance(items, list) or not all(type(item[0]) is str for item in items):
        return None
    return frozenset(_decoded(item[0].encode())[0] for item in items)
