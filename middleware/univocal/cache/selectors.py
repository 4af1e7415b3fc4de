"""What a purge names: keys, tags, prefixes, everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from univocal.cache.search import NoVarySearch

__all__ = ["Everything", "Keys", "Prefix", "Selector", "Tags", "located", "matches"]


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
class Everything:
    """All responses."""

    soft: bool = False


Selector: TypeAlias = Keys | Tags | Prefix | Everything


def located(key: bytes) -> bytes:
    """A key without its profile's digest: b"scheme authority target"."""
    return key.partition(b" ")[2]


def matches(selector: Selector, key: bytes, tags: frozenset[bytes], search: NoVarySearch | None) -> bool:
    """Whether a response of this key, tags and variance is meant: the one test, of purge and commit."""
    match selector:
        case Keys(keys):
            return key in keys or (
                search is not None and any(search.equivalent(key, other) for other in keys)
            )
        case Tags(wanted, _, origin):
            return not tags.isdisjoint(wanted) and (not origin or located(key).startswith(origin + b" "))
        case Prefix(prefixes):
            return located(key).startswith(tuple(prefixes))
        case Everything():
            return True
