"""Chunked content of requests (RFC 9112 §7.1), up to its trailers. It takes bytes and has no socket.

Each chunk costs the same, whatever is in it: content is never searched for its end.
A client has a number of steps in each turn, which are counted here. Responses of origin servers have `Chunks`
in `origin/response_reader.py`: llhttp takes any number of these at once.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

import httptools

from univocal.http.errors import RefusedError
from univocal.server.http1.llhttp import new_parser

# Steps that are taken at once, about a microsecond each: a chunk is one.
_AT_ONCE: Final = 128
# Chunks of fewer bytes are read many at a time, as far as these bytes have them.
_SMALL: Final = 64
_WINDOW: Final = 4096
_OCTETS_A_STEP: Final = 32  # of a run of small chunks
# Bytes of a line with a chunk's size and extensions.
_LONGEST_LINE: Final = 16 * 1024

# §7.1.1: extensions are read and ignored. Blanks around them, which a sender must not send, are refused.
_SIZE: Final = rb"0*([0-9A-Fa-f]{1,15})"
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_EXTENSIONS: Final = rb"(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED)
_LINE: Final = re.compile(_SIZE + _EXTENSIONS)
_BEFORE_CHUNKS: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
# Nearly every chunk but the first and the last begins like this, behind the one before it.
_NEXT: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")


def _run_of_small(before: bytes, behind: bytes) -> re.Pattern[bytes]:
    """As many whole small chunks as there are; around a size's digits stand such bytes."""
    kinds = []
    for first in range(1, 16):
        sizes = [first, *(16 * first + second for second in range(16))]
        digits = [b"", *map(_digit, range(16))]
        rests = [
            b"%b%b\r\n.{%d}\r\n" % (digit, behind, size)
            for digit, size in zip(digits, sizes, strict=True)
            if size < _SMALL
        ]
        kinds.append(b"%b(?:%b)" % (_digit(first), b"|".join(rests)))
    return re.compile(b"(?>(?:%b(?:%b))+)" % (before, b"|".join(kinds)), re.DOTALL)


def _digit(value: int) -> bytes:
    return b"[%x%X]" % (value, value)


@cache
def _runs() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """The patterns of small chunks: plain, and with leading zeros and extensions, as `_LINE` has them.

    They take milliseconds to compile: the first small chunk needs them, a start does not.
    """
    odd = _run_of_small(b"(?=%b%b\r\n)0*+" % (_SIZE, _EXTENSIONS), b"(?:;[^\r]*+)?")
    return _run_of_small(b"", b""), odd


class ChunkReader:
    """Takes the chunks of one request's content apart.

    `read` until `is_over`: then the bytes are those of the trailers.
    """

    def __init__(self) -> None:
        self._contents: _Contents | None = None
        self._left = 0  # bytes of the chunk that are to come
        self._open = False  # a chunk's content is complete, and the end of its line is to come
        self.is_over = False

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        """The content of some chunks from a place on, and the place behind them.

        No content, and the same place: more bytes are needed, unless it is over. Raises RefusedError.
        """
        parts: list[bytes] = []
        left, end, steps = self._left, len(octets), 0
        while steps < _AT_ONCE:
            steps += 1
            if left:
                stop = at + left
                if stop > end:
                    parts.append(octets[at:])
                    left -= end - at
                    at = end
                    break
                parts.append(octets[at:stop])
                at, left = stop, 0
                self._open = True
            size_line = _NEXT.match(octets, at) if self._open else None
            digits = size_line[1] if size_line is not None else b""
            size = int(digits, 16) if digits else 0
            if size < _SMALL and self._open:
                behind = self._small(octets, at, digits, size, parts)
                if behind > at:
                    steps += (behind - at) // _OCTETS_A_STEP
                    at = behind
                    continue
            if size_line is not None and size:
                at, left = size_line.end(), size
                continue
            before = at
            at, left = self._line(octets, at)
            if at == before or self.is_over:
                break
        self._left = left
        return parts[0] if len(parts) == 1 else b"".join(parts), at

    def _small(self, octets: bytes, at: int, line: bytes, size: int, parts: list[bytes]) -> int:
        """Read many small chunks behind a line's end: the place of the end of the last one's line.

        `line` is the first one's, and `size` its size, if it is ordinary. The same place: the next chunk is
        not small, or not whole.
        """
        if not octets.startswith(b"\r\n", at):
            return at
        begin = at + 2
        stride = len(line) + size + 4
        if size and octets.startswith(line, begin + stride) and octets.startswith(line, begin + 7 * stride):
            content, length = _alike(octets[begin : begin + _WINDOW], line, size)
            if length:
                parts.append(content)
                return begin + length
        end = begin + _WINDOW
        plain, odd = _runs()
        run = plain.match(octets, begin, end) or odd.match(octets, begin, end)
        if run is None:
            return at
        if self._contents is None:
            self._contents = _Contents()
        if not self._contents.add(run[0], parts):
            self._contents = None
            return at
        return run.end() - 2

    def _line(self, octets: bytes, at: int) -> tuple[int, int]:
        """Read a chunk's size: the place behind its line, the same if that has not ended, and the size."""
        begin = at
        if self._open:
            if not b"\r\n".startswith(octets[at : at + 2]):
                raise RefusedError("bad-framing")
            begin += 2
        end = octets.find(b"\r\n", begin)
        if end < 0 or end - begin > _LONGEST_LINE:
            if len(octets) - begin > _LONGEST_LINE:
                raise RefusedError("fields-too-large")
            return at, 0
        match = _LINE.fullmatch(octets, begin, end)
        if match is None:
            raise RefusedError("bad-framing")
        size = int(match[1], 16)
        self._open = False
        self.is_over = not size
        return end + 2, size


class _Contents:
    """Takes the contents out of whole chunks, by llhttp, which calls no function of Python's."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser = new_parser(self)
        self._parser.feed_data(_BEFORE_CHUNKS)

    def add(self, chunks: bytes, parts: list[bytes]) -> bool:
        """Add the contents of these chunks; False, and nothing is added: llhttp does not take them."""
        try:
            self._parser.feed_data(chunks)
        except httptools.HttpParserError:
            return False
        parts.extend(self._parts)
        self._parts.clear()
        return True


def _alike(window: bytes, line: bytes, size: int) -> tuple[bytes, int]:
    """The content of small chunks of one size, whose frames stand at equal distances, and their bytes.

    Without the end of the last one's line. No bytes: they are not alike.
    """
    frame = line + b"\r\n"
    stride = len(frame) + size + 2
    count = len(window) // stride
    seen = [*enumerate(frame), (stride - 2, 0x0D), (stride - 1, 0x0A)]
    end = count * stride
    if count < 2 or not all(window[place:end:stride].count(octet) == count for place, octet in seen):
        return b"", 0
    content = bytearray(size * count)
    for place in range(size):
        content[place::size] = window[len(frame) + place : end : stride]
    return bytes(content), end - 2
