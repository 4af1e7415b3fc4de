"""Questions from one process of a program to the others: what each has counted by now."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from univocal_app.processes import Commons

__all__ = ["Row", "Survey", "summed"]

Row: TypeAlias = tuple[bytes | int, ...]
"""Octets and numbers; octets travel as Latin-1."""

PATIENCE: Final = 3.0  # seconds that another process is waited for


class Survey:
    """One question, under a name: each process answers it with the rows of its own `counted`."""

    def __init__(self, name: str, commons: Commons | None, counted: Callable[[], Iterable[Row]]) -> None:
        self._name, self._commons, self._counted = name, commons, counted
        self._handed = ""  # the last question that was answered
        self._asking: asyncio.Task[list[Row]] | None = None

    async def rows(self) -> list[Row]:
        """The rows of all processes that answer in time; who asks meanwhile gets the same."""
        if self._commons is None:
            return list(self._counted())
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._asked(self._commons))
        return [*self._counted(), *await asyncio.shield(self._asking)]

    def hand_over(self) -> None:
        """Answer another process, in a thread, if it has asked: a worker calls this every second or so."""
        assert self._commons is not None
        try:
            question = self._question(self._commons).read_text()
        except FileNotFoundError:
            return
        if question != self._handed:
            self._handed = question
            answer = self._answer(self._commons, self._commons.process)
            asyncio.get_running_loop().run_in_executor(None, _write, answer, question, list(self._counted()))

    async def _asked(self, commons: Commons) -> list[Row]:
        """The counts of the other processes: by now, or when they last said so."""
        directory, question = commons.directory, str(time.time_ns())
        _replace(self._question(commons), question)
        others = {file.stem for file in directory.glob("*.counts")} - {commons.process}
        files = [self._answer(commons, other) for other in others]
        end = time.monotonic() + PATIENCE
        while True:
            answers = await asyncio.to_thread(_read, files)
            answered = sum(about == question for about, _ in answers)
            if answered == len(others) or time.monotonic() > end:
                return [row for _, rows in answers for row in rows]
            await asyncio.sleep(0.1)

    def _question(self, commons: Commons) -> Path:
        return commons.directory / f"{self._name}.asked"

    def _answer(self, commons: Commons, process: str) -> Path:
        return commons.directory / f"{process}.{self._name}"


def summed(rows: Iterable[Row]) -> Counter[tuple[bytes, ...]]:
    """The numbers at the end of the rows, added up for what stands before them: octets."""
    sums = Counter[tuple[bytes, ...]]()
    for *counted, number in rows:
        sums[tuple(each for each in counted if isinstance(each, bytes))] += int(number)
    return sums


def _write(answer: Path, question: str, rows: list[Row]) -> None:
    told = [[part.decode("latin-1") if isinstance(part, bytes) else part for part in row] for row in rows]
    _replace(answer, json.dumps([question, told]))


def _replace(file: Path, text: str) -> None:
    """Write a file that nobody reads half of."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text, "ascii")
    new.replace(file)


def _read(files: Iterable[Path]) -> list[tuple[str, list[Row]]]:
    found = []
    for file in files:
        if file.exists():
            question, told = json.loads(file.read_text("ascii"))
            rows = [
                tuple(part.encode("latin-1") if isinstance(part, str) else part for part in row)
                for row in told
            ]
            found.append((question, rows))
    return found
