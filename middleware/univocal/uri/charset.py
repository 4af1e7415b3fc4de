"""Legacy bytes to UTF-8, or back: one charset for what clients send in several.

The charsets and their labels are those of WHATWG's Encoding standard, as browsers have them. Only characters
beyond ASCII are transcoded, and of their bytes none is below 0x40: no delimiter and no dot segment comes or
goes. Each part between delimiters is judged by itself, as links are put together.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from univocal.http.grammar import UNRESERVED, unescape

UTF_8: Final = "utf-8"

_SINGLE: Final = (
    *(f"iso-8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    *(f"windows-{page}" for page in (874, *range(1250, 1259))),
    *("koi8-r", "koi8-u", "ibm866"),
)

# WHATWG's names of the legacy charsets, and the codecs of Python that differ least from them.
CHARSETS: Final[Mapping[str, str]] = {
    **{name: name.replace("windows-", "cp").replace("ibm", "cp") for name in _SINGLE},
    "iso-8859-8-i": "iso-8859-8",
    "macintosh": "mac_roman",
    "x-mac-cyrillic": "mac_cyrillic",
    "euc-jp": "euc_jp",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
}

_SEVERAL: Final = frozenset(
    {"euc-jp", "euc-kr", "gbk", "big5", "shift_jis"}
)  # charsets with several bytes for a character

_RUN: Final = re.compile(rb"(?:%[89A-Fa-f][0-9A-Fa-f])+")


def charset_of(label: str) -> str:
    """The charset that WHATWG gives a label: "utf-8", one of CHARSETS, or "" for any other."""
    from webencodings.labels import LABELS  # noqa: PLC0415 - most profiles name no charset

    name: str = LABELS.get(label.strip("\t\n\f\r ").lower(), "")
    return name if name == UTF_8 or name in CHARSETS else ""


def known_charset(value: bytes) -> str:
    """The charset that a field's value names, in quotation marks or without them."""
    text = value.strip(b" \t").decode("latin-1")
    return charset_of(text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text)


# Tables

_NO_CHARACTER: Final = "\ufffd"

# Where browsers differ from Python's codecs, by charset: the bytes of a row's first character in hexadecimal
# digits, and the row. tools/charsets/write.py writes it.
_DIFFERENCES: Final[Mapping[str, str]] = {
    "windows-874": (
        "81 \x81\x82\x83\x84 86 \x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90 98 \x98\x99\x9a\x9b\x9c\x9d"
        "\x9e\x9f"
    ),
    "windows-1250": "81 \x81 83 \x83 88 \x88 90 \x90 98 \x98",
    "windows-1251": "98 \x98",
    "windows-1252": "81 \x81 8d \x8d 8f \x8f\x90 9d \x9d",
    "windows-1253": "81 \x81 88 \x88 8a \x8a 8c \x8c\x8d\x8e\x8f\x90 98 \x98 9a \x9a 9c \x9c\x9d\x9e\x9f",
    "windows-1254": "81 \x81 8d \x8d\x8e\x8f\x90 9d \x9d\x9e",
    "windows-1255": "81 \x81 8a \x8a 8c \x8c\x8d\x8e\x8f\x90 9a \x9a 9c \x9c\x9d\x9e\x9f ca \u05ba",
    "windows-1257": "81 \x81 83 \x83 88 \x88 8a \x8a 8c \x8c 90 \x90 98 \x98 9a \x9a 9c \x9c 9f \x9f",
    "windows-1258": "81 \x81 8a \x8a 8d \x8d\x8e\x8f\x90 9a \x9a 9d \x9d\x9e",
    "koi8-u": "ae \u045e be \u040e",
    "euc-jp": "8fa2b7 \uff5e",
    "gbk": (
        "80 \u20ac a3a0 \u3000 a6d9 \ufe10\ufe12\ufe11\ufe13\ufe14\ufe15\ufe16 a6ec \ufe17\ufe18 a6f3 "
        "\ufe19 a8bc \u1e3f fe59 \u9fb4 fe61 \u9fb5 fe66 \u9fb6\u9fb7 fe6d \u9fb8 fe7e \u9fb9 fe90 \u9fba f"
        "ea0 \u9fbb"
    ),
    "big5": (
        "877a \u3875\U00021d53\U0002369e\U00026021\u3eec 87a1 \U000258de\u3af5\u7afc\u9f97\U00024161"
        "\U0002890d\U000231ea\U00020a8a\U0002325e\u430a\u8484\u9f96\u942f\u4930\u8613\u5896\u974a\u9218"
        "\u79d0\u7a32\u6660\u6a29\u889d\u744c\u7bc5\u6782\u7a2c\u524f\u9046\u34e6\u73c4\U00025db9\u74c6"
        "\u9fc7\u57b3\u492f\u544c\u4131\U0002368e\u5818\u7a72\U00027b65\u8b8f\u46ae\U00026e88\u4181"
        "\U00025d99\u7bae\U000224bc\u9fc8\U000224c1\U000224c9\U000224cc\u9fc9\u8504\U000235bb\u40b4\u9fca"
        "\u44e1\U0002adff\u62c1\u706e\u9fcb 8e69 \u7bb8 8e6f \u7c06 8e7e \u7cce 8eab \u7dd2 8eb4 \u7e1d 8ec"
        "d \u8005 8ed0 \u8028 8f57 \u83c1 8f69 \u84a8 8f6e \u840f 8fcb \u89a6\u89a9 8ffe \u8d77 906d \u90fd"
        " 907a \u92b9 90dc \u975c 90f1 \u97ff 91bf \u9f16 9244 \u8503 92af \u5159\u515b\u515d\u515e 92c8 "
        "\u936e 92d1 \u7479 9447 \u6d67 94ca \u799b 95d9 \u9097 9644 \u975d 96ed \u701e 96fc \u5b28 9b76 "
        "\u7201 9b78 \u77d7 9b7b \u7e87 9bc6 \u99d6 9bde \u91d4 9bec \u60de 9bf6 \u6fb6 9c42 \u8f36 9c53 "
        "\u4fbb 9c62 \u71df 9c68 \u9104 9c6b \u9df0 9c77 \u83cf 9cbc \u5c10\u79e3 9cd0 \u5a67 9d57 \u8f0b 9"
        "d5a \u7b51 9dc4 \u62d0 9ea9 \u6062 9eef \u75f9 9efd \u6c4a 9f60 \u9b2e 9f66 \u9f17 9fcb \u50ed 9fd"
        "8 \u5f0c a063 \u880f a077 \u62ce a0d5 \u7468 a0df \u7162 a0e4 \u7250 a145 \u2027 a14e \ufe51 a1c2 "
        "\xaf a1e3 \uff5e a1f2 \u2295\u2299 a241 \u2215\ufe68 a244 \uffe5 a246 \uffe0\uffe1 a3c0 \u2400"
        "\u2401\u2402\u2403\u2404\u2405\u2406\u2407\u2408\u2409\u240a\u240b\u240c\u240d\u240e\u240f\u2410"
        "\u2411\u2412\u2413\u2414\u2415\u2416\u2417\u2418\u2419\u241a\u241b\u241c\u241d\u241e\u241f\u2421"
        "\u20ac c6cf \u5ef4 c6d3 \u65e0 c6d5 \u7676 c6d7 \u96b6 c6de \u3003\u4edd fa5f \u5029 fa66 \u507d f"
        "abd \u5305 fac5 \u5344 fad5 \u537f fb48 \u5605 fbb8 \u5a77 fbf3 \u5e75 fbf9 \u5ed0 fc4f \u5f58 fc6"
        "c \u60a4 fcb9 \u6490 fce2 \u6674 fcf1 \u675e fdb7 \u6c9c\u6e1d fdbb \u6e2f fdf1 \u716e fe52 \u732a"
        " fe6f \u745c feaa \u74e9 fedd \u7809"
    ),
    "shift_jis": "a0 \ufffd fd \ufffd\ufffd\ufffd",
}

# Of a character that stands twice, these first bytes are the less usual: WHATWG's encoders pass them over.
_SECOND_CHOICE: Final[Mapping[str, Collection[int]]] = {
    "big5": range(0x81, 0xA1),
    "euc-jp": (0x8E, 0x8F),
    "shift_jis": (0xED, 0xEE),
}
_LAST_IN_BIG5: Final = "\u2550\u255e\u2561\u256a\u5341\u5345"


@dataclass(frozen=True, slots=True)
class _Table:
    """A charset beyond ASCII: the text of each sequence of bytes, and the bytes of each text.

    `runs` matches characters in a row, as they stand in a part.
    """

    texts: Mapping[bytes, str]
    octets: Mapping[str, bytes]
    runs: re.Pattern[bytes]


@cache
def _table(charset: str) -> _Table:
    texts = dict(_by_codec(charset))
    places, rows = (_DIFFERENCES.get(charset, "").split(" ")[at::2] for at in (0, 1))
    for place, row in zip(places, rows, strict=False):
        *lead, last = bytes.fromhex(place)
        texts |= {bytes([*lead, last + number]): text for number, text in enumerate(row)}
    texts = {octets: text for octets, text in texts.items() if text != _NO_CHARACTER and text >= "\x80"}
    rare = _SECOND_CHOICE.get(charset, ())
    ranked = sorted(texts, key=lambda octets: (octets[0] in rare, octets))
    written = {texts[octets]: octets for octets in reversed(ranked)}
    if charset == "big5":
        written |= {texts[octets]: octets for octets in ranked if texts[octets] in _LAST_IN_BIG5}
    return _Table(texts, written, _runs(texts))


def _by_codec(charset: str) -> Iterator[tuple[bytes, str]]:
    """The characters of one byte, or of several that do not begin with such a byte."""
    for first in range(0x80, 0x100):
        one = _text(bytes([first]), charset)
        if one:
            yield bytes([first]), one
            continue
        for second in range(0x40, 0xFF) if charset in _SEVERAL else ():
            several = [bytes([first, second])]
            if charset == "euc-jp" and first == 0x8F:
                several = [bytes([first, second, third]) for third in range(0xA1, 0xFF)]
            yield from ((octets, text) for octets in several if (text := _text(octets, charset)))


def _text(octets: bytes, charset: str) -> str:
    if charset == "euc-jp" and len(octets) == 2 and 0xA1 <= min(octets) <= max(octets) < 0xFF:
        octets, charset = _in_shift_jis(octets), "shift_jis"  # Python's EUC-JP lacks rows 13 and 89 to 92
    try:
        return codecs.lookup(CHARSETS[charset]).decode(octets, "strict")[0]
    except UnicodeDecodeError:
        return ""


def _in_shift_jis(octets: bytes) -> bytes:
    """The character of JIS X 0208 that these bytes are in EUC-JP."""
    lead, trail = divmod((octets[0] - 0xA1) * 94 + octets[1] - 0xA1, 188)
    return bytes([lead + (0x81 if lead < 0x1F else 0xC1), trail + (0x40 if trail < 0x3F else 0x41)])


def _runs(texts: Iterable[bytes]) -> re.Pattern[bytes]:
    seconds = {octets[1] for octets in texts if len(octets) == 2}
    if not seconds or min(seconds) >= 0x80:
        return _RUN
    single = {octets[0] for octets in texts if len(octets) == 1}
    leads = {octets[0] for octets in texts if len(octets) == 2}
    bare = re.escape(bytes(octet for octet in seconds if octet < 0x80))
    one = _escapes(single) + b"|" if single else b""
    return re.compile(b"(?i)(?:%b%b(?:[%b]|%b))+" % (one, _escapes(leads), bare, _escapes(seconds)))


def _escapes(octets: Iterable[int]) -> bytes:
    rows: dict[int, bytes] = {}
    for octet in sorted(octets):
        rows[octet >> 4] = rows.get(octet >> 4, b"") + b"%X" % (octet & 15)
    return b"%%(?:%b)" % b"|".join(b"%X[%b]" % row for row in rows.items())


def decoded(octets: bytes, charset: str) -> str | None:
    """The text that bytes beyond ASCII, and those that belong to them, are in one of CHARSETS; or None."""
    texts, characters, at = _table(charset).texts, list[str](), 0
    while at < len(octets):
        size = next((size for size in (1, 2, 3) if octets[at : at + size] in texts), 0)
        if not size:
            return None
        characters.append(texts[octets[at : at + size]])
        at += size
    return "".join(characters)


def encoded(text: str, charset: str) -> bytes | None:
    """The bytes of a text beyond ASCII in one of CHARSETS; None if it has no place there.

    All that the charset has comes back: by WHATWG's encoder or, where this has nothing, by its only bytes.
    """
    octets, written, at = _table(charset).octets, list[bytes](), 0
    while at < len(text):
        size = next((size for size in (2, 1) if text[at : at + size] in octets), 0)
        if not size:
            return None
        written.append(octets[text[at : at + size]])
        at += size
    return b"".join(written)


# Parts


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


@dataclass(frozen=True, slots=True)
class Charset:
    """In which charsets bytes come, tried in order; the origin server wants them in "utf-8" or "legacy".

    `prefer` says what bytes are that could be both.
    """

    path: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    origin: str = UTF_8
    prefer: str = UTF_8
    trust_encoding_fields: bool = False

    def transcoder(self, part: str, declared: str = "") -> Callable[[bytes], bytes]:
        """Respells a part of a "path" or "query" that is in `declared`, in UTF-8 or in a legacy charset."""
        legacy = self.path if part == "path" else self.query
        read = partial(self._undeclared, legacy)

        def respell(part: bytes) -> bytes:
            if not _RUN.search(part):
                return part
            readings = [_read(part, declared)] if declared else []
            for reading in (*readings, read(part)):
                respelled = write(part, reading)
                if write(respelled, read(respelled)) == respelled:
                    return respelled
            return part  # what would be read as something else afterwards is left alone

        def write(part: bytes, reading: _Reading | None) -> bytes:
            if reading is None:
                return part
            written = [text.encode() for text in reading.texts]
            if self.origin == "legacy":
                written = next(filter(None, (as_legacy(part, reading, name) for name in legacy)), written)
            if written == reading.octets and all(octet >= 0x80 for run in written for octet in run):
                return part
            return reading.respelled(part, written)

        def as_legacy(part: bytes, reading: _Reading, charset: str) -> list[bytes] | None:
            """The texts in a charset; None if they have no place in it, or would be read as others there."""
            written = _encoded(reading.texts, charset)
            again = read(reading.respelled(part, written)) if written is not None else None
            return written if again is not None and again.texts == reading.texts else None

        return respell

    def _undeclared(self, legacy: Sequence[str], part: bytes) -> _Reading | None:
        utf_8 = _read(part, UTF_8)
        if utf_8 is not None and not (self.prefer == "legacy" and legacy):
            return utf_8
        reading = next((reading for name in legacy if (reading := _read(part, name)) is not None), None)
        if utf_8 is None or reading is None:
            return utf_8 or reading
        # A text that the legacy charset has, too, is in UTF-8: so is what was made of legacy bytes.
        is_text = self.origin == UTF_8 and any(_encoded(utf_8.texts, name) is not None for name in legacy)
        return utf_8 if is_text else reading


def _read(part: bytes, charset: str) -> _Reading | None:
    """The part read in `charset`; None if its bytes beyond ASCII are none of it."""
    runs = _RUN if charset == UTF_8 else _table(charset).runs
    if runs is not _RUN and _RUN.search(runs.sub(b"/", part)):
        return None
    octets = [unescape(run) for run in runs.findall(part)]
    texts = list[str]()
    for run in octets:
        text = _utf_8(run) if charset == UTF_8 else decoded(run, charset)
        if text is None:
            return None
        texts.append(text)
    return _Reading(runs, octets, texts)


def _utf_8(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None


def _encoded(texts: Iterable[str], charset: str) -> list[bytes] | None:
    written = [encoded(text, charset) for text in texts]
    return None if None in written else [octets for octets in written if octets is not None]
