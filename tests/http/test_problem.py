"""Problem details and pages of HTML, and error pages of the operator's own."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest

from examples import cases
from univocal.http.errors import REASONS
from univocal.http.problem import ErrorPages, fault, page_fault, problem

BROWSER = [(b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")]
PROGRAM = [(b"accept", b"*/*")]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_its_body(reason):
    answer = problem([reason])
    details = json.loads(answer.body)
    status, sentence = REASONS[reason]
    assert answer.status == status
    assert set(details) == {"type", "title", "status", "detail", "reason", "reasons"}
    assert (details["status"], details["reason"], details["reasons"]) == (status, reason, [reason])
    assert details["type"] == "about:blank"
    assert details["detail"] == sentence + "."
    assert dict(answer.fields)[b"content-length"] == b"%d" % len(answer.body)
    assert dict(answer.fields)[b"content-type"] == b"application/problem+json"
    assert dict(answer.fields)[b"cache-control"] == b"no-store"


def test_the_first_reason_by_rank_gives_the_status():
    answer = problem(["unknown-host", "above-root", "bad-escape", "above-root"])
    details = json.loads(answer.body)
    assert answer.status == 400
    assert details["title"] == "Bad Request"
    assert details["reason"] == "bad-escape"
    assert details["reasons"] == ["bad-escape", "above-root", "unknown-host"]


def test_an_unknown_reason_is_a_mistake_of_the_caller():
    with pytest.raises(KeyError):
        problem(["no-such-reason"])


class Text(HTMLParser):
    """The elements of a document, and its text."""

    def __init__(self, document):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in {"style", "src", "href"}]

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("reason", REASONS)
def test_a_browser_gets_a_page_that_says_the_same(reason):
    answer, details = problem([reason], BROWSER), json.loads(problem([reason]).body)
    fields = dict(answer.fields)
    assert answer.status == details["status"]
    assert fields[b"content-type"] == b"text/html; charset=utf-8"
    assert fields[b"content-length"] == b"%d" % len(answer.body)
    assert (fields[b"cache-control"], fields[b"vary"]) == (b"no-store", b"Accept")
    page = Text(answer.body.decode())
    assert f"{details['status']} {details['title']}" in page.text
    assert details["detail"] in page.text
    assert reason in page.text
    assert not {"script", "link", "img", "iframe", "form"} & {*page.elements}


def test_the_pages_policy_allows_only_its_own_style():
    answer = problem(["bad-host"], BROWSER)
    policy = dict(answer.fields)[b"content-security-policy"]
    (style,) = re.findall(rb"<style>(.*?)</style>", answer.body, re.DOTALL)
    assert policy.startswith(
        b"default-src 'none'; style-src 'sha256-%b'; " % b64encode(sha256(style).digest())
    )
    assert b"unsafe" not in policy


def test_all_reasons_are_on_the_page_the_first_decides():
    answer = problem(["unknown-host", "above-root", "bad-escape"], BROWSER)
    assert answer.status == 400
    assert re.search(rb"bad-escape.*above-root.*unknown-host", answer.body)


def test_a_negotiated_problem_varies_by_accept():
    for asked in (PROGRAM, [], [(b"accept", b"text/html;q=0")]):
        answer = problem(["bad-host"], asked)
        assert answer.body == problem(["bad-host"]).body
        assert (b"vary", b"Accept") in answer.fields
    assert b"vary" not in dict(problem(["bad-host"]).fields)


@pytest.mark.parametrize(("asked", "kind"), [(BROWSER, b"text/html"), (PROGRAM, b"application/problem+json")])
def test_a_fault_is_told_in_the_same_two_forms(asked, kind):
    answer = fault(asked)
    assert answer.status == 500
    assert dict(answer.fields)[b"content-type"].startswith(kind)
    assert (b"vary", b"Accept") in answer.fields
    assert b"internal-error" in answer.body


# Error pages of the operator's own


PAGES = ErrorPages(
    {"400-encoded-slash.html": b"slash", "400.html": b"bad", "4xx.html": b"yours", "5xx.html": b"ours"}
)


@cases(
    "reasons, status, content",
    (("encoded-slash",), 400, b"slash"),
    (("backslash", "encoded-slash"), 400, b"bad"),  # the first in the order of reasons
    (("dot-segment",), 400, b"bad"),
    (("too-many-requests",), 429, b"yours"),
    (("origin-unreachable",), 502, b"ours"),
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


@cases("name", "index.html", "200.html", "502-encoded-slash.html", "400-encoded.html", "50x.html")
def test_names_that_are_none(name):
    assert page_fault(name)
