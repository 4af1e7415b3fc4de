"""A store that refuses responses says so once, and once that it takes them again."""

import logging

from support import Clock
from univocal.store.roles import EVERY, STEADY, Overflow, Refusals


def test_loss_and_return_are_each_logged_once(caplog):
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


def test_a_later_loss_is_logged_anew(caplog):
    clock = Clock()
    refusals = Refusals("Redis", clock)
    refusals.refused("OOM")
    clock.now += STEADY
    refusals.stored()
    refusals.refused("OOM")
    assert ["nothing more" in line for line in caplog.messages] == [True, False, True]


TOO_FAST = "/store: responses come faster than they can be written: some are not stored there"


def test_responses_that_come_too_fast_are_counted_in_few_lines(caplog):
    clock = Clock()
    overflow = Overflow("/store", clock)
    overflow.tell()
    for seconds in (0.0, EVERY / 2, EVERY / 2 - 1, 1.0):
        clock.now += seconds
        overflow.dropped()
    line = "/store: in {} seconds {} responses came too fast to be written: they are not stored there"
    assert caplog.messages == [TOO_FAST, line.format(60, 4)]
    clock.now += 1.0
    overflow.dropped()
    clock.now += EVERY
    overflow.dropped()
    assert caplog.messages[2:] == [line.format(61, 2)]


def test_a_burst_of_responses_is_counted_without_another(caplog):
    clock = Clock()
    overflow = Overflow("/store", clock)
    for _ in range(500):
        clock.now += 0.05
        overflow.dropped()
    overflow.tell()
    assert caplog.messages == [TOO_FAST]
    for _ in range(5):
        clock.now += EVERY
        overflow.tell()
    assert len(caplog.messages) == 2
    assert " 500 responses came too fast" in caplog.messages[1]
    overflow.dropped()
    assert caplog.messages[2:] == [TOO_FAST]
