"""Legacy octets to UTF-8, or back: one charset for what clients send in two.

Only octets from 0x80 are transcoded and none below ever comes of it, so no delimiter and no dot segment does.
What is valid UTF-8 is UTF-8; that is judged for each part between delimiters, as links are put together.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["CHARSETS", "UTF_8", "Charset", "known_charset", "part_transcoder"]

UTF_8: Final = "utf-8"

_SINGLE: Final = (
    *(f"iso-8859-{part}" for part in range(1, 17) if part != 12),
    *(f"windows-{page}" for page in (874, *range(1250, 1259))),
    *("koi8-r", "koi8-u", "ibm866"),
)

# The legacy charsets, as IANA calls them, and Python's codecs for them: supersets of ASCII in which no octet
# of a character beyond it is below 0x80. Shift_JIS, Big5 and GBK are none: a second octet may be "\" or "|".
CHARSETS: Final[Mapping[str, str]] = {
    **{name: name.replace("windows-", "cp").replace("ibm", "cp") for name in _SINGLE},
    "euc-jp": "euc_jp",
    "euc-kr": "euc_kr",
}

_RUN: Final = re.compile(rb"(?:%[89A-Fa-f][0-9A-Fa-f])+")


@dataclass(frozen=True, slots=True)
class Charset:
    """In which charset octets come that are not UTF-8; the origin wants them in "utf-8" or "legacy"."""

    path: str = ""
    query: str = ""
    origin: str = UTF_8
    trust_encoding_fields: bool = False


def known_charset(value: bytes) -> str:
    """The charset that a field value names: "utf-8", one of CHARSETS, or "" for any other."""
    name = value.strip(b" \t").lower().decode("latin-1")
    return name if name == UTF_8 or name in CHARSETS else ""


def part_transcoder(legacy: str, origin: str, declared: str) -> Callable[[bytes], bytes]:
    """Respells a part: read as `declared` says, else as UTF-8 or `legacy`; written as the origin wants it."""

    def respell(part: bytes) -> bytes:
        runs = _octets(part)
        if not runs:
            return part
        texts = (_texts(runs, declared) if declared else None) or _undeclared(runs, legacy)
        if texts is None:
            return part
        written = [text.encode() for text in texts]
        if origin == "legacy" and legacy:
            written = _in_legacy(texts, legacy) or written
        if written == runs:
            return part
        respelled = iter(written)
        return _RUN.sub(lambda _: b"".join(b"%%%02X" % octet for octet in next(respelled)), part)

    return respell


def _octets(part: bytes) -> list[bytes]:
    return [bytes.fromhex(run.replace(b"%", b"").decode()) for run in _RUN.findall(part)]


def _undeclared(runs: list[bytes], legacy: str) -> list[str] | None:
    return _texts(runs, UTF_8) or (_texts(runs, legacy) if legacy else None)


def _texts(runs: list[bytes], charset: str) -> list[str] | None:
    """The runs read in `charset`; None if they are none of it."""
    decode = codecs.lookup(CHARSETS.get(charset, charset)).decode
    try:
        texts = [decode(run, "strict")[0] for run in runs]
    except UnicodeDecodeError:
        return None
    # Python's EUC-JP has one sequence for "~".
    return None if any(character < "\x80" for text in texts for character in text) else texts


def _in_legacy(texts: list[str], legacy: str) -> list[bytes] | None:
    """The texts in the charset `legacy`; None if they have no place in it, or would be taken for other ones.

    The latter are those whose legacy octets happen to be UTF-8: they stay in UTF-8, so that a canonical
    spelling is read as what it was made of.
    """
    encode = codecs.lookup(CHARSETS[legacy]).encode
    try:
        runs = [encode(text, "strict")[0] for text in texts]
    except UnicodeEncodeError:
        return None
    # Python's EUC-JP has "\" for a yen sign, and "~" for an overline.
    if any(octet < 0x80 for run in runs for octet in run):
        return None
    return runs if _undeclared(runs, legacy) == texts else None
