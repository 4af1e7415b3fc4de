"""Every reading of a path: the paths for which some server behind may take it.

A profile says how its server reads a path. Files, filters and frameworks behind that server read it more
loosely, each in its own way. So guards hold for all readings, and routes look at those that climb out of them
(`Site.lying_in`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from univocal.http.grammar import UNICODE_ESCAPE
from univocal.uri.percent_encoding import RINGS
from univocal.uri.segments import merge_slashes, remove_dot_segments
from univocal.uri.suspicious import DOTS, NON_NFC, in_octets

# A path of these segments has no other reading but for the case of its letters.
_PLAIN: Final = re.compile(rb"(?>(?:/(?!\.)[A-Za-z0-9._~!&'()*+,=:@-]+(?<!\.))*)/?")
_ESCAPE: Final = re.compile(rb"%(?:[uU]([0-9A-Fa-f]{4})|([0-9A-Fa-f]{2}))")
_LAST_ESCAPE: Final = re.compile(_ESCAPE.pattern + rb"\Z")
_CHAIN: Final = re.compile(rb"%(?:25)+(?=[0-9A-Fa-f]{2})")  # of signs, each the escape of the next
_ESCAPED_ESCAPE: Final = re.compile(rb"%(?:25|[uU])")
# Each with the letter or sign that a combining character behind it joins.
_BEYOND_ASCII: Final = re.compile(rb"[A-Za-z<=>]?(?:[\x80-\xFF]|%[89A-Fa-f][0-9A-Fa-f])+")
_COMPOSABLE: Final = re.compile(rb"(?:[A-Za-z=]|%3[CDE])?(?:%[89A-F][0-9A-F])+")
_PARAMETER: Final = re.compile(rb";[^/]*")
_ENDS: Final = re.compile(rb"[?#]"), re.compile(rb"\0")
_DOTS: Final = re.compile(rb"[/\\]\.\.(?![^/\\;?#\0])")
# The end of a segment without which Windows opens the same file: a stream of it, dots and spaces.
_STREAM: Final = re.compile(rb":[^/\\:]*:\$[^/\\]*")
_UNSEEN: Final = re.compile(rb"(?<=[^/\\. ])[. ]++(?=[/\\]|\Z)")
_DOT_SEGMENT: Final = re.compile(rb"/\.\.?(?:/|\Z)")
_OCTETS: Final = {b"%02X" % octet: b"%c" % octet for octet in range(256)}
_HEX: Final = frozenset(b"0123456789ABCDEFabcdef")
_RING: Final = RINGS["rfc3986"]
# Comparisons without case (Java, Python's re) take both for "i"; casefold does neither.
_DOTLESS: Final = {0x130: "i", 0x131: "i"}

_LEVELS: Final = 3  # of escapes that servers are known to decode one after the other
# Bytes that folding the letters of a shorter path may make of it; of a longer one, as many as the path has.
# Escapes take three bytes for one, so that what folds to more is made of letters like U+FDFA, which is 18.
_MOST_FOLDED: Final = 1024
_MOST_BYTES: Final = 256 * 1024  # of all readings of one path; no harmless one has so many
_MOST_LEFT: Final = 16  # folders that one reading leaves


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of one path.

    `folded` has them with folded letters, and the folders that a ".." leaves. `climbed` has those in which a
    ".." counts, their letters as they came. `decoded_once` has what expressions of nginx match besides:
    backslashes, and signs of percent before digits. With `above` a ".." of some reading has nothing to leave.
    With `everywhere` there are too many to list: the path may be any.
    """

    folded: frozenset[bytes]
    climbed: frozenset[bytes] = frozenset()
    above: bool = False
    everywhere: bool = False
    decoded_once: frozenset[bytes] = frozenset()


_ANY: Final = Readings(frozenset(), above=True, everywhere=True)


def readings(path: bytes) -> Readings:
    """The readings of a `path` that begins with "/", in time linear in its length."""
    if _PLAIN.fullmatch(path):
        return Readings(frozenset((path.lower(),)))
    return _readings(path)


@lru_cache(maxsize=256)
def _readings(path: bytes) -> Readings:
    folded, climbed = set[bytes](), set[bytes]()
    above, spent, seen = False, 0, set[tuple[bytes, bool]]()
    texts = _texts(path)
    if texts is None:
        return _ANY
    for text, is_as_it_came in texts:
        for divided, counts_empty in _divisions(text):
            if (divided, counts_empty) in seen and not is_as_it_came:
                continue
            seen.add((divided, counts_empty))
            walk = _Walk(divided, counts_empty)
            spent += len(divided)
            if spent > _MOST_BYTES or len(walk.left) > _MOST_LEFT:
                return _ANY
            folded.add(walk.path.lower())
            folded.update([each.lower() for each in walk.left])
            if is_as_it_came and (walk.left or walk.above):
                climbed.add(walk.path)
                above = above or walk.above
    once = _ESCAPE.sub(_octet, _RING.canonical(path))
    plain = {_Walk(once, False).path.lower(), remove_dot_segments(once).lower()}
    return Readings(frozenset(folded), frozenset(climbed), above, decoded_once=frozenset(plain - folded))


def spelled_alike(path: bytes) -> frozenset[bytes]:
    """The path or glob of a guard, spelled as readings are: decoded, folded, with its parameters."""
    texts = [_decoded(path), _letters_folded(_decoded(_letters_folded(path)))]
    slashed = {text.replace(b"\\", b"/").lower() for text in texts}
    return frozenset(_Walk(text, False).path if text.startswith(b"/") else text for text in slashed)


# A text is the path at one level of decoding. Its letters are as they came, or folded.


def _texts(path: bytes) -> list[tuple[bytes, bool]] | None:
    """The texts of a path, and whether their letters are as they came; None: folded, they are too long."""
    texts = [(text, True) for text in _levels(path)]
    before = _letters_folded(path)
    if before is path and not _ESCAPED_ESCAPE.search(path):
        return texts
    most = max(len(path), _MOST_FOLDED)
    if len(before) > most:
        return None
    for text in _levels(before):
        after = _letters_folded(text)
        if len(after) > most:
            return None
        if after is not text or before is not path:
            texts.append((_decoded(after) if b"%" in after else after, False))
    return texts


def _levels(path: bytes) -> set[bytes]:
    """`path` decoded until no escape is left; where a ".." counts, also at each level on the way.

    At each level servers cut parameters off, or keep them.
    """
    level = {_RING.canonical(path)}
    levels = set[bytes]()
    for _ in range(_LEVELS + 1):
        level |= {_PARAMETER.sub(b"", text) for text in level if b";" in text}
        levels |= level
        below = {_ESCAPE.sub(_octet, text) for text in level}
        if below == level:
            break
        level = below
    last = {_decoded(text) for text in level}
    last |= {_PARAMETER.sub(b"", text) for text in last if b";" in text}
    return levels | last if any(_DOTS.search(text) for text in last) else last


def _octet(escape: re.Match[bytes]) -> bytes:
    digits = escape[2]
    if digits is not None:
        return _OCTETS[digits.upper()]
    return chr(int(escape[1], 16)).encode("utf-8", "surrogatepass")


def _decoded(text: bytes) -> bytes:
    """`text` without any escape, and without any that decoding makes."""
    text = _CHAIN.sub(b"%", text)
    once = _ESCAPE.sub(_octet, text)
    if not _ESCAPE.search(once):
        return once
    out = bytearray()
    for octet in text:
        out.append(octet)
        while out[-1] in _HEX and (escape := _LAST_ESCAPE.search(out, max(0, len(out) - 6))):
            made = _octet(escape)
            del out[escape.start() :]
            out += made
    return bytes(out)


def _letters_folded(text: bytes) -> bytes:
    """`text` with each run beyond ASCII that is UTF-8 in its compatible, folded letters (NFKC, casefold)."""
    if not _BEYOND_ASCII.search(text):
        return text
    folded = _BEYOND_ASCII.sub(_run_folded, text)
    return text if folded == text else folded


def _run_folded(run: re.Match[bytes]) -> bytes:
    try:
        letters = _ESCAPE.sub(_octet, run[0]).decode()
    except UnicodeDecodeError:
        return run[0]
    folded = unicodedata.normalize("NFKC", letters).translate(_DOTLESS).casefold()
    return unicodedata.normalize("NFKC", folded).encode()


def _divisions(text: bytes) -> Iterator[tuple[bytes, bool]]:
    """`text` as servers divide it and find its files, and whether empty segments count for a ".."."""
    dots = _DOTS.search(text) is not None
    texts = [text]
    if b"\\" in text:
        slashed = text.replace(b"\\", b"/")
        texts = [slashed, *([_PARAMETER.sub(b"", slashed)] if b";" in slashed else []), *texts[: int(dots)]]
    for end in _ENDS:
        texts += [cut[0] for each in texts if len(cut := end.split(each, maxsplit=1)) > 1]
    texts += [seen for each in texts if (seen := _UNSEEN.sub(b"", _STREAM.sub(b"", each))) != each]
    for each in texts:
        yield each, False
        if dots and b"//" in each:
            yield each, True


class _Walk:
    """A walk along the segments of a text: where it ends, and the folders that it leaves by a ".."."""

    def __init__(self, text: bytes, counts_empty: bool) -> None:
        entered: list[bytes] = []
        self.left: list[bytes] = []
        self.above = falls = False
        segments = text.split(b"/")
        for segment in segments[1:]:
            if segment == b"..":
                if not entered:
                    self.above = True
                    continue
                if not falls and len(self.left) <= _MOST_LEFT:
                    self.left.append(_joined(entered) + b"/")
                falls = True
                entered.pop()
            elif segment != b"." and (segment or counts_empty):
                entered.append(segment)
                falls = False
        ends_in_folder = segments[-1] in {b"", b".", b".."}
        path = _joined(entered)
        self.path = path + b"/" if ends_in_folder and path != b"/" else path


def _joined(segments: Iterable[bytes]) -> bytes:
    return b"/" + b"/".join([segment for segment in segments if segment])


# Spellings that some server of a profile's family takes for another path.

_TOKENS: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "%u": (UNICODE_ESCAPE, b""),  # which `in_octets` replaces
    "//": (rb"//", b"/"),
    "\\": (rb"\\", b"/"),
    "%5C": (rb"%5[Cc]", b"/"),
    "%2F": (rb"%2[Ff]", b"/"),
    ";": (rb";[^/]*", b""),
}


def is_loose(path: bytes, tokens: tuple[str, ...]) -> bool:
    """Tell whether a canonical path is in a spelling that the profile calls loose."""
    pattern = _loose(tokens)
    if pattern is not None and pattern.search(path):
        return True
    if DOTS in tokens and _DOT_SEGMENT.search(path):
        return True
    return NON_NFC in tokens and b"%" in path and _composed(path) != path


def plain_reading(path: bytes, tokens: tuple[str, ...]) -> bytes:
    """The path for which the spellings that the profile calls loose may be taken."""
    if "%u" in tokens:
        path = _RING.canonical(in_octets(path))
    for token, (pattern, written) in _TOKENS.items():
        if token in tokens:
            path = re.sub(pattern, written, path)
    path = _composed(path) if NON_NFC in tokens else path
    return remove_dot_segments(merge_slashes(path) if "//" in tokens else path)


@lru_cache(maxsize=64)
def _loose(tokens: tuple[str, ...]) -> re.Pattern[bytes] | None:
    patterns = [pattern for token, (pattern, _) in _TOKENS.items() if token in tokens]
    return re.compile(b"|".join(patterns)) if patterns else None


def _composed(path: bytes) -> bytes:
    """`path` with its characters beyond ASCII in composed Unicode (NFC)."""
    return _COMPOSABLE.sub(_run_composed, path)


def _run_composed(run: re.Match[bytes]) -> bytes:
    try:
        letters = _ESCAPE.sub(_octet, run[0]).decode()
    except UnicodeDecodeError:
        return run[0]
    if unicodedata.is_normalized("NFC", letters):
        return run[0]
    return _RING.canonical(unicodedata.normalize("NFC", letters).encode())
