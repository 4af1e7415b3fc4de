"""The findings in plain words: tables, a chart and a verdict for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from univocal_app.terminal import printable, table
from univocal_learn.discover import Discovery
from univocal_learn.forms import Seen
from univocal_learn.replaying import Replayed

_WIDTH = 50


def _bar(share: float) -> str:
    """A share, 0 to 1, as a bar."""
    filled = round(share * _WIDTH)
    return "█" * filled + "░" * (_WIDTH - filled) + f" {share:6.1%}"


def _share(part: int, whole: int) -> str:
    return f"{part} ({part / whole:.1%})" if whole else str(part)


def discovered(discovery: Discovery, before: Replayed, after: Replayed) -> str:
    """A discovery: the evidence for each rule, its effect, and the profile."""
    corpus = discovery.corpus
    lines = [
        f"{_number(corpus.requests, 'request')} for {_number(len(corpus.urls), 'URL')}; "
        f"{_number(corpus.skipped, 'line')} skipped."
    ]
    if corpus.share < 1:
        lines.append(f"More URLs than fit: what follows is of a sample of {corpus.share:.2%} of them.")
    if corpus.truncated:
        lines.append("More requests than are replayed: the hit ratios are those of the first ones.")
    if not discovery.decided:
        return "\n".join([*lines, "The log supports no rule: no two of its URLs are one."])
    rows = [("what", "pairs", "sure", "the origin", "for example")]
    seen = sorted(discovery.seen, key=lambda seen: -seen.support)
    rows += [_row(discovery, each) for each in (*seen, *discovery.rules)]
    urls, requests = discovery.folded()
    lines += [
        "",
        table(rows),
        "",
        f"URLs that fold: {_share(urls, len(discovery.urls))}. "
        f"Requests for another spelling than the usual one: {_share(requests, sum(discovery.urls.count))}.",
        f"Copies that a purge by one spelling misses without these rules: {after.folded - before.folded}.",
        "",
        f"hit ratio by RFC 3986 alone  {_bar(before.hit_ratio)}",
        f"hit ratio with these rules   {_bar(after.hit_ratio)}",
        "",
        discovery.toml(),
    ]
    return "\n".join(lines)


def _row(discovery: Discovery, seen: Seen) -> tuple[str, str, str, str, str]:
    check = discovery.validated.get(seen.name)
    verdicts = f"{check.same} same, {check.different} different" if check else "not asked"
    shown = seen.pairs[0] if seen.pairs else ()
    example = "  ".join(printable(discovery.urls.targets[number]) for number in shown)
    return seen.name, str(seen.support), f"{min(seen.confidence, 0.999):.3f}", verdicts, example


def compared(outcomes: Iterable[Replayed], skipped: int) -> str:
    """Outcomes side by side, and what each would refuse."""
    outcomes = list(outcomes)
    rows = [("profile", "requests", "keys", "hits", "hit ratio", "bytes held", "evictions", "refused")]
    for each in outcomes:
        hits = (str(each.hits), f"{each.hit_ratio:.2%}")
        rest = (str(each.held), str(each.evictions), str(sum(each.refused.values())))
        rows.append((each.profile, str(each.requests), str(each.keys), *hits, *rest))
    charts = [f"{outcome.profile:<20} {_bar(outcome.hit_ratio)}" for outcome in outcomes]
    refusals = [line for outcome in outcomes for line in _refusals(outcome, f"{outcome.profile} refuses ")]
    were = "was no request" if skipped == 1 else "were no requests"
    left = [f"{_number(skipped, 'line')} {were}."] if skipped else []
    return "\n".join([table(rows), "", *charts, "", *refusals, *left])


def _refusals(outcome: Replayed, by: str) -> list[str]:
    lines = []
    for reason, count in sorted(outcome.refused.items(), key=lambda item: -item[1]):
        lines.append(f"{by}{count} as {reason}, for example")
        for target, client in outcome.examples.get(reason, ()):
            lines.append(f"    {printable(target)}" + (f"  from {printable(client)}" if client else ""))
    return lines


def verdict_on(before: Replayed, after: Replayed) -> str:
    """A site with univocal, beside one whose cache takes each spelling for a URL of its own."""
    gained = after.hits - before.hits
    refused = sum(after.refused.values())
    left = before.keys - after.keys - after.folded
    folded = "no spelling became one with another."
    if after.folded:
        spellings = _number(after.folded, "spelling")
        folded = f"{spellings} became one with another, and a purge reaches them all."
    refused_keys = f" {_number(left, 'spelling')} would be refused." if left > 0 else ""
    lines = [
        f"{_number(before.requests, 'request')} for {_number(before.keys, 'URL')}, as they were spelled.",
        f"With the profile {after.profile} there {'is' if after.keys == 1 else 'are'} "
        f"{_number(after.keys, 'URL')}: {folded}{refused_keys}",
        "",
        f"hit ratio, each spelling by itself  {_bar(before.hit_ratio)}",
        f"hit ratio, one resource, one URL    {_bar(after.hit_ratio)}",
        "",
    ]
    if gained > 0:
        points = 100 * (after.hit_ratio - before.hit_ratio)
        spared = f"the origin server would have been spared {_number(gained, 'more request')}."
        lines.append(f"The hit ratio gains {points:.1f} points: {spared}")
    elif gained < 0:
        points = 100 * (before.hit_ratio - after.hit_ratio)
        lost = "what would be refused had been asked for often."
        lines.append(f"The hit ratio loses {points:.1f} points: {lost}")
    elif after.folded:
        lines.append("The hit ratio gains nothing: what became one was not asked for again in time.")
    else:
        lines.append("The hit ratio gains nothing: this site's clients spell its URLs one way.")
    if refused:
        requests = _number(refused, "request")
        lines.append(f"{requests} that the origin server answered would have been refused:")
        lines += _refusals(after, "  ")
    else:
        lines.append("No request that the origin server answered would have been refused.")
    if after.loose:
        lines.append(
            f"{_number(after.loose, 'request')} had a loose spelling, which is not stored. "
            "If the application tells such spellings apart, set [path] loose = [] in a profile of its own."
        )
    if after.evictions:
        lines.append(f"The store was too small: {_number(after.evictions, 'response')} made room for others.")
    return "\n".join(lines)


def _number(count: int, of: str) -> str:
    return f"{count} {of}" if count == 1 else f"{count} {of}s"
