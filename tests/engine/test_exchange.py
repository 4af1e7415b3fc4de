"""One exchange from its admission to its Outcome: what its client gets, and when it leaves."""

import pytest

from examples import cases
from neighbours import FRESH, PlayedClient, Proxy
from univocal.cache.rules import Rules
from univocal.engine import exchange
from univocal.engine.broadcast import FAR_BEHIND, WINDOW
from univocal.engine.exchange import MOVES, Decided, Over
from univocal.http.errors import RefusedError
from univocal.http.field_edits import FieldEdits, RouteEdits
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Runtime
from univocal.store.memory import MemoryStore
from univocal.uri.profile import parse

# Clients that want more than their share


@pytest.mark.parametrize(("limit", "status"), [(0, 200), (2, 200), (1, 429)])
def test_without_a_limit_or_within_it_nobody_is_refused(proxy_of, limit, status):
    proxy = proxy_of(max_requests_per_client=limit)
    proxy.store_away(b"stored", target=b"/stored")
    proxy.ask(b"/held")
    assert proxy.ask(b"/stored").status == status
    proxy.origin.last.answers(b"held")


# Errors of ours


class FailingClient(PlayedClient):
    """A client that has no memory for more content, once it has been `full`."""

    def write(self, chunk):
        if self.full:
            raise MemoryError
        return super().write(chunk)

    def resume(self):
        self.exchange.resume()


def test_a_response_that_cannot_go_on_is_cut(proxy):
    proxy.store_away(b"a" * WINDOW, b"b" * WINDOW)
    client = proxy.ask(b"/a", client=FailingClient(takes=1))
    client.resume()
    assert (client.status, client.state) == (200, "cut")
    assert proxy.outcomes[-1].reasons == ("overloaded",)


@pytest.mark.pure("compiled code cannot be given a mistake")
def test_an_error_before_a_head_is_answered(monkeypatch):
    proxy, told = Proxy(), exchange.cache_status

    def fails_once(*arguments):
        monkeypatch.setattr(exchange, "cache_status", told)
        raise MemoryError

    proxy.store_away(b"a")
    monkeypatch.setattr(exchange, "cache_status", fails_once)
    asked = proxy.ask(b"/b")
    proxy.origin.last.answers(b"b")
    assert (asked.status, asked.state) == (503, "finished")
    assert (proxy.outcomes[-1].status, proxy.outcomes[-1].reasons) == (503, ("overloaded",))


@pytest.mark.pure("compiled code cannot be given a mistake")
def test_without_memory_for_a_problem_the_client_is_cut(proxy, monkeypatch):
    def fails(*arguments):
        raise MemoryError

    monkeypatch.setattr(exchange, "cache_status", fails)
    monkeypatch.setattr(exchange, "problem", fails)
    asked = proxy.ask(b"/b")
    proxy.origin.last.answers(b"b")
    assert asked.state == "cut"
    assert proxy.outcomes[-1].reasons == ("overloaded",)


# Clients that leave, or are refused, in the middle


def test_the_longest_staller_loses_the_unstored_rest(proxy_of):
    share = 10 * WINDOW
    proxy = proxy_of(store=MemoryStore(max_bytes=4 * share, max_object_bytes=3 * WINDOW))
    bodies = [bytes([number]) * (3 * WINDOW - 2000) for number in range(4)]
    slow = []
    for number, body in enumerate(bodies):
        proxy.store_away(body, target=b"/%d" % number)
        slow.append(proxy.ask(b"/%d" % number, client=PlayedClient(takes=1)))
    assert proxy.store.stats.lent == 0
    slow[0].resume()
    for number in range(4):
        proxy.purge(b"/%d" % number)
    proxy.store_away(b"new", target=b"/new")
    assert [client.state for client in slow] == ["", "cut", "", ""]
    assert proxy.outcomes[-2].reasons == ("overloaded",)
    assert 0 < proxy.store.stats.lent <= share
    for client, body in zip(slow, bodies, strict=True):
        while client.full and not client.state:
            client.resume()
        assert client.state == "cut" or client.body == body
    assert proxy.store.stats.lent == 0


# Answers of univocal's own


@pytest.mark.parametrize("started", [False, True])
def test_too_large_content_is_refused_or_cuts_the_response(proxy, started):
    client = proxy.ask(b"/a", b"POST")
    if started:
        proxy.origin.last.start()
    client.exchange.refuse(("body-too-large",))
    assert (client.status, client.state) == ((200, "cut") if started else (413, "finished"))
    assert proxy.origin.last.cancelled
    client.exchange.refuse(("body-too-large",))  # told once


@cases(
    "name, hides",
    (b"surrogate-key", {"rules": Rules(strip_tags=True)}),
    (b"set-cookie", {"rules": Rules(cookies="ignore")}),
    (b"x-powered-by", {"edits": RouteEdits(response=FieldEdits({b"x-powered-by": None}))}),
)
def test_an_interim_response_has_no_hidden_field(proxy, name, hides):
    field, link = (name, b"a"), (b"link", b"</a.css>")
    for settings, told in (({}, [field, link]), (hides, [link])):
        proxy.configure(**settings)
        client = proxy.ask()
        proxy.origin.last.interim(103, [field, link])
        assert client.interim_fields == told
        client.leave()


# Back-pressure


def test_a_client_far_behind_another_is_cut(proxy_of):
    proxy = proxy_of(store=MemoryStore(max_object_bytes=1000))
    slow, fast = proxy.ask(client=PlayedClient(takes=1)), proxy.ask()
    proxy.origin.last.start()
    for _ in range(FAR_BEHIND // WINDOW + 2):
        proxy.origin.last.write(bytes(WINDOW))
    assert (slow.state, fast.state) == ("cut", "")
    proxy.origin.last.finish()
    assert fast.state == "finished"


def test_the_end_waits_for_a_client_that_takes_no_more(proxy):
    client = proxy.ask(client=PlayedClient(takes=1))
    proxy.origin.last.answers(b"all")
    assert (client.body, client.state) == (b"all", "")
    client.resume()
    assert client.state == "finished"


# Past the cache


@pytest.mark.parametrize("age", [0, 100])
@pytest.mark.parametrize("fails", [True, False])
def test_an_observed_request_is_never_answered_by_another_resource(proxy, age, fails):
    """A response stored for any query is not served in place of an error either (RFC 9110 §9.3.1)."""
    tried = 'extends = "rfc3986"\n[reject]\nmode = "observe"\nsequences = ["fragment"]'
    trial = parse({"tried": tried}, builtin_profiles())["tried"]
    proxy.engine.gate.runtime = Runtime.everywhere(trial, Rules())
    stays = (b"cache-control", b"max-age=60, stale-if-error=600")
    proxy.store_away(b"another", fields=[stays, (b"no-vary-search", b"params")], target=b"/a?b=1")
    proxy.clock.now += age
    client = proxy.ask(b"/a?b=2#c")
    if fails:
        proxy.origin.last.fail(RefusedError("origin-unreachable"))
    else:
        proxy.origin.last.answers(b"its own", status=503, fields=[])
    assert client.status == (502 if fails else 503)
    assert b"another" not in client.body
    ordinary = proxy.ask(b"/a?b=2")
    if age:
        proxy.origin.last.answers(status=503, fields=[])
    assert (ordinary.status, ordinary.body) == (200, b"another")


def test_an_exchange_refuses_a_step_that_may_not_follow():
    proxy = Proxy()
    exchange = proxy.ask().exchange
    assert exchange is not None
    proxy.origin.last.answers(b"content", fields=FRESH)
    assert exchange.over
    with pytest.raises(KeyError, match=r"Over.*Sending"):
        exchange._respond(200, [], b"")


def test_every_step_but_the_last_leads_to_the_end():
    reached = {Decided}
    while more := {after for step in reached for after in MOVES[step]} - reached:
        reached |= more
    assert reached | {Over} == set(MOVES)
