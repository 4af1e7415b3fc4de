"""Rings of other programs as univocal's: what no ring of ours may do is corrected, and said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from univocal.http.grammar import UNRESERVED
from univocal.uri.percent_encoding import DECODE, ENCODE, KEEP, RINGS, DecoderRing, octet_name
from univocal_learn.importers.imported import Notes, Table

_DONE: Final = {ENCODE: "encoded", DECODE: "decoded", KEEP: "kept as it comes"}
_DELIMITERS: Final = b"?#"


def corrected(forms: bytes, line_of: Callable[[int], int], notes: Notes) -> DecoderRing:
    """The table of 256 `forms`, made unambiguous; `line_of` a byte is where its form is written."""
    changed: dict[tuple[int, int, str], list[int]] = {}
    legal = bytearray(forms)
    for octet, form in enumerate(forms):
        legal[octet], why = _legal(octet, form)
        if legal[octet] != form:
            changed.setdefault((form, legal[octet], why), []).append(octet)
    for (old, new, why), octets in changed.items():
        notes.say(line_of(octets[0]), f"{_listed(octets)}: {_DONE[old]} there, {_DONE[new]} here: {why}")
    return DecoderRing(bytes(legal))


def _legal(octet: int, form: int) -> tuple[int, str]:
    """The form that comes next to `form` among those that leave a path unambiguous, and why."""
    if octet in UNRESERVED:
        return DECODE, "unreserved characters mean the same in both spellings (RFC 3986 section 2.3)"
    if octet == 0x25:
        return ENCODE, "a decoded '%' would begin an escape, and be decoded a second time"
    if octet in _DELIMITERS and form == DECODE:
        return KEEP, "decoded, it would end the path"
    if octet == 0x2F and form == ENCODE:
        return DECODE, "'/' between segments is never encoded; both spellings are still one"
    if (octet <= 0x20 or octet >= 0x7F) and form != ENCODE:
        return ENCODE, "bare, it could end the request line, or stand in no URL"
    return form, ""


def path_settings(ring: DecoderRing) -> Table:
    """The settings under `[path]` that make `ring` in a profile that extends rfc3986."""
    base = RINGS["rfc3986"].forms
    named = next((name for name, each in RINGS.items() if repr(each) == repr(ring)), None)
    if named is not None:
        return {} if named == "rfc3986" else {"ring": named}
    decode, encode = (
        bytes(octet for octet in range(256) if ring.forms[octet] == form != base[octet])
        for form in (DECODE, ENCODE)
    )
    if DecoderRing.from_sets(decode, encode).forms != ring.forms:
        return {"ring": list(ring.forms)}
    return {key: _tokens(octets) for key, octets in (("decode", decode), ("encode", encode)) if octets}


def _tokens(octets: bytes) -> str:
    return " ".join(f"{octet:c}" if 0x20 < octet < 0x7F else f"{octet:02X}" for octet in octets)


def _listed(octets: list[int]) -> str:
    """Bytes as a reader knows them, runs of them by their ends."""
    runs: list[list[int]] = []
    for octet in octets:
        if runs and octet == runs[-1][-1] + 1:
            runs[-1].append(octet)
        else:
            runs.append([octet])
    ends = [(octet_name(run[0]), octet_name(run[-1])) for run in runs]
    return ", ".join(first if first == last else f"{first} to {last}" for first, last in ends)
