"""A short run of tools/differential, against univocal alone."""

import asyncio

import pytest

from tools.differential.oracle import Level
from tools.differential.playing import started
from tools.differential.run import tables, tallied
from tools.differential.script import drawn


@pytest.mark.long
def test_univocal_makes_no_mistake_in_twenty_sequences():
    """Those with little waiting of a seed; another seed is for a run by hand."""
    names = ("univocal", "explicit", "mounted")
    sequences = (drawn(f"16.{number}") for number in range(1000))
    brief = [steps for steps in sequences if sum(step.wait for step in steps) < 1.3][:20]

    async def run():
        async with started(names, halves=True) as caches:
            return await tallied(caches, brief)

    tally = asyncio.run(run())
    assert tally.sequences == 20
    assert not tally.failures
    weighty = {
        verdict for name in names for verdict in tally.verdicts[name] if verdict.level is not Level.FREE
    }
    assert not weighty, "\n".join(tables(tally, names))
