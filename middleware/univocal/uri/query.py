"""The query's canonical form: its bytes, and which parameters it has in which order.

Every function takes a query that is b"" or begins with "?" and gives the same object back if nothing changes.
Names and values are compared as a form's reader has them: decoded once, "+" being a space.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from univocal.http.grammar import RESERVED, UNRESERVED, compile_globs, unescape
from univocal.uri.charset import Charset
from univocal.uri.percent_encoding import DecoderRing

# The bytes of a query besides escapes: RFC 3986 §3.4, and the "[" and "]" that browsers send bare.
BARE: Final = bytes(octet for octet in UNRESERVED + RESERVED if octet != 0x23)

_DISALLOWED: Final = re.compile(rb"%%(?![0-9A-Fa-f]{2})|[^%%%b]" % re.escape(BARE))
_DISALLOWED_BY_IIS: Final = re.compile(
    rb"%%(?!(?:[uU][0-9A-Fa-f]{2})?[0-9A-Fa-f]{2})|[^%%%b]" % re.escape(BARE)
)
# RFC 3986 §6.2.2.2: URIs that differ in whether an unreserved byte is encoded are equivalent.
UNRESERVED_ESCAPE: Final = rb"%(?:2[DEde]|3[0-9]|[46][1-9A-Fa-f]|5[0-9AFaf]|7[0-9AEae])"
_UNRESERVED: Final = re.compile(UNRESERVED_ESCAPE)

Respell: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Query:
    """Queries are spelled by this `ring`; everything else that the settings drop or change is lossy.

    `drop` and `allow` are names or globs, `defaults` names and values; `allow` None lets all through. A
    `semicolon` is "data", "separates" parameters as "&" does, or "begins" the query in place of "?". With
    `unicode_escapes`, "%uXXXX" stays as it came. Without a ring, escapes of unreserved bytes stay as they
    came unless it `decodes_unreserved`.
    """

    ring: DecoderRing | None = None
    allow: tuple[bytes, ...] | None = None
    drop: tuple[bytes, ...] = ()
    defaults: tuple[tuple[bytes, bytes], ...] = ()
    drop_empty: bool = False
    sort: bool = False
    drop_empty_mark: bool = False
    semicolon: str = "data"
    unicode_escapes: bool = False
    decodes_unreserved: bool = False

    @property
    def octets_alone(self) -> Query:
        """These settings without those that are about parameters."""
        return Query(
            ring=self.ring,
            semicolon=self.semicolon,
            unicode_escapes=self.unicode_escapes,
            decodes_unreserved=self.decodes_unreserved,
        )


def query_steps(settings: Query, charset: Charset, declared: str) -> Iterator[tuple[str, Respell, bool]]:
    """The steps that change a query, in order: the name of each, the step, and whether it is lossy."""
    separator = re.compile(rb"[&;]" if settings.semicolon == "separates" else rb"&")
    yield "query", speller(settings) if settings.ring is None else _through(settings.ring, separator), False
    if charset.query or declared:
        transcode = charset.transcoder("query", declared)
        word = re.compile(rb"[^?=%b]+" % separator.pattern.strip(b"[]"))
        yield "query-charset", lambda query: word.sub(lambda part: transcode(part[0]), query), True
    if settings.allow is not None:
        allowed = _matcher(settings.allow)
        yield "query-allow", _keeping(lambda part: allowed(_name(part)), separator), True
    if settings.drop:
        dropped = _matcher(settings.drop)
        yield "query-drop", _keeping(lambda part: not dropped(_name(part)), separator), True
    if settings.defaults:
        yield "query-defaults", _without_defaults(dict(settings.defaults), separator), True
    if settings.drop_empty:
        yield (
            "query-drop-empty",
            _keeping(lambda part: part != b"" and part.partition(b"=")[1:] != (b"=", b""), separator),
            True,
        )
    if settings.sort:
        yield "query-sort", partial(_sorted, separator=separator), True
    if settings.drop_empty_mark:
        yield "query-drop-empty-mark", lambda query: b"" if query == b"?" else query, True


def speller(settings: Query) -> Respell:
    """The spelling of bytes that delimit nothing."""
    if settings.ring is not None:
        return settings.ring.canonical
    disallowed = _DISALLOWED_BY_IIS if settings.unicode_escapes else _DISALLOWED
    # As it came, but for bytes that may not stand in a query, and perhaps for those that mean the same bare.
    if not settings.decodes_unreserved:
        return partial(disallowed.sub, _escaped)
    return lambda query: _UNRESERVED.sub(_unescaped, disallowed.sub(_escaped, query))


def _escaped(octet: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(octet[0])


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return unescape(escape[0])


def _through(ring: DecoderRing, separator: re.Pattern[bytes]) -> Respell:
    """Names and values each through `ring`; the first "=" of a parameter and every separator delimit."""
    parameter = re.compile(rb"[^%b]+" % separator.pattern.strip(b"[]"))

    def spelled(part: re.Match[bytes]) -> bytes:
        name, equals, value = part[0].partition(b"=")
        return ring.canonical(name) + equals + ring.canonical(value)

    def respell(query: bytes) -> bytes:
        parameters = parameter.sub(spelled, query[1:])
        return query if query[1:] == parameters else b"?" + parameters

    return respell


def _keeping(keeps: Callable[[bytes], bool], separator: re.Pattern[bytes]) -> Respell:
    """The query with the parameters that `keeps` is true of; without any, "?" goes, too."""

    def respell(query: bytes) -> bytes:
        if len(query) < 2:
            return query
        parts = separator.split(query[1:])
        kept = [part for part in parts if keeps(part)]
        if len(kept) == len(parts):
            return query
        return b"?" + b"&".join(kept) if kept else b""

    return respell


def _without_defaults(defaults: dict[bytes, bytes], separator: re.Pattern[bytes]) -> Respell:
    """The query without what equals its default; a repeated name stays: the origin knows which one counts."""

    def respell(query: bytes) -> bytes:
        times = Counter(_name(part) for part in separator.split(query[1:]))

        def is_default(part: bytes) -> bool:
            name = _name(part)
            return times[name] == 1 and defaults.get(name) == _read(part.partition(b"=")[2])

        return _keeping(lambda part: not is_default(part), separator)(query)

    return respell


def _sorted(query: bytes, separator: re.Pattern[bytes]) -> bytes:
    parts = separator.split(query[1:])
    if len(parts) == 1:
        return query
    parts.sort(key=_name)
    ordered = b"?" + b"&".join(parts)
    return query if ordered == query else ordered


def _name(part: bytes) -> bytes:
    return _read(part.partition(b"=")[0])


def _read(text: bytes) -> bytes:
    return unescape(text.replace(b"+", b" "))


def _matcher(globs: Sequence[bytes]) -> Callable[[bytes], bool]:
    """The function's result says whether a name matches one of `globs`."""
    names = frozenset(glob for glob in globs if b"*" not in glob and b"?" not in glob)
    pattern = compile_globs(glob for glob in globs if glob not in names)
    if pattern is None:
        return names.__contains__
    return lambda name: name in names or pattern.fullmatch(name) is not None


def split(target: bytes) -> tuple[bytes, bytes]:
    """A target's path and its query, which is b"" or begins with "?"."""
    mark = target.find(b"?")
    return (target, b"") if mark < 0 else (target[:mark], target[mark:])


_FIRST_MARK: Final = re.compile(rb"[?;]")


def begun_at_semicolon(target: bytes) -> bytes:
    """A target with a "?" in place of the ";" that begins its query."""
    mark = _FIRST_MARK.search(target)
    if mark is None or mark[0] == b"?":
        return target
    return b"%b?%b" % (target[: mark.start()], target[mark.end() :])
