"""Substring rules: what one pattern of a target is to be replaced with, where no rule can undo another.

A rule set is accepted only if no output can become part of what a pattern matches. Then one pass leaves no
match behind, and a rewritten target stays as it is. The rules of prefixes and suffixes alone may match what
they made: they take something away each time, so they come to rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Rule:
    """Every `pattern` in a target becomes `output`; at "start" or "end", only one that stands there.

    - "prefix": the segments that a path begins with become the fewer ones of `output`, as often as they stand
      there. A "*" in the pattern is one segment, or a part of one, that looks like a session's identifier.
    - "suffix": the pattern is removed from a path's end, as often as it stands there behind a name; the
      output is empty.
    - "path": the pattern may stand anywhere in a path.

    At "path" and "start" a target's query is appended to the query that the output begins.
    """

    pattern: bytes
    output: bytes
    at: str = "anywhere"


def first_overlap(rules: Sequence[Rule]) -> tuple[Rule, Rule] | None:
    """A rule whose output could become part of a match, and the rule that would match it."""
    return next(
        (
            (one, other)
            for one in rules
            if one.at not in {"prefix", "suffix"}
            for other in rules
            if not (_cuts(one) and other.at != "end")
            and (
                any(_overlap(_changed(one), literal) for literal in _literals(other))
                if other.at in {"prefix", "suffix"}
                else _overlap(one, other)
            )
        ),
        None,
    )


def _cuts(rule: Rule) -> bool:
    """The rule takes from a target's end alone: what is left was there before."""
    return rule.at == "end" and rule.pattern.startswith(rule.output)


def _changed(rule: Rule) -> Rule:
    """The rule without what its pattern and its output begin and end with alike, which stays in its place."""
    pattern, output = rule.pattern, rule.output
    while pattern and len(output) > 1 and pattern[0] == output[0]:
        pattern, output = pattern[1:], output[1:]
    while pattern and len(output) > 1 and pattern[-1] == output[-1]:
        pattern, output = pattern[:-1], output[:-1]
    return Rule(pattern, output)


def _literals(matcher: Rule) -> list[Rule]:
    """The parts before and after the wildcard of a prefix, or a suffix, which a query may follow."""
    if matcher.at == "suffix":
        return [Rule(matcher.pattern, b"")]
    head, wildcard, tail = matcher.pattern.partition(b"*")
    return [Rule(head, b"", "start"), *([Rule(tail, b"")] if wildcard else [])]


def _overlap(writer: Rule, matcher: Rule) -> bool:
    """`writer`'s output and a match of `matcher` can share bytes, where anchors let them stand."""
    output, pattern = writer.output, matcher.pattern
    for offset in range(1 - len(pattern), len(output)):
        after = offset + len(pattern)
        if (writer.at == "start" and offset < 0) or (matcher.at == "start" and offset > 0):
            continue
        if (writer.at == "end" and after > len(output)) or (matcher.at == "end" and after < len(output)):
            continue
        low, high = max(0, offset), min(len(output), after)
        if output[low:high] == pattern[low - offset : high - offset]:
            return True
    return False


Rewrite: TypeAlias = Callable[[bytes], bytes]


def rewriter(rules: Sequence[Rule]) -> Rewrite:
    """All `rules`, each tried once, in order."""
    substitutions = [(_pattern(rule), rule) for rule in rules]

    def rewrite(target: bytes) -> bytes:
        for pattern, rule in substitutions:
            if rule.at == "prefix":
                while (match := pattern.match(target)) is not None:
                    target = rule.output + target[match.end() :]
            elif rule.at == "suffix":
                target = _without_suffix(rule.pattern, target)
            elif rule.pattern in target:
                target = _substituted(pattern, rule, target)
        return target

    return rewrite


def _without_suffix(suffix: bytes, target: bytes) -> bytes:
    path, mark, query = target.partition(b"?")
    while path.endswith(suffix):
        rest = path.removesuffix(suffix)
        if not rest[rest.rfind(b"/") + 1 :].strip(b"."):
            break  # no name is left, and dots alone would mean something else
        path = rest
    return path + mark + query


def _substituted(pattern: re.Pattern[bytes], rule: Rule, target: bytes) -> bytes:
    """`target` with the outputs in place."""

    def put(match: re.Match[bytes]) -> bytes:
        return rule.output if match[1] else match[0]

    begins_query = b"?" in rule.output and b"?" not in rule.pattern
    if rule.at not in {"path", "start"} or not begins_query:
        return pattern.sub(put, target)
    path, _, query = target.partition(b"?")
    put_in = pattern.sub(put, path)
    if put_in == path:
        return target
    return put_in + b"&" + query if query else put_in


# One segment, or a part of one, that a person would not have chosen.
_WILDCARD: Final = rb"[A-Za-z0-9_-]{16,}+"


def _pattern(rule: Rule) -> re.Pattern[bytes]:
    """Matches `rule`'s pattern as group 1, or an escape, so that no match begins within one."""
    if rule.at == "prefix":
        return re.compile(_WILDCARD.join(map(re.escape, rule.pattern.split(b"*"))))
    anchors = {"start": b"\\A(%b)", "end": b"(%b)\\Z"}
    anchored = anchors.get(rule.at, b"(%b)") % re.escape(rule.pattern)
    return re.compile(anchored + rb"|%[0-9A-Fa-f]{2}")
