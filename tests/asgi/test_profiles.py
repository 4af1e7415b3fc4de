"""What a profile's settings do at the door: tags from paths, declared charsets, lossy queries."""

from __future__ import annotations

from typing import Any

import pytest

from univocal import CacheMiddleware, ProfileError, Rules
from univocal.http.forward import request_fields
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile, parse

CYRILLIC = """
extends = "rfc3986"
[charset]
path = "windows-1251"
query = "windows-1251"
trust_encoding_fields = true
"""


def profile_of(text: str) -> Profile:
    return parse({"own": text}, builtin_profiles())["own"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connection", "uri-path-encoding, URI-Query-Encoding"),
        ("uri_path_encoding", "koi8-r"),
        ("uri-path_encoding", "koi8-r"),
    ],
)
async def test_nobody_takes_or_doubles_what_the_application_is_told(
    application: Any, client_of: Any, name: str, value: str
) -> None:
    ask = client_of(CacheMiddleware(ReverseProxyOf(application), profile=profile_of(CYRILLIC)))
    await ask("/%CE?q=%CE", fields=[(name, value)])
    told = [field for field in application.scopes[0]["headers"] if b"encoding" in field[0]]
    assert told == [(b"uri-path-encoding", b"UTF-8"), (b"uri-query-encoding", b"UTF-8")]


class ReverseProxyOf:
    """The fields that a ReverseProxy would send, shown to the application."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        fields = request_fields(scope["headers"], host=b"en.example", client=None, scheme=b"http")
        await self._app(scope | {"headers": fields}, receive, send)


@pytest.mark.parametrize(
    "text",
    [
        '[[tags]]\nfrom = "a{99999999999}"\nto = "b"',
        "a = " + "[" * 3000,
        '[[tags]]\nfrom = "' + "(" * 3000 + '"\nto = "b"',
    ],
)
def test_a_profile_that_nobody_can_read_is_one_message(text: str) -> None:
    with pytest.raises(ProfileError):
        profile_of(text)


# A profile's rules


BLOG = parse({"blog": "[cache]\nttl = 60\nbypass_cookies = ['session']"})["blog"]


@pytest.mark.parametrize(("settings", "calls"), [({}, 1), ({"rules": Rules()}, 2)])
async def test_the_middleware_follows_profile_rules_unless_given_others(cached, application, settings, calls):
    application.fields = []
    client = cached(BLOG, **settings)
    await client("/a")
    await client("/a")
    assert application.count == calls


def test_middleware_with_invalid_profile_rules_is_not_made(cached):
    profile = parse({"blog": "[cache]\nttl = 'long'"})["blog"]
    with pytest.raises(ProfileError, match=r"profile blog: cache\.ttl"):
        cached(profile)
