"""The beginnings and the patterns of canonical URLs that purges name, in any spelling.

A beginning's complete part, up to the path's last slash or to the "?", is read like any path. Of the
incomplete rest only the bytes are canonicalized. It has no trailing slash yet, and it may become an index
name. The parameters of its query and their order are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, TypeAlias

from univocal.http.grammar import DEFAULT_PORTS, split_absolute
from univocal.uri.charset import Charset
from univocal.uri.profile import Profile
from univocal.uri.query import Respell, begun_at_semicolon, speller, split
from univocal.uri.site import Site
from univocal.uri.sites import Sites, resolve_url
from univocal.uri.target import Rejected, canonical_target, rejected


@dataclass(frozen=True, slots=True)
class Beginning:
    """Canonical URLs begin with a whole scheme and authority, and some bytes of a target."""

    scheme: bytes
    authority: bytes
    target: bytes

    @property
    def url(self) -> bytes:
        """The beginning as a URL has it."""
        return b"%b://%b%b" % (self.scheme, self.authority, self.target)


def beginnings(url: bytes, sites: Sites) -> tuple[Beginning, ...] | Rejected:
    """The canonical forms of URLs that begin like `url` begin so: under its own scheme, then under the other.

    They are several where the paths that begin so have routes of several profiles. Raises ValueError where it
    ends within a path parameter that its profile strips.
    """
    absolute = split_absolute(url)
    if absolute is None:
        return rejected("bad-target")
    scheme, authority, rest = absolute
    root = resolve_url(b"%b://%b/" % (scheme, authority), sites)
    if isinstance(root, Rejected):
        return root
    targets = _spellings(rest if rest.startswith(b"/") else b"/" + rest, root.site)
    if isinstance(targets, Rejected):
        return targets
    (other,) = DEFAULT_PORTS.keys() - {root.scheme}
    twin = resolve_url(b"%b://%b/" % (other, root.authority), sites)
    owners = [root] if isinstance(twin, Rejected) else [root, twin]
    return tuple(Beginning(owner.scheme, owner.authority, target) for owner in owners for target in targets)


def _spellings(begun: bytes, site: Site) -> list[bytes] | Rejected:
    """The canonical spelling by the profile of each route of the paths that begin so; each once."""
    path, query = split(begun.partition(b"#")[0])
    first, *others = [site.route_of(site.view(path))] if query else site.of_beginning(path)
    spelled = _spelled(begun, first.profile)
    if isinstance(spelled, Rejected):
        return spelled
    found = [spelled]
    for profile in dict.fromkeys(route.profile for route in others):
        try:
            other = _spelled(begun, profile)
        except ValueError:  # it strips the end: no path of its routes begins so
            continue
        if not isinstance(other, Rejected) and other not in found:
            found.append(other)
    return found


def _spelled(begun: bytes, profile: Profile) -> bytes | Rejected:
    path, query = split(begun.partition(b"#")[0])
    if profile.query.semicolon == "begins":
        path, query = split(begun_at_semicolon(path + query))
    if b"#" in begun and "fragment" in profile.sequences:
        return rejected("fragment")
    if query:
        return canonical_target(path + query, _without_end(profile, path_ends=True))
    return _of_path(path, profile)


def _of_path(path: bytes, profile: Profile) -> bytes | Rejected:
    octets = _octets_alone(profile)
    refused = canonical_target(path, octets)
    if isinstance(refused, Rejected):
        return refused
    cut = path.rindex(b"/") + 1
    delimiter = re.compile(b"[%b]" % re.escape(profile.parameter_delimiters))
    if profile.parameters == "strip" and delimiter.search(path, cut):
        raise ValueError(
            "a prefix that ends within a path parameter, which its profile strips, begins no URL"
        )
    # Decoding may make a slash, and so complete a segment.
    more, slash, last = profile.ring.canonical(path[cut:]).rpartition(b"/")
    name = delimiter.split(last)[0] if profile.reads_parameters else last
    if name in {b".", b".."}:
        return rejected("dot-segment")
    complete = canonical_target(path[:cut] + more + slash, _without_end(profile, path_ends=False))
    return complete if isinstance(complete, Rejected) else canonical_target(complete + last, octets)


@lru_cache(maxsize=128)
def _without_end(profile: Profile, *, path_ends: bool) -> Profile:
    """The profile without what depends on how a target ends, or its path."""
    ends = {"end"} if path_ends else {"end", "suffix"}
    return replace(
        profile,
        trailing_slash=profile.trailing_slash if path_ends else "keep",
        index_names=profile.index_names if path_ends else (),
        rewrites=tuple(rule for rule in profile.rewrites if rule.at not in ends),
        query=profile.query.octets_alone,
        charset=replace(profile.charset, query=()),
    )


@lru_cache(maxsize=128)
def _octets_alone(profile: Profile) -> Profile:
    """The profile for a path whose last character may be cut in two."""
    whole = _without_end(profile, path_ends=False)
    sequences = tuple(reason for reason in profile.sequences if reason != "bad-utf-8")
    return replace(whole, charset=Charset(), sequences=sequences)


# Patterns

# A character beyond ASCII, bare or percent-encoded; bytes that are no UTF-8 are taken together.
_BEYOND: Final = (
    (
        rb"[\xC2-\xDF]T|[\xE0-\xEF]T{2}|[\xF0-\xF4]T{3}|[\x80-\xFF]+"
        rb"|%[CDcd]X%[89ABab]X|%[Ee]X(?:%[89ABab]X){2}|%[Ff]X(?:%[89ABab]X){3}|(?:%[89A-Fa-f]X)+"
    )
    .replace(b"X", b"[0-9A-Fa-f]")
    .replace(b"T", rb"[\x80-\xBF]")
)

# RE2's syntax, as far as it says which bytes stand for themselves.
_TOKEN: Final = re.compile(
    rb"(?s)\\Q(?P<literals>.*?)(?:\\E|\Z)|\\x(?P<octet>[0-9A-Fa-f]{2})"
    rb"|(?P<syntax>\(\?(?:P?<\w+>|[imsU-]*[:)])|\{\d+(?:,\d*)?\}|[()|*+?^$.]|\\[pP](?:\{[^}]*\}|.)|\\[0-9A-Za-z])"
    rb"|\[(?P<class>\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*)\]"
    rb"|\\(?P<quoted>[^0-9A-Za-z])|(?P<bare>%[0-7][0-9A-Fa-f]|" + _BEYOND + rb"|.)"
)
_MEMBERS: Final = re.compile(rb"(?s)\[:\^?[a-z]+:\]|\\[pP](?:\{[^}]*\}|.)|\\.|" + _BEYOND + rb"|.-.|.")


# A function from a character to all of its canonical spellings, each once.
_Spell: TypeAlias = Callable[[bytes], list[bytes]]


def spelled_pattern(pattern: bytes, profiles: Sequence[Profile]) -> bytes:
    """A pattern in RE2's syntax that finds in canonical URLs what `pattern` names in any spelling.

    A character that stands for itself also means its canonical spelling by each of the `profiles`, in a path
    and in a query. So does a character that a class names.
    """
    respellings = [each for profile in profiles for each in _respellings(profile)]

    def spell(character: bytes) -> list[bytes]:
        return list(dict.fromkeys(respell(character) for respell in respellings))

    def spelled(token: re.Match[bytes]) -> bytes:
        kind = token.lastgroup or "syntax"
        text = token[kind]
        match kind:
            case "literals":
                return b"".join(_atom(text[at : at + 1], spell) for at in range(len(text)))
            case "octet":
                return _atom(bytes([int(text, 16)]), spell)
            case "class" if not text.startswith(b"^"):
                return _class(text, spell)
            case "bare" if text == b"%":
                return b"%(?:25)?"  # "%(?:28|29)" means escapes, "100%" a character
            case "quoted" | "bare" if token[0] not in (b"[", b"\\"):  # which RE2 is to complain of
                return _atom(text, spell)
        return token[0]

    return _TOKEN.sub(spelled, pattern)


def _respellings(profile: Profile) -> Iterator[Respell]:
    for part, spell in (("path", profile.ring.canonical), ("query", speller(profile.query))):
        yield partial(_respelled, spell, profile.charset.transcoder(part))


def _respelled(spell: Respell, transcode: Respell, character: bytes) -> bytes:
    return transcode(spell(character))


def _atom(character: bytes, spell: _Spell) -> bytes:
    """A pattern for the spellings of a character; a repetition that follows applies to all of it."""
    spellings = spell(character)
    if len(spellings) == len(spellings[0]) == 1:
        return re.escape(spellings[0])
    return b"(?:%b)" % b"|".join(map(re.escape, spellings))


def _class(members: bytes, spell: _Spell) -> bytes:
    """A class of characters, or the spellings of more than one byte that they have."""
    named = [each.removeprefix(b"\\") for each in _characters(members)]
    longer = dict.fromkeys(text for each in named for text in spell(each) if len(text) > 1)
    return b"(?:[%b]|%b)" % (members, b"|".join(map(re.escape, longer))) if longer else b"[%b]" % members


def _characters(members: bytes) -> Iterator[bytes]:
    """The characters that a class names, or spans in ASCII."""
    for first in _MEMBERS.findall(members):
        if len(first) == 3 and first[1:2] == b"-":
            yield from (b"%c" % octet for octet in range(max(first[0], 0x21), min(first[2], 0x7E) + 1))
        elif not re.match(rb"\\[0-9A-Za-z]|\[:.", first):
            yield first
