"""A store that refuses responses says so once, and once that it takes them again."""

from __future__ import annotations

import logging

import pytest

from univocal.store.refusals import EVERY, STEADY, Overflow, Refusals


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_loss_and_return_are_each_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "univocal")
    clock = Clock()
    refusals = Refusals("/store", clock)
    refusals.stored()
    assert caplog.messages == []
    for _ in range(5):  # a disk that is nearly full takes small responses
        refusals.refused("disk is full")
        clock.now += 1.0
        refusals.stored()
    assert refusals.lasts
    assert caplog.messages == ["/store cannot be written (disk is full): nothing more is stored there"]
    clock.now += STEADY
    refusals.stored()
    refusals.stored()
    assert not refusals.lasts
    assert caplog.messages[1:] == ["/store can be written again, after 15.0 seconds"]


def test_a_later_loss_is_logged_anew(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    refusals = Refusals("Redis", clock)
    refusals.refused("OOM")
    clock.now += STEADY
    refusals.stored()
    refusals.refused("OOM")
    assert ["nothing more" in line for line in caplog.messages] == [True, False, True]


def test_responses_that_come_too_fast_are_counted_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    overflow = Overflow("/store", clock)
    for seconds in (0.0, EVERY / 2, EVERY / 2 - 1, 1.0):
        clock.now += seconds
        overflow.dropped()
    line = "/store: responses come faster than they can be written: {} more not stored there"
    assert caplog.messages == [line.format(1), line.format(3)]
