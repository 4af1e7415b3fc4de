"""The settings of a profile that a log supports: slashes, index names, parameters, bytes, hosts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from univocal.uri.query import split
from univocal_learn.corpus import Urls, weigh
from univocal_learn.questions import CUSTOMIZABLE, INDEX_NAME, TRACKING, parameters
from univocal_learn.sample import section_of
from univocal_learn.verdicts import CONFIDENCE
from univocal_learn.written import Settings, parameter_name

Pairs = list[tuple[int, int]]

# Pairs that a setting needs where the log has no sizes, and the weight that so many have.
_ENOUGH: Final = 10
# Of the URLs that a setting changes so many must be in the log under the other spelling, too.
_COVERED: Final = 0.05
_SESSION: Final = re.compile(
    r"(?i)(?:php|j|asp\.?net_?)?sess(?:ion)?_?id|sid|phpsessid|zenid|oscsid|cfid|cftoken"
)
_RANDOM: Final = re.compile(rb"(?=.*\d)(?:[0-9a-fA-F-]{16,}|[A-Za-z0-9_-]{20,})")
_PATH_SESSION: Final = re.compile(rb"(?i)[a-z.]*sess[a-z_]*=")
# The value of such a parameter may change a page without changing its size: an order, a choice among equals,
# or whose page it is.
_CHOOSING: Final = re.compile(
    r"(?i).*(?:sort|order|dir|asc|desc|page|offset|start|limit|lang|locale|format|view|mode|type|filter|query"
    r"|search|currency|theme|date|year|month|day|ver|rev|version|variant|colou?r|style|country|region|user"
    r"|account|member|customer|token|key|room|step|level)(?:\[\])?|[a-z]{1,2}|u?id|.*[_-]id|.*Id|sku|doc|hl"
    r"|tab|cat|tag|size|no|nr|num|number|time|hour|week|from|to|until|since|after|before"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A setting that the log supports: its name, the number of its pairs, its confidence, some pairs."""

    name: str
    support: int
    confidence: float
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Lessons:
    """The settings that the URLs of a log support, as far as they are found."""

    urls: Urls
    seen: list[Seen] = field(default_factory=list)

    def judged(self, name: str, pairs: Pairs, *, bare: bool, least: int = _ENOUGH) -> Seen | None:
        """The setting if its pairs support it; `bare`: they may even where no sizes are known."""
        if not pairs:
            return None
        weight = weigh(self.urls, pairs, nearly=bare)
        sure = weight.confidence if weight.sized else unsized(len(pairs), least) if bare else 0.0
        return Seen(name, len(pairs), sure, tuple(pairs[:50])) if sure > CONFIDENCE else None

    def learn(self, name: str, pairs: Pairs, *, bare: bool, least: int = _ENOUGH) -> bool:
        """Keep a setting if its pairs support it."""
        seen = self.judged(name, pairs, bare=bare, least=least)
        self.seen.extend([seen] if seen else [])
        return seen is not None


def unsized(support: int, least: int) -> float:
    """The certainty of a rule for which only the spelling speaks, after so many pairs."""
    return 1 - 0.5 / support if support >= least else 0.0


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────


def path_settings(urls: Urls) -> tuple[Settings, list[Seen]]:
    """The settings that a log supports: slashes, index names, path parameters, reserved bytes."""
    lessons = _Lessons(urls)
    settings = Settings(dot_segments="rfc3986", refused=("control-character", "fragment"))

    def heard(name: str, respell: Callable[[bytes], bytes | None], least: int = _ENOUGH) -> bool:
        return lessons.learn(name, _respelled(urls, respell), bare=True, least=least)

    if heard("merge_slashes", lambda path: re.sub(b"//+", b"/", path) if b"//" in path else None, 5):
        settings = replace(settings, merge_slashes=True)
    if _session_parameters(lessons):
        settings = replace(settings, parameters="strip")
    names = Counter(path.rpartition(b"/")[2] for path, _ in map(split, urls.targets))
    index = [name for name in names if INDEX_NAME.fullmatch(name)]
    named = [
        name
        for name in sorted(index, key=names.__getitem__, reverse=True)[:8]
        if heard(f"index_names {name.decode()}", lambda path, name=name: _unindexed(path, name), 3)  # type: ignore[misc]
    ]
    settings = replace(settings, index_names=tuple(name.decode() for name in named))
    settings = replace(settings, trailing_slash=_trailing(lessons))
    written = b" ".join(urls.targets)
    decode = [
        octet
        for octet in CUSTOMIZABLE
        if b"%%%02X" % octet in written
        and heard(f"decode {octet:c}", lambda path, octet=octet: _decoded(path, octet), 5)  # type: ignore[misc]
        and not (octet == 0x3B and settings.parameters == "strip")
    ]
    return replace(settings, decode=bytes(decode)), lessons.seen


def _changed(urls: Urls, respell: Callable[[bytes], bytes | None]) -> Iterator[tuple[int, int | None]]:
    """Each URL that changes with its path respelled, and the one that it is then, if the log has it."""
    for number, target in enumerate(urls.targets):
        if urls.good[number]:
            path, query = split(target)
            other = respell(path)
            if other is not None and other != path:
                yield number, urls.find(urls.hosts[number], other + query)


def _respelled(urls: Urls, respell: Callable[[bytes], bytes | None]) -> Pairs:
    return [(number, mate) for number, mate in _changed(urls, respell) if mate is not None]


def _unindexed(path: bytes, name: bytes) -> bytes | None:
    return path[: -len(name)] if path.endswith(b"/" + name) else None


_RESERVED: Final = re.compile(b"|".join(b"%%%02X" % octet for octet in CUSTOMIZABLE if octet != 0x2F))


def _decoded(path: bytes, octet: int) -> bytes | None:
    """The path with the byte decoded, and with it all others that programs encode along with it."""
    escape = b"%%%02X" % octet
    if escape not in path:
        return None
    if octet == 0x2F:
        return path.replace(escape, b"/")
    return _RESERVED.sub(lambda match: bytes.fromhex(match[0][1:].decode()), path)


def _trailing(lessons: _Lessons) -> str:
    """The way slashes at the end go, where pages come with and without: the way most requests have it.

    It holds for the whole site, so no part of it may have pages that come in the other way alone.
    """
    urls = lessons.urls
    seen = lessons.judged("trailing_slash", _respelled(urls, _unslashed), bare=True)
    if seen is None:
        return "keep"
    counts = [0, 0]
    for number, target in enumerate(urls.targets):
        path, _ = split(target)
        if path != b"/" and b"." not in path[path.rfind(b"/") :]:
            counts[path.endswith(b"/")] += urls.count[number]
    ways = sorted((("remove", _unslashed), ("add", _slashed)), key=lambda way: counts[way[0] == "add"])
    way = next((name for name, respell in reversed(ways) if _covered(urls, respell)), "keep")
    lessons.seen.extend([seen] if way != "keep" else [])
    return way


def _unslashed(path: bytes) -> bytes | None:
    return path.rstrip(b"/") or None


def _slashed(path: bytes) -> bytes | None:
    return None if b"." in path[path.rfind(b"/") :] or path.endswith(b"/") else path + b"/"


def _covered(urls: Urls, respell: Callable[[bytes], bytes | None]) -> bool:
    """Of the URLs that change enough are there under the other spelling, in each section."""
    changed, mated = Counter[bytes](), Counter[bytes]()
    sizes = Counter(map(section_of, urls.targets))
    for number, mate in _changed(urls, respell):
        section = section_of(urls.targets[number])
        section = section if sizes[section] >= _ENOUGH else b""
        changed[section] += 1
        mated[section] += mate is not None
    return all(mated[each] >= _COVERED * count for each, count in changed.items() if count >= _ENOUGH)


def _session_parameters(lessons: _Lessons) -> bool:
    """ ";name=value" can go: two URLs with different ones, or one without, are the same."""
    urls = lessons.urls
    groups: defaultdict[bytes, list[int]] = defaultdict(list)
    sessions = True
    for number, target in enumerate(urls.targets):
        path, query = split(target)
        if b";" in path and urls.good[number]:
            sessions = sessions and all(map(_PATH_SESSION.match, path.split(b";")[1:]))
            groups[urls.hosts[number] + re.sub(b";[^/]*", b"", path) + query].append(number)
    pairs = []
    for bare, members in groups.items():
        mate = urls.index.get(bare)
        if mate is None or not urls.good[mate]:
            mate = members.pop(0)
        pairs += [(each, mate) for each in members[:3]]
    return lessons.learn("parameters", pairs, bare=sessions, least=5)


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Query:
    """A URL with a query: where it stands, what is before the query, and its parameters."""

    number: int
    base: bytes
    parts: tuple[tuple[str, bytes], ...]  # name, if a profile can tell it, and the whole parameter

    def without(self, names: frozenset[str]) -> bytes:
        """The rest of the URL, in whichever order it stands."""
        rest = sorted(part for name, part in self.parts if name not in names)
        return self.base + b"?" + b"&".join(rest) if rest else self.base


def query_settings(urls: Urls, settings: Settings) -> tuple[Settings, list[Seen]]:
    """The settings that a log supports: parameters unused, defaulted, in any order."""
    queries = []
    named = lru_cache(maxsize=65536)(parameter_name)
    for number, target in enumerate(urls.targets):
        path, query = split(target)
        if len(query) > 1 and urls.good[number]:
            parts = tuple((named(name), name + equals + value) for name, equals, value in parameters(query))
            queries.append(_Query(number, urls.hosts[number] + path, parts))
    lessons = _Lessons(urls)
    dropped: list[str] = []
    for names in _clusters(queries):
        if set(names) <= set(dropped):
            continue
        if _unused(lessons, queries, frozenset([*names, *dropped]), names):
            dropped += [name for name in names if name not in dropped]
    gone = frozenset(dropped)
    defaults = _defaults(lessons, queries, gone)
    unordered = _unordered(lessons, queries, gone)
    return replace(settings, drop=tuple(sorted(dropped)), defaults=defaults, sort=unordered), lessons.seen


def _clusters(queries: Sequence[_Query]) -> list[tuple[str, ...]]:
    """Names to be judged together: those of trackers, those that come together, then each by itself."""
    times: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for query in queries:
        names = sorted({name for name, _ in query.parts if name})
        times.update(names)
        if len(names) <= 8:
            together.update((one, other) for one in names for other in names if one < other)
    common = [name for name, count in times.most_common(200) if count >= 3]
    tracking = tuple(filter(_tracks, common))
    joined = [
        (one, other)
        for (one, other), count in together.items()
        if count >= 3 and count >= 0.8 * max(times[one], times[other])
    ]
    return [*([tracking] if len(tracking) > 1 else []), *joined[:50], *((name,) for name in common)]


def _unused(lessons: _Lessons, queries: Sequence[_Query], gone: frozenset[str], names: Sequence[str]) -> bool:
    """Tell whether URLs that differ in nothing but parameters are the same, `gone` being out already."""
    urls = lessons.urls
    groups: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    values: set[bytes] = set()
    for query in queries:
        mine = b"&".join(sorted(part for name, part in query.parts if name in names))
        if mine:
            values.add(mine)
            groups[query.without(gone)].append((query.number, mine))
    bare = _without_any(queries, frozenset(names), gone, groups)
    pairs: Pairs = []
    for rest, members in groups.items():
        mate = urls.index.get(rest) if rest not in bare else bare[rest]
        if mate is not None and urls.good[mate]:
            pairs += [(number, mate) for number, _ in members[:2]]
        first, value = members[0]
        pairs += [(number, first) for number, other in members[1:4] if other != value][:2]
    tracked = all(map(_tracks, names))
    if not tracked and len(values) < 2:
        return False  # the one value may be a default
    session = all(_SESSION.fullmatch(name) for name in names) and _is_random(values)
    if not (tracked or session) and any(map(chooses, names)):
        return False
    return lessons.learn(f"drop {' '.join(names)}", pairs, bare=tracked or session, least=5)


def chooses(name: str) -> bool:
    """A parameter of this name may change a page without changing its size."""
    return _CHOOSING.fullmatch(name) is not None


def _tracks(name: str) -> bool:
    return TRACKING.fullmatch(name.encode()) is not None


def _without_any(
    queries: Sequence[_Query], names: frozenset[str], gone: frozenset[str], groups: Container[bytes]
) -> dict[bytes, int]:
    """URLs without any of `names`, by what they are without the parameters that are gone."""
    by_rest: dict[bytes, int] = {}
    for query in queries:
        if not any(name in names for name, _ in query.parts):
            rest = query.without(gone)
            if rest in groups:
                by_rest.setdefault(rest, query.number)
    return by_rest


def _is_random(values: set[bytes]) -> bool:
    some = [value.partition(b"=")[2] for value in list(values)[:100]]
    return len(some) >= 10 and sum(_RANDOM.fullmatch(value) is not None for value in some) >= 0.9 * len(some)


def _defaults(lessons: _Lessons, queries: Sequence[_Query], gone: frozenset[str]) -> dict[str, str]:
    """Values with which a parameter might as well be absent, while others do change the page."""
    urls = lessons.urls
    groups: defaultdict[tuple[str, bytes], Pairs] = defaultdict(list)
    others: defaultdict[str, Pairs] = defaultdict(list)
    rests: dict[bytes, int] = {}
    for query in queries:
        rests.setdefault(query.without(gone), query.number)
    for query in queries:
        for name, part in query.parts:
            if name in gone or not name or _tracks(name):
                continue
            rest = query.without(gone | {name})
            mate = rests.get(rest, urls.index.get(rest))
            if mate is not None and urls.good[mate] and mate != query.number:
                groups[name, part.partition(b"=")[2]].append((query.number, mate))
                others[name].append((query.number, mate))
    defaults: dict[str, str] = {}
    for (name, value), pairs in sorted(groups.items(), key=lambda item: -len(item[1]))[:500]:
        if name in defaults or not value.isascii() or b"%" in value:
            continue
        seen = lessons.judged(f"default {name}={value.decode()}", pairs, bare=False)
        differing = sorted(set(others[name]) - set(pairs))
        if seen is not None and (not differing or weigh(urls, differing).confidence == 0.0):
            lessons.seen.append(seen)
            defaults[name] = value.replace(b"+", b" ").decode()
    return defaults


def _unordered(lessons: _Lessons, queries: Sequence[_Query], gone: frozenset[str]) -> bool:
    """The log has the same parameters in several orders, and the pages are the same."""
    groups: defaultdict[bytes, dict[bytes, int]] = defaultdict(dict)
    for query in queries:
        kept = [part for name, part in query.parts if name not in gone]
        if len(kept) > 1 and len({name for name, _ in query.parts}) == len(query.parts):
            groups[query.without(gone)].setdefault(b"&".join(kept), query.number)
    pairs = []
    for spelled in groups.values():
        first, *rest = spelled.values()
        pairs += [(each, first) for each in rest[:2]]
    return lessons.learn("sort", pairs, bare=True)


# ── hosts ─────────────────────────────────────────────────────────────────────────────────────────────────


def host_aliases(urls: Urls) -> tuple[dict[str, str], list[Seen]]:
    """Hosts under which the same pages are found, each with the one that is asked most."""
    by_target: defaultdict[bytes, list[int]] = defaultdict(list)
    counts: Counter[bytes] = Counter()
    pages: Counter[bytes] = Counter()
    for number, target in enumerate(urls.targets):
        counts[urls.hosts[number]] += urls.count[number]
        if urls.good[number]:
            by_target[target].append(number)
            pages[urls.hosts[number]] += 1
    shared: defaultdict[tuple[bytes, bytes], Pairs] = defaultdict(list)
    for numbers in by_target.values():
        for one in numbers[:8]:
            for other in numbers[:8]:
                rarer, other_host = urls.hosts[one], urls.hosts[other]
                is_rarer = (counts[rarer], rarer) < (counts[other_host], other_host)
                if rarer and other_host and is_rarer:
                    shared[rarer, other_host].append((one, other))
    aliases: dict[str, str] = {}
    lessons = _Lessons(urls)
    for (alias, host), pairs in sorted(shared.items(), key=lambda item: -len(item[1])):
        if alias.decode() in aliases or len(pairs) < max(5, 0.2 * min(pages[alias], pages[host])):
            continue
        www = alias.removeprefix(b"www.") == host.removeprefix(b"www.")
        if lessons.learn(f"alias {alias.decode()}", pairs, bare=www):
            aliases[alias.decode()] = aliases.get(host.decode(), host.decode())
    return aliases, lessons.seen
