"""`/metrics` and `/-/stats` show the same numbers."""

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import cases
from neighbours import HOST, Proxy
from support import Clock, an_outcome, metric_of
from univocal import Outcome
from univocal.cache.decide import Handling
from univocal.http.messages import Received
from univocal.judge.admission import plan_of
from univocal.judge.hits import AlikeHits
from univocal_app.observe.families import BOUNDS
from univocal_app.observe.figures import Figures
from univocal_app.observe.series import FINE_BOUNDS
from univocal_app.observe.stats import Stats
from univocal_app.observe.top import Top
from univocal_app.processes.commons import Commons

START = 1_000_000.0


def outcome(**others):
    return an_outcome(start=others.pop("start", START), **others)


OUTCOMES = st.lists(
    st.builds(
        outcome,
        site=st.sampled_from(["", "a.example", "b.example"]),
        handling=st.builds(
            Handling, hit=st.booleans(), fwd=st.sampled_from(["", "stale"]), collapsed=st.booleans()
        ),
        status=st.sampled_from([0, 200, 304, 404, 502]),
        reasons=st.sampled_from([(), (), ("bad-host", "bad-target"), ("origin-unreachable",)]),
        bytes=st.integers(0, 2**40),
        seconds=st.floats(0, 200),
        alike=st.integers(1, 1000),
        start=st.sampled_from([START, START + 1, START + 3]),
    ),
    max_size=20,
)


@given(OUTCOMES)
def test_both_tell_the_same_numbers(outcomes):
    figures, clock = Figures(), Clock()
    stats = Stats(figures, clock)
    for each in outcomes:
        figures(each)
    clock.now += 300
    shown = stats.document()
    totals, series, text = shown["totals"], shown["series"], figures.exposition()[0]
    assert totals["requests"] == metric_of(text, "univocal_requests_total")
    assert totals["requests"] == metric_of(text, "univocal_request_seconds_count")
    assert totals["bytes"] == metric_of(text, "univocal_sent_bytes_total")
    assert totals["collapsed"] == metric_of(text, "univocal_collapsed_total")
    assert totals["hits"] == sum(each.alike for each in outcomes if each.handling.hit)
    assert totals["requests"] == sum(each.alike for each in outcomes)
    for key in ("requests", "hits", "answerable", "bytes", "cut"):
        assert sum(site[key] for site in totals["sites"]) == totals[key]
    for key in ("refused", "failed"):
        assert sum(site[key] for site in totals["sites"]) == sum(totals[key].values())
    assert sum(totals["failed"].values()) == metric_of(text, "univocal_failed_total")
    assert totals["cut"] == metric_of(text, "univocal_cut_total")
    assert totals["answerable"] == metric_of(text, "univocal_answerable_total")
    for key in ("requests", "hits", "bytes"):
        in_time = [each for each in series if each["at"] >= START]
        assert sum(each[key] for each in in_time) <= totals[key]


def found(target):
    """An ordinary hit."""
    proxy, plan, received = Proxy(), plan_of((b"host",)), Received(b"GET", target, b"http")
    proxy.store_away(b"content", target=target)
    assert plan is not None
    hit = proxy.engine.hits.find(received, plan, [HOST], proxy.clock())
    assert hit is not None
    return hit, received


HITS = [found(target) for target in (b"/a", b"/b?c=d", b"/%61", b"/" + b"a" * 600)]


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(HITS),
            st.sampled_from([200, 200, 404]),
            st.integers(1, 1000),
            st.sampled_from([START, START, START + 0.9999, START + 1, START - 2]),
            st.floats(1e-6, 1e-4),
        ),
        max_size=20,
    )
)
def test_hits_are_counted_as_their_outcomes_are(drawn):
    """One by one, and many at once: in the figures, among the spellings, and at the top."""
    alike, outcomes = list[AlikeHits](), list[Outcome]()
    for (hit, received), status, count, begun, seconds in drawn:
        other = dataclasses.replace(hit, stored=dataclasses.replace(hit.stored, status=status))
        alike.append(AlikeHits(other, received, begun, seconds * count, 1, is_kept=False))
        alike[-1].count = count
        outcomes.append(Outcome.of_hit(other, received, begun, seconds * count / count, count))
    told = list[tuple[Any, ...]]()
    for by_outcomes in (False, True):
        figures, top = Figures(), Top()
        spellings = top.spellings
        for counter in (figures, spellings, top):
            if by_outcomes:
                for outcome in outcomes:
                    counter(outcome)
            else:
                counter.hits(alike)
        numbers = {name: list(each) for name, each in next(figures.each()).items()}
        told.append((numbers, spellings.counted(), [*top._requests], [*top._bytes]))
    assert told[0][1:] == told[1][1:]
    assert told[0][0].keys() == told[1][0].keys()
    for name, numbers in told[0][0].items():
        for one, other in zip(numbers, told[1][0][name], strict=True):  # thousands, and few are not 0
            assert one == other or one == pytest.approx(other), name


@pytest.mark.parametrize(("status", "told_by_stats"), [(400, {"bad-host": 1}), (200, {})])
def test_a_refusal_that_is_only_observed_is_a_metric_alone(status, told_by_stats):
    figures = Figures()
    figures(outcome(status=status, reasons=("bad-host", "bad-target")))
    assert Stats(figures, Clock()).document()["totals"]["refused"] == told_by_stats
    assert metric_of(figures, "univocal_refused_total") == 2


@cases("status, failed, cut", (502, 1, 0), (200, 0, 1), (404, 0, 1), (0, 0, 0), (503, 0, 1))
def test_a_response_that_is_cut_has_not_failed(status, failed, cut):
    figures = Figures()
    figures(outcome(status=status, reasons=("origin-unreachable",)))
    totals = Stats(figures, Clock()).document()["totals"]
    assert (totals["failed"], totals["cut"]) == ({"origin-unreachable": 1} if failed else {}, cut)
    metrics = [metric_of(figures, f"univocal_{name}_total") for name in ("failed", "cut", "refused")]
    assert metrics == [failed, cut, 0]


def test_metrics_report_seconds_that_are_counted():
    assert set(BOUNDS) <= set(FINE_BOUNDS)
    assert list(FINE_BOUNDS) == sorted(set(FINE_BOUNDS))
    assert all(later / earlier < 1.34 for earlier, later in itertools.pairwise(FINE_BOUNDS))


def test_a_worker_that_is_killed_leaves_its_figures(tmp_path):
    parent, worker = (Figures(Commons(tmp_path, name)) for name in ("parent", "1"))
    for second in range(3):
        worker(outcome(start=START + second))
    parent.forget("1")  # it had no time to say or write anything
    other = Figures(Commons(tmp_path, "1"))
    other(outcome(start=START + 2))
    clock = Clock()
    stats = Stats(parent, clock)
    clock.now += 3
    other(outcome(site="other.example", start=START + 2))
    shown = stats.document()
    assert shown["totals"]["requests"] == metric_of(parent, "univocal_requests_total") == 5
    assert [second["requests"] for second in shown["series"]] == [1, 1, 3, 0]
    assert {file.name for file in tmp_path.iterdir()} == {"parent.counts", "1.counts"}


def test_figures_of_many_sites_stay_in_their_seconds():
    """The memory grows meanwhile, several times."""
    figures, clock = Figures(), Clock()
    stats = Stats(figures, clock)
    for second in range(3):
        for number in range(2000):
            figures(outcome(site=f"s{number}.example", start=START + second, bytes=1))
    clock.now += 3
    shown = stats.document()
    assert shown["totals"]["bytes"] == metric_of(figures, "univocal_sent_bytes_total") == 6000
    assert [second["bytes"] for second in shown["series"]] == [2000, 2000, 2000, 0]


@cases(
    "handling, label",
    (Handling(hit=True), "hit"),
    (Handling(fwd="stale", fwd_status=304), "revalidated"),
    (Handling(fwd="stale", fwd_status=500), "stale"),
    (Handling(fwd="stale"), "stale"),
    (Handling(), "none"),
)
def test_a_confirmed_response_is_revalidated(handling, label):
    figures = Figures()
    figures(outcome(handling=handling))
    text = figures.exposition()[0].decode()
    assert f'univocal_requests_total{{cache="{label}",site="en.example",status="2xx"}} 1.0' in text
