"""Our rules of style, as checks of proselint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from proselint.registry.checks import Check, CheckResult
from proselint.registry.checks.types import PreferredForms

LONGEST: Final = 25  # words of a sentence

_SENTENCE: Final = re.compile(r"[^\s.!?:·][^.!?:·]*(?:[.!?:](?!\s|$)[^.!?:·]*)*[.!?:]?", re.DOTALL)
_WORD: Final = re.compile(r"\w[\w'’/.,-]*")
_TITLES: Final = ("What a guard can know",)  # of chapters: no sentences
_CLAUSE: Final = re.compile(r"(?:What(?:ever)?|Who(?:ever|se|m)?|That which|Those who)\b")


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    for match in _SENTENCE.finditer(text):
        yield match.start(), match[0]


def _long(text: str, check: Check) -> Iterator[CheckResult]:
    for start, sentence in _sentences(text):
        count = len(_WORD.findall(sentence))
        if count > LONGEST:
            yield CheckResult(check.path, check.message.format(count), (start, start + len(sentence)), None)


def _clause_first(text: str, check: Check) -> Iterator[CheckResult]:
    for start, sentence in _sentences(text):
        clause = _CLAUSE.match(sentence)
        if clause and not sentence.endswith("?") and not sentence.startswith(_TITLES):
            yield CheckResult(
                check.path, check.message.format(clause[0]), (start, start + clause.end()), None
            )


SENTENCES: Final = (
    Check(_long, path="univocal.long", message=f"a sentence of {{}} words; {LONGEST} are allowed"),
    Check(
        _clause_first,
        path="univocal.clause",
        message="'{}' begins the sentence with a clause as its subject; name the thing",
    ),
    Check(
        PreferredForms({"takes? note (?:of|that)": "record"}),
        path="univocal.record",
        message="write '{}' for '{}'",
    ),
)

# No page but docs/architecture.md, which defines them, uses terms that we coined.
COINED: Final = (
    Check(
        PreferredForms(
            {
                "decoder rings?": "percent-encoding table",
                "the rings?": "the percent-encoding table",
                "speaks? for": "supports",
                "who(?:ever)? asks": "the client",
                "octets?": "byte",
                "one spelling that its origin server means": "canonical URL",
            }
        ),
        path="univocal.coined",
        message="write '{}' for '{}'",
    ),
)

# Of proselint's own checks these fit technical prose.
GENERAL: Final = {
    "archaism": True,
    "cliches": True,
    "corporate_speak": True,
    "lexical_illusions": True,
    "malapropisms": True,
    "mixed_metaphors": True,
    "oxymorons": True,
    "redundancy": True,
    "spelling": True,
    "weasel_words": True,
    "univocal": True,
}
