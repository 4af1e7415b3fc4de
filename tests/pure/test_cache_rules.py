"""The rules of one site: globs on paths and cookies, and the fields that they make the policy read."""

from __future__ import annotations

import pickle

import pytest

from univocal.cache.rules import READS, Rules, strip_cookies
from univocal.http.messages import Request


@pytest.mark.parametrize(
    ("target", "passes"),
    [(b"/cart", True), (b"/cart?x", True), (b"/cart/x", False), (b"/a/b.php?c", True), (b"/b.php5", False)],
)
def test_globs_on_the_path(target: bytes, passes: bool) -> None:
    assert Rules(bypass=("/cart", "*.php")).passes_path(target) is passes
    assert not Rules().passes_path(target)


def test_the_policy_reads_cookies_where_a_rule_is_about_them() -> None:
    assert Rules().reads == READS
    assert Rules(bypass_cookies=("a",)).reads == READS | {b"cookie"}


def test_cookies_by_name() -> None:
    rules = Rules(bypass_cookies=("session?",), strip_cookies=("_*",))
    assert rules.passes_cookies([(b"cookie", b"a=session1; session2=x")])
    assert not rules.passes_cookies([(b"cookie", b"a=session1; session=x")])
    assert rules.strips(b"_ga")
    assert not rules.strips(b"ga_")
    request = Request(b"GET", b"/", [(b"cookie", b"_a=1"), (b"x", b"1"), (b"cookie", b"b=2; _c=3")])
    assert strip_cookies(request, rules).fields == [(b"x", b"1"), (b"cookie", b"b=2")]


def test_rules_go_to_other_processes() -> None:
    rules = Rules(bypass=("/a*",), ttl=3)
    assert pickle.loads(pickle.dumps(rules)) == rules
