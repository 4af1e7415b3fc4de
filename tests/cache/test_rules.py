"""The rules of one site: globs on paths and cookies, and the fields that they make the policy read."""

import ast
import inspect
import pickle
from dataclasses import fields

import pytest

from examples import cases
from univocal.cache.rules import READS, SETTINGS, Rules, strip_cookies
from univocal.http.errors import ConfigurationError
from univocal.http.messages import Request


def test_the_policy_reads_cookies_where_a_rule_is_about_them():
    assert Rules().reads == READS
    for told in ({"bypass_cookies": ("a",)}, {"strip_cookies": ("a",)}, {"keep_cookies": ("a",)}):
        assert Rules(**told).reads == READS | {b"cookie"}


def test_cookies_by_name():
    rules = Rules(bypass_cookies=("session?",), strip_cookies=("_*",))
    assert rules.bypasses_cookies([(b"cookie", b"a=session1; session2=x")])
    assert rules.bypasses_cookies([(b"cookie", b"SESSION2=x")])
    assert not rules.bypasses_cookies([(b"cookie", b"a=session1; session=x")])
    assert rules.strips(b"_ga")
    assert not rules.strips(b"ga_")
    request = Request(b"GET", b"/", [(b"cookie", b"_a=1"), (b"x", b"1"), (b"cookie", b"b=2; _c=3")])
    assert strip_cookies(request, rules).fields == [(b"x", b"1"), (b"cookie", b"b=2")]


@cases(
    "rules, taken",
    ({}, []),
    ({"keep_cookies": ["a*"]}, [b"b", b"c"]),
    ({"keep_cookies": ["a*"], "bypass_cookies": ["b"]}, [b"c"]),
    ({"bypass_cookies": ["b"]}, []),
    ({"keep_cookies": ["a*", "c"], "strip_cookies": ["a2"]}, [b"a2", b"b"]),
)
def test_cookies_that_are_taken(rules, taken):
    told = Rules.read(rules)
    assert [name for name in (b"a1", b"a2", b"b", b"c") if told.strips(name)] == taken


def test_a_cookie_that_bypasses_is_kept_in_any_case():
    told = Rules.read({"keep_cookies": ["a*"], "bypass_cookies": ["b"]})
    assert not told.strips(b"B")
    assert told.strips(b"A1")


def test_rules_go_to_other_processes():
    rules = Rules(bypass=("/a*",), ttl=3)
    assert pickle.loads(pickle.dumps(rules)) == rules


def test_rules_are_read_as_files_have_them():
    settings = {
        "ttl": 300,
        "ttl_by_status": {"404": 5},
        "bypass_cookies": ["session*"],
        "strip_tags": True,
        "targeted": ["CDN-Cache-Control", "Ours-Cache-Control"],
    }
    assert Rules.read(settings) == Rules(
        ttl=300,
        ttl_by_status={404: 5},
        bypass_cookies=("session*",),
        strip_tags=True,
        targeted=(b"cdn-cache-control", b"ours-cache-control"),
    )
    assert Rules.read({}) == Rules()


@cases(
    "settings, key, found, allowed",
    ({"tll": 1}, "cache.tll", 1, "the keys ttl, "),
    ({"store": "memory"}, "cache.store", "memory", "the keys ttl, "),
    ({"ttl": True}, "cache.ttl", True, "an integer"),
    ({"ttl_by_status": {"404": -1}}, "cache.ttl_by_status.404", -1, "greater than or equal to 0"),
    ({"ttl_by_status": {"99": 1}}, "cache.ttl_by_status.99", "99", "a status code"),
    ({"ttl_by_status": 3}, "cache.ttl_by_status", 3, "a table"),
    ({"strip_tags": "no"}, "cache.strip_tags", "no", "true or false"),
    ({"client_directives": "obey"}, "cache.client_directives", "obey", "'honour' or 'ignore'"),
    ({"bypass": "/a"}, "cache.bypass", "/a", "an array"),
    ({"bypass": ["/a", 3]}, "cache.bypass[1]", 3, "a text"),
    ({"targeted": ["a b"]}, "cache.targeted[0]", "a b", "the name of a field"),
)
def test_rules_that_cannot_be_read_name_the_setting(settings, key, found, allowed):
    with pytest.raises(ConfigurationError) as refusal:
        Rules.read(settings, "profile x")
    error = refusal.value
    assert (error.source, error.key, error.found) == ("profile x", key, found)
    assert allowed in error.allowed


def test_every_setting_of_the_rules_is_one_that_files_have():
    assert set(SETTINGS) == {name for name in Rules.__match_args__ if name not in {"own_fields", "reads"}}


def test_changed_are_the_settings_that_are_not_the_default():
    assert Rules().changed() == {}
    assert Rules(ttl=5, bypass=("/a",), grace=0).changed() == {"ttl": 5, "bypass": ("/a",)}


def test_type_checkers_know_every_setting():
    """They see a constructor of its own, since settings may be given in other types than they are kept in."""
    (rules,) = (
        each
        for each in ast.parse(inspect.getsource(inspect.getmodule(Rules))).body
        if isinstance(each, ast.ClassDef) and each.name == "Rules"
    )
    (made,) = (
        each for each in ast.walk(rules) if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    )
    assert [each.arg for each in made.args.args[1:]] == [each.name for each in fields(Rules) if each.init]
