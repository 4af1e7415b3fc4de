"""One spelling at the door: what the application is told, and what is refused."""

import json

import pytest

from univocal import CacheMiddleware, ConfigurationError, Rules, Runtime
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Limits
from univocal.uri.profile import parse
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

SPELLINGS = {
    "asgi": ["/a(b)/c", "/a%28b%29/c", "/%61(b%29%2Fc", "/a(b)%2fc", "http://en.example/a(b)/c"],
    "mediawiki": ["/wiki/A/B(c)", "/wiki/A%2FB%28c%29", "/%77iki/./A%2fB(c%29"],
    "restbase": ["/page/A%2FB", "/page/A%2fB", "/p%61ge/%41%2FB"],
    "servlet": ["/shop/cart", "/shop;jsessionid=1/cart", "//shop/x/../cart", "/shop/./cart;a=b"],
    "nginx": ["/a(b)/c", "//a%28b%29//c", "/a(b)%2fc", "/a(b)/x/../c"],
    "upload": ["/commons/3/37/S_(y).svg", "/commons%2f3/37/S_%28y%29.svg"],
    "rfc3986": ["/a/c(d)", "/%61/c(d)", "/a/b/../c(d)", "/a/./c(%64)"],
}


@pytest.mark.parametrize("profile", SPELLINGS)
async def test_many_spellings_make_one_request(cached, application, profile):
    client = cached(profile)
    for spelling in SPELLINGS[profile]:
        assert (await client(spelling)).body == b"answer 1"
    assert application.count == 1


@pytest.mark.parametrize("profile", SPELLINGS)
async def test_what_the_application_is_asked_is_the_key(clock, application, client_of, profile):
    runtime = Runtime.everywhere(builtin_profiles()[profile], Rules(), cache_status="key")
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock))
    answer = await client(SPELLINGS[profile][-1] + "?q=%28%7e")
    key = answer["cache-status"].partition('key="')[2].rstrip('"')
    assert key == "http://en.example" + application.targets[0].decode()
    assert client.app.store.lookup(
        b"%b http en.example %b" % (builtin_profiles()[profile].digest, application.targets[0])
    )


# The scope


@pytest.mark.parametrize(
    ("target", "path", "raw", "query"),
    [
        ("/a%28b%29?c=%28", "/a(b)", b"/a(b)", b"c=%28"),
        ("/%D0%9A", "/К", b"/%D0%9A", b""),
        ("/%d0%9a?", "/К", b"/%D0%9A", b""),
        ("/a%2525", "/a%25", b"/a%2525", b""),
        ("/a b", "/a b", b"/a%20b", b""),
        ("http://en.example/a?b", "/a", b"/a", b"b"),
        ("http://en.example", "/", b"/", b""),
        ("/a?b?c", "/a", b"/a", b"b?c"),
    ],
)
async def test_the_scope_speaks_with_one_tongue(cached, application, target, path, raw, query):
    await cached()(target)
    (scope,) = application.scopes
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw, query)
    assert scope["extensions"]["univocal.target"]["target"].partition(b"?")[::2] == (raw, query)


async def test_what_the_server_says_besides_stays(cached, application):
    state = {"pool": 1}
    await cached()("/a", state=state, root_path="", server=("192.0.2.1", 80), http_version="2")
    (scope,) = application.scopes
    assert (scope["state"], scope["server"], scope["http_version"]) == (state, ("192.0.2.1", 80), "2")


async def test_extensions_that_bypass_the_cache_are_not_passed_on(cached, application):
    offered = {name: {} for name in ("http.response.pathsend", "http.response.zerocopysend", "tls")}
    await cached()("/a", extensions=offered)
    assert application.scopes[0]["extensions"].keys() >= {"tls"}
    assert not any("send" in name for name in application.scopes[0]["extensions"])


# What servers hand over


@pytest.mark.parametrize(
    ("shown", "canonical"),
    [
        ({"raw_path": b"/a%28b%29", "query_string": b"c"}, b"/a(b)?c"),  # uvicorn
        ({"raw_path": b"/a%28b%29?c", "query_string": b"c"}, b"/a(b)?c"),  # httpx's test transport
        ({"raw_path": None, "path": "/a(b)", "query_string": b"c"}, b"/a(b)?c"),
        ({"raw_path": b"", "path": "/a%20/К", "query_string": b""}, b"/a%2520/%D0%9A"),
        ({"raw_path": b"http://en.example/a", "path": "http://en.example/a"}, b"/a"),
    ],
)
async def test_servers_without_the_extension(cached, application, shown, canonical):
    await cached()("/", extensions={}, **shown)
    assert application.targets == [canonical]


async def test_the_received_target_goes_before_the_servers_reading(cached, application):
    seen = {"univocal.target": {"target": b"/a#b"}}
    answer = await cached()("/a", extensions=seen)
    assert answer.problem["reason"] == "fragment"


# What is refused


async def test_two_hosts_are_none(cached):
    assert (await cached()("/a", fields=[("host", "en.example")])).problem["reason"] == "bad-host"


@pytest.mark.parametrize(
    "target", ["/%00<script>", "/a#secret", "/..;/secret/%2e%2e", "http://secret@en.example/", "secret"]
)
async def test_a_refusal_never_echoes_what_was_sent(cached, target):
    answer = await cached("servlet")(target)
    assert answer.status == 400
    assert b"secret" not in answer.body
    assert b"script" not in answer.body
    assert not any(b"secret" in value for _, value in answer.fields)


async def test_a_refusal_has_the_shape_of_rfc_9457(cached):
    answer = await cached()("/a%00")
    assert json.loads(answer.body).keys() == {"type", "title", "status", "detail", "reason", "reasons"}
    assert answer["cache-control"] == "no-store"


async def test_a_target_too_long_is_414(cached):
    answer = await cached()("/" + "a" * 8192)
    assert (answer.status, answer.problem["reason"]) == (414, "target-too-long")
    assert (await cached()("/" + "a" * 8191)).status == 200


async def test_too_many_fields_are_431(cached):
    answer = await cached()("/a", fields=[(f"x-{number}", "1") for number in range(100)])
    assert (answer.status, answer.problem["reason"]) == (431, "fields-too-large")


@pytest.mark.parametrize("declared", [[("content-length", "6")], []])
async def test_content_too_large_is_413(clock, application, client_of, declared):
    runtime = Runtime.everywhere(builtin_profiles()["asgi"], Rules(), limits=Limits(max_body=5))
    client = client_of(CacheMiddleware(application, runtime=runtime, clock=clock))
    answer = await client("/a", "POST", declared, body=[b"123", b"456"])
    assert (answer.status, answer.problem["reason"]) == (413, "body-too-large")
    assert (await client("/a", "POST", body=[b"123", b"45"])).status == 200


async def test_options_of_the_server_itself_pass_and_are_not_cached(cached, application):
    client = cached()
    for _ in range(2):
        assert (await client("*", "OPTIONS")).status == 200
    assert application.targets == [b"*", b"*"]


def test_a_missing_profile_is_refused_with_the_existing_names(application):
    with pytest.raises(ConfigurationError, match="mediawiki"):
        CacheMiddleware(application, "mediawik")


# Sites, routes, aliases, observation


@pytest.fixture
def sited(application, clock, client_of):
    known = builtin_profiles()
    trial = parse({"trial": 'summary = "tried"\nextends = "asgi"\n[reject]\nmode = "observe"'}, known)[
        "trial"
    ]
    sites = [
        Site(
            "wiki",
            ("en.example",),
            (Route(b"/", known["mediawiki"], "wiki"), Route(b"/api/", known["restbase"], "api")),
            aliases=("www.en.example",),
        ),
        Site("moved", ("new.example",), (Route(b"/", known["rfc3986"], "o"),), ("old.example",), 308),
        Site("safe", ("safe.example",), (Route(b"/", known["rfc3986"], "o"),), scheme=b"https"),
        Site("trial", ("trial.example",), (Route(b"/", trial, "o"),)),
    ]
    runtime = Runtime(Sites(sites), {}, cache_status="key")
    return client_of(CacheMiddleware(application, runtime=runtime, clock=clock))


async def test_an_alias_is_served_as_the_host_it_stands_for(sited, application):
    await sited("/a", host="www.en.example")
    assert "hit" in (await sited("/a")).handling
    assert application.fields_seen()["host"] == "en.example"


async def test_a_host_that_is_not_ours_is_misdirected(sited):
    answer = await sited("/a", host="elsewhere.example")
    assert (answer.status, answer.problem["reason"]) == (421, "unknown-host")
