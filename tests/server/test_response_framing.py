"""The head of a response by HTTP/1.1, as it is spelled."""

from __future__ import annotations

from univocal.http.messages import Fields
from univocal.server.http1.response import ResponseFraming


def head(status: int, fields: Fields, *, keep_alive: bool = True) -> bytes:
    framing, names = ResponseFraming(), {name for name, _ in fields}
    framing.start(status, fields, names, has_content=True, is_old=False, keep_alive=keep_alive)
    return framing.take_head()


def test_a_head_like_the_last_one_is_spelled_alike() -> None:
    for _ in range(3):
        fields = [(b"a", b"b"), (b"content-length", b"1")]
        assert head(200, fields) == b"HTTP/1.1 200 OK\r\na: b\r\ncontent-length: 1\r\n\r\n"
    assert head(200, fields, keep_alive=False).endswith(b"content-length: 1\r\nconnection: close\r\n\r\n")
    assert head(404, fields) == b"HTTP/1.1 404 Not Found\r\na: b\r\ncontent-length: 1\r\n\r\n"


def test_fields_that_change_after_they_were_spelled_are_spelled_anew() -> None:
    fields = [(b"a", b"b"), (b"content-length", b"1")]
    head(200, fields)
    fields[0] = (b"a", b"c")
    assert head(200, fields) == b"HTTP/1.1 200 OK\r\na: c\r\ncontent-length: 1\r\n\r\n"
    assert head(200, fields[:1]) == b"HTTP/1.1 200 OK\r\na: c\r\ntransfer-encoding: chunked\r\n\r\n"
