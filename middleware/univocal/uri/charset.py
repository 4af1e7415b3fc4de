"""Legacy bytes to UTF-8, or back: one charset for what clients send in two.

Only characters beyond ASCII are transcoded, and of their bytes none is below 0x40: no delimiter and no dot
segment comes or goes. Bytes that are valid UTF-8 are UTF-8; that is judged for each part between delimiters,
as links are put together.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from univocal.http.grammar import UNRESERVED, unescape

__all__ = ["CHARSETS", "UTF_8", "Charset", "known_charset", "part_transcoder"]

UTF_8: Final = "utf-8"

_SINGLE: Final = (
    *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
    *(f"windows-{page}" for page in (874, *range(1250, 1259))),
    *("koi8-r", "koi8-u", "ibm866"),
)

# The legacy charsets, as IANA calls them, and Python's codecs for them: supersets of ASCII.
CHARSETS: Final[Mapping[str, str]] = {
    **{name: name.replace("windows-", "cp").replace("ibm", "cp") for name in _SINGLE},
    "euc-jp": "euc_jp",
    "euc-kr": "euc_kr",
    "gbk": "gbk",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
}

_RUN: Final = re.compile(rb"(?:%[89A-Fa-f][0-9A-Fa-f])+")

# Here a second byte may be one of ASCII from 0x40 on: a letter or "@", never "/", "%", a digit or a dot. In
# Shift_JIS some characters are one byte alone.
_SECOND: Final = rb"(?:[@-~]|%(?:[4-7][0-9A-Fa-f]|[89A-Fa-f][0-9A-Fa-f]))"
_LEADING: Final = rb"%(?:8[1-9A-Fa-f]|[9A-Ea-e][0-9A-Fa-f]|[Ff][0-9A-Ea-e])"
_SHIFT_JIS: Final = (
    rb"(?:%(?:[Aa][1-9A-Fa-f]|[B-Db-d][0-9A-Fa-f])"
    rb"|%(?:8[1-9A-Fa-f]|9[0-9A-Fa-f]|[Ee][0-9A-Fa-f]|[Ff][0-9A-Ca-c])" + _SECOND + rb")+"
)
_RUNS: Final[Mapping[str, re.Pattern[bytes]]] = {
    "gbk": re.compile(b"(?:" + _LEADING + _SECOND + b")+"),
    "big5": re.compile(b"(?:" + _LEADING + _SECOND + b")+"),
    "shift_jis": re.compile(_SHIFT_JIS),
}


@dataclass(frozen=True, slots=True)
class Charset:
    """In which charset bytes come that are not UTF-8; the origin wants them in "utf-8" or "legacy"."""

    path: str = ""
    query: str = ""
    origin: str = UTF_8
    trust_encoding_fields: bool = False


def known_charset(value: bytes) -> str:
    """The charset that a field value names: "utf-8", one of CHARSETS, or "" for any other."""
    name = value.strip(b" \t").lower().decode("latin-1")
    return name if name == UTF_8 or name in CHARSETS else ""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The runs of characters beyond ASCII in a part, as a charset has them: where, in bytes, and as text."""

    runs: re.Pattern[bytes]
    octets: list[bytes]
    texts: list[str]

    def respelled(self, part: bytes, written: list[bytes]) -> bytes:
        """The part with other bytes in the place of each run."""
        left = iter(written)
        return self.runs.sub(lambda _: b"".join(map(_spelled, next(left))), part)


def _spelled(octet: int) -> bytes:
    return b"%c" % octet if octet in UNRESERVED else b"%%%02X" % octet


def part_transcoder(legacy: str, origin: str, declared: str) -> Callable[[bytes], bytes]:
    """Respells a part: read as `declared` says, else as UTF-8 or `legacy`; written as the origin wants it."""

    def respell(part: bytes) -> bytes:
        if not _RUN.search(part):
            return part
        reading = (_read(part, declared) if declared else None) or _undeclared(part, legacy)
        if reading is None:
            return part
        written = [text.encode() for text in reading.texts]
        if origin == "legacy" and legacy:
            written = _in_legacy(part, reading, legacy) or written
        if written == reading.octets and all(octet >= 0x80 for run in written for octet in run):
            return part
        return reading.respelled(part, written)

    return respell


def _undeclared(part: bytes, legacy: str) -> _Reading | None:
    return _read(part, UTF_8) or (_read(part, legacy) if legacy else None)


def _read(part: bytes, charset: str) -> _Reading | None:
    """The part read in `charset`; None if its bytes beyond ASCII are none of it."""
    runs = _RUNS.get(charset, _RUN)
    if runs is not _RUN and _RUN.search(runs.sub(b"/", part)):
        return None
    decode = codecs.lookup(CHARSETS.get(charset, charset)).decode
    octets = [unescape(run) for run in runs.findall(part)]
    try:
        texts = [decode(run, "strict")[0] for run in octets]
    except UnicodeDecodeError:
        return None
    # Python's EUC-JP has one sequence for "~".
    if any(character < "\x80" for text in texts for character in text):
        return None
    return _Reading(runs, octets, texts)


def _in_legacy(part: bytes, reading: _Reading, legacy: str) -> list[bytes] | None:
    """The texts in the charset `legacy`; None if they have no place in it, or would be taken for other ones.

    The latter are those whose legacy bytes happen to be UTF-8: they stay in UTF-8, so that a canonical
    spelling is read as what it was made of.
    """
    encode = codecs.lookup(CHARSETS[legacy]).encode
    try:
        characters = [[encode(character, "strict")[0] for character in text] for text in reading.texts]
    except UnicodeEncodeError:
        return None
    # Python's EUC-JP has "\" for a yen sign, and "~" for an overline.
    if any(octets[0] < 0x80 for run in characters for octets in run):
        return None
    written = [b"".join(run) for run in characters]
    again = _undeclared(reading.respelled(part, written), legacy)
    return written if again is not None and again.texts == reading.texts else None
