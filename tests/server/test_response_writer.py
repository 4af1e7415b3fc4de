"""Responses leave in few writes, and large content is not copied on its way."""

import asyncio

import pytest

from support import Turns
from univocal.http.messages import Received
from univocal.server.http1.messages import JOINED, ResponseWriter
from univocal.server.turn import Turn


class Written(asyncio.Transport):
    """A connection that keeps what is written, as it is."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, data):
        self.pieces.append(data)

    def writelines(self, list_of_data):
        self.pieces.extend(list_of_data)

    def is_closing(self):
        return False


def asked(*, keep_alive=True):
    return Turn(None, None, Received(b"GET", b"/"), [], keep_alive=keep_alive)


def sent(content, *, has_length):
    transport, loop = Written(), Turns()
    writer = ResponseWriter(transport, loop)
    fields = [(b"content-length", b"%d" % len(content))] if has_length else []
    names = {name for name, _ in fields}
    writer.start(asked(), 200, fields, names, has_content=True)
    writer.write(content)
    if writer.is_chunked:
        writer.end()
    loop.end_turn()
    return transport.pieces


def test_large_content_follows_its_head_without_a_copy():
    content = memoryview(bytes(JOINED + 1))
    head, piece = sent(content, has_length=True)
    assert head == b"HTTP/1.1 200 OK\r\ncontent-length: 8193\r\n\r\n"
    assert piece is content


@pytest.mark.parametrize("size", [1, JOINED])
def test_other_content_leaves_in_one_write_with_its_head(size):
    (octets,) = sent(memoryview(bytes(size)), has_length=True)
    assert octets == b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, bytes(size))


@pytest.mark.parametrize("size", [1, JOINED, JOINED + 1])
def test_content_of_unknown_length_is_a_chunk(size):
    octets = b"".join(sent(memoryview(bytes(size)), has_length=False))
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert octets == b"%b%x\r\n%b\r\n0\r\n\r\n" % (head, size, bytes(size))


def head(status, fields, *, keep_alive=True):
    transport, loop = Written(), Turns()
    writer, names = ResponseWriter(transport, loop), {name for name, _ in fields}
    writer.start(asked(keep_alive=keep_alive), status, fields, names, has_content=True)
    writer.flush()
    return b"".join(transport.pieces)


@pytest.mark.parametrize("content", [b"", b"small", bytes(JOINED + 1)])
@pytest.mark.parametrize("paused", [False, True])
def test_no_more_is_taken_while_the_connection_pauses(content, paused):
    writer = ResponseWriter(Written(), Turns())
    writer.start(asked(), 200, [(b"content-length", b"9999999")], {b"content-length"}, has_content=True)
    writer.write_paused = paused
    assert writer.write(content) is not paused
