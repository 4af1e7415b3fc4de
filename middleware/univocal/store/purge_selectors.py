"""The selectors of a purge: keys, tags, prefixes, patterns, everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from univocal.cache.no_vary_search import split_key
from univocal.cache.stored import Selecting, Stored


@dataclass(frozen=True, slots=True)
class Keys:
    """The responses stored under these keys, and those that No-Vary-Search makes the same."""

    names: frozenset[bytes]
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Tags:
    """The responses with one of these tags; with `origin` (b"scheme authority") only those of that origin."""

    names: frozenset[bytes]
    soft: bool = False
    origin: bytes = b""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The responses whose key, past the digest, begins like one of these: b"scheme authority /path"."""

    names: frozenset[bytes]
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """The responses in whose canonical URL `search` finds the expression."""

    expression: str
    search: Callable[[bytes], bool] = field(compare=False, repr=False)
    soft: bool = False
    steps: int = 1  # that a search takes at most for each byte of a URL


@dataclass(frozen=True, slots=True)
class Variants:
    """The responses with these keys and selecting header fields that came at `until` (seconds) or before."""

    names: frozenset[tuple[bytes, Selecting]]
    until: float
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Everything:
    """All responses."""

    soft: bool = False


@dataclass(frozen=True, slots=True)
class Profiles:
    """The responses that profiles of these digests have keyed; of one node, not of a shared store."""

    names: frozenset[bytes]
    soft: bool = False


Selector: TypeAlias = Keys | Variants | Tags | Prefix | Pattern | Everything
LocalSelector: TypeAlias = Selector | Profiles


def located(key: bytes) -> bytes:
    """A key without its profile's digest: b"scheme authority target"."""
    return key.partition(b" ")[2]


def url_of(key: bytes) -> bytes:
    """The canonical URL of a key."""
    scheme, authority, target = located(key).split(b" ", 2)
    return b"%b://%b%b" % (scheme, authority, target)


def matches(selector: LocalSelector, key: bytes, stored: Stored | None) -> bool:
    """Tell whether a response stored under this key is meant: one test for purge and commit.

    With None, nothing is known of the response but its key.
    """
    match selector:
        case Keys(keys):
            search = stored.search if stored is not None else None
            return key in keys or (
                search is not None and any(search.equivalent(key, other) for other in keys)
            )
        case Variants(names, until):
            return stored is not None and stored.response_time <= until and (key, stored.vary) in names
        case Tags(wanted, _, origin):
            tagged = stored is not None and not stored.tags.isdisjoint(wanted)
            return tagged and (not origin or located(key).startswith(origin + b" "))
        case Prefix(prefixes):
            return located(key).startswith(tuple(prefixes))
        case Pattern(_, occurs):
            return occurs(url_of(key))
        case Profiles(digests):
            return key.partition(b" ")[0] in digests
        case Everything():
            return True


def may_match(selector: LocalSelector, key: bytes) -> bool:
    """Tell whether a response of this key that has not come yet may be meant."""
    match selector:
        case Keys(keys):
            path, _ = split_key(key)
            return any(split_key(other)[0] == path for other in keys)
        case Tags(_, _, origin):
            return not origin or located(key).startswith(origin + b" ")
        case _:
            return matches(selector, key, None)
