"""One spelling at the door: what the application is told, what is refused, and that nothing stays behind."""

import asyncio

import pytest

from examples import cases
from neighbours import everywhere
from univocal import CacheMiddleware, ProfileError
from univocal.judge.runtime import Limits
from univocal.uri.profile import parse

# The scope


@cases(
    "target, path, raw, query",
    ("/a%28b%29?c=%28", "/a(b)", b"/a(b)", b"c=%28"),
    ("/%D0%9A", "/К", b"/%D0%9A", b""),
    ("/%d0%9a?", "/К", b"/%D0%9A", b""),
    ("/a%2525", "/a%25", b"/a%2525", b""),
    ("/a b", "/a b", b"/a%20b", b""),
    ("http://en.example/a?b", "/a", b"/a", b"b"),
    ("http://en.example", "/", b"/", b""),
    ("/a?b?c", "/a", b"/a", b"b?c"),
)
async def test_the_scope_speaks_with_one_tongue(cached, application, target, path, raw, query):
    await cached()(target)
    (scope,) = application.scopes
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw, query)
    assert scope["extensions"]["univocal.target"]["target"].partition(b"?")[::2] == (raw, query)


async def test_state_server_and_http_version_of_the_scope_stay(cached, application):
    state = {"pool": 1}
    await cached()("/a", state=state, root_path="", server=("192.0.2.1", 80), http_version="2")
    (scope,) = application.scopes
    assert (scope["state"], scope["server"], scope["http_version"]) == (state, ("192.0.2.1", 80), "2")


async def test_extensions_that_bypass_the_cache_are_not_passed_on(cached, application):
    offered = {name: {} for name in ("http.response.pathsend", "http.response.zerocopysend", "tls")}
    await cached()("/a", extensions=offered)
    assert application.scopes[0]["extensions"].keys() >= {"tls"}
    assert not any("send" in name for name in application.scopes[0]["extensions"])


# Targets as servers hand them over


@cases(
    "shown, canonical",
    ({"raw_path": b"/a%28b%29", "query_string": b"c"}, b"/a(b)?c"),  # uvicorn
    ({"raw_path": b"/a%28b%29?c", "query_string": b"c"}, b"/a(b)?c"),  # httpx's test transport
    ({"raw_path": None, "path": "/a(b)", "query_string": b"c"}, b"/a(b)?c"),
    ({"raw_path": b"", "path": "/a%20/К", "query_string": b""}, b"/a%2520/%D0%9A"),
    ({"raw_path": b"http://en.example/a", "path": "http://en.example/a"}, b"/a"),
)
async def test_servers_without_the_extension(cached, application, shown, canonical):
    await cached()("/", extensions={}, **shown)
    assert application.targets == [canonical]


async def test_the_received_target_goes_before_the_servers_reading(cached):
    seen = {"univocal.target": {"target": b"/a#b"}}
    answer = await cached()("/a", extensions=seen)
    assert answer.problem["reason"] == "fragment"


# Refusals


@pytest.mark.parametrize("declared", [[("content-length", "6")], []])
async def test_content_too_large_is_413(clock, application, client_of, declared):
    runtime = everywhere(limits=Limits(max_body=5))
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock))
    answer = await client("/a", "POST", declared, body=[b"123", b"456"])
    assert (answer.status, answer.problem["reason"]) == (413, "body-too-large")
    assert (await client("/a", "POST", body=[b"123", b"45"])).status == 200


# Sites, routes, aliases, observation


@pytest.mark.parametrize("lines", [[b"4", b"5"], [b"4, 5"], [b"x"], [b"1000000000000000000"]])
async def test_a_response_with_two_lengths_is_none(cached, application, lines):
    application.fields = [(b"cache-control", b"max-age=60"), *((b"content-length", line) for line in lines)]
    application.body = b"page"
    answer = await cached()("/a")
    assert (answer.status, answer.problem["reason"]) == (502, "origin-bad-response")


async def test_nothing_stays_behind_of_what_is_over(cached, application, idle):
    client = cached()
    await client("/stored")
    await client("/stored", fields=[("range", "bytes=0-1")])
    await client("/a", "HEAD")
    await client("/a", "POST")
    await client("/a", fields=[("if-none-match", "*")])
    application.fields = [(b"cache-control", b"no-store")]
    await client("/uncacheable")
    await client("/%00")
    await client("/stored", "PURGE")
    await idle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert client.app.store.stats.reserved == 0


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
