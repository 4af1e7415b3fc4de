"""Regular expressions of nginx as paths of routes, or as prefixes of all that they can match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from univocal.store.purge_selectors import compiled

_SPECIAL: Final = frozenset("^$.[]()*+?{}|")
_MANY: Final = frozenset("*?{")
# Parts that RE2 lacks, or means otherwise: looking around, going back, possessive and atomic parts.
_FOREIGN: Final = re.compile(r"\(\?(?:[=!>#|&R]|<[=!])|\\[1-9gkGKRXZhHvV]|[+*?}]\+|\(\?'|\(\*")
# Looking for what does not follow, where nothing else does: `/\.(?!well-known)` is in many files.
_NOT_NEXT: Final = re.compile(r"\(\?!((?:[\w-]|\\?/)+)\)(?:\.\*\$?)?\Z", re.ASCII)
# A path, and words of which one follows.
_WORDS: Final = re.compile(r"\^(/[\w/-]*)\((?:\?:)?([\w/|-]+)\)(?![*+?{])")
_ONE: Final = re.compile(r"\[([!-Z_-~])\]")  # a set of one letter
_NAMED: Final = re.compile(r"\(\?<(\w+)>")


def expression(text: str, *, ignores_case: bool) -> str:
    """The path of a route for what an expression matches, "~…"; empty where RE2 has no equal."""
    text = _NOT_NEXT.sub(lambda match: _otherwise(match[1].replace("\\", "")), text)
    if _FOREIGN.search(text) or not text.isascii() or not text.isprintable():
        return ""
    named = _NAMED.sub(r"(?P<\1>", text)
    return f"~{'(?i)' if ignores_case else ''}{named}"


def search_of(text: str) -> Callable[[bytes], bool] | None:
    """The search for an expression, in time that its text cannot stretch; None where RE2 has no equal."""
    try:
        return compiled(expression(text, ignores_case=False)[1:]).search
    except ValueError:
        return None


def _otherwise(word: str) -> str:
    """An expression for all that does not begin with a word."""
    other = ""
    for letter in reversed(word):
        other = f"(?:$|[^{letter}]{f'|{letter}{other}' if other else ''})"
    return other


def covers(text: str, *, ignores_case: bool) -> list[str]:
    """The beginnings of all paths that an expression can match; [""] where these are any."""
    found = list[str]()
    for part in _alternatives(text):
        if words := _WORDS.match(part):
            found += [words[1] + each for each in words[2].split("|")]
        else:  # without "^/" before it, an expression may match anything
            found.append(_letters(part, 1) if part.startswith("^/") else "")
    if any(not each or (ignores_case and each.lower() != each.upper()) for each in found):
        return [""]
    return found


def within_path(base: str, text: str, *, ignores_case: bool) -> str:
    """An expression for what another matches below a path, whose case counts; empty where none is known."""
    if base == "/" or all(each.startswith(base) for each in covers(text, ignores_case=ignores_case)):
        return text
    begin = _letters(text, 0) if len(list(_alternatives(text))) == 1 else ""
    places = [f"{re.escape(base)}.*"]
    for at in range(len(base)):
        rest = base[at:]
        if not _alike(rest, begin, ignores_case=ignores_case):
            continue
        if not begin.startswith(rest) or (ignores_case and rest.lower() != rest.upper()):
            return ""
        places.append(re.escape(base[:at]))  # a match that begins in the path goes on behind it
    return f"^(?:{'|'.join(places)}){f'(?i:{text})' if ignores_case else text}"


def _alike(one: str, other: str, *, ignores_case: bool) -> bool:
    """Tell whether one of two texts begins like the other."""
    if ignores_case:
        one, other = one.lower(), other.lower()
    return one.startswith(other) or other.startswith(one)


def _alternatives(text: str) -> Iterator[str]:
    """The parts between bars that stand in no group."""
    depth, begun, at, is_set = 0, 0, 0, False
    while at < len(text):
        letter = text[at]
        if letter == "\\":
            at += 1
        elif is_set:
            is_set = letter != "]"
        elif letter == "[":
            is_set = True
            at += text[at + 1 : at + 2] in {"]", "^"}
        else:
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if letter == "|" and not depth:
                yield text[begun:at]
                begun = at + 1
        at += 1
    yield text[begun:]


def _letters(text: str, at: int) -> str:
    """The letters of an expression from a place on, as far as each match has them."""
    letters = list[str]()
    while at < len(text):
        letter = text[at]
        if letter == "\\" and text[at + 1 : at + 2] and not text[at + 1].isalnum():
            at += 1
            letter = text[at]
        elif one := _ONE.match(text, at):
            letter, at = one[1], at + 2
        elif letter in _SPECIAL or letter == "\\":
            break
        letters.append(letter)
        at += 1
    if text[at : at + 1] in _MANY and text[at : at + 1]:
        letters = letters[:-1]
    return "".join(letters)
