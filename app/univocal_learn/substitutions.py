"""From candidates to rules: in which context they hold, how they are written, whether the log agrees."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from univocal.uri.query import split
from univocal.uri.rewrite import Rule, rewriter
from univocal.uri.target import canonical_target
from univocal_learn.corpus import UNKNOWN, Urls
from univocal_learn.envelopes import Candidate, abstracted, candidates
from univocal_learn.forms import Seen, chooses, unsized
from univocal_learn.questions import parameters
from univocal_learn.verdicts import CONFIDENCE
from univocal_learn.weight import weigh
from univocal_learn.written import Settings, is_accepted, loaded, parameter_name

_TOKEN: Final = re.compile(rb"[A-Za-z0-9]+|%[0-9A-F]{2}|[^A-Za-z0-9]")
_MOST: Final = 150  # candidates that are looked at
_LEAST: Final = 3
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
