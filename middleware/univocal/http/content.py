"""The content of messages: of a length, in chunks, or up to the connection's end (RFC 9112 §6.3, §7.1).

A reader takes bytes and gives content; it has no socket. `READERS` has one for each framing. Chunks have two.
Those of clients are read in bounded steps, and their end is known to the byte: a request may stand behind it.
Those of origin servers are all taken at once, two to ten times as fast, by llhttp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import ClassVar, Final

import httptools

from univocal.http.messages import Field, Fields

_BLANK_LINE: Final = b"\r\n\r\n"


NO_TRAILERS: Final[Sequence[Field]] = ()


class Framing(Enum):
    """The ways in which a message tells where its content ends (RFC 9112 §6.3)."""

    __hash__ = object.__hash__  # enum's own is a call of Python's

    LENGTH = "by Content-Length"
    CHUNKS = "by its last chunk"
    CLOSE = "by the end of the connection"


class ContentReader:
    """Takes the content of one message after the other out of bytes: `begin`, then `read` until it `is_over`.

    `fault` says why the bytes are no such content, once that is so. `trailers` are those that were read.
    """

    leaves_trailers: ClassVar[bool] = False  # behind the end there are trailers, which it does not read

    is_over: bool
    fault: str
    trailers: Sequence[Field]

    def begin(self, length: int) -> None:
        """Begin the content of a message; its length counts where it is the framing."""
        raise NotImplementedError

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        """Some content from a place on, and the place behind it: no content, if more bytes are needed.

        Bytes behind the last place are those that follow the content.
        """
        raise NotImplementedError


class Counted(ContentReader):
    """Content of a known length."""

    most: ClassVar[int] = 1 << 62  # bytes that are given at once

    def __init__(self) -> None:
        self.is_over, self.fault, self.trailers = False, "", NO_TRAILERS
        self._left = 0  # bytes that are to come

    def begin(self, length: int) -> None:
        self._left, self.is_over = length, length == 0

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        end = min(len(octets), at + min(self._left, self.most))
        self._left -= end - at
        self.is_over = self._left == 0
        return octets[at:end], end


class CountedInSteps(Counted):
    """A request's content of a known length: a bounded number of bytes at once."""

    most: ClassVar[int] = 64 * 1024


class ToTheEnd(ContentReader):
    """Content that ends with the connection: its reader never knows that it is over."""

    def __init__(self) -> None:
        self.is_over, self.fault, self.trailers = False, "", NO_TRAILERS

    def begin(self, length: int) -> None:
        pass

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        return octets[at:], len(octets)


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
_REQUEST_BEFORE_CHUNKS: Final = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
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


class ChunksInSteps(ContentReader):
    """The chunks of a request: a bounded number of steps at once, up to the line of the last chunk.

    Each chunk costs the same, whatever is in it: content is never searched for its end.
    """

    leaves_trailers: ClassVar[bool] = True

    def __init__(self) -> None:
        self.is_over, self.fault, self.trailers = False, "", NO_TRAILERS
        self._contents: _Contents | None = None
        self._left = 0  # bytes of the chunk that are to come
        self._open = False  # a chunk's content is complete, and the end of its line is to come

    def begin(self, length: int) -> None:  # noqa: ARG002
        self._left, self._open, self.is_over = 0, False, False

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
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
                self.fault = "bad-framing"
                return at, 0
            begin += 2
        end = octets.find(b"\r\n", begin)
        if end < 0 or end - begin > _LONGEST_LINE:
            if len(octets) - begin > _LONGEST_LINE:
                self.fault = "fields-too-large"
            return at, 0
        match = _LINE.fullmatch(octets, begin, end)
        if match is None:
            self.fault = "bad-framing"
            return at, 0
        size = int(match[1], 16)
        self._open = False
        self.is_over = not size
        return end + 2, size


class _Contents:
    """Takes the contents out of whole chunks, by llhttp, which calls no function of Python's."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(_REQUEST_BEFORE_CHUNKS)

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


_RESPONSE_BEFORE_CHUNKS: Final = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"


class ChunksAtOnce(ContentReader):
    """The chunks of a response and its trailers, by llhttp, which calls nothing of Python's for a chunk.

    llhttp does not say where the end was, but whether bytes follow: then `read` returns the place at which it
    began. Another content may begin where no bytes follow. The callbacks know nothing of this object: circles
    wait for the garbage collector.
    """

    def __init__(self) -> None:
        pieces, ends, rests, trailers = list[bytes](), list[int](), list[bool](), Fields()
        self._pieces, self._ends, self._rests, self._trailers = pieces, ends, rests, trailers
        self.is_over, self.fault, self.trailers = False, "", trailers
        self._tail = b""  # the last bytes that have come

        def on_header(name: bytes, value: bytes) -> None:
            if not ends:
                trailers.append((name.lower(), value.rstrip(b" \t")))

        self.on_header: Callable[[bytes, bytes], None] = on_header
        self.on_body: Callable[[bytes], None] = pieces.append
        self.on_message_begin: Callable[[], None] = rests.clear
        self.on_message_complete: Callable[[], None] = lambda: ends.append(len(pieces))
        self._parser = httptools.HttpResponseParser(self)
        # RFC 9112 §7.1.1: blanks behind a chunk's size are bad, and have one meaning. A trailer named
        # Connection says nothing of the connection (RFC 9110 §6.5.1), so the parser reads on behind it.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True, lenient_keep_alive=True)

    def begin(self, length: int) -> None:  # noqa: ARG002
        self._ends.clear()
        self._parser.feed_data(_RESPONSE_BEFORE_CHUNKS)
        self._trailers.clear()
        self._rests.append(True)
        self._tail, self.is_over = b"", False

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        pieces, ends, fault, place = self._pieces, self._ends, "", len(octets)
        if at:
            octets = octets[at:]
        try:
            self._parser.feed_data(octets)
        except httptools.HttpParserError as error:
            fault = str(error) or "malformed"
        if ends:
            del pieces[ends[0] :]
            # llhttp passes over line ends in silence.
            tail = self._tail + octets[-6:]
            is_exact = tail.endswith(_BLANK_LINE) and not tail.endswith(b"\r\n" + _BLANK_LINE)
            self.is_over = True
            if fault or not (self._rests and is_exact):
                place = at
        else:
            self.fault = fault
            self._tail = (self._tail + octets[-6:])[-6:]
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return content, place


READERS: Final[Mapping[str, Mapping[Framing, type[ContentReader]]]] = {
    "request": {Framing.LENGTH: CountedInSteps, Framing.CHUNKS: ChunksInSteps},
    "response": {Framing.LENGTH: Counted, Framing.CHUNKS: ChunksAtOnce, Framing.CLOSE: ToTheEnd},
}
"""The readers of content, for each message and framing; a request has an end of its own (RFC 9112 §6.3)."""

ALL_READ: Final[ContentReader] = Counted()
"""The reader of content of which nothing is to come."""
ALL_READ.begin(0)
