"""Purges that removed nothing, and the pages that resemble what they named: one may have been meant."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from univocal.engine.outcome import Outcome
from univocal.store.purge_selectors import located, url_of
from univocal_app.observe.survey import Row, Survey

MOST: Final = 200  # names that are remembered: those that were purged last
LONGEST: Final = 512  # bytes of a name; what is longer is not noted
FEW: Final = 5  # neighbours that are told of each

_NAMED: Final = frozenset({"key", "urls", "tag", "prefix"})
_SLASHES: Final = re.compile(rb"/+")
_INDEX: Final = re.compile(rb"/index\.[a-z0-9]+$")


@dataclass(frozen=True)
class Missed:
    """A name that purges removed nothing by: how often, and when last (seconds since the epoch)."""

    by: str  # "url", "tag" or "prefix"
    name: str  # a canonical URL, a tag or a prefix
    count: int
    at: int


@dataclass(frozen=True)
class Neighbour:
    """A key whose URL resembles one that was purged, and the parts in which it differs."""

    key: bytes
    differs: tuple[str, ...] = field(default=())

    @property
    def url(self) -> str:
        """Its canonical URL."""
        return url_of(self.key).decode("latin-1")


class PurgeMisses:
    """Remembers the names by which purges removed nothing; it is told of purges alone.

    Each process remembers for itself, and by the `survey` all of them are asked.
    """

    def __init__(self, survey: Survey | None = None, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._missed: dict[tuple[str, str], tuple[int, int]] = {}  # count and time, the latest at the end
        self._survey = survey or Survey()
        self._survey.add("purge-misses", "ttnn", self._rows)

    def __call__(self, outcome: Outcome) -> None:
        purged = outcome.purged
        if purged is None or purged.count != 0 or purged.order.by not in _NAMED:
            return
        by = {"key": "url", "urls": "url"}.get(purged.order.by, purged.order.by)
        for name in purged.order.names[:MOST]:
            if len(name) <= LONGEST:
                count, _ = self._missed.pop((by, name), (0, 0))
                self._missed[by, name] = count + 1, int(self._clock())
        while len(self._missed) > MOST:
            del self._missed[next(iter(self._missed))]

    def _rows(self) -> list[Row]:
        return [(by.encode(), name.encode(), count, at) for (by, name), (count, at) in self._missed.items()]

    async def last(self, most: int) -> list[Missed]:
        """The names that were missed last, of all processes that answer in time."""
        by_name = dict[tuple[str, str], Missed]()
        for by, name, count, at in await self._survey.rows("purge-misses"):
            named = by.decode(), name.decode()
            known = by_name.get(named, Missed(*named, 0, 0))
            by_name[named] = Missed(*named, known.count + count, max(known.at, at))
        latest_first = list(by_name.values())[::-1]
        return sorted(latest_first, key=lambda each: -each.at)[:most]


def neighbours(missed: Iterable[Missed], keys: Iterable[bytes]) -> dict[Missed, list[Neighbour]]:
    """The keys that resemble each missed URL or prefix: by another host, query or spelling of the path.

    Paths resemble one another if they are equal after these steps: decode, lower-case, remove doubled and
    last slashes, and the name of an index. That only decides what an operator is shown.
    """
    urls, prefixes = dict[bytes, list[Missed]](), list[tuple[bytes, Missed]]()
    for each in missed:
        if each.by == "url":
            urls.setdefault(_loose(_parts(each.name)[2]), []).append(each)
        elif each.by == "prefix":
            prefixes.append((_lower(_parts(each.name)[2].partition(b"?")[0]), each))
    near: dict[Missed, list[Neighbour]] = {each: [] for each in missed}
    if not urls and not prefixes:
        return near
    for key in keys:
        target = located(key).split(b" ", 2)[2]
        path = _lower(target.partition(b"?")[0])
        alike = urls.get(_loose(target), [])
        for each in [*alike, *(one for begin, one in prefixes if path.startswith(begin))]:
            differs = _differences(each, key)
            if differs and len(near[each]) < 4 * FEW:
                near[each].append(Neighbour(key, differs))
    return near


def _differences(missed: Missed, key: bytes) -> tuple[str, ...]:
    """The parts in which a key differs from a missed name, but for the scheme: a purge means both."""
    _, authority, target = _parts(missed.name)
    _, other, there = located(key).split(b" ", 2)
    path, _, query = target.partition(b"?")
    path_there, _, query_there = there.partition(b"?")
    same = path_there.startswith(path) if missed.by == "prefix" else path_there == path
    differs = [("host", other != authority), ("path", not same)]
    if missed.by == "url":
        differs.append(("query", query_there != query))
    return tuple(name for name, is_different in differs if is_different)


def _parts(url: str) -> tuple[bytes, bytes, bytes]:
    scheme, _, rest = url.encode().partition(b"://")
    authority, slash, target = rest.partition(b"/")
    return scheme, authority, slash + target


def _loose(target: bytes) -> bytes:
    return _INDEX.sub(b"/", _lower(target.partition(b"?")[0])).rstrip(b"/")


def _lower(path: bytes) -> bytes:
    return _SLASHES.sub(b"/", unquote_to_bytes(path)).lower()
