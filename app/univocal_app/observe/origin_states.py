"""`GET /-/origins`: the origin servers of every site, how they are and how much they were asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.origin.servers import Member, MemberState, OriginServer
from univocal_app.observe.survey import Row, Survey

# The worse behind the better.
STATES: Final = [MemberState(word) for word in ("up", "backup", "ejected", "failing", "down", "draining")]


class Listed(NamedTuple):
    """An origin server of a site: the upstream's place in the file, hosts[0], and the URL as configured."""

    place: str
    site: str
    url: str
    member: Member[OriginServer]
    path: str = "/"  # of the route that has the upstream


List: TypeAlias = Callable[[], Iterable[Listed]]
"""Gives those that there are now."""


def states_of(listed: Iterable[Listed]) -> dict[tuple[str, str], tuple[bool, str]]:
    """By site and URL, whether an origin server is up, and the state that operators are shown.

    Of one in two upstreams, whether it is up in both, and the worse state.
    """
    states: dict[tuple[str, str], tuple[bool, int]] = {}
    for _, site, _, member, _ in listed:
        place, worst = (site, member.server.url), STATES.index(member.condition)
        is_up, known = states.get(place, (True, 0))
        states[place] = is_up and member.state is MemberState.UP, max(known, worst)
    return {place: (is_up, STATES[worst].value) for place, (is_up, worst) in states.items()}


class _Counted(NamedTuple):
    """The row of an origin server: which one it is, how it is and what was counted, by one process."""

    place: bytes
    site: bytes
    url: bytes
    name: bytes
    path: bytes
    state: bytes
    requests: int
    failures: int
    under_way: int
    since: int
    reason: bytes


class OriginStates:
    """The numbers of all origin servers that `listed` gives, in all processes.

    The states are those of this process, which are the program's: see processes.states.
    """

    def __init__(self, listed: List, survey: Survey | None = None) -> None:
        self._listed = listed
        self._survey = survey or Survey()
        self._survey.add("origins", "ttttttnnnnt", self._rows)

    async def document(self) -> list[dict[str, Any]]:
        """The list that `GET /-/origins` answers with."""
        rows_of: dict[tuple[object, ...], list[_Counted]] = {}
        for row in map(_Counted._make, await self._survey.rows("origins")):
            rows_of.setdefault(row[:5], []).append(row)
        return [_written(rows) for rows in rows_of.values()]

    def servers(self, url: str) -> frozenset[str]:
        """The origin servers that a URL means, with or without the path: scheme and authority of each."""
        named = url.rstrip("/")
        pairs = ((each.member.server.url, each.url.rstrip("/")) for each in self._listed())
        return frozenset(pair[0] for pair in pairs if named in pair)

    def shown(self, servers: Container[str]) -> frozenset[str]:
        """The URLs, as configured, of origin servers that are given by scheme and authority."""
        return frozenset(each.url for each in self._listed() if each.member.server.url in servers)

    def known(self) -> str:
        """The URLs that there are, for a message."""
        return ", ".join(dict.fromkeys(each.url for each in self._listed()))

    def left_alone(self, drained: Container[str]) -> str:
        """A site of which no origin server would be left that is up and not `drained`; "" if there is none.

        Sites that have none of these are left out.
        """
        up, by_place = set[str](), dict[str, str]()
        for place, site, _, member, _ in self._listed():
            if member.server.url in drained:
                by_place[place] = site
            elif member.condition in (MemberState.UP, MemberState.BACKUP):
                up.add(place)
        return next((site for place, site in by_place.items() if place not in up), "")

    def forsaken(self, drained: frozenset[str]) -> frozenset[str]:
        """The origin servers of all upstreams that have none but `drained` ones."""
        by_place: dict[str, set[str]] = {}
        for each in self._listed():
            by_place.setdefault(each.place, set()).add(each.member.server.url)
        return frozenset().union(*(urls for urls in by_place.values() if urls <= drained))

    def _rows(self) -> Iterator[Row]:
        now, since_epoch = time.monotonic(), time.time()
        for place, site, url, member, path in self._listed():
            yield _Counted(
                place.encode(),
                site.encode(),
                url.encode(),
                member.name.encode(),
                path.encode(),
                state=member.condition.value.encode(),
                requests=member.requests,
                failures=member.failures,
                under_way=member.under_way,
                since=int(since_epoch - (now - member.since)),
                reason=b"" if member.state is MemberState.UP else member.reason.encode(),
            )


def _written(rows: list[_Counted]) -> dict[str, Any]:
    here = rows[0]  # of this process, whose states are the program's
    address = here.name.decode().partition(" ")[2]  # of a name that leads to several, see origin.upkeep
    return {
        "site": here.site.decode(),
        "path": here.path.decode(),
        "url": here.url.decode(),
        **({"address": address} if address else {}),
        "state": here.state.decode(),
        "reason": here.reason.decode() or None,
        "requests": sum(each.requests for each in rows),
        "failures": sum(each.failures for each in rows),
        "under_way": sum(each.under_way for each in rows),
        "since": here.since,
    }
