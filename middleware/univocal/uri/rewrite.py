"""Substring rules: what one pattern of a target is to be replaced with, where no rule can undo another.

A rule set is accepted only if no output can become part of what a pattern matches. Then one pass leaves no
match behind, and a rewritten target stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Rule", "first_overlap", "rewriter"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Every `pattern` in a target becomes `output`; at "start" or "end", only one that stands there."""

    pattern: bytes
    output: bytes
    at: str = "anywhere"


def first_overlap(rules: Sequence[Rule]) -> tuple[Rule, Rule] | None:
    """A rule whose output could become part of a match, and the rule that would match it."""
    return next(((one, other) for one in rules for other in rules if _overlap(one, other)), None)


def _overlap(writer: Rule, matcher: Rule) -> bool:
    """`writer`'s output and a match of `matcher` can share octets, where anchors let them stand."""
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
            if rule.pattern in target:
                target = pattern.sub(lambda found, rule=rule: rule.output if found[1] else found[0], target)  # type: ignore[misc]
        return target

    return rewrite


def _pattern(rule: Rule) -> re.Pattern[bytes]:
    """Matches `rule`'s pattern as group 1, or an escape, so that no match begins within one."""
    anchored = {"anywhere": b"(%b)", "start": b"\\A(%b)", "end": b"(%b)\\Z"}[rule.at] % re.escape(
        rule.pattern
    )
    return re.compile(anchored + rb"|%[0-9A-Fa-f]{2}")
