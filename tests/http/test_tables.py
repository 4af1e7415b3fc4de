"""Tables of states, and bounded tables of what was concluded before."""

import pytest

from univocal.http.tables import moves, remember


def test_a_state_moves_only_to_its_allowed_successors():
    table = moves({"begun": ("under way", "over"), "under way": {"over"}, "over": ()})
    assert table["begun", "over"] == "over"
    assert sorted(table) == [("begun", "over"), ("begun", "under way"), ("under way", "over")]
    with pytest.raises(KeyError):
        table["over", "begun"]


def test_a_table_never_has_more_entries_than_allowed():
    table = dict[int, int]()
    for number in range(10):
        remember(table, number, -number, 3)
        assert len(table) <= 3
        assert table[number] == -number


def test_a_table_below_its_bound_keeps_all():
    table = dict[int, int]()
    for number in range(3):
        remember(table, number, number, 3)
    assert table == {0: 0, 1: 1, 2: 2}
