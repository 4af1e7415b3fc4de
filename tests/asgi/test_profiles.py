"""What a profile's settings do at the door: tags from paths, declared charsets, lossy queries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from univocal import CacheMiddleware, ProfileError, Rules
from univocal.http.forward import request_fields
from univocal.judge.profiles import builtin_profiles
from univocal.uri.pipeline import canonical_target
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


async def test_the_application_gets_only_valid_utf_8(application: Any, client_of: Any) -> None:
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


async def test_purging_the_original_removes_every_thumbnail(application: Any, client_of: Any) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(THUMBNAILS)))
    thumbs = [f"/wikipedia/commons/thumb/3/37/A,_B.jpg/{width}px-A.jpg" for width in (100, 200)]
    original = "/wikipedia/commons/3/37/A,_B.jpg"
    for target in (*thumbs, original):
        await ask(target)
    purged = json.loads((await ask(original, "PURGE")).body)
    assert purged == {"purged": 3, "key": f"http://en.example{original}"}


@pytest.mark.parametrize("field", ["cache-tag", "surrogate-key", "xkey"])
async def test_a_tag_with_a_comma(application: Any, client_of: Any, field: str) -> None:
    ask = client_of(CacheMiddleware(application, profile=profile_of(THUMBNAILS)))
    await ask("/wikipedia/commons/thumb/3/37/A,_B.jpg/100px-A.jpg")
    purged = json.loads((await ask("/", "PURGE", [(field, "/wikipedia/commons/3/37/A,_B.jpg")])).body)
    assert purged["purged"] == 0  # a comma stands between two: `univocal purge --tag` names it


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


@pytest.mark.parametrize("path", ['index_names = ["index.html"]', 'trailing_slash = "remove"'])
def test_a_declared_charset_is_read_once(path: str) -> None:
    text = (
        f'extends = "rfc3986"\n[path]\n{path}\n[charset]\npath = "windows-1253"\ntrust_encoding_fields = true'
    )
    declared = ("windows-1253", "")
    assert canonical_target(b"/%A1%A1", profile_of(text), declared) == b"/%CE%85%CE%85"
    assert canonical_target(b"/%EF", profile_of(text), ("koi8-r", "")) == b"/%D0%9E"


def test_names_are_compared_in_the_origin_s_charset() -> None:
    charset = '[charset]\npath = "windows-1251"\nquery = "windows-1251"\norigin = "legacy"'
    kept = profile_of(f'extends = "rfc3986"\n[query]\nallow = ["имя"]\n{charset}')
    dropped = profile_of(f'extends = "rfc3986"\n[query]\ndrop = ["имя"]\n{charset}')
    index = profile_of(f'extends = "rfc3986"\n[path]\nindex_names = ["имя"]\n{charset}')
    assert canonical_target(b"/?%E8%EC%FF=1", kept) == b"/?%E8%EC%FF=1"
    assert canonical_target(b"/?%E8%EC%FF=1&a", dropped) == b"/?a"
    assert canonical_target(b"/a/%E8%EC%FF", index) == b"/a/"


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


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
@pytest.mark.parametrize("written", [b"/bucket/a", b"/bucket/a?X-Amz-Signature=3", b"/bucket/%61?uploadId=7"])
async def test_an_unsafe_request_ends_every_url_of_an_object(cached, application, method, written):
    """A presigned PUT has another query than the presigned GET of the same object."""
    client = cached("s3")
    reads = [b"/bucket/a", b"/bucket/a?X-Amz-Signature=1", b"/bucket/a?X-Amz-Signature=2", b"/bucket/ab?x=1"]
    for _ in range(2):
        answers = [await client(target) for target in reads]
    assert all("hit" in answer.handling for answer in answers)
    assert (await client(written, method=method)).status == 200
    assert ["hit" in (await client(target)).handling for target in reads] == [False, False, False, True]


async def test_a_purge_removes_every_url_of_an_object(cached, application):
    client = cached("s3")
    for target in (b"/bucket/a", b"/bucket/a?X-Amz-Signature=1", b"/bucket/ab"):
        await client(target)
    assert json.loads((await client(b"/bucket/a", method="PURGE")).body)["purged"] == 2


async def test_an_unsafe_request_ends_what_is_derived_from_its_path(cached, application):
    client = cached(parse({"thumbnails": THUMBNAILS}, builtin_profiles())["thumbnails"])
    thumbnail = "/wikipedia/commons/thumb/3/37/F.jpg/100px-F.jpg"
    await client(thumbnail)
    await client("/wikipedia/commons/3/37/F.jpg", method="PUT")
    assert "hit" not in (await client(thumbnail)).handling


async def test_a_language_in_a_django_cookie_is_not_shared(cached, application):
    client = cached("django")
    await client("/a")
    assert "hit" in (await client("/a", fields=[("cookie", "theme=dark")])).handling
    assert "fwd=bypass" in (await client("/a", fields=[("cookie", "django_language=de")])).handling


@pytest.mark.parametrize(("names", "tells"), [(["django_language"], False), (["sessionid"], True)])
def test_a_cookie_of_a_preference_tells_nothing_of_other_cookies(names, tells):
    assert Rules(bypass_cookies=names).tells_cookies is tells
