"""`canonical`: clients that ask by another spelling are told of the one URL."""

import pytest

from univocal import CacheMiddleware, Profile, Site, Sites

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
