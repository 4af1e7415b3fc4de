"""Law 3 for origins that cannot be run here: models of how they read a target, on other code than ours.

Targets with one key are one to the model, and targets that are one to the model have one key.
"""

import re
from urllib.parse import parse_qsl, quote, unquote_to_bytes

import pytest

from examples import cases, examples
from univocal.uri.target import canonical_target

UNRESERVED = re.compile("[A-Za-z0-9._~-]")
SPECIAL = set(b":/?#[]@!$&'()*+,;=")


def normal_form(path):
    """RFC 3986 §6.2.2.1 and §6.2.2.2: escapes in upper case, none of what is unreserved; the rest escaped."""
    spelled = b""
    for escape, octet in re.findall(rb"%([0-9A-Fa-f]{2})|(.)", path, re.DOTALL):
        code = int(escape, 16) if escape else octet[0]
        if UNRESERVED.match(chr(code)) or (octet and code in SPECIAL):
            spelled += bytes([code])
        else:
            spelled += b"%%%02X" % code
    return spelled


def without_dot_segments(path):
    """RFC 3986 §5.2.4, by taking out the first that goes until none is left."""
    while True:
        shorter = re.sub(rb"/\.(?=/|$)(/?)|^(?:/\.\.)(?=/|$)/?", b"/", path, count=1)
        if shorter == path:
            shorter = re.sub(rb"/(?!\.\.(?:/|$))[^/]*/\.\.(?:/|$)", b"/", path, count=1)
        if shorter == path:
            return path
        path = shorter


def rfc3986(path):
    return without_dot_segments(normal_form(path))


def mediawiki(path):
    """PHP's rawurldecode of the path without leading slashes, which the title is cut out of."""
    return b"/" + without_dot_segments(unquote_to_bytes(path)).lstrip(b"/")


def upload(path):
    return without_dot_segments(unquote_to_bytes(path))


def restbase(path):
    """The decoded segments between the slashes that were sent."""
    segments = without_dot_segments(re.sub(rb"%2[Ee]", b".", path)).split(b"/")
    return tuple(map(unquote_to_bytes, segments))


def form(query):
    """The parameters, and what a query is to a reader who wants none."""
    text = query.decode("latin-1")
    return unquote_to_bytes(query), tuple(parse_qsl(text, keep_blank_values=True, encoding="latin-1"))


@cases(
    "profile, read",
    ("rfc3986", rfc3986),
    ("mediawiki", mediawiki),
    ("upload", upload),
    ("restbase", restbase),
)
def test_one_key_is_one_to_the_origin_and_the_reverse(generated, judge, built_in, profile, read):
    judged = judge(generated(1, 12_000), built_in[profile])
    of_key, keys = {}, {}
    for received, canonical in judged.accepted.items():
        path, mark, query = received.partition(b"?")
        if profile == "mediawiki" and not query:
            mark = b""  # MediaWiki answers the same page, and purges it without
        one = (read(path), mark, form(query))
        assert of_key.setdefault(canonical, one) == one, (received, canonical)
        path = canonical.partition(b"?")[0]
        assert keys.setdefault(read(path), path) == path, (received, canonical)
    assert len(of_key) > examples(5000)
    assert len(judged.accepted) > 1.3 * len(of_key)


@pytest.mark.parametrize("octet", sorted(set(range(0x21, 0x7F)) - set(b"%?#/.\\")))
def test_each_byte_of_a_title_has_one_spelling(built_in, octet):
    bare, escaped = b"/x%cy" % octet, b"/x%%%02xy" % octet
    for profile in ("mediawiki", "upload"):
        assert canonical_target(bare, built_in[profile]) == canonical_target(escaped, built_in[profile])
    assert canonical_target(bare, built_in["upload"]) == quote(bare, safe="/").encode()
