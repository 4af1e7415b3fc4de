"""The number that the workers of one program compare at each lookup."""

import os
import subprocess
import sys

import pytest

from univocal.store.file.own_files import ByteLocks
from univocal.store.redis import purges
from univocal.store.redis.purges import Siblings
from univocal.store.roles import StoreUnavailableError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "purges"


@pytest.fixture
def pair(path):
    both = Siblings(path), Siblings(path)
    yield both
    for each in both:
        each.close()


RAISES = """
import asyncio, sys
from pathlib import Path
from univocal.store.redis.purges import Siblings
async def go(path, first):
    mine = Siblings(path)
    for number in range(first, first + 3_000, 2):
        await mine.raise_to(number)
        assert mine.cell[0] >= number
asyncio.run(go(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_processes_that_raise_at_the_same_time_keep_the_greatest(path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RAISES, path]
    both = [subprocess.Popen([*command, first], env=environment) for first in ("1", "2")]
    assert [each.wait() for each in both] == [0, 0]
    mine = Siblings(path)
    assert mine.cell[0] == 3_000
    mine.close()


async def test_a_process_that_stands_still_refuses_the_purges_of_others(pair, path, monkeypatch):
    monkeypatch.setattr(purges, "_ATTEMPTS", 3)
    locks = ByteLocks(path)
    assert locks.take(0)
    with pytest.raises(StoreUnavailableError):
        await pair[0].raise_to(1)
    locks.close()
    await pair[0].raise_to(1)
    assert pair[1].cell[0] == 1
