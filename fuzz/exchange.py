"""Plays clients and an origin server to a proxy in memory, octet by octet, and reports every law it breaks.

    python -m fuzz.exchange --seconds 60 [--seed 7] [--replay 7.1234]

Several clients, several exchanges at once, one store, one clock: requests with conditions, ranges and
directives, spelled in several ways and cut in pieces; responses that may be stored or not, that vary, are
partial, truncated, followed by octets of nobody, chunked, interim, changed on their way; purges, clients that
leave or do not read, time that passes. From wire to wire everything is the program but for the sockets.

The laws: nothing raises and nobody waits for ever; one answer for each request; nothing is stored that a
second reading of the same octets by RFC 9111 §3 would not allow (fuzz/exchanges/messages.py); nothing of one
exchange is in another's, since all content says of which target, version, language and request it is; what is
obsolete is not seen again, what is stale only where that is allowed; no field of one hop goes further, either
way; content is as long as it says. A scenario that breaks one is made smaller and printed.
Exit status: 0 none broken, 1 some.
"""

# ruff: noqa: S311, T201

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import time
import traceback
from collections import Counter
from typing import NamedTuple

from fuzz.exchanges.grammar import Scenario, scenario
from fuzz.exchanges.laws import judge
from fuzz.exchanges.messages import UnreadableError
from fuzz.exchanges.world import World, WrongError, played

TRIES = 300  # to make a scenario smaller


class Finding(NamedTuple):
    """A law that is broken: by the scenario of this name, and by this smaller one."""

    name: str
    wrong: str
    smallest: Scenario
    wire: str


def broken(one: Scenario, seen: Counter[str]) -> tuple[str, World | None]:
    """The law that a scenario breaks, or "", and what happened."""
    world: World | None = None

    async def run() -> None:
        nonlocal world
        world = World(one)
        with played(world):
            try:
                await world.run()
                judge(world, seen)
            finally:
                await world.close()

    try:
        asyncio.run(run())
    except WrongError as error:
        return str(error), world
    except UnreadableError as error:
        return f"forwarded: {error}", world
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised: {error!r} at {where.filename}:{where.lineno}", world
    return "", world


def smaller(one: Scenario, law: str) -> Scenario:
    """The scenario without the steps that it does not take to break this law."""
    size, tries = max(1, len(one.steps) // 2), 0
    while size and tries < TRIES:
        at, shrunk = 0, False
        while at < len(one.steps) and tries < TRIES:
            tries += 1
            less = one._replace(steps=[*one.steps[:at], *one.steps[at + size :]])
            if broken(less, Counter())[0].startswith(law):
                one, shrunk = less, True
            else:
                at += size
        size = size if shrunk and size == 1 else size // 2
    return one


def drawn(name: str) -> Scenario:
    return scenario(random.Random(name))


def findings(
    seed: int, *, seconds: float = math.inf, scenarios: float = math.inf, most: int = 5
) -> tuple[list[Finding], Counter[str]]:
    """The broken laws of so many seconds or scenarios, whichever are over first; and what was seen."""
    found: list[Finding] = []
    seen: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end and seen["scenarios"] < scenarios and len(found) < most:
        name = f"{seed}.{seen['scenarios']}"
        seen["scenarios"] += 1
        finding = tried(name, seen)
        if finding is not None:
            found.append(finding)
    return found, seen


def tried(name: str, seen: Counter[str]) -> Finding | None:
    """The finding of the scenario of this name."""
    one = drawn(name)
    wrong, world = broken(one, seen)
    if not wrong:
        return None
    less = smaller(one, wrong.partition(":")[0])
    again, smallest = broken(less, Counter())
    world = smallest or world
    return Finding(name, again or wrong, less, world.told() if world is not None else "")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--replay", help="the name of one scenario: SEED.NUMBER")
    chosen = options.parse_args()
    if chosen.replay:
        seen: Counter[str] = Counter()
        finding = tried(chosen.replay, seen)
        found = [finding] if finding else []
    else:
        found, seen = findings(chosen.seed, seconds=chosen.seconds)
    for each in found:
        print(f"{each.wrong}\n    python -m fuzz.exchange --replay {each.name}")
        print(f"    {each.smallest.rules}, max_object {each.smallest.max_object}")
        for step in each.smallest.steps:
            print(f"    {step}")
        print(each.wire)
    print(", ".join(f"{name}: {number}" for name, number in seen.most_common()))
    print(f"{len(found)} laws broken by {chosen.replay or f'seed {chosen.seed}'}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
