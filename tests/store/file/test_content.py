"""The file of contents: places never overlap, whatever is written and freed; all of it is used again."""

import os
import sqlite3
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from univocal.store.file.content import SCHEMA, UNIT, Content, units_of

MOST = 64
steps = st.lists(
    st.tuples(
        st.integers(1, 12 * UNIT), st.lists(st.integers(0, 50), max_size=4), st.booleans(), st.booleans()
    ),
    max_size=60,
)


@given(steps)
def test_each_content_stays_what_was_written(steps):
    """Contents come and go, several in a transaction, and some transactions are rolled back."""
    with tempfile.TemporaryDirectory() as name:
        sql = sqlite3.connect(":memory:", isolation_level=None)
        sql.executescript(SCHEMA)
        content = Content(Path(name) / "content", sql, is_in_memory=True)
        kept = list[tuple[bytes, bytes]]()
        sql.execute("BEGIN")
        content.begin(MOST)
        before = list(kept)
        for size, gone, ends, is_kept in steps:
            for number in gone:
                if number < len(kept):
                    content.free(kept.pop(number)[0])
            body = os.urandom(size)
            place = content.take(size)
            used = sum(units_of(each) for each, _ in kept)
            if place is None:
                # Refused only where there is no room, or where it is in too many pieces.
                assert used + -(-size // UNIT) > MOST or len(kept) > 8
            else:
                content.write([(place, body)])
                kept.append((place, body))
            if ends:
                content.end()
                sql.execute("COMMIT" if is_kept else "ROLLBACK")
                if not is_kept:  # what was freed and written over is told by its digest
                    kept = [
                        each for each in before if content.read(each[0], len(each[1]), waits=True) == each[1]
                    ]
                    lost = [each for each in before if each not in kept]
                    sql.execute("BEGIN")
                    content.begin(MOST)
                    for each in lost:
                        content.free(each[0])
                    content.end()
                    sql.execute("COMMIT")
                before = list(kept)
                sql.execute("BEGIN")
                content.begin(MOST)
        for place, body in kept:
            assert content.read(place, len(body), waits=False) == body
        for place, _ in kept:
            content.free(place)
        content.end()
        sql.execute("COMMIT")
        assert content.units == 0
        assert content.size <= MOST * UNIT
        content.close()
        sql.close()
