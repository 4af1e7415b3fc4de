"""The suspicious sequences of a path, each with its reason (after Servlet 6.1 §3.5.2, step 10).

They are looked for in the path as it was received, before parameters are cut and anything is decoded: what
one reader takes for a dot segment or a slash and another does not is gone once it has been respelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from univocal.http.grammar import UNICODE_ESCAPE, unescape


def is_utf_8(text: bytes) -> bool:
    """`text`, its escapes decoded, is UTF-8 (RFC 3629)."""
    try:
        unescape(text).decode()
    except UnicodeDecodeError:
        return False
    return True


_UNICODE_ESCAPE: Final = re.compile(UNICODE_ESCAPE)


def in_octets(path: bytes) -> bytes:
    """`path` with the escapes of bytes in place of each "%uXXXX": in UTF-8, if it is a character."""
    return _UNICODE_ESCAPE.sub(_in_octets, path)


def _in_octets(escape: re.Match[bytes]) -> bytes:
    character = chr(int(escape[0][-4:], 16))
    return b"".join([b"%%%02X" % octet for octet in character.encode("utf-8", "surrogatepass")])


# The source of a pattern for one character beyond ASCII in upper-case escapes (RFC 3629 §4).
_TAIL: Final = rb"%[89AB][0-9A-F]"
UTF_8_ESCAPES: Final = (
    rb"(?:%(?:C[2-9A-F]|D[0-9A-F])T"
    rb"|%E(?:0%[AB][0-9A-F]|[1-9A-CEF]T|D%[89][0-9A-F])T"
    rb"|%F(?:0%[9AB][0-9A-F]|[1-3]T|4%8[0-9A-F])TT)"
).replace(b"T", _TAIL)

SUB_DELIMITERS: Final = b"!$&'()*+,;="

_DOT: Final = re.compile(rb"(?:\.|%2[Ee]){1,2}")
_DOT_DOT: Final = re.compile(rb"(?:\.|%2[Ee]){2}")

_OCTETS: Final[dict[str, Callable[[bytes], object]]] = {
    "control-character": re.compile(rb"[\x00-\x1F\x7F]|%(?:[01][0-9A-Fa-f]|7[Ff])").search,
    "bad-escape": re.compile(rb"%(?![0-9A-Fa-f]{2})").search,
    "bad-utf-8": lambda path: not is_utf_8(path),
    "backslash": re.compile(rb"\\|%5[Cc]").search,
    "encoded-slash": re.compile(rb"%2[Ff]").search,
    "encoded-dot": re.compile(rb"%2[Ee]").search,
}
# Those that only a look at every segment finds.
SEGMENTS: Final = frozenset(
    {
        "encoded-dot-segment",
        "dot-segment-parameter",
        "dot-segment",
        "above-root",
        "dot-dot-after-empty-segment",
        "empty-segment-parameter",
        "repeated-parameter",
    }
)

# Every reason that a profile's `[reject] sequences` may list.
SEQUENCES: Final = frozenset({"no-leading-slash", "fragment", *_OCTETS, *SEGMENTS})

# Spellings that some server of a profile's family takes for another path: those that a profile may name, and
# those that it names unless it says otherwise.
NON_NFC: Final = "non-nfc"
DOTS: Final = "dot-segment"
DEFAULT_LOOSE: Final = ("//", "\\", "%5C", "%2F")
LOOSE: Final = (*DEFAULT_LOOSE, ";", "%u", DOTS, NON_NFC)


class Inspector:
    """Finds the `listed` reasons in a received path, as an origin reads it that decodes the bytes `decoded`.

    `delimiters` begin a path parameter. Where `reads_parameters`, a segment ends before them, so that "..;x"
    is a dot segment. Elsewhere it is a name like any other, and only dot-segment-parameter finds it. For that
    reason any sub-delimiter begins a parameter (RFC 3986 §3.3). With `unicode_escapes`, "%uXXXX" is decoded.
    """

    def __init__(
        self,
        listed: frozenset[str],
        decoded: bytes,
        delimiters: bytes,
        *,
        reads_parameters: bool,
        merges: bool,
        unicode_escapes: bool = False,
    ) -> None:
        self._listed = listed & SEGMENTS
        self._octets = [(reason, search) for reason, search in _OCTETS.items() if reason in listed]
        self._slash = _either_spelling(b"/", decoded)
        self._delimiter = _either_spelling(delimiters, decoded)
        self._dot_parameter = re.compile(
            _DOT.pattern + b"(?:%b)" % _either_spelling(SUB_DELIMITERS, decoded).pattern
        )
        self._reads_parameters = reads_parameters
        self._merges = merges
        self._unicode_escapes = unicode_escapes

    def __call__(self, path: bytes) -> set[str]:
        """The reasons, in no order, for which `path` is to be refused."""
        if self._unicode_escapes:
            path = in_octets(path)
        reasons = {reason for reason, search in self._octets if search(path)}
        if self._listed:
            reasons |= self._listed & set(self._of_segments(path))
        return reasons

    def _of_segments(self, path: bytes) -> Iterator[str]:
        segments = self._slash.split(path.removeprefix(b"/"))
        entered: list[bytes] = []
        for position, segment in enumerate(segments, start=1):
            name, *parameters = self._delimiter.split(segment, maxsplit=2)
            if len(parameters) > 1:
                yield "repeated-parameter"
            if self._dot_parameter.match(segment):
                yield "dot-segment-parameter"
            if _DOT.fullmatch(name):
                if b"%" in name:
                    yield "encoded-dot-segment"
            elif not name and segment and position < len(segments):
                yield "empty-segment-parameter"
            yield from self._enter(entered, name if self._reads_parameters else segment)

    def _enter(self, entered: list[bytes], name: bytes) -> Iterator[str]:
        if _DOT.fullmatch(name):
            yield "dot-segment"
            if _DOT_DOT.fullmatch(name):
                if not entered:
                    yield "above-root"
                elif not entered.pop():
                    yield "dot-dot-after-empty-segment"
        elif name or not self._merges:
            entered.append(name)


def _either_spelling(octets: bytes, decoded: bytes) -> re.Pattern[bytes]:
    """A pattern that matches one of `octets`, bare or, if it is among the `decoded`, as an escape."""
    escapes = [b"%%(?i:%02X)" % octet for octet in octets if octet in decoded]
    return re.compile(b"|".join([b"[%b]" % re.escape(octets), *escapes]))
