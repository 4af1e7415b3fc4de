"""Patterns beyond the most that may be kept: who asks for one waits, and nobody else does."""

import pytest

from support import store_long_urls
from univocal.store.leases import MOST_BANS
from univocal.store.patterns import compiled
from univocal.store.purge_selectors import Keys

pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
STORED = 1_500


@pytest.fixture
async def full(cached):
    """A client of a proxy with as many bans as may be, none of which any stored response has met."""
    client = cached()
    others = store_long_urls(client.app.store, MOST_BANS + 10)  # no sweep comes to anything else
    for number in range(STORED):
        assert "stored" in (await client(f"/page/{number}")).handling
    store = client.app.store
    for number in range(MOST_BANS):
        store.purge(compiled(f"/page/.*{number}x"), 0.0)
    assert store.purge(Keys(frozenset(others)), 0.0) == len(others)
    assert store.stats.bans == MOST_BANS
    return client


async def test_no_response_goes_that_was_not_meant(full):
    await full("/page/12.*", "PURGE", [("x-purge-method", "regex")])
    for number in (0, 7, STORED - 1):
        assert "hit" in (await full(f"/page/{number}")).handling
    assert "stored" in (await full("/page/12")).handling
