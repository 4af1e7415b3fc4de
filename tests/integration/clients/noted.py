"""Sites note events while they answer: each event is a line of a file, which tests read."""

import os
from pathlib import Path


class Events:
    """The events of a site, in the file that EVENTS names."""

    def append(self, *events: str) -> None:
        with Path(os.environ["EVENTS"]).open("a") as file:
            file.write("".join(f"{event}\n" for event in events))


class Noted:
    """A reader of events: each is read once."""

    def __init__(self, file: Path) -> None:
        file.touch()
        self._file, self._read = file, 0

    def __call__(self) -> list[str]:
        events = self._file.read_text().splitlines()[self._read :]
        self._read += len(events)
        return events


events = Events()
