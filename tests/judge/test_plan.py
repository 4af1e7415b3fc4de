"""Plans: which requests are ordinary, by the names of their fields alone."""

import pytest

from examples import cases
from univocal.judge.admission import plan_of

BROWSER = (b"Host", b"User-Agent", b"Accept", b"Accept-Encoding", b"Cookie", b"Connection", b"Referer")


def test_a_browsers_request_is_ordinary_in_any_case():
    plan = plan_of(BROWSER)
    assert plan is not None
    assert plan.names == tuple(name.lower() for name in BROWSER)
    assert (plan.host, plan.agent, plan.connection, plan.referrer, plan.trace) == (0, 1, 5, 6, -1)
    assert (plan.cookie, plan.clean, plan.is_for_another) == (True, True, False)
    assert plan_of(BROWSER) is plan


@cases(
    "name",
    *(b"Range", b"If-None-Match", b"Cache-Control", b"Pragma", b"Content-Length", b"Transfer-Encoding"),
    *(b"Expect", b"Upgrade", b"TE", b"Trailer", b"Proxy-Connection", b"HTTP2-Settings"),
)
def test_names_that_must_be_weighed_have_no_plan(name):
    assert plan_of((b"Host", name)) is None
    assert plan_of((b"Host", b"X-" + name)) is not None


@pytest.mark.parametrize("names", [(), (b"Accept",), (b"Host", b"host"), (b"Host", b"A", b"a")])
def test_nor_is_a_request_with_repeated_or_missing_hosts(names):
    assert plan_of(names) is None


def test_foreign_forwarded_fields_are_noted_and_may_be_removed():
    plan = plan_of((b"Host", b"X-Forwarded-For"))
    assert plan is not None
    assert (plan.is_for_another, plan.clean) == (True, False)
    stranger = plan_of((b"Host", b"X-Original-URL"))
    assert stranger is not None
    assert (stranger.is_for_another, stranger.clean) == (False, False)


@cases("connection, suits", (b"keep-alive", True), (b"Keep-Alive", True), (b"close", False), (b"x", False))
def test_connection_may_say_keep_alive_and_no_more(connection, suits):
    plan = plan_of((b"Host", b"Connection"))
    assert plan is not None
    assert plan.suits([b"en.example", connection]) is suits


def test_values_are_fields_without_the_blanks_behind_them():
    plan = plan_of((b"Host", b"Accept"))
    assert plan is not None
    assert plan.fields([b"en.example \t", b"*/*"]) == [(b"host", b"en.example"), (b"accept", b"*/*")]
