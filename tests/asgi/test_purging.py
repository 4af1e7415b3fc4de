"""PURGE at the door and purges by name: who may, what goes, what is answered, and other dialects."""

import json

import pytest

from examples import cases
from univocal import RefusedError
from univocal.engine.outcome import carry_out
from univocal.http.messages import Received
from univocal.judge.orders import ordered
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import parse


def profile_of(text):
    return parse({"own": f'extends = "rfc3986"\n{text}'}, builtin_profiles())["own"]


@pytest.fixture
def store(cached):
    """Fills a cache by a profile with these settings; the client then purges by name, too."""

    async def fill(text, *targets, hosts=("en.example",)):
        client = cached(profile_of(text))
        for host in hosts:
            for target in targets:
                await client(target, host=host)
        return client

    return fill


async def by_name(client, tiers=None, **asked):
    gate = client.app.gate
    purged = await carry_out(await ordered(asked, gate.runtime), tiers or client.app.tiers, 1_000_000)
    return json.loads(purged.body())


async def gone(client, *targets, host="en.example"):
    answers = [await client(target, host=host) for target in targets]
    return [target for target, answer in zip(targets, answers, strict=True) if "hit" not in answer.handling]


# Beginnings

REMOVE = '[path]\ntrailing_slash = "remove"\nindex_names = ["index.html"]'
ADD = '[path]\ntrailing_slash = "add"'


@pytest.mark.parametrize("soft", [False, True])
@cases(
    "text, prefix, meant, others",
    ("", "/a", ["/a", "/a/b", "/ab", "/a?b"], ["/b", "/A"]),
    (REMOVE, "/wiki/", ["/wiki", "/wiki/A", "/wiki?x"], ["/wikipedia", "/wiki.html"]),
    (REMOVE, "/d/index.html", ["/d/index.html", "/d/index.html?x", "/d/index.html5"], ["/d/A", "/dx"]),
    (ADD, "/wiki/Foo", ["/wiki/Foo", "/wiki/Foobar", "/wiki/Foo/x"], ["/wiki/Bar"]),
    ("", "/x/../", ["/x", "/y"], []),
    ("", "/x/.g", ["/x/.git"], ["/x/y", "/y"]),
    ("", "/x/..h", ["/x/..hidden"], ["/x/y", "/y"]),
    ("[query]\nsort = true", "/a?b", ["/a?b=2&c=1", "/a?c=1&b"], ["/a?a=1&b=2", "/a"]),
    ('[query]\ndrop = ["utm_*"]', "/a?utm_source=", ["/a"], ["/a?x", "/b"]),
)
async def test_a_prefix_means_what_begins_like_it(store, text, prefix, meant, others, soft):
    client = await store(text, *meant, *others)
    answer = await by_name(client, prefix="http://en.example" + prefix, soft=soft)
    assert await gone(client, *meant, *others) == meant
    responses = len({client.app.gate.admit(*asked(target)).canonical.key for target in meant})
    assert answer["softened" if soft else "purged"] == responses


def asked(target):
    received = Received(b"GET", target.encode(), b"http", "127.0.0.1")
    return received, [(b"host", b"en.example")], 1_000_000


# Many URLs


@pytest.mark.parametrize("wrong", ["/b", "http://en.example/%00", "http://en.example/\ud800", 1])
async def test_one_url_that_is_refused_refuses_all(store, wrong):
    client = await store("", "/a")
    with pytest.raises((RefusedError, ValueError)):
        await by_name(client, urls=[*["http://en.example/a"] * 500, wrong])
    assert await gone(client, "/a") == []


# Tags derived from a URL

THUMBS = "[[tags]]\nfrom = '^/thumb(/.+)/\\d+px$'\nto = '\\1'"
HOSTS = ("en.example", "de.example")


async def test_a_purge_by_its_method_keeps_to_its_host_too(store):
    client = await store(THUMBS, "/F.jpg", "/thumb/F.jpg/120px", hosts=HOSTS)
    answer = await client("/F.jpg", "PURGE", [("soft-purge", "1")])
    assert json.loads(answer.body) == {"softened": 2, "key": "http://en.example/F.jpg"}
    assert await gone(client, "/F.jpg", "/thumb/F.jpg/120px", host="de.example") == []


# Refusals


@cases(
    "asked",
    {"pattern": "(secret"},
    {"pattern": "secret)"},
    {"pattern": "[z-secret"},
    {"pattern": "[z-a]secret"},
    {"pattern": "\\8secret"},
    {"pattern": "(?P<secret"},
    {"pattern": "*secret"},
    {"pattern": "s**ecret"},
    {"pattern": "secret{99999}"},
    {"pattern": "sécret\ud800"},
    {"url": "http://secret.example/\ud800"},
    {"urls": ["http://secret.example/\ud800"]},
    {"prefix": "http://secret.example/\ud800"},
    {"tag": "secret\ud800"},
    {"secret": 1},
    {"soft": "secret", "all": True},
)
async def test_errors_about_invalid_purges_do_not_repeat_them(store, asked):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = await store("")
    with pytest.raises(ValueError, match=r"RE2 does not|a pattern must|surrogate|one of|soft must") as raised:
        await by_name(client, **asked)
    told = str(raised.value)
    assert told
    for octets in ("secret", "\\ud800", "\ud800", "z-", "\\8", "**", "99999", "?P", "é"):
        assert octets not in told


# The dialects of other caches' clients

OPEN_PAGE = (b"cache-control", b"max-age=60")


# By the sources of FOSHttpCache, Magento, API Platform, and Drupal's Varnish purger.
ANY = [("x-host", ".*"), ("x-url", ".*"), ("x-content-type", ".*")]
DIALECTS = [
    ("x-cache-tags", "PURGEKEYS", [("xkey-softpurge", "none two")], "softened"),
    ("x-cache-tags", "PURGEKEYS", [("xkey-purge", "two")], "purged"),
    ("x-cache-tags", "PURGETAGS", [("x-cache-tags", "none,two")], "purged"),
    ("x-cache-tags", "BAN", [*ANY, ("x-cache-tags", "(^|,)(?:none|two)(,|$)")], "purged"),
    ("x-cache-tags", "BAN", [*ANY, ("x-cache-tags", "(none|two)(,.+)?$")], None),
    ("x-magento-tags", "PURGE", [("x-magento-tags-pattern", "((^|,)none(,|$))|((^|,)two(,|$))")], "purged"),
    ("x-magento-tags", "PURGE", [("x-magento-tags-pattern", ".*")], "purged"),
    ("cache-tags", "BAN", [("apiplatform-ban-regex", "((^|\\,)none($|\\,))|((^|\\,)two($|\\,))")], "purged"),
    ("cache-tags", "BAN", [("apiplatform-ban-regex", "(^|\\,)two($|\\,)")], "purged"),
    ("cache-tags", "BAN", [("cache-tags", "none|two")], "purged"),
    ("cache-tags", "BAN", [("cache-tags", "none two")], "purged"),
    ("purge-cache-tags", "BAN", [("purge-cache-tags", "two")], "purged"),
    ("surrogate-key", "PURGE", [("surrogate-key", "none, two")], "purged"),
]


@pytest.mark.parametrize(("field", "method", "purge", "expected"), DIALECTS)
async def test_a_dialect_of_tags_is_spoken(cached, application, field, method, purge, expected):
    application.script = lambda scope: (
        200, [OPEN_PAGE, (field.encode(), b"one,two" if scope["path"] == "/a" else b"twofold")], b""
    )  # fmt: skip
    client = cached()
    for target in ("/a", "/b"):
        await client(target)
    answer = await client("/", method, purge)
    if expected is None:
        assert (answer.status, answer.problem["reason"]) == (400, "unknown-purge-field")
        assert purge[-1][0] in answer.problem["detail"]
        return
    everything = purge[-1][1] == ".*"
    assert json.loads(answer.body)[expected] == 1 + everything
    assert "hit" not in (await client("/a")).handling
    assert ("hit" in (await client("/b")).handling) is not everything


@cases(
    "fields, gone",
    ([("x-url", "/news/.*")], ["/news/1?p=2"]),
    ([("x-url", "^/news/1")], ["/news/1?p=2"]),
    ([("x-url", "/2$")], ["/shop/2"]),
    ([("x-url", "/s.op"), ("x-host", "^(en.example|other)$")], ["/shop/2"]),
    ([("x-url", "/"), ("x-host", "^(fr.example)$")], []),
    ([("x-url", "/"), ("x-host", "^www$|^en")], ["/news/1?p=2", "/shop/2"]),
    ([*ANY[:1], ("x-url", "^/2")], []),
    ([*ANY[:1], ("x-url", "^$")], []),
    ([("x-url", "example")], []),
    ([("x-host", "news")], []),
    ([*ANY[:1], ("x-url", "^/(a|shop)/2$")], ["/shop/2"]),
    ([*ANY[:1], ("x-url", "^/news/|^/shop/.$")], ["/news/1?p=2", "/shop/2"]),
    ([*ANY[:1], ("x-url", "(^/shop|p=2$)")], ["/news/1?p=2", "/shop/2"]),
    ([("x-url", ".*"), ("x-host", "example")], ["/news/1?p=2", "/shop/2"]),
    ([*ANY], ["/news/1?p=2", "/shop/2"]),
)
async def test_a_ban_by_fields_is_searched_in_url_and_host(cached, fields, gone):
    pytest.importorskip("re2", reason="needs RE2 (univocal[re2])")
    client, targets = cached(), ["/news/1?p=2", "/shop/2"]
    for target in targets:
        await client(target)
    assert (await client("/", "BAN", fields)).status == 200
    assert [target for target in targets if "hit" not in (await client(target)).handling] == gone


# PURGE at the door and purges by name: who may, what goes, what is answered


TOKEN = [("authorization", "Bearer open sesame")]
PREFIX = [("x-purge-method", "prefix")]
STRANGER = ("198.51.100.7", 4711)


async def stored(client, *targets, **named):
    for target in targets:
        assert "stored" in (await client(target, **named)).handling


async def test_a_purge_never_reaches_the_application(cached, application):
    """engine/test_purge.py has the table of the clients that may purge."""
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


@cases(
    "target, method, fields, reason",
    ("*", "PURGE", PREFIX, "no-leading-slash"),
    ("/%00", "PURGE", PREFIX, "control-character"),
    ("/a/..", "PURGE", PREFIX, "dot-segment"),
    ("ftp://en.example/", "PURGE", PREFIX, "bad-target"),
    *((pattern, "BAN", [], None) for pattern in PATTERNS),
)
async def test_an_invalid_purge_request_removes_nothing(cached, target, method, fields, reason):
    if method == "BAN":
        pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = cached("mediawiki")
    await stored(client, "/blog/1", "/shop")
    answer = await client(target, method, fields)
    assert answer.status == 400
    assert reason in {None, answer.problem["reason"]}
    for each in ("/blog/1", "/shop"):
        assert "hit" in (await client(each)).handling
