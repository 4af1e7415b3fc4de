"""Tables of states."""

import pytest

from univocal.http.tables import moves


def test_a_state_moves_only_to_its_allowed_successors():
    table = moves({"begun": ("under way", "over"), "under way": {"over"}, "over": ()})
    assert table["begun", "over"] == "over"
    assert sorted(table) == [("begun", "over"), ("begun", "under way"), ("under way", "over")]
    with pytest.raises(KeyError):
        table["over", "begun"]
