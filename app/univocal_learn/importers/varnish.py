"""A percent-encoding table for Varnish: 256 numbers in a VCL or C file (0 encode, 1 decode, 2 keep)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from univocal.http.grammar import UNRESERVED
from univocal.uri.percent_encoding import DECODE, KEEP
from univocal_learn.importers.imported import Imported, Note, Notes, Source
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

# VCL: strings without escapes, and C between "C{" and "}C".
_VCL: Final = re.compile(
    r"^[ \t]*(?:vcl\s+\d|sub\s+\w+\s*\{|(?:backend|acl|probe|import)\s+\w|include\b|C\{)", re.MULTILINE
)
_NOT_VCL: Final = re.compile(
    r"(?<![\w-])C\{(?P<c>.*?)(?:\}C|\Z)|/\*.*?(?:\*/|\Z)|(?://|\#)[^\n]*"
    r'|"""(?:.*?)(?:"""|\Z)|\{"(?:.*?)(?:"\}|\Z)|"[^"\n]*"?',
    re.DOTALL,
)
_STATEMENT: Final = re.compile(r"[^;{}]*[;{}]")
# Blocks that no request runs.
_DECLARED: Final = re.compile(r"(?:acl|backend|probe|director|sub vcl_(?:init|fini)) ?\b")
# More is asked for than the URL, the host, the method and the server's answer.
_ASKED: Final = re.compile(
    r"(?:el(?:se?)?)? ?if ?\(.*?(?<![\w.])"
    r"(?!(?:req|bereq)\.(?:url|http\.host|method|request|restarts)(?![\w-])"
    r"|(?:resp|beresp|obj|std|querystring)\.)[a-z]\w*\.\w.*",
    re.IGNORECASE,
)
# Some clients get another page by these, where only some are asked to run them.
_OTHERWISE: Final = (
    r"set req\.(?:url|http\.host) ?=.*|set resp\.status ?=.*"
    r"|call \w+|hash_data\(.*|return\((?:lookup\)|synth\([23].*)"
)
# Where some end so, the others alone run what is behind it.
_ENDING: Final = r"return(?:\((?:hash|lookup|deliver|fetch|miss)\))?"
# Calls of C that do more with a request than read it and change its URL.
_CALLED: Final = re.compile(r"\bVRT_(?!r_|l_req_url\b|GetHdr\b|CollectString|\w*[Ss]trands?|\w+_string)\w+")

_BLANKS: Final = re.compile(r" ?([(),.]) ?")
_CODE: Final = re.compile(r"^[ \t]*(?:vcl\s+\d|sub\s+vcl_\w+|backend\s+\w)", re.MULTILINE)

_FIELDS: Final = r"(?:beresp|resp|obj)\.http\."
_OF_CACHES: Final = (
    r"(?:vary|cache-control|surrogate-control|cdn-cache-control|expires|pragma|set-cookie|age)\b"
)
_CHANGE: Final = r"(?:set|unset|remove)"
_URL: Final = r"req\.(?:url|http\.host)"
_HARMLESS: Final = "|".join(
    (
        r"vcl [\d.]+|import \w+(?: from)?|call \w+|return|new .*|C",
        r"return\((?:hash|lookup|deliver|fetch|miss|ok|purge|synth\([23]\d\d[,)].*)\)",
        r"hash_data\((?:req\.url|req\.http\.host|server\.ip)\)|synthetic\(.*|ban\(.*",
        r"(?:bodyaccess|cookie|directors|querystring|std|var|xkey)\.\w+\(.*",
        r"set (?:req|bereq)\.(?:backend_hint|backend|grace|esi|hash_ignore_busy|\w+_timeout) ?=.*",
        rf"{_CHANGE} (?:req|bereq)\.http\.(?:x-forwarded-\w+|accept-encoding|surrogate-capability)\b.*",
        r"(?:unset|remove) (?:req|bereq)\.http\.(?:cookie|proxy|pragma|cache-control)",
        r"(?:unset|remove) (?:beresp|resp|obj)\..*",
        rf"set {_FIELDS}(?!{_OF_CACHES})[\w-]+ ?\+?=.*",
        r"set beresp\.(?:grace|keep|do_\w+|storage\w*) ?=.*",
        r"set (?:resp|beresp|obj)\.(?:reason|response|body) ?=.*",
        # A lifetime is a number that is more than zero.
        r"set beresp\.ttl ?= ?[0-9.]{0,9}[1-9][0-9.]{0,9}(?:ms|[smhdwy])",
        r"set (?:beresp|obj|resp)\.status ?= ?[23]\d\d",
        rf"set {_URL} ?=(?=.*{_URL}|[^;]*std\.)(?:{_URL}|(?:std|querystring)\.\w+|\w+(?![\w.])|[-+(), ])*",
    )
)
_REFUSING: Final = (
    r"return\((?:synth\(|fail|abandon|error|restart|retry).*|(?:error|synth)\b.*"
    r"|set (?:beresp|obj|resp)\.status\b.*"
    # A field that clients may send, too, or a module of its own, which may end the request.
    rf"|{_CHANGE} (?:req|bereq)\.http\.(?!host\b).*"
    r"|backend \w+ none|(?!header\.)[A-Za-z_]\w*\.\w+\(.*"
)
_PASSED: Final = (
    "univocal does not read this rule, so the profile bypasses the cache: see [cache] bypass and key"
)
_OPEN: Final = "univocal does not read this rule, and a profile refuses nothing by it: see [sites.access]"

_AS_RFC_3986: Final = Note(
    0, "dot segments, slashes, parameters and fragments are as in the profile rfc3986: the array is of bytes"
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
    notes = Notes()
    ring = corrected(bytes(array.forms), lambda octet: array.lines[octet], notes)
    for each in arrays:
        if each.is_ring and each is not array:
            notes.say(each.line, f"{each.name}: another array of 256; --pick {each.name} imports it")
    rules = list(_rules(*_code(source.text)))
    notes += [note for note, _ in rules]
    cache: dict[str, Any] = {"bypass": ["*"]} if any(is_passed for _, is_passed in rules) else {}
    if _CODE.search(source.text):
        cache["bypass_cookies"] = ["*"]
        notes.say(0, "Varnish passes requests with cookies, unless its code says otherwise: so does this")
    return Imported(
        cache=cache,
        summary=f"Imported from a Varnish decoder ring: {array.name}",
        extends="rfc3986",
        path=path_settings(ring),
        notes=[_AS_RFC_3986, *notes],
    )


def _code(text: str) -> tuple[str, str]:
    """The code of a file, and the part of it that is VCL, with blanks for comments and strings."""
    if not _VCL.search(text):
        return _NOT_CODE.sub(_blank, text), ""
    code = _NOT_VCL.sub(
        lambda found: _NOT_CODE.sub(_blank, found["c"]) if found["c"] else _blank(found), text
    )
    return code, _NOT_VCL.sub(_blank, text)


def _rules(code: str, vcl: str) -> Iterator[tuple[Note, bool]]:
    """Notes on rules that no array holds; whether the profile bypasses the cache for one."""
    for each in _CALLED.finditer(code):
        yield _note(code, each.start(), each[0], _PASSED), True
    declared, asked, was_asked = list[bool](), list[bool](), False
    name, is_behind = "", False
    for each in _STATEMENT.finditer(vcl):
        text, end = " ".join(each[0][:-1].split()), each[0][-1]
        if end == "{":
            name = name if declared else text
            declared.append(any(declared) or _DECLARED.match(text) is not None)
            is_asking = _ASKED.fullmatch(_BLANKS.sub(r"\1", text)) is not None
            asked.append(is_asking or (was_asked and text.lower().startswith("el")))
        elif end == "}":
            was_asked = any(asked[-1:])
            declared[-1:] = asked[-1:] = []
            is_behind = is_behind and (bool(asked) or not name.startswith("sub vcl_"))
        elif text and not any(declared):
            is_asked = any(asked) or is_behind
            is_behind = is_behind or (any(asked) and _matches(_ENDING, text))
            if _matches(_HARMLESS, text) and not (is_asked and _matches(_OTHERWISE, text)):
                continue
            at = each.start() + len(each[0]) - len(each[0].lstrip())
            is_refusing = _matches(_REFUSING, text)
            yield _note(vcl, at, text, _OPEN if is_refusing else _PASSED), not is_refusing


def _matches(rule: str, statement: str) -> bool:
    """Tell whether a rule is of a statement, whose blanks count nowhere but between words."""
    return re.fullmatch(rule, _BLANKS.sub(r"\1", statement), re.IGNORECASE) is not None


def _note(code: str, at: int, text: str, why: str) -> Note:
    return Note(code.count("\n", 0, at) + 1, f"{text}: {why}", is_open_question=True)


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
        if _VCL.search(source.text):
            arrays_there += "; VCL code is not read; docs/how-to/from-varnish.md has its pieces"
        raise source.nothing(arrays_there, "an array of 256 numbers: 0 encode, 1 decode, 2 keep")
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
    code, _ = _code(text)
    line, counted = 1, 0
    for braces in _BRACES.finditer(code):
        line, counted = line + code.count("\n", counted, braces.start()), braces.start()
        try:
            forms, lines = _numbers(braces[1], line)
        except ValueError:
            continue
        yield _Array(code[max(0, braces.start() - _BEFORE) : braces.start()], line, forms, lines)


def _blank(match: re.Match[str]) -> str:
    """Blanks and the same line ends in place of what is no code; a character is its number."""
    letter = match.groupdict().get("letter")
    return str(ord(letter)) if letter else re.sub(r"[^\n]", " ", match[0])


def _numbers(body: str, line: int) -> tuple[list[int], list[int]]:
    """The numbers of an initializer and the line of each. Raises ValueError for anything else in it."""
    placed: dict[int, tuple[int, int]] = {}
    following = 0
    elements = body.split(",")
    if elements and not elements[-1].strip():
        elements.pop()
    for element in elements:
        ended = line + element.count("\n")
        match = _ELEMENT.fullmatch(element.strip())
        if match is None:
            raise ValueError(element)
        first = _number(match["first"]) if match["first"] else following
        last = _number(match["last"]) if match["last"] else first
        if not first <= last < _MOST:
            raise ValueError(element)
        placed.update(dict.fromkeys(range(first, last + 1), (_number(match["value"]), ended)))
        following, line = last + 1, ended
    if not placed:
        raise ValueError(body)
    # As in C, what a designated initializer leaves out is 0.
    cells = [placed.get(index, (0, line)) for index in range(max(placed) + 1)]
    return [value for value, _ in cells], [at for _, at in cells]


def _number(text: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    digits = match[1].lower()
    octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
    return int(digits, 8) if octal else int(digits, 16 if digits.startswith("0x") else 10)
