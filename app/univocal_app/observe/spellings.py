"""The spellings by which pages are asked for, counted in bounded memory: a listener that counts Outcomes."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from univocal.engine.outcome import Outcome
from univocal_app.run.processes import Commons

__all__ = ["Counted", "Spellings"]

Counted: TypeAlias = tuple[bytes, bytes, int]
"""A host, a target as it was received, and how often it was asked for."""

# Spellings that stay when there are too many; twice as many are counted at most, some 16 MiB.
MOST: Final = 20_000
LONGEST: Final = 512  # octets of a target; what is longer is not counted
PATIENCE: Final = 3.0  # seconds that another process is waited for

_PAGES: Final = frozenset({200, 304})


class Spellings:
    """The spellings by which clients got a page with GET, by host.

    It is space-saving (Metwally et al. 2005), in batches: when there are too many, the rarest go, and a
    spelling that is new begins with as many as those had at most. So no number is too small, and none is too
    large by more than the number of all requests by `MOST`.

    With `commons` each process counts for itself, and `gathered` asks all of them.
    """

    def __init__(self, commons: Commons | None = None) -> None:
        self._counts: dict[tuple[bytes, bytes], int] = {}
        self._floor = 0  # of what is not counted by now, none was asked for more often
        self._commons = commons
        self._handed = ""  # the last question that was answered

    def __call__(self, outcome: Outcome) -> None:
        canonical, received = outcome.canonical, outcome.received
        if canonical is None or outcome.status not in _PAGES or received.method != b"GET":
            return
        key = canonical.authority, received.target
        try:
            self._counts[key] += 1
        except KeyError:
            self._meet(key)

    def _meet(self, key: tuple[bytes, bytes]) -> None:
        target = key[1]
        if len(target) > LONGEST or not target.startswith(b"/"):
            return
        if len(self._counts) >= 2 * MOST:
            self._floor = sorted(self._counts.values())[-MOST]
            self._counts = {each: count for each, count in self._counts.items() if count > self._floor}
        self._counts[key] = self._floor + 1

    def counted(self) -> list[Counted]:
        """What this process has counted."""
        return [(host, target, count) for (host, target), count in self._counts.items()]

    async def gathered(self) -> list[Counted]:
        """The `MOST` spellings that were asked for most, of all processes that answer in time."""
        sums = Counter[tuple[bytes, bytes]](self._counts)
        if self._commons is not None:
            for each in await _asked(self._commons):
                sums.update({(host, target): count for host, target, count in each})
        return [(host, target, count) for (host, target), count in sums.most_common(MOST)]

    def hand_over(self) -> None:
        """Answer another process, in a thread, if it has asked: a worker calls this every second or so."""
        assert self._commons is not None
        try:
            question = _question(self._commons.directory).read_text()
        except FileNotFoundError:
            return
        if question != self._handed:
            self._handed = question
            asyncio.get_running_loop().run_in_executor(None, _write, self._commons, question, self.counted())


def _question(directory: Path) -> Path:
    return directory / "spellings.asked"


def _answers(directory: Path) -> Iterable[Path]:
    return directory.glob("*.spellings")


def _write(commons: Commons, question: str, counted: list[Counted]) -> None:
    told = [(host.decode("latin-1"), target.decode("latin-1"), count) for host, target, count in counted]
    _replace(commons.directory / f"{commons.process}.spellings", json.dumps([question, told]))


def _replace(file: Path, text: str) -> None:
    """Write a file that nobody reads half of."""
    new = file.with_suffix(".new")
    new.write_text(text, "ascii")
    new.replace(file)


async def _asked(commons: Commons) -> list[list[Counted]]:
    """What the other processes of the commons have counted, by now, or when they last said so."""
    directory, question = commons.directory, str(time.time_ns())
    _replace(_question(directory), question)
    others = {file.stem for file in directory.glob("*.counts")} - {commons.process}
    end = time.monotonic() + PATIENCE
    while True:
        answers = await asyncio.to_thread(_read, directory)
        answered = {name for name, (about, _) in answers.items() if about == question}
        if others <= answered or time.monotonic() > end:
            return [counted for _, counted in answers.values()]
        await asyncio.sleep(0.1)


def _read(directory: Path) -> dict[str, tuple[str, list[Counted]]]:
    found = {}
    for file in _answers(directory):
        question, told = json.loads(file.read_text("ascii"))
        found[file.stem] = (
            question,
            [(host.encode("latin-1"), target.encode("latin-1"), count) for host, target, count in told],
        )
    return found
