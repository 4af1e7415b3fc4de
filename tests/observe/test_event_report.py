"""The events that a worker sends while somebody follows at its parent."""

from __future__ import annotations

import asyncio

import pytest

from univocal import Outcome
from univocal.engine.audience import Listener
from univocal.engine.outcome import Times
from univocal.http.messages import Received
from univocal.judge.cache_status import Handling
from univocal_app.observe import event_report as module
from univocal_app.observe.event_report import EventReport
from univocal_app.observe.events import event_of
from univocal_app.processes.messages import EventBatch


class Heard:
    """A parent that takes what there is room for."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.waiting = 0
        self.takes = True

    def say(self, message: EventBatch) -> bool:
        if self.takes:
            self.batches.append(message)
        return self.takes


def outcome(number: int) -> Outcome:
    return Outcome(
        site="en.example",
        received=Received(b"GET", b"/%d" % number),
        canonical=None,
        decision=None,
        status=200,
        bytes=1,
        times=Times(1_700_000_000.0, 0.0, 0.1),
        client=None,
        handling=Handling(hit=True),
    )


@pytest.fixture
def parent() -> Heard:
    return Heard()


@pytest.fixture
def report(parent: Heard) -> EventReport:
    return EventReport([], parent)


def test_it_listens_from_its_beginning_to_its_end(parent: Heard) -> None:
    listeners: list[Listener] = []
    report = EventReport(listeners, parent)
    assert listeners == []
    report.begin()
    report.begin()
    assert listeners == [report]
    report.end()
    report.end()
    assert listeners == []


async def test_the_events_of_one_turn_are_sent_together(parent: Heard, report: EventReport) -> None:
    for number in range(3):
        report(outcome(number))
    assert parent.batches == []
    await asyncio.sleep(0)
    report(outcome(3))
    await asyncio.sleep(0)
    assert [len(batch.events) for batch in parent.batches] == [3, 1]
    assert [batch.lost for batch in parent.batches] == [0, 0]
    site, status, cache, data = parent.batches[1].events[0]
    assert (site, status, cache, data.encode()) == tuple(event_of(outcome(3)))


async def test_what_the_parent_does_not_take_is_lost_and_counted(
    parent: Heard, report: EventReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2000)
    for number in range(100):
        report(outcome(number))
    await asyncio.sleep(0)
    (first,) = parent.batches
    assert 0 < len(first.events) < 20
    assert first.lost + 100 - len(first.events) > 80
    parent.waiting = 3000
    report(outcome(100))
    parent.waiting = 0
    report(outcome(101))
    await asyncio.sleep(0)
    assert sum(batch.lost + len(batch.events) for batch in parent.batches) == 102
    assert len(parent.batches[1].events) == 1


async def test_a_batch_that_is_refused_is_counted_with_the_next(parent: Heard, report: EventReport) -> None:
    parent.takes = False
    for number in range(3):
        report(outcome(number))
    await asyncio.sleep(0)
    parent.takes = True
    report(outcome(3))
    await asyncio.sleep(0)
    assert [(batch.lost, len(batch.events)) for batch in parent.batches] == [(3, 1)]
