"""Reports of an exchange: once to the client, once to every listener."""

import logging
from dataclasses import fields as fields_of

import pytest

from examples import cases
from neighbours import OWN_ANSWERS, Proxy
from univocal.cache.decide import Handling, Refuse
from univocal.engine import outcome as outcomes
from univocal.engine.outcome import Audience, Outcome, Purged, Times
from univocal.http.errors import RefusedError
from univocal.http.field_edits import FieldEdits, RouteEdits
from univocal.http.messages import Received
from univocal.judge.orders import order_by_name
from univocal.judge.runtime import cache_status

SITES = Proxy().engine.gate.runtime.sites
RECEIVED = Received(b"GET", b"/a", b"http", "127.0.0.1")


@cases(
    "handling, told",
    (Handling(hit=True, ttl=5), b"univocal; hit; ttl=5"),
    (Handling(hit=True, ttl=-5, detail="shared"), b"univocal; hit; ttl=-5; detail=shared"),
    (Handling(fwd="uri-miss", stored=True), b"univocal; fwd=uri-miss; stored"),
    (
        Handling(fwd="stale", fwd_status=304, collapsed=True),
        b"univocal; fwd=stale; fwd-status=304; collapsed",
    ),
    (Handling(), b"univocal"),
    (Handling(fwd="uri-miss", unstorable="no-store"), b"univocal; fwd=uri-miss; detail=no-store"),
    (Handling(fwd="bypass", unstorable="bypass"), b"univocal; fwd=bypass"),
)
def test_a_handling_is_one_member_of_cache_status(handling, told):
    found = Proxy().admit().canonical
    assert found is not None
    assert cache_status(handling, found, "plain") == [(b"cache-status", told)]
    assert cache_status(handling, found, "off") == []
    ((_, keyed),) = cache_status(handling, found, "key")
    assert b'; key="http://en.example/a"' in keyed


def test_a_listener_that_fails_keeps_no_other_from_hearing(caplog):
    heard = []

    def fails(_):
        raise ValueError

    outcome = Outcome.refused(RECEIVED, ("bad-framing",), 1.0, SITES)
    with caplog.at_level(logging.ERROR):
        Audience((fails, heard.append), (fails, heard.append), Proxy().clock.call_later).announce(outcome)
    assert heard == [outcome, outcome]
    assert "a listener failed" in caplog.text


def test_the_operators_request_fields_are_for_the_origin_alone():
    """The access log and problem pages go by the client's own fields."""
    proxy = Proxy()
    edits = FieldEdits({b"user-agent": b"operator", b"referer": None, b"accept": b"application/json"})
    proxy.configure(**{**OWN_ANSWERS, "edits": RouteEdits(request=edits)})
    agent, referrer = (b"user-agent", b"client"), (b"referer", b"http://a.example/")
    client = proxy.ask(b"/a", b"GET", agent, referrer, (b"accept", b"text/html"))
    assert proxy.origin.last.field(b"user-agent") == b"operator"
    proxy.origin.last.fail(RefusedError("origin-bad-response"))
    assert client.body == b"own page"
    assert (proxy.outcomes[-1].agent, proxy.outcomes[-1].referrer) == (agent[1], referrer[1])


@pytest.mark.parametrize(("method", "refused"), [(b"GET", True), (b"PURGE", False), (b"BAN", False)])
def test_a_rejected_head_has_a_decision_unless_it_purges(method, refused):
    outcome = Outcome.refused(Received(method, b"/", b"http", None), ("bad-framing",), 1.0, SITES)
    assert (outcome.decision == Refuse(400, "bad-framing")) is refused
    assert (outcome.status, outcome.reasons) == (400, ("bad-framing",))


@cases(
    "fields, why",
    ([(b"cache-control", b"no-store")], "no-store"),
    ([(b"cache-control", b"private")], "private"),
    ([(b"cache-control", b"max-age=60"), (b"set-cookie", b"a=b")], "set-cookie"),
    ([(b"cache-control", b"max-age=60"), (b"vary", b"*")], "vary-star"),
    ([], "no-freshness"),
    ([(b"cache-control", b"max-age=60"), (b"content-length", b"999999999")], "too-large"),
    ([(b"cache-control", b"max-age=60")], ""),
)
def test_the_reason_for_not_storing_a_response_is_said(fields, why):
    """To the client and to the listeners, once."""
    proxy = Proxy()
    client = proxy.ask()
    proxy.origin.last.start(200, fields)
    assert ("stored" if not why else f"detail={why}") in client.handling
    proxy.origin.last.write(b"12345")
    proxy.origin.last.finish()
    (outcome,) = proxy.outcomes
    assert (outcome.handling.stored, outcome.handling.unstorable) == (not why, why)


@cases(
    "count, status, reasons, detail",
    (2, 200, (), ""),
    (None, 503, ("shared-store-unavailable",), "shared-store-unavailable"),
)
def test_the_programs_own_purge_is_logged_like_one_by_http(count, status, reasons, detail):
    order = order_by_name({"url": "http://en.example/a"}, Proxy().engine.gate.runtime)
    outcome = Outcome.ordered(Purged(order, count), Times(1.0, 0.5, 0.5))
    assert (outcome.site, outcome.received.method, outcome.received.target) == ("*", b"PURGE", b"/a")
    assert (outcome.status, outcome.reasons, outcome.handling.detail) == (status, reasons, detail)
    assert (outcome.decision, outcome.purged) == (None, Purged(order, count))


def refused():
    return Outcome.refused(RECEIVED, ("bad-host",), 1.0, SITES)


@pytest.mark.skipif(outcomes.__file__.endswith(".py"), reason="compiled code alone refuses assignments")
@pytest.mark.parametrize("name", [each.name for each in fields_of(Outcome)])
def test_nothing_of_an_outcome_can_be_assigned(name):
    outcome = refused()
    with pytest.raises(AttributeError):
        setattr(outcome, name, None)
    assert outcome == refused()
