"""The parent's questions to one worker, at the worker's admin listener on a Unix socket.

| request | meaning |
|---|---|
| `GET /-/events` | send every exchange from now on |
| `POST /-/reopen` | open the access log again |
| `POST /-/look` | write all that has ended by now into the shared figures |
| `GET /-/rows?about=` | give the rows that are counted about something: lines, a JSON array each |
| `POST /-/prepare?number=` | make what this configuration brings; 422, as at a reload, if that cannot be |
| `POST /-/adopt?number=` | put into force what is prepared; 422, if nothing is |
| `POST /-/drop?number=` | forget what is prepared |

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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from univocal.http.errors import ConfigurationError
from univocal_app.observe.events import Event
from univocal_app.observe.survey import Row, has_shape
from univocal_app.terminal import printable

if TYPE_CHECKING:
    from univocal.origin.client_library import httpx

LONGEST: Final = 1 << 20  # bytes of a line
MOST: Final = 100_000  # lines of an answer
REFUSED: Final = 422

_LOST: Final = re.compile(rb'data: \{"lost": ([0-9]{1,9})\}')
# An event goes to programs and browsers as it is: an object in one line.
_EVENT: Final = re.compile(rb"data: (\{[ -~]*\})")


class AnswerError(Exception):
    """A worker's answer is none of those that it can give."""


_MEMBERS: Final = "file", "key", "line", "detail"  # of an objection


class WorkerError(ConfigurationError):
    """An objection of a worker to a configuration, in its words."""

    def __init__(self, source: str, key: str, line: int, words: str) -> None:
        super().__init__(source, key, None, "", words)
        self.line = line

    def __str__(self) -> str:
        return self.mistake


def row_line(row: Row) -> bytes:
    """The line of a row; bytes travel as Latin-1."""
    parts = [part.decode("latin-1") if isinstance(part, bytes) else part for part in row]
    return json.dumps(parts).encode("ascii") + b"\n"


def read_row(line: bytes, shape: str) -> Row:
    """The row of a line, of a shape (`observe.survey`). Raises AnswerError."""
    with suppress(ValueError, RecursionError):
        parts = json.loads(line)
        if isinstance(parts, list):
            row = tuple(part.encode("latin-1") if isinstance(part, str) else part for part in parts)
            if has_shape(row, shape):
                return row
    raise AnswerError("a line that is no row")


def read_objections(content: bytes) -> list[WorkerError]:
    """The errors of an answer that refuses a configuration. Raises AnswerError."""
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        found = [tuple(each[name] for name in _MEMBERS) for each in json.loads(content)["errors"]]
        if found and all(tuple(map(type, each)) == (str, str, int, str) and each[2] >= 0 for each in found):
            return [WorkerError(*map(_shown, each)) for each in found]
    raise AnswerError("it refuses a configuration without an objection")


def _shown(member: Any) -> Any:
    """A member as a log and a terminal may have it: it comes from a process that meets strangers' bytes."""
    return printable(member.encode("utf-8", "backslashreplace")) if isinstance(member, str) else member


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
        from univocal.origin.client_library import OriginTransport  # noqa: PLC0415 - for who asks alone

        # A worker may close an idle connection just when it is asked, and an order is not repeatable.
        self._transport = OriginTransport(uds=str(path), max_idle=0)
        self._following: asyncio.Task[None] | None = None

    async def order(self, target: str, seconds: float, document: object = None) -> list[WorkerError]:
        """Give an order; the objections to it. Raises TimeoutError without an answer in time, AnswerError."""
        content = b"" if document is None else json.dumps(document).encode()
        async with asyncio.timeout(seconds), self._answer("POST", target, content) as response:
            lines = [line async for line in _lines_of(response, 1)]
            if response.status_code == REFUSED:
                return read_objections(b"".join(lines))
            if lines:
                raise AnswerError("more than that it is done")
            return []

    async def rows(self, about: str, shape: str, seconds: float) -> list[Row]:
        """Rows of this shape about something. Raises TimeoutError without an answer in time, AnswerError."""
        async with asyncio.timeout(seconds), self._answer("GET", f"/-/rows?about={about}") as response:
            return [read_row(line, shape) async for line in _lines_of(response, MOST)]

    def follow(self, hear: Callable[[Event | int], None]) -> tuple[asyncio.Future[None], asyncio.Task[None]]:
        """Have `hear` get each event, or the number of lost ones, until `unfollow`.

        The future is done when the worker reports, the task when it reports no more.
        """
        self.unfollow()
        begun = asyncio.get_running_loop().create_future()

        async def report() -> None:
            async with self._answer("GET", "/-/events") as response:
                begun.set_result(None)
                async for line in _lines_of(response):
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
    async def _answer(self, method: str, target: str, content: bytes = b"") -> AsyncIterator[httpx.Response]:
        """The answer. Raises TimeoutError if there is none, or it is cut short."""
        from univocal.origin.client_library import httpx  # noqa: PLC0415 - for who asks alone

        try:
            request = httpx.Request(method, f"http://worker{target}", content=content)
            response = await self._transport.handle_async_request(request)
            try:
                # As it ends, it takes no followers. Only an order may be refused.
                if response.status_code not in ({200, REFUSED} if method == "POST" else {200}):
                    raise TimeoutError(f"status {response.status_code}")
                yield response
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise TimeoutError(str(error)) from None


async def _lines_of(response: httpx.Response, most: float = inf) -> AsyncIterator[bytes]:
    """Each line that is not empty. Raises AnswerError for too many and too long ones, and a part of one."""
    begun, count = b"", 0
    async for chunk in response.aiter_raw():
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
