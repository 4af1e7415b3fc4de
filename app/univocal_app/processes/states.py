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

from univocal.origin.balance import Member, MemberState
from univocal.origin.server import OriginServer
from univocal.store.file.byte_locks import ByteLocks
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


class Place(NamedTuple):
    """An origin server as one process has it: `key` names it in every process."""

    key: str
    member: Member[OriginServer]
    adopt: Callable[[Member[OriginServer], MemberState, float, str], None]


_Content: TypeAlias = tuple[frozenset[str], dict[str, Known]]


@dataclass
class SharedStates:
    """The states that one process finds become those of all; the latest counts, and outlives its process.

    `drained` are the URLs of the origin servers that operators have taken out; the process with the admin
    listener writes them. `clock` is that of the members.
    """

    commons: Commons
    clock: Callable[[], float] = time.monotonic
    drained: frozenset[str] = frozenset()
    _known: dict[str, Known] = field(default_factory=dict)
    # Each member, and since when it had the state that was last compared.
    _compared: dict[str, tuple[Member[OriginServer], float]] = field(default_factory=dict)
    _version: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._file = self.commons.directory / "origins"
        self._locks = ByteLocks(self.commons.directory / "origins.lock")

    def settle(self, places: Sequence[Place]) -> None:
        """Tell the others what this process has found since the last time, and adopt what they have.

        A file that cannot be written or read changes nothing.
        """
        with suppress(OSError):
            self._read()
        news = dict[str, Known]()
        for key, member, adopt in places:
            known = self._known.get(key)
            compared, since = self._compared.get(key, (None, math.nan))
            # A process that begins knows nothing of a member that is up.
            is_news = member.since != since if compared is member else member.state is not MemberState.UP
            if is_news and (known is None or member.since > known.since):
                news[key] = Known(member.since, member.state, member.reason)
                continue
            if known is not None and known.since != member.since:
                adopt(member, known.state, known.since, known.reason)
            self._compared[key] = member, member.since
        members = {key: member for key, member, _ in places}
        for key in self._compared.keys() - members:
            del self._compared[key]
        if news and self._write(None, news, members):
            self._compared |= {key: (members[key], each.since) for key, each in news.items()}

    def drain(self, urls: frozenset[str]) -> None:
        """Write down which origin servers are taken out."""
        self._write(urls, {}, self._known)

    def _write(self, drained: frozenset[str] | None, news: Mapping[str, Known], keys: Container[str]) -> bool:
        """Replace the file; of the states only those of `keys` stay. False if it cannot be written now."""
        until = time.monotonic() + _PATIENCE
        while not self._locks.take(0):
            if time.monotonic() > until:
                return False
            time.sleep(_PAUSE)
        try:
            self._read()
            known = {key: each for key, each in self._known.items() if key in keys}
            known |= {
                key: each for key, each in news.items() if key not in known or known[key].since < each.since
            }
            states = {key: (each.state.value, each.since, each.reason) for key, each in known.items()}
            urls = sorted(self.drained if drained is None else drained)
            written = self._file.with_suffix(".new")
            written.write_text(json.dumps({"drained": urls, "states": states}), "ascii")
            written.replace(self._file)
            self._read()
        except OSError:
            return False
        finally:
            self._locks.give(0)
        return True

    def _read(self) -> None:
        """Read the file if it is another; one that no process of ours has written is none. Raises OSError."""
        try:
            with self._file.open("rb") as file:
                status = os.stat(file.fileno())
                version = status.st_ino, status.st_mtime_ns
                if version == self._version:
                    return
                content = file.read(LONGEST)
        except FileNotFoundError:
            return
        self._version = version
        with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.drained, self._known = _parsed(json.loads(content), self.clock())


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
