"""The metrics: what prometheus_client itself would tell, of one process and of several together."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from univocal import MemoryStore, Outcome
from univocal.engine.outcome import Handling, Times
from univocal.http.errors import Failure
from univocal.http.messages import Received
from univocal_app.observe.counts import STEP, Counts
from univocal_app.observe.metrics import BOUNDS, COUNTERS, SECONDS, Metrics
from univocal_app.run.processes import Commons


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
        decision=None,
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
    handling=st.builds(Handling, hit=st.booleans(), fwd=st.sampled_from(["", "uri-miss", "stale"])),
    status=st.sampled_from([0, 200, 204, 304, 404, 503]),
    octets=st.integers(0, 2**40),
    seconds=st.floats(0, 20) | st.sampled_from(BOUNDS),
    reasons=st.lists(st.sampled_from(["control-character", "unknown-host"]), max_size=2).map(tuple),
)


class Reference:
    """The same counters, as prometheus_client keeps them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests, refused, sent, self.failed = (
            Counter(name, text, labels, registry=self.registry) for name, (text, labels) in COUNTERS.items()
        )
        text = "Seconds from a request's head to its response's last octet"
        self.seconds = Histogram(SECONDS, text, ["cache"], buckets=BOUNDS, registry=self.registry)
        self.requests, self.refused, self.sent = requests, refused, sent

    def __call__(self, outcome: Outcome) -> None:
        handled = "hit" if outcome.handling.hit else outcome.handling.fwd or "none"
        status = f"{outcome.status // 100}xx" if outcome.status else "none"
        self.requests.labels(outcome.site, handled, status).inc()
        self.sent.labels(outcome.site).inc(outcome.bytes)
        self.seconds.labels(handled).observe(outcome.times.total)
        for reason in outcome.reasons:
            self.refused.labels(outcome.site, reason).inc()

    def lines(self) -> list[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        return [line for line in lines if "_created" not in line]


def gauges(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("univocal_stored_")]


def counters(metrics: Metrics) -> list[str]:
    lines = metrics.exposition().decode().splitlines()
    return [line for line in lines if "univocal_stored_" not in line]


@given(st.lists(OUTCOMES, max_size=20))
def test_the_text_is_what_prometheus_client_writes(outcomes: list[Outcome]) -> None:
    metrics, reference = Metrics(MemoryStore()), Reference()
    for each in outcomes:
        metrics(each)
        reference(each)
    assert counters(metrics) == reference.lines()


def test_the_gauges_are_those_of_now() -> None:
    lines = Metrics(MemoryStore()).exposition().decode().splitlines()
    assert gauges(lines) == ["univocal_stored_responses 0.0", "univocal_stored_bytes 0.0"]
    assert "# TYPE univocal_stored_responses gauge" in lines
    assert "univocal_shared_store_connected" not in "".join(lines)


# ── several processes ───────────────────────────────────────────────────────────────────────────────────────


class Store(MemoryStore):
    """One that says of itself that it holds so many responses."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.entries = entries

    @property
    def stats(self) -> Any:
        return type("Stats", (), {"entries": self.entries, "bytes": 100 * self.entries})()


class Shared:
    def __init__(self, connected: bool) -> None:
        self.connected = connected


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """start(name): the metrics of a process of this name, with so many responses in its store."""

    def start(name: str, entries: int = 0, connected: bool = True) -> Metrics:
        shared: Any = Shared(connected)
        return Metrics(Store(entries), shared, Commons(tmp_path, name))

    return start


def told(metrics: Metrics, name: str) -> float:
    """The sum of a metric over all its labels."""
    text = metrics.exposition().decode()
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
            lines = [line for line in counters(asked) if "univocal_shared" not in line]
            assert sorted(lines) == sorted(reference.lines())


def test_gauges_of_all_that_live(start: Any) -> None:
    parent, one, two = start("parent", 1), start("1", 20), start("2", 300, connected=False)
    assert told(parent, "univocal_stored_responses") == 1  # nobody else has looked
    assert told(parent, "univocal_shared_store_connected") == 1
    one.look()
    two.look()
    assert told(parent, "univocal_stored_responses") == 321
    assert told(parent, "univocal_stored_bytes") == 32100
    assert told(parent, "univocal_shared_store_connected") == 0
    parent.forget("2")
    assert told(parent, "univocal_stored_responses") == 21
    assert told(parent, "univocal_shared_store_connected") == 1


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


# ── the memory ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shared", [True, False])
def test_numbers_stay_when_the_memory_grows(tmp_path: Path, shared: bool) -> None:
    file = tmp_path / "1.counts" if shared else None
    counts = Counts(file)
    for number in range(5000):
        place = counts.place(("name", str(number)), 2)
        counts.cells[place] += number
        counts.cells[place + 1] += 0.5
    expected = [(("name", str(number)), [number, 0.5]) for number in range(5000)]
    assert list(counts) == expected
    assert file is None or file.stat().st_size > STEP
    assert file is None or list(Counts(file)) == expected


@pytest.mark.parametrize("size", [0, 3, 8, STEP, STEP + 3])
def test_a_file_whose_process_was_killed_early_is_used(tmp_path: Path, size: int) -> None:
    file = tmp_path / "1.counts"
    file.write_bytes(bytes(size))
    reader = Metrics(MemoryStore(), commons=Commons(tmp_path, "parent"))
    assert told(reader, "univocal_requests_total") == 0
    counts = Counts(file)
    counts.cells[counts.place(("a",))] += 1
    assert list(Counts(file)) == [(("a",), [1.0])]


def test_a_record_that_was_cut_off_is_none(tmp_path: Path) -> None:
    counts = Counts(tmp_path / "1.counts")
    counts.cells[counts.place(("a",))] = math.pi
    place = counts.place(("b",))
    memoryview(counts.cells).cast("B").cast("q")[place - 3] = 0  # its length, which is written last
    again = Counts(tmp_path / "1.counts")
    assert list(again) == [(("a",), [math.pi])]
    assert again.place(("longer than b",)) > place
    assert [name for name, _ in again] == [("a",), ("longer than b",)]


def test_failures_of_origin_servers_are_counted_by_site_origin_and_reason() -> None:
    metrics = Metrics(MemoryStore())
    failure = Failure("http://127.0.0.1:9000", "127.0.0.1:9000", "refused", "Connection refused")
    for _ in range(2):
        metrics.failed("en.example", failure)
    (line,) = [
        line
        for line in metrics.exposition().decode().splitlines()
        if line.startswith("univocal_origin_errors_total")
    ]
    labels = 'origin="http://127.0.0.1:9000",reason="refused",site="en.example"'
    assert line == f"univocal_origin_errors_total{{{labels}}} 2.0"
