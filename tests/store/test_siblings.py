"""The number that the workers of one program compare at each lookup."""

import asyncio
import multiprocessing

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


def raise_in_turn(path, first):
    async def go():
        mine = Siblings(path)
        for number in range(first, first + 3_000, 2):
            await mine.raise_to(number)
            assert mine.cell[0] >= number
        mine.close()

    asyncio.run(go())


def test_processes_that_raise_at_the_same_time_keep_the_greatest(path):
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=raise_in_turn, args=(path, first)) for first in (1, 2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
        assert each.exitcode == 0
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
