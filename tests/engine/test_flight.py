"""One request for all who wait: what it brings to whom, who may leave it when, and what is left of it."""

from __future__ import annotations

import pytest

from neighbours import FRESH, House, PlayedClient, PlayedRequest, SlowTier
from univocal.cache.rules import Rules
from univocal.engine.broadcast import WINDOW, CutShortError
from univocal.engine.flight import _NEXT, Flight, FlightPhase
from univocal.http.errors import RefusedError
from univocal.http.messages import Field, values
from univocal.store.leases import Lease
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything

UNREACHABLE = RefusedError("origin-unreachable")


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def slow() -> House:
    return House(SlowTier(MemoryStore()))


# Those who waited too long


def test_a_late_waiter_asks_for_itself_and_forgets_the_answer(house: House) -> None:
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


def test_a_patient_waiter_gets_its_answer(house: House) -> None:
    leader, follower = house.ask(), house.ask()
    house.timers.wait(4.9)
    house.origin.last.answers(b"one")
    house.timers.wait(1)
    assert [client.body for client in (leader, follower)] == [b"one", b"one"]
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


# Content that stalls after its head


@pytest.mark.parametrize("content", [b"", b"one "], ids=["none of it", "a part of it"])
@pytest.mark.parametrize("late", [False, True], ids=["before the head", "after it"])
def test_who_was_sent_nothing_of_stalled_content_asks_by_itself(
    house: House, content: bytes, late: bool
) -> None:
    leader = house.ask()
    early = None if late else house.ask()
    stalled = house.origin.last
    stalled.start()
    if late:
        stalled.write(content)
    follower = early or house.ask()
    assert (leader.status, follower.status, len(house.origin.asked)) == (200, 0, 1)
    house.timers.wait(4.9)
    assert len(house.origin.asked) == 1
    house.timers.wait(0.1)
    house.origin.last.answers(b"two")
    assert (follower.status, follower.body, follower.state) == (200, b"two", "finished")
    stalled.write(b"three")
    stalled.finish()
    assert (leader.body, leader.state) == ((content if late else b"") + b"three", "finished")
    assert house.stored() == [b"two"]
    assert "fwd=uri-miss" in follower.handling
    house.assert_nothing_is_left()


def test_content_that_continues_in_time_serves_all_who_joined(house: House) -> None:
    leader, early = both(house)
    house.timers.wait(4)
    house.origin.last.start()
    house.timers.wait(4)  # counted from the head: that is progress
    assert (leader.status, early.status) == (200, 0)
    house.origin.last.write(b"one ")
    late = house.ask()
    assert (early.status, late.status) == (200, 0)
    house.timers.wait(4)
    house.origin.last.write(b"two")
    house.timers.wait(60)  # who has been sent a part waits for the rest
    house.origin.last.finish()
    assert {client.body for client in (leader, early, late)} == {b"one two"}
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


def test_a_response_without_content_is_for_all_who_joined(house: House) -> None:
    clients = both(house)
    house.origin.last.answers()
    assert [(client.status, client.body, client.state) for client in clients] == [(200, b"", "finished")] * 2
    house.assert_nothing_is_left()


def test_a_follower_of_cut_content_asks_for_itself(house: House) -> None:
    leader, follower = both(house)
    house.origin.last.start()
    late = house.ask()
    house.origin.last.fail(RefusedError("origin-bad-response"))
    assert (leader.state, follower.state, late.state) == ("cut", "", "")
    for asked in house.origin.asked[1:]:
        asked.answers(b"page")
    assert [(client.status, client.body) for client in (follower, late)] == [(200, b"page")] * 2
    house.assert_nothing_is_left()


def test_a_stall_frees_all_who_wait_and_newcomers(house: House) -> None:
    clients = [house.ask() for _ in range(50)]
    house.origin.last.start()
    house.timers.wait(3)
    clients += [house.ask() for _ in range(50)]
    house.timers.wait(2)
    assert len(house.origin.asked) == 100
    clients.append(house.ask())
    for asked in house.origin.asked[1:]:
        asked.start()  # their content stalls, too: it is for each of them alone
    house.timers.wait(60)
    assert len(house.origin.asked) == 101
    for asked in house.origin.asked[1:]:
        asked.write(b"page")
        asked.finish()
    assert {client.body for client in clients[1:]} == {b"page"}
    assert clients[0].state == ""
    clients[0].leave()
    house.assert_nothing_is_left()


@pytest.mark.parametrize("leader_stays", [True, False])
def test_who_leaves_while_content_stalls_leaves_nothing_behind(house: House, leader_stays: bool) -> None:
    leader, follower = both(house)
    stalled = house.origin.last
    stalled.start()
    for client in (follower,) if leader_stays else (leader, follower):
        client.leave()
    house.timers.wait(60)
    assert (len(house.origin.asked), stalled.cancelled) == (1, not leader_stays)
    stalled.write(b"page")
    stalled.finish()
    assert leader.body == (b"page" if leader_stays else b"")
    house.assert_nothing_is_left()


def test_a_purge_affects_stalled_and_later_requests(house: House) -> None:
    leader, follower = both(house)
    stalled = house.origin.last
    stalled.start()
    house.timers.wait(5)
    house.purge()
    house.origin.last.answers(b"page")
    stalled.write(b"page")
    stalled.finish()
    assert house.stored() == []
    assert (leader.body, follower.body) == (b"page", b"page")
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
def test_leaving_an_answer_within_ask_leaves_nothing(house: House, leaves: int | None) -> None:
    def script(asked: PlayedRequest) -> None:
        asked.interim()
        asked.answers(b"one", b"two")

    house.origin.script = script
    client = house.ask(client=PlayedClient(leaves=leaves))
    assert client.state == ("left" if leaves else "finished")
    assert house.stored() == ([] if leaves else [b"onetwo"])
    house.assert_nothing_is_left()


def test_leaving_at_an_interim_response_within_ask_drops_the_rest(house: House) -> None:
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


FAILURES_TO_REFRESH = [503, 429, UNREACHABLE, RefusedError("origin-timeout"), "cut"]


def fail_as(asked: PlayedRequest, failure: object) -> None:
    """Let a request to the origin server come to nothing."""
    if isinstance(failure, int):
        asked.answers(b"ill", status=failure, fields=[])
    elif isinstance(failure, Exception):
        asked.fail(failure)
    else:
        asked.start(fields=STALE)
        asked.fail(CutShortError())


@pytest.mark.parametrize("failure", FAILURES_TO_REFRESH, ids=str)
def test_a_failed_refresh_is_tried_ever_more_rarely(stale: House, failure: object) -> None:
    attempts = 2
    for pause in (1, 2, 4, 8, 16, 30, 30):
        assert [stale.ask().body for _ in range(3)] == [b"old"] * 3
        assert len(stale.origin.asked) == attempts
        fail_as(stale.origin.last, failure)
        stale.timers.wait(pause - 0.1)
        assert stale.ask().body == b"old"
        assert len(stale.origin.asked) == attempts
        stale.timers.wait(0.1)
        attempts += 1
    stale.ask()
    stale.origin.last.answers(b"new", fields=STALE)
    assert stale.ask().body == b"new"
    stale.timers.wait(2)
    stale.ask()  # what is new has not failed yet
    assert len(stale.origin.asked) == attempts + 1
    stale.origin.last.answers(status=304, fields=STALE)
    stale.assert_nothing_is_left()


WINDOW_FOR_ERRORS = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]


@pytest.fixture
def failing(house: House) -> House:
    """A house with a response that may be served while the origin server fails, as it has just done."""
    house.store_away(b"old", fields=WINDOW_FOR_ERRORS)
    house.timers.wait(2)
    client = house.ask()
    house.origin.last.answers(b"ill", status=503, fields=[])
    assert client.body == b"old"
    return house


@pytest.mark.parametrize("failure", [503, UNREACHABLE, RefusedError("origin-timeout")], ids=str)
def test_while_refreshes_fail_one_request_tries(failing: House, failure: object) -> None:
    for attempts, pause in enumerate((1, 2, 4, 8, 16, 30, 30), 2):
        assert all("hit" in failing.ask().handling for _ in range(3))
        assert len(failing.origin.asked) == attempts
        failing.timers.wait(pause)
        trier = failing.ask()
        assert trier.state == ""
        failing.timers.wait(20)  # it hangs, and nobody waits for it
        assert [failing.ask().body for _ in range(3)] == [b"old"] * 3
        assert len(failing.origin.asked) == attempts + 1
        fail_as(failing.origin.last, failure)
        assert trier.body == b"old"
    failing.assert_nothing_is_left()


@pytest.mark.parametrize("begins", [False, True], ids=["no head", "stalled content"])
def test_a_hanging_refresh_lets_nobody_else_ask(house: House, begins: bool) -> None:
    house.store_away(b"old", fields=WINDOW_FOR_ERRORS)
    house.timers.wait(2)
    trier, early = both(house)
    house.timers.wait(1)
    late = house.ask()
    if begins:
        house.origin.last.start()
    house.timers.wait(5)
    assert [client.body for client in (early, late, house.ask(), house.ask())] == [b"old"] * 4
    assert (len(house.origin.asked), trier.state) == (2, "")
    if not begins:
        house.origin.last.start()
    house.origin.last.write(b"new")
    house.origin.last.finish()
    assert trier.body == b"new"
    house.assert_nothing_is_left()


def test_after_the_window_for_errors_each_request_asks(failing: House) -> None:
    failing.timers.wait(600)
    failing.ask()
    failing.origin.last.answers(b"ill", status=503, fields=[])
    client = failing.ask()
    failing.origin.last.answers(b"ill", status=503, fields=[])
    assert (client.status, len(failing.origin.asked)) == (503, 4)
    failing.assert_nothing_is_left()


def test_a_trier_that_leaves_lets_another_try(failing: House) -> None:
    failing.timers.wait(1)
    failing.ask().leave()
    client = failing.ask()
    failing.origin.last.answers(b"new", fields=WINDOW_FOR_ERRORS)
    assert (client.body, failing.ask().body) == (b"new", b"new")
    failing.assert_nothing_is_left()


@pytest.mark.parametrize("field", [(b"cache-control", b"no-cache"), (b"cache-control", b"max-age=0")])
def test_who_asks_the_origin_server_itself_is_not_spared(failing: House, field: Field) -> None:
    failing.ask(b"/a", b"GET", field)
    assert len(failing.origin.asked) == 3
    failing.origin.last.answers(b"new", fields=WINDOW_FOR_ERRORS)
    assert failing.ask().body == b"new"
    failing.assert_nothing_is_left()


def test_an_odd_request_s_failure_keeps_nothing_stale(house: House) -> None:
    house.store_away(b"old", fields=WINDOW_FOR_ERRORS)
    house.timers.wait(2)
    house.ask(b"/a", b"GET", (b"x-bad", b"1"))
    house.origin.last.answers(b"ill", status=500, fields=[])
    assert house.ask(b"/a", b"GET", (b"x-bad", b"2")).body == b"old"
    assert len(house.origin.asked) == 2
    client = house.ask()
    house.origin.last.answers(b"new", fields=WINDOW_FOR_ERRORS)
    assert client.body == b"new"
    house.assert_nothing_is_left()


def test_a_response_purged_while_served_is_not_refetched(stale: House) -> None:
    admission = stale.admit()
    stale.purge()
    stale.flights.refresh(admission, stale.origin)
    assert len(stale.origin.asked) == 1
    stale.assert_nothing_is_left()


def test_unstored_refreshes_run_one_at_a_time(stale: House) -> None:
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


def test_clients_with_the_content_do_not_end_stored_responses(house: House) -> None:
    client = house.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
    house.origin.last.start(fields=STALE)
    assert (client.status, client.state) == (304, "finished")
    assert not house.origin.last.cancelled
    house.origin.last.write(b"whole")
    house.origin.last.finish()
    assert house.stored() == [b"whole"]
    house.assert_nothing_is_left()


def test_content_too_large_to_store_is_read_for_nobody() -> None:
    house = House(store=MemoryStore(max_object_bytes=2000))
    client = house.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
    house.origin.last.start(fields=STALE)
    assert (client.status, client.state) == (304, "finished")
    house.origin.last.write(bytes(1000))
    assert not house.origin.last.cancelled
    house.origin.last.write(bytes(1000))
    assert house.origin.last.cancelled
    house.assert_nothing_is_left()


# Nobody reads: what is fetched to be stored alone


@pytest.fixture
def refreshing() -> House:
    """A house in which a stale response has been served, and is being fetched again."""
    house = House(store=MemoryStore(max_object_bytes=1 << 20))
    house.store_away(b"old", fields=[(b"cache-control", b"max-age=1, stale-while-revalidate=600")])
    house.clock.now += 5
    assert (house.ask().body, len(house.origin.asked)) == (b"old", 2)
    return house


def test_a_refresh_brings_what_is_new(refreshing: House) -> None:
    refreshing.origin.last.answers(b"new")
    assert (refreshing.ask().body, len(refreshing.origin.asked)) == (b"new", 2)
    refreshing.assert_nothing_is_left()


def test_a_too_large_refresh_ends_the_old_response(refreshing: House) -> None:
    endless = refreshing.origin.last
    endless.start()
    for _ in range(3):
        endless.write(bytes(400_000))
    assert endless.cancelled
    refreshing.assert_nothing_is_left()
    assert not refreshing.stored()
    refreshing.ask()
    assert len(refreshing.origin.asked) == 3


@pytest.mark.parametrize(("octets", "cancelled"), [(200_000, False), (300_000, True)])
def test_a_refresh_reads_little_of_what_is_not_stored(
    refreshing: House, octets: int, cancelled: bool
) -> None:
    answer = refreshing.origin.last
    answer.start(fields=[(b"cache-control", b"no-store")])
    answer.write(bytes(octets))
    assert answer.cancelled is cancelled
    answer.finish()
    refreshing.assert_nothing_is_left()


def test_a_refresh_has_its_time(refreshing: House) -> None:
    silent = refreshing.origin.last
    refreshing.timers.wait(59)
    assert not silent.cancelled
    refreshing.ask()
    assert len(refreshing.origin.asked) == 2
    refreshing.timers.wait(1)
    assert silent.cancelled
    refreshing.assert_nothing_is_left()
    refreshing.timers.wait(1)
    refreshing.ask()
    refreshing.origin.last.answers(b"new")
    assert refreshing.stored() == [b"new"]


def test_an_unwanted_fetch_has_its_time_unless_somebody_comes(house: House) -> None:
    for comes in (False, True):
        client = house.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
        endless = house.origin.last
        endless.start(fields=STALE)
        endless.write(b"one ")
        assert (client.status, client.state) == (304, "finished")
        reader = house.ask() if comes else None
        endless.write(b"and ")
        house.timers.wait(60)
        assert endless.cancelled is not comes
        endless.write(b"two")
        if reader is not None:
            assert reader.body == b"one and two"
            reader.leave()
            assert endless.cancelled
    house.assert_nothing_is_left()


def refuses_to_ask(asked: PlayedRequest) -> None:
    raise ValueError("the event loop is closed")


def test_an_origin_that_cannot_be_asked_is_unreachable(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.origin.script = refuses_to_ask
    client = house.ask()
    assert (client.status, client.state) == (502, "finished")
    assert "internal error while sending a request" in caplog.text
    house.origin.asked.clear()
    house.assert_nothing_is_left()
    house.origin.script = None
    house.store_away(b"after all")
    assert house.ask().body == b"after all"


def test_a_refresh_without_an_origin_leaves_nothing(refreshing: House) -> None:
    refreshing.timers.wait(60)
    refreshing.origin.script = refuses_to_ask
    assert refreshing.ask().body == b"old"
    refreshing.origin.asked.pop()
    refreshing.assert_nothing_is_left()


def test_what_ends_before_its_head_is_told_as_a_problem(house: House) -> None:
    leader, follower = house.ask(), house.ask()
    house.origin.last.fail(CutShortError())
    assert (leader.status, leader.state) == (502, "finished")
    assert b"origin-bad-response" in leader.body
    house.origin.last.fail(CutShortError())  # who followed has asked by itself
    assert (follower.status, follower.state) == (502, "finished")
    begun = house.ask()
    house.origin.last.start()
    house.origin.last.fail(CutShortError())
    assert (begun.status, begun.state) == (200, "cut")
    house.assert_nothing_is_left()


# What a flight brings, to who leads it and to who follows

ONE = [*FRESH, (b"etag", b'"1"')]


def both(house: House, *fields: tuple[bytes, bytes]) -> tuple[PlayedClient, PlayedClient]:
    """One who leads a flight and one who follows; only the follower sends the fields."""
    leader = house.ask()
    follower = house.ask(b"/a", b"GET", *fields)
    assert (leader.state, follower.state) == ("", "")
    return leader, follower


def test_found_elsewhere_answers_both(slow: House) -> None:
    slow.store_away(b"theirs", fields=ONE)
    slow.slow.elsewhere += slow.store.lookup(slow.key())
    slow.store.purge(Everything(), slow.clock())
    clients = both(slow)
    slow.drain()
    assert [client.body for client in clients] == [b"theirs"] * 2
    assert [client.handling for client in clients] == [{"hit", "ttl=60", "detail=shared"}] * 2
    assert len(slow.origin.asked) == 1
    slow.assert_nothing_is_left()


def test_renewed_answers_both(house: House) -> None:
    house.store_away(b"stored", fields=ONE)
    house.purge(soft=True)
    clients = both(house)
    house.origin.last.start(304, ONE)
    assert [client.state for client in clients] == ["", ""]
    house.origin.last.finish()
    assert [client.body for client in clients] == [b"stored"] * 2
    assert [client.handling for client in clients] == [
        {"fwd=stale", "fwd-status=304"},
        {"fwd=stale", "collapsed"},
    ]
    assert [outcome.handling.fwd_status for outcome in house.outcomes[-2:]] == [304, 304]
    house.assert_nothing_is_left()


def test_relayed_is_streamed_to_both(house: House) -> None:
    clients = both(house)
    house.origin.last.interim()
    house.origin.last.start(fields=ONE)
    house.origin.last.write(b"one")
    assert [client.body for client in clients] == [b"one"] * 2
    house.origin.last.write(b"two")
    house.origin.last.finish()
    assert [client.body for client in clients] == [b"onetwo"] * 2
    assert [client.interims for client in clients] == [[103], []]
    house.assert_nothing_is_left()


def test_what_is_not_stored_is_for_the_leader_alone(house: House) -> None:
    leader, follower = both(house)
    house.origin.last.answers(b"mine", fields=[(b"cache-control", b"no-store")])
    assert (leader.body, follower.state) == (b"mine", "")
    house.origin.last.answers(b"yours", fields=[(b"cache-control", b"no-store")])
    assert follower.body == b"yours"
    house.assert_nothing_is_left()


def test_a_follower_of_another_variant_asks_for_itself(house: House) -> None:
    leader, follower = both(house, (b"accept-language", b"ru"))
    varied = [*FRESH, (b"vary", b"accept-language")]
    house.origin.asked[0].answers(b"any", fields=varied)
    assert (leader.body, follower.state) == (b"any", "")
    house.origin.asked[1].answers(b"ru", fields=varied)
    assert follower.body == b"ru"
    assert sorted(house.stored()) == [b"any", b"ru"]
    house.assert_nothing_is_left()


def test_failed_fails_both(house: House) -> None:
    clients = both(house)
    house.origin.last.fail(UNREACHABLE)
    assert [(client.status, client.state) for client in clients] == [(502, "finished")] * 2
    house.assert_nothing_is_left()


def test_an_applications_error_is_raised_by_both_doors(house: House) -> None:
    clients, errors = both(house), [ValueError(), ValueError()]
    for error in errors:
        house.origin.last.fail(error)
    assert [client.exchange.error and client.exchange.error[0] for client in clients] == errors
    assert [(client.status, client.state) for client in clients] == [(0, "cut")] * 2
    house.assert_nothing_is_left()


@pytest.mark.parametrize(
    "failure",
    [*map(RefusedError, ("origin-timeout", "origin-bad-response")), ValueError(), 400, 403, 500, 503],
    ids=str,
)
def test_a_failure_by_the_leaders_fault_is_its_own(house: House, failure: Exception | int) -> None:
    leader, follower = both(house)
    if isinstance(failure, int):
        house.origin.last.answers(b"no", status=failure)
    else:
        house.origin.last.fail(failure)
    assert (leader.state != "", follower.state) == (True, "")
    house.origin.last.answers(b"page")
    assert (follower.status, follower.body) == (200, b"page")
    assert len(house.origin.asked) == 2
    house.assert_nothing_is_left()


FAILURES = [*map(RefusedError, ("origin-timeout", "origin-bad-response")), ValueError()]


@pytest.mark.parametrize("failure", [*FAILURES, 400, 401, 403, 404, 429, 500, 503, 204], ids=str)
def test_an_answer_for_nobody_else_frees_all_and_newcomers(house: House, failure: Exception | int) -> None:
    clients = [house.ask() for _ in range(50)]
    if isinstance(failure, int):
        house.origin.last.start(failure, [(b"cache-control", b"no-store")])
    else:
        house.origin.last.fail(failure)
    assert len(house.origin.asked) == 50
    clients += [house.ask() for _ in range(50)]
    assert len(house.origin.asked) == 100
    house.origin.asked[0].finish()
    for asked in house.origin.asked[1:]:
        asked.answers(b"page")
    assert {client.state for client in clients} <= {"finished", "cut"}
    assert {client.body for client in clients[1:]} == {b"page"}
    assert house.ask().handling == {"hit", "ttl=60"}
    house.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("status", "control", "rules", "seconds"),
    [
        (200, b"no-store", Rules(), 120),
        (200, b"private, max-age=3600", Rules(ttl=3600), 120),
        (200, b"no-store", Rules(ttl=30), 30),
        (503, b"", Rules(), 10),
        (404, b"no-store", Rules(), 10),
        (503, b"no-store", Rules(ttl_by_status={503: 5}), 5),
    ],
)
def test_a_key_is_passed_by_for_its_seconds(
    status: int, control: bytes, rules: Rules, seconds: float
) -> None:
    house = House(rules=rules)
    house.ask()
    house.origin.last.answers(b"mine", status=status, fields=[(b"cache-control", control)])
    house.clock.now += seconds - 0.1
    for _ in range(3):
        house.ask()
    assert len(house.origin.asked) == 4
    house.clock.now += 0.1
    for _ in range(3):
        house.ask()
    assert len(house.origin.asked) == 5
    for client in house.clients:
        client.leave()
    house.assert_nothing_is_left()


def test_failures_by_an_odd_request_let_no_other_wait(house: House) -> None:
    """Neither before the first of them, nor after it, nor by a field whose name is new each time."""
    for number in range(4):
        attacker = house.ask(b"/a", b"GET", (b"x-bad-%d" % (number // 2), b"1"))
        slow = house.origin.last
        client = house.ask()
        assert house.origin.last is not slow
        house.origin.last.answers(b"page", fields=[(b"cache-control", b"max-age=1")])
        assert client.body == b"page"
        slow.answers(b"no", status=400)
        assert attacker.status == 400
        house.timers.wait(20)
    house.assert_nothing_is_left()


def test_odd_requests_wait_for_ordinary_ones_and_their_like(house: House) -> None:
    odd = (b"cookie", b"session=1")
    first, like = house.ask(b"/a", b"GET", odd), house.ask(b"/a", b"GET", odd)
    ordinary, other = house.ask(), house.ask(b"/a", b"GET", (b"cookie", b"theme=dark"))
    assert len(house.origin.asked) == 2
    for asked in house.origin.asked:
        asked.answers(b"page")
    assert {client.body for client in (first, like, ordinary, other)} == {b"page"}
    assert ["collapsed" in client.handling for client in (first, like, ordinary, other)] == [
        *(False, True, False, True)
    ]
    house.assert_nothing_is_left()


def test_passing_by_stores_nothing_from_before_a_purge(house: House) -> None:
    house.ask()
    house.origin.last.answers(b"no", status=503)
    client = house.ask()
    passing = house.origin.last
    house.purge()
    passing.answers(b"old")
    assert (client.body, house.stored()) == (b"old", [])
    assert "stored" not in client.handling
    client = house.ask()
    house.purge(b"/other")
    house.origin.last.answers(b"new")
    assert (client.body, house.stored()) == (b"new", [b"new"])
    house.assert_nothing_is_left()


def test_those_who_wait_behind_another_node_in_vain_are_freed() -> None:
    house = House(WaitingTier(MemoryStore()))
    clients = [house.ask() for _ in range(5)]
    house.drain()
    assert len(house.origin.asked) == 5
    house.ask()
    house.drain()
    assert len(house.origin.asked) == 6
    for asked in house.origin.asked:
        asked.answers(b"page")
    house.drain()
    assert {client.body for client in clients} == {b"page"}
    house.assert_nothing_is_left()


def test_behind_another_node_s_hanging_refresh_one_request_asks() -> None:
    house = House(WaitingTier(MemoryStore(), slow=("fill",)))
    house.store_away(b"old", fields=WINDOW_FOR_ERRORS)
    house.slow.elsewhere += house.store.lookup(house.key())
    house.timers.wait(2)
    clients = [house.ask() for _ in range(5)]
    house.drain()
    assert [client.body for client in clients] == [b"", *[b"old"] * 4]
    house.origin.last.answers(b"new")
    assert (clients[0].body, len(house.origin.asked)) == (b"new", 2)
    house.assert_nothing_is_left()


class WaitingTier(SlowTier):
    """Another node's fetch was waited for, and stored nothing."""

    def begin(self, key: bytes, now: float, since: int | None = None) -> Lease:
        lease = super().begin(key, now, since)
        lease.waited = True
        return lease


@pytest.mark.parametrize("status", [None, 503])
def test_something_stale_answers_both_in_place_of_a_failure(slow: House, status: int | None) -> None:
    fields = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]
    slow.store_away(b"stale", fields=fields)
    slow.timers.wait(5)
    clients = both(slow)
    slow.drain()
    if status is None:
        slow.origin.last.fail(UNREACHABLE)
    else:
        slow.origin.last.answers(b"ill", status=status)
    slow.drain()
    assert [(client.status, client.body) for client in clients] == [(200, b"stale")] * 2
    slow.assert_nothing_is_left()


def test_what_is_stale_here_no_longer_is_looked_for_elsewhere(slow: House) -> None:
    slow.store_away(b"stale", fields=[(b"cache-control", b"max-age=1, stale-if-error=600")])
    slow.timers.wait(5)
    slow.slow.elsewhere += slow.store.lookup(slow.key())
    client = slow.ask()
    slow.drain()
    slow.store.purge(Everything(), slow.clock())
    slow.origin.last.fail(UNREACHABLE)
    assert client.state == ""
    slow.slow.go_on("recall")
    assert client.body == b"stale"
    slow.drain()
    slow.assert_nothing_is_left()


# Asked again


def test_a_304_about_another_response_refetches_it_once(house: House) -> None:
    house.store_away(b"old", fields=ONE)
    house.purge(soft=True)
    clients = both(house)
    other = [*FRESH, (b"etag", b'"2"')]
    house.origin.last.answers(status=304, fields=other)
    assert house.origin.last.field(b"if-none-match") is None
    house.origin.last.answers(status=304, fields=other)  # to no condition at all
    assert [client.status for client in clients] == [502, 0]
    for _ in range(2):  # the follower has asked for all of it at once, and asks once more
        assert [client.status for client in clients] == [502, 0]
        house.origin.last.answers(status=304, fields=other)
    assert [client.status for client in clients] == [502, 502]
    assert len(house.origin.asked) == 5
    house.assert_nothing_is_left()


@pytest.mark.parametrize("kind", ["a miss", "past the cache", "HEAD"])
def test_a_304_to_no_condition_is_asked_about_once_more(house: House, kind: str) -> None:
    fields: list[Field] = [(b"content-length", b"1")] if kind == "past the cache" else []
    client = house.ask(b"/a", b"HEAD" if kind == "HEAD" else b"GET", *fields)
    house.origin.last.answers(status=304, fields=ONE)
    assert (client.status, len(house.origin.asked)) == (0, 2)
    house.origin.last.answers(b"" if kind == "HEAD" else b"whole", fields=FRESH)
    assert client.status == 200
    house.assert_nothing_is_left()


@pytest.mark.parametrize("status", [412, 416])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_an_answer_to_our_own_question_is_not_the_clients(house: House, status: int, part: bool) -> None:
    if part:
        house.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
        house.origin.last.answers(b"old", status=206, fields=[*ONE, (b"content-range", b"bytes 0-2/6")])
    else:
        house.store_away(b"old", fields=ONE)
        house.purge(soft=True)
    client = house.ask()
    own = b"range" if part else b"if-none-match"
    assert house.origin.last.field(own) is not None
    house.origin.last.answers(b"failed", status=status)
    assert house.origin.last.field(own) is None
    house.origin.last.answers(b"new", fields=FRESH)
    assert (client.status, client.body) == (200, b"new")
    assert house.ask().body == b"new"
    house.assert_nothing_is_left()


def test_a_412_to_no_condition_of_ours_is_the_clients(house: House) -> None:
    client = house.ask()
    house.origin.last.answers(b"failed", status=412)
    assert (client.status, client.body, len(house.origin.asked)) == (412, b"failed", 1)


def test_a_412_to_the_second_question_is_the_clients(house: House) -> None:
    house.store_away(b"old", fields=ONE)
    house.purge(soft=True)
    client = house.ask()
    for _ in range(2):
        house.origin.last.answers(b"failed", status=412)
    assert (client.status, len(house.origin.asked)) == (412, 3)
    house.assert_nothing_is_left()


OWN: list[Field] = [*FRESH, (b"location", b"/%61")]


def test_a_redirect_to_the_requests_own_key_is_followed(house: House) -> None:
    clients = both(house)
    house.origin.last.answers(b"moved", status=301, fields=OWN)
    assert [client.state for client in clients] == ["", ""]
    assert house.origin.last.request.target == b"/%61"
    house.origin.last.answers(b"whole", fields=FRESH)
    assert [client.body for client in clients] == [b"whole"] * 2
    assert {"fwd=uri-miss", "stored", "detail=own-spelling"} <= clients[0].handling
    assert house.ask().body == b"whole"
    house.assert_nothing_is_left()


def test_long_content_of_such_a_redirect_is_not_waited_for(house: House) -> None:
    client = house.ask()
    redirect = house.origin.last
    redirect.start(status=301, fields=OWN)
    redirect.write(b"0" * 20_000)
    assert redirect.cancelled
    house.origin.last.answers(b"whole", fields=FRESH)
    assert client.body == b"whole"
    house.assert_nothing_is_left()


def test_a_second_such_redirect_goes_on_unstored(house: House, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        client = house.ask()
        for _ in range(2):
            house.origin.last.answers(status=301, fields=OWN)
        assert (client.status, values(client.fields, b"location")) == (301, [b"/%61"])
        assert client.handling == {"fwd=uri-miss", "detail=own-spelling"}
    assert len(house.origin.asked) == 4
    messages = [record.getMessage() for record in caplog.records]
    assert [message.endswith('set forward = "received" there') for message in messages] == [True]


def test_a_client_that_leaves_ends_the_second_question(house: House) -> None:
    client = house.ask()
    house.origin.last.answers(status=301, fields=OWN)
    client.leave()
    assert house.origin.last.cancelled
    house.assert_nothing_is_left()


def test_a_part_is_completed_for_both(house: House) -> None:
    told = [*ONE, (b"content-range", b"bytes 0-2/6")]
    house.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
    house.origin.last.answers(b"one", status=206, fields=told)
    clients = both(house)
    assert (house.origin.last.field(b"range"), house.origin.last.field(b"if-range")) == (b"bytes=3-", b'"1"')
    house.origin.last.answers(b"two", status=206, fields=[*ONE, (b"content-range", b"bytes 3-5/6")])
    assert [(client.status, client.body) for client in clients] == [(200, b"onetwo")] * 2
    assert house.stored() == [b"onetwo"]
    house.assert_nothing_is_left()


# While the store is asked


@pytest.mark.parametrize("end", ["finish", "fail", "more"])
def test_input_during_a_store_lookup_waits_in_order(end: str) -> None:
    house = House(SlowTier(MemoryStore(), ("invalidate",)))
    client = house.ask(b"/a", b"POST")
    asked = house.origin.last
    asked.start()
    assert not asked.write(b"one")
    assert not asked.write(b"two")
    if end == "finish":
        asked.finish()
    elif end == "fail":
        asked.fail(CutShortError())
    assert (client.status, client.body) == (0, b"")
    house.drain()
    assert (client.status, client.body) == (200, b"onetwo")
    assert client.state == {"finish": "finished", "fail": "cut", "more": ""}[end]
    if end == "more":
        assert asked.takes  # it may go on
        asked.finish()
    house.assert_nothing_is_left()


def test_the_origin_continues_once_held_content_has_room() -> None:
    house = House(SlowTier(MemoryStore(), ("invalidate",)))
    client = house.ask(b"/a", b"POST", client=PlayedClient(takes=1))
    asked = house.origin.last
    asked.start()
    asked.write(b"0")
    asked.write(bytes(WINDOW + 1))
    house.drain()
    assert not asked.takes
    client.resume()
    assert asked.takes
    asked.finish()
    client.resume()
    assert len(client.body) == WINDOW + 2
    house.assert_nothing_is_left()


# Those who leave


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_the_others_get_what_one_leaves(house: House, who: str) -> None:
    leader, follower = both(house)
    house.origin.last.start()
    leaving, staying = (leader, follower) if who == "leader" else (follower, leader)
    leaving.leave()
    assert not house.origin.last.cancelled
    house.origin.last.write(b"all")
    house.origin.last.finish()
    assert (staying.body, leaving.body) == (b"all", b"")
    house.assert_nothing_is_left()


@pytest.mark.parametrize("when", ["filling", "asked", "judged", "answering"])
def test_the_last_who_leaves_gives_the_request_up(when: str) -> None:
    house = House(SlowTier(MemoryStore(), ("fill", "keeps") if when in {"filling", "judged"} else ()))
    if when == "judged":
        house.store_away(b"old", fields=ONE)
        house.purge(soft=True)
    clients = both(house)
    if when != "filling":
        house.drain()
        if when == "judged":
            house.origin.last.start(304, ONE)
        elif when == "answering":
            house.origin.last.start()
            house.origin.last.write(bytes(1000))
            assert house.store.stats.reserved
    for client in clients:
        client.leave()
    assert all(asked.cancelled or asked.over for asked in house.origin.asked)
    assert house.store.stats.reserved == 0
    newcomer = house.ask()  # joins nothing of that
    house.drain()
    house.origin.last.answers(b"new")
    house.drain()
    assert newcomer.body == b"new"
    house.assert_nothing_is_left()


def test_a_stopped_reader_gets_the_stored_rest(house: House) -> None:
    client = house.ask(client=PlayedClient(takes=1))
    house.origin.last.answers(b"one", b"two")
    assert (house.store.stats.reserved, house.stored()) == (0, [b"onetwo"])
    house.purge()
    assert (client.body, client.state) == (b"one", "")
    client.resume()
    assert (client.body, client.state) == (b"onetwo", "finished")
    house.assert_nothing_is_left()


@pytest.mark.parametrize("fields", [FRESH, [(b"cache-control", b"no-store")]])
def test_the_only_reader_hears_of_a_failure_after_the_content(house: House, fields: list[Field]) -> None:
    client = house.ask(client=PlayedClient(takes=1))
    asked = house.origin.last
    asked.start(fields=fields)
    for chunk in (b"one", b"two"):
        asked.write(chunk)
    asked.fail(CutShortError())
    assert (client.body, client.state) == (b"one", "")
    client.resume()
    assert (client.body, client.state) == (b"onetwo", "")
    client.resume()
    assert client.state == "cut"
    house.assert_nothing_is_left()


def test_an_only_reader_without_backlog_hears_of_failure_at_once(house: House) -> None:
    client = house.ask()
    house.origin.last.start()
    house.origin.last.write(b"one")
    house.origin.last.fail(CutShortError())
    assert (client.body, client.state) == (b"one", "cut")
    house.assert_nothing_is_left()


def test_a_single_reader_needs_no_broadcast_until_another_joins(house: House) -> None:
    first = house.ask()
    asked = house.origin.last
    flight = asked.answer
    assert isinstance(flight, Flight)
    asked.start()
    asked.write(b"one")
    assert flight.broadcast is None
    second = house.ask()
    assert flight.broadcast is not None
    asked.write(b"two")
    asked.finish()
    assert [client.body for client in (first, second)] == [b"onetwo", b"onetwo"]
    house.assert_nothing_is_left()


def test_a_reader_that_joins_at_the_end_gets_everything() -> None:
    house = House(SlowTier(MemoryStore(), ["end"]))
    house.ask()
    house.origin.last.answers(b"one", b"two")
    second = house.ask()
    assert (second.body, second.state) == (b"onetwo", "finished")
    assert len(house.origin.asked) == 1
    house.drain()
    house.assert_nothing_is_left()


def announced(octets: int) -> list[Field]:
    return [*FRESH, (b"content-length", b"%d" % octets)]


def test_idle_readers_keep_no_response_from_being_stored() -> None:
    house = House(store=MemoryStore(max_bytes=400_000, max_object_bytes=50_000))
    for number in range(5):
        house.ask(b"/%d" % number, client=PlayedClient(takes=0))
        house.origin.last.answers(b"x" * 20_000, b"y" * 20_000, fields=announced(40_000))
    assert house.store.stats.reserved == 0
    other = house.ask(b"/other")
    house.origin.last.answers(b"z" * 40_000, fields=announced(40_000))
    assert "stored" in other.handling
    assert house.stored(b"/other") == [b"z" * 40_000]
    for client in house.clients:
        client.leave()
    house.assert_nothing_is_left()


@pytest.mark.parametrize("reads", [True, False])
def test_content_without_a_length_runs_ahead_within_half_the_room(
    reads: bool,
) -> None:
    house = House(store=MemoryStore(max_bytes=4 * 8 * WINDOW, max_object_bytes=6 * WINDOW))
    house.ask(client=PlayedClient(takes=None if reads else 0))
    asked = house.origin.last
    asked.start()
    for _ in range(5):
        asked.write(bytes(WINDOW))
    asked.finish()
    assert bool(house.stored()) is reads
    assert house.store.stats.reserved <= 4 * WINDOW + 5 * 100
    house.clients[0].leave()
    house.assert_nothing_is_left()


def test_dropped_content_returns_its_room_when_read() -> None:
    house = House(store=MemoryStore(max_bytes=16 * WINDOW, max_object_bytes=3 * WINDOW))
    slow = house.ask(client=PlayedClient(takes=1))
    asked = house.origin.last
    asked.start()
    for _ in range(3):
        asked.write(bytes(WINDOW))
    assert not asked.takes
    assert house.store.stats.reserved
    while not asked.takes:
        slow.resume()
    assert house.store.stats.reserved == 0
    asked.finish()
    while slow.full and not slow.state:
        slow.resume()
    assert (len(slow.body), slow.state) == (3 * WINDOW, "finished")
    house.assert_nothing_is_left()


@pytest.mark.parametrize(("under_way", "stored"), [(1, True), (2, False)])
def test_cache_status_says_stored_if_the_announced_content_fits(under_way: int, stored: bool) -> None:
    house = House(store=MemoryStore(max_bytes=400_000, max_object_bytes=50_000))
    for number in range(under_way):
        house.ask(b"/%d" % number)
        house.origin.last.start(200, announced(40_000))
    client = house.ask(b"/last")
    house.origin.last.answers(b"x" * 40_000, fields=announced(40_000))
    assert ("stored" in client.handling, bool(house.stored(b"/last"))) == (stored, stored)
    for each in house.clients:
        each.leave()
    house.assert_nothing_is_left()


def test_too_large_content_is_not_reported_as_stored() -> None:
    house = House(store=MemoryStore(max_bytes=400_000, max_object_bytes=50_000))
    house.ask()
    house.origin.last.answers(b"x" * 30_000, b"y" * 30_000)
    assert not house.stored()
    assert not house.outcomes[-1].handling.stored
    house.ask(b"/b")
    house.origin.last.answers(b"x" * 30_000)
    assert house.outcomes[-1].handling.stored


# Purges and unsafe methods


def test_a_response_purged_under_way_is_neither_joined_nor_stored(house: House) -> None:
    first = house.ask()
    house.origin.last.start()
    house.purge()
    second = house.ask()
    before, after = house.origin.asked
    after.answers(b"new")
    before.write(b"old")
    before.finish()
    assert (first.body, second.body) == (b"old", b"new")
    assert house.stored() == [b"new"]
    house.assert_nothing_is_left()


@pytest.mark.parametrize(("status", "left"), [(200, []), (302, []), (404, [b"old"]), (500, [b"old"])])
def test_an_unsafe_request_invalidates_before_its_client_hears(status: int, left: list[bytes]) -> None:
    house = House(SlowTier(MemoryStore(), ("invalidate",)))
    house.store_away(b"old")
    client = house.ask(b"/a", b"POST")
    house.origin.last.start(status, [])
    assert client.status == 0
    house.drain()
    assert (client.status, house.stored()) == (status, left)
    house.origin.last.finish()
    house.assert_nothing_is_left()


def test_a_head_learns_for_who_gets(house: House) -> None:
    house.store_away(b"old", fields=[*ONE, (b"content-length", b"3")])
    house.purge(soft=True)
    house.ask(b"/a", b"HEAD")
    house.origin.last.answers(fields=[*ONE, (b"content-length", b"3")])
    assert house.ask().handling == {"hit", "ttl=60"}
    house.assert_nothing_is_left()


def test_a_flight_refuses_a_phase_that_may_not_follow() -> None:
    house = House()
    house.ask()
    flight = house.origin.last.answer
    assert isinstance(flight, Flight)
    with pytest.raises(KeyError, match=r"ASKING.*SETTLING"):
        flight.finish()


def test_every_phase_can_be_reached_and_the_last_ends_it() -> None:
    reached = {FlightPhase.BEGUN}
    while more := {after for phase in reached for after in _NEXT[phase]} - reached:
        reached |= more
    assert reached == set(FlightPhase) == set(_NEXT)
    assert [phase for phase in FlightPhase if not _NEXT[phase]] == [FlightPhase.RECORDED]


def test_a_refresh_that_does_not_end_ends_the_old_response(refreshing: House) -> None:
    refreshing.origin.last.start()
    refreshing.origin.last.write(b"ne")
    refreshing.timers.wait(3600)
    assert refreshing.origin.last.cancelled
    assert not refreshing.stored()
    refreshing.assert_nothing_is_left()


def test_a_refresh_that_is_cut_leaves_the_old_response(refreshing: House) -> None:
    refreshing.origin.last.start()
    refreshing.origin.last.fail(RefusedError("origin-bad-response"))
    assert refreshing.stored() == [b"old"]


# Ranges of one resource

BYTES = bytes(range(100))


def ranged(first: int, last: int) -> Field:
    return b"range", b"bytes=%d-%d" % (first, last)


def answer_range(asked: PlayedRequest, complete: int = 100) -> None:
    """Answer as an origin server that knows ranges, or all of it if none is asked for."""
    wanted = asked.field(b"range")
    if wanted is None:
        asked.answers(BYTES[:50], BYTES[50:], fields=[*ONE, (b"content-length", b"100")])
        return
    first, last = map(int, wanted.removeprefix(b"bytes=").split(b"-"))
    placed = (b"content-range", b"bytes %d-%d/%d" % (first, last, complete))
    asked.answers(BYTES[first : last + 1], status=206, fields=[*ONE, placed])


def ask_for_ranges(house: House) -> list[PlayedClient]:
    """Five clients that ask for other bytes each."""
    return [house.ask(b"/a", b"GET", ranged(20 * number, 20 * number + 9)) for number in range(5)]


def five_ranges(house: House) -> list[PlayedClient]:
    """The same, while the origin server is asked for the first of them."""
    clients = ask_for_ranges(house)
    assert len(house.origin.asked) == 1
    return clients


def assert_each_has_its_own(clients: list[PlayedClient]) -> None:
    assert [client.body for client in clients] == [BYTES[20 * n : 20 * n + 10] for n in range(5)]
    assert {client.status for client in clients} == {206}
    for number, client in enumerate(clients):
        told = values(client.fields, b"content-range")
        assert told == [b"bytes %d-%d/100" % (20 * number, 20 * number + 9)]


def test_ranges_of_small_content_share_one_request(house: House) -> None:
    clients = five_ranges(house)
    answer_range(house.origin.last)
    assert len(house.origin.asked) == 2
    late, whole = house.ask(b"/a", b"GET", ranged(77, 78)), house.ask()
    assert house.origin.last.field(b"range") is None
    answer_range(house.origin.last)
    assert_each_has_its_own(clients)
    assert (late.body, whole.body, len(house.origin.asked)) == (BYTES[77:79], BYTES, 2)
    assert house.ask(b"/a", b"GET", ranged(3, 4)).handling == {"hit", "ttl=60"}
    house.assert_nothing_is_left()


@pytest.mark.parametrize("known", [True, False], ids=["length", "no length"])
def test_a_whole_answer_to_a_range_serves_all(house: House, known: bool) -> None:
    clients = five_ranges(house)
    whole = house.origin.last
    whole.start(fields=[*ONE, *([(b"content-length", b"100")] if known else [])])
    whole.write(BYTES[:33])
    whole.write(BYTES[33:])
    assert [bool(client.state) for client in clients] == [False, known, known, known, known]
    whole.finish()
    assert (clients[0].status, clients[0].body) == (200, BYTES)
    if known:
        assert_each_has_its_own([*ask_for_ranges(house)[:1], *clients[1:]])
    else:
        assert {(client.status, client.body) for client in clients} == {(200, BYTES)}
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


@pytest.mark.parametrize("kind", ["too large", "unknown length", "not stored", 416, 403, 500, "failure"])
def test_any_other_answer_to_a_range_frees_the_others(kind: str | int) -> None:
    house = House(store=MemoryStore(max_object_bytes=2000))
    clients = five_ranges(house)
    first = house.origin.last
    placed = b"bytes 0-9/%b" % (
        b"*" if kind == "unknown length" else b"3000" if kind == "too large" else b"100"
    )
    if isinstance(kind, int):
        first.answers(b"no", status=kind, fields=[])
    elif kind == "failure":
        first.fail(CutShortError())
    else:
        control = [(b"cache-control", b"no-store")] if kind == "not stored" else FRESH
        first.answers(BYTES[:10], status=206, fields=[*control, (b"content-range", placed)])
    assert len(house.origin.asked) == 5
    house.ask(b"/a", b"GET", ranged(91, 92))
    assert len(house.origin.asked) == 6
    for asked in house.origin.asked[1:]:
        answer_range(asked, 3000)
    assert [client.body for client in clients[1:]] == [BYTES[20 * n : 20 * n + 10] for n in range(1, 5)]
    house.assert_nothing_is_left()


def test_a_206_with_all_bytes_is_the_whole(house: House) -> None:
    clients = [house.ask(b"/a", b"GET", ranged(0, 99)), *ask_for_ranges(house)]
    answer_range(house.origin.last)
    assert (clients[0].status, clients[0].body) == (206, BYTES)
    assert_each_has_its_own(clients[1:])
    plain = house.ask()
    assert (plain.status, plain.body, plain.handling) == (200, BYTES, {"hit", "ttl=60"})
    assert not values(plain.fields, b"content-range")
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


def test_ranges_wait_for_a_request_for_all(house: House) -> None:
    whole = house.ask()
    clients = ask_for_ranges(house)
    assert len(house.origin.asked) == 1
    house.origin.last.start(fields=[*ONE, (b"content-length", b"100")])
    house.origin.last.write(BYTES[:15])
    whole.leave()
    assert (clients[0].state, clients[1].state) == ("finished", "")
    house.origin.last.write(BYTES[15:])
    house.origin.last.finish()
    assert_each_has_its_own(clients)
    assert house.stored() == [BYTES]
    house.assert_nothing_is_left()


def test_early_ranges_leave_the_whole_to_be_stored(house: House) -> None:
    first, second = (house.ask(b"/a", b"GET", ranged(0, 9)) for _ in range(2))
    answer_range(house.origin.last)
    whole = house.origin.last
    whole.start(fields=[*ONE, (b"content-length", b"100")])
    whole.write(BYTES[:60])
    assert (first.body, second.body, second.state) == (BYTES[:10], BYTES[:10], "finished")
    assert not whole.cancelled
    whole.write(BYTES[60:])
    whole.finish()
    assert house.stored() == [BYTES]
    house.assert_nothing_is_left()


def test_a_slow_range_gets_its_bytes_from_the_store(house: House) -> None:
    house.ask()
    slow = house.ask(b"/a", b"GET", ranged(10, 89), client=PlayedClient(takes=1))
    house.origin.last.answers(
        *(BYTES[n : n + 20] for n in range(0, 100, 20)), fields=[*ONE, (b"content-length", b"100")]
    )
    assert (slow.body, slow.state) == (BYTES[10:20], "")
    while not slow.state:
        slow.resume()
    assert (slow.body, slow.state) == (BYTES[10:90], "finished")
    house.assert_nothing_is_left()


def test_a_stale_whole_is_validated_once_for_ranges(house: House) -> None:
    house.store_away(BYTES, fields=[*ONE, (b"content-length", b"100")])
    house.timers.wait(61)
    clients = ask_for_ranges(house)
    house.origin.last.answers(status=304, fields=ONE)
    assert_each_has_its_own(clients)
    assert len(house.origin.asked) == 2
    house.assert_nothing_is_left()


# What is under way counts


def in_memory(house: House) -> int:
    """The bytes of all content that is stored, being recorded, or held for slow clients."""
    stats = house.store.stats
    return stats.bytes + stats.reserved + stats.lent


@pytest.mark.parametrize("length", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("purged", [True, False])
def test_five_hundred_slow_readers_hold_no_more_than_max_bytes(length: bool, purged: bool) -> None:
    most, size = 4_000_000, 100_000
    house = House(store=MemoryStore(max_bytes=most, max_object_bytes=1_000_000))
    told = [*FRESH, *([(b"content-length", b"%d" % size)] if length else [])]
    for number in range(50):
        house.store_away(bytes(size), target=b"/stored/%d" % number)
    for number in range(500):
        target = b"/%d" % number
        house.ask(target, b"GET", client=PlayedClient(takes=1))
        house.ask(target, b"GET", ranged(0, 50_000), client=PlayedClient(takes=1))
        asked = house.origin.last
        asked.start(fields=told)
        for _ in range(10):
            asked.write(bytes(size // 10))
            assert in_memory(house) <= most
        if number % 2:
            asked.finish()
            assert in_memory(house) <= most
            if purged:
                house.purge(target)
    assert in_memory(house) <= most
    assert house.store.stats.reserved > 900_000
    for client in house.clients:
        client.leave()
    assert house.store.stats.lent == 0
    house.assert_nothing_is_left()


def test_stored_responses_give_way_to_what_is_recorded() -> None:
    house = House(store=MemoryStore(max_bytes=100_000, max_object_bytes=40_000))
    house.store_away(bytes(30_000), target=b"/1")
    house.store_away(bytes(30_000), target=b"/2")
    client = house.ask(b"/3")
    house.origin.last.start(fields=[*FRESH, (b"content-length", b"39000")])
    assert (house.store.stats.evictions, in_memory(house) <= 100_000) == (1, True)
    client.leave()
    house.assert_nothing_is_left()


def test_what_finds_no_room_passes_unrecorded() -> None:
    house = House(store=MemoryStore(max_bytes=100_000, max_object_bytes=100_000))
    for number in range(3):
        house.ask(b"/%d" % number, client=PlayedClient(takes=1))
        house.origin.last.start(fields=[*FRESH, (b"content-length", b"40000")])
    assert ["stored" in client.handling for client in house.clients] == [True, True, False]
    for asked, client in zip(house.origin.asked, house.clients, strict=True):
        for _ in range(4):
            asked.write(bytes(10_000))
        asked.finish()
        while not client.state:
            client.resume()
        assert (len(client.body), client.state) == (40_000, "finished")
    house.assert_nothing_is_left()
