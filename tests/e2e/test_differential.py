"""A short run of tools/differential, against univocal alone."""

import asyncio
import subprocess
from types import SimpleNamespace

import pytest

import forking
from benchmarks import machine
from tools.differential.oracle import Level
from tools.differential.playing import started
from tools.differential.run import tables, tallied
from tools.differential.script import drawn


@pytest.mark.long
def test_univocal_makes_no_mistake_in_twenty_sequences(monkeypatch):
    """Those with little waiting of a seed; another seed is for a run by hand."""

    def program(command, **settings):
        if command[0] != "taskset":
            return subprocess.Popen(command, **settings)
        return forking.Program(command[3:], **settings)  # on any processor

    monkeypatch.setattr(machine, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": program}))
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
