"""PURGE at the door and purges by name: who may, what goes, what is answered."""

import json

import pytest

TOKEN = [("authorization", "Bearer open sesame")]
PREFIX = [("x-purge-method", "prefix")]
STRANGER = ("198.51.100.7", 4711)


async def stored(client, *targets, **named):
    for target in targets:
        assert "stored" in (await client(target, **named)).handling


async def test_a_purge_never_reaches_the_application(cached, application):
    """Who may purge is a table of engine/test_purge.py."""
    client = cached(purge_token="open sesame")
    await stored(client, "/a")
    refused = await client("/a", "PURGE", client=STRANGER)
    assert (refused.status, refused.problem["reason"]) == (403, "purge-forbidden")
    assert "hit" in (await client("/a")).handling
    answers = [await client("/a", "PURGE")]
    await stored(client, "/a")
    answers.append(await client("/a", "PURGE", TOKEN, client=STRANGER))
    for answer in answers:
        assert (answer.status, answer["content-type"]) == (200, "application/json")
        assert json.loads(answer.body) == {"purged": 1, "key": "http://en.example/a"}
        assert int(answer["content-length"]) == len(answer.body)
    assert application.count == 2


PATTERNS = ["/)|(", "/a)|(?:.*", "/[", "/(", "*", ".*", "|.*", "/" + "a" * 2000]


@pytest.mark.parametrize(
    ("target", "method", "fields", "reason"),
    [
        ("*", "PURGE", PREFIX, "no-leading-slash"),
        ("/%00", "PURGE", PREFIX, "control-character"),
        ("/a/..", "PURGE", PREFIX, "dot-segment"),
        ("ftp://en.example/", "PURGE", PREFIX, "bad-target"),
        *((pattern, "BAN", [], None) for pattern in PATTERNS),
    ],
)
async def test_what_names_nothing_purges_nothing(cached, target, method, fields, reason):
    if method == "BAN":
        pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = cached("mediawiki")
    await stored(client, "/blog/1", "/shop")
    answer = await client(target, method, fields)
    assert answer.status == 400
    assert reason in {None, answer.problem["reason"]}
    for each in ("/blog/1", "/shop"):
        assert "hit" in (await client(each)).handling
