"""Ordinary hits that are alike are counted together, and every one of them is heard of."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import any_of
from neighbours import FRESH, HOST, Proxy
from univocal.engine import outcome
from univocal.engine.outcome import ALIKE, OCTETS, SLICE, HitCounter, Outcome
from univocal.http.messages import Received
from univocal.judge.admission import plan_of
from univocal.judge.hits import Hit

PLAN = plan_of((b"host",))


class Watched(Proxy):
    """A proxy whose ordinary hits take as many seconds as a test says."""

    def hit(self, target=b"/a", seconds=1e-5):
        assert PLAN is not None
        received, found = Received(b"GET", target, b"http", "127.0.0.1"), self.engine.hits
        answer = found.find(received, PLAN, [HOST], self.clock())
        assert isinstance(answer, Hit)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "perf_counter", lambda: seconds)
            self.engine.audience.announce_hit(answer, received, self.clock(), 0.0)

    def have_stored(self, targets):
        """Have these stored, unheard by any listener."""
        for target in targets:
            self.store_away(b"content", target=target)
        self.outcomes.clear()
        self.counted.clear()


@pytest.fixture
def proxy(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)  # others take no time
    made = Watched()
    made.store_away(b"content")
    made.hit()  # the first of a second is counted by itself
    made.outcomes.clear()
    made.counted.clear()
    yield made
    made.engine.audience.settle()
    assert sum(each.alike for each in made.counted) == len(made.outcomes)


@pytest.mark.parametrize("passed", [1.0, -1.0])
def test_an_exchange_of_another_second_follows_this_ones_hits(proxy, passed):
    proxy.hit()
    proxy.hit()
    proxy.clock.now += passed
    proxy.store_away(b"content", target=b"/b")
    assert [(each.received.target, each.alike) for each in proxy.counted] == [(b"/a", 2), (b"/b", 1)]


def test_other_content_is_counted_by_itself(proxy):
    proxy.hit()
    proxy.ask(b"/a", b"GET", (b"cache-control", b"no-cache"))
    proxy.origin.last.answers(b"more content", fields=FRESH)
    proxy.hit()
    proxy.engine.audience.settle()
    assert [each.bytes for each in proxy.counted if each.handling.hit] == [7, 12]


def test_no_turn_of_the_event_loop_tells_of_many(proxy):
    targets = [b"/%d" % number for number in range(2 * SLICE + 1)]
    proxy.have_stored(targets)
    for target in targets:
        proxy.hit(target)
    proxy.clock.now += outcome.PATIENCE
    heard = []
    while proxy.clock.timers:
        timer = proxy.clock.timers[0]
        timer.cancel()
        timer.callback()
        heard.append(len(proxy.counted))
    assert heard == [SLICE, 2 * SLICE, 2 * SLICE + 1]


def test_outcomes_that_wait_keep_little_in_memory(proxy):
    content = bytes(OCTETS // 64)
    for number in range(65):
        proxy.store_away(content, target=b"/%d" % number)
    told = len(proxy.counted)
    for turn in (1, 2):  # what was told keeps nothing
        for number in range(65):
            proxy.hit(b"/%d" % number)
        (alone,) = proxy.counted[told:]
        assert (alone.received.target, alone.bytes) == (b"/64", OCTETS // 64)
        proxy.engine.audience.settle()
        told = len(proxy.counted)
        assert told == len(proxy.outcomes), turn


class Summing(HitCounter):
    """A counter that takes hits without their Outcomes."""

    def __init__(self):
        self.alike = []
        self.others = []

    def __call__(self, outcome):
        self.others.append(outcome)

    def hits(self, hits):
        self.alike += hits


def test_a_hit_counter_keeps_no_content_in_memory(proxy):
    summing, content = Summing(), bytes(OCTETS // 64)
    proxy.engine.audience.counters[:] = [summing]
    targets = [b"/%d" % number for number in range(65)]
    for target in targets:
        proxy.store_away(content, target=target)
    for target in targets:
        proxy.hit(target)
        proxy.hit(target)
    proxy.engine.audience.settle()
    assert [(each.octets, each.count, each.first) for each in summing.alike] == 65 * [(len(content), 2, None)]
    assert len(summing.others) == 65
    proxy.outcomes.clear()
    proxy.counted.clear()


@given(
    st.lists(
        st.tuples(any_of(b"/a", b"/b", b"/%61"), any_of(0.0, 0.0, 0.3, 1.0, -0.7), any_of(1e-6, 5e-5, 1.0)),
        max_size=40,
    )
)
def test_the_sums_are_those_of_each_exchange(asked):
    proxy, summing = Watched(), Summing()
    proxy.store_away(b"content")
    proxy.store_away(b"more content", target=b"/b")
    stored = proxy.outcomes.copy()
    proxy.engine.audience.counters.append(summing)
    for target, passed, seconds in asked:
        proxy.clock.pass_time(passed)
        proxy.hit(target, seconds)
    proxy.engine.audience.settle()
    named = Counter[object]()
    for hits in summing.alike:
        named[hits.target, int(hits.begun), hits.octets, hits.status] += hits.count
    told = proxy.outcomes[len(stored) :]
    assert named == Counter((each.received.target, int(each.times.start), each.bytes, 200) for each in told)
    assert sum(hits.seconds for hits in summing.alike) == pytest.approx(
        sum(each.times.total for each in told)
    )
    sums = [Counter[object](), Counter[object]()]
    for counter, told in zip(sums, (proxy.outcomes, proxy.counted), strict=True):
        for each in told:
            named = each.received.target, int(each.times.start), each.bytes, each.status
            counter[named] += each.alike
    assert sums[0] == sums[1]
    taken = [sum(each.times.total * each.alike for each in told) for told in (proxy.outcomes, proxy.counted)]
    assert taken[0] == pytest.approx(taken[1])


class HitReader:
    """A hit listener that takes note of what it hears."""

    def __init__(self, *, fails=False):
        self.hits = []
        self.others = []
        self.fails = fails

    def __call__(self, outcome):
        self.others.append(outcome)

    def hit(self, hit, received, begun, seconds):
        self.hits.append(Outcome.of_hit(hit, received, begun, seconds))
        if self.fails:
            raise ValueError("a fault")


@pytest.mark.parametrize("seconds", [1e-5, 2 * ALIKE])
def test_a_hit_listener_hears_each_exchange_once(proxy, seconds):
    reader = HitReader()
    proxy.engine.audience.hit_listeners = (reader,)
    proxy.hit(seconds=seconds)
    proxy.hit(seconds=seconds)
    proxy.store_away(b"content", target=b"/b")
    assert [*reader.hits, *reader.others] == proxy.outcomes
    assert [each.received.target for each in reader.others] == [b"/b"]


def test_a_hit_listener_that_fails_keeps_no_other_from_hearing(proxy, caplog):
    failing, reader = HitReader(fails=True), HitReader()
    proxy.engine.audience.hit_listeners = (failing, reader)
    proxy.hit()
    assert len(failing.hits) == len(reader.hits) == len(proxy.outcomes) == 1
    assert "a listener failed" in caplog.text
