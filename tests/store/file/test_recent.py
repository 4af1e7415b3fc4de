"""The rows that were read lately: for how long they are known, and how many."""

import pytest

from support import stored_response
from univocal.store.file.rows import Described, Recent


@pytest.fixture
def row():
    stored = stored_response()
    return Described(1, 0, 7, stored, b"", len(stored.body), b"")


def test_a_row_is_known_for_a_minute(row):
    recent = Recent()
    recent.put(b"a", [row], 0.0)
    assert recent.get(b"a", 60.0) == [row]
    assert recent.get(b"a", 60.1) is None
    assert recent.get(b"a", 0.0) is None


def test_the_rows_that_were_read_first_give_way(row):
    recent = Recent(limit=10_000)
    for number in range(100):
        recent.put(b"%d" % number, [row], 0.0)
    known = [number for number in range(100) if recent.get(b"%d" % number, 0.0)]
    assert known == list(range(known[0], 100))
    assert 0 < known[0] < 99
