"""Patterns that purges name: they find in canonical URLs what they name in any spelling."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

from univocal.uri.profile import Profile
from univocal.uri.query import Respell, speller

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
