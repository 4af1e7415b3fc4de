"""A program calls the middleware's own functions: purge, profiles, tiers and listeners."""

import asyncio
import re
from pathlib import Path

import pytest
from starlette.applications import Starlette

from examples import cases
from neighbours import OWN_ANSWERS, configured, everywhere
from univocal import (
    CacheMiddleware,
    ConfigurationError,
    MemoryStore,
    ProfileError,
    RefusedError,
    Rules,
    Site,
    Timeouts,
    builtin_profiles,
    canonicalize,
)
from univocal.judge.runtime import PlainSettings
from univocal.store import compression

URL = "http://en.example/a"
STORES = 'a MemoryStore, Tiers, "memory", or the URL of a Redis (redis://…) or of a directory (file:///PATH)'


@pytest.fixture
async def warm(cached):
    """A client of a cache that holds /a and /b, and what its listener heard since."""
    outcomes = []
    client = cached(listeners=[outcomes.append])
    for target in ("/a", "/b"):
        await client(target)
    outcomes.clear()
    return client, outcomes


@cases(
    "urls, named, count, gone, by",
    (["http://en.example/%61"], {}, 1, {"/a"}, "key"),
    ([URL, "https://en.example/b"], {}, 2, {"/a", "/b"}, "urls"),
    (["http://en.example/c"], {}, 0, set(), "key"),
    ([], {"prefix": "http://en.example/"}, 2, {"/a", "/b"}, "prefix"),
    ([], {"tag": "none"}, 0, set(), "tag"),
    ([], {"everything": True}, 2, {"/a", "/b"}, "all"),
    ([], {"pattern": "/a$"}, 0, {"/a"}, "pattern"),
    ([URL], {"prefix": "http://en.example/b"}, 2, {"/a", "/b"}, "key prefix"),
    ([URL], {"tag": "none"}, 1, {"/a"}, "key tag"),
)
async def test_the_application_purges_what_it_names(warm, urls, named, count, gone, by):
    client, outcomes = warm
    assert await client.app.purge(*urls, **named) == count
    told = [(each.status, each.purged.order.by, each.received.method) for each in outcomes]
    assert told == [(200, each, b"PURGE") for each in by.split()]
    for target in ("/a", "/b"):
        assert ("hit" in (await client(target)).handling) == (target not in gone)


@cases(
    "urls, named, error, told",
    ([], {}, ValueError, 'purge: found nothing to purge; allowed: URLs, tag="…", prefix="…"'),
    (["/a"], {}, ValueError, "purge: found '/a'; allowed: an absolute URL, such as \"http://en.example/"),
    ([], {"prefix": "/a"}, ValueError, "purge: found '/a'; allowed: an absolute URL"),
    ([URL], {"tag": ["a"]}, TypeError, "purge: tag: found ['a']; allowed: one string, such as tag='items'"),
    ([], {"tag": ""}, ValueError, "purge: tag: found ''; allowed: a tag"),
    ([b"http://en.example/"], {}, TypeError, "purge: a URL: found b'http://en.example/'; allowed: a string"),
    ([], {"everything": 1}, TypeError, "purge: everything: found 1; allowed: True or False"),
    ([URL, "http://en.example/%00"], {}, RefusedError, "control-character"),
    ([URL], {"prefix": "http://en.example/%00"}, RefusedError, "control-character"),
)
async def test_an_invalid_purge_raises_and_removes_nothing(warm, urls, named, error, told):
    client, outcomes = warm
    with pytest.raises(error, match=f"^{re.escape(told)}"):
        await client.app.purge(*urls, **named)
    assert outcomes == []
    assert "hit" in (await client("/a")).handling


@cases(
    "fields, asked, shown",
    ([], [[]], [{}]),
    ([(b"etag", b'"1"')], [[]], [{"validator": '"1"'}]),
    ([], [[("origin", "http://a")]], [{"variant": {"origin": "http://a"}}]),
    ([(b"vary", b"x-a")], [[], [("x-a", "1")]], [{"variant": {"x-a": "1"}}, {"variant": {"x-a": None}}]),
)
async def test_entries_are_what_is_stored_for_a_url(cached, application, clock, fields, asked, shown):
    client = cached(rules=Rules(ttl=60))
    application.fields, application.body = fields, b"12345"
    for each in asked:
        await client("/a", fields=each)
        clock.now += 1
    entry = {"status": 200, "variant": {}, "bytes": 5, "validator": None, "store": "memory", "blocks": None}
    ages = [{"age": age, "ttl": 60 - age} for age in range(1, len(asked) + 1)]
    for url in ("http://en.example/%61", "https://EN.example/a"):
        found = client.app.entries(url)
        assert found == [entry | a | b for a, b in zip(ages, shown, strict=True)]


async def test_entries_needs_a_host(warm):
    client, _ = warm
    with pytest.raises(ValueError, match=r"^entries: found '/a'; allowed: an absolute URL, such as"):
        client.app.entries("/a")
    with pytest.raises(TypeError, match=r"^entries: a URL: found 5; allowed: a string"):
        client.app.entries(5)


@pytest.mark.parametrize("place", [None, "file"])
async def test_clear_empties_the_cache_at_once(cached, application, tmp_path, place):
    store = {"store": f"{place}://{tmp_path}/store"} if place else {}
    client = cached(**store)
    for target in ("/a", "/b"):
        await client(target)
    application.gate = asyncio.Event()
    asking = asyncio.create_task(client("/c"))
    await application.reached(3)
    client.app.clear()
    assert client.app.entries(URL) == []
    application.gate.set()
    await asking
    for target in ("/a", "/b", "/c"):
        assert "hit" not in (await client(target)).handling
        assert "hit" in (await client(target)).handling
    if place:
        await client.app.tiers.aclose()


async def test_requests_behind_a_clear_all_go_on(cached, tmp_path):
    """Each of them empties the store that others may have emptied meanwhile."""
    client = cached(store=f"file://{tmp_path}/store")
    await client("/a")
    client.app.clear()
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*(client(f"/{number}") for number in range(5)))
    assert [answer.status for answer in answers] == [200] * 5
    await client.app.tiers.aclose()


async def test_a_disabled_cache_passes_everything_but_attacks(cached, application):
    heard = []
    client = cached("servlet", rules=Rules(ttl=60), enabled=False, listeners=[heard.append])
    answers = [await client("/a"), await client("/%61", fields=[("cache-control", "only-if-cached")])]
    assert [(each.status, each["cache-status"]) for each in answers] == [(200, "")] * 2
    assert application.targets == [b"/a"] * 2
    assert (await client("/a/..;/b")).problem["reason"] == "dot-segment-parameter"
    assert (await client("/a", "PURGE", client=("192.0.2.1", 1))).problem["reason"] == "purge-forbidden"
    assert (await client("/a", "PURGE")).body.startswith(b'{"purged": 0')
    assert (await client("/b", "POST", body=[b"a", b"b"])).status == 200
    assert application.contents[-1] == b"ab"
    assert client.app.entries(URL) == []
    assert [each.status for each in heard] == [200, 200, 400, 403, 200, 200]


async def test_a_disabled_cache_keeps_all_other_settings(application, client_of, clock):
    runtime = configured(everywhere(), **OWN_ANSWERS, plain=PlainSettings(max_body=1))
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock, enabled=False))
    assert (await client("/a"))["x-own"] == "1"
    assert (await client("/a", "POST", body=[b"a", b"b"])).status == 413
    runtime = everywhere(https_port=443)
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock, enabled=False))
    assert (await client("/a"))["location"] == "https://en.example/a"


async def test_a_profile_in_a_file(application, client_of, clock, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "rfc3986"\n[path]\nmerge_slashes = true\n[cache]\nttl = 60\n')
    application.fields = []
    client = client_of(CacheMiddleware(application, file, clock=clock))
    await client("/a//b")
    assert "hit" in (await client("/a/b")).handling
    file.write_text("[path]\nmerge_slash = true\n")
    with pytest.raises(ProfileError, match="merge_slash"):
        CacheMiddleware(application, file)
    with pytest.raises(ProfileError, match="No such file"):
        CacheMiddleware(application, tmp_path / "none.toml")


def test_the_store_is_memory_by_its_name():
    assert isinstance(CacheMiddleware(print, store="memory").store, MemoryStore)


@cases(
    "url, reason",
    ("http://en.example/%00", "control-character"),
    ("ftp://en.example/", "bad-target"),
    ("/a", "bad-target"),
    ("http://a b/", "bad-host"),
    ("http://en.example/\ud800", "bad-target"),
    ("", "bad-target"),
)
def test_canonicalize_refuses(url, reason):
    with pytest.raises(RefusedError) as refused:
        canonicalize(url, builtin_profiles()["mediawiki"])
    assert refused.value.reason == reason


def test_canonicalize_takes_a_profile_by_its_name():
    url = "http://en.example/wiki/A%2fB%28c%29"
    assert canonicalize(url, "mediawiki") == canonicalize(url, builtin_profiles()["mediawiki"])
    for wrong in ("mediawikis", None, {}):
        with pytest.raises(ConfigurationError, match=r"canonicalize: profile: found .*; allowed: .*asgi, "):
            canonicalize(url, wrong)


GLOB = 'found \'admin*\'; allowed: a glob on the path, which begins with "/" or "*"'
NETWORKS, PATH = "allowed: a list of networks", Path("/tmp/x")
OF_DIRECTORIES = "the URL of a directory, file:///PATH, or"
OF_A_DIRECTORY = 'allowed: for a directory "file:///tmp/x"'


@cases(
    "made, arguments, told",
    (Rules, {"ttl": -1}, "ttl: found -1; allowed: an integer that is greater than or equal to 0"),
    (Rules, {"ttl": float("nan")}, "ttl: found nan"),
    (Rules, {"grace": True}, "grace: found True"),
    (Rules, {"ttl_by_status": {999: 1}}, "ttl_by_status.999: found '999'"),
    (Rules, {"ttl_by_status": {404: "soon"}}, "ttl_by_status.404: found 'soon'"),
    (Rules, {"bypass": "/a"}, "bypass: found '/a'; allowed: an array"),
    (Rules, {"bypass": ["/a", "admin*"]}, f"bypass[1]: {GLOB}"),
    (Rules, {"bypass_cookies": (1,)}, "bypass_cookies[0]: found 1; allowed: a text"),
    (Rules, {"errors": "none"}, "errors: found 'none'; allowed: 'safe' or 'explicit'"),
    (Rules, {"heuristic": "no"}, "heuristic: found 'no'; allowed: true or false"),
    (Rules, {"targeted": (b"a b",)}, "targeted[0]: found 'a b'"),
    (Timeouts, {"connect": 0}, "connect: found 0; allowed: seconds, more than 0"),
    (Timeouts, {"read": "60"}, "read: found '60'"),
    (Timeouts, {"pool": float("nan")}, "pool: found nan"),
    (MemoryStore, {"max_bytes": "64MiB"}, "max_bytes: found '64MiB'; allowed: an integer"),
    (MemoryStore, {"max_object_bytes": 0}, "max_object_bytes: found 0"),
    (MemoryStore, {"max_object_bytes": None}, "max_object_bytes: found None"),
    (MemoryStore, {"max_variants": 1.5}, "max_variants: found 1.5"),
)
def test_invalid_arguments_are_refused_by_the_constructor(made, arguments, told):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(f'{made.__name__}: {told}')}"):
        made(**arguments)


@cases(
    "arguments, told",
    ({"forwarded": 5}, "forwarded: found 5; allowed: x-forwarded, forwarded"),
    ({"store": 5}, f"store: found 5; allowed: {STORES}"),
    ({"store": "/tmp/x"}, f"store: found '/tmp/x'; {OF_A_DIRECTORY}; {STORES}"),
    ({"store": PATH}, f"store: found PosixPath('/tmp/x'); {OF_A_DIRECTORY}"),
    ({"store": "ftp://a"}, f"store: found 'ftp://a'; allowed: {OF_DIRECTORIES}"),
    ({"store": "file://a/b"}, "store: found 'file://a/b'"),
    ({"store": []}, "store: found []"),
    ({"store": b"redis://a"}, "store: found b'redis"),
    ({"rules": {"ttl": 60}}, "rules: found {'ttl': 60}; allowed: Rules, such as Rules(ttl=60)"),
    ({"enabled": 1}, "enabled: found 1; allowed: True or False"),
    ({"purge_token": None}, "purge_token: found None; allowed: a string"),
    ({"sites": ["a"]}, "sites: found ['a']; allowed: a mapping of hosts to profiles"),
    ({"listeners": [1]}, "listeners: found 1; allowed: a list of callables"),
    ({"counters": id}, "counters: found <built-in function id>; allowed: a list of callables"),
    ({"trusted_proxies": "10.0.0.0/8"}, f"trusted_proxies: found '10.0.0.0/8'; {NETWORKS}"),
    ({"trusted_proxies": ["10.0.0.0/8", "a"]}, f"trusted_proxies: found 'a'; {NETWORKS}"),
    ({"trusted_proxies": 5}, f"trusted_proxies: found 5; {NETWORKS}"),
    ({"purge_allow": [5]}, f"purge_allow: found 5; {NETWORKS}"),
    ({"purge_allow": b"10.0.0.1"}, f"purge_allow: found b'10.0.0.1'; {NETWORKS}"),
    ({"purge_allow": "10.0.0.0/8"}, f"purge_allow: found '10.0.0.0/8'; {NETWORKS}"),
    ({"on_refused": 5}, "on_refused: found 5; allowed: an ASGI application"),
    ({"runtime": {}}, "runtime: found {}; allowed: a Runtime"),
    ({"clock": 5}, "clock: found 5; allowed: a callable that gives seconds"),
)
def test_a_middleware_that_cannot_be_is_not_made(arguments, told):
    with pytest.raises(ConfigurationError, match=f"^{re.escape(f'CacheMiddleware: {told}')}"):
        CacheMiddleware(print, **arguments)


@cases(
    "hosts, named, told",
    (5, {}, "hosts: found 5; allowed: a list of host names"),
    ((b"a",), {}, "hosts: found (b'a',); allowed: a list of host names"),
    ("a.example", {"aliases": "b.example"}, "aliases: found 'b.example'; allowed: a list of host names"),
)
def test_a_site_that_cannot_be_is_refused(hosts, named, told):
    with pytest.raises(ConfigurationError, match=f"^{re.escape('site: ' + told)}"):
        Site.of(hosts, "asgi", **named)


def test_a_site_is_a_host_and_no_url():
    told = "sites: found 'http://en.example'; allowed: a host name or address"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(told)}"):
        CacheMiddleware(print, sites={"http://en.example": "asgi"})


async def test_an_argument_found_wrong_late_is_logged(caplog, client_of):
    """Starlette makes its middleware in its lifespan, whose errors a server may take for no support of it."""
    app = Starlette()
    app.add_middleware(CacheMiddleware, profile="fastapi")
    with pytest.raises(ConfigurationError):
        await client_of(app)("/", type="lifespan")
    said, *_ = (each.getMessage() for each in caplog.records)
    assert said.startswith("CacheMiddleware: profile: found 'fastapi'")
    caplog.clear()
    with pytest.raises(ConfigurationError):
        await asyncio.to_thread(CacheMiddleware, app, profile="fastapi")
    assert caplog.records == []


@pytest.mark.parametrize(("coding", "library"), [("br", "brotli"), ("zstd", "zstandard")])
def test_a_coding_without_its_library_is_refused_at_once(monkeypatch, coding, library):
    find = compression.find_spec
    monkeypatch.setattr(compression, "find_spec", lambda name: None if name == library else find(name))
    told = f"CacheMiddleware: compress: found '{coding}'; allowed: gzip; br and zstd need the extra"
    with pytest.raises(ConfigurationError, match=f"^{re.escape(told)}"):
        CacheMiddleware(print, rules=Rules(compress=["gzip", coding]))
    CacheMiddleware(print, rules=Rules(compress=["gzip"]))


def test_settings_may_be_written_as_in_a_file():
    rules = Rules(targeted=["CDN-Cache-Control"], bypass=["/a*"], ttl=0.5, ttl_by_status={404: 1.5})
    assert (rules.targeted, rules.bypass, rules.ttl) == ((b"cdn-cache-control",), ("/a*",), 0.5)
    assert rules.ttl_by_status == {404: 1.5}
    assert Timeouts(None, None, None, 0.1).pool == 0.1


# Every exchange ends in one Outcome, told to every listener


@pytest.fixture
def told():
    return []


@pytest.fixture
def client(cached, told):
    return cached(listeners=[told.append])


async def test_a_client_that_leaves(client, told, application):
    application.gate, leave = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(client("/a", leave=leave))
    await application.reached(1)
    leave.set()
    await application.receives[0]()
    assert [(outcome.status, outcome.bytes) for outcome in told] == [(0, 0)]
    application.gate.set()
    await waiting
    assert len(told) == 1


async def test_a_trusted_proxys_client_is_the_outcomes(cached, told):
    client = cached(listeners=[told.append], trusted_proxies=["127.0.0.1"])
    await client("/a", fields=[("x-forwarded-for", "198.51.100.7")])
    assert (told[0].client, told[0].received.client) == ("198.51.100.7", "127.0.0.1")
