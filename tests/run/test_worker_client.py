"""The parent believes some answers of a worker, and refuses all others."""

import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from examples import cases
from support import eventually
from univocal.http.errors import ConfigurationError
from univocal_app.observe.admin import refused
from univocal_app.observe.events import Event
from univocal_app.run import worker_client as module
from univocal_app.run.worker_client import (
    AnswerError,
    WorkerClient,
    read_event,
    read_objections,
    read_row,
    row_line,
)

REFUSAL = b'{"errors":[{"detail":"f: k","key":"k","file":"f","line":3}]}'


class Played:
    """A worker that answers each request with these bytes, and what it was asked."""

    def __init__(self, path):
        self.path = path
        self.asked = []
        self.content = b""
        self.head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        self.ends = True

    async def answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.lower().split(b"\r\n") if b"content-length" in line), b":0")
        content = await reader.readexactly(int(length.partition(b":")[2]))
        self.asked.append(head.partition(b" HTTP")[0] + content)
        writer.write(self.head + self.content)
        if self.ends:
            writer.close()
        else:
            await reader.read()
            writer.close()


@pytest.fixture
async def played():
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        played = Played(Path(name, "1.socket"))
        server = await asyncio.start_unix_server(played.answer, played.path)
        yield played
        server.close()


@pytest.fixture
async def client(played):
    client = WorkerClient(played.path)
    yield client
    await client.aclose()


async def test_rows_come_in_lines(played, client):
    played.content = b'["a",1]\n["b",2]\n'
    assert await client.rows("requests", "bn", 10) == [(b"a", 1), (b"b", 2)]
    assert played.asked == [b"GET /-/rows?about=requests"]


async def test_an_order_brings_its_content_and_the_objections_back(played, client):
    assert await client.order("/-/prepare", 10, {"a": 1}) == []
    assert await client.order("/-/adopt", 10) == []
    played.head, played.content = b"HTTP/1.1 422 Unprocessable Content\r\n\r\n", REFUSAL + b"\n"
    (objection,) = await client.order("/-/prepare", 10)
    assert (str(objection), objection.source, objection.key, objection.line) == ("f: k", "f", "k", 3)
    assert played.asked == [b'POST /-/prepare{"a": 1}', b"POST /-/adopt", b"POST /-/prepare"]


@cases(
    "head, content",
    (b"HTTP/1.1 200 OK\r\n\r\n", b'["a",1]'),  # it was killed within a line
    (b"HTTP/1.1 200 OK\r\n\r\n", b"\x80\x04N.\n"),  # as a pickle begins
    (b"HTTP/1.1 200 OK\r\n\r\n", b'["a",1]\n["a"]\n'),  # of another shape
    (b"HTTP/1.1 200 OK\r\n\r\n", b'["a",1]\n' * 11),
    (b"HTTP/1.1 200 OK\r\n\r\n", b'["' + b"a" * 10_000),
)
async def test_any_other_answer_is_refused(played, client, monkeypatch, head, content):
    monkeypatch.setattr(module, "LONGEST", 5000)
    monkeypatch.setattr(module, "MOST", 10)
    played.head, played.content = head, content
    with pytest.raises(AnswerError):
        await client.rows("requests", "bn", 10)


@cases(
    "status, content",
    (b"200", b"x"),
    (b"200", REFUSAL),
    (b"422", b""),
    (b"422", b'{"errors":[]}'),
    (b"422", b" " * 6000),
    (b"422", REFUSAL),
    (b"422", REFUSAL + b"\n" + REFUSAL + b"\n"),
)
async def test_any_other_answer_to_an_order_is_refused(played, client, monkeypatch, status, content):
    monkeypatch.setattr(module, "LONGEST", 5000)
    played.head, played.content = b"HTTP/1.1 %b x\r\n\r\n" % status, content
    with pytest.raises(AnswerError):
        await client.order("/-/adopt", 10)


@cases(
    "head",
    b"",
    b"HTTP/1.1 422 Unprocessable Content\r\n\r\n",  # which only an order may be
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",  # it was killed within its answer
    b"HTTP/1.1 503 Service Unavailable\r\n\r\n",  # it ends
    b"\x80\x04N.\r\n\r\n",
)
async def test_an_answer_that_is_cut_short_or_refused_is_none(played, client, head):
    played.head = head
    with pytest.raises(TimeoutError):
        await client.rows("requests", "bn", 10)


async def test_a_worker_that_says_nothing_is_waited_for_so_long(played, client):
    played.head, played.ends = b"", False
    with pytest.raises(TimeoutError):
        await client.order("/-/look", 0.05)


async def test_a_worker_that_is_gone_gives_no_answer(client, played):
    played.path.unlink()
    with pytest.raises(TimeoutError):
        await client.order("/-/look", 10)


async def test_events_are_heard_until_they_are_not_followed(played, client):
    played.content = b': events\n\ndata: {"site":"s","status":200,"cache":"hit"}\n\n'
    played.content += b'event: lost\ndata: {"lost": 3}\n\ndata: {"si'
    played.ends = False
    heard = list[Event | int]()
    begun, ended = client.follow(heard.append)
    await begun
    await eventually(lambda: len(heard) == 2)
    assert heard == [Event("s", "200", "hit", b'{"site":"s","status":200,"cache":"hit"}'), 3]
    assert not ended.done()
    client.unfollow()
    await asyncio.wait([ended])
    assert ended.cancelled()


async def test_an_invalid_event_ends_the_stream(played, client):
    played.content, played.ends = b"data: text\n\n", False
    heard = list[Event | int]()
    _, ended = client.follow(heard.append)
    with pytest.raises(AnswerError):
        await ended
    assert heard == []


@cases(
    "line",
    b"data: text",
    b'data: {"site":"s","status":200}',
    b'data: {"site":"s","status":"200","cache":"hit"}',
    b'data: {"site":1,"status":200,"cache":"hit"}',
    b'data: {"site":"s","status":true,"cache":"hit"}',
    b'data: {"site":"s","status":200,"cache":[]}',
    'data: {"site":"é","status":200,"cache":"hit"}'.encode(),
    b'data: {"site":"s","status":200,"cache":"hit"}\r',
    b'data: {"lost": -1}',
    b"data: {" + b"[" * 100_000 + b"}",
)
def test_only_whole_events_are_believed(line):
    with pytest.raises(AnswerError):
        read_event(line)


@pytest.mark.parametrize("line", [b"", b"null", b"{}", b'"a"', b"[null]", b"[1.5]", b"[true]", b'["\\u20ac"]', b"[" * 100_000, b"[" + b"1" * 5000 + b"]"])  # fmt: skip  # noqa: E501
def test_only_rows_are_believed(line):
    for shape in ("", "b", "n"):
        with pytest.raises(AnswerError):
            read_row(line, shape)


KEY = "digest http en.example /a"


@cases(
    "shape, right, wrong",
    ("kn", [KEY, 2**64 - 1], [[], [KEY], [KEY, 1, 1], [1, KEY], [KEY, "1"], [KEY, -1], [KEY, 2**64]]),
    ("kn", [KEY + " \x80", 0], [["a", 1], ["digest http /a", 1], [1, 1], [[KEY], 1]]),
    ("ttnn", ["tag", "\xc3\xa9", 1, 1], [[1, 2, 3, 4], ["tag", "\x80", 1, 1], ["tag", "\xed\xa0\x80", 1, 1]]),
    ("bbn", ["\x80", "", 1], [["", 1, 1], ["", "", True], ["", "", None], {"a": 1, "b": 1, "c": 1}]),
)
def test_only_rows_of_their_shape_are_believed(shape, right, wrong):
    line = json.dumps(right).encode()
    assert row_line(read_row(line, shape)) == line + b"\n"
    for each in wrong:
        with pytest.raises(AnswerError):
            read_row(json.dumps(each).encode(), shape)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_answer(content):
    for read in (partial(read_row, shape="b"), read_objections):
        with pytest.raises(AnswerError):
            read(b"x" + content)


@given(st.lists(st.binary() | st.integers(0, 2**64 - 1)).map(tuple))
def test_rows_arrive_as_they_were_counted(row):
    line, shape = row_line(row), "".join("n" if isinstance(part, int) else "b" for part in row)
    assert (read_row(line[:-1], shape), line.count(b"\n")) == (row, 1)


@cases(
    "changed",
    {"line": "3"},
    {"line": True},
    {"line": -1},
    {"file": None},
    {"detail": 1},
    {"key": []},
    None,
    [],
    "errors",
)
def test_only_objections_are_believed(changed):
    (error,) = json.loads(REFUSAL)["errors"]
    other = {**error, **changed} if isinstance(changed, dict) else changed
    for errors in ([other], [error, other], other):
        with pytest.raises(AnswerError):
            read_objections(json.dumps({"errors": errors}).encode())


@cases("word, shown", ("a\x1b[2J", "a\\x1b[2J"), ("a\r\nb", "a\\r\\nb"), ("\udcff é", "\\udcff é"))
@pytest.mark.parametrize("member", ["file", "key", "detail"])
def test_no_terminal_or_log_obeys_an_objection(member, word, shown):
    (error,) = json.loads(REFUSAL)["errors"]
    (found,) = read_objections(json.dumps({"errors": [{**error, member: word}]}).encode())
    assert {"file": found.source, "key": found.key, "detail": str(found)}[member] == shown


def objections(error):
    """The objections that arrive when a worker answers with an error."""
    return read_objections(refused(error, Request({"type": "http", "headers": []})).body)


def test_an_objection_keeps_what_it_is_about():
    error = ConfigurationError("univocal.toml", "server.listen", ["found", None, float("inf")], "nothing")
    error.line, error.beside = 3, (ConfigurationError("other.toml", "a", 1, "2"),)
    errors = objections(error)
    assert list(map(str, errors)) == [str(error), str(error.beside[0])]
    assert [each.line for each in errors] == [3, 0]


def test_an_objection_may_be_about_anything():
    (other,) = objections(ConfigurationError("a file \udcff", "k", {1: b"bytes", "o": object}, "a"))
    assert other.source == "a file \\udcff"
    assert "b'bytes'" in str(other)


@pytest.mark.parametrize("member", ["file", "key", "line", "detail"])
def test_no_objection_lacks_a_member(member):
    (error,) = json.loads(REFUSAL)["errors"]
    del error[member]
    with pytest.raises(AnswerError):
        read_objections(json.dumps({"errors": [error]}).encode())
