"""The keys, spellings and refusals that are most frequent: listeners that count Outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import unquote

from univocal.engine.outcome import HitCounter, Outcome
from univocal.judge.hits import AlikeHits
from univocal.store.purge_selectors import url_of
from univocal.uri.target import Canonical
from univocal_app.observe.handled import refused_for
from univocal_app.observe.purge_misses import PurgeMisses
from univocal_app.observe.survey import Row, Survey, summed

Key = TypeVar("Key", bound=Hashable)
_Key: TypeAlias = tuple[bytes, ...]
Measure: TypeAlias = Literal["requests", "misses", "bytes", "loose", "spellings", "personal", "refused"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)

LOOSE_SETTING: Final = "[path] loose of the profile: without a spelling that the application tells apart"
# The settings that let responses be stored although requests have a field.
PERSONAL_SETTINGS: Final = {
    "cookie": 'bypass_cookies = ["session"] or keep_cookies of [cache]: the cookies that matter',
    "authorization": "none: the origin server sends Cache-Control: public where a response is for all",
}
PERSONAL_SETTING: Final = "ordinary_fields = [{name!r}] of [cache] if the field identifies nobody; else Vary"
MOST: Final = 2_000  # keys that stay by each measure when there are too many
SPELLINGS: Final = 10_000  # that stay when there are too many
REFUSALS: Final = 500  # pairs of a reason and a host
FIELDS: Final = 500  # names of fields
LONGEST: Final = 512  # bytes of a target, and of an example; a target that is longer is not counted

_UNKNOWN: Final = b"unknown-host"
_PAGES: Final = frozenset({200, 304})

Counted: TypeAlias = tuple[bytes, bytes, int]
"""A key, a target as it was received, and how often it was asked for."""


class Frequent(Generic[Key]):
    """Sums by key, of `most` keys at least and twice as many at most.

    It is space-saving (Metwally et al. 2005), in batches: when there are too many keys, the least go, and a
    key that is new begins with as much as those had at most. So no sum is too small, and none is too large by
    more than the sum of all by `most`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.sums: dict[Key, int] = {}
        self.examples: dict[Key, bytes] = {}  # the first of each key that came with one
        self._floor = 0  # of what is not counted by now, none had more

    def add(self, key: Key, weight: int = 1) -> None:
        """Add to a key's sum."""
        known = self.sums.get(key)
        if known is None:
            self._meet(key, weight)
        else:
            self.sums[key] = known + weight

    def note(self, key: Key, example: bytes) -> None:
        """Add 1 to a key's sum, and keep its first example."""
        self.add(key)
        self.examples.setdefault(key, example)

    def __iter__(self) -> Iterator[tuple[Key, int]]:
        return iter(self.sums.items())

    def _meet(self, key: Key, weight: int) -> None:
        if len(self.sums) >= 2 * self.most:
            self._floor = sorted(self.sums.values())[-self.most]
            self.sums = {each: count for each, count in self.sums.items() if count > self._floor}
            self.examples = {each: noted for each, noted in self.examples.items() if each in self.sums}
        self.sums[key] = self._floor + weight


class Spellings(HitCounter):
    """The spellings by which clients got a page with GET, by the key under which it is stored.

    Each process counts for itself, and by the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None) -> None:
        self._counts = Frequent[tuple[bytes, bytes]](SPELLINGS)
        self._survey = survey or Survey()
        self._survey.add("spellings", "kbn", self.counted)

    def __call__(self, outcome: Outcome) -> None:
        canonical, received = outcome.canonical, outcome.received
        if canonical is None or outcome.status not in _PAGES or received.method != b"GET":
            return
        self._add(canonical.key, received.target, outcome.alike)

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        for each in hits:
            if each.status in _PAGES:
                self._add(each.canonical.key, each.target, each.count)

    def _add(self, key: bytes, target: bytes, count: int) -> None:
        if len(target) <= LONGEST and target[:1] == b"/":
            self._counts.add((key, target), count)

    def counted(self) -> list[Counted]:
        """The spellings that this process has counted."""
        return [(key, target, count) for (key, target), count in self._counts]

    async def gathered(self) -> list[Counted]:
        """The `SPELLINGS` spellings that were asked for most, of all processes that answer in time."""
        return await asyncio.to_thread(_summed, await self._survey.rows("spellings"))

    async def by_key(self) -> dict[bytes, list[tuple[bytes, int]]]:
        """The spellings of each key with their counts: the key of most spellings and the most asked first."""
        return await asyncio.to_thread(_by_key, await self._survey.rows("spellings"))


# In threads: of many spellings this takes longer than others may wait.


def _summed(rows: list[Row]) -> list[Counted]:
    return [(key, target, count) for (key, target), count in summed(rows).most_common(SPELLINGS)]


def _by_key(rows: list[Row]) -> dict[bytes, list[tuple[bytes, int]]]:
    by_key = defaultdict[bytes, list[tuple[bytes, int]]](list)
    for key, target, count in _summed(rows):
        by_key[key].append((target, count))
    return dict(sorted(by_key.items(), key=lambda each: len(each[1]), reverse=True))


class Top(HitCounter):
    """The keys at the top by each measure, the reasons for which hosts were refused, and purges in vain.

    The spellings are counted beside it, by a listener of their own. Each process counts for itself, and by
    the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None) -> None:
        self._survey = survey = survey or Survey()
        self.spellings, self.purges = Spellings(survey), PurgeMisses(survey)
        self._requests, self._misses, self._bytes, self._loose = (Frequent[bytes](MOST) for _ in range(4))
        self._refused = Frequent[tuple[bytes, bytes]](REFUSALS)  # with a target
        self._personal = Frequent[tuple[bytes]](FIELDS)  # with the key of a page
        survey.add("requests", "kn", lambda: self._requests)
        survey.add("misses", "kn", lambda: self._misses)
        survey.add("bytes", "kn", lambda: self._bytes)
        survey.add("loose", "kn", lambda: self._loose)
        survey.add("refused", "bbbn", lambda: _with_examples(self._refused))
        survey.add("personal", "bkn", lambda: _with_examples(self._personal))

    def __call__(self, outcome: Outcome) -> None:
        canonical = outcome.canonical
        if outcome.reasons and refused_for(outcome):
            self._refuse(outcome)
        if canonical is None or outcome.decision is None:
            self.purges(outcome)
            return
        if not self._add(canonical, outcome.alike, outcome.bytes):
            return
        if outcome.handling.fwd:
            self._misses.add(canonical.key)
        if canonical.loose:
            self._loose.add(canonical.key)
        for name in outcome.personal:
            self._personal.note((name[:LONGEST],), canonical.key)

    def hits(self, hits: Sequence[AlikeHits]) -> None:
        for each in hits:  # never of a loose target
            self._add(each.canonical, each.count, each.octets)

    def _add(self, canonical: Canonical, count: int, octets: int) -> bool:
        """Count requests for a key, if it is short enough; `octets` of content were sent to each."""
        if len(canonical.target) > LONGEST:
            return False
        self._requests.add(canonical.key, count)
        self._bytes.add(canonical.key, octets * count)
        return True

    def _refuse(self, outcome: Outcome) -> None:
        received, canonical = outcome.received, outcome.canonical
        host = outcome.host.encode("latin-1", "replace") if canonical is None else canonical.authority
        self._refused.note((outcome.reasons[0].encode(), host[:255]), received.target[:LONGEST])

    async def keys(self) -> list[bytes]:
        """The keys that are counted by now, those that are asked for most first."""
        return [key for (key,), _ in summed(await self._survey.rows("requests")).most_common()]

    async def top(self, by: Measure, count: int, search: str = "") -> list[dict[str, Any]]:
        """The first `count` by a measure, as `GET /-/top` answers; with `search` those whose URL has it."""
        if by == "spellings":
            return _first(await self.spellings.by_key(), count)
        rows = await self._survey.rows(by)
        if by == "refused":
            return _refused(rows, count)
        if by == "personal":
            return _personal(rows, count)
        keys = ((_url(key), number) for (key,), number in summed(rows).most_common())
        chosen = ((url, number) for url, number in keys if _has(url, search))
        setting = {"setting": LOOSE_SETTING} if by == "loose" else {}
        return [{"key": url, "count": number, **setting} for url, number in islice(chosen, count)]

    async def spelled(self, key: bytes) -> dict[str, Any]:
        """The spellings by which a page was asked for: the row of `top` about it."""
        return _with_spellings(key, (await self.spellings.by_key()).get(key, []))

    async def folding(self, count: int) -> dict[str, Any]:
        """Sums over all pages: pages, those of several spellings, spellings, requests, misses saved.

        Beside them the first `count` pages, as `top` has them by spellings.
        """
        by_key = await self.spellings.by_key()
        folded = by_key.values()
        return {
            "keys": len(folded),
            "folded": sum(len(spelled) > 1 for spelled in folded),
            "spellings": sum(map(len, folded)),
            "requests": sum(number for spelled in folded for _, number in spelled),
            "saved": sum(len(spelled) - 1 for spelled in folded),
            "pages": _first(by_key, count),
        }


def _first(by_key: dict[bytes, list[tuple[bytes, int]]], count: int) -> list[dict[str, Any]]:
    return [_with_spellings(key, spelled) for key, spelled in islice(by_key.items(), count)]


def _with_spellings(key: bytes, spelled: list[tuple[bytes, int]]) -> dict[str, Any]:
    return {
        "key": _url(key),
        "count": sum(number for _, number in spelled),
        "spellings": [{"target": target.decode("latin-1"), "count": number} for target, number in spelled],
        "saved": max(len(spelled) - 1, 0),
    }


def _with_examples(counted: Frequent[Any]) -> list[Row]:
    """The rows of what is counted: the parts of the key, its example, and the number."""
    return [(*key, counted.examples.get(key, b""), number) for key, number in counted]


def _summed_with_examples(rows: Iterable[Row]) -> tuple[Counter[_Key], dict[_Key, bytes]]:
    """The numbers of such rows, added up for each key, and its first example."""
    sums, examples = Counter[_Key](), dict[_Key, bytes]()
    for *key, example, number in rows:
        sums[tuple(key)] += number
        examples.setdefault(tuple(key), example)
    return sums, examples


def _has(url: str, search: str) -> bool:
    """Tell whether a URL has a text, in capital or small letters, as it is or decoded."""
    wanted = search.casefold()
    return wanted in url.casefold() or wanted in unquote(url).casefold()


def _refused(rows: list[Row], count: int) -> list[dict[str, Any]]:
    """The reasons by host; hosts of no site are one row, with the host that was named most."""
    sums, examples = _summed_with_examples(rows)
    unknown = [named for named, _ in sums.most_common() if named[0] == _UNKNOWN]
    for named in unknown[1:]:
        sums[unknown[0]] += sums.pop(named)
    return [
        {
            "reason": reason.decode("latin-1"),
            "count": number,
            "host": host.decode("latin-1"),
            "example": examples[reason, host].decode("latin-1"),
            "hosts": len(unknown) if reason == _UNKNOWN else 1,
        }
        for (reason, host), number in sums.most_common(count)
    ]


def _personal(rows: list[Row], count: int) -> list[dict[str, Any]]:
    """The fields that kept responses from being stored, with a page for each and the setting that helps."""
    sums, pages = _summed_with_examples(rows)
    return [
        {
            "field": (field := name.decode("latin-1")),
            "count": number,
            "example": _url(pages[name,]),
            "setting": PERSONAL_SETTINGS.get(field) or PERSONAL_SETTING.format(name=field),
        }
        for (name,), number in sums.most_common(count)
    ]


def _url(key: bytes) -> str:
    """The canonical URL of a key, as PURGE answers it."""
    return url_of(key).decode("latin-1")
