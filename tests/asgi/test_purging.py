"""PURGE at the door and purges by name: who may, what goes, what is answered."""

import json

import pytest

from univocal import CacheMiddleware, Rules, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Access
from univocal.judge.trust import networks
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

STRANGER = ("198.51.100.7", 4711)
OPEN = [(b"cache-control", b"max-age=60")]


def told(answer):
    assert answer["content-type"] == "application/json"
    assert int(answer["content-length"]) == len(answer.body)
    return answer.status, json.loads(answer.body)


async def stored(client, *targets, **named):
    for target in targets:
        assert "stored" in (await client(target, **named)).handling


# Who may


@pytest.mark.parametrize(
    ("address", "fields", "may"),
    [
        ("127.0.0.1", [], True),
        ("127.9.9.9", [], True),
        ("::1", [], True),
        ("::ffff:127.0.0.1", [], True),
        ("198.51.100.7", [], False),
        ("198.51.100.7", [("authorization", "Bearer open sesame")], True),
        ("198.51.100.7", [("authorization", "bearer open sesame")], True),
        ("198.51.100.7", [("authorization", "Bearer open")], False),
        ("198.51.100.7", [("authorization", "Bearer ")], False),
        ("198.51.100.7", [("authorization", "Basic open sesame")], False),
        ("198.51.100.7", [("authorization", "Bearer open sesame"), ("authorization", "Bearer x")], False),
        ("198.51.100.7", [("x-forwarded-for", "127.0.0.1")], False),
        ("198.51.100.7", [("forwarded", "for=127.0.0.1")], False),
        ("198.51.100.7", [("x-real-ip", "127.0.0.1")], False),
        ("testclient", [], False),
    ],
)
async def test_who_may_purge(cached, address, fields, may):
    client = cached(purge_token="open sesame")
    await stored(client, "/a")
    answer = await client("/a", "PURGE", fields, client=(address, 4711))
    if may:
        assert told(answer) == (200, {"purged": 1, "key": "http://en.example/a"})
    else:
        assert (answer.status, answer.problem["reason"]) == (403, "purge-forbidden")
        assert "hit" in (await client("/a")).handling


async def test_a_purge_never_reaches_the_application(cached, application):
    client = cached()
    await client("/a", "PURGE")
    await client("/a", "PURGE", client=STRANGER)
    assert application.count == 0


# What is refused


@pytest.fixture
def sited(application, clock, client_of):
    profile = builtin_profiles()["mediawiki"]
    site = Site(
        "wiki",
        ("en.example", "*.wiki.example"),
        (Route(b"/", profile, "origin"),),
        aliases=("www.en.example",),
    )
    moved = Site("moved", ("new.example",), (Route(b"/", profile, "origin"),), ("old.example",), 308)
    runtime = Runtime(Sites([site, moved]), {"wiki": Rules()}, Access(networks(["127.0.0.1"])))
    return client_of(CacheMiddleware(application, runtime=runtime, clock=clock))


async def test_a_host_that_is_not_ours_is_misdirected(sited):
    answer = await sited("/a", "PURGE", host="elsewhere.example")
    assert (answer.status, answer.problem["reason"]) == (421, "unknown-host")


# By prefix, with PURGE alone


PREFIX = [("x-purge-method", "prefix")]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("*", "no-leading-slash"),
        ("/%00", "control-character"),
        ("/a/..", "dot-segment"),
        ("ftp://en.example/", "bad-target"),
    ],
)
async def test_a_prefix_that_is_none_purges_nothing(cached, target, reason):
    client = cached("mediawiki")
    await stored(client, "/blog/1")
    answer = await client(target, "PURGE", PREFIX)
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, reason)
    assert "hit" in (await client("/blog/1")).handling


# By pattern: a BAN, or a PURGE as WordPress's plugins send it


@pytest.fixture
async def shelf(cached):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = cached("rfc3986")
    for host in ("en.example", "en.example.com", "en.example:8080", "ru.example"):
        for target in ("/blog/1", "/blog/2", "/shop"):
            await stored(client, target, host=host)
    return client


async def left(client):
    """Which of the shelf's responses are still there."""
    asked = [("cache-control", "only-if-cached")]
    return {
        host + target
        for host in ("en.example", "en.example.com", "en.example:8080", "ru.example")
        for target in ("/blog/1", "/blog/2", "/shop")
        if (await client(target, fields=asked, host=host)).status == 200
    }


@pytest.mark.parametrize("pattern", ["/)|(", "/a)|(?:.*", "/[", "/(", "*", ".*", "|.*", "/" + "a" * 2000])
async def test_a_pattern_that_is_none_bans_nothing(shelf, pattern):
    before = await left(shelf)
    assert (await shelf(pattern, "BAN")).status == 400
    assert await left(shelf) == before


# By name, as the admin listener has it


@pytest.fixture
async def filled(cached, application):
    application.script = lambda scope: (200, [*OPEN, (b"xkey", scope["path"][1:2].encode())], b"")
    client = cached("mediawiki")
    await stored(client, "/a(1)", "/a/2", "/b")
    await stored(client, "/a/2", host="ru.example")
    return client.app


# The audit
