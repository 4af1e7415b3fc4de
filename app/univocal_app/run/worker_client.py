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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from univocal.http.errors import ConfigurationError
from univocal.http.messages import Fields, Received, Response
from univocal.http.pipe import whole
from univocal.http.roles import OriginRequest, UnderWay
from univocal.origin.connections import OriginConnections
from univocal.origin.pool import PoolSettings
from univocal.origin.server import OriginServer
from univocal_app.observe.events import Event
from univocal_app.processes.commons import Row

LONGEST: Final = 1 << 20  # bytes of a line
MOST: Final = 100_000  # lines of an answer

_FIELDS: Final[Fields] = [(b"host", b"worker")]
_LOST: Final = re.compile(rb'data: \{"lost": ([0-9]{1,9})\}')
# An event goes to programs and browsers as it is: an object in one line.
_EVENT: Final = re.compile(rb"data: (\{[ -~]*\})")


class AnswerError(Exception):
    """A worker's answer is none of those that it can give."""


class Objection(BaseModel):
    """A ConfigurationError between processes."""

    model_config = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants", defer_build=True)

    source: str
    key: str
    found: JsonValue
    allowed: str
    line: int
    mistake: str = ""

    @property
    def error(self) -> ConfigurationError:
        """The error that it was made of."""
        error = ConfigurationError(self.source, self.key, self.found, self.allowed, self.mistake)
        error.line = self.line
        return error


def objections(error: ConfigurationError) -> Iterator[bytes]:
    """A line for the error and for each beside it."""
    names = ("source", "key", "found", "allowed", "line", "mistake")
    for each in (error, *error.beside):
        members = {name: getattr(each, name) for name in names}
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
    try:
        return Objection.model_validate_json(line).error
    except ValidationError:
        raise AnswerError("a line that is no objection") from None


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
        # A worker may close an idle connection just when it is asked, and an order is not repeatable.
        self._server = OriginServer(f"unix://{path}", OriginConnections(PoolSettings(max_idle=0)))
        self._following: _Lines | None = None

    async def order(self, target: str, seconds: float, document: object = None) -> list[ConfigurationError]:
        """Give an order; the objections to it. Raises TimeoutError without an answer in time, AnswerError."""
        content = b"" if document is None else json.dumps(document).encode()
        errors = list[ConfigurationError]()
        await self._ask(b"POST", target, seconds, lambda line: errors.append(read_objection(line)), content)
        return errors

    async def rows(self, about: str, seconds: float) -> list[Row]:
        """The rows about something. Raises TimeoutError without an answer in time, AnswerError."""
        rows = list[Row]()
        await self._ask(b"GET", f"/rows?about={about}", seconds, lambda line: rows.append(read_row(line)))
        return rows

    def follow(
        self, hear: Callable[[Event | int], None]
    ) -> tuple[asyncio.Future[None], asyncio.Future[None]]:
        """Have `hear` get each event, or the number of lost ones, until `unfollow`.

        The first future is done when the worker reports, the second when it reports no more.
        """
        self.unfollow()

        def take(line: bytes) -> None:
            event = read_event(line)
            if event is not None:
                hear(event)

        lines = self._following = _Lines(take, most=None)
        lines.ask(self._server, b"GET", "/events", b"")
        return lines.begun, lines.ended

    def unfollow(self) -> None:
        """Have no more events."""
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def aclose(self) -> None:
        """Ask no more."""
        self.unfollow()
        await self._server.aclose()

    async def _ask(
        self, method: bytes, target: str, seconds: float, hear: Callable[[bytes], None], content: bytes = b""
    ) -> None:
        lines = _Lines(hear)
        try:
            lines.ask(self._server, method, target, content)
            await asyncio.wait_for(lines.ended, seconds)
        finally:
            lines.cancel()


class _Lines:
    """The lines of a response, of which `hear` gets each that is not empty (an `Answer`)."""

    def __init__(self, hear: Callable[[bytes], None], most: int | None = MOST) -> None:
        loop = asyncio.get_running_loop()
        self.begun, self.ended = loop.create_future(), loop.create_future()
        self._hear, self._most = hear, most
        self._begun_line = b""
        self._count = 0
        self._pending: UnderWay | None = None

    def ask(self, server: OriginServer, method: bytes, target: str, content: bytes) -> None:
        """Send the request."""
        line = Received(method, target.encode("ascii"))
        request = OriginRequest(method, line.target, _FIELDS, line)
        if method == b"POST":
            request.fields = [*_FIELDS, (b"content-length", b"%d" % len(content))]
            request.content = whole(content)
        pending = server.ask(request, self)
        if not self.ended.done():
            self._pending = pending

    def cancel(self) -> None:
        """Hear no more."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        self._end(TimeoutError("it is asked no more"))

    # Called by the origin server.

    def interim(self, status: int, fields: Fields) -> None:
        """Wait on."""

    def start(self, response: Response) -> None:
        if response.status == 200:
            self._set(self.begun)
        else:
            self._refuse(TimeoutError(f"status {response.status}"))  # as it ends, it takes no followers

    def write(self, chunk: bytes) -> bool:
        *lines, self._begun_line = (self._begun_line + chunk).split(b"\n")
        try:
            for line in lines:
                self._take(line)
            if len(self._begun_line) > LONGEST:
                raise AnswerError(f"a line of more than {LONGEST} bytes")
        except AnswerError as error:
            self._refuse(error)
        return True

    def finish(self) -> None:
        self._pending = None
        if self._begun_line:
            self._end(AnswerError("a line without an end"))
        self._set(self.begun)
        self._set(self.ended)

    def fail(self, error: Exception) -> None:
        self._pending = None
        self._end(TimeoutError(str(error)))

    # Its own.

    def _take(self, line: bytes) -> None:
        if not line or self.ended.done():
            return
        self._count += 1
        if self._most is not None and self._count > self._most:
            raise AnswerError(f"more than {self._most} lines")
        self._hear(line)

    def _refuse(self, error: Exception) -> None:
        self._end(error)
        self.cancel()

    def _end(self, error: Exception) -> None:
        self._set(self.begun)
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # nobody may wait for it

    @staticmethod
    def _set(future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)
