"""A response's head before it is parsed: where it ends, and its meaning in the spellings of old servers.

The parser is strict. Every recipient reads these bytes in the same way, if at all.
"""

from __future__ import annotations

import re
from typing import Final

# The beginnings of a final response's head that needs no second look.
ORDINARY: Final = tuple(b"HTTP/1.%d %d" % (minor, hundreds) for minor in (1, 0) for hundreds in (2, 3, 4, 5))

_EMPTY_LINES: Final = re.compile(rb"(?:\r?\n)*")
_BEGINNING: Final = b"HTTP/1."
_LATER_VERSION: Final = re.compile(rb"HTTP/1\.[2-9](?= )")
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:([^\r\n]*)")


class AnsweredRequest:
    """The request that a response answers, as far as reading the response depends on it."""

    __slots__ = ("expects_continue", "is_head", "upgrades")

    def __init__(self, expects_continue: bool = False, upgrades: bool = False, is_head: bool = False) -> None:
        self.expects_continue = expects_continue  # RFC 9110 §10.1.1
        self.upgrades = upgrades
        self.is_head = is_head


class PartialHead:
    """The bytes of a head that is not whole yet."""

    def __init__(self) -> None:
        self.held = bytearray()
        self._looked = 0  # bytes in which the head's end was looked for

    def joined(self, data: bytes) -> bytes | None:
        """All bytes so far, `data` being the latest; None while the head cannot be whole.

        All of them are looked at again only when they have doubled, or may be whole.
        """
        if not self.held:
            return data
        before = len(self.held)
        self.held += data
        if len(self.held) < 2 * self._looked and not _may_end(self.held, before):
            return None
        data = bytes(self.held)
        self.held.clear()
        return data

    def keep(self, data: bytes) -> None:
        """Hold the bytes of a head whose end was looked for in vain."""
        self.held += data[_empty_lines(data) :]
        self._looked = len(self.held)


def _empty_lines(octets: bytes) -> int:
    """The bytes of the empty lines with which `octets` begin."""
    return _EMPTY_LINES.match(octets).end()  # type: ignore[union-attr]


def _may_end(octets: bytearray, before: int) -> bool:
    """Tell whether what stands behind the first `before` bytes may make a head whole, or show a fault.

    That is the end of the first line, an empty line, or a line end of the other kind.
    """
    line_end = octets.find(b"\n")
    if line_end < 0 or line_end >= before:
        return line_end >= 0
    tail = octets[max(before - 3, line_end - 1) :]
    if tail[0] == 0x0A:
        del tail[0]  # without its CR
    if octets[line_end - 1] != 0x0D:
        return b"\n\n" in octets[before - 1 :] or b"\r" in tail
    return b"\n\r\n" in octets[before - 2 :] or tail.count(b"\n") != tail.count(b"\r\n")


def whole_head(octets: bytes) -> tuple[bytes, int] | None:
    """The head with which `octets` begin, as RFC 9112 has it, and how many bytes it took; None: not whole.

    Raises ValueError, with the reason, where these are no bytes of HTTP/1, or can be read in two ways.
    """
    start = _empty_lines(octets)
    begins = octets[start : start + len(_BEGINNING)]
    if not _BEGINNING.startswith(begins) and begins != b"\r":
        raise ValueError("no head of HTTP/1")
    line_end = octets.find(b"\n", start)
    if line_end < 0:
        return None
    bare = octets[line_end - 1] != 0x0D  # RFC 9112 §2.2: a single LF may be a line's end
    end = octets.find(b"\n\n" if bare else b"\r\n\r\n", start)
    end = len(octets) if end < 0 else end + (2 if bare else 4)
    head = octets[start:end]
    # If both kinds of line end occur, some read one of them as part of a value.
    if (b"\r" in head) if bare else (head.count(b"\n") != head.count(b"\r\n")):
        raise ValueError("line ends of two kinds")
    if bare:
        head = head.replace(b"\n", b"\r\n")
    return (_respelled(head), end) if head.endswith(b"\r\n\r\n") else None


def _respelled(head: bytes) -> bytes:
    """A head of HTTP/1.1 with one Content-Length, where several say the same (RFC 9110 §2.5, §8.6)."""
    if _LATER_VERSION.match(head):
        head = b"HTTP/1.1" + head[len(b"HTTP/1.1") :]
    lines = _LENGTH.findall(head)
    lengths = {member.strip(b" \t") for line in lines for member in line.split(b",")}
    if len(lengths) != 1:
        return head
    once = iter([b"\r\nContent-Length: " + lengths.pop()])
    return _LENGTH.sub(lambda _: next(once, b""), head)
