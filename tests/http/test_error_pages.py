"""Error pages of the operator's own."""

import pytest

from univocal.http.problem import ErrorPages, page_fault

PAGES = ErrorPages(
    {"400-encoded-slash.html": b"slash", "400.html": b"bad", "4xx.html": b"yours", "5xx.html": b"ours"}
)


@pytest.mark.parametrize(
    ("reasons", "status", "content"),
    [
        (("encoded-slash",), 400, b"slash"),
        (("backslash", "encoded-slash"), 400, b"bad"),  # the first in the order of reasons
        (("dot-segment",), 400, b"bad"),
        (("too-many-requests",), 429, b"yours"),
        (("origin-unreachable",), 502, b"ours"),
    ],
)
def test_the_most_specific_page_is_shown(reasons, status, content):
    page = PAGES.page(reasons)
    assert page is not None
    assert (page.status, page.body) == (status, content)
    assert dict(page.fields)[b"content-length"] == b"%d" % len(content)


def test_without_a_page_there_is_none():
    assert ErrorPages({"502.html": b""}).page(("origin-timeout",)) is None


@pytest.mark.parametrize("name", ["502.html", "5xx.html", "4xx.html", "400-encoded-slash.html", "404.html"])
def test_names_of_pages(name):
    assert page_fault(name) == ""


@pytest.mark.parametrize(
    "name", ["index.html", "200.html", "502-encoded-slash.html", "400-encoded.html", "50x.html"]
)
def test_names_that_are_none(name):
    assert page_fault(name)
