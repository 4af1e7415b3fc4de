"""Tables of what was concluded before are bounded."""

from univocal.http.tables import remember


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
