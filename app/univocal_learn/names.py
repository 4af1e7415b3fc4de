"""The other name of a host, with "www." or without: which of the two redirects to the other?"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from univocal_learn.likeness import Reply
from univocal_learn.questions import Pair
from univocal_learn.verdicts import PAGES, TRIES, Evidence, Fetch, Finding, Judge, led_to, verdict_of

WWW: Final = "www"
"""The name of the question."""

_FAILURES: Final = 2
# The doubt that each page leaves where both names agree.
_DOUBT: Final = 0.15


def namesake(origin: str) -> str | None:
    """The origin with "www." before its host, or without it; None for an address and a name without a dot."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    bare = host.removeprefix("www.")
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        if "." not in bare.strip("."):
            return None
        port = f":{parts.port}" if parts.port is not None else ""
        return f"{parts.scheme}://{bare if bare != host else 'www.' + host}{port}"
    return None


def alias_of(finding: Finding, origin: str) -> tuple[str, str] | None:
    """The name that leads to the other, and that other; None where neither does."""
    other = namesake(origin)
    if finding.verdict != "same" or other is None:
        return None
    own, alias = (urlsplit(each).hostname or "" for each in (origin, other))
    away = any(each.canonical == each.pair.b for each in finding.evidence if each.verdict == "same")
    return (own, alias) if away else (alias, own)


def examine_names(judge: Judge, origin: str, fetch: Fetch, targets: Sequence[bytes]) -> Finding:
    """Ask for some pages under the other name of `origin` by `fetch`, and compare the answers."""
    other = namesake(origin)
    evidence: list[Evidence] = []
    failures = 0
    for target in targets[:TRIES] if other else ():
        answer = fetch(target, 0)
        compared = _compared(judge, origin, str(other), target, answer)
        if compared.verdict != "unknown" or not evidence:
            evidence.append(compared)
        failures += answer.failed
        if failures == _FAILURES or sum(each.verdict != "unknown" for each in evidence) == PAGES:
            break
    return Finding(WWW, *verdict_of(evidence), tuple(evidence))


def _compared(judge: Judge, origin: str, other: str, target: bytes, answer: Reply) -> Evidence:
    there = other.encode() + target
    pair = Pair(target, there, (), "", _DOUBT)
    found = partial(Evidence, pair)
    own = judge.answer(target)
    if own.redirects and _leads(own, origin, other, target):
        return found("same", f"{own.status} to it", there)
    if answer.failed:
        return found("unknown", f"status {answer.status}" if answer.status else "no answer")
    if answer.redirects and _leads(answer, other, origin, target):
        return found("same", f"{answer.status} from it", target)
    if judge.page(target).dumb:
        return found("unknown", f"the page decides nothing: {judge.page(target).dumb}")
    if answer.status == 200 and judge.fits(target, answer):
        return found("same", "the same content")
    return found("different", "other content" if answer.status == 200 else f"status {answer.status}")


def _leads(answer: Reply, here: str, there: str, target: bytes) -> bool:
    """The answer of the origin `here` redirects to `target` on the origin `there`, under either scheme."""
    rest = there.partition("://")[2]
    origins = (f"{scheme}://{rest}" for scheme in ("http", "https"))
    is_away = led_to(here, answer, target) is None
    return is_away and any(led_to(origin, answer, target) == target for origin in origins)
