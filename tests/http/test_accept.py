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
        (FIREFOX, True),
        (CHROMIUM, True),
        (b"text/html", True),
        (b"TEXT/HTML ; Q=0.1", True),
        (b"text/*", True),
        (b"text/html, application/problem+json;q=0.9", True),
        (b"text/html;q=0.5, */*;q=0.1", True),
        (b"application/*;q=0.2, text/html;q=0.3", True),
        (b"text/html;q=0.9, text/*, application/json", True),
        (b"", False),
        (b"*/*", False),
        (b"text/html, */*", False),
        (b"text/html;q=0.5, */*", False),
        (b"text/html, application/*", False),
        (b"text/html, application/problem+json", False),
        (b"application/json, text/plain", False),
        (b"text/html;q=0", False),
        (b"text/*, text/html;q=0", False),  # the more specific range decides
        (b"text/html;level=1", False),  # that is another type
        (b"text/html;level=1;q=0.5", False),
        (b"text/html;q=2", False),
        (b"text/html;q=nan", False),
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
