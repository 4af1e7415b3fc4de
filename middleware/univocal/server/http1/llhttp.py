"""llhttp, by httptools: its settings, the reasons for which it stops, and what it does not tell.

It knows a list of methods, takes RTSP for HTTP, and does not say where in the bytes a message ended: so it
is fed heads alone, each up to its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import httptools

from univocal.http.errors import RefusedError

# Methods that need no second look.
METHODS: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"PURGE ",
    b"CONNECT ",
    b"PRI ",
)
# Framing does not depend on the method (RFC 9112 §6.3): a request with any other is parsed as if it had this.
PLACEHOLDER: Final = b"POST"
_LONGEST: Final = 32  # bytes of a method

_METHOD: Final = re.compile(rb"([A-Z][A-Z_-]*)( .*)?", re.DOTALL)
# Of a piece of a stream, what follows a method and has a byte that no target has.
_REQUEST_LINES: Final = re.compile(rb"(?:^|\n)[A-Z_-]+ +[!-~]*([^!-~ ])")
_UNPRINTABLE: Final = re.compile(rb"[^!-~ \r\n]+")

_LINE_END: Final = re.compile(rb" HTTP/1\.(?:(0)|[1-9])\r\n\Z")


# The beginning of a piece of a request line, before the target: the method, or its end.
_BEFORE_TARGET: Final = re.compile(rb"[A-Z_-]* +")
# Letters in place of the bytes above 0x7F, as many of them: llhttp takes those in a target for an error.
_MASK: Final = bytes(range(0x80)) + b"x" * 0x80


class RawTarget:
    """A piece of a request line whose target holds bytes above 0x7F, and the line as llhttp takes it.

    `known` bytes of the target stood on the pieces before it. Nothing but the target is masked: elsewhere on
    the line such a byte stays an error.
    """

    __slots__ = ("_known", "_part", "masked")

    def __init__(self, line: bytes, known: int) -> None:
        before = None if known else _BEFORE_TARGET.match(line)
        start = 0 if before is None else before.end()
        end = line.find(b" ", start)
        self._part = part = line[start:] if end < 0 else line[start:end]
        self._known = known
        self.masked = line[:start] + part.translate(_MASK) + line[start + len(part) :]

    def restored(self, target: bytes) -> bytes:
        """The target so far, with the bytes as they came, of which llhttp has given as many."""
        known = self._known
        return target[:known] + self._part[: len(target) - known]


def new_parser(protocol: Any) -> httptools.HttpRequestParser:
    """A parser that reads on after a request with `Connection: close`, as uvicorn sets its own.

    It takes every version of HTTP: `version_of` tells which of them.
    """
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True, lenient_version=True)
    return parser


def version_of(line: bytes) -> str:
    """The version by which a message is read whose request line ends like `line`; "" if it is not HTTP/1.

    A minor version that is not known is read as the highest that is (RFC 9110 §2.5).
    """
    match = _LINE_END.search(line)
    return "" if match is None else "1.0" if match[1] else "1.1"


def split_method(octets: bytes) -> tuple[bytes, bytes] | None:
    """A message's method and the bytes after it, none before its blank has come; None if it has no method.

    A method is of letters A to Z, `-` and `_`, as nginx has it: RFC 9110 §9.1 allows more, and tells "get"
    from "GET", which not every application does.
    """
    match = _METHOD.fullmatch(octets)
    return None if match is None or len(match[1]) > _LONGEST else (match[1], match[2] or b"")


def why(error: httptools.HttpParserError, piece: bytes) -> Sequence[str]:
    """The reasons for which the parser stopped; raises the error if it was by a fault of this program."""
    if isinstance(error, httptools.HttpParserCallbackError):
        if isinstance(error.__context__, RefusedError):
            return error.__context__.reasons
        raise error
    if not isinstance(error, httptools.HttpParserInvalidURLError):
        return ("bad-framing",)
    if any(phrase in str(error) for phrase in ("start char", "schema")):
        return ("no-leading-slash",)
    if "server" in str(error):
        return ("bad-target",)
    # llhttp lets no byte below 0x21 or above 0x7E pass and does not say which it was, nor where. Those above
    # 0x7F in a target are masked.
    offending = b"".join(_REQUEST_LINES.findall(piece) or _UNPRINTABLE.findall(piece))
    if not offending:
        return ("no-leading-slash",)
    return ("control-character",) if offending.isascii() else ("bad-target",)
