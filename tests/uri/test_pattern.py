"""Patterns of canonical URLs find what they name, in whichever spelling they name it."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from examples import cases
from univocal.uri.purge_names import spelled_pattern
from univocal.uri.target import Rejected, canonical_target
from uri.profiles import BUILT_IN, own

MEDIAWIKI = BUILT_IN["mediawiki"]
RESTBASE = BUILT_IN["restbase"]
CYRILLIC = own('charset = { path = "windows-1251" }')


def found(pattern, url, *profiles):
    re2 = pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return bool(re2.compile(b"^" + spelled_pattern(pattern, profiles) + b"$", options).search(url))


@cases(
    "pattern, url",
    (b"/wiki/It's", b"/wiki/It%27s"),
    (b"/wiki/It%27s", b"/wiki/It%27s"),
    (rb"/wiki/It\x27s", b"/wiki/It%27s"),
    (b"/wiki/AT&T", b"/wiki/AT%26T"),
    (b"/wiki/A=B.*", b"/wiki/A%3DB/C"),
    (rb"/wiki/C\+\+", b"/wiki/C%2B%2B"),
    (rb"/wiki/C(\+)+", b"/wiki/C%2B%2B"),
    (rb"/wiki/C\+{2}", b"/wiki/C%2B%2B"),
    (rb"/wiki/A\[1\]", b"/wiki/A%5B1%5D"),
    (rb"/wiki/\Q[A]+(b)\E", b"/wiki/%5BA%5D%2B(b)"),
    (rb"/wiki/\QA&B", b"/wiki/A%26B"),
    (b"/wiki/A[&+]B", b"/wiki/A%26B"),
    (b"/wiki/A[%-/]B", b"/wiki/A%27B"),
    (rb"/wiki/A[\]x]B", b"/wiki/A%5DB"),
    (b"/wiki/A[]x]B", b"/wiki/A%5DB"),
    (rb"/wiki/A[\d[:alpha:]&]+B", b"/wiki/A1x%262B"),
    (b"/wiki/[^/]*", b"/wiki/It%27s"),
    (b"/wiki/100%", b"/wiki/100%25"),
    (b"/wiki/100%25", b"/wiki/100%25"),
    (b"/wiki/A(%28|%29)", b"/wiki/A)"),
    (b"/wiki/A%(27|26)B", b"/wiki/A%26B"),
    (b"/wiki/(?i:it's)", b"/wiki/IT%27S"),
    (b"/wiki/(?P<title>it's)", b"/wiki/it%27s"),
    (b"/wiki/Talk:A%2FB", b"/wiki/Talk:A/B"),
    ("/wiki/É+".encode(), b"/wiki/%C3%89%C3%89"),
    ("/wiki/[ÉÈ]a".encode(), b"/wiki/%C3%88a"),
    (b"/wiki/%C3%89+", b"/wiki/%C3%89%C3%89"),
    (b"/wiki/\xc9", b"/wiki/%C9"),
    (rb"/w/index.php\?title=It's&a=b", b"/w/index.php?title=It's&a=b"),
    (rb"/w/index.php\?title=%28a%2f", b"/w/index.php?title=%28a%2f"),
    (rb"/w/index.php\?title=[(a]%2F", b"/w/index.php?title=a%2F"),
    (rb"/wiki/\pLx{2}", b"/wiki/axx"),
    (rb"/wiki/a{x}", b"/wiki/a%7Bx%7D"),
)
def test_a_pattern_finds_what_it_names(pattern, url):
    assert found(pattern, url, MEDIAWIKI)


def test_a_pattern_is_read_by_every_route_of_its_host():
    assert found(b"/api/A%2FB", b"/api/A%2FB", MEDIAWIKI, RESTBASE)
    assert found(b"/wiki/A%2FB", b"/wiki/A/B", MEDIAWIKI, RESTBASE)
    assert not found(b"/wiki/A/B", b"/wiki/A%2FB", MEDIAWIKI, RESTBASE)


@pytest.mark.parametrize("pattern", [b"/%FF.*", b"/\xff.*", "/я.*".encode(), b"/%d1%8f.*"])
def test_a_pattern_is_in_the_charset_of_its_profile(pattern):
    assert found(pattern, b"/%D1%8F?a", CYRILLIC)


@pytest.mark.parametrize("pattern", [b"/a[", b"/a\\", b"/a(", b"/[b-a]", b"/a[^", b"/\\Qa\\Eb)"])
def test_an_invalid_pattern_stays_invalid(pattern):
    re2 = pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    options = re2.Options()
    options.log_errors = False
    with pytest.raises(re2.error):
        re2.compile(spelled_pattern(pattern, [MEDIAWIKI]), options)


@given(
    st.lists(st.sampled_from([*map(chr, range(0x21, 0x7F)), "%41", "%28", "%27", "%2f", "é"])).map("".join),
    st.sampled_from(sorted(BUILT_IN)),
)
def test_any_title_is_found_by_its_quoted_spelling(title, name):
    profile = BUILT_IN[name]
    assume(not set("?#/;") & set(title) and "%2f" not in title)
    canonical = canonical_target(f"/wiki/x{title}".encode(), profile)
    assume(not isinstance(canonical, Rejected))
    assert isinstance(canonical, bytes)
    quoted = "".join(c if c.isalnum() or c in "%é" else "\\" + c for c in title)
    assert found(f"/wiki/x{quoted}".encode(), canonical, profile)
