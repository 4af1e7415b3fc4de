"""The messages between the parent, which has the admin listener, and its workers, which serve clients.

| message | from | meaning | answer |
|---|---|---|---|
| `reopen/1` | parent | open the access log again | |
| `look/1` | parent | write all that has ended by now into the shared figures | `done/1` |
| `ask/1` | parent | give the rows that are counted about something | `rows/1` …, `done/1` |
| `follow/1` | parent | send every exchange from now on | `done/1` |
| `unfollow/1` | parent | send no more exchanges | |
| `prepare/1` | parent | make what this configuration brings | `done/1`, with the objections |
| `adopt/1` | parent | put into force what is prepared | `done/1`, with the objections |
| `drop/1` | parent | forget what is prepared | |
| `alive/1` | worker | a sign of life | |
| `rows/1` | worker | a part of the answer to a question | |
| `done/1` | worker | the end of the answer that has this number | |
| `events/1` | worker | exchanges that have ended, and how many were lost before them | |

A message is a JSON object behind its length, 4 bytes in network order. Each worker has a Unix socket pair
of its own with the parent, so that a worker that is killed takes no other's messages along. A worker meets
the bytes of strangers: so each end reads only the messages above, in their direction, and all else ends the
channel.

The number in a name is the message's version. Raise it with the meaning or the fields: a worker that takes
the place of another may be started from a newer installation than its parent. A worker's
`Task` is no message: the standard library's `multiprocessing` hands it down.

Two things are shared and not said, since they are on the way of every exchange. Numbers are counted in
memory that all processes map (`observe.counts`): they stay when a process is killed. The turn at the end of
a pipe is a lock (`Commons.alone`), which the system takes from a process that is killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Final, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from univocal.http.errors import ConfigurationError
from univocal_app.processes.commons import Row

LONGEST: Final = 64 << 20  # bytes of a message
_LENGTH: Final = 4  # bytes before each message


class MessageError(Exception):
    """The other end sent what is none of its messages, or a message is too long to be sent."""


class Message(BaseModel):
    """The root of all messages; `name` says which it is."""

    # (not built for a process that is alone: that takes a while, and nobody sends it a message)
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, ser_json_inf_nan="constants", defer_build=True
    )


class Reopen(Message):
    """Open the access log again."""

    name: Literal["reopen/1"] = "reopen/1"


class Look(Message):
    """Write all that has ended by now into the shared figures."""

    name: Literal["look/1"] = "look/1"
    number: int


class Ask(Message):
    """Give the rows that are counted about something."""

    name: Literal["ask/1"] = "ask/1"
    number: int
    about: str


class Follow(Message):
    """Send every exchange from now on."""

    name: Literal["follow/1"] = "follow/1"
    number: int


class Unfollow(Message):
    """Send no more exchanges."""

    name: Literal["unfollow/1"] = "unfollow/1"


class Prepare(Message):
    """Make what this configuration brings: see `written` and `rewritten` in config.tables."""

    name: Literal["prepare/1"] = "prepare/1"
    number: int
    configuration: dict[str, JsonValue]
    as_written: list[tuple[list[str | int], str]] = []


class Adopt(Message):
    """Put into force what is prepared."""

    name: Literal["adopt/1"] = "adopt/1"
    number: int


class Drop(Message):
    """Forget what is prepared."""

    name: Literal["drop/1"] = "drop/1"


class Alive(Message):
    """A sign of life."""

    name: Literal["alive/1"] = "alive/1"


class Rows(Message):
    """A part of the answer to a question."""

    name: Literal["rows/1"] = "rows/1"
    number: int
    rows: list[list[str | int]]

    @classmethod
    def of(cls, number: int, rows: Iterable[Row]) -> Rows:
        """The message that brings these rows."""
        return cls(number=number, rows=[[_text(part) for part in row] for row in rows])

    def read(self) -> Iterator[Row]:
        """The rows that it brings. Raises MessageError."""
        try:
            for row in self.rows:
                yield tuple(part.encode("latin-1") if isinstance(part, str) else part for part in row)
        except UnicodeEncodeError as error:
            raise MessageError(f"rows/1: {error}") from None


class _Objection(BaseModel):
    """A ConfigurationError."""

    model_config = Message.model_config

    source: str
    key: str
    found: JsonValue
    allowed: str
    line: int
    mistake: str = ""


class Done(Message):
    """The end of the answer that has this number, and what the worker objects to."""

    name: Literal["done/1"] = "done/1"
    number: int
    objections: list[_Objection] = []

    @classmethod
    def but_for(cls, number: int, error: ConfigurationError) -> Done:
        """The message that says that it is not done, and why."""
        members = [
            {
                "source": each.source,
                "key": each.key,
                "found": each.found,
                "allowed": each.allowed,
                "line": each.line,
                "mistake": each.mistake,
            }
            for each in (error, *error.beside)
        ]
        # A file's name may have bytes that are no text, and what was found may be anything.
        text = json.dumps(members, default=repr, ensure_ascii=False).encode("utf-8", "replace")
        return cls(number=number, objections=json.loads(text))

    @property
    def errors(self) -> list[ConfigurationError]:
        """The objections of the worker, each by itself."""
        errors = []
        for each in self.objections:
            error = ConfigurationError(each.source, each.key, each.found, each.allowed, each.mistake)
            error.line = each.line
            errors.append(error)
        return errors


# An event goes to programs and browsers as it is: an object in one line.
_Status: TypeAlias = Annotated[str, Field(pattern=r"^[0-9]{1,3}$")]
_Object: TypeAlias = Annotated[str, Field(pattern=r"^\{[ -~]*\}$")]


class EventBatch(Message):
    """Exchanges that have ended: site, status, cache and JSON of each; before them so many were lost."""

    name: Literal["events/1"] = "events/1"
    lost: Annotated[int, Field(ge=0)] = 0
    events: list[tuple[str, _Status, str, _Object]]


FromParent: TypeAlias = Reopen | Look | Ask | Follow | Unfollow | Prepare | Adopt | Drop
Asking: TypeAlias = Look | Ask | Follow | Prepare | Adopt
"""The messages that are answered, by their number."""

FromWorker: TypeAlias = Alive | Rows | Done | EventBatch

_LATER: Final = ConfigDict(defer_build=True)
_FROM_PARENT: Final = TypeAdapter[FromParent](
    Annotated[FromParent, Field(discriminator="name")], config=_LATER
)
_FROM_WORKER: Final = TypeAdapter[FromWorker](
    Annotated[FromWorker, Field(discriminator="name")], config=_LATER
)


def from_parent(content: bytes) -> FromParent:
    """Read a message to a worker. Raises MessageError."""
    return _read(_FROM_PARENT, content)


def from_worker(content: bytes) -> FromWorker:
    """Read a message to the parent. Raises MessageError."""
    return _read(_FROM_WORKER, content)


Heard = TypeVar("Heard")


def _read(adapter: TypeAdapter[Heard], content: bytes) -> Heard:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MessageError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def frame(message: Message) -> bytes:
    """The bytes of a message. Raises MessageError if there are too many."""
    content = message.model_dump_json().encode()
    if len(content) > LONGEST:
        raise MessageError(f"a message of {len(content)} bytes; {LONGEST} at most")
    return len(content).to_bytes(_LENGTH, "big") + content


class Frames(Generic[Heard]):
    """Takes messages, which `read` reads, out of bytes as they come."""

    def __init__(self, read: Callable[[bytes], Heard]) -> None:
        self._read = read
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Heard]:
        """The messages that are complete with these bytes. Raises MessageError."""
        self._bytes += data
        while len(self._bytes) >= _LENGTH:
            length = int.from_bytes(self._bytes[:_LENGTH], "big")
            if length > LONGEST:
                raise MessageError(f"a message of {length} bytes; {LONGEST} at most")
            end = _LENGTH + length
            if len(self._bytes) < end:
                return
            content = bytes(self._bytes[_LENGTH:end])
            del self._bytes[:end]
            yield self._read(content)


def _text(part: bytes | int) -> str | int:
    return part.decode("latin-1") if isinstance(part, bytes) else part
