"""One gate judges every request: who is asked for what, what is decided, and who waits for whom."""

from dataclasses import replace

import pytest

from examples import cases
from neighbours import FRESH, HOST, Proxy, everywhere
from univocal.cache.decide import Forward, Refuse, Reuse, Validate
from univocal.http.messages import Received, Response
from univocal.http.problem import ALLOWED, problem
from univocal.judge.admission import Apart, Gate, obsolete
from univocal.judge.orders import Order
from univocal.judge.runtime import Limits, RequestIds
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Keys, Tags
from univocal.store.tiers import MemoryTier

RUSSIAN = (b"accept-language", b"ru")
VARIED = [*FRESH, (b"vary", b"accept-language")]


@pytest.fixture
def proxy():
    return Proxy()


def gate(**limits):
    return Gate(everywhere(limits=Limits(**limits)), MemoryTier(MemoryStore()))


@cases(
    "limits, target, more, reason",
    ({}, b"/a", [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")], "bad-framing"),
    ({}, b"/a", [(b"transfer-encoding", b"chunked")] * 2, "bad-framing"),
    ({"max_target": 3}, b"/abc", [], "target-too-long"),
    ({"max_target": 4}, b"/abc", [], ""),
    ({"max_segments": 2}, b"/a/b/", [], "target-too-long"),
    ({"max_segments": 2}, b"/a%2fb%2F", [], "target-too-long"),
    ({"max_segments": 2}, b"/a\\b%5cc", [], "target-too-long"),
    ({"max_segments": 3}, b"/a%2Fb%5Cc%252F", [], ""),
    ({"max_segments": 2}, b"/a/b?//", [], ""),
    ({"max_segments": 2}, b"http://en.example/a/b", [], ""),
    ({"max_segments": 0}, b"/a" * 2000, [], ""),
    ({}, b"/a" * 512, [], ""),
    ({}, b"/a" * 513, [], "target-too-long"),
    ({"max_fields": 1}, b"/a", [(b"a", b"b")], "fields-too-large"),
    ({"max_fields": 2}, b"/a", [(b"a", b"b")], ""),
    ({"max_body": 3}, b"/a", [(b"content-length", b"4")], "body-too-large"),
    ({"max_body": 4}, b"/a", [(b"content-length", b"4")], ""),
    ({}, b"/a", [(b"host", b"other.example")], "bad-host"),
    ({}, b"*", [], "bad-target"),
)
def test_invalid_requests_are_refused_before_their_url_is_resolved(limits, target, more, reason):
    received = Received(b"GET", target, b"http", "127.0.0.1")
    admission = gate(**limits).admit(received, [(b"host", HOST), *more], 0.0)
    if reason:
        assert isinstance(admission.decision, Refuse)
        assert (admission.decision.reason, admission.canonical) == (reason, None)
    else:
        assert isinstance(admission.decision, Forward)


@pytest.mark.parametrize(("given", "is_refused"), [(2, False), (3, True)])
def test_a_field_of_ours_does_not_count(given, is_refused):
    judges = gate(max_fields=2)
    judges.runtime = replace(judges.runtime, request_ids=RequestIds(b"X-Request-Id", ()))
    fields = [(b"host", HOST), (b"a", b"b"), (b"c", b"d")][:given]
    decision = judges.admit(Received(b"GET", b"/a", b"http", "127.0.0.1"), fields, 0.0).decision
    assert isinstance(decision, Refuse) is is_refused


def test_trace_is_refused_where_it_is_not_passed_on():
    received = Received(b"TRACE", b"/a", b"http", "127.0.0.1")
    refused, passed = (gate(trace=trace).admit(received, [(b"host", HOST)], 0.0) for trace in (False, True))
    assert isinstance(refused.decision, Refuse)
    assert (refused.decision.status, refused.decision.reason) == (405, "method-not-allowed")
    assert isinstance(passed.decision, Forward)
    assert (b"allow", ALLOWED) in problem(("method-not-allowed",)).fields  # RFC 9110 §15.5.6


@pytest.mark.parametrize("method", [b"PURGE", b"BAN"])
@pytest.mark.parametrize(("client", "may"), [("127.0.0.1", True), ("192.0.2.1", False)])
def test_a_purge_passes_the_same_gate(method, client, may):
    admission = gate().admit(Received(method, b"/a", b"http", client), [(b"host", HOST)], 0.0)
    assert isinstance(admission.decision, Order if may else Refuse)
    assert may or admission.reasons == ("purge-forbidden",)


def test_one_host_goes_on_and_nothing_that_claims_another(proxy):
    admission = proxy.admit(b"http://en.example/a", b"GET", (b"x-original-url", b"/b"), (b"a", b"b"))
    assert admission.request.fields == [(b"host", HOST), (b"a", b"b")]
    assert admission.request.target == b"/a"


def test_a_decision_is_repeated_from_the_current_store(proxy):
    before = proxy.admit()
    assert isinstance(before.decision, Forward)
    proxy.store_away(b"one", fields=[*FRESH, (b"etag", b'"1"')])
    again = proxy.engine.gate.again(before, proxy.clock())
    assert isinstance(again.decision, Reuse)
    proxy.purge(soft=True)
    assert isinstance(proxy.engine.gate.again(before, proxy.clock()).decision, Validate)
    assert isinstance(proxy.engine.gate.again(before, proxy.clock(), []).decision, Forward)


# Requests that wait for one another


def name(proxy, *fields, method=b"GET", target=b"/a"):
    return proxy.engine.gate.flight_name(proxy.admit(target, method, *fields), proxy.clock())


def test_equal_requests_wait_for_one_answer(proxy):
    assert name(proxy) == name(proxy) == name(proxy, target=b"/%61")
    assert name(proxy) != name(proxy, target=b"/b")


def test_a_head_request_waits_for_nobody(proxy):
    assert name(proxy, method=b"HEAD") is None


def test_ranges_wait_for_one_another_and_for_the_whole(proxy):
    ranges = name(proxy, (b"range", b"bytes=0-1"))
    assert ranges == name(proxy, (b"range", b"bytes=7-9")) != name(proxy)
    assert isinstance(ranges, Apart)
    assert name(proxy) in ranges.others


def test_unusual_requests_wait_apart_by_their_names(proxy):
    names = [name(proxy, (b"cookie", cookie)) for cookie in (b"a=1", b"a=2", b"b=1")]
    assert names[0] == names[1] != names[2]
    assert all(isinstance(each, Apart) and each.others == (name(proxy),) for each in names)


def test_a_no_cache_request_is_not_collapsed(proxy):
    proxy.store_away(b"one")
    assert name(proxy, (b"cache-control", b"no-cache")) is None


def test_variants_wait_apart_once_it_is_known_what_selects_them(proxy):
    assert name(proxy) == name(proxy, RUSSIAN)
    proxy.store_away(b"any", fields=VARIED)
    assert name(proxy) != name(proxy, RUSSIAN)


def test_where_nothing_could_be_stored_nobody_waits_for_a_while(proxy):
    proxy.store_away(b"one", fields=[(b"cache-control", b"no-store")])
    assert name(proxy) is None
    proxy.clock.now += 121
    assert name(proxy) is not None


# URLs that an unsafe request makes obsolete (RFC 9111 §4.4)


@cases(
    "field, targets",
    ((b"a", b"b"), [b"/a/b"]),
    ((b"location", b"/c?d#e"), [b"/a/b", b"/c?d"]),
    ((b"location", b"c"), [b"/a/b", b"/a/c"]),
    ((b"location", b"?c"), [b"/a/b", b"/a/b?c"]),
    ((b"content-location", b"//en.example/c"), [b"/a/b", b"/c"]),
    ((b"location", b"http://en.example/c"), [b"/a/b", b"/c"]),
    ((b"location", b"http://other.example/c"), [b"/a/b"]),
    ((b"location", b"https://en.example/c"), [b"/a/b"]),
)
def test_its_target_and_what_it_names_of_the_same_origin(proxy, field, targets):
    found = obsolete(proxy.admit(b"/a/b", b"POST"), Response(201, [field]))
    assert found == [Keys(frozenset(map(proxy.key, targets)))]


def test_groups_are_those_of_the_origin(proxy):
    response = Response(200, [(b"cache-group-invalidation", b'"one", "two"')])
    _, groups = obsolete(proxy.admit(b"/a", b"POST"), response)
    assert isinstance(groups, Tags)
    assert groups.origin == b"http en.example"


@pytest.mark.parametrize(("method", "status"), [(b"GET", 200), (b"POST", 404), (b"POST", 500)])
def test_a_safe_request_or_an_error_makes_nothing_obsolete(proxy, method, status):
    assert obsolete(proxy.admit(b"/a", method), Response(status, [(b"location", b"/c")])) == []
