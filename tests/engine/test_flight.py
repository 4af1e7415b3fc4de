"""One request for all who wait: what it brings to whom, who may leave it when, and what is left of it."""

import pytest

from neighbours import FRESH, PlayedClient, Proxy, SlowTier
from univocal.engine.broadcast import CutShortError
from univocal.engine.flight import MOVES, Begun, Ended, Flight, FlightState, Recorded
from univocal.http.errors import RefusedError
from univocal.http.messages import values
from univocal.store.memory import MemoryStore


@pytest.fixture
def slow(proxy_of):
    return proxy_of(SlowTier(MemoryStore()))


# Requests that have waited too long


def test_a_late_waiter_asks_for_itself_and_forgets_the_answer(proxy):
    leader, follower = proxy.ask(), proxy.ask()
    proxy.clock.pass_time(5)
    first, second = proxy.origin.asked
    second.start()
    first.start()  # the follower has its head already
    second.write(b"second")
    second.finish()
    assert (follower.body, follower.state) == (b"second", "finished")
    assert leader.state == ""
    first.write(b"first")
    first.finish()
    assert (leader.body, follower.body) == (b"first", b"second")
    assert proxy.stored() == [b"first"]


def test_a_wait_for_the_store_makes_no_response_older(slow):
    slow.ask()
    slow.clock.pass_time(4)
    slow.drain()
    slow.origin.last.answers(b"fetched")
    slow.drain()
    hit = slow.ask()
    slow.drain()
    assert (hit.body, values(hit.fields, b"age")) == (b"fetched", [b"0"])


# Content that stalls after its head


def test_a_response_without_content_is_for_all_who_joined(proxy):
    clients = both(proxy)
    proxy.origin.last.answers()
    assert [(client.status, client.body, client.state) for client in clients] == [(200, b"", "finished")] * 2


def test_a_follower_of_cut_content_asks_for_itself(proxy):
    leader, follower = both(proxy)
    proxy.origin.last.start()
    late = proxy.ask()
    proxy.origin.last.fail(RefusedError("origin-bad-response"))
    assert (leader.state, follower.state, late.state) == ("cut", "", "")
    for asked in proxy.origin.asked[1:]:
        asked.answers(b"page")
    assert [(client.status, client.body) for client in (follower, late)] == [(200, b"page")] * 2


# Requests that come when it is over


# Origins that answer within `ask`


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, None])
def test_leaving_an_answer_within_ask_leaves_nothing(proxy, leaves):
    def script(asked):
        asked.interim()
        asked.answers(b"one", b"two")

    proxy.origin.script = script
    client = proxy.ask(client=PlayedClient(leaves=leaves))
    assert client.state == ("left" if leaves else "finished")
    assert proxy.stored() == ([] if leaves else [b"onetwo"])


@pytest.mark.parametrize("status", [304, 206])
def test_a_mismatch_within_ask_leaves_the_second_request_under_way(proxy, status):
    """A 304, or a part, of something else than what is stored: all of it is asked for, once."""
    old, other = [*FRESH, (b"etag", b'"old"')], (b"etag", b'"other"')
    proxy.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
    proxy.origin.last.answers(b"one", status=206, fields=[*old, (b"content-range", b"bytes 0-2/6")])
    if status == 304:
        proxy.purge()
        proxy.store_away(b"onetwo", fields=old)
        proxy.purge(soft=True)

    def script(asked):
        if asked.field(b"if-range") or asked.field(b"if-none-match"):
            part = [(b"content-range", b"bytes 3-5/6")] if status == 206 else []
            asked.answers(*([b"TWO"] if part else []), status=status, fields=[*FRESH, other, *part])

    proxy.origin.script = script
    client = proxy.ask()
    assert proxy.origin.last.field(b"if-none-match") is proxy.origin.last.field(b"if-range") is None
    proxy.origin.last.start(fields=[*FRESH, other])
    proxy.origin.last.write(b"ONE")
    client.leave()
    assert proxy.origin.last.cancelled
    proxy.assert_nothing_is_left()


# Refreshes in the background

STALE = [(b"cache-control", b"max-age=1, stale-while-revalidate=600"), (b"etag", b'"1"')]


@pytest.fixture
def stale(proxy):
    """A proxy with a response that may be served while it is fetched again."""
    proxy.store_away(b"old", fields=STALE)
    proxy.clock.pass_time(2)
    return proxy


WINDOW_FOR_ERRORS = [(b"cache-control", b"max-age=1, stale-if-error=600"), (b"etag", b'"1"')]


@pytest.mark.parametrize("begins", [False, True], ids=["no head", "stalled content"])
def test_a_hanging_refresh_lets_nobody_else_ask(proxy, begins):
    proxy.store_away(b"old", fields=WINDOW_FOR_ERRORS)
    proxy.clock.pass_time(2)
    trier, early = both(proxy)
    proxy.clock.pass_time(1)
    late = proxy.ask()
    if begins:
        proxy.origin.last.start()
    proxy.clock.pass_time(5)
    assert [client.body for client in (early, late, proxy.ask(), proxy.ask())] == [b"old"] * 4
    assert (len(proxy.origin.asked), trier.state) == (2, "")
    if not begins:
        proxy.origin.last.start()
    proxy.origin.last.write(b"new")
    proxy.origin.last.finish()
    assert trier.body == b"new"


def test_a_response_purged_while_served_is_not_refetched(stale):
    admission = stale.admit()
    stale.purge()
    stale.flights.refresh(admission, stale.origin)
    assert len(stale.origin.asked) == 1


# Responses that are fetched only to be stored


@pytest.fixture
def refreshing(proxy_of):
    """A proxy in which a stale response has been served, and is being fetched again."""
    proxy = proxy_of(store=MemoryStore(max_object_bytes=1 << 20))
    proxy.store_away(b"old", fields=[(b"cache-control", b"max-age=1, stale-while-revalidate=600")])
    proxy.clock.now += 5
    assert (proxy.ask().body, len(proxy.origin.asked)) == (b"old", 2)
    return proxy


def test_a_refresh_has_its_time(refreshing):
    silent = refreshing.origin.last
    refreshing.clock.pass_time(59)
    assert not silent.cancelled
    refreshing.ask()
    assert len(refreshing.origin.asked) == 2
    refreshing.clock.pass_time(1)
    assert silent.cancelled
    refreshing.assert_nothing_is_left()
    refreshing.clock.pass_time(1)
    refreshing.ask()
    refreshing.origin.last.answers(b"new")
    assert refreshing.stored() == [b"new"]


def test_an_unwanted_fetch_has_its_time_unless_somebody_comes(proxy):
    for comes in (False, True):
        client = proxy.ask(b"/a", b"GET", (b"if-none-match", b'"1"'))
        endless = proxy.origin.last
        endless.start(fields=STALE)
        endless.write(b"one ")
        assert (client.status, client.state) == (304, "finished")
        reader = proxy.ask() if comes else None
        endless.write(b"and ")
        proxy.clock.pass_time(60)
        assert endless.cancelled is not comes
        endless.write(b"two")
        if reader is not None:
            assert reader.body == b"one and two"
            reader.leave()
            assert endless.cancelled


def refuses_to_ask(asked):
    raise ValueError("the event loop is closed")


def test_an_origin_that_cannot_be_asked_is_unreachable(proxy, caplog):
    proxy.origin.script = refuses_to_ask
    client = proxy.ask()
    assert (client.status, client.state) == (502, "finished")
    assert "internal error while sending a request" in caplog.text
    proxy.origin.asked.clear()
    proxy.assert_nothing_is_left()
    proxy.origin.script = None
    proxy.store_away(b"after all")
    assert proxy.ask().body == b"after all"


def test_a_refresh_without_an_origin_leaves_nothing(refreshing):
    refreshing.clock.pass_time(60)
    refreshing.origin.script = refuses_to_ask
    assert refreshing.ask().body == b"old"
    refreshing.origin.asked.pop()
    refreshing.assert_nothing_is_left()


# Answers to the leader of a flight and to its followers

ONE = [*FRESH, (b"etag", b'"1"')]


def both(proxy, *fields):
    """One who leads a flight and one who follows; only the follower sends the fields."""
    leader = proxy.ask()
    follower = proxy.ask(b"/a", b"GET", *fields)
    assert (leader.state, follower.state) == ("", "")
    return leader, follower


# Asked again


def test_a_304_about_another_response_refetches_it_once(proxy):
    proxy.store_away(b"old", fields=ONE)
    proxy.purge(soft=True)
    clients = both(proxy)
    other = [*FRESH, (b"etag", b'"2"')]
    proxy.origin.last.answers(status=304, fields=other)
    assert proxy.origin.last.field(b"if-none-match") is None
    proxy.origin.last.answers(status=304, fields=other)  # to no condition at all
    assert [client.status for client in clients] == [502, 0]
    for _ in range(2):  # the follower has asked for all of it at once, and asks once more
        assert [client.status for client in clients] == [502, 0]
        proxy.origin.last.answers(status=304, fields=other)
    assert [client.status for client in clients] == [502, 502]
    assert len(proxy.origin.asked) == 5


@pytest.mark.parametrize("status", [412, 416])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
def test_an_answer_to_our_own_question_is_not_the_clients(proxy, status, part):
    if part:
        proxy.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
        proxy.origin.last.answers(b"old", status=206, fields=[*ONE, (b"content-range", b"bytes 0-2/6")])
    else:
        proxy.store_away(b"old", fields=ONE)
        proxy.purge(soft=True)
    client = proxy.ask()
    own = b"range" if part else b"if-none-match"
    assert proxy.origin.last.field(own) is not None
    proxy.origin.last.answers(b"failed", status=status)
    assert proxy.origin.last.field(own) is None
    proxy.origin.last.answers(b"new", fields=FRESH)
    assert (client.status, client.body) == (200, b"new")
    assert proxy.ask().body == b"new"


def test_a_412_to_no_condition_of_ours_is_the_clients(proxy):
    client = proxy.ask()
    proxy.origin.last.answers(b"failed", status=412)
    assert (client.status, client.body, len(proxy.origin.asked)) == (412, b"failed", 1)


def test_a_412_to_the_second_question_is_the_clients(proxy):
    proxy.store_away(b"old", fields=ONE)
    proxy.purge(soft=True)
    client = proxy.ask()
    for _ in range(2):
        proxy.origin.last.answers(b"failed", status=412)
    assert (client.status, len(proxy.origin.asked)) == (412, 3)
    proxy.assert_nothing_is_left()


OWN = [*FRESH, (b"location", b"/%61")]


def test_long_content_of_such_a_redirect_is_not_waited_for(proxy):
    client = proxy.ask()
    redirect = proxy.origin.last
    redirect.start(status=301, fields=OWN)
    redirect.write(b"0" * 20_000)
    assert redirect.cancelled
    proxy.origin.last.answers(b"whole", fields=FRESH)
    assert client.body == b"whole"


def test_a_second_such_redirect_goes_on_unstored(proxy, caplog):
    for _ in range(2):
        client = proxy.ask()
        for _ in range(2):
            proxy.origin.last.answers(status=301, fields=OWN)
        assert (client.status, values(client.fields, b"location")) == (301, [b"/%61"])
        assert client.handling == {"fwd=uri-miss", "detail=own-spelling"}
    assert len(proxy.origin.asked) == 4
    messages = caplog.messages
    assert [message.endswith('set forward = "received" there') for message in messages] == [True]


def test_a_part_is_completed_for_both(proxy):
    told = [*ONE, (b"content-range", b"bytes 0-2/6")]
    proxy.ask(b"/a", b"GET", (b"range", b"bytes=0-2"))
    proxy.origin.last.answers(b"one", status=206, fields=told)
    clients = both(proxy)
    assert (proxy.origin.last.field(b"range"), proxy.origin.last.field(b"if-range")) == (b"bytes=3-", b'"1"')
    proxy.origin.last.answers(b"two", status=206, fields=[*ONE, (b"content-range", b"bytes 3-5/6")])
    assert [(client.status, client.body) for client in clients] == [(200, b"onetwo")] * 2
    assert proxy.stored() == [b"onetwo"]


# While the store is asked


@pytest.mark.parametrize("end", ["finish", "fail", "more"])
def test_input_during_a_store_lookup_waits_in_order(proxy_of, end):
    proxy = proxy_of(SlowTier(MemoryStore(), ("invalidate",)))
    client = proxy.ask(b"/a", b"POST")
    asked = proxy.origin.last
    asked.start()
    assert not asked.write(b"one")
    assert not asked.write(b"two")
    if end == "finish":
        asked.finish()
    elif end == "fail":
        asked.fail(CutShortError())
    assert (client.status, client.body) == (0, b"")
    proxy.drain()
    assert (client.status, client.body) == (200, b"onetwo")
    assert client.state == {"finish": "finished", "fail": "cut", "more": ""}[end]
    if end == "more":
        assert asked.takes  # it may go on
        asked.finish()


# Clients that leave


@pytest.mark.parametrize("when", ["filling", "asked", "judged", "answering"])
def test_the_last_who_leaves_gives_the_request_up(proxy_of, when):
    proxy = proxy_of(SlowTier(MemoryStore(), ("fill", "keeps") if when in {"filling", "judged"} else ()))
    if when == "judged":
        proxy.store_away(b"old", fields=ONE)
        proxy.purge(soft=True)
    clients = both(proxy)
    if when != "filling":
        proxy.drain()
        if when == "judged":
            proxy.origin.last.start(304, ONE)
        elif when == "answering":
            proxy.origin.last.start()
            proxy.origin.last.write(bytes(1000))
            assert proxy.store.stats.reserved
    for client in clients:
        client.leave()
    assert all(asked.cancelled or asked.over for asked in proxy.origin.asked)
    assert proxy.store.stats.reserved == 0
    newcomer = proxy.ask()  # joins nothing of that
    proxy.drain()
    proxy.origin.last.answers(b"new")
    proxy.drain()
    assert newcomer.body == b"new"


def test_a_reader_that_joins_at_the_end_gets_everything(proxy_of):
    proxy = proxy_of(SlowTier(MemoryStore(), ["end"]))
    proxy.ask()
    proxy.origin.last.answers(b"one", b"two")
    second = proxy.ask()
    assert (second.body, second.state) == (b"onetwo", "finished")
    assert len(proxy.origin.asked) == 1
    proxy.drain()


# Purges and unsafe methods


def test_a_flight_refuses_a_phase_that_may_not_follow():
    proxy = Proxy()
    proxy.ask()
    flight = proxy.origin.last.answer
    assert isinstance(flight, Flight)
    with pytest.raises(KeyError, match=r"Asking.*Settling"):
        flight.finish()


def test_every_phase_can_be_reached_and_the_last_ends_it():
    reached = {Begun}
    while more := {after for phase in reached for after in MOVES[phase]} - reached:
        reached |= more
    assert reached == set(MOVES) == {*FlightState.__subclasses__(), *Ended.__subclasses__()} - {Ended}
    assert [phase for phase in MOVES if not MOVES[phase]] == [Recorded]


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


def ask_for_ranges(proxy):
    """Five clients that ask for other bytes each."""
    return [proxy.ask(b"/a", b"GET", ranged(20 * number, 20 * number + 9)) for number in range(5)]


def five_ranges(proxy):
    """The same, while the origin server is asked for the first of them."""
    clients = ask_for_ranges(proxy)
    assert len(proxy.origin.asked) == 1
    return clients


def assert_each_has_its_own(clients):
    assert [client.body for client in clients] == [BYTES[20 * n : 20 * n + 10] for n in range(5)]
    assert {client.status for client in clients} == {206}
    for number, client in enumerate(clients):
        told = values(client.fields, b"content-range")
        assert told == [b"bytes %d-%d/100" % (20 * number, 20 * number + 9)]


def test_ranges_of_small_content_share_one_request(proxy):
    clients = five_ranges(proxy)
    answer_range(proxy.origin.last)
    assert len(proxy.origin.asked) == 2
    late, whole = proxy.ask(b"/a", b"GET", ranged(77, 78)), proxy.ask()
    assert proxy.origin.last.field(b"range") is None
    answer_range(proxy.origin.last)
    assert_each_has_its_own(clients)
    assert (late.body, whole.body, len(proxy.origin.asked)) == (BYTES[77:79], BYTES, 2)
    assert proxy.ask(b"/a", b"GET", ranged(3, 4)).handling == {"hit", "ttl=60"}


@pytest.mark.parametrize("kind", ["too large", "unknown length", "not stored", 416, 403, 500, "failure"])
def test_any_other_answer_to_a_range_frees_the_others(proxy_of, kind):
    proxy = proxy_of(store=MemoryStore(max_object_bytes=2000))
    clients = five_ranges(proxy)
    first = proxy.origin.last
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
    assert len(proxy.origin.asked) == 5
    proxy.ask(b"/a", b"GET", ranged(91, 92))
    assert len(proxy.origin.asked) == 6
    for asked in proxy.origin.asked[1:]:
        answer_range(asked, 3000)
    assert [client.body for client in clients[1:]] == [BYTES[20 * n : 20 * n + 10] for n in range(1, 5)]


def test_a_206_with_all_bytes_is_the_whole(proxy):
    clients = [proxy.ask(b"/a", b"GET", ranged(0, 99)), *ask_for_ranges(proxy)]
    answer_range(proxy.origin.last)
    assert (clients[0].status, clients[0].body) == (206, BYTES)
    assert_each_has_its_own(clients[1:])
    plain = proxy.ask()
    assert (plain.status, plain.body, plain.handling) == (200, BYTES, {"hit", "ttl=60"})
    assert not values(plain.fields, b"content-range")
    assert len(proxy.origin.asked) == 1


def test_a_slow_range_gets_its_bytes_from_the_store(proxy):
    proxy.ask()
    slow = proxy.ask(b"/a", b"GET", ranged(10, 89), client=PlayedClient(takes=1))
    proxy.origin.last.answers(
        *(BYTES[n : n + 20] for n in range(0, 100, 20)), fields=[*ONE, (b"content-length", b"100")]
    )
    assert (slow.body, slow.state) == (BYTES[10:20], "")
    while not slow.state:
        slow.resume()
    assert (slow.body, slow.state) == (BYTES[10:90], "finished")


# Content under way counts


def in_memory(proxy):
    """The bytes of all content that is stored, being recorded, or held for slow clients."""
    stats = proxy.store.stats
    return stats.bytes + stats.reserved + stats.lent


@pytest.mark.parametrize("length", [True, False], ids=["length", "no length"])
@pytest.mark.parametrize("purged", [True, False])
def test_many_slow_readers_hold_no_more_than_max_bytes(proxy_of, length, purged):
    most, size = 4_000_000, 100_000
    proxy = proxy_of(store=MemoryStore(max_bytes=most, max_object_bytes=1_000_000))
    told = [*FRESH, *([(b"content-length", b"%d" % size)] if length else [])]
    for number in range(50):
        proxy.store_away(bytes(size), target=b"/stored/%d" % number)
    for number in range(150):
        target = b"/%d" % number
        proxy.ask(target, b"GET", client=PlayedClient(takes=1))
        proxy.ask(target, b"GET", ranged(0, 50_000), client=PlayedClient(takes=1))
        asked = proxy.origin.last
        asked.start(fields=told)
        for _ in range(10):
            asked.write(bytes(size // 10))
            assert in_memory(proxy) <= most
        if number % 2:
            asked.finish()
            assert in_memory(proxy) <= most
            if purged:
                proxy.purge(target)
    assert in_memory(proxy) <= most
    assert proxy.store.stats.reserved > 900_000
    for client in proxy.clients:
        client.leave()
    assert proxy.store.stats.lent == 0


def test_a_response_without_room_passes_unrecorded(proxy_of):
    proxy = proxy_of(store=MemoryStore(max_bytes=100_000, max_object_bytes=100_000))
    for number in range(3):
        proxy.ask(b"/%d" % number, client=PlayedClient(takes=1))
        proxy.origin.last.start(fields=[*FRESH, (b"content-length", b"40000")])
    assert ["stored" in client.handling for client in proxy.clients] == [True, True, False]
    for asked, client in zip(proxy.origin.asked, proxy.clients, strict=True):
        for _ in range(4):
            asked.write(bytes(10_000))
        asked.finish()
        while not client.state:
            client.resume()
        assert (len(client.body), client.state) == (40_000, "finished")
