"""Reading header fields (RFC 9110 §5.6, §8.8, §12.5.1; RFC 9111 §5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from support import NOW
from univocal.http.messages import (
    LONGEST_ACCEPT,
    MAX_DELTA,
    age_value,
    cache_control,
    combined,
    content_length,
    cookie_names,
    delta_seconds,
    entity_tag,
    entity_tags,
    http_date,
    imf_fixdate,
    members,
    opaque_tag,
    prefers_html,
    quality,
)

EVENT = 2_544_400_878  # 18 August 2050, 02:01:18


@cases(
    "value, seconds",
    (b"Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
    (b"Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
    (b"Sun Nov  6 08:49:37 1994", 784_111_777),
    (b"Wed Nov 16 08:49:37 1994", 784_975_777),
    (b" Thu, 18 Aug 2050 02:01:18 GMT ", EVENT),
    (b"Thursday, 18-Aug-50 02:01:18 GMT", EVENT),
    (b"THU, 18 AUG 2050 02:01:18 gMT", EVENT),
    (b"Mon, 18 Aug 2050 02:01:18 GMT", EVENT),  # the weekday is not checked
    (b"Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800),
    (b"Thu, 01 Jan 1970 00:00:00 GMT", 0),
    (b"Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),  # a leap second
    (b"Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
    *((each, None) for each in (b"Thu, 18 Aug 2050 02:01:18 UTC", b"Thu, 18 Aug 2050 02:01:18 AEST")),
    *((each, None) for each in (b"Thu, 18 Aug 50 02:01:18 GMT", b"Thu 18 Aug 2050 02:01:18 GMT")),
    *((each, None) for each in (b"Thu, 18  Aug  2050 02:01:18 GMT", b"Thu, 18-Aug-2050 02:01:18 GMT")),
    *((each, None) for each in (b"Thu, 18 Aug 2050 02.01.18 GMT", b"Thu, 18 Aug 2050 2:01:18 GMT")),
    *((each, None) for each in (b"Thu, 18 Aug 2050 24:01:18 GMT", b"Thu, 18 Aug 2050 02:60:18 GMT")),
    *((each, None) for each in (b"Thu, 31 Apr 2050 02:01:18 GMT", b"Thu, 00 Apr 2050 02:01:18 GMT")),
    *((each, None) for each in (b"Sun, 29 Feb 2100 00:00:00 GMT", b"Wed, 29 Feb 2023 00:00:00 GMT")),
    *((each, None) for each in (b"0", b"-1", b"", None)),
)
def test_an_http_date_has_three_forms_and_no_others(value, seconds):
    assert http_date(value, NOW) == seconds


@pytest.mark.parametrize(("year", "century"), [(b"76", 2076), (b"77", 1977), (b"26", 2026), (b"99", 1999)])
def test_a_two_digit_year_is_at_most_fifty_years_ahead(year, century):
    read = http_date(b"Sunday, 06-Nov-%b 08:49:37 GMT" % year, NOW)
    assert read == http_date(b"Sun, 06 Nov %d 08:49:37 GMT" % century, NOW)


def test_an_http_date_is_written_in_the_preferred_form():
    assert imf_fixdate(784_111_777.9) == b"Sun, 06 Nov 1994 08:49:37 GMT"


@cases(
    "value, seconds",
    (b"0", 0),
    (b"003600", 3600),
    (b"2147483647", 2**31 - 1),
    (b"2147483649", MAX_DELTA),
    (b"9" * 5000, MAX_DELTA),
    (b"0" * 5000 + b"7", 7),
    *((each, None) for each in (b"-1", b"1.0", b"'1'", b" 1", b"", "١".encode(), None)),
)
def test_delta_seconds_are_digits_and_do_not_overflow(value, seconds):
    assert delta_seconds(value) == seconds


@cases(
    "lines, seconds",
    ([], 0),
    ([b"7200"], 7200),
    ([b"7200, 0"], 7200),
    ([b"0, 7200"], 0),
    ([b"7200", b"0"], 7200),
    *((each, 0) for each in ([b"0", b"7200"], [b"abc"], [b"-7200"], [b"7200.0"])),
    ([b"2147483649"], MAX_DELTA),
)
def test_of_ages_the_first_counts_if_it_is_one(lines, seconds):
    assert age_value([(b"age", line) for line in lines]) == seconds


@cases(
    "lines, directives",
    ([b"max-age=1"], {b"max-age": b"1"}),
    ([b"No-StOrE, MaX-aGe=1"], {b"no-store": None, b"max-age": b"1"}),
    ([b'max-age="1"'], {b"max-age": b"1"}),
    ([b'ext="max-age=3600, \\"no-store", max-age=1'], {b"ext": b'max-age=3600, "no-store', b"max-age": b"1"}),
    ([b"max-age=1, max-age=2"], {b"max-age": b"1"}),
    ([b"max-age=1", b"s-maxage=2"], {b"max-age": b"1", b"s-maxage": b"2"}),
    ([b"max-age =1"], {b"max-age": b" 1"}),
    ([b"max-age= 1"], {b"max-age": b" 1"}),
    ([b'no-cache="a", no-cache'], {b"no-cache": None}),
    ([b'no-cache, no-cache="a"'], {b"no-cache": None}),
    ([b'private="a"', b'private="b"'], {b"private": b"a,b"}),
    ([b" , ,public,"], {b"public": None}),
    ([b'a="unterminated, no-store'], {b"a": b'"unterminated, no-store'}),
    ([], {}),
)
def test_cache_control_is_read_member_by_member(lines, directives):
    assert cache_control(lines) == directives


@cases(
    "value, tags",
    (b'"a"', [b'"a"']),
    (b'W/"a", "b"', [b'W/"a"', b'"b"']),
    (b'"a,b","c"', [b'"a,b"', b'"c"']),
    (b'"a" , bare, "b"', [b'"a"', b'"b"']),
    (b'"abcdef\xfc"', [b'"abcdef\xfc"']),
    (b'""', [b'""']),
    *((each, []) for each in (b'w/"a"', b"abc", b'"a', b"*")),
)
def test_a_list_of_entity_tags_keeps_the_well_formed(value, tags):
    assert entity_tags(value) == tags
    assert entity_tag(value) == (tags[0] if tags and tags[0] == value else None)


def test_the_weak_comparison_ignores_the_mark():
    assert opaque_tag(b'W/"a"') == opaque_tag(b'"a"') == b'"a"'


def test_lists_are_split_outside_of_quoted_strings():
    assert members(b'a, "b,c" ,,d, "e\\",f"') == [b"a", b'"b,c"', b"d", b'"e\\",f"']


def test_field_lines_are_one_value():
    assert combined([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], b"a") == b"1, 3"
    assert combined([], b"a") is None


@cases("value, length", (b"12", 12), (b"0", 0), (b"+1", None), (b"1, 1", None), (b"9" * 40, None))
def test_a_content_length_is_digits(value, length):
    assert content_length([(b"content-length", value)]) == length


def test_cookies_have_names():
    fields = [(b"cookie", b"a=1; b = 2;;c"), (b"cookie", b"d=e=f")]
    assert cookie_names(fields) == [b"a", b"b", b"c", b"d"]


# Clients that prefer HTML get it instead of problem details (RFC 9110 §12.5.1)


FIREFOX = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
CHROMIUM = FIREFOX[:-3] + b"0.8,application/signed-exchange;v=b3;q=0.7"


@cases(
    "accept, html",
    *((each, True) for each in (FIREFOX, CHROMIUM, b"text/html", b"TEXT/HTML ; Q=0.1", b"text/*")),
    (b"text/html, application/problem+json;q=0.9", True),
    *((each, True) for each in (b"text/html;q=0.5, */*;q=0.1", b"application/*;q=0.2, text/html;q=0.3")),
    (b"text/html;q=0.9, text/*, application/json", True),
    *((each, False) for each in (b"", b"*/*", b"text/html, */*", b"text/html;q=0.5, */*")),
    *((each, False) for each in (b"text/html, application/*", b"text/html, application/problem+json")),
    *((each, False) for each in (b"application/json, text/plain", b"text/html;q=0")),
    (b"text/*, text/html;q=0", False),  # the more specific range decides
    (b"text/html;level=1", False),  # that is another type
    *((each, False) for each in (b"text/html;level=1;q=0.5", b"text/html;q=2", b"text/html;q=nan")),
    (b"text/html x", False),
    (b"text/html".ljust(LONGEST_ACCEPT), True),
    (b"text/html".ljust(LONGEST_ACCEPT + 1), False),
)
def test_accept_tells_clients_that_prefer_html(accept, html):
    assert prefers_html([(b"host", b"a"), (b"accept", accept)]) is html


def test_several_lines_are_one_list():
    assert prefers_html([(b"accept", b"text/html"), (b"accept", b"*/*;q=0.1")])
    assert not prefers_html([(b"accept", b"text/html"), (b"accept", b"*/*")])
    assert not prefers_html([])


@given(st.binary(max_size=60) | st.text("text/html*;q=01., ", max_size=60).map(str.encode))
def test_quality_is_between_zero_and_one_for_any_accept(accept):
    assert 0 <= quality(accept, b"text/html") <= 1
