"""The readings of a path: what some server behind may take it for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.uri.readings import is_loose, plain_reading, readings, spelled_alike


@cases(
    "path, reading",
    (b"/admin", b"/admin"),
    (b"/ADMIN/x", b"/admin/x"),
    (b"//admin/x", b"/admin/x"),
    (b"/./admin", b"/admin"),
    (b"/admin/.", b"/admin/"),
    *((each, b"/admin") for each in (b"/%61dmin", b"/%2561dmin", b"/%252561dmin", b"/%25252561dmin")),
    (b"/%u0061dmin", b"/admin"),
    (b"/%25252525%2525252536%2525252531dmin", b"/admin"),  # decoding makes other escapes
    (b"/x%u002fadmin", b"/x/admin"),
    (b"/%2Fadmin", b"/admin"),
    (b"/admin%2Fx", b"/admin/x"),
    *((each, b"/admin") for each in (b"/\\admin", b"/%5Cadmin", b"/x/..%2Fadmin", b"/x/..%5Cadmin")),
    *((each, b"/admin") for each in (b"/x/..;/admin", b"/x/..;a=b/admin", b"/x/..%3B/admin")),
    *((each, b"/admin") for each in (b"/x/%2e%2e;/admin", b"/x/%252e%252e/admin", b"/../admin")),
    (b"/admin;x/y", b"/admin/y"),
    (b"/admin;/y", b"/admin/y"),
    (b"//admin;x/y", b"/admin/y"),
    (b"/;x%2Fy/admin", b"/admin"),  # parameters cut before the slash is decoded
    (b"/admin%3Bx/y", b"/admin/y"),
    (b"/%3Bx%252Fy/admin", b"/admin"),  # decoded, cut, decoded
    (b"/admin%3Fx", b"/admin"),
    (b"/admin%23x", b"/admin"),
    (b"/x%3Fy/..%2F..%2Fadmin", b"/admin"),  # or the mark is data
    (b"/admin%00", b"/admin"),  # a C string ends there
    (b"/admin%2500.jpg", b"/admin"),
    (b"/x/..%2Fadmin%00/y", b"/admin"),
    (b"/x%00/..%2Fadmin", b"/x"),
    (b"/x%00/..%2Fadmin", b"/admin"),
    (b"/admin.", b"/admin"),  # Windows opens the file without the dots and spaces at its end
    (b"/admin%20.%2E/x", b"/admin/x"),
    (b"/admin.;x/y", b"/admin/y"),
    (b"/x%5Cadmin.%5C", b"/x/admin/"),
    (b"/admin::$DATA", b"/admin"),  # and a file without the name of its stream
    (b"/admin%3A%3A%24DATA", b"/admin"),
    (b"/admin:$i30:$INDEX_ALLOCATION/x", b"/admin/x"),
    (b"/ADMIN.::$DATA", b"/admin"),
    (b"/admin/..;/..;/x", b"/admin/"),  # a folder that is left
    (b"/admin/../x", b"/admin/"),
    (b"/b%252Fc/..%2Fadmin", b"/admin"),  # decoded once, "b%2Fc" is one segment
    (b"/b%5Cc/..%2Fadmin", b"/admin"),  # a backslash may be data
    (b"/a//..%2Fb", b"/b"),  # an empty segment counts, or does not
    (b"/a//..%2Fb", b"/a/b"),
    (b"/%EF%BD%81dmin", b"/admin"),  # NFKC: a fullwidth a
    (b"/adm%C4%B1n", b"/admin"),  # a dotless i, which comparisons without case take for "i"
    (b"/ADM%C4%B0N", b"/admin"),  # and a dotted I
    (b"/%EF%BC%8Fadmin", b"/admin"),  # and a fullwidth slash
    (b"/x/%E2%80%A5/admin", b"/admin"),  # one character for two dots
    ("/ſtatic".encode(), b"/static"),
    (b"/%E2%84%AAeys", b"/keys"),  # casefolded: the sign for kelvin
    (b"/%C3%89t%C3%A9", "/été".encode()),
    (b"/E%CC%81t%C3%A9", "/été".encode()),
    (b"/100%25", b"/100%"),
    (b"/%FF", b"/\xff"),
)
def test_a_path_may_be_read_as(path, reading):
    assert reading in readings(path).folded


@cases(
    "path, all_of_them",
    (b"/", {b"/"}),
    (b"/Main_Page", {b"/main_page"}),
    (b"/a/b/", {b"/a/b/"}),
    (b"/a%2Fb", {b"/a/b"}),
    (b"/100%25", {b"/100%"}),
    (b"/v1.2/e.g.", {b"/v1.2/e.g.", b"/v1.2/e.g"}),
    (b"/wiki/Talk:A:$5", {b"/wiki/talk:a:$5", b"/wiki/talk"}),
    (b"/wiki/Talk:A$B", {b"/wiki/talk:a$b"}),
    (b"/r/https%25253A%252F%252Fa.b", {b"/r/https:/a.b"}),
    (b"/m;a=b,c", {b"/m;a=b,c", b"/m"}),
)
def test_harmless_paths_have_few_readings(path, all_of_them):
    assert readings(path).folded == all_of_them
    assert not readings(path).above


@cases(
    "path, decoded_once",
    (b"/Main_Page", set()),
    (b"/a%2Fb%20c", set()),
    (b"/A%5Cb", {b"/a\\b"}),
    (b"/a%5Cb/../c", set()),
    (b"/%2541", {b"/%41"}),
    (b"/a/%2Fb", {b"/a//b"}),
)
def test_a_path_decoded_once_keeps_backslashes(path, decoded_once):
    assert readings(path).decoded_once == decoded_once


@cases(
    "path, above",
    *((each, True) for each in (b"/..%2Fx", b"/a/..%2F..%2Fx", b"/%2e%2e%2fx", b"/..%5Cx", b"//../x")),
    *((each, True) for each in (b"/a;/..;/..;/x", b"/%252e%252e%252fx")),
    (b"/a/..%2Fx", False),
    (b"/..a%2Fx", False),
    (b"/a/b/../x", False),
    (b"/\xef\xbc\x8e\xef\xbc\x8e/x", False),  # letters as they came,
)
def test_a_climb_above_the_root_is_seen(path, above):
    assert readings(path).above is above


@cases("path", b"/a/..%2F" * 100, b"/..;%252F\\%3F%E2%80%A5" * 60, b"/a%2F..%2F;b\\c%3F" * 400)
def test_too_many_readings_mean_any_path(path):
    assert readings(path).everywhere


@cases(
    "unit",
    *(b"/.", b"/..", b"/a/..%2F", b"%25", b"/%2525252541", b"/a%252F", b"/;a%2F", b"/%D0%9F", b"/a;b\\"),
    *(b". ", b":$", b"/a."),
)
def test_readings_of_long_paths_are_bounded(unit):
    found = readings(b"/" + unit * (8_000 // len(unit)) + b"%41")
    assert found.everywhere or sum(map(len, found.folded)) <= 512 * 1024


@given(st.binary(max_size=40), st.integers(0, 3))
def test_decoding_once_more_changes_no_plain_segment(text, times):
    segment = b"".join(b"%%%02X" % octet for octet in text if octet not in b"/\\;?#%.")
    for _ in range(times):
        segment = segment.replace(b"%", b"%25")
    whole = bytes(octet for octet in text if octet not in b"/\\;?#%.").lower()
    assert b"/guarded/" + whole in readings(b"/guarded/" + segment).folded or not segment


@cases(
    "path, alike",
    (b"/Admin/", {b"/admin/"}),
    (b"/a%2Fb", {b"/a/b"}),
    (b"/100%25", {b"/100%"}),
    (b"*.PNG", {b"*.png"}),
    (b"/a;b", {b"/a;b"}),
    (b"/%C3%89", {b"/\xc3\x89", b"/\xc3\xa9"}),
)
def test_a_guard_is_spelled_as_readings_are(path, alike):
    assert spelled_alike(path) == alike


DEFAULT = ("//", "\\", "%5C", "%2F")


@cases(
    "path, tokens, plain",
    *((each, DEFAULT, b"/d/a.txt") for each in (b"//d/a.txt", b"/d%2Fa.txt", b"/d%5Ca.txt")),
    (b"/d//a.txt", DEFAULT, b"/d/a.txt"),
    (b"/d%2F", DEFAULT, b"/d/"),
    (b"/x/..%2Fa", DEFAULT, b"/a"),
    (b"/d;x/a", (*DEFAULT, ";"), b"/d/a"),
    (b"/e%CC%81", ("non-nfc",), b"/%C3%A9"),
    (b"/a/../b", ("dot-segment",), b"/b"),
    (b"/%u0061", ("%u",), b"/a"),
)
def test_a_loose_path_has_a_plain_reading(path, tokens, plain):
    assert is_loose(path, tokens)
    assert not is_loose(path, ())
    assert plain_reading(path, tokens) == plain
    assert not is_loose(plain, tokens)


@pytest.mark.parametrize("path", [b"/", b"/a/b/", b"/%C3%A9", b"/a;b", b"/%41", b"/what.../.git", b"/%E2"])
def test_other_paths_are_not_loose(path):
    assert not is_loose(path, (*DEFAULT, "non-nfc", "dot-segment"))
