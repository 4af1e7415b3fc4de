"""`canonical`: clients that ask by another spelling are told of the one URL."""

import pytest

from univocal import CacheMiddleware, ConfigurationError, Profile, Site, Sites, builtin_profiles

LINK = '<http://en.example/a(b)>; rel="canonical"'
OBSERVING = Profile.load('extends = "mediawiki"\n[reject]\nsequences = ["backslash"]\nmode = "observe"\n')


@pytest.fixture
def told(application, client_of, clock):
    """told(canonical, profile): a client of a site with that setting."""

    def build(canonical, profile="mediawiki", **settings):
        site = Site.of("en.example", profile, canonical=canonical, **settings)
        return client_of(CacheMiddleware(application, None, sites=Sites([site]), clock=clock))

    return build


@pytest.mark.parametrize(
    ("profile", "method", "target", "reaches"),
    [
        ("mediawiki", "POST", "/%28", b"/("),
        ("mediawiki", "PUT", "/%28", b"/("),
        ("mediawiki", "OPTIONS", "/%28", b"/("),
        ("mediawiki", "GET", "/(", b"/("),
        (Profile.load("reject.sequences = []"), "GET", "/a#b", b"/a"),
        # Clients would not send these as they are told: they would be redirected for ever.
        (Profile.load('path.decode = "|"'), "GET", "/%7C%61", b"/|a"),
        (Profile.load('path.decode = "5C"'), "GET", "/%5C%61", b"/\\a"),
        (Profile.load('path.dot_segments = "keep"'), "GET", "/%61/../b", b"/a/../b"),
        (Profile.load('query.ring = "nginx-uri"'), "GET", "/?a=%27", b"/?a='"),
        (OBSERVING, "GET", "/%61\\b", b"/%61\\b"),
    ],
)
async def test_anything_else_is_served(told, application, profile, method, target, reaches):
    answer = await told(301, profile)(target, method)
    assert answer.status == 200
    assert application.targets == [reaches]


async def test_a_declared_charset_is_no_reason_to_redirect(told):
    profile = Profile.load("[charset]\npath = 'windows-1251'\ntrust_encoding_fields = true\n")
    client = told(301, profile)
    assert (await client("/%e9")).status == 301
    assert (await client("/%e9", fields=[("uri-path-encoding", "windows-1251")])).status == 200


@pytest.mark.parametrize(
    ("own", "links"),
    [
        (b'</x>; rel="canonical"', ['</x>; rel="canonical"']),
        (b"</x>; REL=canonical", ["</x>; REL=canonical"]),
        (b"</canonical.css>; rel=preload", ["</canonical.css>; rel=preload", LINK]),
    ],
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


NONE = pytest.param(None, marks=pytest.mark.pure("compiled code refuses None by its type"))


@pytest.mark.parametrize("canonical", [302, 200, True, "redirect", NONE, ""])
def test_any_other_value_is_refused(canonical):
    with pytest.raises(ConfigurationError, match="serve, link, 301 or 308"):
        Site.of("a", builtin_profiles()["asgi"], canonical=canonical)
