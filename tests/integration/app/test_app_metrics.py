"""The metrics: what prometheus_client itself would tell, of one process and of several together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from support import stored_response
from univocal import MemoryStore, Outcome
from univocal.cache.decide import Forward
from univocal.engine.outcome import Times
from univocal.engine.purge import Purged
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal.judge.cache_status import Handling
from univocal.judge.hits import Hit, HitFields, Tally
from univocal.judge.orders import Order
from univocal.judge.plan import plan_of
from univocal.store.purge_selectors import Keys
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical
from univocal_app.config.tables import validate
from univocal_app.observe.counts import STEP
from univocal_app.observe.families import BOUNDS, FAMILIES, REQUESTS, SECONDS, written
from univocal_app.observe.figures import Figures, OriginWatch
from univocal_app.processes.commons import Commons
from univocal_app.run.assemble import House


def outcome(
    site: str = "en.example",
    handling: Handling = Handling(hit=True),  # noqa: B008
    status: int = 200,
    octets: int = 12,
    seconds: float = 0.002,
    reasons: tuple[str, ...] = (),
) -> Outcome:
    return Outcome(
        site=site,
        received=Received(b"GET", b"/a"),
        canonical=None,
        decision=Forward("uri-miss", may_store=False, fallback=None),
        status=status,
        bytes=octets,
        times=Times(1_700_000_000.0, 0.0, seconds),
        client=None,
        handling=handling,
        reasons=reasons,
    )


OUTCOMES = st.builds(
    outcome,
    site=st.sampled_from(["", "en.example", 'a"b\\c\n', "пример.example"]),
    handling=st.builds(
        Handling, hit=st.booleans(), fwd=st.sampled_from(["", "uri-miss", "stale"]), collapsed=st.booleans()
    ),
    status=st.sampled_from([0, 200, 204, 304, 404, 503]),
    octets=st.integers(0, 2**40),
    seconds=st.floats(0, 20) | st.sampled_from(BOUNDS),
    reasons=st.lists(st.sampled_from(["control-character", "unknown-host"]), max_size=2).map(tuple),
)


class Reference:
    """The same counters, as prometheus_client keeps them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counters = {
            name.removeprefix("univocal_"): Counter(
                name, family.documentation, family.labels, registry=self.registry
            )
            for name, family in FAMILIES.items()
            if family.kind == "counter" and family.labels and not name.startswith("univocal_store_")
        }
        text = "Seconds from a request's head (not of PURGE, BAN) to its response's last byte"
        self.seconds = Histogram(SECONDS, text, ["cache"], buckets=BOUNDS, registry=self.registry)

    def __call__(self, outcome: Outcome) -> None:
        handled = "hit" if outcome.handling.hit else outcome.handling.fwd or "none"
        status = f"{outcome.status // 100}xx" if outcome.status else "none"
        counters = self.counters
        counters["requests"].labels(outcome.site, handled, status).inc()
        refused = bool(outcome.reasons) and outcome.status >= 400
        counters["answerable"].labels(outcome.site).inc(not refused)
        counters["sent_bytes"].labels(outcome.site).inc(outcome.bytes)
        if outcome.handling.collapsed:
            counters["collapsed"].labels(outcome.site).inc()
        self.seconds.labels(handled).observe(outcome.times.total)
        for reason in outcome.reasons:
            counters["refused"].labels(outcome.site, reason).inc()

    def lines(self) -> list[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if "_created" not in line]


def gauges(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("univocal_stored_")]


OTHERS = re.compile(
    r"(# \w+ )?(process_|univocal_(stored|store_|evictions|build|connections|origin_up|origin_seconds))"
)


def counters(metrics: Figures) -> list[str]:
    """What exchanges are counted by."""
    return [line for line in text_of(metrics).splitlines() if not OTHERS.match(line)]


def text_of(figures: Figures) -> str:
    return figures.exposition()[0].decode()


@given(st.lists(OUTCOMES, max_size=20))
def test_the_text_is_what_prometheus_client_writes(outcomes: list[Outcome]) -> None:
    metrics, reference = Figures(MemoryStore()), Reference()
    for each in outcomes:
        metrics(each)
        reference(each)
    assert counters(metrics) == reference.lines()


def test_the_gauges_are_those_of_now() -> None:
    lines = text_of(Figures(MemoryStore())).splitlines()
    assert gauges(lines) == ["univocal_stored_responses 0.0", "univocal_stored_bytes 0.0"]
    assert "# TYPE univocal_stored_responses gauge" in lines
    assert "univocal_store_connected" not in "".join(lines)


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────


def store_of(responses: int, evictions: int = 0) -> MemoryStore:
    """A store that holds so many responses and has evicted so many."""
    one = stored_response(at=1_700_000_000.0)
    store = MemoryStore()
    for number in range(responses + evictions):
        lease = store.begin(b"0 http en.example /%d" % number, one.response_time)
        assert store.commit(lease, replace(one, key=lease.key))
        store.release(lease)
        if number + 1 == responses:
            store.max_bytes = store.stats.bytes
    stats = store.stats
    assert (stats.responses, stats.evictions) == (responses, evictions)
    return store


class Shared:
    behind, evictions = 0.0, 0

    def __init__(self, connected: bool) -> None:
        self.connected = connected


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """start(name): the metrics of a process of this name, with so many responses in its store."""

    def start(name: str, entries: int = 0, connected: bool = True) -> Figures:
        shared: Any = Shared(connected)
        return Figures(store_of(entries), shared, Commons(tmp_path, name))

    return start


def told(metrics: Figures, name: str) -> float:
    """The sum of a metric over all its labels."""
    text = text_of(metrics)
    return sum(float(value) for value in re.findall(rf"(?m)^{name}(?:\{{[^}}]*\}})? (\S+)$", text))


def test_each_process_tells_the_counts_of_all_at_once(start: Any) -> None:
    parent, one, two, reference = start("parent"), start("1"), start("2"), Reference()
    for metrics, each in (
        (one, outcome()),
        (two, outcome()),
        (two, outcome(handling=Handling(fwd="uri-miss"), seconds=7.0)),
        (parent, outcome(site="", status=400, reasons=("bad-host",))),
    ):
        metrics(each)
        reference(each)
        for asked in (parent, one, two):
            lines = counters(asked)
            assert sorted(lines) == sorted(reference.lines())


def test_gauges_of_all_that_live(start: Any) -> None:
    parent, one, two = start("parent", 1), start("1", 20), start("2", 300, connected=False)
    assert told(parent, "univocal_stored_responses") == 1  # nobody else has looked
    assert told(parent, "univocal_store_connected") == 1
    one.look()
    two.look()
    assert told(parent, "univocal_stored_responses") == 321
    stored = sum(store_of(count).stats.bytes for count in (1, 20, 300))
    assert told(parent, "univocal_stored_bytes") == stored
    assert told(parent, "univocal_store_connected") == 0
    parent.forget("2")
    assert told(parent, "univocal_stored_responses") == 21
    assert told(parent, "univocal_store_connected") == 1


def test_who_takes_the_place_of_another_goes_on_counting(start: Any, tmp_path: Path) -> None:
    parent, one = start("parent"), start("1", 20)
    one(outcome())
    one.look()
    parent.forget("1")
    assert told(parent, "univocal_requests_total") == 1
    other = start("1")
    for _ in range(2):
        other(outcome())
    other(outcome(site="other.example"))
    assert told(parent, "univocal_requests_total") == 4
    assert told(parent, "univocal_request_seconds_count") == 4
    assert {file.name for file in tmp_path.iterdir()} == {"parent.counts", "1.counts"}


def test_a_process_that_never_counted_is_forgotten(start: Any) -> None:
    parent = start("parent", 1)
    parent.forget("1")
    assert told(parent, "univocal_stored_responses") == 1


@pytest.mark.parametrize("size", [0, 3, 8, STEP, STEP + 3])
def test_a_process_that_was_killed_early_is_no_hindrance(tmp_path: Path, size: int) -> None:
    (tmp_path / "1.counts").write_bytes(bytes(size))
    reader = Figures(MemoryStore(), commons=Commons(tmp_path, "parent"))
    assert told(reader, "univocal_requests_total") == 0


def test_origin_failures_count_by_site_origin_and_reason() -> None:
    metrics = Figures(MemoryStore())
    failure = Failure("http://127.0.0.1:9000", "127.0.0.1:9000", "refused", "Connection refused")
    for _ in range(2):
        metrics.failed("en.example", failure)
    (line,) = [
        line for line in text_of(metrics).splitlines() if line.startswith("univocal_origin_errors_total")
    ]
    labels = 'origin="http://127.0.0.1:9000",reason="refused",site="en.example"'
    assert line == f"univocal_origin_errors_total{{{labels}}} 2.0"


def test_purges_are_counted_by_what_they_named() -> None:
    metrics = Figures(MemoryStore())
    for count, by in ((3, "tag"), (0, "tag"), (None, "tag"), (1, "key")):
        order = Order(Keys(frozenset()), by, ())
        metrics(replace(outcome(), decision=None, purged=Purged(order, count)))
    text = text_of(metrics)
    assert "univocal_requests_total{" not in text  # as in /-/stats: they ask for no resource
    assert "univocal_request_seconds_count{" not in text
    assert 'univocal_sent_bytes_total{site="en.example"} 48.0' in text
    lines = [line for line in text.splitlines() if line.startswith("univocal_purges_total")]
    assert lines == ['univocal_purges_total{by="tag"} 2.0', 'univocal_purges_total{by="key"} 1.0']


def test_evictions_of_those_that_have_ended_stay(tmp_path: Path) -> None:
    parent = Figures(MemoryStore(), commons=Commons(tmp_path, "parent"))
    Figures(store_of(5, evictions=7), commons=Commons(tmp_path, "1")).look()
    assert told(parent, "univocal_evictions_total") == 7
    parent.forget("1")
    assert (told(parent, "univocal_evictions_total"), told(parent, "univocal_stored_responses")) == (7, 0)
    Figures(store_of(5, evictions=2), commons=Commons(tmp_path, "1")).look()
    assert told(parent, "univocal_evictions_total") == 9


def test_processes_are_told_as_one(tmp_path: Path) -> None:
    parent = Figures(MemoryStore(), commons=Commons(tmp_path, "parent"))
    alone = told(parent, "process_resident_memory_bytes")
    began = told(parent, "process_start_time_seconds")
    Figures(MemoryStore(), commons=Commons(tmp_path, "1")).look()
    assert alone > 1 << 20
    assert told(parent, "process_resident_memory_bytes") > 1.5 * alone
    assert told(parent, "process_start_time_seconds") == began
    assert told(parent, "process_cpu_seconds_total") > 0
    parent.forget("1")
    assert told(parent, "process_resident_memory_bytes") < 1.5 * alone


@pytest.mark.parametrize(
    ("accept", "media_type", "end"),
    [
        ("", "text/plain; version=0.0.4", "\n"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4", "\n"),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            "# EOF\n",
        ),
    ],
)
def test_openmetrics_for_whoever_asks(accept: str, media_type: str, end: str) -> None:
    metrics = Figures(MemoryStore())
    metrics(outcome(reasons=("bad-host",)))
    text, told_type = metrics.exposition(accept)
    assert told_type.startswith(media_type)
    assert text.decode().endswith(end)
    parse = openmetrics if end != "\n" else prometheus
    families = {family.name: family for family in parse(text.decode())}
    assert families["univocal_refused"].samples[0].labels == {"site": "en.example", "reason": "bad-host"}
    info = "univocal_build" if end != "\n" else "univocal_build_info"
    (sample,) = families[info].samples
    assert (sample.name, set(sample.labels), sample.value) == (
        "univocal_build_info",
        {"version", "python"},
        1,
    )


def test_requests_to_origin_servers_and_the_seconds_that_each_took() -> None:
    metrics, url = Figures(MemoryStore()), "http://127.0.0.1:9000"
    for status, seconds in ((200, 0.002), (200, 0.3), (503, 0.7), (0, 60.0), (0, None)):
        metrics.answered("en.example", url, status, seconds)
    lines = text_of(metrics).splitlines()
    labels = f'origin="{url}",site="en.example"'
    assert [line for line in lines if line.startswith("univocal_origin_requests_total")] == [
        f'univocal_origin_requests_total{{{labels},status="{status}"}} {number}'
        for status, number in (("2xx", 2.0), ("5xx", 1.0), ("none", 2.0))
    ]
    assert told(metrics, "univocal_origin_seconds_sum") == pytest.approx(61.002)
    assert told(metrics, "univocal_origin_seconds_count") == 4  # of heads and timeouts
    buckets = [line for line in lines if line.startswith("univocal_origin_seconds_bucket")]
    assert [tuple(re.findall(r'le="([^"]*)".* (\S+)', line)[0]) for line in buckets][-5:] == [
        *(("30.0", "3.0"), ("60.0", "4.0"), ("120.0", "4.0"), ("300.0", "4.0"), ("+Inf", "4.0"))
    ]


def test_a_timeout_counts_with_its_seconds() -> None:
    metrics, url = Figures(MemoryStore()), "http://127.0.0.1:9000"
    for reason, counted in (("refused", 0), ("timeout", 1), ("reset", 1)):
        watch = OriginWatch(metrics, "en.example")
        watch.sending(url, [])
        watch.failed(Failure(url, "127.0.0.1", reason, "said"))
        watch.answered(url, 0)
        assert told(metrics, "univocal_origin_seconds_count") == counted


def test_one_process_tells_which_origin_servers_are_up(tmp_path: Path) -> None:
    one, two = "http://127.0.0.1:9001", "http://127.0.0.1:9002"
    here, there = {("a", one): True, ("a", two): False}, {("a", one): True, ("a", two): True}
    parent = Figures(MemoryStore(), commons=Commons(tmp_path, "parent"), origins=lambda: here)
    worker = Figures(MemoryStore(), commons=Commons(tmp_path, "1"), origins=lambda: there)

    def up() -> dict[str, float]:
        worker.look()
        pattern = r'univocal_origin_up\{origin="([^"]*)",site="a"\} (\S+)'
        return {url: float(value) for url, value in re.findall(pattern, text_of(parent))}

    assert up() == {one: 1, two: 0}
    here["a", two] = True
    assert up() == {one: 1, two: 1}
    for each in (here, there):
        del each["a", one]  # after a reload
    assert up() == {two: 1}


def test_the_reference_has_them_all() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference.md").read_text("utf-8")
    section = page.split("\n## The metrics\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{written(name)}` | {family.kind} | {family.documentation} |" for name, family in FAMILIES.items()
    ]


async def test_hits_that_wait_are_counted_before_the_program_ends() -> None:
    sites = [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:1"}]
    house = House(validate({"server": {"access_log": "off"}, "sites": sites}, "f"), "f")

    def hits() -> list[float]:
        return [value for _, value in house.figures.numbers(REQUESTS)]

    told: list[float] = []
    sending: Any = SimpleNamespace(close=lambda: told.extend(hits()))
    house.telemetry, stored = sending, stored_response()
    canonical = resolve(b"/a", (b"en.example",), b"http", house.proxy.gate.runtime.sites)
    plan, told_by = plan_of((b"host",)), HitFields(Handling(hit=True), [], b"")
    assert isinstance(canonical, Canonical)
    assert plan is not None
    for _ in range(2):  # the first of a second is told at once
        hit = Hit(stored, stored.head, 0, None, told_by, Tally(canonical), plan, [b"en.example"])
        house.proxy.engine.audience.count_hit(hit, Received(b"GET", b"/a"), 1_700_000_000.0, 1e-5)
    assert hits() == [1]
    await house.aclose()
    assert told == [2]
