"""The line of a hit is made from remembered parts, and is the line of its Outcome."""

import dataclasses
import io
import math
from base64 import b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neighbours import HOST, Proxy
from univocal.cache.decide import Handling
from univocal.engine.outcome import Outcome
from univocal.http.messages import Received
from univocal.judge.admission import plan_of
from univocal.judge.hits import HitFields, Tally
from univocal.judge.runtime import RequestIds
from univocal_app.observe.accesslog import AccessLog, Outlet
from univocal_app.observe.log_lines import LONGEST, PAGES, HitLines, form_of, seconds_text

FORMS = {each: form_of(each) for each in ("json", "combined", "cached", "{target} {client} {user_agent}")}
# Remembered for the whole of the tests, as a server does.
LINES = {each: HitLines(form) for each, form in FORMS.items()}
NAMES = b"host", b"user-agent", b"referer"
NOW = 1_700_000_000.25
HOSTILE = b'/a"\\\x1b[2J\r\n\x00\xff{url}'
TARGETS = [*(b"/a", b"/a?b=c", b"/caf%C3%A9", b"/a%22b", b"/%7C"), b"/" + b"a" * 300]


def stored_hit(target):
    """The hit of a target, as the engine finds it."""
    proxy, plan = Proxy(), plan_of(NAMES)
    proxy.store_away(b"content", target=target)
    received = Received(b"GET", target, b"http", "192.0.2.1")
    assert plan is not None
    hit = proxy.engine.hits.find(received, plan, [HOST, b"curl/8", b""], proxy.clock())
    assert hit is not None
    return hit, received


def behind(found):
    """The same of a store behind memory."""
    told = HitFields(Handling(hit=True, ttl=60, detail="shared"), [], b"")
    return dataclasses.replace(found[0], hit_fields=told), found[1]


HITS = [stored_hit(target) for target in TARGETS]
HITS += [behind(HITS[0]), behind(HITS[1])]

octets = st.one_of(
    st.sampled_from([b"", b"-", b"curl/8", b' a"b\\ \t', HOSTILE, b"x" * LONGEST, b" " * LONGEST + b"y"]),
    st.binary(max_size=20),
    st.binary(min_size=LONGEST - 2, max_size=LONGEST + 2),
)
clients = st.one_of(
    st.none(),
    st.sampled_from(["192.0.2.1", "2001:db8::1", "", "a b\n\u20ac\ud800", "x" * 100]),
    st.text(max_size=9),
)
moments = st.one_of(
    st.sampled_from([0.0, NOW, NOW + 0.0004, NOW + 0.9, NOW + 60.0]), st.floats(0, 2**31, allow_nan=False)
)
durations = st.one_of(st.floats(0, 1e-3), st.floats(0, 1e4))


def without_names(hit, missing):
    """The hit of a request that has no such fields."""
    named = zip(hit.plan.names, hit.values, strict=True)
    fields = [(name, value) for name, value in named if name not in missing]
    plan = plan_of(tuple(name for name, _ in fields))
    assert plan is not None
    return dataclasses.replace(hit, plan=plan, values=[value for _, value in fields])


@pytest.mark.parametrize("form", FORMS)
@given(
    st.sampled_from(HITS),
    st.one_of(st.none(), octets),
    st.tuples(octets, octets),
    st.sampled_from([None, b"Basic YWxpY2U6eA==", b"Bearer x", b"Basic " + b64encode(HOSTILE + b":x")]),
    st.frozensets(st.sampled_from(NAMES[1:])),
    clients,
    st.sampled_from([b"1.1", b"1.1", b"2", b"3", b'\xff"']),
    st.sampled_from([200, 200, 404]),
    moments,
    durations,
)
@example(HITS[0], HOSTILE, (HOSTILE, HOSTILE), None, frozenset(), "1 2\n3", b"1.1", 200, NOW, 1e-5)
def test_a_hit_has_the_line_of_its_outcome(
    form, found, target, values, credentials, missing, client, version, status, begun, seconds
):
    hit, received = found
    if target is not None:  # of a page that nobody has asked for
        tally = Tally(hit.canonical, RequestIds(b"X-Request-Id", ()))
        received, hit = Received(b"GET", target), dataclasses.replace(hit, tally=tally)
    received = Received(b"GET", received.target, b"http", client, version)
    hit = dataclasses.replace(hit, client=client, values=[HOST, *values])
    if status != hit.stored.status:
        hit = dataclasses.replace(hit, stored=dataclasses.replace(hit.stored, status=status, body=b"none"))
    hit = without_names(hit, missing)
    if credentials is not None:
        plan = plan_of((*hit.plan.names, b"authorization"))
        assert plan is not None
        hit = dataclasses.replace(hit, plan=plan, values=[*hit.values, credentials])
    line = LINES[form].line(hit, received, begun, seconds)
    assert line == FORMS[form](Outcome.of_hit(hit, received, begun, seconds))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize("form", ["json", "combined", "cached"])
def test_many_pages_and_clients_take_bounded_memory(form):
    (hit, received), lines = HITS[0], HitLines(FORMS[form])
    for number in range(2 * PAGES + 1):
        other = dataclasses.replace(hit, client=f"192.0.2.{number}", tally=Tally(hit.canonical))
        lines.line(other, received, NOW, 1e-5)
        assert len(lines._pages) <= PAGES
        assert len(lines._addresses) <= PAGES
    assert PAGES < 10_000


def test_long_values_are_not_remembered():
    (hit, _), lines = HITS[0], HitLines(FORMS["json"])
    received = Received(b"GET", b"/" + b"\xff" * 1000)
    lines.line(dataclasses.replace(hit, client="x" * 1000), received, NOW, 1e-5)
    assert not lines._pages
    assert not lines._addresses


@given(st.one_of(st.floats(), st.floats(0, 1e-3), st.integers(0, 2_000_000).map(lambda nanos: nanos / 1e9)))
@example(0.0)
@example(-0.0)
@example(0.0009995)
@example(0.000998999999)
@example(math.nan)
def test_seconds_are_rounded_as_format_does(seconds):
    for each in (seconds, math.nextafter(seconds, 1.0), math.nextafter(seconds, 0.0)):
        assert seconds_text(each) == f"{each:.6f}"


def test_a_log_writes_hits_among_other_exchanges():
    stream, proxy = io.BytesIO(), Proxy()
    log = AccessLog(Outlet(stream, form_of("{cache} {target}")))
    proxy.engine.audience.hit_listeners = (log,)
    proxy.store_away(b"content", target=b"/b")
    proxy.engine.audience.announce_hit(*HITS[0], NOW, 0.0)
    assert stream.getvalue() == b"uri-miss /b\nhit /a\n"


def test_another_form_holds_for_hits_too():
    before, after = io.BytesIO(), io.BytesIO()
    log = AccessLog(Outlet(before, FORMS["json"]))
    log.turn_to(Outlet(after, form_of("{cache}")))
    log.hit(*HITS[0], NOW, 1e-5)
    assert (before.getvalue(), after.getvalue()) == (b"", b"hit\n")


def test_a_log_of_purges_alone_writes_no_hit():
    stream = io.BytesIO()
    AccessLog(Outlet(stream, FORMS["json"], purges_only=True)).hit(*HITS[0], NOW, 1e-5)
    assert stream.getvalue() == b""
