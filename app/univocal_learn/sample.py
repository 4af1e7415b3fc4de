"""The sample of real URLs: read from a list, a sitemap or a log; ordered so that few pages tell much."""

from __future__ import annotations

import html
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from univocal.uri.query import split
from univocal_app.observe.log_reader import LogEntry, LogError, entry_of_any, lines, opened

# A sample has no more targets than these; of a larger file the first are taken.
_MOST: Final = 20_000
_LOCATION: Final = re.compile(rb"<(?:\w{1,20}:)?loc>(?:\s*<!\[CDATA\[)?([^<]*)")
_SITEMAP: Final = re.compile(rb"<(?:\w{1,20}:)?(urlset|sitemapindex)\b")
_SPEAKABLE: Final = re.compile(rb"/[!-~]{0,1023}")


@dataclass(frozen=True, slots=True)
class Sample:
    """Distinct targets of one host, and how many of other hosts were left out."""

    targets: tuple[bytes, ...]
    foreign: int


def read_sample(path: str, authority: bytes) -> Sample:
    """The targets in a list, a sitemap or a log that belong to `authority`.

    Where none does, those of the host that has the most: the origin server stands for it. Raises LogError.
    """
    with opened(path) as stream:
        head = stream.read(64 << 10)
        sitemap = _SITEMAP.search(head)
        if sitemap is None:
            listed: Iterable[bytes] = _lines(head, stream)
        elif sitemap[1] == b"urlset":
            listed = map(_location, _LOCATION.findall(head + stream.read(64 << 20)))
        else:
            raise LogError(f"{path}: this sitemap is an index of others: give one of those that it names")
        return _of_one_host(filter(None, map(entry_of_any, listed)), authority)


def _location(text: bytes) -> bytes:
    """The URL in a sitemap's `loc`."""
    return html.unescape(text.strip().removesuffix(b"]]>").strip().decode("utf-8", "replace")).encode()


def _lines(head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    *whole, rest = head.split(b"\n")
    yield from whole
    for line in lines(stream):
        yield b"" if line is None else rest + line
        rest = b""
    yield rest


def _of_one_host(entries: Iterable[LogEntry], authority: bytes) -> Sample:
    by_host: defaultdict[bytes, dict[bytes, None]] = defaultdict(dict)
    count = 0
    for entry in entries:
        if entry.method != b"GET" or not 200 <= entry.status < 400 or not _SPEAKABLE.fullmatch(entry.target):
            continue
        targets = by_host[entry.host.lower()]
        count += entry.target not in targets
        targets[entry.target] = None
        if count >= _MOST:
            break
    own = authority.lower()
    if own not in by_host:
        named = Counter({host: len(targets) for host, targets in by_host.items() if host})
        own = named.most_common(1)[0][0] if named else b""
    chosen = dict.fromkeys([*by_host.get(own, ()), *by_host.get(b"", ())])
    return Sample(tuple(chosen), count - len(chosen))


def section_of(target: bytes) -> bytes:
    """The first segment of a target, if it is a directory's."""
    segments = split(target)[0].split(b"/", 2)
    return segments[1] if len(segments) > 2 else b""


def varied(targets: Sequence[bytes]) -> list[bytes]:
    """The targets in an order in which each kind comes before the second of any.

    A kind is the first segment, how many there are, how the last one ends, and whether there is a query.
    """
    kinds: defaultdict[tuple[object, ...], deque[bytes]] = defaultdict(deque)
    for target in targets:
        path, query = split(target)
        segments = path.split(b"/")
        last = segments[-1]
        kind = (section_of(target), len(segments), last[-4:] if b"." in last else not last)
        kinds[*kind, bool(query)].append(target)
    waiting = deque(kinds.values())
    ordered = []
    while waiting:
        kind_of = waiting.popleft()
        ordered.append(kind_of.popleft())
        if kind_of:
            waiting.append(kind_of)
    return ordered
