"""`[[sites]]` becomes sites, routes and rules; what cannot be is named by its place in the file."""

import tomllib
from dataclasses import replace

import pytest

from examples import cases
from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, ProfileError
from univocal.http.settings import settings_in
from univocal.judge.runtime import Limits, PlainSettings
from univocal.origin.failures import Timeouts
from univocal.origin.pool import PoolSettings
from univocal.origin.servers import Balancing
from univocal.origin.upkeep import HealthRule
from univocal.server.clients import ConnectionLimits, ReadLimits
from univocal.uri.site import Route
from univocal.uri.sites import resolve
from univocal.uri.target import Canonical, origin_target
from univocal_app.config.tables import (
    HealthTable,
    OriginTable,
    PolicyTable,
    RouteTable,
    ServerTable,
    SiteTable,
    validate,
)
from univocal_app.run.configured import runtime_of

UPSTREAM = 'upstream = "http://127.0.0.1:9001"\n'
SITE = f'[[sites]]\nhosts = ["a"]\n{UPSTREAM}'


# For each plain setting, a value of a route and another of its site.
SETTINGS = {"max_body": (2, 1)}


def runtime(text):
    return runtime_of(validate(tomllib.loads(text), "univocal.toml"))


def found(text, host, target):
    canonical = resolve(target, [host], b"http", runtime(text).sites)
    assert isinstance(canonical, Canonical)
    return canonical


ROUTED = f"""
[[sites]]
hosts = ["en.example"]
profile = "mediawiki"
{UPSTREAM}
[[sites.routes]]
path = "/api/"
profile = "restbase"
upstream = "http://127.0.0.1:9002/v1/"
[[sites.routes]]
path = "/static/"
"""


@cases(
    "target, profile, upstream, sent",
    (b"/wiki/A%2FB", "mediawiki", "sites[0]", b"/wiki/A/B"),
    (b"/api/A%2FB", "restbase", "sites[0].routes[0]", b"/v1/A%2FB"),
    (b"/static/A%2FB", "mediawiki", "sites[0]", b"/static/A/B"),
)
def test_a_route_chooses_profile_and_upstream(target, profile, upstream, sent):
    canonical = found(ROUTED, b"en.example", target)
    assert (canonical.route.profile.name, canonical.route.upstream) == (profile, upstream)
    assert origin_target(canonical) == sent


def test_a_site_for_every_host_is_asked_last():
    text = f'[[sites]]\nhosts = ["*"]\n{UPSTREAM}[[sites]]\nhosts = ["en.example"]\n{UPSTREAM}'
    assert found(text, b"en.example", b"/").site.name == "en.example"
    assert found(text, b"other.example:8080", b"/").site.name == "*"


def test_rules_of_a_site_over_those_for_all():
    text = f"""
    [cache]
    ttl = 5
    grace = 7
    set_cookie = "explicit"
    errors = "explicit"
    heuristic = true
    ordinary_fields = ["X-Request-Id"]
    [[sites]]
    hosts = ["a.example"]
    {UPSTREAM}
    [sites.cache]
    ttl = 60
    heuristic = false
    errors = "safe"
    ttl_by_status = {{ 404 = 1 }}
    bypass_cookies = ["session*"]
    targeted = ["Univocal-Cache-Control"]
    [[sites]]
    hosts = ["b.example"]
    {UPSTREAM}
    """
    settings = runtime(text).settings
    own, other = settings["a.example"].rules, settings["b.example"].rules
    assert (own.ttl, own.grace, own.set_cookie, own.ttl_by_status) == (60, 7, "explicit", {404: 1})
    assert own.ordinary_fields == (b"x-request-id",)
    assert (own.errors, own.heuristic, other.errors, other.heuristic) == ("safe", False, "explicit", True)
    assert (own.bypass_cookies, own.targeted) == (("session*",), (b"univocal-cache-control",))
    assert (other.ttl, other.grace, other.ttl_by_status, other.targeted) == (
        5,
        7,
        {},
        (b"cdn-cache-control",),
    )


@pytest.fixture
def with_profiles(tmp_path):
    """with_profiles(text): the runtime of a file beside a directory of profiles with cache settings."""
    (tmp_path / "profiles").mkdir()
    for name, text in {
        "blog": 'extends = "rfc3986"\n[cache]\nttl = 300\nbypass_cookies = ["wp_*"]\n',
        "forum": 'extends = "blog"\n[cache]\nttl = 30\n',
    }.items():
        (tmp_path / "profiles" / f"{name}.toml").write_text(text)
    file = tmp_path / "univocal.toml"

    def read(text):
        return runtime_of(validate(tomllib.loads(f'profiles = ["./profiles"]\n{text}'), str(file)))

    return read


@cases(
    "text, target, rules",
    ('profile = "blog"', b"/", Rules(ttl=300, bypass_cookies=("wp_*",))),
    ('profile = "forum"', b"/", Rules(ttl=30, bypass_cookies=("wp_*",))),
    ('profile = "blog"\ncache = { ttl = 7 }', b"/", Rules(ttl=7, bypass_cookies=("wp_*",))),
    ('profile = "blog"\ncache = { bypass_cookies = [] }', b"/", Rules(ttl=300)),
    ('routes = [{ path = "/f/", profile = "forum" }]', b"/", Rules(grace=9)),
    (
        'routes = [{ path = "/f/", profile = "forum" }]',
        b"/f/",
        Rules(grace=9, ttl=30, bypass_cookies=("wp_*",)),
    ),
    (
        'profile = "forum"\ncache = { ttl = 7 }\nroutes = [{ path = "/f/", profile = "rfc3986" }]',
        b"/f/",
        Rules(grace=9, ttl=7),
    ),
)
def test_a_profiles_rules_are_below_those_of_its_site(with_profiles, text, target, rules):
    made = with_profiles(f"{SITE}{text}\n")
    for_all = with_profiles(f"[cache]\ngrace = 9\nttl = 1\nbypass_cookies = []\n{SITE}{text}\n")
    for each, grace in ((made, 0), (for_all, 9)):
        canonical = resolve(target, [b"a"], b"http", each.sites)
        expected = replace(rules, grace=grace)
        if each is for_all and rules.ttl == 0:
            expected = replace(expected, ttl=1)
        assert each.rules_of(canonical) == expected


@cases(
    "text, key, allowed",
    ("[cache]\nttl = -1\n", "cache.ttl", "greater than or equal to 0"),
    ('[cache]\nstore = "memory"\n', "cache.store", "the keys ttl"),
    ("cache = 3\n", "cache", "a table"),
)
def test_a_profiles_invalid_rules_are_named_with_its_file(with_profiles, tmp_path, text, key, allowed):
    file = tmp_path / "profiles" / "wrong.toml"
    file.write_text(text)
    with pytest.raises(ProfileError, match=allowed) as refusal:
        with_profiles(SITE)
    assert (refusal.value.source, refusal.value.key) == (str(file), key)


def test_every_plain_setting_of_a_table_reaches_its_route():
    """A route's, else its site's: no module between the class and the table names a setting."""
    for key, setting in settings_in(PlainSettings).items():
        assert {key} <= SiteTable.model_fields.keys() & RouteTable.model_fields.keys()
        own, around = SETTINGS[key]
        built = runtime(
            f"{SITE}{key} = {around}\n[[sites.routes]]\npath = '/own/'\n{key} = {own}\n"
            "[[sites.routes]]\npath = '/other/'\n"
        )
        for target, value in ((b"/own/", own), (b"/other/", around), (b"/", around)):
            canonical = resolve(target, [b"a"], b"http", built.sites)
            plain = built.settings_of(canonical.site.name, canonical.route.prefix).plain
            assert getattr(plain, key) == setting.read(value), target
    assert settings_in(Route).keys() <= SiteTable.model_fields.keys() & RouteTable.model_fields.keys()


@cases(
    "table, kinds",
    (ServerTable, [Limits, ReadLimits, ConnectionLimits]),
    (OriginTable, [Balancing, PoolSettings, Timeouts]),
    (HealthTable, [HealthRule]),
    (PolicyTable, [Rules]),
)
def test_a_table_without_settings_means_the_librarys_defaults(table, kinds):
    for kind in kinds:
        others = {"path": "/"} if table is HealthTable else {}
        plain = table(**others).fill(kind, **({"trace": True} if kind is Limits else {}))
        assert plain == (kind(b"/") if others else kind())


def test_limits_trust_and_purge(monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    server = '[server]\nmax_body = "1 KiB"\nmax_target = 9\ncache_status = "key"\ntrusted_proxies = ["::1"]\n'
    purge = '[purge]\nallow = ["192.0.2.0/24"]\ntoken_env = "TOKEN"\n'
    built = runtime(f'{server}{purge}[[sites]]\nhosts = ["*"]\n{UPSTREAM}')
    assert (built.limits.max_body, built.limits.max_target, built.cache_status) == (1024, 9, "key")
    assert [str(network) for network in built.trusted] == ["::1/128"]
    assert ([str(network) for network in built.purging.networks], built.purging.token) == (
        ["192.0.2.0/24"],
        b"s3cret",
    )


@cases(
    "text, key, said",
    (SITE.replace('"a"', '"a b"'), "sites[0].hosts", "a b"),
    (SITE + 'aliases = ["*.b"]', "sites[0].aliases", "*.b"),
    (SITE + SITE.replace('"a"', '"A."'), "sites[1].hosts", "A."),
    (SITE + SITE.replace('"a"', '"b", "a"'), "sites[1].hosts", "a"),
    (SITE.replace('"a"', '"*"') * 2, "sites", "*"),
    (SITE.replace('"a"', '"*"') + 'aliases = ["a"]', "sites[0].aliases", "a"),
    (SITE + 'profile = "x"', "sites[0].profile", "x"),
    (SITE + '[[sites.routes]]\npath = "/a%2e/"', "sites[0].routes[0].path", "/a%2e/"),
    (SITE + '[[sites.routes]]\npath = "/a"\nprofile = "x"', "sites[0].routes[0].profile", "x"),
    (SITE + '[[sites.routes]]\npath = "/a"\n' * 2, "sites[0].routes", "/a"),
    (
        SITE + '[[sites.routes]]\npath = "/a"\n[sites.routes.origin]\nhealth = {}',
        "sites[0].routes[0].origin",
        "health",
    ),
    *(
        (SITE + f'[sites.cache]\nkey = ["header:X-A", "{part}"]', "sites[0].cache.key[1]", part)
        for part in ("X-B", "cookie:a", "header:", "header:X B", "header:Cookie", "header:X-Forwarded-Host")
    ),
    (SITE.replace("9001", "9001/../c"), "sites[0].upstream", "/../c"),
    (SITE.replace("9001", "9001/{1}/"), "sites[0].upstream", "/{1}/"),
    (SITE.replace("9001", "9001/{2}/"), "sites[0].upstream", "/{2}/"),
)
def test_the_place_of_what_cannot_be(text, key, said):
    with pytest.raises(ConfigurationError) as refusal:
        runtime(text)
    assert (refusal.value.source, refusal.value.key) == ("univocal.toml", key)
    assert said in str(refusal.value.found)


def test_an_impossible_token_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("UNIVOCAL_PURGE_TOKEN", "two words")
    with pytest.raises(ConfigurationError) as refusal:
        runtime(SITE)
    assert "two words" not in str(refusal.value)
