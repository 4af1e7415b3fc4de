"""The parent's questions to one worker, over HTTP on the worker's Unix socket.

| request | meaning | lines of the answer |
|---|---|---|
| `POST /reopen` | open the access log again | |
| `POST /look` | write all that has ended by now into the shared figures | |
| `GET /rows?about=` | give the rows that are counted about something | a JSON array each |
| `GET /events` | send every exchange from now on | server-sent events, as `GET /-/events` sends them |
| `POST /prepare?number=` | make what this configuration brings | a JSON object for each objection |
| `POST /adopt?number=` | put into force what is prepared | a JSON object for each objection |
| `POST /drop?number=` | forget what is prepared | |

Each request has its own connection, so that one that takes long holds up no other. Requests may overtake each
other, so each configuration has a number.

A worker meets the bytes of strangers, so the parent believes no other answer. Two things are shared and not
asked for, since every exchange uses them. Numbers are counted in memory that all processes map
(`observe.counts`): they stay when a process is killed. The turn at the end of a pipe is a lock
(`Commons.alone`), which the system takes from a process that is killed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import Final

from univocal.http.errors import ConfigurationError
from univocal_app.observe.events import Event
from univocal_app.observe.survey import Row

LONGEST: Final = 1 << 20  # bytes of a line
MOST: Final = 100_000  # lines of an answer

_LOST: Final = re.compile(rb'data: \{"lost": ([0-9]{1,9})\}')
# An event goes to programs and browsers as it is: an object in one line.
_EVENT: Final = re.compile(rb"data: (\{[ -~]*\})")


class AnswerError(Exception):
    """A worker's answer is none of those that it can give."""


# The members of a ConfigurationError between processes; what was found is any value.
_MEMBERS: Final = {"source": str, "key": str, "found": object, "allowed": str, "mistake": str, "line": int}


def objections(error: ConfigurationError) -> Iterator[bytes]:
    """A line for the error and for each beside it."""
    for each in (error, *error.beside):
        members = {name: getattr(each, name) for name in _MEMBERS}
        # A file's name may have bytes that are no text, and what was found may be anything.
        yield json.dumps(members, default=repr, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def row_line(row: Row) -> bytes:
    """The line of a row; bytes travel as Latin-1."""
    parts = [part.decode("latin-1") if isinstance(part, bytes) else part for part in row]
    return json.dumps(parts).encode("ascii") + b"\n"


def read_row(line: bytes) -> Row:
    """The row of a line. Raises AnswerError."""
    try:
        parts = json.loads(line)
        if isinstance(parts, list) and all(type(part) in {str, int} for part in parts):
            return tuple(part.encode("latin-1") if isinstance(part, str) else part for part in parts)
    except (ValueError, RecursionError):
        pass
    raise AnswerError("a line that is no row")


def read_objection(line: bytes) -> ConfigurationError:
    """The error of a line. Raises AnswerError."""
    with suppress(ValueError, RecursionError):
        members = json.loads(line)
        if isinstance(members, dict) and members.keys() == _MEMBERS.keys():
            *told, number = (members[name] for name in _MEMBERS)
            if all(isinstance(members[name], kind) for name, kind in _MEMBERS.items()):
                error = ConfigurationError(*told)
                error.line = number
                return error
    raise AnswerError("a line that is no objection")


def read_event(line: bytes) -> Event | int | None:
    """The event of a line, or the number of lost ones; None for a line of neither. Raises AnswerError."""
    if not line.startswith(b"data"):
        return None
    if lost := _LOST.fullmatch(line):
        return int(lost[1])
    try:
        if match := _EVENT.fullmatch(line):
            members = json.loads(match[1])
            site, status, cache = members["site"], members["status"], members["cache"]
            if isinstance(site, str) and type(status) is int and isinstance(cache, str | None):
                return Event(site, str(status), cache or "null", match[1])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise AnswerError("a line that is no event")


class WorkerClient:
    """Asks the worker that listens at `path`, over a new connection for each question."""

    def __init__(self, path: Path) -> None:
        from univocal.origin.transport import OriginTransport  # noqa: PLC0415 - for who asks alone

        # A worker may close an idle connection just when it is asked, and an order is not repeatable.
        self._transport = OriginTransport(uds=str(path), max_idle=0)
        self._following: asyncio.Task[None] | None = None

    async def order(self, target: str, seconds: float, document: object = None) -> list[ConfigurationError]:
        """Give an order; the objections to it. Raises TimeoutError without an answer in time, AnswerError."""
        content = b"" if document is None else json.dumps(document).encode()
        async with asyncio.timeout(seconds), self._lines("POST", target, MOST, content) as lines:
            return [read_objection(line) async for line in lines]

    async def rows(self, about: str, seconds: float) -> list[Row]:
        """The rows about something. Raises TimeoutError without an answer in time, AnswerError."""
        async with asyncio.timeout(seconds), self._lines("GET", f"/rows?about={about}", MOST) as lines:
            return [read_row(line) async for line in lines]

    def follow(self, hear: Callable[[Event | int], None]) -> tuple[asyncio.Future[None], asyncio.Task[None]]:
        """Have `hear` get each event, or the number of lost ones, until `unfollow`.

        The future is done when the worker reports, the task when it reports no more.
        """
        self.unfollow()
        begun = asyncio.get_running_loop().create_future()

        async def report() -> None:
            async with self._lines("GET", "/events") as lines:
                begun.set_result(None)
                async for line in lines:
                    if (event := read_event(line)) is not None:
                        hear(event)

        following = self._following = asyncio.create_task(report())
        following.add_done_callback(lambda _: begun.cancel())
        return begun, following

    def unfollow(self) -> None:
        """Have no more events."""
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def aclose(self) -> None:
        """Ask no more."""
        self.unfollow()
        await self._transport.aclose()

    @asynccontextmanager
    async def _lines(
        self, method: str, target: str, most: float = inf, content: bytes = b""
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of an answer that are not empty. Raises TimeoutError if it is none or cut short."""
        from univocal.origin.client_library import httpx  # noqa: PLC0415 - for who asks alone

        try:
            request = httpx.Request(method, f"http://worker{target}", content=content)
            response = await self._transport.handle_async_request(request)
            try:
                if response.status_code != 200:  # as it ends, it takes no followers
                    raise TimeoutError(f"status {response.status_code}")
                yield _lines_of(response.aiter_raw(), most)
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise TimeoutError(str(error)) from None


async def _lines_of(chunks: AsyncIterator[bytes], most: float) -> AsyncIterator[bytes]:
    """Each line that is not empty. Raises AnswerError for too many and too long ones, and a part of one."""
    begun, count = b"", 0
    async for chunk in chunks:
        *lines, begun = (begun + chunk).split(b"\n")
        for line in filter(None, lines):
            count += 1
            if count > most:
                raise AnswerError(f"more than {most} lines")
            yield line
        if len(begun) > LONGEST:
            raise AnswerError(f"a line of more than {LONGEST} bytes")
    if begun:
        raise AnswerError("a line without an end")
