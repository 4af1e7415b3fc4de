"""Chunked content of requests (RFC 9112 §7.1), up to its trailers. It takes bytes and has no socket.

Each chunk costs the same, whatever is in it: content is never searched for its end.
"""

from __future__ import annotations

import re
from typing import Final

from univocal.http.errors import RefusedError

__all__ = ["ChunkReader"]

# Chunks that are read at once: a fraction of a millisecond, in which others wait.
_AT_ONCE: Final = 128
# Chunks of fewer octets are read many at a time, as far as these octets have them.
_SMALL: Final = 32
_WINDOW: Final = 4096
_SIZES: Final = {b"%x" % size: size for size in range(1, _SMALL)} | {
    b"%X" % size: size for size in range(1, _SMALL)
}
# Octets of a line with a chunk's size and extensions.
_LONGEST_LINE: Final = 16 * 1024

# §7.1.1: extensions are read and ignored. Blanks around them, which a sender must not send, are refused.
_SIZE: Final = rb"0*([0-9A-Fa-f]{1,15})"
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_EXTENSIONS: Final = rb"(?:;%b(?:=(?:%b|%b))?)*" % (_TOKEN, _TOKEN, _QUOTED)
_LINE: Final = re.compile(_SIZE + _EXTENSIONS)
# Nearly every chunk but the first and the last begins like this, behind the one before it.
_NEXT: Final = re.compile(rb"\r\n([0-9A-Fa-f]{1,15})\r\n")


class ChunkReader:
    """Takes the chunks of one request's content apart.

    `read` until `is_over`: then the octets are those of the trailers.
    """

    __slots__ = ("_left", "_open", "is_over")

    def __init__(self) -> None:
        self._left = 0  # octets of the chunk that are to come
        self._open = False  # a chunk's content is complete, and the end of its line is to come
        self.is_over = False

    def read(self, octets: bytes, at: int) -> tuple[bytes, int]:
        """The content of some chunks from a place on, and the place behind them.

        No content, and the same place: more octets are needed, unless it is over. Raises RefusedError.
        """
        parts: list[bytes] = []
        left, end, has_tried = self._left, len(octets), False
        for _ in range(_AT_ONCE):
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
            size = int(size_line[1], 16) if size_line is not None else 0
            if 0 < size < _SMALL and not has_tried:
                has_tried = True
                run, behind = _run(octets, at + 2)
                if run:
                    parts.append(run)
                    at = behind
                    break
            if size_line is not None and size:
                at, left = size_line.end(), size
                continue
            before = at
            at, left = self._line(octets, at)
            if at == before or self.is_over:
                break
        self._left = left
        return parts[0] if len(parts) == 1 else b"".join(parts), at

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


def _run(octets: bytes, at: int) -> tuple[bytes, int]:
    """The content of many small chunks from a place on, and the place of the end of the last one's line.

    Nothing, if they are of several sizes and have line ends in them: those are read chunk by chunk.
    """
    window = octets[at : at + _WINDOW]
    line, _, _ = window.partition(b"\r\n")
    run, behind = _alike(window, line, _SIZES.get(line, 0))
    if run:
        return run, at + behind
    parts = window.split(b"\r\n")
    last = (len(parts) - 1) // 2 * 2  # behind it, a chunk may be cut off
    sizes, contents = parts[:last:2], parts[1:last:2]
    if not contents or list(map(_SIZES.get, sizes)) != list(map(len, contents)):
        return b"", at
    run = b"".join(contents)
    return run, at + sum(map(len, sizes)) + len(run) + 4 * len(contents) - 2


def _alike(window: bytes, line: bytes, size: int) -> tuple[bytes, int]:
    """The same, of chunks of one size, whose frames stand at equal distances."""
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
