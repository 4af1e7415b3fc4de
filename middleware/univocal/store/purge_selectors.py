"""Purges, and their selectors: keys, tags, prefixes, patterns, everything."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import Any, Final, TypeAlias

from univocal.cache.directives import split_key
from univocal.cache.stored import Selecting, Stored
from univocal.http.grammar import without_port

# Work is counted in steps of RE2's slowest engine, some 8 ns each: those of a search beside its URL's, and
# those of any other test.
_SEARCH: Final = 150
_TEST: Final = 60
# Bytes that it takes to remember a purge, each piece beside its own, and a pattern with what RE2 makes of it,
# measured.
_COST: Final = 450
_PIECE_COST: Final = 150
_PATTERN_COST: Final = 30 << 10
_STEP_COST: Final = 35
# Bytes of a key's beginning by which a purge means it where the whole key is too long for a journal.
_SHORT: Final = 1_024


class _Local:
    """A selector for the memory of one node."""

    # No attributes: compiled, those of a base class would be defaults of a dataclass that extends it.
    __slots__ = ()

    def means(self, stored: Stored, key: bytes | None = None) -> bool:
        """True if a response is meant that is stored under its own key, or under this one."""
        return self.may_mean(stored.key if key is None else key)

    def may_mean(self, key: bytes) -> bool:  # noqa: ARG002
        """True if a response of this key that has not come yet may be meant."""
        return True

    def meant(self, key: bytes, variants: Sequence[Stored]) -> list[Stored]:
        """The responses that are meant of those stored under a key."""
        return [one for one in variants if self.means(one, key)]

    def keys(self) -> frozenset[bytes] | None:
        """The keys that it names; None if it may mean any."""
        return None

    def tags(self) -> frozenset[bytes] | None:
        """The tags of which each response that it means has one; None if it may have any."""
        return None

    @property
    def means_all(self) -> bool:
        """True if it means every response."""
        return False

    @property
    def by_search(self) -> bool:
        """True if only a search in each URL tells what it means, so that it works lazily."""
        return False

    def names(self) -> list[bytes]:
        """The names whose last purge a journal keeps, each with a letter for its kind; none: it keeps all."""
        return []

    @property
    def received(self) -> float:
        """The latest receipt of a response that it means, in seconds."""
        return inf

    def joined(self, other: LocalSelector) -> LocalSelector:  # noqa: ARG002
        """One purge of what both mean, or of more."""
        return Everything()

    def pieces(self) -> list[bytes]:
        """All that it says, but for its kind, as a list of bytes."""
        return []

    def effort(self, key: bytes, variants: int) -> int:  # noqa: ARG002
        """The steps that `meant` takes at most."""
        return _TEST * variants

    @property
    def cost(self) -> int:
        """The bytes that it takes to remember it."""
        pieces = self.pieces()
        return _COST + _PIECE_COST * len(pieces) + sum(map(len, pieces))


class _OfAllNodes(_Local):
    """A selector that a journal may have, for all nodes."""

    __slots__ = ()

    @property
    def common(self) -> int:
        """The number of pieces, the first ones, that are those of each part."""
        return 0

    @property
    def is_ordered(self) -> bool:
        """True if somebody asks for it; False if a response that replaces others brings it about."""
        return True

    @property
    def is_empty(self) -> bool:
        """True if it means nothing."""
        return False

    def places(self) -> Collection[tuple[bytes, Selecting | None]]:
        """The keys that it names, each with the selecting header fields, or None for any."""
        return ()

    def prefixes(self) -> frozenset[bytes]:
        """The beginnings of which each key that it means has one, past the digest; none: it may have any."""
        return frozenset()

    def without(self, keys: Collection[bytes]) -> Selector:  # noqa: ARG002
        """The same purge, but for these keys if it names them."""
        return _changed(self)

    def divided(self, most: int) -> list[Selector]:  # noqa: ARG002
        """The same purge as several, each of so many parts at most."""
        return [_changed(self)]

    def broader(self) -> Selector:
        """A purge of short names that means more: of the paths' beginnings if it names keys or prefixes."""
        selector: Any = self
        keys = {located(split_key(key)[0]) for key in selector.keys() or ()}
        starts = frozenset([start[:_SHORT] for start in keys or self.prefixes()])
        return Prefix(starts, selector.soft) if starts else Everything(selector.soft)

    def softened(self) -> Selector:
        """The same purge, which marks responses stale."""
        return _changed(self, soft=True)


class _Parted(_OfAllNodes):
    """A selector of several parts, each of which is a selector, too."""

    __slots__ = ()

    @property
    def is_empty(self) -> bool:
        selector: Any = self
        return not selector.parts

    def divided(self, most: int) -> list[Selector]:
        listed = [*_parts(self)]
        if len(listed) <= most:
            return [_changed(self)]
        return [self._of(listed[at : at + most]) for at in range(0, len(listed), most)]

    def joined(self, other: LocalSelector) -> LocalSelector:
        return self._of([*_parts(self), *_parts(other)]) if type(other) is type(self) else Everything()

    def _of(self, parts: list[Any]) -> Selector:
        return _changed(self, parts=frozenset(parts))


@dataclass(frozen=True, slots=True)
class Keys(_Parted):
    """The responses stored under these keys, and those that No-Vary-Search makes the same."""

    parts: frozenset[bytes]
    soft: bool = False

    def means(self, stored: Stored, key: bytes | None = None) -> bool:
        key = stored.key if key is None else key
        search = stored.search
        return key in self.parts or (
            search is not None and any(search.equivalent(key, other) for other in self.parts)
        )

    def may_mean(self, key: bytes) -> bool:
        path = split_key(key)[0]
        return any(split_key(other)[0] == path for other in self.parts)

    def keys(self) -> frozenset[bytes] | None:
        return self.parts

    def places(self) -> Collection[tuple[bytes, Selecting | None]]:
        return [(key, None) for key in self.parts]

    def without(self, keys: Collection[bytes]) -> Selector:
        return replace(self, parts=self.parts.difference(keys))

    def pieces(self) -> list[bytes]:
        return sorted(self.parts)

    def names(self) -> list[bytes]:
        return [*(b"k" + key for key in self.parts), *{b"n" + split_key(key)[0] for key in self.parts}]

    def effort(self, key: bytes, variants: int) -> int:  # noqa: ARG002
        return _TEST * variants * len(self.parts)


@dataclass(frozen=True, slots=True)
class Tags(_Parted):
    """The responses with one of these tags; with `origin` (b"scheme authority") only those of that origin."""

    parts: frozenset[bytes]
    soft: bool = False
    origin: bytes = b""

    def means(self, stored: Stored, key: bytes | None = None) -> bool:
        return not stored.tags.isdisjoint(self.parts) and self.may_mean(stored.key if key is None else key)

    def may_mean(self, key: bytes) -> bool:
        return not self.origin or located(key).startswith(self.origin + b" ")

    def prefixes(self) -> frozenset[bytes]:
        return frozenset((self.origin + b" ",)) if self.origin else frozenset()

    def tags(self) -> frozenset[bytes] | None:
        return self.parts

    def pieces(self) -> list[bytes]:
        return [self.origin, *sorted(self.parts)]

    @property
    def common(self) -> int:
        return 1

    def names(self) -> list[bytes]:
        return [b"t%b\0%b" % (self.origin, tag) for tag in self.parts]


@dataclass(frozen=True, slots=True)
class Prefix(_Parted):
    """The responses whose key, past the digest, begins like one of these: b"scheme authority /path"."""

    parts: frozenset[bytes]
    soft: bool = False

    def may_mean(self, key: bytes) -> bool:
        return located(key).startswith(tuple(self.parts))

    def prefixes(self) -> frozenset[bytes]:
        return self.parts

    def pieces(self) -> list[bytes]:
        return sorted(self.parts)

    def names(self) -> list[bytes]:
        return [b"p" + prefix for prefix in self.parts]


@dataclass(frozen=True, slots=True)
class Pattern(_OfAllNodes):
    """The responses in whose canonical URL `search` finds the expression."""

    expression: str
    search: Callable[[bytes], bool] = field(compare=False, repr=False)
    soft: bool = False
    steps: int = 1  # that a search takes at most for each byte of a URL

    @property
    def by_search(self) -> bool:
        return True

    def may_mean(self, key: bytes) -> bool:
        return self.search(url_of(key))

    def meant(self, key: bytes, variants: Sequence[Stored]) -> list[Stored]:
        return [*variants] if self.may_mean(key) else []

    def pieces(self) -> list[bytes]:
        return [self.expression.encode()]

    def effort(self, key: bytes, variants: int) -> int:  # noqa: ARG002
        return _SEARCH + self.steps * len(key)

    @property
    def cost(self) -> int:
        return _COST + _PATTERN_COST + _STEP_COST * self.steps


@dataclass(frozen=True, slots=True)
class Variants(_Parted):
    """The responses with these keys and selecting header fields that came at `until` (seconds) or before."""

    parts: frozenset[tuple[bytes, Selecting]]
    until: float
    soft: bool = False

    def means(self, stored: Stored, key: bytes | None = None) -> bool:
        place = (stored.key if key is None else key), stored.vary
        return stored.response_time <= self.until and place in self.parts

    def may_mean(self, key: bytes) -> bool:  # noqa: ARG002
        return False

    def keys(self) -> frozenset[bytes] | None:
        return frozenset([key for key, _ in self.parts])

    def places(self) -> Collection[tuple[bytes, Selecting | None]]:
        return self.parts

    @property
    def received(self) -> float:
        return self.until

    @property
    def is_ordered(self) -> bool:
        return False

    def pieces(self) -> list[bytes]:
        pieces = [repr(float(self.until)).encode()]
        for key, vary in self.parts:
            pieces += [key, b"%d" % len(vary)]
            for name, value in vary:
                pieces += [name, b"-" if value is None else b"+" + value]  # as `optional` of codec.py
        return pieces

    @property
    def common(self) -> int:
        return 1

    def names(self) -> list[bytes]:
        return [variant_name(key, vary) for key, vary in self.parts]


@dataclass(frozen=True, slots=True)
class Everything(_OfAllNodes):
    """All responses."""

    soft: bool = False

    @property
    def means_all(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Profiles(_Local):
    """The responses that profiles of these digests have keyed; of one node, not of a shared store."""

    parts: frozenset[bytes]
    soft: bool = False

    def may_mean(self, key: bytes) -> bool:
        return key.partition(b" ")[0] in self.parts

    def pieces(self) -> list[bytes]:
        return [*self.parts]


Selector: TypeAlias = Keys | Variants | Tags | Prefix | Pattern | Everything
LocalSelector: TypeAlias = Selector | Profiles


@dataclass(slots=True)  # one that is frozen takes 0.4 µs more to make
class Purge:
    """An entry of the journal, which stays as it is.

    `time` is in seconds since the epoch. `cause` names the lease whose own response brought the purge about,
    and is spared; it is empty for an order.
    """

    number: int
    time: float
    selector: LocalSelector
    cause: bytes = b""


def _parts(selector: Any) -> frozenset[Any]:
    parts: frozenset[Any] = selector.parts
    return parts


def _changed(selector: Any, **fields: Any) -> Selector:
    changed: Selector = replace(selector, **fields) if fields else selector
    return changed


def located(key: bytes) -> bytes:
    """A key without its profile's digest: b"scheme authority target"."""
    return key.partition(b" ")[2]


@lru_cache(maxsize=8)  # many patterns search the URL of one key
def url_of(key: bytes) -> bytes:
    """The canonical URL of a key."""
    scheme, authority, target = located(key).split(b" ", 2)
    return b"%b://%b%b" % (scheme, authority, target)


def variant_name(key: bytes, vary: Selecting) -> bytes:
    """The name of a variant in a journal."""
    return b"v%b%b" % (blake2b(repr(vary).encode(), digest_size=16).digest(), key)


# Patterns are in RE2's syntax: to match any of them takes time linear in the URL.

_LONGEST: Final = 1024  # characters
# The most that RE2 may take for one pattern: bytes for its machines, and instructions. With what it takes
# beside, the worst of 8,000 patterns made at random took 68 KiB, after searches in URLs made to fill its
# memory.
_MEMORY: Final = 64 << 10
_INSTRUCTIONS: Final = 1_100
# Where that memory does not suffice, RE2 walks through all instructions for each byte, some 8 ns each: more
# steps than these are not taken, and the URL counts as found.
STEPS: Final = 1_000_000


def compiled(expression: str, *, soft: bool = False) -> Pattern:
    """The selector of responses in whose canonical URL `expression` is found.

    One of two lines is a pattern for the host, and one for the path and query. Raises ValueError for an
    expression that RE2 does not accept, and for more than 1,024 characters or 1,100 of RE2's instructions. It
    is also raised without the extra `univocal[re2]`: Python's own `re` would let one pattern keep a processor
    busy for years.
    """
    try:
        import re2  # noqa: PLC0415  an extra
    except ImportError:
        raise ValueError("patterns need RE2: pip install 'univocal[re2]'") from None
    if not expression or len(expression) > _LONGEST:
        raise ValueError(f"a pattern must have 1 to {_LONGEST} characters")
    lines = expression.split("\n", 1)
    options = _re2_options(_MEMORY // len(lines))
    options.never_capture = True
    try:
        regexps = [re2.compile(line.encode("latin-1"), options) for line in lines]
    except UnicodeEncodeError:
        raise ValueError("a pattern must be ASCII, as canonical URLs are") from None
    except re2.error as error:
        raise ValueError(f"RE2 does not accept the pattern: {_complaint(error)}") from None
    steps = max(sum(regexp.programsize for regexp in regexps), 1)
    if steps > _INSTRUCTIONS:
        raise ValueError("the pattern takes too much memory: it has too many alternatives or repetitions")
    searches: list[Callable[[bytes], object]] = [regexp.search for regexp in regexps]
    search = _in_parts(*searches) if len(searches) == 2 else searches[0]
    most = STEPS // steps
    return Pattern(expression, lambda url: len(url) > most or search(url) is not None, soft, steps)


def grouping(expression: str) -> Any:
    """RE2's object for an expression that `compiled` accepts, with its groups."""
    import re2  # noqa: PLC0415  an extra

    return re2.compile(expression.encode("latin-1"), _re2_options(_MEMORY))


def _re2_options(memory: int) -> Any:
    import re2  # noqa: PLC0415  an extra

    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    # Stubs of RE2, where they are installed, lack this name.
    options.encoding = re2.Options.Encoding.LATIN1  # type: ignore[attr-defined, unused-ignore]
    return options


def _in_parts(
    in_host: Callable[[bytes], object], in_target: Callable[[bytes], object]
) -> Callable[[bytes], object]:
    """A search for two patterns: in a URL's host, with its port or without, and in its path and query."""

    def search(url: bytes) -> object:
        authority, target = url.partition(b"://")[2].split(b"/", 1)
        if in_host(authority) is None and in_host(without_port(authority)) is None:
            return None
        return in_target(b"/" + target)

    return search


def _complaint(error: Exception) -> str:
    """RE2's complaint without what stands after a colon: bytes of the pattern, which are the client's."""
    message = error.args[0] if error.args else error
    text = message.decode("latin-1") if isinstance(message, bytes) else str(message)
    return text.partition(":")[0]
