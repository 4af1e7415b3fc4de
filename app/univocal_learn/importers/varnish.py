"""A percent-encoding table for Varnish: 256 numbers in a VCL or C file (0 encode, 1 decode, 2 keep)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from univocal.http.grammar import UNRESERVED
from univocal.uri.percent_encoding import DECODE, KEEP
from univocal_learn.importers.imported import Imported, Note, Source
from univocal_learn.importers.rings import corrected, path_settings

# Comments, strings and characters of C and VCL. What is not closed ends with the file, or with its line.
_NOT_CODE: Final = re.compile(
    r"/\*(?:.*?\*/|.*)|(?://|\#)[^\n]*"
    r"|'(?P<letter>[^'\\\n])'|'\\[^'\n]{1,4}'"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"?',
    re.DOTALL,
)
_BRACES: Final = re.compile(r"\{([^{}]*+)\}")
_NAMED: Final = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\[\]]*\]\s*)?=\s*\Z")
_ELEMENT: Final = re.compile(
    r"(?:\[\s*(?P<first>\w+)\s*(?:\.\.\.\s*(?P<last>\w+)\s*)?\]\s*=\s*)?(?P<value>\w+)"
)
_NUMBER: Final = re.compile(r"(0[xX][0-9a-fA-F]{1,4}|[0-9]{1,6})[uUlL]{0,3}")
_MOST: Final = 256  # elements by designators: a range of them is written in a few bytes
_BEFORE: Final = 200  # how far before its "{" an array's name is looked for

# Statements that keep requests apart beside URLs and hosts, or pass them by the cache; and refusals.
_DOT: Final = r"\s*\.\s*"
_APART: Final = re.compile(
    (
        r"hash_data\s*\((?!\s*(?:req\.url|req\.http\.host|server\.ip)\s*\))"
        r"|return\s*\(\s*(?:pass|pipe|hit_for_pass|hit_for_miss|vcl)\b|[.]\s*(?:uncacheable|hash_always_miss)\b"
        r"|VRT_hashdata|VRT_SetHdr|req\.hash\s*\+=|\binclude\b"
        # The field Vary, set or changed by a module; a name in quotation marks is blank here.
        r"|\b(?:beresp|obj)\.http\.(?:vary)?\s*\+?=(?!=)"
        r"|\b(?!std\b)[a-z_]\w*\.\w+\s*\([^;(){}]{0,200}?\b(?:beresp|obj)\.http\.(?:vary\b|\s*[,)])"
        # A URL or host of more than these two, or where more is asked for.
        r"|\breq\.(?:url|http\.host)\s*=(?!=)(?=[^;]{0,300}?(?<![\w.])"
        r"(?!(?:req\.url|req\.http\.host|std\.\w+|querystring\.\w+)\b)[A-Za-z_]\w*\.\w)"
        r"|\bif\s*\((?=[^{};]{0,300}?\b(?:req\.http\.(?!host\b)|client\.|cookie\.))"
        r"[^{}]{0,300}\{[^{}]{0,300}?\breq\.(?:url|http\.host)\s*="
        # Any lifetime but a number that is more than zero.
        r"|\bberesp\.ttl\s*(?:[-*/]=[^;\n]*"
        r"|=(?!\s*[0-9.]{0,9}[1-9][0-9.]{0,9}(?:ms|[smhdwy])\s*;)[^;\n]*)"
    ).replace(r"\.", _DOT),
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    (
        r"\bsynth\s*\(\s*(?![23][0-9]{2}\b)\w+|\berror\s+[45][0-9]{2}"
        r"|return\s*\(\s*(?:fail|abandon|error)\b"
        r"|\b(?:beresp|obj|resp)\.status\s*=(?!=|\s*[23][0-9]{2}\s*;)"
        # A module of its own, which may end the request.
        r"|(?<=[;{}\n])[ \t]*(?!(?:bodyaccess|cookie|directors|header|querystring|std|var|xkey)\.)"
        r"[A-Za-z_]\w*\.\w+\s*\("
    ).replace(r"\.", _DOT)
)
_PASSED: Final = (
    "univocal does not read this rule, so the profile bypasses the cache: see [cache] bypass and key"
)
_OPEN: Final = "univocal does not read this rule, and a profile refuses nothing by it: see [sites.access]"

_AS_RFC_3986: Final = Note(
    0, "dot segments, slashes, parameters and fragments are as in the profile rfc3986: a ring is of octets"
)


@dataclass(frozen=True, slots=True)
class _Array:
    before: str  # the code that its name is in, if it has one
    line: int
    forms: list[int]  # by byte
    lines: list[int]

    @property
    def name(self) -> str:
        named = _NAMED.search(self.before)
        return named[1] if named else f"line {self.line}"

    @property
    def is_ring(self) -> bool:
        return len(self.forms) == 256 and max(self.forms) <= KEEP

    @property
    def decodes_unreserved(self) -> bool:
        """Tell a ring from other tables of 256 flags, such as those of hexadecimal digits."""
        return all(self.forms[octet] == DECODE for octet in UNRESERVED)

    def described(self) -> str:
        size = f"{len(self.forms)} numbers, the largest {max(self.forms)}"
        return f"{self.name} (line {self.line}, {size})"


def read(source: Source) -> Imported:
    """The profile of the one ring in `source`, or of the one it picks. Raises ConfigurationError."""
    arrays = list(_arrays(source.text))
    array = _chosen(source, arrays)
    ring, notes = corrected(bytes(array.forms), lambda octet: array.lines[octet])
    others = [each for each in arrays if each.is_ring and each is not array]
    notes += [
        Note(each.line, f"{each.name}: another array of 256; --pick {each.name} imports it")
        for each in others
    ]
    apart, refusals = (list(_said(source.text, *each)) for each in ((_APART, _PASSED), (_REFUSED, _OPEN)))
    return Imported(
        cache={"bypass": ["*"]} if apart else {},
        summary=f"Imported from a Varnish decoder ring: {array.name}",
        extends="rfc3986",
        path=path_settings(ring),
        notes=[_AS_RFC_3986, *notes, *apart, *refusals],
    )


def _said(text: str, rule: re.Pattern[str], why: str) -> Iterator[Note]:
    """The notes on rules of a VCL that no array holds."""
    code = _NOT_CODE.sub(_blank, text)
    for found in rule.finditer(code):
        name = " ".join(found[0].split())
        yield Note(code.count("\n", 0, found.start()) + 1, f"{name}: {why}", is_open_question=True)


def _chosen(source: Source, arrays: list[_Array]) -> _Array:
    rings = [array for array in arrays if array.is_ring]
    if source.pick is not None:
        named = [array for array in arrays if source.pick in (array.name, f"line {array.line}")]
        if len(named) == 1 and named[0].is_ring:
            return named[0]
        arrays_there = ", ".join(each.described() for each in named) or f"no array {source.pick}"
        raise source.error(0, arrays_there, f"--pick with one of: {_names(rings)}")
    if not rings:
        arrays_there = ", ".join(array.described() for array in arrays[:8]) or "no array of numbers"
        if re.search(r"^\s*(?:vcl\s+4|sub\s+\w+\s*\{|backend\s+\w+\s*\{)", source.text, re.MULTILINE):
            arrays_there += "; VCL code is not read; docs/how-to/from-varnish.md has its pieces"
        raise source.nothing(0, arrays_there, "an array of 256 numbers: 0 encode, 1 decode, 2 keep")
    likely = [array for array in rings if array.decodes_unreserved] or rings
    if len(likely) > 1:
        raise source.error(0, f"{len(likely)} arrays", f"--pick with one of: {_names(likely)}")
    return likely[0]


def _names(rings: list[_Array]) -> str:
    return (
        ", ".join(f"{array.name} (line {array.line})" for array in rings[:40])
        or "none: there is no array of 256"
    )


def _arrays(text: str) -> Iterator[_Array]:
    code = _NOT_CODE.sub(_blank, text)
    line, counted = 1, 0
    for braces in _BRACES.finditer(code):
        line, counted = line + code.count("\n", counted, braces.start()), braces.start()
        parsed = _numbers(braces[1], line)
        if parsed is not None:
            yield _Array(code[max(0, braces.start() - _BEFORE) : braces.start()], line, *parsed)


def _blank(match: re.Match[str]) -> str:
    """Blanks and the same line ends in place of what is no code; a character is its number."""
    letter = match["letter"]
    return str(ord(letter)) if letter else re.sub(r"[^\n]", " ", match[0])


def _numbers(body: str, line: int) -> tuple[list[int], list[int]] | None:
    """The numbers of an initializer and the line of each; None if there is anything else in it."""
    placed: dict[int, tuple[int, int]] = {}
    following = 0
    elements = body.split(",")
    if elements and not elements[-1].strip():
        elements.pop()
    for element in elements:
        ended = line + element.count("\n")
        match = _ELEMENT.fullmatch(element.strip())
        value = _number(match["value"]) if match else None
        if match is None or value is None:
            return None
        first = _number(match["first"]) if match["first"] else following
        last = _number(match["last"]) if match["last"] else first
        if first is None or last is None or not first <= last < _MOST:
            return None
        placed.update(dict.fromkeys(range(first, last + 1), (value, ended)))
        following, line = last + 1, ended
    if not placed:
        return None
    # As in C, what a designated initializer leaves out is 0.
    cells = [placed.get(index, (0, line)) for index in range(max(placed) + 1)]
    return [value for value, _ in cells], [at for _, at in cells]


def _number(text: str) -> int | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    digits = match[1].lower()
    octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
    try:
        return int(digits, 8) if octal else int(digits, 16 if digits.startswith("0x") else 10)
    except ValueError:
        return None
