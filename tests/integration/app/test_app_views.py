"""`GET /-/stats` and `GET /-/top`: what happened, by second and by key, of all processes."""

import tracemalloc
from dataclasses import replace

import pytest

from examples import LONG, cases
from support import Clock, an_outcome
from tests.integration.app.conftest import before_admin, client
from univocal import MemoryStore
from univocal.cache.decide import Forward, Handling
from univocal.engine.outcome import Times
from univocal.forward.upstream import Upstream
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal.origin.servers import OriginServer
from univocal.uri.sites import resolve
from univocal_app.config.tables import validate
from univocal_app.observe import top as tops
from univocal_app.observe.last_failures import FEW, LastFailures
from univocal_app.observe.origin_states import Listed
from univocal_app.observe.series import COARSE
from univocal_app.observe.survey import Survey
from univocal_app.observe.top import FIELDS, LONGEST, REFUSALS, Top
from univocal_app.run.worker_client import read_row, row_line

SITE = {"hosts": ["en.example"], "profile": "mediawiki", "upstream": "http://127.0.0.1:1"}
INNER = {"path": "/inner/", "upstream": "http://127.0.0.1:1/secret/"}
SETTINGS = {"sites": [{**SITE, "routes": [{"path": "/own/", "cache": {"ttl": 60}}, INNER]}]}
CONFIGURATION = validate(SETTINGS, "univocal.toml")
CONTENT = b"content"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stack(clock):
    return stack_of(MemoryStore(), clock)


def stack_of(store, clock, **views):
    place = {"site": "en.example", "url": "http://127.0.0.1:1"}
    return before_admin(CONFIGURATION, store=store, clock=clock, origins=lambda: [place], **views)


async def ask(app, *targets, method="GET", host="en.example", **fields):
    async with client(app, at=host) as browser:
        for target in targets:
            await browser.request(method, target, headers=fields)


async def told(app, path, status=200):
    async with client(app) as operator:
        answer = await operator.get(path)
    assert (answer.status_code, answer.headers["cache-control"]) == (status, "no-store")
    return answer.json()


async def test_requests_in_another_spelling_are_counted(proxy, application):
    await ask(proxy, "/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b%29", "/wiki/%00")
    assert (await told(application, "/-/stats"))["totals"]["folded"] == 2


async def test_a_failure_is_no_refusal(proxy, application):
    await ask(proxy, "/wiki/A", **{"Cache-Control": "only-if-cached"})
    await ask(proxy, "/wiki/%00")
    totals = (await told(application, "/-/stats"))["totals"]
    assert (totals["failed"], totals["refused"]) == ({"only-if-cached": 1}, {"control-character": 1})
    (failure,) = await told(application, "/-/failures")
    assert (failure["reason"], failure["status"]) == ("only-if-cached", 504)
    assert failure["url"] == "http://en.example/wiki/A"


async def test_an_hour_is_told_in_steps_of_15_seconds(proxy, application, clock):
    clock.now += 5  # a step begins at 1,000,005
    proxy, application = stack_of(proxy.store, clock)
    for _ in range(6):
        await ask(proxy, "/wiki/A")
        clock.now += 5
    stats = await told(application, "/-/stats?step=15")
    assert (stats["step"], [each["at"] for each in stats["series"]]) == (
        15,
        [1_000_005, 1_000_020, 1_000_035],
    )
    assert [each["requests"] for each in stats["series"]] == [3, 3, 0]
    clock.now += 2 * COARSE.seconds
    assert len((await told(application, "/-/stats?step=15"))["series"]) == COARSE.seconds / COARSE.step
    assert (await told(application, "/-/stats?step=7", 400))["status"] == 400


async def test_keys_at_the_top(proxy, application):
    await ask(proxy, "/wiki/A", "/wiki/A", "/wiki/A", "/wiki/B", "/never", "/never")
    await ask(proxy, "/wiki/C", method="PURGE")
    key = "http://en.example"
    assert await told(application, "/-/top?by=requests&n=2") == [
        {"key": f"{key}/wiki/A", "count": 3},
        {"key": f"{key}/never", "count": 2},
    ]
    assert await told(application, "/-/top?by=misses&n=1") == [{"key": f"{key}/never", "count": 2}]
    assert (await told(application, "/-/top?by=bytes"))[0] == {
        "key": f"{key}/wiki/A",
        "count": 3 * len(CONTENT),
    }
    assert len(await told(application, "/-/top")) == 3


async def test_spellings_at_the_top(proxy, application):
    await ask(proxy, "/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A(b)", "/wiki/A%28b)", "/wiki/B")
    folded, single = await told(application, "/-/top?by=spellings")
    assert (folded["key"], folded["count"], folded["saved"]) == ("http://en.example/wiki/A(b)", 4, 2)
    assert {"target": "/wiki/A(b)", "count": 2} in folded["spellings"]
    assert len(folded["spellings"]) == 3
    assert (single["key"], single["saved"]) == ("http://en.example/wiki/B", 0)


async def test_refusals_at_the_top(proxy, application):
    await ask(proxy, "/wiki/%00", "/wiki/%01", "/wiki/%02")
    await ask(proxy, "/", "/", host="other.example")
    await ask(proxy, "/", host="third.example")
    await ask(proxy, "/wiki/A", **{"Cache-Control": "only-if-cached"})
    assert await told(application, "/-/top?by=refused") == [
        {"reason": "control-character", "count": 3, "host": "en.example", "example": "/wiki/%00", "hosts": 1},
        {"reason": "unknown-host", "count": 3, "host": "other.example", "example": "/", "hosts": 2},
    ]


async def test_the_fields_that_made_responses_personal_are_at_the_top(proxy, application):
    await ask(proxy, "/own/a", "/own/b", **{"X-Api-Key": "a", "Traceparent": "00-1-1-00"})
    await ask(proxy, "/own/c", **{"X-Api-Key": "b", "Cookie": "a=b", "X-Other": "c"})
    await ask(proxy, "/wiki/a", "/never", **{"X-Unasked": "a"})
    rows = await told(application, "/-/top?by=personal")
    assert {each["field"]: each["count"] for each in rows} == {"x-api-key": 3, "cookie": 1, "x-other": 1}
    assert rows[0] == {
        "field": "x-api-key",
        "count": 3,
        "example": "http://en.example/own/a",
        "setting": "ordinary_fields = ['x-api-key'] of [cache] if the field identifies nobody; else Vary",
    }
    assert len(await told(application, "/-/top?by=personal&n=2")) == 2


def test_names_of_fields_take_bounded_memory(proxy):
    top = Top()
    canonical = resolve(b"/own/a", [b"en.example"], b"http", proxy.gate.runtime.sites)
    handling, decision = Handling(fwd="uri-miss"), Forward("uri-miss", may_store=True, fallback=None)
    for number in range(10 * FIELDS):
        names = frozenset((b"x-%d" % number, b"x-y" * 1000))
        top(an_outcome(canonical=canonical, decision=decision, handling=handling, personal=names))
    assert len(top._personal.sums) <= 2 * FIELDS
    assert top._personal.examples.keys() <= top._personal.sums.keys()
    assert max(len(name) for (name,) in top._personal.sums) == LONGEST


async def test_the_last_failures_are_told_with_their_reasons(proxy):
    top, failures = Top(), LastFailures()
    failure = Failure("http://127.0.0.1:1", "127.0.0.1", "refused", "Connection refused")
    failed = replace(
        outcome(proxy, b"/wiki/A"),
        status=502,
        reasons=("origin-unreachable",),
        failure=failure,
        times=Times(7.0, 0.001, 0.5),
    )
    for number in range(30):
        for each in (top, failures):
            each(replace(failed, times=Times(float(number), 0.001, 0.5)))
            each(outcome(proxy, b"/wiki/B"))
    failures(replace(failed, status=200, reasons=(), times=Times(99.0, 0.1, 0.0)))  # a stale one instead
    assert await top.top("refused", 10) == []
    first, second, *others = await failures.last()
    assert (first["at"], first["status"], first["reason"], first["cause"]) == (99.0, 200, "stale", "refused")
    assert second == {
        "at": 29.5,
        "status": 502,
        "site": "en.example",
        "method": "GET",
        "url": "http://en.example/wiki/A",
        "reason": "origin-unreachable",
        "origin": "http://127.0.0.1:1",
        "cause": "refused",
        "error": "Connection refused",
    }
    assert len(others) == FEW - 2


async def test_every_row_has_the_shape_of_its_kind(clock):
    survey, url = Survey(), "http://127.0.0.1:1"
    (member,) = Upstream.of([OriginServer(url)]).balance.members
    listed = [Listed("sites[0]", "en.example", url, member)]
    proxy, _ = stack_of(MemoryStore(), clock, survey=survey, listed=lambda: listed)
    await ask(proxy, "/wiki/\u00e9", "/own/a", "/own//a", "/wiki/%00", **{"X-Api-Key": "a"})
    await ask(proxy, "/wiki/B", **{"Cache-Control": "only-if-cached"})
    await ask(proxy, "/wiki/C", method="PURGE")
    for about, shape in survey._shapes.items():
        rows = survey.own(about)
        assert rows, about
        assert [read_row(row_line(row), shape) for row in rows] == rows


@pytest.mark.parametrize("query", ["by=none", "by=", "n=0", "n=-1", "n=x", "n=1001", "n=", "n=²"])
async def test_a_question_that_is_none_is_400(application, query):
    assert (await told(application, f"/-/top?{query}", 400))["status"] == 400


async def test_a_url_is_explained(application):
    found = await told(application, "/-/explain?url=http%3A%2F%2Fen.example%2Fwiki%2FA%2528b%2529")
    assert (found["canonical"], found["rejected"]) == ("http://en.example/wiki/A(b)", None)
    assert any(stage["before"] != stage["after"] for stage in found["stages"])
    found = await told(application, "/-/explain?url=http%3A%2F%2Fen.example%2Fwiki%2F%2500")
    assert (found["canonical"], found["rejected"]) == (None, "control-character")
    found = await told(application, "/-/explain?url=http%3A%2F%2Fen.example%2Finner%2FA")
    assert found["canonical"] == "http://en.example/inner/A"
    assert "secret" not in str(found)  # it may be a variable's value
    for query in ("", "?url=", "?url=/wiki/A", "?url=%ff"):
        assert (await told(application, f"/-/explain{query}", 400))["status"] == 400


def outcome(proxy, target):
    canonical = resolve(target, [b"en.example"], b"http", proxy.gate.runtime.sites)
    decision = Forward("uri-miss", may_store=True, fallback=None)
    return an_outcome(target, canonical=canonical, decision=decision, handling=Handling(fwd="uri-miss"))


async def test_spellings_tell_the_requests_that_folding_saved(proxy, application):
    assert (await told(application, "/-/spellings"))["spellings"] == 0
    await ask(proxy, "/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b%29", "/wiki/B", "/never", "/wiki/%00")
    folding = await told(application, "/-/spellings")
    assert folding.pop("pages") == await told(application, "/-/top?by=spellings")
    assert folding == {"keys": 3, "folded": 1, "spellings": 4, "requests": 5, "saved": 1}


async def test_the_spellings_of_one_page_by_any_of_them(proxy, application):
    await ask(proxy, "/wiki/A(b)", "/wiki/A%28b%29", "/wiki/A%28b%29", "/wiki/B", "/never")
    page = await told(application, "/-/spellings?url=http%3A%2F%2Fen.example%2Fwiki%2FA%252528b)")
    assert (page["key"], page["count"], page["stored"]) == ("http://en.example/wiki/A%2528b)", 0, 0)
    page = await told(application, "/-/spellings?url=http%3A%2F%2Fen.example%2Fwiki%2FA%2528b)")
    assert page == {
        "key": "http://en.example/wiki/A(b)",
        "count": 3,
        "spellings": [{"target": "/wiki/A%28b%29", "count": 2}, {"target": "/wiki/A(b)", "count": 1}],
        "saved": 1,
        "stored": 1,
    }
    page = await told(application, "/-/spellings?url=http%3A%2F%2Fen.example%2Fnever")
    assert (page["count"], page["saved"], page["stored"]) == (1, 0, 0)


@cases("url, status", ("http://en.example/%2500", 400), ("nothing", 400), ("http://other.example/", 421))
async def test_an_invalid_url_has_no_spellings(application, url, status):
    assert (await told(application, f"/-/spellings?url={url}", status))["status"] == status


@pytest.mark.pure("a bound is replaced")
def test_many_keys_and_spellings_take_bounded_memory(proxy, monkeypatch):
    part = 1 if LONG else 20  # of the keys, and of the memory
    for name in ("MOST", "SPELLINGS"):
        monkeypatch.setattr(tops, name, getattr(tops, name) // part)
    top = Top()
    spellings = top.spellings
    first = outcome(proxy, b"/wiki/first")
    tracemalloc.start()
    try:
        for number in range(80_000 // part):
            target = b"/wiki/Some_title_of_an_article_%d" % number
            one = replace(
                first,
                canonical=first.canonical and replace(first.canonical, target=target),
                received=Received(b"GET", target),
            )
            top(one)
            spellings(one)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < (8 << 20) / part


async def test_refusals_take_bounded_memory(proxy):
    top = Top()
    refused = replace(outcome(proxy, b"/a"), status=421, reasons=("unknown-host",), canonical=None)
    for number in range(3 * REFUSALS):
        top(replace(refused, received=Received(b"GET", b"/"), host=f"h{number}.example"))
        top(replace(refused, received=Received(b"GET", b"/often"), host="often.example"))
    (row,) = await top.top("refused", 100)  # of one reason
    assert (row["host"], row["example"]) == ("often.example", "/often")
    assert row["count"] >= 3 * REFUSALS
    assert row["hosts"] < 2 * REFUSALS
