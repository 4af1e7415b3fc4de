"""Who gets HTML instead of problem details: who likes it better (RFC 9110 §12.5.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.http.fields import LONGEST_ACCEPT, prefers_html, quality

FIREFOX = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
CHROMIUM = FIREFOX[:-3] + b"0.8,application/signed-exchange;v=b3;q=0.7"


@pytest.mark.parametrize(
    ("accept", "html"),
    [
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
    ],
)
def test_who_prefers_html(accept, html):
    assert prefers_html([(b"host", b"a"), (b"accept", accept)]) is html


def test_several_lines_are_one_list():
    assert prefers_html([(b"accept", b"text/html"), (b"accept", b"*/*;q=0.1")])
    assert not prefers_html([(b"accept", b"text/html"), (b"accept", b"*/*")])
    assert not prefers_html([])


@given(st.binary(max_size=60) | st.text("text/html*;q=01., ", max_size=60).map(str.encode))
def test_whatever_comes_is_read(accept):
    assert 0 <= quality(accept, b"text/html") <= 1
