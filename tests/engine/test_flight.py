"""One request for all who wait: what it brings to whom, who may leave it when, and what is left of it."""

import pytest

from neighbours import FRESH, House, PlayedClient, SlowTier
from univocal.engine.broadcast import CutShortError
from univocal.engine.flight import MOVES, Flight, FlightPhase
from univocal.http.errors import RefusedError
from univocal.http.messages import values
from univocal.store.memory import MemoryStore


@pytest.fixture
def house():
    return House()


@pytest.fixture
def slow():
    return House(SlowTier(MemoryStore()))


# Those who waited too long


def test_a_late_waiter_asks_for_itself_and_forgets_the_answer(house):
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


def test_a_wait_for_the_store_makes_no_response_older(slow):
    slow.ask()
    slow.timers.wait(4)
    slow.drain()
    slow.origin.last.answers(b"fetched")
    slow.drain()
    hit = slow.ask()
    slow.drain()
    assert (hit.body, values(hit.fields, b"age")) == (b"fetched", [b"0"])


# Content that stalls after its head


def test_a_response_without_content_is_for_all_who_joined(house):
    clients = both(house)
    house.origin.last.answers()
    assert [(client.status, client.body, client.state) for client in clients] == [(200, b"", "finished")] * 2
    house.assert_nothing_is_left()


def test_a_follower_of_cut_content_asks_for_itself(house):
    leader, follower = both(house)
    house.origin.last.start()
    late = house.ask()
    house.origin.last.fail(RefusedError("origin-bad-response"))
    assert (leader.state, follower.state, late.state) == ("cut", "", "")
    for asked in house.origin.asked[1:]:
        asked.answers(b"page")
    assert [(client.status, client.body) for client in (follower, late)] == [(200, b"page")] * 2
    house.assert_nothing_is_left()


# Those who come when it is over


# Origins that answer within `ask`


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, None])
def test_leaving_an_answer_within_ask_leaves_nothing(house, leaves):
    def script(asked):
        asked.interim()
        asked.answers(b"one", b"two")

    house.origin.script = script
    client = house.ask(client=PlayedClient(leaves=leaves))
    assert client.state == ("left" if leaves else "finished")
    assert house.stored() == ([] if leaves else [b"onetwo"])
    house.assert_nothing_is_left()


@pytest.mark.parametrize("status", [304, 206])
def test_a_mismatch_within_ask_leaves_the_second_request_under_way(house, status):
    """A 304, or a part, of something else than what is stored: all of it is asked for, once."""
    old, other = [*FRESH, (b"etag", b'"old"')], (b"etag", b'"other"')
    house.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
    house.origin.last.answers(b"one", status=206, fields=[*old, (b"content-range", b"bytes 0-2/6")])
    if status == 304:
        house.purge()
        house.store_away(b"onetwo", fields=old)
        house.purge(soft=True)

    def script(asked):
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
def stale(house):
    """A house with a response that may be served while it is fetched again."""
    house.store_away(b"old", fields=STALE)
    house.timers.wait(2)
    return house


WINDOW_FOR_ERRORS = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]


@pytest.mark.parametrize("begins", [False, True], ids=["no head", "stalled content"])
def test_a_hanging_refresh_lets_nobody_else_ask(house, begins):
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


def test_a_response_purged_while_served_is_not_refetched(stale):
    admission = stale.admit()
    stale.purge()
    stale.flights.refresh(admission, stale.origin)
    assert len(stale.origin.asked) == 1
    stale.assert_nothing_is_left()


# Nobody reads: what is fetched to be stored alone


@pytest.fixture
def refreshing():
    """A house in which a stale response has been served, and is being fetched again."""
    house = House(store=MemoryStore(max_object_bytes=1 << 20))
    house.store_away(b"old", fields=[(b"cache-control", b"max-age=1, stale-while-revalidate=600")])
    house.clock.now += 5
    assert (house.ask().body, len(house.origin.asked)) == (b"old", 2)
    return house


def test_a_refresh_has_its_time(refreshing):
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


def test_an_unwanted_fetch_has_its_time_unless_somebody_comes(house):
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


def refuses_to_ask(asked):
    raise ValueError("the event loop is closed")


def test_an_origin_that_cannot_be_asked_is_unreachable(house, caplog):
    house.origin.script = refuses_to_ask
    client = house.ask()
    assert (client.status, client.state) == (502, "finished")
    assert "internal error while sending a request" in caplog.text
    house.origin.asked.clear()
    house.assert_nothing_is_left()
    house.origin.script = None
    house.store_away(b"after all")
    assert house.ask().body == b"after all"


def test_a_refresh_without_an_origin_leaves_nothing(refreshing):
    refreshing.timers.wait(60)
    refreshing.origin.script = refuses_to_ask
    assert refreshing.ask().body == b"old"
    refreshing.origin.asked.pop()
    refreshing.assert_nothing_is_left()


# What a flight brings, to who leads it and to who follows

ONE = [*FRESH, (b"etag", b'"1"')]


def both(house, *fields):
    """One who leads a flight and one who follows; only the follower sends the fields."""
    leader = house.ask()
    follower = house.ask(b"/a", b"GET", *fields)
    assert (leader.state, follower.state) == ("", "")
    return leader, follower


# Asked again


def test_a_304_about_another_response_refetches_it_once(house):
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


@pytest.mark.parametrize("status", [412, 416])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_an_answer_to_our_own_question_is_not_the_clients(house, status, part):
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


def test_a_412_to_no_condition_of_ours_is_the_clients(house):
    client = house.ask()
    house.origin.last.answers(b"failed", status=412)
    assert (client.status, client.body, len(house.origin.asked)) == (412, b"failed", 1)


def test_a_412_to_the_second_question_is_the_clients(house):
    house.store_away(b"old", fields=ONE)
    house.purge(soft=True)
    client = house.ask()
    for _ in range(2):
        house.origin.last.answers(b"failed", status=412)
    assert (client.status, len(house.origin.asked)) == (412, 3)
    house.assert_nothing_is_left()


OWN = [*FRESH, (b"location", b"/%61")]


def test_long_content_of_such_a_redirect_is_not_waited_for(house):
    client = house.ask()
    redirect = house.origin.last
    redirect.start(status=301, fields=OWN)
    redirect.write(b"0" * 20_000)
    assert redirect.cancelled
    house.origin.last.answers(b"whole", fields=FRESH)
    assert client.body == b"whole"
    house.assert_nothing_is_left()


def test_a_second_such_redirect_goes_on_unstored(house, caplog):
    for _ in range(2):
        client = house.ask()
        for _ in range(2):
            house.origin.last.answers(status=301, fields=OWN)
        assert (client.status, values(client.fields, b"location")) == (301, [b"/%61"])
        assert client.handling == {"fwd=uri-miss", "detail=own-spelling"}
    assert len(house.origin.asked) == 4
    messages = [record.getMessage() for record in caplog.records]
    assert [message.endswith('set forward = "received" there') for message in messages] == [True]


def test_a_part_is_completed_for_both(house):
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
def test_input_during_a_store_lookup_waits_in_order(end):
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


# Those who leave


@pytest.mark.parametrize("when", ["filling", "asked", "judged", "answering"])
def test_the_last_who_leaves_gives_the_request_up(when):
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


def test_a_reader_that_joins_at_the_end_gets_everything():
    house = House(SlowTier(MemoryStore(), ["end"]))
    house.ask()
    house.origin.last.answers(b"one", b"two")
    second = house.ask()
    assert (second.body, second.state) == (b"onetwo", "finished")
    assert len(house.origin.asked) == 1
    house.drain()
    house.assert_nothing_is_left()


# Purges and unsafe methods


def test_a_flight_refuses_a_phase_that_may_not_follow():
    house = House()
    house.ask()
    flight = house.origin.last.answer
    assert isinstance(flight, Flight)
    with pytest.raises(KeyError, match=r"ASKING.*SETTLING"):
        flight.finish()


def test_every_phase_can_be_reached_and_the_last_ends_it():
    reached = {FlightPhase.BEGUN}
    while more := {after for phase in reached for after in MOVES[phase]} - reached:
        reached |= more
    assert reached == set(FlightPhase) == set(MOVES)
    assert [phase for phase in FlightPhase if not MOVES[phase]] == [FlightPhase.RECORDED]


def test_a_refresh_that_is_cut_leaves_the_old_response(refreshing):
    refreshing.origin.last.start()
    refreshing.origin.last.fail(RefusedError("origin-bad-response"))
    assert refreshing.stored() == [b"old"]


# Ranges of one resource

BYTES = bytes(range(100))


def ranged(first, last):
    return b"range", b"bytes=%d-%d" % (first, last)


def answer_range(asked, complete=100):
    """Answer as an origin server that knows ranges, or all of it if none is asked for."""
    wanted = asked.field(b"range")
    if wanted is None:
        asked.answers(BYTES[:50], BYTES[50:], fields=[*ONE, (b"content-length", b"100")])
        return
    first, last = map(int, wanted.removeprefix(b"bytes=").split(b"-"))
    placed = (b"content-range", b"bytes %d-%d/%d" % (first, last, complete))
    asked.answers(BYTES[first : last + 1], status=206, fields=[*ONE, placed])


def ask_for_ranges(house):
    """Five clients that ask for other bytes each."""
    return [house.ask(b"/a", b"GET", ranged(20 * number, 20 * number + 9)) for number in range(5)]


def five_ranges(house):
    """The same, while the origin server is asked for the first of them."""
    clients = ask_for_ranges(house)
    assert len(house.origin.asked) == 1
    return clients


def assert_each_has_its_own(clients):
    assert [client.body for client in clients] == [BYTES[20 * n : 20 * n + 10] for n in range(5)]
    assert {client.status for client in clients} == {206}
    for number, client in enumerate(clients):
        told = values(client.fields, b"content-range")
        assert told == [b"bytes %d-%d/100" % (20 * number, 20 * number + 9)]


def test_ranges_of_small_content_share_one_request(house):
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


@pytest.mark.parametrize("kind", ["too large", "unknown length", "not stored", 416, 403, 500, "failure"])
def test_any_other_answer_to_a_range_frees_the_others(kind):
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


def test_a_206_with_all_bytes_is_the_whole(house):
    clients = [house.ask(b"/a", b"GET", ranged(0, 99)), *ask_for_ranges(house)]
    answer_range(house.origin.last)
    assert (clients[0].status, clients[0].body) == (206, BYTES)
    assert_each_has_its_own(clients[1:])
    plain = house.ask()
    assert (plain.status, plain.body, plain.handling) == (200, BYTES, {"hit", "ttl=60"})
    assert not values(plain.fields, b"content-range")
    assert len(house.origin.asked) == 1
    house.assert_nothing_is_left()


def test_a_slow_range_gets_its_bytes_from_the_store(house):
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


# What is under way counts


def in_memory(house):
    """The bytes of all content that is stored, being recorded, or held for slow clients."""
    stats = house.store.stats
    return stats.bytes + stats.reserved + stats.lent


@pytest.mark.parametrize("length", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("purged", [True, False])
def test_five_hundred_slow_readers_hold_no_more_than_max_bytes(length, purged):
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


def test_what_finds_no_room_passes_unrecorded():
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
