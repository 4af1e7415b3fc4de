"""Profiles by host: the middleware reads each host and path prefix as its own profile says."""

import pytest
from fastapi import FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from support import Handshake
from univocal import (
    CacheMiddleware,
    ConfigurationError,
    Profile,
    ProfileError,
    RefusedError,
    Rules,
    Site,
    Sites,
    builtin_profiles,
)

SHOP = 'extends = "rfc3986"\n[path]\nmerge_slashes = true\n[query]\ndrop = ["utm_*"]\n[cache]\nttl = 30\n'
SITES = {
    "wiki.example": "mediawiki",
    "wiki.example/api/": "restbase",
    "*.shop.example": Profile.load(SHOP, "shop"),
    "b\u00fccher.example": "s3",
    "api.shop.example/v1/": "servlet",
    "port.example:8443": "s3",
}


@pytest.fixture
def shop_file(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text(SHOP)
    return file


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://WIKI.example:80/a%2fb", "http://wiki.example/a/b"),
        ("https://wiki.example./a%28b", "https://wiki.example/a(b"),
        ("http://wiki.example:81/a%2fb", "http://wiki.example:81/a/b"),
        ("http://wiki.example/api/a%2fb", "http://wiki.example/api/a%2Fb"),
        ("http://wiki.example/%61pi/a%2fb", "http://wiki.example/api/a%2Fb"),
        ("http://wiki.example/apis/a%2fb", "http://wiki.example/apis/a/b"),
        ("http://one.shop.example//a?utm_x=1&b", "http://one.shop.example/a?b"),
        ("http://a.b.shop.example//a", "http://a.b.shop.example/a"),
        ("http://b\u00fccher.example/a/../b", "http://xn--bcher-kva.example/a/../b"),
        ("http://B\u00dcCHER.example:80/", "http://xn--bcher-kva.example/"),
        ("http://xn--bcher-kva.example/.", "http://xn--bcher-kva.example/."),
        ("http://api.shop.example/v1/a;b", "http://api.shop.example/v1/a"),
        ("http://api.shop.example//a?utm_x=1", "http://api.shop.example/a"),  # as its pattern has it
        ("https://port.example:8443/./", "https://port.example:8443/./"),
        ("https://port.example/%28./", "https://port.example/(./"),
        ("http://other.example/a%2fb%28", "http://other.example/a/b("),  # asgi
        (b"http://wiki.example/\xc3\xa9\xff", "http://wiki.example/%C3%A9%FF"),
        ("http://wiki.example/\u00e9\udcff", "http://wiki.example/%C3%A9%FF"),
    ],
)
async def test_each_host_and_prefix_has_its_profile(url, canonical, application, client_of):
    sites = Sites.of(SITES, "asgi")
    assert sites.canonicalize(url) == sites.canonicalize(canonical) == canonical
    cache = CacheMiddleware(application, sites=SITES)
    scheme, _, rest = canonical.partition("://")
    host, slash, path = rest.partition("/")
    octets = url.encode("utf-8", "surrogateescape") if isinstance(url, str) else url
    target = b"/" + octets.split(b"/", 3)[3]
    answer = await client_of(cache, host)(target, scheme=scheme)
    assert answer.status == 200
    assert application.targets == [(slash + path).encode()]
    assert "hit" in (await client_of(cache, host)((slash + path).encode(), scheme=scheme)).handling
    assert await cache.purge(url if isinstance(url, str) else canonical) == 1


async def test_hosts_that_are_not_named_have_the_profile(application, client_of):
    client = client_of(CacheMiddleware(application, "servlet", sites={"wiki.example": "mediawiki"}))
    assert (await client("/a;b")).status == 200
    assert (await client("/a;b", host="wiki.example")).status == 200
    assert application.targets == [b"/a", b"/a;b"]


@pytest.mark.parametrize("profile", ["asgi", None])
async def test_a_star_and_bare_paths_are_for_unnamed_hosts(application, client_of, profile):
    sites = {
        "*": "servlet",
        "/api/": "restbase",
        "*/v2/": "s3",
        "wiki.example": "mediawiki",
        "a.example/b/": "s3",
    }
    cache = CacheMiddleware(application, profile, sites=sites)
    for host, target, reached in (
        ("en.example", "/a;b", b"/a"),
        ("en.example", "/api/a;b", b"/api/a;b"),
        ("en.example:81", "/v2/./", b"/v2/./"),
        ("wiki.example", "/api/a%2fb", b"/api/a/b"),
        ("a.example", "/a;b", b"/a"),
        ("a.example", "/b/./", b"/b/./"),
    ):
        assert (await client_of(cache, host)(target)).status == 200
        assert application.targets[-1] == reached
    assert (await client_of(cache)("/%61pi/..;/a")).problem["reason"] == "dot-segment-parameter"


async def test_paths_alone_leave_the_rest_to_the_profile(application, client_of):
    client = client_of(CacheMiddleware(application, "servlet", sites={"/api/": "restbase"}))
    for target in ("/a;b", "/api/a;b"):
        await client(target)
    assert application.targets == [b"/a", b"/api/a;b"]


async def test_a_site_has_rules_of_its_own(application, client_of):
    application.fields = []
    sites = Sites(
        [
            Site.of("a.example", "django", routes={"/b/": "static"}, rules=Rules(ttl=60, bypass=["/c"])),
            Site.of("b.example", "static"),
        ]
    )
    for rules in (None, Rules(bypass=["/b/a"])):
        cache = CacheMiddleware(application, sites=sites, rules=rules)
        for host, target, hit in (
            ("a.example", "/a", True),
            ("a.example", "/b/a", True),
            ("a.example", "/c", False),
            ("b.example", "/a", rules is None),
        ):
            client = client_of(cache, host)
            await client(target)
            assert ("hit" in (await client(target)).handling) is hit


async def test_without_a_profile_other_hosts_are_misdirected(application, client_of):
    client = client_of(CacheMiddleware(application, None, sites={"wiki.example": "mediawiki"}))
    assert (await client("/a", host="wiki.example")).status == 200
    for host in ("en.example", "a.wiki.example", "wiki.example.org"):
        answer = await client("/a", host=host)
        assert (answer.status, answer.problem["reason"]) == (421, "unknown-host")
    assert (await client("/a", "PURGE")).status == 421
    assert application.count == 1


async def test_a_spelling_that_changes_its_prefix_is_refused(application, client_of):
    client = client_of(CacheMiddleware(application, sites=SITES), "wiki.example")
    for target in ("/api%2fa", "/a%2f../api/b"):
        answer = await client(target)
        assert (answer.status, answer.problem["reason"]) == (400, "crosses-route")
    assert application.count == 0


async def test_a_websocket_is_read_by_its_hosts_profile():
    app = FastAPI()

    @app.websocket("/{path:path}")
    async def echo(socket: WebSocket):
        await socket.accept()
        await socket.send_text(socket.scope["raw_path"].decode())
        await socket.close()

    app.add_middleware(CacheMiddleware, profile=None, sites=SITES)
    handshake = Handshake(app)
    for host, target, told in (
        (b"wiki.example", "/a%2fb", "/a/b"),
        (b"wiki.example", "/api/a%2fb", "/api/a%2Fb"),
        (b"one.shop.example", "//a//b", "/a/b"),
    ):
        assert (await handshake(target, host=host))[1]["text"] == told
    start, body = await handshake("/a", host=b"en.example")
    assert (start["status"], b"unknown-host" in body["body"]) == (421, True)
    assert (await handshake("/api%2fa", host=b"wiki.example"))[0]["status"] == 400


async def test_prefixes_are_what_clients_see_below_a_mount(client_of):
    async def page(request):
        return PlainTextResponse(request.scope["raw_path"], headers={"cache-control": "max-age=60"})

    inner = Starlette(routes=[Route("/{path:path}", page)])
    inner.add_middleware(CacheMiddleware, sites={"en.example/shop/api/": "restbase", "en.example": "asgi"})
    client = client_of(Starlette(routes=[Mount("/shop", inner)]))
    assert (await client("/shop/api/a%2fb")).body == b"/shop/api/a%2Fb"
    assert (await client("/shop/a%2fb")).body == b"/shop/a/b"
    assert (await client("/shop/api/%2e%2e/%2e%2e/x")).status == 400


async def test_each_profile_brings_its_rules_unless_there_are_rules(application, client_of):
    application.fields = []
    host = "one.shop.example"
    for rules, hit in ((None, True), (Rules(), False)):
        client = client_of(CacheMiddleware(application, sites=SITES, rules=rules), host)
        await client("/a")
        assert ("hit" in (await client("/a")).handling) == hit


async def test_profiles_are_files_names_and_objects(shop_file, application, client_of):
    for profile in (shop_file, Profile.from_file(str(shop_file)), Profile.from_file(shop_file)):
        client = client_of(CacheMiddleware(application, sites={"a.example": profile}), "a.example")
        assert (await client("//b?utm_q=1")).status == 200
        assert application.targets[-1] == b"/b"
    assert Profile.from_file(shop_file).name == "shop"


def test_a_file_that_is_no_profile_is_an_error(tmp_path):
    for name, text in (("none", None), ("wrong", "[path]\nmerge_slash = true\n")):
        file = tmp_path / f"{name}.toml"
        if text:
            file.write_text(text)
        for attempt in (
            lambda file=file: Profile.from_file(file),
            lambda file=file: Sites.of({"a": file}),
        ):
            with pytest.raises(ProfileError):
                attempt()


async def test_sites_are_described_as_in_a_file(application, client_of):
    wiki = Site.of(
        ["wiki.example", "*.wiki.example"],
        "mediawiki",
        routes={"/api/": "restbase"},
        aliases=["www.wiki.example"],
        scheme="https",
    )
    moved = Site.of("new.example", "rfc3986", aliases=["old.example"], alias_answer=308)
    sites = Sites([wiki, moved])
    assert sites.canonicalize("http://www.wiki.example:80/%28") == "https://wiki.example/("
    assert sites.canonicalize("http://de.wiki.example/api/%28%2f") == "https://de.wiki.example/api/(%2F"
    with pytest.raises(RefusedError) as refused:
        sites.canonicalize("http://en.example/")
    assert refused.value.reason == "unknown-host"
    cache = CacheMiddleware(application, None, sites=sites)
    answer = await client_of(cache, "old.example")("/a")
    assert (answer.status, answer["location"]) == (308, "http://new.example/a")
    assert (await client_of(cache, "en.example")("/a")).status == 421
    assert (await client_of(CacheMiddleware(application, sites=sites))("/a")).status == 200
    default = Sites([wiki], default=Sites.everywhere(builtin_profiles()["s3"]).default)
    assert (await client_of(CacheMiddleware(application, sites=default))("/./a")).status == 200
    assert application.targets[-1] == b"/./a"


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Sites.of({"a": "none"}), "sites: a: found 'none'; allowed: .*asgi, "),
        (lambda: Sites.of({"a/b/": "s3"}), "sites: a: .* a profile for 'a', too"),
        (lambda: Sites.of({"a b": "s3"}), "site a b: hosts: found 'a b'; allowed: a host name"),
        (lambda: Sites.of({"a b/c/": "s3"}, "s3"), "sites: a b: found 'a b'; allowed: a host name"),
        (lambda: Sites.of({"a": "s3", "a/../": "s3"}), "routes: path: found '/../'"),
        (lambda: Sites.of({"a": "s3", "A": "s3"}), "a host that no other entry names"),
        (lambda: Sites.of({"": "s3"}), "a host name"),
        (lambda: Site.of([], "s3"), "hosts: .*a host"),
        (lambda: Site.of("a", "s3", scheme="ftp"), "scheme: .*keep, http or https"),
        (lambda: Site.of("a", "s3", alias_answer=302), "alias_answer: found 302; allowed: serve, 301 or 308"),
        (lambda: Sites.of({"/api/": "s3"}), 'sites: /api/: .* a profile for "\\*", too'),
        (lambda: Sites.of({5: "s3"}), "sites: found 5; allowed: a host name .*a path such as"),
        (
            lambda: CacheMiddleware(print, sites=Sites([Site.of("a", "s3", rules={"ttl": 60})])),
            "site a: rules: found {'ttl': 60}; allowed: Rules, such as",
        ),
        (
            lambda: CacheMiddleware(print, "shop.toml"),
            r"profile: found 'shop.toml'; allowed: for a file Path\('shop",
        ),
        (
            lambda: CacheMiddleware(print, sites={"a": "./b"}),
            r"sites: a: found './b'; allowed: for a file Path\('./b'\)",
        ),
        (lambda: CacheMiddleware(print, "s4", sites={"a": "s3"}), "CacheMiddleware: profile: found 's4'"),
        (lambda: CacheMiddleware(print, None), "CacheMiddleware: profile: found None"),
        (lambda: CacheMiddleware(print, sites={"a": None}), "sites: a: found None"),
    ],
)
def test_sites_that_cannot_be_are_refused_with_the_place(made, told):
    with pytest.raises(ConfigurationError, match=told):
        made()


def test_every_site_that_cannot_be_is_named():
    with pytest.raises(ConfigurationError) as refused:
        Sites.of({"e": "s4", "f/g/": "s5", "g": "s3"})
    assert [each.key for each in (refused.value, *refused.value.beside)] == ["e", "f/g/"]
    with pytest.raises(ConfigurationError) as refused:
        Sites.of({"f/g/": "s3", "h": "s3", "h/i": "s3", "h/../": "s3", "k/l/": "s3"})
    assert [each.key for each in (refused.value, *refused.value.beside)] == ["f", "path", "k"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://b\u00fccher..example/", "bad-host"),
        (b"http://\xff.example/", "bad-host"),
        ("http://wiki.example/\ud800", "bad-target"),
        ("http://wiki.example/\x00\u00e9", "control-character"),
        ("//wiki.example/", "bad-target"),
    ],
)
def test_urls_that_name_nothing_are_refused(url, reason):
    with pytest.raises(RefusedError) as refused:
        Sites.of(SITES, "asgi").canonicalize(url)
    assert refused.value.reason == reason
