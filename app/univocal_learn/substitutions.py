"""Rules between substrings, from a log alone: candidates, in which context they hold, whether the log agrees.

After DustBuster (Bar-Yossef, Keidar, Schonfeld: Do not crawl in the DUST, 2007): each URL is cut at every
pair of places into a beginning, a middle and an end. Two URLs that share beginning and end, an envelope,
support the rule that one middle is another spelling of the other. Buckets that overflow say nothing.
DustBuster asks the origin server. Here the sizes in a log answer first: by chance two pages are seldom as
long.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, groupby
from typing import Final

from univocal.uri.query import split
from univocal.uri.rewrite import Rule, rewriter
from univocal.uri.target import canonical_target
from univocal_learn.corpus import UNKNOWN, Urls, alike, weigh
from univocal_learn.forms import Seen, chooses, unsized
from univocal_learn.questions import parameters
from univocal_learn.verdicts import CONFIDENCE
from univocal_learn.written import Settings, is_accepted, loaded, parameter_name

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


_MOST: Final = 150  # candidates that are looked at
_UNSIZED: Final = 10
_MARKS: Final = 5  # parameters of one value that are looked at
_MARKED: Final = 10  # URLs that have one at least
# Of the URLs that a rule respells so many must be in the log under the other spelling, too.
_COVERED: Final = 0.05
_COVERED_ANYWHERE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Substitution(Seen):
    """A rule of a profile that the log supports."""

    rule: tuple[str, str, str]  # from, to, at


def substitutions(urls: Urls, settings: Settings) -> tuple[Settings, list[Substitution]]:
    """The rules between substrings of the targets, with the settings that have them."""
    wild = _with_wildcards(urls)
    rules: list[Substitution] = []
    for candidate in candidates(wild, wild.targets)[:_MOST]:
        for group in _contexts(candidate):
            best = max(
                (one for one in _tried(urls, settings, candidate, group)),
                key=lambda one: (one.support, "?" in one.rule[1], -len(one.rule[1])),
                default=None,
            )
            if best is not None and not _redundant(urls, settings, best):
                settings = replace(settings, rewrites=(*settings.rewrites, best.rule))
                rules.append(best)
    return settings, sorted(rules, key=lambda one: -one.support)


def marked(urls: Urls, settings: Settings) -> tuple[Settings, list[Substitution], list[Seen]]:
    """The rules that hold where a parameter goes that has one value and is always there.

    /story_7?print=1 may be /story?id=7 in a log without /story_7: neither change can be seen by itself.
    """
    additions: list[Substitution] = []
    seen: list[Seen] = []
    for name, bearers in _marks(urls).items():
        bare, numbers = _without_mark(urls, name, bearers)
        dropping = replace(settings, drop=tuple(sorted({*settings.drop, name})))
        ruled, rules = substitutions(bare, dropping)
        both = [rule for rule in rules if _is_of(rule, numbers, bearers)]
        if not both or sum(rule.support for rule in both) < 0.5 * len(bearers) or len(both) < len(rules):
            continue
        settings = ruled
        named = [
            replace(rule, pairs=tuple((numbers[one], numbers[other]) for one, other in rule.pairs))
            for rule in both
        ]
        additions += named
        sure = max(rule.confidence for rule in named)
        seen.append(Seen(f"drop {name}", sum(rule.support for rule in named), sure, named[0].pairs))
    return settings, additions, seen


def _marks(urls: Urls) -> dict[str, set[int]]:
    """Names of parameters that have one value and without which no page of theirs is asked for, and where."""
    values: defaultdict[bytes, set[bytes]] = defaultdict(set)
    bearers: defaultdict[bytes, set[int]] = defaultdict(set)
    for number, target in enumerate(urls.targets):
        if urls.good[number]:
            for octets, _, value in parameters(split(target)[1]):
                values[octets].add(value)
                bearers[octets].add(number)
    marks: dict[str, set[int]] = {}
    for octets, numbers in sorted(bearers.items(), key=lambda item: -len(item[1])):
        name = parameter_name(octets)
        constant = len(values[octets]) == 1 and len(numbers) >= _MARKED and len(marks) < _MARKS
        if not (constant and name) or chooses(name):
            continue
        if not any(_twin(urls, each, octets) for each in numbers):
            marks[name] = numbers
    return marks


def _twin(urls: Urls, number: int, name: bytes) -> bool:
    return urls.find(urls.hosts[number], _unmarked(urls.targets[number], name)) is not None


def _unmarked(target: bytes, name: bytes) -> bytes:
    path, query = split(target)
    rest = [b"".join(part) for part in parameters(query) if part[0] != name]
    return path + b"?" + b"&".join(rest) if rest else path


def _without_mark(urls: Urls, name: str, bearers: set[int]) -> tuple[Urls, list[int]]:
    """The URLs that bear the mark, without it, and those of the same sizes; and their numbers in `urls`."""
    sizes = {urls.low[number] for number in bearers} - {UNKNOWN}
    bare, numbers = Urls(), list[int]()
    for number, target in enumerate(urls.targets):
        if number in bearers or urls.low[number] in sizes:
            spelled = _unmarked(target, name.encode()) if number in bearers else target
            if bare.take(urls, number, spelled) == len(numbers):
                numbers.append(number)
    return bare, numbers


def _is_of(rule: Substitution, numbers: Sequence[int], bearers: set[int]) -> bool:
    """The rule is about URLs with the mark."""
    borne = sum(numbers[one] in bearers or numbers[other] in bearers for one, other in rule.pairs)
    return borne >= 0.9 * len(rule.pairs)


def _with_wildcards(urls: Urls) -> Urls:
    """The URLs with sessions' identifiers abstracted; URLs of one abstraction that differ are left out."""
    if not any(abstracted(target) != target for target in urls.targets):
        return urls
    wild = Urls()
    for number, target in enumerate(urls.targets):
        wild.take(urls, number, abstracted(target))
    for number, target in enumerate(wild.targets):
        if b"*" in target and wild.high[number] > 1.01 * wild.low[number] + 64:
            wild.good[number] = 0
    return wild


def _contexts(candidate: Candidate) -> list[tuple[tuple[bytes, bytes], ...]]:
    """The envelopes in groups that have a word beside the middle in common, if there are any such."""
    before, after = _shared(candidate.envelopes)
    one_head = len({head for head, _ in candidate.envelopes}) == 1
    alone = (candidate.one + candidate.other).strip(b"/") == b"*"
    if not alone and (one_head or re.search(rb"[A-Za-z0-9]", before + after)):
        return [candidate.envelopes]
    groups: defaultdict[bytes, list[tuple[bytes, bytes]]] = defaultdict(list)
    wild = b"*" in candidate.one + candidate.other
    for head, tail in candidate.envelopes:
        beside = _TOKEN.findall(tail)[:2] if wild else _TOKEN.findall(head)[-2:]
        groups[b"".join(beside)].append((head, tail))
    large = [tuple(group) for group in groups.values() if len(group) >= _LEAST]
    covered = sum(map(len, large)) >= 0.6 * len(candidate.envelopes)
    return large if covered else [candidate.envelopes]


def _shared(envelopes: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    """The text that all stand behind, and the one they stand before, in whole tokens."""
    heads = [_TOKEN.findall(head)[::-1] for head, _ in envelopes]
    tails = [_TOKEN.findall(tail) for _, tail in envelopes]
    return b"".join(_prefix(heads)[::-1]), b"".join(_prefix(tails))


def _prefix(rows: Sequence[list[bytes]]) -> list[bytes]:
    """The beginning that all rows share."""
    least, most = min(rows), max(rows)
    length = next((at for at, token in enumerate(least) if token != most[at]), len(least))
    return least[:length]


def _tried(
    urls: Urls, settings: Settings, candidate: Candidate, group: Sequence[tuple[bytes, bytes]]
) -> list[Substitution]:
    """The ways to write the rule that the loader accepts beside the others, and the log confirms."""
    before, after = _shared(group)
    bare = b"" in {before + candidate.one, before + candidate.other}
    at = "anywhere"
    if len({head for head, _ in group}) == 1:
        at = "start"
    elif bare and all(tail[:1] in {b"", b"?"} for _, tail in group):
        at, after = "suffix", b""
    elif len({tail for _, tail in group}) == 1 and after == group[0][1]:
        at = "end"
    one, other = before + candidate.one + after, before + candidate.other + after
    rules = [*_ways(one, other, at), *_ways(other, one, at)]
    beside = {rule: replace(settings, rewrites=(*settings.rewrites, rule)) for rule in rules}
    tried = (_confirmed(urls, rule) for rule in rules if is_accepted(beside[rule]))
    return [rule for rule in tried if rule is not None]


def _ways(pattern: bytes, output: bytes, at: str) -> list[tuple[str, str, str]]:
    """The rule as a prefix or a suffix that is taken away, if it can be one, else as it is."""
    if not (pattern.isascii() and output.isascii()):
        return []
    if at == "start" and len(pattern) > len(output):
        # As many whole segments as both have at the end are needed for none to be cut.
        head, mate = pattern.decode(), output.decode()
        while not (head.endswith("/") and mate.endswith("/")) and head and mate and head[-1] == mate[-1]:
            head, mate = head[:-1], mate[:-1]
        if head.endswith("/") and mate.endswith("/"):
            return [(head, mate, "prefix")]
    if b"*" in pattern + output:
        return []
    rule = (pattern.decode(), output.decode(), at)
    # Where a query begins, the target's own is to go on.
    begins = b"?" in output and b"?" not in pattern and at != "end"
    return [(*rule[:2], "path"), rule] if begins else [rule]


def _confirmed(urls: Urls, rule: tuple[str, str, str]) -> Substitution | None:
    """The rule with all the pairs that the log has for it, if those support it."""
    pairs, applied = _applied(urls, rewriter([Rule(rule[0].encode(), rule[1].encode(), rule[2])]), rule)
    anywhere = rule[2] == "suffix" or (rule[2] == "anywhere" and not re.search(r"[A-Za-z0-9]", rule[0]))
    if len(pairs) < _LEAST or len(pairs) < (_COVERED_ANYWHERE if anywhere else _COVERED) * applied:
        return None
    weight = weigh(urls, pairs)
    sure = weight.confidence if weight.sized else unsized(len(pairs), _UNSIZED)
    if not weight.sized and len(pairs) < _COVERED_ANYWHERE * applied:
        return None
    if sure <= CONFIDENCE:
        return None
    name = f"{rule[0]} → {rule[1]} ({rule[2]})"
    return Substitution(name, len(pairs), sure, tuple(pairs[:50]), rule)


def _applied(
    urls: Urls, rewrite: Callable[[bytes], bytes], rule: tuple[str, str, str]
) -> tuple[list[tuple[int, int]], int]:
    """The pairs of the log that the rule makes one, and how many URLs it respells."""
    literal = rule[0].partition("*")[0].encode()
    pairs, applied = [], 0
    for number, target in enumerate(urls.targets):
        if literal not in target or not urls.good[number]:
            continue
        other = rewrite(target)
        if other != target:
            applied += 1
            mate = urls.find(urls.hosts[number], other)
            if mate is not None:
                pairs.append((number, mate))
    return pairs, applied


def _redundant(urls: Urls, settings: Settings, rule: Substitution) -> bool:
    """Most of its pairs are one already."""
    profile = loaded(settings)
    spelled = ([canonical_target(urls.targets[number], profile) for number in pair] for pair in rule.pairs)
    one = [mine == other for mine, other in spelled]
    return sum(one) >= 0.8 * len(one)
