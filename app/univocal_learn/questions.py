"""The questions to an origin server: pairs of targets, and decoys that must not be answered like them.

A pair is a target out of the sample and another spelling of it. A decoy differs in the same place and means
something else. Where the origin server answers it with the same page, it ignores that place, and the pair
decides nothing. Decoys are made out of the target itself: a run that is continued asks the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from univocal.uri.charset import decoded, encoded
from univocal.uri.query import split
from univocal_learn.sample import section_of

# The bytes of which only the application knows whether their two spellings mean the same.
CUSTOMIZABLE: Final = b":/[]@!$&'()*+,;="

# Parameters by which links are followed through mails, advertisements and social networks.
TRACKING: Final = re.compile(
    rb"utm_[a-z_]+|gclid|gclsrc|dclid|gbraid|wbraid|fbclid|msclkid|yclid|twclid|ttclid|igshid|li_fat_id"
    rb"|mc_cid|mc_eid|_ga|_gl|_hsenc|_hsmi|vero_id|oly_anon_id|oly_enc_id|wickedid|mkt_tok|epik|s_cid"
)
_TRACKED: Final = (b"utm_source", b"utm_campaign", b"gclid", b"fbclid")
_INVENTED: Final = b"zqunused"

INDEX_NAME: Final = re.compile(rb"(?:index|default|home|welcome)\.[A-Za-z0-9]{2,5}")
_INDEX_NAMES: Final = (b"index.html", b"index.php", b"index.htm")

_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_TELLING_CASE: Final = re.compile(rb"%(?:[A-Fa-f][0-9A-Fa-f]|[0-9][A-Fa-f])")
_HEX_LETTERED: Final = re.compile(rb"[j-ozJ-OZ_~-]")
_ALNUM: Final = re.compile(rb"(?<![%])(?<!%.)[A-Za-z0-9]")
_FOREIGN_RUN: Final = re.compile(rb"(?:%[89A-Fa-f][0-9A-Fa-f])+")

# Legacy charsets that are tried, the most common ones first.
_TRIED: Final = ("windows-1252", "windows-1251", "koi8-r", "iso-8859-2", "windows-1253", "euc-jp", "euc-kr")

# The doubt that is left after a pair that says "same": little where a decoy told that the place matters.
_WITH_DECOY: Final = 0.04
_WITHOUT: Final = 0.15
_OF_ONE_PAGE: Final = 0.3
_WEAK: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """Two targets; `part` tells which part of the question they are about, `doubt` how weak a "same" is."""

    a: bytes
    b: bytes
    decoys: tuple[bytes, ...] = ()
    part: str = ""
    doubt: float = _WITH_DECOY


@dataclass(frozen=True, slots=True)
class ProfileQuestion:
    """One setting of a profile, and the pairs that a target of the sample offers for it.

    Of the `needed` part there must be a pair before the answer can be "same". Parts that stand `aside` only
    tell how far a rule may go. With `by_part` each part is answered by itself, and one "same" will do. One
    about a `parameter` of the sample is asked of many pages, since few may heed it. Each `section` is asked:
    what has its first segment in common, if nothing else is said.
    """

    name: str
    pairs: Callable[[bytes], Sequence[Pair]]
    needed: str = ""
    aside: frozenset[str] = frozenset()
    by_part: bool = False
    parameter: bytes = b""
    section: Callable[[bytes], object] = section_of


def invented(seed: bytes) -> bytes:
    """A word that no origin has heard of, the same one for the same seed."""
    return b"zq" + bytes(0x61 + octet % 26 for octet in blake2b(seed, digest_size=8).digest())


def siblings(target: bytes) -> tuple[bytes, bytes]:
    """Two targets beside this one that nothing is at."""
    path, query = split(target)
    stem = path.rstrip(b"/")
    end = path[len(stem) :] if stem else b""
    directory = stem[: stem.rfind(b"/") + 1] or b"/"
    word = invented(directory)
    return directory + word + end + query, directory + word[::-1] + b"k" + end + query


def parameters(query: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Name, "=" and value of each parameter of a query that begins with "?"."""
    return [part.partition(b"=") for part in query[1:].split(b"&")] if len(query) > 1 else []


def names_of(targets: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """The names of parameters in the targets, and the values that each has, in order."""
    by_name: dict[bytes, dict[bytes, None]] = {}
    for target in targets:
        for name, _, value in parameters(split(target)[1]):
            if name:
                by_name.setdefault(name, {})[value] = None
    return {name: list(values) for name, values in by_name.items()}


def questions(sample: Sequence[bytes]) -> Iterator[ProfileQuestion]:
    """Every question, in the order in which they are asked."""
    yield ProfileQuestion("unreserved", _unreserved)
    yield ProfileQuestion("escape-case", _escape_case)
    for octet in CUSTOMIZABLE:
        if octet != 0x2F:
            yield ProfileQuestion(f"ring:{octet:02X}", lambda target, octet=octet: _ring(target, octet))  # type: ignore[misc]
    yield ProfileQuestion("ring:2F", _encoded_slash)
    yield ProfileQuestion("merge-slashes", _merged, aside=frozenset({"after-empty", "encoded-slash"}))
    aside = frozenset({"encoded", "encoded-slash", "above-root", "trailing", "network-path"})
    yield ProfileQuestion("dot-segments", _dots, aside=aside)
    yield ProfileQuestion("parameters", _path_parameters)
    yield ProfileQuestion("trailing-slash", _trailing, aside=frozenset({"file", "doubled"}))
    listed = dict.fromkeys((*_INDEX_NAMES, *(name for target in sample if (name := _index_name(target)))))
    yield ProfileQuestion("index-names", lambda target: _indexes(target, list(listed)[:6]), by_part=True)
    yield ProfileQuestion("query-order", _order, section=_names_together)
    yield ProfileQuestion("empty-query", _empty_query)
    known = names_of(sample)
    for name in dict.fromkeys((*_TRACKED, *list(known)[:12], _INVENTED)):
        others = known.get(name, [])
        foreign = TRACKING.fullmatch(name) or name == _INVENTED
        yield ProfileQuestion(
            f"unused:{name.decode('utf-8', 'backslashreplace')}",
            lambda target, name=name, others=others: _unused(target, name, others),  # type: ignore[misc]
            "" if foreign else "another value",
            parameter=name if name in known else b"",
        )
    yield ProfileQuestion("charset", _charset, by_part=True)
    yield ProfileQuestion("plus-space", _plus)
    yield ProfileQuestion("case", _case)


def risks() -> Iterator[ProfileQuestion]:
    """The questions of which "same" is the alarm: an origin had better not do so."""
    yield ProfileQuestion("dot-segment-parameter", _dot_parameter)
    yield ProfileQuestion("double-decoding", _twice)
    yield ProfileQuestion("any-suffix", _suffix)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────


def _replaced(path: bytes, place: int, length: int, put: bytes) -> bytes:
    return path[:place] + put + path[place + length :]


def _changed(
    target: bytes, at: int, put: bytes, decoy: bytes = b"zq", *, length: int = 1, part: str = ""
) -> Pair:
    """A target, and it with `put` in place of `length` bytes of its path; the decoy has another word."""
    path, query = split(target)
    other, wrong = (_replaced(path, at, length, each) + query for each in (put, decoy))
    return Pair(target, other, (wrong,), part)


def _letters(path: bytes) -> list[int]:
    """Where letters and digits stand that are no part of an escape, the last ones first."""
    return [letter.start() for letter in _ALNUM.finditer(path)][::-1]


def _unreserved(target: bytes) -> list[Pair]:
    path, _ = split(target)
    places = _letters(path)
    chosen = [*places[:1], *places[-1:]] if len(places) > 1 else places
    chosen += [match.start() for match in re.finditer(rb"(?<=[A-Za-z0-9])[-._~](?=[A-Za-z0-9])", path)][:1]
    return [_changed(target, at, b"%%%02X" % path[at]) for at in dict.fromkeys(chosen)]


def _escape_case(target: bytes) -> list[Pair]:
    path, query = split(target)
    if match := _TELLING_CASE.search(path):
        swapped = _ESCAPE.sub(lambda e: e[0].lower() if e[0] != e[0].lower() else e[0].upper(), path)
        return [Pair(target, swapped + query, (_replaced(path, match.start(), 3, b"zq") + query,))]
    if place := next((at for at in _letters(path) if _HEX_LETTERED.match(path, at)), 0):
        return [_changed(target, place, form % path[place], part="both") for form in (b"%%%02X", b"%%%02x")]
    return []


def _ring(target: bytes, octet: int) -> list[Pair]:
    path, query = split(target)
    bare, escape = b"%c" % octet, re.compile(b"%%(?i:%02X)" % octet)
    other = path.replace(bare, b"%%%02X" % octet) if bare in path else escape.sub(lambda _: bare, path)
    if other == path:
        return []
    decoy = escape.sub(b"zq", path.replace(bare, b"zq"))
    return [Pair(target, other + query, (decoy + query,))]


def _encoded_slash(target: bytes) -> list[Pair]:
    path, _ = split(target)
    escaped = re.search(b"%2[Ff]", path)
    inner = [at for at in range(1, len(path) - 1) if path[at] == 0x2F]
    return [
        *([_changed(target, escaped.start(), b"/", length=3)] if escaped else []),
        *(_changed(target, at, b"%2F") for at in dict.fromkeys([*inner[-1:], *inner[:1]])),
    ]


# ── segments ──────────────────────────────────────────────────────────────────────────────────────────────


def _last_slash(path: bytes) -> int:
    """Where the slash before the last segment stands, be that empty or not."""
    return path.rfind(b"/")


def _merged(target: bytes) -> list[Pair]:
    path, query = split(target)
    word = invented(path)
    places = [0, _last_slash(path)]
    inner = [at for at in range(1, len(path) - 1) if path[at] == 0x2F]
    pairs = [_changed(target, at, b"/", b"/" + word, length=0) for at in dict.fromkeys([*places, *inner[:1]])]
    if match := re.search(b"//+", path):
        whole = re.sub(b"//+", b"/", path)
        pairs.append(Pair(target, whole + query, (_replaced(path, match.start(), 1, b"/" + word) + query,)))
    at = _last_slash(path)
    past = b"/" + word + b"//.."
    pairs.append(_changed(target, at, past, b"/" + word, length=0, part="after-empty"))
    past = (_replaced(path, at, 0, b"%2F") if at else b"/%2F" + path[1:]) + query
    pairs.append(Pair(target, past, (_replaced(path, at, 0, b"/" + word) + query,), "encoded-slash"))
    return pairs


def _dots(target: bytes) -> list[Pair]:
    path, query = split(target)
    at, word = _last_slash(path), invented(path)
    decoy = b"/" + word
    puts = [
        (b"/.", "plain"),
        (decoy + b"/..", "plain"),
        (decoy + b"/%2e%2e", "encoded"),
        (b"/%2E", "encoded"),
    ]
    puts.append((decoy + b"%2F..", "encoded-slash"))
    return [
        *(_changed(target, at, put, decoy, length=0, part=part) for put, part in puts),
        Pair(target, b"/.." + target, (_replaced(path, at, 0, decoy) + query,), "above-root"),
        # A name behind two slashes may be read as a host (RFC 3986 §4.2), and the page comes of the rest.
        Pair(target, b"//" + word + target, (b"/" + word + target,), "network-path"),
    ]


def _path_parameters(target: bytes) -> list[Pair]:
    path, query = split(target)
    pairs = []
    if match := re.search(b";[^/]*", path):
        bare = re.sub(b";[^/]*", b"", path)
        decoy = _replaced(path, match.start(), 1, b"zq")
        pairs.append(Pair(target, bare + query, (decoy + query,)))
    end = len(path)
    first = path.find(b"/", 1)
    for at in dict.fromkeys([end, first] if first > 0 else [end]):
        puts = (b";zq=1", b";jsessionid=0123456789ABCDEF") if at == end else (b";zq=1",)
        pairs += [_changed(target, at, put, b"zq" + put[1:], length=0) for put in puts]
    return pairs


def _trailing(target: bytes) -> list[Pair]:
    path, query = split(target)
    bare = path.rstrip(b"/")
    if not bare:
        return []
    other = bare if path.endswith(b"/") else path + b"/"
    pairs = [Pair(target, other + query, part="file" if b"." in path[_last_slash(path) :] else "")]
    if not path.endswith(b"//"):
        pairs.append(Pair(target, bare + b"//" + query, part="doubled"))
    return pairs


def _index_name(target: bytes) -> bytes:
    path, _ = split(target)
    name = path[_last_slash(path) + 1 :]
    return name if INDEX_NAME.fullmatch(name) else b""


def _indexes(target: bytes, names: Sequence[bytes]) -> list[Pair]:
    path, query = split(target)
    directory = path[: _last_slash(path) + 1]
    if name := _index_name(target):
        return [Pair(target, directory + query, (directory + b"zq" + name + query,), name.decode())]
    if directory != path:
        return []
    return [
        Pair(target, directory + name + query, (directory + b"zq" + name + query,), name.decode("latin-1"))
        for name in names
    ]


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────


def _order(target: bytes) -> list[Pair]:
    path, query = split(target)
    pieces = query[1:].split(b"&")
    if len({part.partition(b"=")[0] for part in pieces if part}) < max(2, len(pieces)):
        return []
    decoy = path + b"?" + b"&".join(part.partition(b"=")[0] + b"=zq" for part in pieces)
    return [Pair(target, path + b"?" + b"&".join(pieces[::-1]), (decoy,))]


def _names_together(target: bytes) -> object:
    """An order may matter to some parameters and not to others."""
    return section_of(target), frozenset(names_of([target]))


def _empty_query(target: bytes) -> list[Pair]:
    if b"?" in target:
        return [Pair(target, target[:-1], doubt=_WITHOUT)] if target.endswith(b"?") else []
    return [Pair(target, target + b"?", doubt=_WITHOUT)]


def _unused(target: bytes, name: bytes, others: Sequence[bytes]) -> list[Pair]:
    path, query = split(target)
    names = parameters(query)
    mine = [value for each, _, value in names if each == name]
    if not mine:
        if others and not TRACKING.fullmatch(name):
            return []
        more = query + (b"&" if len(query) > 1 else b"") if query else b"?"
        return [Pair(target, path + more + name + b"=zq", doubt=_WITHOUT)]
    rest = [part for part, each in zip(query[1:].split(b"&"), names, strict=True) if each[0] != name]
    bare = path + (b"?" + b"&".join(rest) if rest else b"")

    def valued(value: bytes) -> bytes:
        changed = [name + b"=" + value if part[0] == name else b"".join(part) for part in names]
        return path + b"?" + b"&".join(changed)

    pairs = [Pair(target, bare, doubt=_WEAK), Pair(target, valued(b"zq"), doubt=_WEAK)]
    differing = [value for value in others if value not in mine][:3]
    return [*pairs, *(Pair(target, valued(value), (), "another value", _OF_ONE_PAGE) for value in differing)]


def _plus(target: bytes) -> list[Pair]:
    path, query = split(target)
    for one, other in ((b"%20", b"+"), (b"+", b"%20")):
        if one in query:
            return [Pair(target, path + query.replace(one, other), (path + query.replace(one, b"zq"),))]
    return []


# ── charsets and letters ──────────────────────────────────────────────────────────────────────────────────


def _charset(target: bytes) -> list[Pair]:
    match = _FOREIGN_RUN.search(split(target)[0])
    if match is None:
        return []
    octets = unquote_to_bytes(match[0])
    pairs = []
    for name in _TRIED:
        try:
            other = encoded(octets.decode(), name)
        except UnicodeDecodeError:
            text = decoded(octets, name)
            other = None if text is None else text.encode()
        if other is None:
            continue
        spelled = quote_from_bytes(other).encode()
        if other.isascii() or any(octet < 0x80 for octet in other) or other == octets:
            continue
        pairs.append(_changed(target, match.start(), spelled, length=len(match[0]), part=name))
    return pairs[:4]


def _case(target: bytes) -> list[Pair]:
    path, _ = split(target)
    places = [at for at in _letters(path) if path[at : at + 1].isalpha()][:1]
    return [_changed(target, at, path[at : at + 1].swapcase()) for at in places]


# ── risks ─────────────────────────────────────────────────────────────────────────────────────────────────


def _dot_parameter(target: bytes) -> list[Pair]:
    path, _ = split(target)
    begin = b"/" + invented(path)
    return [_changed(target, _last_slash(path), begin + b"/..;", begin + b"/zq;", length=0)]


def _twice(target: bytes) -> list[Pair]:
    path, _ = split(target)
    return [_changed(target, at, b"%%25%02X" % path[at]) for at in _letters(path)[:1]]


def _suffix(target: bytes) -> list[Pair]:
    path, query = split(target)
    if path.endswith(b"/") or b"." in path[_last_slash(path) :]:
        return []
    return [Pair(target, path + b"/" + invented(path) + b".css" + query)]
