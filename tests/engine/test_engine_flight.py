"""One request for all who wait: what it brings to whom, who may leave it when, and what is left of it."""

from __future__ import annotations

import pytest

from neighbours import FRESH, House, PlayedClient, PlayedRequest, SlowTier
from univocal.http.errors import RefusedError
from univocal.store.memory import MemoryStore

UNREACHABLE = RefusedError("origin-unreachable")


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def slow() -> House:
    return House(SlowTier(MemoryStore()))


# Those who waited too long


def test_who_waited_too_long_asks_for_itself_and_hears_nothing_of_what_it_waited_for(house: House) -> None:
    leader, follower = house.ask(), house.ask()
    house.timers.wait(5)
    first, second = house.origin.asked
    second.start()
    first.start()  # the follower has its head already
    second.write(b"second")
    second.finish()
    assert (follower.body, follower.state) == (b"second", "finished")
    assert leader.state == ""
    first.write(b"first")
    first.finish()
    assert (leader.body, follower.body) == (b"first", b"second")
    assert house.stored() == [b"first"]
    house.assert_nothing_is_left()


def test_who_waits_no_longer_than_it_may_gets_what_it_waits_for(house: House) -> None:
    leader, follower = house.ask(), house.ask()
    house.timers.wait(4.9)
    house.origin.last.answers(b"one")
    house.timers.wait(1)
    assert [client.body for client in (leader, follower)] == [b"one", b"one"]
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


# Those who come when it is over


@pytest.mark.parametrize("content", [None, b"half"])
def test_a_failure_answers_nobody_who_comes_after_it(slow: House, content: bytes | None) -> None:
    first = slow.ask()
    slow.slow.go_on("fill")
    if content is not None:
        slow.origin.last.start()
        slow.origin.last.write(content)
    slow.origin.last.fail(UNREACHABLE)
    assert first.state == ("finished" if content is None else "cut")
    second = slow.ask()  # though not all nodes know yet that nothing came of it
    slow.drain()
    slow.origin.last.answers(b"whole")
    slow.drain()
    assert (second.status, second.body) == (200, b"whole")
    slow.assert_nothing_is_left()


def test_who_comes_before_all_nodes_have_the_answer_gets_it(slow: House) -> None:
    first = slow.ask()
    slow.slow.go_on("fill")
    slow.origin.last.answers(b"whole")
    second = slow.ask()
    assert (first.body, second.body) == (b"whole", b"whole")
    assert slow.stored() == []
    slow.drain()
    assert slow.stored() == [b"whole"]
    assert len(slow.origin.asked) == 1
    slow.assert_nothing_is_left()


# Origins that answer within `ask`


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, None])
def test_who_leaves_an_answer_that_comes_within_ask_leaves_nothing_behind(
    house: House, leaves: int | None
) -> None:
    def script(asked: PlayedRequest) -> None:
        asked.interim()
        asked.answers(b"one", b"two")

    house.origin.script = script
    client = house.ask(client=PlayedClient(leaves=leaves))
    assert client.state == ("left" if leaves else "finished")
    assert house.stored() == ([] if leaves else [b"onetwo"])
    house.assert_nothing_is_left()


def test_who_leaves_at_an_interim_response_within_ask_gives_up_the_rest(house: House) -> None:
    def script(asked: PlayedRequest) -> None:
        asked.interim()
        asked.start()

    house.origin.script = script
    house.ask(client=PlayedClient(leaves=1))
    assert house.origin.last.cancelled
    house.assert_nothing_is_left()


@pytest.mark.parametrize("status", [304, 206])
def test_a_mismatch_within_ask_leaves_the_second_request_under_way(house: House, status: int) -> None:
    """A 304, or a part, of something else than what is stored: all of it is asked for, once."""
    old, other = [*FRESH, (b"etag", b'"old"')], (b"etag", b'"other"')
    house.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
    house.origin.last.answers(b"one", status=206, fields=[*old, (b"content-range", b"bytes 0-2/6")])
    if status == 304:
        house.purge()
        house.store_away(b"onetwo", fields=old)
        house.purge(soft=True)

    def script(asked: PlayedRequest) -> None:
        if asked.field(b"if-range") or asked.field(b"if-none-match"):
            part = [(b"content-range", b"bytes 3-5/6")] if status == 206 else []
            asked.answers(*([b"TWO"] if part else []), status=status, fields=[*FRESH, other, *part])

    house.origin.script = script
    client = house.ask()
    assert house.origin.last.field(b"if-none-match") is house.origin.last.field(b"if-range") is None
    house.origin.last.start(fields=[*FRESH, other])
    house.origin.last.write(b"ONE")
    client.leave()
    assert house.origin.last.cancelled
    house.assert_nothing_is_left()


# Refreshes in the background

STALE = [(b"cache-control", b"max-age=1, stale-while-revalidate=600"), (b"etag", b'"1"')]


@pytest.fixture
def stale(house: House) -> House:
    """A house with a response that may be served while it is fetched again."""
    house.store_away(b"old", fields=STALE)
    house.timers.wait(2)
    return house


def test_what_is_served_stale_is_fetched_again_once(stale: House) -> None:
    assert [stale.ask().body for _ in range(3)] == [b"old"] * 3
    assert len(stale.origin.asked) == 2
    assert stale.origin.last.field(b"if-none-match") == b'"1"'
    stale.origin.last.answers(b"new", fields=STALE)
    assert stale.ask().body == b"new"
    assert len(stale.origin.asked) == 2
    stale.timers.wait(2)
    stale.ask()
    assert len(stale.origin.asked) == 3
    stale.origin.last.answers(status=304, fields=STALE)
    stale.assert_nothing_is_left()


@pytest.mark.parametrize("fails", [True, False])
def test_a_refresh_that_brings_nothing_leaves_what_is_stale(stale: House, fails: bool) -> None:
    stale.ask()
    if fails:
        stale.origin.last.fail(UNREACHABLE)
    else:
        stale.origin.last.answers(b"ill", status=500, fields=[])
    assert stale.ask().body == b"old"
    assert len(stale.origin.asked) == 3  # the next hit tries again
    stale.origin.last.answers(status=304, fields=STALE)
    stale.assert_nothing_is_left()


def test_what_was_purged_while_it_was_served_is_not_fetched_again(stale: House) -> None:
    admission = stale.admit()
    stale.purge()
    stale.flights.refresh(admission, stale.origin)
    assert len(stale.origin.asked) == 1
    stale.assert_nothing_is_left()


def test_there_is_one_refresh_at_a_time_though_it_is_not_stored(stale: House) -> None:
    stale.ask()
    stale.origin.last.start(status=503, fields=[])
    stale.ask()
    assert len(stale.origin.asked) == 2
    stale.origin.last.write(b"ill")
    stale.origin.last.finish()
    stale.assert_nothing_is_left()


def test_a_refresh_that_began_before_a_purge_is_not_joined(stale: House) -> None:
    stale.ask()
    stale.purge()
    client = stale.ask()
    refresh, own = stale.origin.asked[1:]
    refresh.answers(b"refreshed", fields=STALE)
    own.answers(b"own", fields=STALE)
    assert client.body == b"own"
    assert stale.stored() == [b"own"]
    stale.assert_nothing_is_left()


def test_a_refresh_is_joined_by_who_takes_nothing_stale(stale: House) -> None:
    stale.ask()
    client = stale.ask(b"/a", b"GET", (b"cache-control", b"min-fresh=0"))
    assert client.state == ""
    stale.origin.last.answers(b"new", fields=STALE)
    assert (client.body, "collapsed" in client.handling) == (b"new", True)
    assert len(stale.origin.asked) == 2
    stale.assert_nothing_is_left()


def test_who_has_the_content_already_does_not_end_what_is_stored(house: House) -> None:
    client = house.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
    house.origin.last.start(fields=STALE)
    assert (client.status, client.state) == (304, "finished")
    assert not house.origin.last.cancelled
    house.origin.last.write(b"whole")
    house.origin.last.finish()
    assert house.stored() == [b"whole"]
    house.assert_nothing_is_left()


def test_what_turns_out_too_large_to_be_stored_is_read_for_nobody() -> None:
    house = House(store=MemoryStore(max_object_bytes=2000))
    client = house.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
    house.origin.last.start(fields=STALE)
    assert (client.status, client.state) == (304, "finished")
    house.origin.last.write(bytes(1000))
    assert not house.origin.last.cancelled
    house.origin.last.write(bytes(1000))
    assert house.origin.last.cancelled
    house.assert_nothing_is_left()
