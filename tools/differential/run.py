"""Plays random sequences of exchanges to univocal, Varnish and nginx, and judges their answers by RFC 9111.

    python -m tools.differential.run [--sequences N] [--seed N] [--ours NAMES] [--peers NAMES] [--replay NAME]

Each cache has its own origin server, and all of these follow the same script: representations change, expire,
are confirmed, fail or die, and all content names its version and variant. Some clients ask for ranges at the
same time, or close their half of the connection. A small oracle judges each response.
The first table counts mistakes by kind and cache. The second counts where univocal and a peer differ first.
A shortest sequence for each kind follows.
Exit status: 0 if univocal made no mistake, 1 if it made one, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tools.differential.oracle import Level, Verdict, how, judge
from tools.differential.playing import Behind, Played, missing, play, started
from tools.differential.script import Answer, Ask, Step, drawn

Steps: TypeAlias = tuple[Step, ...]
Caches: TypeAlias = dict[str, tuple[int, Behind]]
Shows: TypeAlias = Callable[[Steps], Awaitable[Played | None]]
OURS = ("univocal", "explicit", "shared", "mounted")
PEERS = ("varnish", "nginx")
AT_ONCE = 48  # sequences; each takes some seconds of waiting
ROUNDS = 25  # to make a sequence smaller
WRONG = {Level.MUST, Level.LAW}
numbers = itertools.count()


@dataclass
class Tally:
    """The observations of each cache: verdicts and first differences, each with one sequence's name."""

    verdicts: dict[str, Counter[Verdict]] = field(default_factory=lambda: defaultdict(Counter))
    differences: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, Verdict], tuple[Steps, Played]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    sequences: int = 0


def judged(played: Played) -> list[list[Verdict]]:
    """The verdicts on each step."""
    beside = played.beside or [[] for _ in played.got]
    return [
        [verdict for each in (got, *others) for verdict in judge(played.path, played.log[:known], each)]
        for got, others, known in zip(played.got, beside, played.known, strict=True)
    ]


async def play_once(cache: tuple[int, Behind], steps: Steps) -> Played | str:
    """The event, or the error of a cache that did not answer."""
    try:
        return await play(*cache, f"/{next(numbers)}", steps)
    except (OSError, EOFError, TimeoutError) as error:
        return type(error).__name__


def told(played: Played, number: int) -> tuple[str, str]:
    """The source of a step's response with its status, and its version."""
    got, history = played.got[number], played.log[: played.known[number]]
    version = "" if got.serial is None else str(history[got.serial].version)
    return f"{how(history, got).value} {got.status}", version


def cause(steps: Steps, number: int) -> str:
    """The mark of a step: the request's fields, else what the origin server said last."""
    ask = steps[number].ask
    if ask.method != "GET":
        return ask.method
    for name, value in ask.fields:
        if name in {"cache-control", "pragma"}:
            return f"client's {value.partition('=')[0]}"
    for name in ("authorization", "cookie", "range", "if-none-match", "if-modified-since"):
        if ask.field(name):
            return name
    answers = [step.answer for step in steps[: number + 1] if step.answer is not None]
    latest = answers[-1]
    if latest.dead:
        return "dead origin"
    stored = answers[-2] if len(answers) > 1 and steps[number].answer is not None else latest
    if stored.status != 200:
        return f"{stored.status}"
    return (
        f"Vary: {stored.vary}"
        if stored.vary
        else stored.cache_control.replace("=60", "=N").replace("=30", "=N")
    )


def compare(steps: Steps, name: str, ours: Played, theirs: Played, tally: Tally) -> None:
    """Count the first step in which a peer answers otherwise, and who of the two is wrong."""
    verdicts = zip(judged(ours), judged(theirs), strict=True)
    for number, (about_us, about_them) in enumerate(verdicts):
        mine, other = told(ours, number), told(theirs, number)
        if mine == other:
            continue
        if any(verdict.level in WRONG for verdict in about_us):
            whose = "OURS"
        elif any(verdict.level in WRONG for verdict in about_them):
            whose = f"{name} is wrong"
        else:
            whose = "allowed"
        version = "" if mine[1] == other[1] or not (mine[1] and other[1]) else ", another version"
        tally.differences[name, whose, f"{mine[0]} / {other[0]}{version}", cause(steps, number)] += 1
        return


async def tallied(caches: Caches, sequences: Iterable[Steps]) -> Tally:
    """Play the sequences to all caches, many at the same time."""
    tally, left = Tally(), iter(sequences)

    async def worker() -> None:
        for steps in left:
            results = await asyncio.gather(*(play_once(cache, steps) for cache in caches.values()))
            count(dict(zip(caches, results, strict=True)), steps, tally)

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return tally


def count(results: dict[str, Played | str], steps: Steps, tally: Tally) -> None:
    tally.sequences += 1
    for name, played in results.items():
        if isinstance(played, str):
            tally.failures[f"{name}: {played}"] += 1
            continue
        for verdict in itertools.chain(*judged(played)):
            tally.verdicts[name][verdict] += 1
            kept = tally.examples.setdefault((name, verdict), (steps, played))
            if len(steps) < len(kept[0]):
                tally.examples[name, verdict] = steps, played
    ours = results[next(iter(results))]
    for name, played in results.items():
        if name in PEERS and isinstance(played, Played) and isinstance(ours, Played):
            compare(steps, name, ours, played, tally)


# Shrinking -------------------------------------------------------------------------------------------------


def simpler(steps: Steps) -> Iterator[Steps]:
    """The sequence with one thing less, each in turn."""
    for number, step in enumerate(steps):
        before, after = steps[:number], steps[number + 1 :]
        following = after
        if step.answer is not None and after and after[0].answer is None:
            following = (after[0]._replace(answer=step.answer), *after[1:])
        if len(steps) > 1:
            yield (*before, *following)
        for less in simpler_step(step, first=number == 0):
            yield (*before, less, *after)


def simpler_step(step: Step, *, first: bool) -> Iterator[Step]:
    """The step without waiting, without its change, without a field of its request or of its answer."""
    if step.wait:
        yield step._replace(wait=0.0)
    if step.answer is not None:
        if not first:
            yield step._replace(answer=None)
        for name, plain in Answer()._asdict().items():
            if getattr(step.answer, name) != plain and name not in {"cache_control", "new", "dead"}:
                yield step._replace(answer=step.answer._replace(**{name: plain}))
    if step.ask.method != "GET":
        yield step._replace(ask=step.ask._replace(method="GET"))
    for number in range(len(step.ask.fields)):
        rest = step.ask.fields[:number] + step.ask.fields[number + 1 :]
        yield step._replace(ask=Ask(step.ask.method, rest))


async def smaller(steps: Steps, played: Played, shows: Shows) -> tuple[Steps, Played]:
    """A sequence from which nothing can be taken if it is still to show the same, and what happened in it."""
    for _ in range(ROUNDS):
        candidates = list(simpler(steps))
        results = await asyncio.gather(*map(shows, candidates))
        kept = next((pair for pair in zip(candidates, results, strict=True) if pair[1] is not None), None)
        if kept is None or kept[1] is None:
            break
        steps, played = kept[0], kept[1]
    return steps, played


# Reports ---------------------------------------------------------------------------------------------------


def tables(tally: Tally, names: Sequence[str]) -> Iterator[str]:
    """The table of verdicts by cache, and the table of first differences."""
    verdicts = sorted(
        {verdict for counter in tally.verdicts.values() for verdict in counter},
        key=lambda verdict: (list(Level).index(verdict.level), verdict.kind),
    )
    yield f"| level | kind | clause | {' | '.join(names)} |"
    yield "|---" * (3 + len(names)) + "|"
    for verdict in verdicts:
        counts = " | ".join(str(tally.verdicts[name][verdict] or "") for name in names)
        yield f"| {verdict.level.value} | {verdict.kind} | {verdict.clause} | {counts} |"
    yield ""
    yield "| beside | class | univocal / peer | cause | first differences |"
    yield "|---|---|---|---|---|"
    for (name, whose, what, why), number in sorted(
        tally.differences.items(), key=lambda pair: (*pair[0][:2], -pair[1])
    ):
        yield f"| {name} | {whose} | {what} | {why} | {number} |"


def transcript(played: Played, steps: Steps) -> Iterator[str]:
    """A sequence step by step: what the origin server did, what was asked and answered."""
    verdicts, before = judged(played), 0
    for number, (step, got) in enumerate(zip(steps, played.got, strict=True)):
        if step.wait:
            yield f"    wait {step.wait} s"
        if step.answer is not None:
            plain = Answer()._asdict()
            changed = {name: value for name, value in step.answer._asdict().items() if value != plain[name]}
            yield f"    origin: {changed or 'plain 200'}"
        kind, version = told(played, number)
        yield f"    {got.ask.method} {dict(got.ask.fields)} -> {kind}, version {version or '-'}"
        yield f"        {dict(got.fields)}"
        for other in played.beside[number]:
            yield f"        beside it: {other.ask.field('range')} -> {other.status} {dict(other.fields)}"
        for said in played.log[before : played.known[number]]:
            asked = {
                name: value
                for name, value in said.ask.fields
                if name in dict(got.ask.fields) or name.startswith("if-")
            }
            yield f"        at the origin: {said.ask.method} {asked} -> {said.status} {dict(said.fields)}"
        before = played.known[number]
        yield from (
            f"        {verdict.level.value}: {verdict.kind} ({verdict.clause})"
            for verdict in verdicts[number]
        )


async def report(caches: Caches, tally: Tally) -> None:
    """Print the tables, and a shortest sequence for everything that univocal does wrong."""
    print("\n".join(tables(tally, list(caches))), flush=True)
    for name, number in tally.failures.items():
        print(f"no answer: {name}, {number} times")
    wrong = [
        ((name, verdict), example)
        for (name, verdict), example in tally.examples.items()
        if verdict.level in WRONG or (name in OURS and verdict.level is Level.SHOULD)
    ]
    await asyncio.gather(
        *(shrunk(caches[name], name, verdict, *example) for (name, verdict), example in wrong)
    )


async def shrunk(
    cache: tuple[int, Behind], name: str, verdict: Verdict, steps: Steps, played: Played
) -> None:
    """Print a shortest sequence for a verdict."""

    async def shows(candidate: Steps) -> Played | None:
        result = await play_once(cache, candidate)
        wrong = isinstance(result, Played) and verdict in itertools.chain(*judged(result))
        return result if isinstance(result, Played) and wrong else None

    steps, played = await smaller(steps, played, shows)
    print(f"\n{name}: {verdict.kind}, {verdict.clause}", *transcript(played, steps), sep="\n", flush=True)


async def show(cache: tuple[int, Behind], steps: Steps) -> None:
    """Play a sequence once more, and print it."""
    played = await play_once(cache, steps)
    print(played if isinstance(played, str) else "\n".join(transcript(played, steps)), flush=True)


async def run(options: argparse.Namespace, names: Sequence[str]) -> int:
    async with started(names, halves=True) as caches:
        if options.replay:
            for name, cache in caches.items():
                print(name)
                await show(cache, drawn(options.replay))
            return 0
        sequences = (drawn(f"{options.seed}.{number}") for number in range(options.sequences))
        tally = await tallied(caches, sequences)
        await report(caches, tally)
    wrong = sum(
        number
        for name in set(OURS) & set(names)
        for verdict, number in tally.verdicts[name].items()
        if verdict.level in WRONG
    )
    print(f"{tally.sequences} sequences of seed {options.seed}; univocal was wrong {wrong} times")
    return bool(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--sequences", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--ours",
        default="univocal,explicit",
        help="of univocal, explicit (settings), shared (Redis), mounted",
    )
    parser.add_argument("--peers", default="varnish,nginx", help="of varnish and nginx; empty for none")
    parser.add_argument("--replay", help="the name of one sequence: SEED.NUMBER")
    options = parser.parse_args()
    ours, peers = ([name for name in each.split(",") if name] for each in (options.ours, options.peers))
    if not ours or not set(ours) <= set(OURS) or not set(peers) <= set(PEERS):
        parser.error(f"allowed: --ours {','.join(OURS)} (at least one) --peers {','.join(PEERS)}")
    if absent := [name for name in (*ours, *peers) if missing(name)]:
        parser.error(f"not installed: what {', '.join(absent)} needs")
    return asyncio.run(run(options, [*ours, *peers]))


if __name__ == "__main__":
    sys.exit(main())
