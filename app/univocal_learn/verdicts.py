"""From answers to verdicts: what one pair of spellings shows, and what all pairs of a question do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Final, Literal, TypeAlias
from urllib.parse import urljoin, urlsplit

from univocal.uri.query import split
from univocal_learn.likeness import CommonWords, Reply, steady_fields, told_apart, without_echo, words
from univocal_learn.questions import Pair, ProfileQuestion, siblings

Verdict: TypeAlias = Literal["same", "different", "unknown"]
Fetch: TypeAlias = Callable[[bytes, int], Reply]
"""fetch(target, n) is the answer to the n-th request for a target, n from 0; asked twice, it is the same."""

CONFIDENCE: Final = 0.95
"""Nothing that is no surer than this becomes a rule."""

# Words that a page has besides its own target before its repeating that is taken for a remark in passing.
_SUBSTANTIAL: Final = 20
# How often a page is looked at again before another content counts as another page.
_LOOKS: Final = 4
# Other pages that are looked at, out of the first so many of the sample, until one is told from the page.
_OTHERS: Final = 4
_SEARCHED: Final = 500
# Sections of which each is asked, and targets that are looked through for them.
_SECTIONS: Final = 16
_LOOKED_THROUGH: Final = 2000
PAGES: Final = 3
TRIES: Final = 10
"""Pages that one question is asked of at most, and pages that are tried for it."""
# Pages that a question is asked of where it depends on the page.
_MANY: Final = 16
# Redirects that are followed from a spelling.
_REDIRECTS: Final = 3
_ALIKE: Final = "the same content"
_UNSPEAKABLE: Final = re.compile(rb"[^!-~]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One pair showed this; `canonical` is the spelling that the origin redirects the other one to."""

    pair: Pair
    verdict: Verdict
    why: str
    canonical: bytes | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer, and how it came about."""

    name: str
    verdict: Verdict
    confidence: float
    evidence: tuple[Evidence, ...] = ()

    def of(self, part: str) -> list[Evidence]:
        """The evidence of one part of the question."""
        return [each for each in self.evidence if each.pair.part == part]


@dataclass(slots=True)
class Page:
    """A target that was asked for twice: what stays of its answer, and why it decides nothing, if so."""

    target: bytes
    answers: list[Reply] = field(default_factory=list)
    template: CommonWords = field(default_factory=lambda: CommonWords(()))
    steady: dict[bytes, bytes] = field(default_factory=dict)
    dumb: str = ""
    open: bool = False  # any name beside it has a page of its own
    confronted: int = 0  # answers that had been taken in when it was last confronted with other pages

    def learn(self, answer: Reply) -> None:
        """Take in one more answer to the same request."""
        content = words(answer)
        self.template = self.template.widened(content) if self.answers else CommonWords.of(content)
        self.answers.append(answer)
        self.steady = steady_fields(self.answers)


def confidence(evidence: Iterable[Evidence]) -> float:
    """The certainty of "same": each pair leaves its doubt of what was left."""
    return 1 - prod(each.pair.doubt for each in evidence if each.verdict == "same")


def verdict_of(evidence: Sequence[Evidence]) -> tuple[Verdict, float]:
    """The pairs' verdict together: one that differs decides, and so do enough that do not."""
    if any(each.verdict == "different" for each in evidence):
        return "different", CONFIDENCE + 0.04
    sure = confidence(evidence)
    return ("same" if sure > CONFIDENCE else "unknown"), sure


class Judge:
    """Asks for pairs by `fetch` and judges the answers; it remembers every page that it has met.

    `others` are targets of the same origin: a page must not be taken for another one.
    """

    def __init__(self, fetch: Fetch, origin: str, others: Sequence[bytes] = ()) -> None:
        self._fetch = fetch
        self._origin = origin  # scheme and authority
        self._others = others
        self._pages: dict[bytes, Page] = {}
        self._again = Counter[bytes]()  # how often nonsense was asked for again

    def page(self, target: bytes) -> Page:
        """The target's page, asked for twice, with two nonsensical neighbours."""
        if target not in self._pages:
            self._pages[target] = self._met(target)
        return self._pages[target]

    def _met(self, target: bytes) -> Page:
        page = Page(target)
        for time in (0, 1):
            answer = self._fetch(target, time)
            if answer.status != 200:
                elsewhere = answer.redirects and self.leads_to(answer, target) is None
                page.dumb = "no answer" if answer.failed else f"status {answer.status}"
                page.dumb += " to another origin or scheme" if elsewhere else ""
                return page
            page.learn(answer)
        if not page.template.words and any(each.body for each in page.answers):
            page.dumb = "nothing of it stays"
        else:
            self._confront(page)
        page.confronted = 0 if page.template.gaping else len(page.answers)
        if not page.dumb and self._like_others(page):
            page.dumb = "other pages look alike"
        return page

    def _like_others(self, page: Page) -> bool:
        """Of the pages that are met beside it none can be told from it."""
        directory, name = _named(page.target)
        others = [target for target in self._others[:_SEARCHED] if target != page.target]

        def farness(target: bytes) -> tuple[bool, bool]:
            beside, called = _named(target)
            return called == name, beside != directory  # first those that are others surely, and look like it

        others.sort(key=farness)
        met = alike = 0
        for target in others[:_OTHERS]:
            answer = self._fetch(target, 0)
            met += answer.status == 200
            alike += self._fits(page, answer)
            if alike < met:
                return False
        return alike > 0

    def _confront(self, page: Page) -> None:
        """Find out whether the page can be told from what the origin answers to nonsense."""
        one, other = siblings(page.target)
        nonsense, again = self._fetch(one, 0), self._fetch(other, 0)
        if nonsense.failed or again.failed:
            page.dumb = "no answer to nonsense"
        elif self._arrived(page, nonsense, one) == page.target:
            page.dumb = "nonsense is redirected to it"
        elif nonsense.status == 200:
            if self._fits(page, nonsense):
                page.dumb = "it answers for nonsense, too"
            elif _same_but_for_echo(page.answers, page.target, nonsense, one):
                page.open = True
            elif _same_but_for_echo([nonsense, self._fetch(one, 1)], one, again, other):
                page.dumb = "nonsense is answered 200 with one page"
            else:
                page.open = True
        elif nonsense.status < 400 and not nonsense.redirects:
            page.dumb = f"nonsense is answered {nonsense.status}"

    @staticmethod
    def _fits(page: Page, answer: Reply) -> bool:
        return answer.status == 200 and page.template.fits(words(answer))

    def fits(self, target: bytes, answer: Reply) -> bool:
        """The answer is the target's page."""
        return self._fits(self.page(target), answer)

    def answer(self, target: bytes) -> Reply:
        """The first answer to a target."""
        return self._fetch(target, 0)

    def leads_to(self, answer: Reply, target: bytes) -> bytes | None:
        """The target that a redirect names on the same origin."""
        return led_to(self._origin, answer, target)

    def between(self, one: bytes, other: bytes) -> Verdict:
        """The verdict on two targets, either of which may be the page."""
        if self.page(other).dumb:
            one, other = other, one
        return self.ask(Pair(other, one)).verdict

    def ask(self, pair: Pair) -> Evidence:
        """The evidence of one pair: both spellings are asked for and compared."""
        page = self.page(pair.a)
        if page.dumb:
            return Evidence(pair, "unknown", f"the page decides nothing: {page.dumb}")
        if reason := self._ignored(page, pair):
            return Evidence(pair, "unknown", reason)
        evidence = self._looked(page, pair)
        if evidence.verdict == "same" and self._frays(page):
            page.dumb = "too little of it stays"
            return Evidence(pair, "unknown", f"the page decides nothing: {page.dumb}")
        return evidence

    def _looked(self, page: Page, pair: Pair) -> Evidence:
        """The comparison of both, as often as it takes to tell noise from difference."""
        answers = [self._fetch(pair.b, 0)]
        evidence = self._compare(page, pair, answers[0])
        for time in range(1, _LOOKS):
            if evidence.verdict != "different":
                return evidence
            # The page may have changed meanwhile, or what is noise in it has not all been seen yet; and an
            # origin fails now and then.
            control = self._fetch(pair.a, len(page.answers))
            if control.status != 200:
                return Evidence(pair, "unknown", "the page itself came differently")
            page.learn(control)
            if time == 1:
                answers.append(self._fetch(pair.b, 1))
            verdicts = [self._compare(page, pair, answer) for answer in answers]
            evidence = next((each for each in verdicts if each.verdict != verdicts[0].verdict), verdicts[0])
            if evidence is not verdicts[0]:
                return Evidence(pair, "unknown", "it differed once")
            if answers[-1].status != 200:
                break
        return evidence

    def _frays(self, page: Page) -> bool:
        """Tell whether what still stays after more looks at the page fits nonsense or other pages as well.

        Nonsense is asked again: by now the origin may answer one thing for everything, to a client that has
        asked too often.
        """
        if page.confronted == len(page.answers):
            return False
        page.confronted = len(page.answers)
        beside = siblings(page.target)[0]
        self._again[beside] += 1
        nonsense = self._fetch(beside, 1 + self._again[beside])
        return nonsense.failed or self._fits(page, nonsense) or self._like_others(page)

    def _ignored(self, page: Page, pair: Pair) -> str:
        """Why the pair decides nothing: the origin minds the place as little in a decoy."""
        for decoy in pair.decoys:
            answer = self._fetch(decoy, 0)
            if answer.failed:
                return "no answer to a decoy"
            if self._fits(page, answer) or self._arrived(page, answer, decoy) == page.target:
                return "the page answers for anything in that place"
        return ""

    def _arrived(self, page: Page, answer: Reply, target: bytes) -> bytes | None:
        """Where redirects lead from `target`, one after the other, as far as to the page."""
        there = self.leads_to(answer, target)
        for _ in range(_REDIRECTS):
            if there in {None, target, page.target}:
                break
            further = self.leads_to(self._fetch(there, 0), there)
            if further is None:
                break
            there = further
        return there

    def _compare(self, page: Page, pair: Pair, answer: Reply) -> Evidence:
        if answer.failed:
            return Evidence(pair, "unknown", f"status {answer.status}" if answer.status else "no answer")
        if answer.redirects:
            target = self._arrived(page, answer, pair.b)
            if target == page.target:
                return Evidence(pair, "same", f"{answer.status} to it", canonical=pair.a)
            if target == pair.b or target is None:
                return Evidence(pair, "unknown", f"{answer.status} to another origin or scheme")
            return Evidence(pair, "different", f"{answer.status} to another URL")
        if answer.status != 200:
            remark = "refused" if answer.status >= 400 else "answered otherwise"
            return Evidence(pair, "different", f"{remark}: status {answer.status}")
        if self._fits(page, answer):
            field_name, weak = told_apart(page.steady, answer)
            if not field_name:
                return Evidence(pair, "same", _ALIKE)
            return Evidence(pair, "unknown" if weak else "different", f"another {field_name}")
        return self._unlike(page, pair, answer)

    def _unlike(self, page: Page, pair: Pair, answer: Reply) -> Evidence:
        echoed = Reply(answer.status, answer.fields, answer.body.replace(pair.b, pair.a))
        if self._fits(page, echoed) and page.template.words >= _SUBSTANTIAL:
            return Evidence(pair, "unknown", "the page repeats its own target as it came")
        return Evidence(pair, "different", "other content")


def _named(target: bytes) -> tuple[bytes, bytes]:
    """The directory of a target, and its last name."""
    directory, _, name = split(target)[0].rstrip(b"/").rpartition(b"/")
    return directory, name


def led_to(origin: str, answer: Reply, target: bytes) -> bytes | None:
    """The target on `origin` that the answer to `target` redirects to, as clients ask for it; or None.

    It is spelled as in the Location field; what no URL may hold is encoded, as browsers do.
    """
    if not answer.redirects:
        return None
    location = answer.value(b"location").strip().partition(b"#")[0]
    location = _UNSPEAKABLE.sub(lambda octet: b"%%%02X" % ord(octet[0]), location)
    if location.startswith(b"/") and not location.startswith(b"//"):
        return location
    text = location.decode()
    if not _SCHEME.match(text):
        text = urljoin(origin + target.decode("latin-1"), text)
    scheme, authority = urlsplit(text)[:2]
    own = urlsplit(origin)
    if (scheme.lower(), _authority(scheme, authority)) != (own.scheme, _authority(own.scheme, own.netloc)):
        return None
    rest = text.partition("://")[2][len(authority) :]
    return (rest if rest.startswith("/") else "/" + rest).encode()


def _authority(scheme: str, authority: str) -> str:
    """An authority in lower case, without its scheme's default port."""
    return authority.lower().removesuffix({"http": ":80", "https": ":443"}.get(scheme.lower(), ":"))


def _same_but_for_echo(answers: Sequence[Reply], target: bytes, other: Reply, at: bytes) -> bool:
    """Another answer is the same page, but for what both repeat of their targets."""
    template = CommonWords.of(without_echo(words(answers[0]), target))
    for answer in answers[1:]:
        template = template.widened(without_echo(words(answer), target))
    return other.status == 200 and template.fits(without_echo(words(other), at))


def examine(judge: Judge, question: ProfileQuestion, targets: Iterable[bytes]) -> Finding:
    """Ask one question of at most PAGES targets that offer it and decide something, and of every section.

    An origin server may have another program behind each section. A question that depends on the page, as a
    parameter does that few pages heed, is asked of many, until one differs.
    """
    most, tries = (_MANY, 3 * _MANY) if question.parameter else (PAGES, TRIES)
    evidence: list[Evidence] = []
    used = 0
    tried = Counter[object]()
    heard = set[object]()
    for target in islice(targets, _LOOKED_THROUGH):
        section = question.section(target)
        new = section not in heard and tried[section] < most and len(heard) < _SECTIONS
        if not new and (used >= most or tried.total() >= tries):
            continue
        pairs = question.pairs(target)
        if not pairs:
            continue
        tried[section] += 1
        answers = [judge.ask(pair) for pair in pairs]
        evidence += answers
        if any(each.verdict != "unknown" for each in answers):
            used += 1
            heard.add(section)
        if tried.total() >= 3 * tries or (question.parameter and verdict_of(answers)[0] == "different"):
            break
    return concluded(question, evidence)


def concluded(question: ProfileQuestion, evidence: Sequence[Evidence]) -> Finding:
    """The answer to a question from all that was found."""
    counted = [each for each in evidence if each.pair.part not in question.aside]
    if question.by_part:
        parts = dict.fromkeys(each.pair.part for each in counted)
        each_verdict = [verdict_of([each for each in counted if each.pair.part == part]) for part in parts]
        order = ("same", "different", "unknown")
        verdict, sure = min(each_verdict, key=lambda one: order.index(one[0]), default=("unknown", 0.0))
    else:
        verdict, sure = verdict_of(counted)
    if verdict == "same" and question.needed and not any(e.pair.part == question.needed for e in counted):
        verdict = "unknown"
    return Finding(question.name, verdict, sure, tuple(evidence))
