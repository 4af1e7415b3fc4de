"""The counted spellings: exact while they are few, bounded when there are many, of all processes."""

import asyncio
import json
import subprocess
from dataclasses import replace

import pytest

from examples import cases
from support import an_outcome
from tests.integration.app.conftest import before_admin, client
from univocal.http.messages import Received
from univocal.store.purge_selectors import url_of
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical
from univocal_app.config.tables import validate
from univocal_app.observe import admin_views, top
from univocal_app.observe.top import LONGEST, Spellings
from univocal_app.run.configured import runtime_of

SETTINGS = {"sites": [{"hosts": ["en.example"], "profile": "mediawiki", "upstream": "http://127.0.0.1:1"}]}
CONFIGURATION = validate(SETTINGS, "univocal.toml")


@pytest.fixture(scope="module")
def sites():
    return runtime_of(CONFIGURATION).sites


def outcome(sites, target, status=200, method=b"GET"):
    found = resolve(target, [b"EN.example:80"], b"http", sites)
    canonical = found if isinstance(found, Canonical) else None
    return an_outcome(canonical=canonical, received=Received(method, target), decision=None, status=status)


def test_pages_are_counted_as_they_were_asked_for(sites):
    spellings = Spellings()
    for target in (b"/wiki/A(b)", b"/wiki/A%28b%29", b"/wiki/A(b)", b"http://en.example/wiki/A(b)"):
        spellings(outcome(sites, target))
    spellings(outcome(sites, b"/wiki/A(b)", 304))
    counted = sorted((url_of(key), target, count) for key, target, count in spellings.counted())
    assert counted == [
        (b"http://en.example/wiki/A(b)", b"/wiki/A%28b%29", 1),
        (b"http://en.example/wiki/A(b)", b"/wiki/A(b)", 3),
    ]


@cases(
    "target, status, method",
    (b"/a", 404, b"GET"),
    (b"/a", 500, b"GET"),
    (b"/a", 0, b"GET"),
    (b"/a", 301, b"GET"),
    (b"/a", 200, b"PURGE"),
    (b"/a", 200, b"POST"),
    (b"/%00", 400, b"GET"),
    (b"/" + LONGEST * b"a", 200, b"GET"),
)
def test_responses_that_are_no_pages_are_not_counted(sites, target, status, method):
    spellings = Spellings()
    spellings(outcome(sites, target, status, method))
    assert spellings.counted() == []


@pytest.mark.pure("a bound is replaced")
def test_a_frequent_page_keeps_its_count_in_a_flood(sites, monkeypatch):
    most = 1_000
    monkeypatch.setattr(top, "SPELLINGS", most)
    spellings, often = Spellings(), outcome(sites, b"/often")
    once = outcome(sites, b"/once")
    for number in range(5 * most):
        spellings(replace(once, received=Received(b"GET", b"/once?%d" % number)))
        if number % 20 == 0:
            spellings(often)
    counts = {target: count for _, target, count in spellings.counted()}
    assert len(counts) <= 2 * most
    assert most / 4 <= counts[b"/often"] <= most / 4 + 6


# The admin listener


@pytest.fixture
def stack():
    return before_admin(CONFIGURATION)


async def test_the_admin_listener_discovers_in_what_clients_asked_for(proxy, application, monkeypatch):
    """By one process for all who ask meanwhile; tests/e2e/test_discover.py has what it finds."""
    read = []

    def run(command, **given):
        read.append(sorted(given["input"].splitlines()))
        return subprocess.CompletedProcess(command, 1, b"{}")  # no rules were found

    monkeypatch.setattr(admin_views.subprocess, "run", run)
    async with client(proxy, at="en.example") as browser, client(application) as operator:
        for target in ("/w/", "/w/", "/w/index.html"):
            await browser.get(target)
        answers = await asyncio.gather(*(operator.get("/-/discover") for _ in range(5)))
    told = {(each.status_code, each.content, each.headers["cache-control"]) for each in answers}
    assert told == {(200, b"{}", "no-store")}
    assert read == [[b"1 http://en.example/w/index.html", b"2 http://en.example/w/"]]


async def test_clients_without_purge_rights_see_no_others_requests(application):
    async with client(application, "203.0.113.7") as stranger:
        answer = await stranger.get("/-/discover")
    assert answer.status_code == 403
    assert json.loads(answer.content)["reason"] == "purge-forbidden"
    async with client(application) as operator:
        assert (await operator.post("/-/discover")).status_code == 405
