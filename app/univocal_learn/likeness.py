"""Two answers are the same page, or not: a template of what stays when a page is asked for again.

An origin puts clocks, tokens and counters into its pages, so bytes alone do not decide. A template is what
two answers to the same request have in common, in order, with gaps where they differ. It is good for
deciding only if it does not fit the answers to other pages and to nonsense.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import groupby
from typing import Final
from urllib.parse import unquote_to_bytes

_WORD: Final = re.compile(rb"[^\s<>\"]+")
_TEXT: Final = re.compile(rb"(?i)text/|[a-z.+/-]*(?:json|xml|javascript)")
# Bytes of a text that are compared word by word; the rest counts as one word.
_COMPARED: Final = 256 << 10
# Where aligning two texts would take more steps than this, they are aligned by the words that each has once.
_MOST_STEPS: Final = 4_000_000
# Words that a gap may be longer than any that was seen.
_SLACK: Final = 8

# Fields in which an origin tells two pages apart, besides their content.
_TELLING: Final = frozenset(
    b"cache-control content-disposition content-language content-type etag last-modified vary".split()
)
_VALIDATORS: Final = frozenset({b"etag", b"last-modified"})


@dataclass(frozen=True, slots=True)
class Reply:
    """A response as far as it matters here; status 0: there was none."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    @property
    def failed(self) -> bool:
        """It says nothing about the target: none came, the origin failed, or was asked too often."""
        return self.status == 0 or self.status >= 500 or self.status == 429

    @property
    def redirects(self) -> bool:
        """It names another URL."""
        return self.status in {301, 302, 303, 307, 308} and bool(self.value(b"location"))

    def value(self, name: bytes) -> bytes:
        """The value of the first field called `name` (lower case), or nothing."""
        return next((value for key, value in self.fields if key == name), b"")


def steady_fields(answers: Sequence[Reply]) -> dict[bytes, bytes]:
    """The telling fields that all `answers` have with one value, b"" for one that none has."""
    steady = {}
    for name in _TELLING:
        values = {answer.value(name) for answer in answers}
        if len(values) == 1:
            steady[name] = values.pop()
    return steady


def told_apart(steady: dict[bytes, bytes], answer: Reply) -> tuple[str, bool]:
    """The name of a steady field that differs in `answer`, or "", and whether it is only a validator."""
    differing = [name for name, value in steady.items() if answer.value(name) != value]
    kinds = sorted(differing, key=lambda name: (name in _VALIDATORS, name))
    return (kinds[0].decode(), kinds[0] in _VALIDATORS) if kinds else ("", False)


def words(answer: Reply) -> list[bytes]:
    """An answer's content is compared by these: its words, or for what is no text all of it."""
    kind = answer.value(b"content-type")
    packed = answer.value(b"content-encoding") not in {b"", b"identity"}
    if packed or (kind and not _TEXT.match(kind)):
        return [blake2b(answer.body).digest()] if answer.body else []
    matches = _WORD.findall(answer.body[:_COMPARED])
    rest = answer.body[_COMPARED:]
    return [*matches, blake2b(rest).digest()] if rest else matches


def without_echo(content: Sequence[bytes], target: bytes) -> list[bytes]:
    """The words but for those that hold a name out of `target`: what a page repeats of its own URL."""
    names = set(re.split(rb"[/?&=;]", target)) - {b""}
    names |= {unquote_to_bytes(name) for name in names} | {target}
    pieces = {piece for name in names for piece in _WORD.findall(name)}
    long = [piece for piece in pieces if len(piece) > 1]
    return [
        word
        for word in content
        if word.strip(b".,:;!?/'()[]{}") not in pieces and not any(piece in word for piece in long)
    ]


@dataclass(frozen=True, slots=True)
class CommonWords:
    """Words that stand in every answer to one request, in order; None where answers differ."""

    items: tuple[bytes | None, ...]
    longest: int = 0  # the longest gap seen, in words

    @classmethod
    def of(cls, content: Sequence[bytes]) -> CommonWords:
        """The template that fits this content alone."""
        return cls(tuple(content))

    def widened(self, content: Sequence[bytes]) -> CommonWords:
        """The template that fits this content as well."""
        if self.fits(content):
            return self
        blocks = _common(self.items, content)
        items: list[bytes | None] = []
        here = there = longest = 0
        for mine, other, size in [*blocks, (len(self.items), len(content), 0)]:
            if mine > here or other > there:
                longest = max(longest, other - there, mine - here)
                if not items or items[-1] is not None:
                    items.append(None)
            items.extend(self.items[mine : mine + size])
            here, there = mine + size, other + size
        return CommonWords(_joined(items), max(longest, self.longest))

    def fits(self, content: Sequence[bytes]) -> bool:
        """The content has every word of the template in order, and others in its gaps only."""
        room = 2 * self.longest + _SLACK
        content = tuple(content)
        position, gap = 0, False
        for run in _runs(self.items):
            if not run:
                gap = True
                continue
            places = range(position, position + room + 1) if gap else (position,)
            start = next((at for at in places if content[at : at + len(run)] == run), None)
            if start is None:
                return False
            position, gap = start + len(run), False
        left = len(content) - position
        return left == 0 or (gap and left <= room)

    @property
    def gaping(self) -> bool:
        """It has a gap."""
        return None in self.items

    @property
    def words(self) -> int:
        """The number of words that stay."""
        return sum(item is not None for item in self.items)


def _joined(items: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
    before = (b"", *items)
    return tuple(item for item, last in zip(items, before, strict=False) if (item, last) != (None, None))


def _runs(items: Sequence[bytes | None]) -> Iterator[tuple[bytes | None, ...]]:
    """The words between gaps, and for each gap an empty run."""
    for is_gap, run in groupby(items, key=lambda item: item is None):
        yield () if is_gap else tuple(run)


def _common(one: Sequence[bytes | None], other: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Blocks (position, position, length) that both have, in order."""
    least = min(len(one), len(other))
    start = next((at for at in range(least) if one[at] != other[at]), least)
    least -= start
    end = next((at for at in range(least) if one[-1 - at] != other[-1 - at]), least)
    mine, theirs = one[start : len(one) - end], other[start : len(other) - end]
    blocks = [(0, 0, start)]
    if len(mine) * len(theirs) <= _MOST_STEPS:
        matcher = SequenceMatcher(None, mine, theirs, autojunk=len(mine) > 1000)
        matches: Iterable[tuple[int, int, int]] = matcher.get_matching_blocks()
    else:
        matches = _anchored(mine, theirs)
    blocks += [(start + a, start + b, size) for a, b, size in matches if size]
    if end:
        blocks.append((len(one) - end, len(other) - end, end))
    return [block for block in blocks if block[2]]


def _anchored(one: Sequence[bytes | None], other: Sequence[bytes]) -> Iterator[tuple[int, int, int]]:
    """Blocks that both have, in order, around words that each has once."""
    times = Counter(one), Counter(other)
    places = {word: place for place, word in enumerate(other)}
    pairs = [
        (place, places[word])
        for place, word in enumerate(one)
        if word is not None and times[0][word] == times[1][word] == 1
    ]
    here = there = 0  # where the last block ended
    for mine, theirs in _rising(pairs):
        if mine < here or theirs < there:
            continue
        back = 0
        while (
            mine - back > here and theirs - back > there and one[mine - back - 1] == other[theirs - back - 1]
        ):
            back += 1
        begin, start = mine - back, theirs - back
        here, there = mine + 1, theirs + 1
        while here < len(one) and there < len(other) and one[here] == other[there]:
            here, there = here + 1, there + 1
        yield begin, start, here - begin


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest choice of pairs, sorted by the first number, whose second numbers rise, too."""
    lowest: list[int] = []  # the least second number that a choice of so many ends with
    ends: list[int] = []  # the pair with it
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(lowest, second)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1] = [second]
        ends[length : length + 1] = [number]
    chosen, at = [], ends[-1] if ends else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]
