"""Profiles by host, and `canonical`: clients that ask by another spelling are told of the one URL."""

import pytest

from examples import cases
from support import Handshake
from univocal import (
    CacheMiddleware,
    ConfigurationError,
    Profile,
    ProfileError,
    RefusedError,
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
    "*:9443": "s3",
    "wiki.example:9443": "mediawiki",
}


@cases("host, path", ("one.shop.example:9443", "./a"), ("wiki.example:9443", "a"), ("wiki.example", "a"))
def test_a_port_has_a_site_for_all_its_hosts(host, path):
    # The profile s3, unlike mediawiki, keeps dot segments.
    assert Sites.of(SITES, "asgi").canonicalize(f"https://{host}/./a") == f"https://{host}/{path}"


MOUNTED = {"wiki.example": "mediawiki", "wiki.example/api/": "restbase", "*.shop.example": "servlet"}


@cases(
    "host, spellings, path",
    ("wiki.example", ["/a%2fb(", "/a/b%28", "/./a/b("], b"/a/b("),
    ("WIKI.example:80", ["/api/a%2fb"], b"/api/a%2Fb"),
    ("one.shop.example", ["/a;x=1/b", "/a/b"], b"/a/b"),
    ("two.shop.example", ["/a//b", "/a/b"], b"/a/b"),
)
async def test_each_host_is_read_by_its_profile(application, client_of, host, spellings, path):
    client = client_of(CacheMiddleware(application, None, sites=MOUNTED), host)
    answers = [await client(spelling) for spelling in spellings]
    assert ["hit" in each.handling for each in answers] == [False, *[True] * (len(spellings) - 1)]
    assert application.targets == [path]
    assert b'"purged": 1' in (await client(spellings[0], "PURGE")).body


@cases(
    "host, target, status",
    ("en.example", "/a", 421),
    ("shop.example", "/a", 421),
    ("one.shop.example", "/a/..;/b", 400),
    ("wiki.example", "/a/..;/b", 200),
    ("wiki.example", "/api%2fa", 400),
)
async def test_refusals_are_those_of_the_hosts_profile(application, client_of, host, target, status):
    client = client_of(CacheMiddleware(application, None, sites=MOUNTED), host)
    assert (await client(target)).status == status


@cases(
    "host, target, answer",
    (b"wiki.example", "/a%2fb", {"type": "websocket.accept"}),
    (b"en.example", "/", {"type": "websocket.close", "code": 1008}),
)
async def test_a_websocket_belongs_to_its_host(host, target, answer):
    async def accept(scope, receive, send):
        await send({"type": "websocket.accept"})

    handshake = Handshake(CacheMiddleware(accept, None, sites=MOUNTED))
    assert (await handshake(target, host=host, denial=False))[0] == answer


async def test_paths_alone_leave_the_rest_to_the_profile(application, client_of):
    client = client_of(CacheMiddleware(application, "servlet", sites={"/api/": "restbase"}))
    for target in ("/a;b", "/api/a;b"):
        await client(target)
    assert application.targets == [b"/a", b"/api/a;b"]


def test_a_file_that_is_no_profile_is_an_error(tmp_path):
    for name, text in (("none", None), ("wrong", "[path]\nmerge_slash = true\n")):
        file = tmp_path / f"{name}.toml"
        if text:
            file.write_text(text)
        for attempt in (lambda file=file: Profile.from_file(file), lambda file=file: Sites.of({"a": file})):
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


@cases(
    "made, told",
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


@cases(
    "url, reason",
    ("http://b\u00fccher..example/", "bad-host"),
    (b"http://\xff.example/", "bad-host"),
    ("http://wiki.example/\ud800", "bad-target"),
    ("http://wiki.example/\x00\u00e9", "control-character"),
    ("//wiki.example/", "bad-target"),
)
def test_urls_that_name_nothing_are_refused(url, reason):
    with pytest.raises(RefusedError) as refused:
        Sites.of(SITES, "asgi").canonicalize(url)
    assert refused.value.reason == reason


# `canonical`: clients that ask by another spelling are told of the one URL


LINK = '<http://en.example/a(b)>; rel="canonical"'


@pytest.fixture
def told(application, client_of, clock):
    """told(canonical, profile): a client of a site with that setting."""

    def build(canonical, profile="mediawiki", **settings):
        site = Site.of("en.example", profile, canonical=canonical, **settings)
        return client_of(CacheMiddleware(application, None, sites=Sites([site]), clock=clock))

    return build


async def test_a_declared_charset_is_no_reason_to_redirect(told):
    profile = Profile.load("[charset]\npath = 'windows-1251'\ntrust_encoding_fields = true\n")
    client = told(301, profile)
    assert (await client("/%e9")).status == 301
    assert (await client("/%e9", fields=[("uri-path-encoding", "windows-1251")])).status == 200


@cases(
    "own, links",
    (b'</x>; rel="canonical"', ['</x>; rel="canonical"']),
    (b"</x>; REL=canonical", ["</x>; REL=canonical"]),
    (b"</canonical.css>; rel=preload", ["</canonical.css>; rel=preload", LINK]),
)
async def test_the_origin_servers_own_link_stays(told, application, own, links):
    application.fields = [*application.fields, (b"link", own)]
    answer = await told("link")("/a%28b%29")
    assert [value.decode() for name, value in answer.fields if name == b"link"] == links


async def test_an_error_and_an_unsafe_request_have_no_link(told, application):
    client = told("link")
    assert (await client("/a%28b%29", "POST"))["link"] == ""
    application.status = 500
    assert (await client("/a%28b%29"))["link"] == ""
