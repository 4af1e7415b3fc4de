"""Servlet 6.1 §3.5: its examples as facts, and a second reading of its prose that knows nothing of ours."""

import json
import re
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.uri.target import Rejected, canonical_target, explain_target
from uri.profiles import BUILT_IN, own

SERVLET = BUILT_IN["servlet"]
EXAMPLES = json.loads((Path(__file__).parent / "vectors" / "servlet.json").read_text())

# RFC 3986 pchar without ";": what may stand literally in a segment on its way to the container.
LITERAL = "!$&'()*+,=:@"


def read_by_the_book(target):
    """The segments that a container maps, None where they cannot be read at all; and what is suspicious."""
    path = target.split("#", 1)[0].split("?", 1)[0]
    segments, reasons = named_segments(path)
    reasons |= suspicious_octets(path)
    if "#" in target:
        reasons.add("fragment")
    if not path.startswith("/"):
        reasons.add("no-leading-slash")
    resolved = []
    for segment in segments:
        if segment == ".." and resolved and resolved[-1] != "..":
            resolved.pop()
        elif segment != ".":
            resolved.append(segment)
    if resolved and resolved[0] == "..":
        reasons.add("above-root")
    return (None if reasons & {"bad-escape", "bad-utf-8"} else resolved), reasons


def suspicious_octets(path):
    once = unquote_to_bytes(path.encode())
    found = {
        "bad-escape": re.search("%(?![0-9A-Fa-f][0-9A-Fa-f])", path),
        "encoded-slash": "%2f" in path.lower(),
        "backslash": b"\\" in once,
        "control-character": any(octet < 32 or octet == 127 for octet in once),
        "bad-utf-8": not is_utf_8(once),
    }
    return {reason for reason, is_so in found.items() if is_so}


def is_utf_8(octets):
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def named_segments(path):
    """The decoded names of the segments, without empty ones but the last; what is suspicious about them."""
    raw = path.removeprefix("/").split("/")
    names, reasons = [], set()
    for index, segment in enumerate(raw, start=1):
        name, parameter, _ = segment.partition(";")
        decoded = unquote_to_bytes(name.encode()).decode(errors="surrogateescape")
        if decoded in (".", ".."):
            reasons |= {"encoded-dot-segment"} if "%" in name else set()
        dots = re.fullmatch(
            r"((?:\.|%2[Ee]){1,2})([!$&'()*+,;=]|%2[1467-9A-Ca-c]|%3[Dd]).*", segment, re.DOTALL
        )
        reasons |= {"dot-segment-parameter"} if dots else set()
        if not name and parameter and index < len(raw):
            reasons.add("empty-segment-parameter")
        if decoded or index == len(raw):
            names.append(decoded)
    return names, reasons


def sent_on(segments, query):
    return ("/" + "/".join(quote(segment, safe=LITERAL) for segment in segments) + query).encode()


@pytest.mark.parametrize(("target", "decoded", "reasons"), EXAMPLES)
def test_the_examples_by_the_book(target, decoded, reasons):
    segments, found = read_by_the_book(target)
    assert found == set(reasons)
    if decoded is not None:
        assert segments is not None
        # If an encoded slash is let through, "/" and "%" within a segment stay encoded.
        inner = [re.sub("[%/]", lambda c: f"%{ord(c[0]):02X}", s) for s in segments]
        assert "/" + "/".join(inner if "encoded-slash" in reasons else segments) == decoded


@pytest.mark.parametrize(("target", "decoded", "reasons"), EXAMPLES)
def test_the_specifications_examples_are_decoded_or_rejected_as_it_says(target, decoded, reasons):
    result = canonical_target(target.encode(), SERVLET)
    if reasons:
        assert set(result.reasons) == set(reasons)
        assert result.reason == result.reasons[0]
    else:
        query = "?" + target.partition("?")[2] if "?" in target else ""
        assert result == quote(str(decoded), safe="/" + LITERAL).encode() + query.encode()


def test_there_are_84_examples():
    assert len(EXAMPLES) == len({target for target, _, _ in EXAMPLES}) == 84
    assert sum(bool(reasons) for _, _, reasons in EXAMPLES) == 50


@pytest.mark.parametrize("reason", sorted({reason for _, _, reasons in EXAMPLES for reason in reasons}))
def test_each_sequence_can_be_allowed(reason):
    """A profile that does not list a reason accepts what only that reason would refuse."""
    rest = [name for name in SERVLET.sequences if name != reason]
    lenient = own(f"[reject]\nsequences = {json.dumps(rest)}", "servlet")
    only = [target for target, _, reasons in EXAMPLES if reasons == [reason]]
    assert only
    for target in only:
        refused = isinstance(canonical_target(target.encode(), lenient), Rejected)
        assert refused == (reason == "no-leading-slash"), (
            target
        )  # a target without "/" is none under any profile


TOKENS = [
    *("/", "/", ".", "..", "..,x", ";", ";x=y", "a", "%2e", "%2F", "%", "%%", "%25", "%41", "%3b", "%3F"),
    *("%23", "%5c", "\\"),
]
TOKENS += [
    *("%00", "%0A", "%7f", "%C3%A9", "%E2%82", "%ff", "(", "%28", "[", "%5B", "+", "%2B", "=", " ", "~", "é"),
    *("@:", "?q", "#f"),
]


@given(st.lists(st.sampled_from(TOKENS), max_size=9).map("".join))
def test_accepts_and_reads_as_the_book_does(target):
    segments, reasons = read_by_the_book(target)
    result = canonical_target(target.encode(), SERVLET)
    if reasons:
        assert set(result.reasons) == reasons
    else:
        assert segments is not None
        assert result.split(b"?")[0] == sent_on(segments, "")


@given(st.lists(st.sampled_from(TOKENS), max_size=9).map("".join))
def test_with_nothing_refused_the_path_is_still_the_books(tail):
    """Suspicious sequences that a profile allows mean what the specification says they mean."""
    lenient = own("[reject]\nsequences = []", "servlet")
    segments, reasons = read_by_the_book("/" + tail)
    if segments is None or "above-root" in reasons:
        return
    result = canonical_target(b"/" + tail.encode(), lenient)
    assert result.split(b"?")[0] == sent_on(segments, "")


@given(st.lists(st.sampled_from(TOKENS), max_size=9).map("".join))
def test_kept_parameters_do_not_change_the_path(tail):
    """With parameters kept, what they hang on is still what the container maps."""
    keeping = own('[path]\nparameters = "keep"\n[reject]\nsequences = []', "servlet")
    segments, reasons = read_by_the_book("/" + tail)
    if segments is None or "above-root" in reasons:
        return
    result = canonical_target(b"/" + tail.encode(), keeping)
    assert read_by_the_book(result.decode())[0] == (segments or [""])  # no segment is "/", too


@cases(
    "target, canonical",
    (b"/a;jsessionid=1%2f/b;x", b"/a;jsessionid=1%2F/b;x"),
    (b"/a%3Bb;c", b"/a%3Bb;c"),
    (b"/a;b/../c", b"/c"),
    (b"/a/;x/../b", b"/b"),
    (b"/a/;x", b"/a/;x"),
)
def test_parameters_kept(target, canonical):
    sequences = '[reject]\nsequences = ["control-character"]'
    keeping = own(f'[path]\nparameters = "keep"\n{sequences}', "servlet")
    assert canonical_target(target, keeping) == canonical


def test_data_stays_data():
    """An escaped delimiter is part of a name and must not become a delimiter for the container."""
    assert canonical_target(b"/%3b%3F%23%25x;drop", SERVLET) == b"/%3B%3F%23%25x"


def test_the_stages_tell_what_is_lost():
    stages, result = explain_target(b"/foo;a//./%62ar?q", SERVLET)
    assert result == b"/foo/bar?q"
    assert [(stage.name, stage.lossy) for stage in stages] == [
        ("parameters", True),
        ("ring", False),
        ("slashes", False),
        ("dot-segments", False),
        ("query", False),
    ]
    assert stages[0].after == b"/foo//./%62ar?q"
    assert stages[1].after == b"/foo//./bar?q"
