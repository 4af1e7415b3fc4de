"""The metrics: what prometheus_client itself would tell, of one process and of several together."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from support import an_outcome, metric_of, stored_response
from univocal import MemoryStore
from univocal.cache.decide import Handling
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal.judge.admission import plan_of
from univocal.judge.hits import Hit, HitFields, Tally
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical
from univocal_app.config.tables import validate
from univocal_app.observe.families import BOUNDS, FAMILIES, REQUESTS, SECONDS, written
from univocal_app.observe.figures import Figures, OriginWatch
from univocal_app.processes.commons import Commons
from univocal_app.run.assemble import Proxy

OUTCOMES = st.builds(
    an_outcome,
    site=st.sampled_from(["", "en.example", 'a"b\\c\n', "пример.example"]),
    handling=st.builds(
        Handling, hit=st.booleans(), fwd=st.sampled_from(["", "uri-miss", "stale"]), collapsed=st.booleans()
    ),
    status=st.sampled_from([0, 200, 204, 304, 404, 503]),
    bytes=st.integers(0, 2**40),
    seconds=st.floats(0, 20) | st.sampled_from(BOUNDS),
    reasons=st.lists(st.sampled_from(["control-character", "unknown-host"]), max_size=2).map(tuple),
)


class Reference:
    """The same counters, as prometheus_client keeps them."""

    def __init__(self):
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

    def __call__(self, outcome):
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

    def lines(self):
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if "_created" not in line]


def gauges(lines):
    return [line for line in lines if line.startswith("univocal_stored_")]


OTHERS = re.compile(
    r"(# \w+ )?"
    r"(process_|univocal_(stored|memory|store_|evictions|build|connections|origin_up|origin_seconds))"
)


def counters(metrics):
    """The lines of the metrics that count exchanges."""
    return [line for line in text_of(metrics).splitlines() if not OTHERS.match(line)]


def text_of(figures):
    return figures.exposition()[0].decode()


@given(st.lists(OUTCOMES, max_size=20))
def test_the_text_is_what_prometheus_client_writes(outcomes):
    metrics, reference = Figures(), Reference()
    for each in outcomes:
        metrics(each)
        reference(each)
    assert counters(metrics) == reference.lines()


def test_the_gauges_are_those_of_now():
    lines = text_of(Figures()).splitlines()
    assert gauges(lines) == ["univocal_stored_responses 0.0", "univocal_stored_bytes 0.0"]
    assert "# TYPE univocal_stored_responses gauge" in lines
    assert "univocal_store_connected" not in "".join(lines)


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────


def store_of(responses, evictions=0):
    """A store that holds so many responses and has evicted so many."""
    one = stored_response(at=1_700_000_000.0)
    store = MemoryStore()
    for number in range(responses + evictions):
        lease = store.leases.begin(b"0 http en.example /%d" % number, one.response_time)
        assert store.commit(lease, replace(one, key=lease.key))
        store.leases.release(lease)
        if number + 1 == responses:
            store.max_bytes = store.stats.bytes
    stats = store.stats
    assert (stats.responses, stats.evictions) == (responses, evictions)
    return store


class Shared:
    behind, evictions = 0.0, 0

    def __init__(self, connected):
        self.connected = connected

    async def holding(self): ...


@pytest.fixture
def start(tmp_path):
    """start(name): the metrics of a process of this name, with so many responses in its store."""

    def start(name, entries=0, connected=True):
        metrics = Figures(Commons(tmp_path, name))
        metrics.attend(store_of(entries), Shared(connected))
        return metrics

    return start


@pytest.mark.pure("the figures of compiled code take a SharedTier alone")
def test_a_process_that_never_counted_is_forgotten(start):
    parent = start("parent", 1)
    parent.forget("1")
    assert metric_of(parent, "univocal_memory_responses") == 1


def test_a_timeout_counts_with_its_seconds():
    metrics, url = Figures(), "http://127.0.0.1:9000"
    for reason, counted in (("refused", 0), ("timeout", 1), ("reset", 1)):
        watch = OriginWatch(metrics, "en.example")
        watch.sending(url, [])
        watch.failed(Failure(url, "127.0.0.1", reason, "said"))
        watch.answered(url, 0)
        assert metric_of(metrics, "univocal_origin_seconds_count") == counted


UP, DOWN = (True, "up"), (False, "down")


def test_one_process_tells_which_origin_servers_are_up(tmp_path):
    one, two = "http://127.0.0.1:9001", "http://127.0.0.1:9002"
    here, there = {("a", one): UP, ("a", two): DOWN}, {("a", one): UP, ("a", two): UP}
    parent, worker = Figures(Commons(tmp_path, "parent")), Figures(Commons(tmp_path, "1"))
    parent.attend(MemoryStore(), origins=lambda: here)
    worker.attend(MemoryStore(), origins=lambda: there)

    def up():
        worker.look()
        pattern = r'univocal_origin_up\{origin="([^"]*)",site="a"\} (\S+)'
        return {url: float(value) for url, value in re.findall(pattern, text_of(parent))}

    assert up() == {one: 1, two: 0}
    here["a", two] = UP
    assert up() == {one: 1, two: 1}
    for each in (here, there):
        del each["a", one]  # after a reload
    assert up() == {two: 1}


def test_the_reference_has_them_all():
    page = (Path(__file__).parents[3] / "docs" / "reference.md").read_text("utf-8")
    section = page.split("\n## The metrics\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{written(name)}` | {family.kind} | {family.documentation} |" for name, family in FAMILIES.items()
    ]


async def test_hits_that_wait_are_counted_before_the_program_ends():
    sites = [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:1"}]
    proxy = Proxy(validate({"server": {"access_log": "off"}, "sites": sites}, "f"))

    def hits():
        return [value for _, value in proxy.figures.numbers(REQUESTS)]

    told = []
    sending = SimpleNamespace(close=lambda: told.extend(hits()))
    proxy.telemetry, stored = sending, stored_response()
    canonical = resolve(b"/a", (b"en.example",), b"http", proxy.cache.gate.runtime.sites)
    plan, told_by = plan_of((b"host",)), HitFields(Handling(hit=True), [], b"")
    assert isinstance(canonical, Canonical)
    assert plan is not None
    for _ in range(2):  # the first of a second is told at once
        hit = Hit(stored, stored.head, 0, None, told_by, Tally(canonical), plan, [b"en.example"])
        proxy.cache.engine.audience.count_hit(hit, Received(b"GET", b"/a"), 1_700_000_000.0, 1e-5)
    assert hits() == [1]
    await proxy.aclose()
    assert told == [2]
