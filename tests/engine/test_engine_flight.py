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
