"""A run of probe: which pages are asked what, in which order, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from univocal.uri.profile import Profile
from univocal.uri.query import split
from univocal_app.terminal import printable
from univocal_learn.names import WWW, examine_names
from univocal_learn.questions import CUSTOMIZABLE, Pair, ProfileQuestion, invented, names_of, questions, risks
from univocal_learn.sample import varied
from univocal_learn.verdicts import PAGES, TRIES, Evidence, Fetch, Finding, Judge, concluded, examine
from univocal_learn.written import Settings, circles, loaded, settings_of, spelled, written

# Pages out of the sample that are met at first, to see what the origin does with unknown names.
_MET: Final = 6
_REDIRECTS: Final = 3

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """A run's findings."""

    origin: str
    requests: int
    findings: tuple[Finding, ...]
    risks: tuple[Finding, ...]
    sample: tuple[bytes, ...]

    @property
    def decided(self) -> bool:
        """Something could be decided."""
        return any(finding.verdict != "unknown" for finding in self.findings)

    @property
    def _by_name(self) -> dict[str, Finding]:
        return {finding.name: finding for finding in self.findings}

    @property
    def settings(self) -> Settings:
        """The settings of the learned profile."""
        return settings_of(self._by_name)

    @property
    def profile(self) -> str:
        """The profile as a file."""
        return written(self._by_name, self.origin, self.requests)

    def gains(self) -> tuple[int, int, int]:
        """The number of targets in the sample, of keys by RFC 3986 alone, and by the learned profile."""
        plain = loaded(Settings(dot_segments="rfc3986", refused=("control-character",)))
        return len(self.sample), _keys(self.sample, plain), _keys(self.sample, loaded(self.settings))

    def as_json(self) -> str:
        """The object that `probe --json` prints."""
        document: dict[str, Any] = {
            "origin": self.origin,
            "requests": self.requests,
            "questions": [
                {
                    "question": finding.name,
                    "verdict": finding.verdict,
                    "pairs": len(finding.evidence),
                    "confidence": round(finding.confidence, 4),
                    "evidence": [_told(each) for each in finding.evidence],
                }
                for finding in self.findings
            ],
            "risks": [
                {"risk": risk.name, "evidence": [_told(each) for each in risk.evidence]}
                for risk in self.risks
            ],
            "profile": self.profile,
        }
        return json.dumps(document, ensure_ascii=False, indent=2)


def _told(evidence: Evidence) -> dict[str, str]:
    return {
        "a": printable(evidence.pair.a),
        "b": printable(evidence.pair.b),
        "verdict": evidence.verdict,
        "why": evidence.why,
    }


def _keys(targets: Iterable[bytes], profile: Profile) -> int:
    return len({spelled(target, profile) for target in targets})


@dataclass(frozen=True)
class ProbePlan:
    """The pairs that would be asked, by question: what `--dry-run` shows."""

    origin: str
    pairs: dict[str, list[Pair]]

    def as_json(self) -> str:
        """The form of a report in which nothing has been asked."""
        questions = [
            {
                "question": name,
                "verdict": "unknown",
                "pairs": len(pairs),
                "evidence": [_told(Evidence(pair, "unknown", "not asked")) for pair in pairs],
            }
            for name, pairs in self.pairs.items()
        ]
        document = {"origin": self.origin, "requests": 0, "questions": questions, "risks": [], "profile": ""}
        return json.dumps(document, ensure_ascii=False, indent=2)


def plan(origin: str, sample: Sequence[bytes]) -> ProbePlan:
    """The plan of a run, as far as it is known before the first answer."""
    ordered = varied(sample)
    pairs: dict[str, list[Pair]] = {}
    for question in [*questions(sample), *risks()]:
        offered = [page_pairs for target in ordered if (page_pairs := question.pairs(target))][:PAGES]
        pairs[question.name] = [pair for page_pairs in offered for pair in page_pairs]
    return ProbePlan(origin, pairs)


def probe(
    origin: str,
    sample: Sequence[bytes],
    fetch: Fetch,
    count: Callable[[], int],
    tell: Tell,
    namesake: Fetch | None = None,
) -> Report:
    """Ask every question; `tell` hears of each that is answered, `asked` counts the requests so far.

    `namesake` asks the same server under the host's other name, with "www." or without.
    """
    varying = varied(sample)
    judge = Judge(fetch, origin, varying)
    ordered = _followed(varying, fetch, judge)
    ordered += _offered(ordered, judge)
    findings: dict[str, Finding] = {}
    for question in questions(sample):
        finding = _answered(question, judge, ordered, findings)
        findings[question.name] = finding
        tell(f"{finding.name}: {finding.verdict}")
    if namesake is not None:
        findings[WWW] = examine_names(judge, origin, namesake, varying)
        tell(f"{WWW}: {findings[WWW].verdict}")
    alarms = []
    for question in risks():
        finding = examine(judge, question, ordered)
        seen = finding.verdict != "unknown" and _seen(finding)
        tell(f"risk {finding.name}: {'seen' if seen else 'not seen'}")
        if _seen(finding):
            alarms.append(finding)
    foreign = (findings[name] for name in ("escape-case", "unreserved"))
    alarms += [finding for finding in foreign if finding.verdict == "different"]
    return Report(origin, count(), tuple(findings.values()), tuple(alarms), tuple(sample))


def _seen(finding: Finding) -> bool:
    return any(each.verdict == "same" and each.canonical is None for each in finding.evidence)


def _answered(
    question: ProfileQuestion, judge: Judge, ordered: Sequence[bytes], findings: dict[str, Finding]
) -> Finding:
    if question.name == "escape-case" and findings["unreserved"].verdict != "same":
        # Escapes of letters tell nothing where those are not read as the letters.
        ordered = [target for target in ordered if not any(p.part == "both" for p in question.pairs(target))]
    if name := question.parameter:
        ordered = sorted(ordered, key=lambda target: name not in names_of([target]))
    finding = examine(judge, question, ordered)
    if question.name in {"unreserved", "escape-case"}:
        # No profile tells these apart: what is sent would be redirected for ever.
        evidence = [_away(each) if circles(each) else each for each in finding.evidence]
        finding = concluded(question, evidence)
    if question.name == "dot-segments" and finding.verdict == "same":
        trailing = _trailing(judge, ordered)
        if any(each.verdict == "different" for each in trailing):
            # The evidence that decided is shown first.
            return Finding(question.name, "different", finding.confidence, (*trailing, *finding.evidence))
        return concluded(question, [*finding.evidence, *trailing])
    return finding


def _away(evidence: Evidence) -> Evidence:
    """A redirect from the canonical spelling, taken for what it is."""
    return replace(evidence, verdict="different", why=f"{evidence.why}, away from the canonical spelling")


def _followed(ordered: Sequence[bytes], fetch: Fetch, judge: Judge) -> list[bytes]:
    """The first targets with what they are redirected to in their place; a sample may have old URLs."""
    followed = []
    for number, target in enumerate(ordered):
        here = target
        for _ in range(_REDIRECTS if number < 3 * _MET else 0):
            there = judge.leads_to(fetch(here, 0), here)
            if there is None or there == here:
                break
            here = there
        followed.append(here)
    return list(dict.fromkeys(followed))


def _offered(ordered: Sequence[bytes], judge: Judge) -> list[bytes]:
    """Targets with bytes that the sample lacks, where the origin has a page for any name."""
    lacking = [
        octet
        for octet in CUSTOMIZABLE
        if not any(octet in path or b"%%%02X" % octet in path.upper() for path, _ in map(split, ordered))
    ]
    places = [target for target in ordered[:_MET] if judge.page(target).open]
    made = []
    for target in places[:2]:
        path, query = split(target)
        directory = path[: path.rstrip(b"/").rfind(b"/") + 1] or b"/"
        word = invented(path)
        made += [directory + word + b"%cx" % octet + query for octet in lacking]
        made.append(directory + word + b"%C3%A9" + query)
        made.append(directory + word + b"/x" + query)
    return made


def _trailing(judge: Judge, ordered: Sequence[bytes]) -> list[Evidence]:
    """A ".." at the end leaves the slash before it, as in RFC 3986, or none, as in servlets."""
    evidence: list[Evidence] = []
    tried = 0
    for target in ordered:
        path, query = split(target)
        if path == b"/" or tried >= TRIES or len(evidence) >= PAGES:
            continue
        tried += 1
        if judge.page(target).dumb:
            continue
        one = _trailing_of(judge, path, query)
        if one is not None:
            evidence.append(one)
    if not evidence and (root := next((t for t in ordered if t.startswith((b"/?",)) or t == b"/"), None)):
        query = split(root)[1]
        past = b"/" + invented(root) + b"/.."
        answer = judge.ask(Pair(root, past + query, (past[:-3] + query,), "trailing"))
        evidence = [Evidence(answer.pair, "same", "rfc3986")] if answer.verdict == "same" else []
    return evidence


def _trailing_of(judge: Judge, path: bytes, query: bytes) -> Evidence | None:
    bare, word = path.rstrip(b"/"), invented(path)
    past = bare + b"/" + word + b"/.." + query
    decoys = (bare + b"/" + word + query,)
    with_slash, without = bare + b"/" + query, bare + query
    own = path + query
    other = with_slash if own == without else without
    mine = judge.ask(Pair(own, past, decoys, "trailing"))
    if mine.verdict == "unknown":
        return None
    alike = judge.ask(Pair(own, other, (), "trailing"))
    pair = Pair(with_slash, past, (), "trailing")
    if alike.verdict == "unknown" and mine.verdict == "same":
        return None
    if alike.verdict == "same" and alike.canonical is None:
        return Evidence(pair, mine.verdict, "either" if mine.verdict == "same" else mine.why)
    if mine.verdict == "same":
        way = "rfc3986" if own == with_slash else "servlet"
        if mine.canonical is not None and alike.canonical is not None:
            # A redirect to the page: the ".." led to its other spelling, which is redirected, too.
            way = "servlet" if own == with_slash else "rfc3986"
        return Evidence(Pair(own, past, (), "trailing"), "same", way)
    return _elsewhere(judge, pair, own == without, without, past)


def _meet(judge: Judge, one: bytes | None, other: bytes | None) -> bool:
    """Two redirects lead to one page, though the second may write the dot segments that it was asked with."""
    if one is None or other is None:
        return one is other
    return one == other or (not judge.page(one).dumb and judge.fits(one, judge.answer(other)))


def _elsewhere(
    judge: Judge, pair: Pair, slash_is_other: bool, without: bytes, past: bytes
) -> Evidence | None:
    """The ".." did not lead to the page: does it lead to where the other reading says?"""
    other = pair.a if slash_is_other else without
    way = "rfc3986" if slash_is_other else "servlet"
    if not judge.page(other).dumb:
        answer = judge.ask(Pair(other, past, (), "trailing"))
        return Evidence(answer.pair, answer.verdict, way if answer.verdict == "same" else answer.why)
    one, two = judge.answer(other), judge.answer(past)
    if one.failed or two.failed:
        return None
    there = judge.leads_to(one, other), judge.leads_to(two, past)
    pair = Pair(other, past, (), "trailing")
    if one.status == two.status != 200 and _meet(judge, *there):
        return Evidence(pair, "same", way)
    return Evidence(pair, "different", "elsewhere")
