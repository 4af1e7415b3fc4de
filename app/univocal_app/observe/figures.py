"""The figures of a process: a listener that counts each Outcome once, for `/metrics` and for `/-/stats`.

Each of several processes of one program counts in a file of a directory, which any of them reads and sums.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from univocal.cache.decide import Reuse
from univocal.engine.outcome import HitCounter, Outcome
from univocal.http.errors import REASONS, Failure
from univocal.http.messages import Fields
from univocal.http.roles import OriginRequest
from univocal.judge.hits import AlikeHits
from univocal.store.memory import MemoryStore
from univocal.store.roles import StoreStats
from univocal.store.shared import SharedTier
from univocal_app.observe import families, series
from univocal_app.observe.counts import Counts, Name, grouped, numbers_of
from univocal_app.observe.handled import REFUSALS, cache_word, cut_for, failed_for, may_hit
from univocal_app.processes.commons import Commons

_PAGE: Final = resource.getpagesize()  # bytes
_TICKS: Final = os.sysconf("SC_CLK_TCK")  # a second


def process_figures() -> dict[str, float]:
    """CPU seconds, bytes of memory, descriptors, and the start in Unix seconds; none without /proc."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            # After the name of the program, which is in parentheses and may have blanks.
            fields = stat.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as system:
            booted = next(float(line.split()[1]) for line in system if line.startswith(b"btime "))
        descriptors = len(os.listdir("/proc/self/fd"))
    except (OSError, StopIteration):
        return {}
    return {
        families.CPU: (float(fields[11]) + float(fields[12])) / _TICKS,
        "process_virtual_memory_bytes": float(fields[20]),
        "process_resident_memory_bytes": float(fields[21]) * _PAGE,
        families.STARTED: booted + float(fields[19]) / _TICKS,
        "process_open_fds": descriptors,
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


_STALE: Final = frozenset({"stale-while-revalidate", "stale-if-error", "disconnected"})
_REASON: Final = {reason: place for place, reason in enumerate(REASONS)}
# The kinds of numbers that are no more when their process is not.
_GAUGES: Final = {
    series.MAX_BYTES,
    series.MEMORY_MAX,
    *(name for name, family in families.FAMILIES.items() if family.kind == "gauge"),
}


class Figures(HitCounter):
    """The numbers that a process counts; with `commons` in a file, for all processes there.

    No name holds what a client sent: sites, origin servers, fixed words, status classes. It is made first, as
    all else is counted with it, and learns by `attend` what it is to look at.
    """

    def __init__(self, commons: Commons | None = None) -> None:
        self.attend(MemoryStore())
        self._directory = None if commons is None else commons.directory
        self._serves = commons is None or not commons.leads  # clients, whose responses are stored
        self._leads = commons is None or commons.leads
        self._counts = Counts(None if commons is None else _file(commons.directory, commons.process))
        self._held = StoreStats(0, 0, 0)  # by the store behind memory, as it has said last
        for name in (families.ENTRIES, families.OCTETS, series.MAX_BYTES, *series.MEMORY):
            self._counts.place((name,))  # which a thread may look at
        # The numbers that others that had this process's name have counted before.
        self._evicted, self._memory_evicted, self._cpu = (
            self._counts.cells[self._counts.place((name,))]
            for name in (families.EVICTIONS, families.MEMORY_EVICTIONS, families.CPU)
        )
        self._requests: dict[tuple[str, str, int], _Requests] = {}  # by site, handling, class of status
        self._origin_requests: dict[tuple[str, str, int], _OriginRequests] = {}  # by origin server likewise
        self._folded = self._counts.number((series.FOLDED,))
        self._series = [series.Series(self._counts, span) for span in (series.FINE, series.COARSE)]
        self._second = -1

    def attend(
        self,
        store: MemoryStore,
        shared: SharedTier | None = None,
        connections: Callable[[], Mapping[str, int]] = dict,
        origins: Callable[[], Mapping[tuple[str, str], tuple[bool, str]]] = dict,
    ) -> None:
        """Look at these from now on; `origins` gives the states of origin servers, see `states_of`."""
        self._store, self._shared = store, shared
        self.shares = shared is not None  # a store behind memory, with all processes
        self._connections, self._origins = connections, origins

    def __call__(self, outcome: Outcome) -> None:
        self._go_on_to(outcome.times.start + outcome.times.total)
        if outcome.decision is not None:
            self._requested(outcome)
        elif outcome.bytes:  # the answer to a purge, which asks for no resource
            self._add(families.BYTES, outcome.site, by=outcome.bytes)
        if outcome.reasons:
            self._explained(outcome)
        if outcome.purged is not None and outcome.purged.count is not None:
            self._add(families.PURGES, outcome.purged.order.by)

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        begin = 0
        while begin < len(hits):
            begin = self._add_hits(hits, begin)

    def _add_hits(self, hits: Sequence[AlikeHits], begin: int) -> int:
        """Count those of one site, one class of status and one second; return the place of the next."""
        first, place = hits[begin], begin
        site, hundreds = first.canonical.site.name, first.status // 100
        self._go_on_to(first.begun + first.seconds / first.count)
        requests, count, octets = self._requests_of(site, "hit", hundreds), 0, 0
        for place in range(begin, len(hits)):
            each = hits[place]
            mean = each.seconds / each.count
            is_other = each.canonical.site.name != site or each.status // 100 != hundreds
            if place > begin and (is_other or not self._is_of_now(each.begun + mean)):
                break
            count += each.count
            octets += each.octets * each.count
            requests.seconds.add(mean, each.count)
            if _is_folded(each.target, each.canonical.target):
                self._folded.add(each.count)
        else:
            place += 1
        requests.count.add(count)
        requests.answerable.add(count)
        requests.octets.add(octets)
        return place

    def _is_of_now(self, end: float) -> bool:
        """Tell whether an exchange ended in the second that is counted.

        Two clocks agree so far on that; by more, and one was set back.
        """
        return self._second - 0.01 <= end < self._second + 1

    def _go_on_to(self, end: float) -> None:
        if not self._is_of_now(end):
            self._begin(int(end))

    def _explained(self, outcome: Outcome) -> None:
        """Count the reasons for an answer: of a failure and of a cut response the first one."""
        site, first = outcome.site, outcome.reasons[0]
        if cut_for(outcome):
            self._add(families.CUT, site, first)
            return
        if failed_for(outcome):
            self._add(families.FAILED, site, first)
        for reason in outcome.reasons:
            if reason in REFUSALS:
                self._add(families.REFUSED, site, reason)
        if outcome.status >= 400 and first in _REASON:
            reasons = self._counts.place((series.REASONED, site), len(REASONS))
            self._counts.cells[reasons + _REASON[first]] += 1

    def _requested(self, outcome: Outcome) -> None:
        handling, times = outcome.handling, outcome.times
        seconds = times.total if outcome.status != 101 else times.first  # a tunnel lasts as long as it likes
        handled = cache_word(handling) or "none"
        requests, count = self._requests_of(outcome.site, handled, outcome.status // 100), outcome.alike
        requests.count.add(count)
        requests.octets.add(outcome.bytes * count)
        requests.seconds.add(seconds, count)
        if may_hit(outcome):
            requests.answerable.add(count)
        if outcome.canonical is not None and _is_folded(outcome.received.target, outcome.canonical.target):
            self._folded.add(count)
        if handling.collapsed:
            self._add(families.COLLAPSED, outcome.site)
        decision = outcome.decision
        if type(decision) is Reuse and decision.reason in _STALE:
            self._add(series.STALE)

    def _begin(self, second: int) -> None:
        self._look_at_store()
        for each in self._series:
            each.begin(second)
        self._second = second

    def each(self) -> Iterator[dict[Name, Sequence[float]]]:
        """The numbers of each process by their names, as they left them."""
        if self._directory is None:
            self._look_at_store()
            yield dict(self._counts)
            return
        for file in sorted(self._directory.glob("*.counts")):
            yield dict(numbers_of(file))

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All figures and their media type: Prometheus's text format, or OpenMetrics if Accept names that."""
        from univocal_app.observe.exposition import exposition  # noqa: PLC0415 - slow to import

        self.look()
        return exposition(grouped(self._gathered()), accept)

    def numbers(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The numbers of a counter or a gauge, each with its labels, of all processes, as `look` left them.

        A thread of its own may ask, as it changes nothing.
        """
        family = families.FAMILIES[name]
        for values, each in grouped(self._gathered())(name):
            if (number := family.number(each)) is not None:
                yield dict(zip(family.labels, values, strict=True)), number

    def _gathered(self) -> dict[Name, list[Sequence[float]]]:
        """The numbers under each name, of each process that has some, those that have ended included."""
        gathered: dict[Name, list[Sequence[float]]] = {}
        for numbers in self.each():
            for name, values in numbers.items():
                gathered.setdefault(name, []).append(values)
        return gathered

    def forget(self, process: str) -> None:
        """Handle the end of another process: its counts stay, its stored responses are gone."""
        assert self._directory is not None
        file = _file(self._directory, process)
        if file.exists():
            ended = Counts(file)
            for name, _ in ended:
                if name[0] in _GAUGES:
                    ended.cells[ended.place(name)] = math.nan

    def watch(self, request: OriginRequest) -> OriginWatch:
        """Count what becomes of a request to origin servers, also if no client waits for it."""
        return OriginWatch(self, request.site)

    def answered(self, site: str, origin: str, status: int, seconds: float | None) -> None:
        """Count a response's head, which took so many seconds; with status 0, that none came in these.

        None: there was another end, which says nothing of the origin server's time.
        """
        key = site, origin, status // 100
        requests = self._origin_requests.get(key)
        if requests is None:
            requests = self._origin_requests[key] = _OriginRequests(self._counts, *key)
        requests.count.add()
        if seconds is not None:
            requests.seconds.add(seconds)

    def commanded(self, command: str, result: str, seconds: float) -> None:
        """Count a command to the store behind memory."""
        self._add(families.STORE_COMMANDS, command, result)
        self._counts.histogram((families.STORE_SECONDS, command), families.BOUNDS).add(seconds)

    def failed(self, site: str, failure: Failure) -> None:
        """Count a request that an origin server did not answer, or not to the end."""
        self._add(families.ORIGIN_ERRORS, site, failure.origin, failure.reason)

    def _add(self, *name: str, by: int = 1) -> None:
        self._counts.number(name).add(by)

    def _requests_of(self, site: str, handled: str, hundreds: int) -> _Requests:
        key = site, handled, hundreds
        known = self._requests.get(key)
        if known is None:
            known = self._requests[key] = _Requests(self._counts, *key)
        return known

    def look(self) -> None:
        """Read what is not counted here; `each` does it for its own process alone."""
        self._look_at_store()
        if self._shared is not None:
            self._set(families.CONNECTED, self._shared.connected)
            self._set(families.BEHIND, self._shared.behind)
        for side, number in self._connections().items():
            self._set(families.CONNECTIONS, number, side)
        if self._leads:  # or several would tell of one state
            self._look_at_origins()
        for name, value in process_figures().items():
            self._set(name, value + (self._cpu if name == families.CPU else 0))

    def _look_at_origins(self) -> None:
        states, known = self._origins(), dict[Name, float]()
        for (name, *labels), _ in self._counts:
            if name in (families.ORIGIN_UP, families.ORIGIN_STATE):
                is_there = name == families.ORIGIN_STATE and tuple(labels[:2]) in states
                known[name, *labels] = 0 if is_there else math.nan
        for place, (is_up, state) in states.items():
            known[families.ORIGIN_UP, *place], known[families.ORIGIN_STATE, *place, state] = is_up, 1
        for (name, *labels), value in known.items():
            self._set(name, value, *labels)

    async def look_behind(self) -> None:
        """Ask the store behind memory what it holds: one process does so for all."""
        held = None if self._shared is None else await self._shared.holding()
        if held is not None:
            self._held = held
            if (second := int(time.time())) > self._second:
                self._begin(second)

    def _look_at_store(self) -> None:
        stats, most = self._store.stats, self._store.max_bytes if self._serves else 0
        own = StoreStats(stats.responses, stats.bytes, most, stats.evictions)
        self._hold(series.MEMORY, own, self._memory_evicted)
        if self._shared is None:
            self._hold(series.STORED, own, self._evicted)
        else:
            self._hold(series.STORED, self._held, self._evicted + self._shared.evictions)

    def _hold(self, names: Iterable[str], held: StoreStats, evicted: float) -> None:
        *numbers, evictions = held
        for name, number in zip(names, (*numbers, evicted + evictions), strict=True):
            self._set(name, number)

    def _set(self, name: str, value: float, *labels: str) -> None:
        place = self._counts.place((name, *labels))
        self._counts.cells[place] = value


class _Requests:
    """The numbers of requests to a site, of one handling and one class of status."""

    def __init__(self, counts: Counts, site: str, handled: str, hundreds: int) -> None:
        self.count = counts.number((families.REQUESTS, site, handled, _status(hundreds)))
        self.answerable = counts.number((families.ANSWERABLE, site))
        self.octets = counts.number((families.BYTES, site))
        self.seconds = counts.histogram((families.SECONDS, handled), series.FINE_BOUNDS)


class _OriginRequests:
    """The numbers of requests to an origin server, of one class of status; the seconds are the site's."""

    def __init__(self, counts: Counts, site: str, origin: str, hundreds: int) -> None:
        self.count = counts.number((families.ORIGIN_REQUESTS, site, origin, _status(hundreds)))
        self.seconds = counts.histogram((families.ORIGIN_SECONDS, site), families.ORIGIN_BOUNDS)


class OriginWatch:
    """One request on its way to origin servers (a `Watch`): the seconds that each of them takes."""

    __slots__ = ("_begun", "_figures", "_site", "_timed_out")

    def __init__(self, figures: Figures, site: str) -> None:
        self._figures, self._site, self._begun = figures, site, 0.0
        self._timed_out = False

    def sending(self, _: str, fields: Fields) -> Fields:
        """Begin to count."""
        self._begun, self._timed_out = time.perf_counter(), False
        return fields

    def answered(self, origin: str, status: int) -> None:
        """Count the head of a response, or that there is none."""
        seconds = time.perf_counter() - self._begun if status or self._timed_out else None
        self._figures.answered(self._site, origin, status, seconds)

    def failed(self, failure: Failure) -> None:
        """Count a failure, which comes before the word that no head came."""
        self._timed_out = failure.reason == "timeout"
        self._figures.failed(self._site, failure)


def _status(hundreds: int) -> str:
    return f"{hundreds}xx" if hundreds else "none"


def _is_folded(target: bytes, canonical: bytes) -> bool:
    """Tell whether a target in origin-form is another spelling than the canonical one."""
    return target != canonical and target[:1] == b"/"


def _file(directory: Path, process: str) -> Path:
    return directory / f"{process}.counts"
