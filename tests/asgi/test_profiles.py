"""What a profile's settings do at the door: tags from paths, declared charsets, lossy queries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from univocal import CacheMiddleware
from univocal.runtime import builtin_profiles
from univocal.uri.profile import Profile, parse

THUMBNAILS = """
extends = "rfc3986"
[[tags]]
from = "^/wikipedia/([a-z]+)/thumb/(.)/(..)/([^/]+)/[^/]+$"
to = '/wikipedia/\\1/\\2/\\3/\\4'
"""
CYRILLIC = """
extends = "rfc3986"
[charset]
path = "windows-1251"
query = "windows-1251"
trust_encoding_fields = true
"""


def profile_of(text: str) -> Profile:
    return parse({"own": text}, builtin_profiles())["own"]


async def test_purging_by_a_path_s_tag_removes_every_thumbnail(application: Any, client_of: Any) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(THUMBNAILS)))
    thumbs = [f"/wikipedia/commons/thumb/3/37/F.jpg/{width}px-F.jpg" for width in (100, 200)]
    other = "/wikipedia/commons/thumb/3/37/G.jpg/100px-G.jpg"
    for target in (*thumbs, other):
        await ask(target)
    purged = await ask("/", "PURGE", [("xkey-purge", "/wikipedia/commons/3/37/F.jpg")])
    assert json.loads(purged.body)["purged"] == 2
    assert ["hit" in (await ask(target))["cache-status"] for target in (*thumbs, other)] == [
        False,
        False,
        True,
    ]


async def test_a_renewed_response_keeps_its_path_s_tag(application: Any, client_of: Any, clock: Any) -> None:
    def script(scope: dict[str, Any]) -> Any:
        validated = any(name == b"if-none-match" for name, _ in scope["headers"])
        fields = [(b"etag", b'"1"'), (b"cache-control", b"max-age=10")]
        return (304 if validated else 200), fields, b"" if validated else b"thumb"

    application.script = script
    ask = client_of(CacheMiddleware(application, profile=profile_of(THUMBNAILS), clock=clock))
    target = "/wikipedia/commons/thumb/3/37/F.jpg/100px-F.jpg"
    await ask(target)
    clock.now += 11
    assert "fwd-status=304" in (await ask(target))["cache-status"]
    purged = await ask("/", "PURGE", [("xkey-purge", "/wikipedia/commons/3/37/F.jpg")])
    assert json.loads(purged.body)["purged"] == 1


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/%CF%F0%E8%E2%E5%F2", []),  # windows-1251, undeclared
        ("/%CF%F0%E8%E2%E5%F2", [("uri-path-encoding", "windows-1251")]),
        ("/%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82", []),
        ("/%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82", [("URI-Path-Encoding".lower(), "UTF-8")]),
    ],
)
async def test_legacy_and_utf_8_are_one_resource(
    application: Any, client_of: Any, target: str, fields: list[tuple[str, str]]
) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(CYRILLIC)))
    await ask("/%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82")
    again = await ask(target, fields=fields)
    assert "hit" in again["cache-status"]
    purged = await ask(target, "PURGE", fields)
    assert json.loads(purged.body)["purged"] == 1
    assert application.targets == [b"/%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82"]


async def test_what_is_declared_utf_8_must_be(application: Any, client_of: Any) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(CYRILLIC)))
    refused = await ask("/%CF%F0", fields=[("uri-path-encoding", "UTF-8")])
    assert (refused.status, json.loads(refused.body)["reason"]) == (400, "bad-utf-8")
    assert application.count == 0


async def test_an_untrusted_declaration_changes_nothing_and_goes_no_further(
    application: Any, client_of: Any
) -> None:
    ask = client_of(CacheMiddleware(application, profile="rfc3986"))
    await ask("/%CF%F0", fields=[("uri-path-encoding", "UTF-8"), ("uri-query-encoding", "windows-1251")])
    assert application.targets == [b"/%CF%F0"]
    names = {name for name, _ in application.scopes[0]["headers"]}
    assert not names & {b"uri-path-encoding", b"uri-query-encoding"}


async def test_the_application_is_told_what_is_sure_to_be_utf_8(application: Any, client_of: Any) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(CYRILLIC)))
    await ask("/%CF%F0?q=%CF%F0")
    told = dict(application.scopes[0]["headers"])
    assert (told[b"uri-path-encoding"], told[b"uri-query-encoding"]) == (b"UTF-8", b"UTF-8")


async def test_what_is_dropped_from_the_key_never_reaches_the_application(
    application: Any, client_of: Any
) -> None:
    own = profile_of('extends = "rfc3986"\n[query]\nsort = true\ndrop = ["utm_*"]\n')
    ask = client_of(CacheMiddleware(application, profile=own))
    for target in ("/a?b=1&a=2&utm_source=x", "/a?utm_campaign=%3Cscript%3E&a=2&b=1"):
        await ask(target)
    assert application.targets == [b"/a?a=2&b=1"]
