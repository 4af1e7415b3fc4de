"""univocal.toml: what is read, and how what cannot be is refused."""

import tomllib
from math import inf

import pytest

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.origin.upkeep import HealthRule
from univocal_app.config.files import line_of, parsed, substituted
from univocal_app.config.tables import validate
from univocal_app.config.values import Address, UpstreamSetting, Weighted

SITE = '[[sites]]\nhosts = ["en.example"]\nupstream = "http://127.0.0.1:9001"\n'

# A file with every setting that this version knows.
WHOLE = """
profiles = ["./profiles"]
[server]
listen = "127.0.0.1:8080"
admin = "[::1]:8081"
workers = 1
trusted_proxies = ["127.0.0.1/32", "::1/128"]
cache_status = "key"
access_log = "off"
access_log_format = "combined"
max_body = "0"
max_target = 8192
max_fields = 100
max_field_bytes = "64 KiB"
max_connections_per_client = 0
tls_cert = "server.pem"
tls_key = "server.key"
http2 = true
[origin]
connect_timeout = 5
read_timeout = 0.5
max_connections = 1000
max_idle = 0
health = { path = "/healthz?a", interval = 5, timeout = 2, status = "200-399", rises = 2, falls = 3 }
[cache]
store = "memory"
max_bytes = "256 MiB"
max_object_bytes = "16 MB"
ttl = 0
heuristic = true
set_cookie = "explicit"
errors = "explicit"
grace = 10
bypass_cookies = ["session*"]
client_directives = "ignore"
[purge]
allow = ["127.0.0.0/8", "2001:db8::/32", "192.0.2.7"]
token_env = "UNIVOCAL_PURGE_TOKEN"
[[sites]]
hosts = ["en.example", "*.wiki.example"]
aliases = ["www.en.example", "192.0.2.7"]
alias_answer = 308
canonical = "link"
scheme = "https"
tls_cert = "en.pem"
tls_key = "en.key"
profile = "mediawiki"
upstream = "http://127.0.0.1:9001"
origin_host = "upstream"
[sites.cache]
ttl = 60
ttl_by_status = { 404 = 5 }
[sites.origin]
read_timeout = 5
health = {}
[[sites.routes]]
path = "/api/rest_v1/"
profile = "restbase"
upstream = "http://127.0.0.1:9002/v1/"
"""


def test_the_whole_file():
    configuration = validate(tomllib.loads(WHOLE), "univocal.toml")
    server, (site,) = configuration.server, configuration.sites
    assert (server.listen, server.admin) == ((Address("127.0.0.1", 8080),), (Address("::1", 8081),))
    assert (server.max_body, server.max_field_bytes) == (0, 65536)
    assert (configuration.cache.max_bytes, configuration.cache.max_object_bytes) == (
        256 * 1024**2,
        16_000_000,
    )
    assert configuration.purge.allow == ["127.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]
    health = configuration.origin.health
    assert health.fill(HealthRule) == HealthRule(b"/healthz?a", 5, 2, frozenset(range(200, 400)), 2, 3)
    assert site.alias_answer == 308
    assert site.canonical == "link"
    assert site.cache.ttl_by_status == {"404": 5}
    assert site.routes[0].upstream is not None
    assert site.routes[0].upstream == UpstreamSetting((Weighted("http://127.0.0.1:9002"),), "/v1/")


@cases(
    "written, servers, path",
    ("http://a:1", [("http://a:1", 1)], ""),
    ("http://a:1/b/", [("http://a:1", 1)], "/b/"),
    (["http://a:1/b"], [("http://a:1", 1)], "/b"),
    (["http://a", "http://a:81", "unix:///a"], [("http://a", 1), ("http://a:81", 1), ("unix:///a", 1)], ""),
    (["http://a/b", {"url": "https://a/b", "weight": 2}], [("http://a", 1), ("https://a", 2)], "/b"),
    ([{"url": "http://a", "weight": 1000}], [("http://a", 1000)], ""),
    (["http://a", {"url": "http://b", "backup": True}], [("http://a", 1), ("http://b", 1, True)], ""),
)
def test_an_upstream_is_one_origin_server_or_several(written, servers, path):
    configuration = validate({"sites": [{"hosts": ["a"], "upstream": written}]}, "univocal.toml")
    upstream = configuration.sites[0].upstream
    assert upstream == (tuple(Weighted(*server) for server in servers), path)
    told = configuration.model_dump(mode="json")["sites"][0]["upstream"]
    assert validate({"sites": [{"hosts": ["a"], "upstream": told}]}, "").sites[0].upstream == upstream


def test_defaults_are_those_of_the_contract():
    configuration = validate(tomllib.loads(SITE), "univocal.toml")
    assert [str(each) for each in configuration.server.listen] == ["127.0.0.1:8080"]
    assert [str(each) for each in configuration.server.admin] == ["127.0.0.1:8081"]
    assert configuration.server.max_target == 8192
    assert configuration.server.upgrades == ["websocket"]
    cache = configuration.cache
    assert (cache.heuristic, cache.set_cookie, cache.errors) == (False, "never", "safe")
    assert configuration.purge.token_env == "UNIVOCAL_PURGE_TOKEN"
    assert configuration.sites[0].profile == "rfc3986"


@cases(
    "text, key, found, allowed",
    ("# no sites", "sites", None, "no default"),
    ("sites = []", "sites", [], "at least one"),
    ("sites = 3", "sites", 3, "an array"),
    ("[sites]\nhosts = ['a']", "sites", {"hosts": ["a"]}, "an array"),
    ("cache = 3", "cache", 3, "a table"),
    ("[serve]", "serve", {}, "profiles, include, server, origin, cache, purge, request, response, sites"),
    ("[server]\nlistn = 'x'", "server.listn", "x", "listen, admin, listen_tls, https_redirect"),
    ("[server]\nlisten = 'x'", "server.listen", "x", "HOST:PORT"),
    ("[server]\nlisten = '127.0.0.1:65536'", "server.listen", "127.0.0.1:65536", "HOST:PORT"),
    ("[server]\nlisten = 8080", "server.listen", 8080, "HOST:PORT"),
    ("[server]\nworkers = true", "server.workers", True, "an integer"),
    ("[server]\nworkers = 0", "server.workers", 0, "greater than or equal to 1"),
    ("[server]\ntls_cert = 3", "server.tls_cert", 3, "a text"),
    ("[server]\ncache_status = 'on'", "server.cache_status", "on", "'plain', 'key' or 'off'"),
    ("[server]\nmax_body = '3 XB'", "server.max_body", "3 XB", "256 MiB"),
    ("[server]\nmax_body = -1", "server.max_body", -1, "256 MiB"),
    ("[server]\nmax_fields = '100'", "server.max_fields", "100", "an integer"),
    ("[server]\nupgrades = ['h2c']", "server.upgrades[0]", "h2c", "past every check"),
    ("[server]\nupgrades = ['HTTP/2.0']", "server.upgrades[0]", "HTTP/2.0", "past every check"),
    ("[server]\nupgrades = ['a b']", "server.upgrades[0]", "a b", 'such as "websocket"'),
    ("[server]\nupgrades = 'websocket'", "server.upgrades", "websocket", "an array"),
    ("[server]\nupgrade_timeout = 0", "server.upgrade_timeout", 0, "greater than 0"),
    ("[server]\ntrusted_proxies = ['10.0.0.1/8']", "server.trusted_proxies[0]", "10.0.0.1/8", "host bits"),
    ("[origin]\nconnect_timeout = 0", "origin.connect_timeout", 0, "greater than 0"),
    ("[origin]\nread_timeout = inf", "origin.read_timeout", float("inf"), "finite"),
    ("[cache]\nstore = 'redis//127.0.0.1/0'", "cache.store", "redis//127.0.0.1/0", "redis://HOST:PORT/DB"),
    ("[cache]\nstore = 'http://a:secret@b'", "cache.store", "http://***@b", "redis://HOST:PORT/DB"),
    ("[cache]\ndetached_ttl = 0", "cache.detached_ttl", 0, "greater than 0"),
    ("[cache]\nttl = true", "cache.ttl", True, "an integer"),
    ("[cache]\nttl = -1", "cache.ttl", -1, "greater than or equal to 0"),
    ("[cache]\nttl_by_status = { 99 = 1 }", "cache.ttl_by_status.99", "99", "a status code"),
    ("[cache]\nheuristic = 1", "cache.heuristic", 1, "true or false"),
    ('[cache]\nordinary_fields = ["Cookie"]', "cache.ordinary_fields[0]", "cookie", "identifies a client"),
    ('[cache]\nerrors = "all"', "cache.errors", "all", "'safe' or 'explicit'"),
    ("[purge]\nallow = ['everybody']", "purge.allow[0]", "everybody", "a network"),
    ("[purge]\ntoken = 'secret'", "purge.token", "secret", "allow, token_env"),
    (SITE + "profile = 3", "sites[0].profile", 3, "a text"),
    (SITE + "alias_answer = 302", "sites[0].alias_answer", 302, "'serve', 301 or 308"),
    (SITE + "canonical = 302", "sites[0].canonical", 302, "'serve', 301, 308 or 'link'"),
    (SITE + "redirect = { to = '/', status = 200 }", "sites[0].redirect.status", 200, "301, 302"),
    (SITE + "[sites.cache]\nmax_bytes = 1", "sites[0].cache.max_bytes", 1, "ttl, ttl_by_status"),
    *(
        (f"[origin]\nhealth = {{ {settings} }}", f"origin.health{key}", found, allowed)
        for settings, key, found, allowed in (
            ("interval = 5", ".path", None, "no default"),
            ("path = 'healthz'", ".path", "healthz", "a path"),
            ("path = '/a b'", ".path", "/a b", "a path"),
            ("path = '/a#b'", ".path", "/a#b", "a path"),
            ("path = '/', interval = 0", ".interval", 0, "greater than 0"),
            ("path = '/', timeout = '2w'", ".timeout", "2w", "a number of seconds"),
            ("path = '/', status = 200", ".status", 200, '"200-399"'),
            ("path = '/', status = '2xx'", ".status", "2xx", '"200-399"'),
            ("path = '/', rises = 0", ".rises", 0, "greater than or equal to 1"),
            ("path = '/', falls = 1.5", ".falls", 1.5, "an integer"),
            ("path = '/', fall = 3", ".fall", 3, "path, interval, timeout, status, rises, falls"),
        )
    ),
    ("[origin]\nhealth = '/'", "origin.health", "/", "a table"),
    ("[origin]\nhealth = 0", "origin.health", 0, "a table"),
    (SITE + "[sites.origin]\nhealth = { path = 1 }", "sites[0].origin.health.path", 1, "a path"),
    (
        "[[sites]]\nhosts = ['a']\nupstream = 'http://{host}/'",
        "sites[0].upstream",
        "http://{host}/",
        "an http",
    ),
    *(
        (
            SITE + f"[sites.access]\n{key} = {{ '{subject}' = {text} }}",
            f"sites[0].access.{key}.{subject}",
            found,
            allowed,
        )
        for key, subject, text, found, allowed in (
            ("refuse", "header:User-Agent", '"~bot\\nx"', "~bot\nx", "without a newline"),
            ("require", "header:User-Agent", '"a\\nx"', "a\nx", "without a newline"),
            ("refuse", "cookie:a", '"~\u00e9"', "~\u00e9", "ASCII"),
            ("refuse", "method", "['PUT', 'PURGE']", ["PUT", "PURGE"], "[purge] says"),
        )
    ),
    (SITE + "[[sites.routes]]\npath = 'a'", "sites[0].routes[0].path", "a", "begins with a slash"),
    (SITE + "[[sites.routes]]\nprofile = 'asgi'", "sites[0].routes[0].path", None, "no default"),
    ("[[sites]]\nhosts = []\nupstream = 'http://a'", "sites[0].hosts", [], "at least one"),
    ("[[sites]]\nhosts = ['a']\nupstrem = 'http://a'", "sites[0].upstrem", "http://a", "hosts, aliases"),
    *(
        (f"[[sites]]\nhosts = ['a']\nupstream = {value}", f"sites[0].upstream{place}", found, allowed)
        for value, place, found, allowed in (
            ("[]", "", [], "at least one"),
            ("['http://a', 'ftp://b']", "[1]", "ftp://b", "an http or https URL"),
            ("'http://[:::]'", "", "http://[:::]", "an http or https URL"),
            ("'http://999.1.1.1'", "", "http://999.1.1.1", "an http or https URL"),
            ("['http://a', 'http://xn--zz']", "[1]", "http://xn--zz", "an http or https URL"),
            ("'http://b\u00fccher.example'", "", "http://b\u00fccher.example", "an http or https URL"),
            ("['http://a', 3]", "[1]", 3, "a table with url and weight"),
            ("['http://a', {weight = 2}]", "[1]", {"weight": 2}, "a table with url and weight"),
            ("['http://a', {url = 'http://b', weight = 0}]", "[1].weight", 0, "from 1 to 1000"),
            ("['http://a', {url = 'http://b', weight = 1001}]", "[1].weight", 1001, "from 1 to 1000"),
            ("['http://a', {url = 'http://b', weight = true}]", "[1].weight", True, "from 1 to 1000"),
            ("['http://a', {url = 'http://b', wait = 1}]", "[1].wait", 1, "url, weight"),
            ("['http://a', 'http://b', 'http://a']", "[2]", "http://a", "once"),
            ("['http://a/x', 'http://b/y']", "[1]", "http://b/y", "with the path '/x'"),
            ("['http://a', 'http://b/']", "[1]", "http://b/", "without a path"),
            ("{url = 'http://a'}", "", {"url": "http://a"}, "an http or https URL"),
        )
    ),
    ("[origin]\nchoice = 'random'", "origin.choice", "random", "'round-robin', 'least-requests'"),
    ("[origin]\nretries = -1", "origin.retries", -1, "greater than or equal to 0"),
    ("[origin]\nretry_budget = -0.1", "origin.retry_budget", -0.1, "greater than or equal to 0"),
    ("[origin]\nretry_budget = inf", "origin.retry_budget", inf, "finite"),
    ("[origin]\nfails = 0", "origin.fails", 0, "greater than or equal to 1"),
    (SITE + "[sites.origin]\neject = 0", "sites[0].origin.eject", 0, "greater than 0"),
    *(
        (f"[[sites]]\nhosts = ['a']\nupstream = '{url}'", "sites[0].upstream", url, "an http or https URL")
        for url in (
            *("ftp://a", "a:80", "http://", "http://a:0", "http://a:65536", "http://u@a", "http://a/?q"),
            *("http://a/#f", "unix:", "unix://", "unix:///", "unix:/run/app.sock", "unix://run/app.sock"),
            *("unix:///run/app.sock/", "unix:///run/app.sock:/path", "unix:///run/app.sock?a"),
            *("unix:///run/app sock", "unix:///" + 107 * "a"),
        )
    ),
)
def test_an_invalid_setting_is_refused_with_its_key(text, key, found, allowed):
    whole = text if "sites" in text else f"{text}\n{SITE}"
    with pytest.raises(ConfigurationError) as refusal:
        validate(tomllib.loads(whole), "univocal.toml")
    assert refusal.value.source == "univocal.toml"
    assert refusal.value.key == key
    assert refusal.value.found == found
    assert allowed in refusal.value.allowed
    assert "\n" not in str(refusal.value)


@cases("content, allowed", (None, "readable"), (b"a = \xff", "UTF-8"), (b"a = ", "TOML"))
def test_a_file_that_cannot_be_read(tmp_path, content, allowed):
    file = tmp_path / "univocal.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=allowed) as refusal:
        parsed(file)
    assert refusal.value.source == str(file)


@cases("text, octets", ("0", 0), ("1024", 1024), ("1 KiB", 1024), ("1kB", 1000), ("2 GiB", 2**31), ("3 B", 3))
def test_a_size_may_have_a_unit(text, octets):
    settings = {"server": {"max_body": text}, **tomllib.loads(SITE)}
    assert validate(settings, "univocal.toml").server.max_body == octets


LINES = """# a comment
profiles = [
  "./profiles",  # one of our own
]

[server]
listen = "127.0.0.1:8080"
origin.read_timeout = 5
origin.connect_timeout = 5

[[sites]]
hosts = ["a"]
text = '''
[[sites]]
hosts = 3
'''
cache = { ttl = 1, grace = 2 }

[[sites]]
"hosts" = ["b"]
[sites.cache]
ttl = 3
[[sites.routes]]
path = "/x/"
[[sites.routes]]
path = "/y/"
[[sites]]
origin.health.path = "/h"
[[sites.routes]]
path = "/z/"
"""


@cases(
    "key, line",
    ("profiles", 2),
    ("profiles[0]", 2),
    ("server", 6),
    ("server.listen", 7),
    ("server.admin", 6),
    ("server.origin.connect_timeout", 9),
    ("sites[0]", 11),
    ("sites[0].hosts", 12),
    ("sites[0].text", 13),
    ("sites[0].cache.grace", 17),
    ("sites[1].hosts[0]", 20),
    ("sites[1].cache.ttl", 22),
    ("sites[1].cache.grace", 21),
    ("sites[1].routes[0].path", 24),
    ("sites[1].routes[1].profile", 25),
    ("sites[2].hosts", 27),
    ("sites[2].origin.health.path", 28),
    ("sites[2].routes[0].path", 30),
    ("sites[3].hosts", 0),
    ("cache.store", 0),
    ("", 0),
)
def test_the_line_of_a_setting(key, line):
    assert line_of(LINES, key) == line


def test_settings_without_what_cannot_be():
    sites = [{"hosts": ["a"], "upstream": ["http://a", "x"]}, {"hosts": 3}]
    settings = {"server": {"listen": 3, "admin": "a"}, "sites": sites}
    keys = ["server.listen", "cache.ttl", "sites[1].hosts", "sites[1].upstream", "sites[0].upstream[1]"]
    rest = substituted(settings, keys)
    assert rest["server"] == {"admin": "a"}
    assert rest["sites"][0] == {"hosts": ["a"], "upstream": "http://127.0.0.1"}
    assert rest["sites"][1] == {"hosts": ["substitute-2.invalid"], "upstream": "http://127.0.0.1"}
    assert settings["server"] == {"listen": 3, "admin": "a"}


def test_a_setting_that_is_missing_is_called_missing():
    with pytest.raises(ConfigurationError, match=r": sites: missing: this setting has no default$"):
        validate({}, "univocal.toml")
