"""The states of origin servers in one file, for all processes of a program: each has one state."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from univocal.origin.servers import Member, MemberState, OriginServer
from univocal.store.file.own_files import ByteLocks
from univocal_app.processes.commons import Commons

LONGEST: Final = 16 << 20  # bytes of the file
# Seconds for which another process may write the file, and between two attempts.
_PATIENCE: Final = 0.01
_PAUSE: Final = 0.0001
_REASON: Final = re.compile(r"[ -~]{0,1000}")  # it goes into the log as it is


class Known(NamedTuple):
    """The state of an origin server, and since when, in seconds of the system's monotonic clock."""

    since: float
    state: MemberState
    reason: str


class UpstreamServer(NamedTuple):
    """An origin server of one upstream, as one process has it.

    `key` names the server in every process and upstream; `checks` are the health checks of this upstream,
    which alone find that the server is down.
    """

    key: str
    member: Member[OriginServer]
    adopt: Callable[[Member[OriginServer], MemberState, float, str], None]
    checks: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of what requests have found, and of what the checks have."""
        return (self.key, f"{self.key} {self.checks}") if self.checks else (self.key,)

    def found(self, known: Mapping[str, Known]) -> Known | None:
        """The state that the server has here: down if its checks say so, else the latest."""
        states = [known[key] for key in self.keys if key in known]
        is_down = [each for each in states if each.state is MemberState.DOWN]
        return max(is_down or states, default=None, key=lambda each: each.since)

    def news(self, known: Mapping[str, Known]) -> dict[str, Known]:
        """The new state of the member by the keys that it changes: an answer ends what checks have found."""
        new = Known(self.member.since, self.member.state, self.member.reason)
        if new.state is MemberState.DOWN:
            return {self.keys[-1]: new}
        ended = (key for key in self.keys if key in known and known[key].state is MemberState.DOWN)
        return dict.fromkeys((self.key, *ended), new)


_States: TypeAlias = dict[str, Known]
_Content: TypeAlias = tuple[frozenset[str], _States]


@dataclass
class SharedStates:
    """The states that one upstream finds, in any process, become those of all.

    The latest counts, and outlives its process. `drained` are the URLs of the origin servers that operators
    have taken out; the process with the admin listener writes them. `clock` is that of the members.
    """

    commons: Commons | None = None
    clock: Callable[[], float] = time.monotonic
    drained: frozenset[str] = frozenset()
    _known: _States = field(default_factory=dict)
    # Since when each member had the state that was last compared.
    _compared: dict[Member[OriginServer], float] = field(default_factory=dict)
    _version: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.commons is not None:
            self._file = self.commons.directory / "origins"
            self._locks = ByteLocks(self.commons.directory / "origins.lock")

    def settle(self, places: Sequence[UpstreamServer]) -> None:
        """Tell the others what has been found here since the last time, and adopt what they have.

        A file that cannot be written or read changes nothing but what is known here.
        """
        with suppress(OSError):
            self._read()
        staying = {each.key for each in places if each.member in self._compared}
        changed, news = {each.member for each in places if self._has_changed(each, staying)}, _States()
        for place in places:
            if place.member in changed:
                news = _latest(news, place.news(self._known))
        known = _latest(self._known, news)
        news = {key: each for key, each in news.items() if known[key] is each}
        keys = {key for each in places for key in each.keys}
        is_told = not news or self._write(None, news, keys)
        known = _latest(self._known, news)
        for place in places:
            found, member = place.found(known), place.member
            if found is not None and found.since != member.since:
                place.adopt(member, found.state, found.since, found.reason)
        untold = set[Member[OriginServer]]() if is_told else changed
        self._compared = {
            each.member: self._compared.get(each.member, math.nan)
            if each.member in untold
            else each.member.since
            for each in places
        }

    def _has_changed(self, place: UpstreamServer, staying: Container[str]) -> bool:
        """True of a new state, and of one that begins anew, as a reload has changed the way to the server.

        A process that begins knows nothing of a member that is up.
        """
        if place.member in self._compared:
            return place.member.since != self._compared[place.member]
        return place.member.state is not MemberState.UP or bool(self._compared and place.key not in staying)

    def drain(self, urls: frozenset[str]) -> None:
        """Write down which origin servers are taken out."""
        self._write(urls, {}, self._known)

    def _write(self, drained: frozenset[str] | None, news: Mapping[str, Known], keys: Container[str]) -> bool:
        """Write down what is new; of the states only those of `keys` stay. False if it cannot be now."""
        if self.commons is None:
            self.drained, self._known = self._merged(drained, news, keys)
            return True
        if not self._locks.take_soon(0, _PATIENCE, _PAUSE):
            return False
        try:
            self._read()
            urls, known = self._merged(drained, news, keys)
            states = {key: (each.state.value, each.since, each.reason) for key, each in known.items()}
            written = self._file.with_suffix(".new")
            written.write_text(json.dumps({"drained": sorted(urls), "states": states}), "ascii")
            written.replace(self._file)
            self._read()
        except OSError:
            return False
        finally:
            self._locks.give(0)
        return True

    def _merged(
        self, drained: frozenset[str] | None, news: Mapping[str, Known], keys: Container[str]
    ) -> _Content:
        known = {key: each for key, each in self._known.items() if key in keys}
        return self.drained if drained is None else drained, _latest(known, news)

    def _read(self) -> None:
        """Read the file if it is another; one that no process of ours has written is none. Raises OSError."""
        if self.commons is None:
            return
        try:
            with self._file.open("rb") as file:
                status = os.stat(file.fileno())
                version = status.st_ino, status.st_mtime_ns
                if version == self._version:
                    return
                content = file.read(min(status.st_size, LONGEST))
        except FileNotFoundError:
            return
        self._version = version
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.drained, self._known = _parsed(json.loads(content), self.clock())


def _latest(known: Mapping[str, Known], news: Mapping[str, Known]) -> _States:
    """Both, and of two states of one key the one that began later."""
    later = {key: each for key, each in news.items() if key not in known or known[key].since < each.since}
    return {**known, **later}


def _parsed(document: Any, now: float) -> _Content:
    """The content of the file. Raises ValueError, TypeError, KeyError or AttributeError for any other."""
    drained = document["drained"]
    if not all(isinstance(url, str) for url in drained):
        raise TypeError("drained")
    states = dict[str, Known]()
    for key, (state, since, reason) in document["states"].items():
        if not 0 <= since <= now + 1 or _REASON.fullmatch(reason) is None:
            raise ValueError(key)
        states[key] = Known(float(since), MemberState(state), reason)
    return frozenset(drained), states
