"""One exchange from its admission to its Outcome: what its client gets, and when it leaves."""

import pytest

from neighbours import FRESH, House, PlayedClient
from univocal.cache.rules import Rules
from univocal.engine import exchange
from univocal.engine.broadcast import FAR_BEHIND, WINDOW
from univocal.engine.exchange import MOVES, Step
from univocal.http.errors import RefusedError
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.store.memory import MemoryStore
from univocal.uri.profile import parse

# Clients that want more than their share


@pytest.mark.parametrize(("limit", "status"), [(0, 200), (2, 200), (1, 429)])
def test_without_a_limit_or_within_it_nobody_is_refused(limit, status):
    house = House(max_requests_per_client=limit)
    house.store_away(b"stored", target=b"/stored")
    house.ask(b"/held")
    assert house.ask(b"/stored").status == status
    house.origin.last.answers(b"held")
    house.assert_nothing_is_left()


# Errors of ours


class FailingClient(PlayedClient):
    """Has no memory for more content, once it has been `full`."""

    def write(self, chunk):
        if self.full:
            raise MemoryError
        return super().write(chunk)

    def resume(self):
        self.exchange.resume()


def test_a_response_that_cannot_go_on_is_cut():
    house = House()
    house.store_away(b"a" * WINDOW, b"b" * WINDOW)
    client = house.ask(b"/a", client=FailingClient(takes=1))
    client.resume()
    assert (client.status, client.state) == (200, "cut")
    assert house.outcomes[-1].reasons == ("overloaded",)
    house.assert_nothing_is_left()


@pytest.mark.pure("compiled code cannot be given a mistake")
def test_an_error_before_a_head_is_answered(monkeypatch):
    house, told = House(), exchange.cache_status

    def fails_once(*arguments):
        monkeypatch.setattr(exchange, "cache_status", told)
        raise MemoryError

    house.store_away(b"a")
    monkeypatch.setattr(exchange, "cache_status", fails_once)
    asked = house.ask(b"/b")
    house.origin.last.answers(b"b")
    assert (asked.status, asked.state) == (503, "finished")
    assert (house.outcomes[-1].status, house.outcomes[-1].reasons) == (503, ("overloaded",))


@pytest.mark.pure("compiled code cannot be given a mistake")
def test_without_memory_for_a_problem_the_client_is_cut(monkeypatch):
    def fails(*arguments):
        raise MemoryError

    house = House()
    monkeypatch.setattr(exchange, "cache_status", fails)
    monkeypatch.setattr(exchange, "problem", fails)
    asked = house.ask(b"/b")
    house.origin.last.answers(b"b")
    assert asked.state == "cut"
    assert house.outcomes[-1].reasons == ("overloaded",)
    house.assert_nothing_is_left()


# Clients that leave, or are refused, in the middle


def test_the_longest_staller_loses_the_unstored_rest():
    share = 10 * WINDOW
    house = House(store=MemoryStore(max_bytes=4 * share, max_object_bytes=3 * WINDOW))
    bodies = [bytes([number]) * (3 * WINDOW - 2000) for number in range(4)]
    slow = []
    for number, body in enumerate(bodies):
        house.store_away(body, target=b"/%d" % number)
        slow.append(house.ask(b"/%d" % number, client=PlayedClient(takes=1)))
    assert house.store.stats.lent == 0
    slow[0].resume()
    for number in range(4):
        house.purge(b"/%d" % number)
    house.store_away(b"new", target=b"/new")
    assert [client.state for client in slow] == ["", "cut", "", ""]
    assert house.outcomes[-2].reasons == ("overloaded",)
    assert 0 < house.store.stats.lent <= share
    for client, body in zip(slow, bodies, strict=True):
        while client.full and not client.state:
            client.resume()
        assert client.state == "cut" or client.body == body
    assert house.store.stats.lent == 0
    house.assert_nothing_is_left()


# What is answered here


@pytest.mark.parametrize("started", [False, True])
def test_too_large_content_is_refused_or_cuts_the_response(started):
    house = House()
    client = house.ask(b"/a", b"POST")
    if started:
        house.origin.last.start()
    client.exchange.refuse(("body-too-large",))
    assert (client.status, client.state) == ((200, "cut") if started else (413, "finished"))
    assert house.origin.last.cancelled
    client.exchange.refuse(("body-too-large",))  # told once
    house.assert_nothing_is_left()


# Back-pressure


def test_a_client_far_behind_another_is_cut():
    house = House(store=MemoryStore(max_object_bytes=1000))
    slow, fast = house.ask(client=PlayedClient(takes=1)), house.ask()
    house.origin.last.start()
    for _ in range(FAR_BEHIND // WINDOW + 2):
        house.origin.last.write(bytes(WINDOW))
    assert (slow.state, fast.state) == ("cut", "")
    house.origin.last.finish()
    assert fast.state == "finished"
    house.assert_nothing_is_left()


def test_the_end_waits_for_a_client_that_takes_no_more():
    house = House()
    client = house.ask(client=PlayedClient(takes=1))
    house.origin.last.answers(b"all")
    assert (client.body, client.state) == (b"all", "")
    client.resume()
    assert client.state == "finished"
    house.assert_nothing_is_left()


# Past the cache


@pytest.mark.parametrize("age", [0, 100])
@pytest.mark.parametrize("fails", [True, False])
def test_what_is_only_observed_is_never_answered_by_another_resource(age, fails):
    """Not even in place of an error, by what is stored for whatever query there is (RFC 9110 §9.3.1)."""
    house = House()
    tried = 'extends = "rfc3986"\n[reject]\nmode = "observe"\nsequences = ["fragment"]'
    trial = parse({"tried": tried}, builtin_profiles())["tried"]
    house.engine.gate.runtime = Runtime.everywhere(trial, Rules())
    stays = (b"cache-control", b"max-age=60, stale-if-error=600")
    house.store_away(b"another", fields=[stays, (b"no-vary-search", b"params")], target=b"/a?b=1")
    house.clock.now += age
    client = house.ask(b"/a?b=2#c")
    if fails:
        house.origin.last.fail(RefusedError("origin-unreachable"))
    else:
        house.origin.last.answers(b"its own", status=503, fields=[])
    assert client.status == (502 if fails else 503)
    assert b"another" not in client.body
    ordinary = house.ask(b"/a?b=2")
    if age:
        house.origin.last.answers(status=503, fields=[])
    assert (ordinary.status, ordinary.body) == (200, b"another")
    house.assert_nothing_is_left()


def test_an_exchange_refuses_a_step_that_may_not_follow():
    house = House()
    exchange = house.ask().exchange
    assert exchange is not None
    house.origin.last.answers(b"content", fields=FRESH)
    assert exchange.over
    with pytest.raises(KeyError, match=r"OVER.*SENDING"):
        exchange._respond(200, [], b"")


def test_every_step_but_the_last_leads_to_the_end():
    reached = {Step.DECIDED}
    while more := {after for step in reached for after in MOVES[step]} - reached:
        reached |= more
    assert reached | {Step.OVER} == set(Step) == set(MOVES)
