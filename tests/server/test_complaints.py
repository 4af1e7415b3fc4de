"""Complaints: a flood of faulty requests writes a few lines, and the next one says how many there were."""

import logging

from univocal.server.listener import MOST, SPAN, Complaints


def complaints(clock):
    return Complaints(logging.getLogger("uvicorn.error"), lambda: clock[0])


def test_a_few_are_written_as_they_come(caplog):
    told = complaints([5.0])
    for number in range(MOST - 1):
        told.note(f"no {number}")
    assert caplog.messages == [f"no {number}" for number in range(MOST - 1)]


def test_of_a_flood_the_rest_is_counted(caplog):
    clock = [5.0]
    told = complaints(clock)
    for _ in range(MOST + 1000):
        told.note("no")
    assert len(caplog.messages) == MOST
    assert "counted" in caplog.messages[-1]
    caplog.clear()
    clock[0] += SPAN
    told.note("again")
    assert caplog.messages == ["1000 more like these were not written", "again"]
    clock[0] += SPAN
    told.note("once more")
    assert caplog.messages[2:] == ["once more"]
