"""Rules between substrings, from a log alone: middles of the same envelope may mean the same.

After DustBuster (Bar-Yossef, Keidar, Schonfeld: Do not crawl in the DUST, 2007): each URL is cut at every
pair of places into a beginning, a middle and an end. Two URLs that share beginning and end support the rule
that one middle is another spelling of the other. Buckets that overflow say nothing. DustBuster asks the
origin server; here the sizes in a log answer first: by chance two pages are seldom as long.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, groupby
from typing import Final

from univocal_learn.corpus import Urls
from univocal_learn.weight import alike

_TOKEN: Final = re.compile(rb"[A-Za-z0-9]+|%[0-9A-F]{2}|[^A-Za-z0-9]")
_ALNUM: Final = re.compile(rb"[A-Za-z0-9]+")
_DELIMITER: Final = re.compile(rb"[^A-Za-z0-9]")

# Tokens in a middle at most, URLs in an envelope at most, tokens of a URL at most.
_LONGEST: Final = 8
_CROWD: Final = 12
_MOST_TOKENS: Final = 60
# Envelopes that are kept at once, and bits of the counters by which single ones are left out.
_MOST_KEPT: Final = 6_000_000
_COUNTERS: Final = 26  # at most; for fewer URLs fewer
_CUTS: Final = 512  # envelopes of a URL, and room beside each
# URLs that a rule needs to be looked at, and of which so many are kept.
_LEAST: Final = 3
_KEPT: Final = 300

# A session's identifier as a segment of its own: alone, or behind a word that says so.
_SESSION: Final = re.compile(
    rb"(?<=/)((?:[A-Za-z]{1,12}[-=._])?|\((?:[A-Z]\())"
    rb"((?=[A-Za-z0-9_-]*\d)(?=[A-Za-z0-9_-]*[A-Za-z])(?:[0-9a-f]{16,}|[0-9A-F]{16,}|[A-Za-z0-9]{20,}"
    rb"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4,12}){4}))(\){0,2})(?=/)"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two middles and the envelopes that hold both: (before, after) of each pair of URLs."""

    one: bytes
    other: bytes
    support: int
    envelopes: tuple[tuple[bytes, bytes], ...]


def abstracted(target: bytes) -> bytes:
    """The target with a "*" in place of the first segment's part that looks like a session's identifier."""
    return _SESSION.sub(rb"\1*\3", target, count=1)


def candidates(urls: Urls, targets: Sequence[bytes]) -> list[Candidate]:
    """The rules that the targets of `urls` suggest, the best supported ones first."""
    chosen = [number for number in range(len(targets)) if urls.good[number]]
    times, suggesting = Counter[int](), array("Q")
    for members in _groups(_kept(urls, targets, chosen)):
        suggested = [hash((one, other)) for _, _, one, other in _suggested(urls, targets, members)]
        if suggested:
            times.update(suggested)
            suggesting.extend(members)
    often = {key for key, count in times.items() if count >= _LEAST}
    pairs: defaultdict[tuple[bytes, bytes], list[tuple[bytes, bytes]]] = defaultdict(list)
    for before, after, one, other in chain.from_iterable(
        _suggested(urls, targets, members) for members in _groups(suggesting)
    ):
        if hash((one, other)) in often:
            pairs[one, other].append((before, after))
    rules = [
        Candidate(one, other, len(set(envelopes)), tuple(dict.fromkeys(envelopes))[:_KEPT])
        for (one, other), envelopes in pairs.items()
    ]
    return sorted((rule for rule in rules if rule.support >= _LEAST), key=lambda rule: -rule.support)


def _places(target: bytes) -> list[int]:
    """Where tokens begin and end, the beginning left out: a path keeps its first slash."""
    return [token.end() for token in _TOKEN.finditer(target)][:_MOST_TOKENS]


def _cuts(urls: Urls, targets: Sequence[bytes], number: int) -> Iterator[tuple[int, int, int]]:
    """For each envelope of a URL a key, and where its middle begins and how many tokens it has."""
    target = targets[number]
    places = _places(target)
    before = [hash((urls.hosts[number], target[:place])) for place in places]
    after = [hash(target[place:]) for place in places]
    mark = target.find(b"?")
    count = len(places)
    for start in range(count):
        if mark >= 0 and places[start] > mark:
            break  # a query is a matter of parameters
        mine = before[start] * 0x9E3779B1
        for length in range(min(_LONGEST, count - 1 - start) + 1):
            yield (mine ^ after[start + length]) & 0xFFFFFFFFFFFFFFFF, start, length


def _kept(urls: Urls, targets: Sequence[bytes], chosen: Sequence[int]) -> list[int]:
    """Envelopes that several URLs share, sorted: 36 bits of the key, 18 of the URL, 6 and 4 of the place."""
    counters = bytearray(1 << min(_COUNTERS, (len(chosen) * _CUTS).bit_length()))
    mask = len(counters) - 1
    for number in chosen:
        for key, _, _ in _cuts(urls, targets, number):
            place = key & mask
            if counters[place] <= _CROWD:
                counters[place] += 1
    kept = array("Q")
    for number in chosen:
        if len(kept) > _MOST_KEPT:
            break
        for key, start, length in _cuts(urls, targets, number):
            if 2 <= counters[key & mask] <= _CROWD:
                kept.append((key >> 28) << 28 | number << 10 | start << 4 | length)
    return sorted(kept)


def _groups(kept: Iterable[int]) -> Iterator[list[int]]:
    """The envelopes with one key, of each key that neither one URL has nor a crowd."""
    for _, group in groupby(kept, key=lambda packed: packed >> 28):
        members = list(group)
        if 2 <= len(members) <= _CROWD:
            yield members


def _suggested(
    urls: Urls, targets: Sequence[bytes], members: Sequence[int]
) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Before, after, and two middles of each pair of URLs in a group that may be one page."""
    numbers = [packed >> 10 & 0x3FFFF for packed in members]
    paired = [
        (mine, theirs, same)
        for mine, theirs in combinations(range(len(members)), 2)
        if (same := alike(urls, numbers[mine], numbers[theirs])) is not False
    ]
    if not paired:
        return
    cut = [_cut(targets, packed) for packed in members]
    for mine, theirs, same in paired:
        (before, one, after), (head, other, tail) = cut[mine], cut[theirs]
        if before != head or after != tail or one == other or not _minimal(one, other):
            continue
        if _possible(one, other, sized=same is not None):
            yield (before, after, *((one, other) if one < other else (other, one)))


def _cut(targets: Sequence[bytes], packed: int) -> tuple[bytes, bytes, bytes]:
    target = targets[packed >> 10 & 0x3FFFF]
    places = _places(target)
    start = packed >> 4 & 0x3F
    begin, end = places[start], places[start + (packed & 0xF)]
    return target[:begin], target[begin:end], target[end:]


def _minimal(one: bytes, other: bytes) -> bool:
    """The middles begin and end differently: what is alike belongs to the envelope."""
    if not one or not other:
        return True
    mine, theirs = _TOKEN.findall(one), _TOKEN.findall(other)
    return bool(mine[0] != theirs[0] and mine[-1] != theirs[-1])


def _possible(one: bytes, other: bytes, *, sized: bool) -> bool:
    """A rule between the middles can be one of spelling, and not of pages, versions and languages."""
    words = [_ALNUM.findall(one), _ALNUM.findall(other)]
    if any(not word.isalpha() for word in [*words[0], *words[1]]):
        return False
    marks = [set(_DELIMITER.findall(middle)) for middle in (one, other)]
    if not one or not other:
        # A whole query is a matter of parameters.
        return (sized and b"?" not in marks[0] | marks[1]) or b"*" in one + other
    if all(len(values) == 1 and len(values[0]) <= 3 for values in words) and marks[0] == marks[1]:
        return False  # two languages, or two of anything that has short names
    # Without sizes a rule must be one between a path and a query, as from "_" to "?id=".
    return sized or ((not words[0] or not words[1]) and (b"?" in marks[0]) != (b"?" in marks[1]))
