"""Messages between processes: whole, in pieces, and those that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import settings_of, validate
from univocal_app.processes import messages as module
from univocal_app.processes.messages import (
    Adopt,
    Alive,
    Ask,
    Done,
    Drop,
    EventBatch,
    Follow,
    Frames,
    Look,
    Message,
    MessageError,
    Prepare,
    Reopen,
    Row,
    Rows,
    Unfollow,
    frame,
    from_parent,
    from_worker,
)

CONFIGURATION = validate({"sites": [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:9"}]}, "test")
TO_WORKER: list[Message] = [
    Reopen(),
    Look(number=7),
    Ask(number=8, about="requests"),
    Follow(number=9),
    Unfollow(),
    Prepare(number=10, configuration=settings_of(CONFIGURATION)),
    Adopt(number=11),
    Drop(),
]
TO_PARENT: list[Message] = [
    Alive(),
    Rows.of(8, [(b"\xff\x00 a", 2**60), ()]),
    Done(number=8),
    Done.but_for(11, ConfigurationError("f", "k", None, "a")),
    EventBatch(lost=3, events=[("en.example", "200", "hit", "{}")]),
]


@pytest.mark.parametrize("size", [1, 3, 1000, 100_000])
@pytest.mark.parametrize(("told", "read"), [(TO_WORKER, from_parent), (TO_PARENT, from_worker)])
def test_messages_come_out_as_they_went_in(told: list[Message], read: Any, size: int) -> None:
    stream, frames = b"".join(map(frame, told)), Frames(read)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [message for piece in pieces for message in frames.feed(piece)] == told
    assert list(frames.feed(b"")) == []


def test_each_message_is_in_the_table_with_its_direction() -> None:
    rows = [line for line in (module.__doc__ or "").splitlines() if line.startswith("| `")]
    table = [tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows]
    names = [(message.model_dump()["name"], "parent") for message in TO_WORKER]
    names += [(message.model_dump()["name"], "worker") for message in TO_PARENT]
    assert table == list(dict.fromkeys(names))


@pytest.mark.parametrize("message", TO_WORKER)
def test_a_worker_cannot_say_what_the_parent_says(message: Message) -> None:
    with pytest.raises(MessageError):
        list(Frames(from_worker).feed(frame(message)))


@pytest.mark.parametrize("message", TO_PARENT)
def test_the_parent_cannot_say_what_a_worker_says(message: Message) -> None:
    with pytest.raises(MessageError):
        list(Frames(from_parent).feed(frame(message)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"{}",
        b"\x80\x04N.",  # a pickle
        b'{"name": "alive/2"}',
        b'{"name": "alive/1", "more": 1}',
        b'{"name": "alive/1"',
        b'{"name": "rows/1", "number": "1", "rows": []}',
        b'{"name": "rows/1", "number": 1, "rows": [[null]]}',
        b'{"name": "rows/1", "number": 1, "rows": [[1.5]]}',
        b'{"name": "done/1"}',
        b'{"name": "done/1", "number": 1, "objections": [{"source": "f"}]}',
        b'{"name": "events/1", "lost": -1, "events": []}',
        b'{"name": "events/1", "events": [["s", "200", "hit"]]}',
        b'{"name": "events/1", "events": [["s", "", "hit", "{}"]]}',
        b'{"name": "events/1", "events": [["s", "200", "hit", "{}\\n\\nevent: other"]]}',
        b'{"name": "events/1", "events": [["s", "200", "hit", "{\\u00e9}"]]}',
        b'{"name": "events/1", "events": [["s", "200", "hit", "text"]]}',
        b"[" * 100_000,
    ],
)
def test_whatever_else_a_worker_sends_is_no_message(content: bytes) -> None:
    with pytest.raises(MessageError):
        list(Frames(from_worker).feed(len(content).to_bytes(4, "big") + content))


@given(st.binary(max_size=200))
def test_random_bytes_are_no_message(content: bytes) -> None:
    with pytest.raises(MessageError):
        from_worker(content)


def test_a_too_large_length_ends_it_before_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 1000)
    frames = Frames(from_worker)
    with pytest.raises(MessageError, match="1001 bytes"):
        list(frames.feed((1001).to_bytes(4, "big")))
    with pytest.raises(MessageError, match="at most"):
        frame(Ask(number=1, about="x" * 1000))


ROWS = st.lists(st.lists(st.binary() | st.integers(-(2**70), 2**70)).map(tuple))


@given(ROWS)
def test_rows_arrive_as_they_were_counted(rows: list[Row]) -> None:
    (message,) = Frames(from_worker).feed(frame(Rows.of(1, rows)))
    assert isinstance(message, Rows)
    assert list(message.read()) == rows


def test_text_that_is_no_byte_is_no_message() -> None:
    content = json.dumps({"name": "rows/1", "number": 1, "rows": [["€"]]}).encode()
    message = from_worker(content)
    assert isinstance(message, Rows)
    with pytest.raises(MessageError):
        list(message.read())


def test_an_objection_keeps_what_it_is_about() -> None:
    error = ConfigurationError("univocal.toml", "server.listen", ["found", None, float("inf")], "nothing")
    error.line, error.beside = 3, (ConfigurationError("other.toml", "a", 1, "2"),)
    (done,) = Frames(from_worker).feed(frame(Done.but_for(1, error)))
    assert isinstance(done, Done)
    assert list(map(str, done.errors)) == [str(error), str(error.beside[0])]
    assert [each.line for each in done.errors] == [3, 0]


def test_an_objection_may_be_about_anything() -> None:
    error = ConfigurationError("a file \udcff", "k", {1: b"bytes", "o": object}, "a")
    (done,) = Frames(from_worker).feed(frame(Done.but_for(1, error)))
    assert isinstance(done, Done)
    (other,) = done.errors
    assert other.source == "a file ?"
    assert "b'bytes'" in str(other)
