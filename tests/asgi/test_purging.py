"""PURGE at the door and purges by name: who may, what goes, what is answered."""

import asyncio
import json

import pytest

from univocal import CacheMiddleware, MemoryStore, RefusedError, Rules, Runtime
from univocal.engine.purge import Purged
from univocal.judge.orders import order_by_name
from univocal.judge.profiles import builtin_profiles
from univocal.judge.runtime import Access
from univocal.judge.trust import networks
from univocal.uri.site import Route, Site
from univocal.uri.sites import Sites

STRANGER = ("198.51.100.7", 4711)
OPEN = [(b"cache-control", b"max-age=60")]


def told(answer):
    assert answer["content-type"] == "application/json"
    assert int(answer["content-length"]) == len(answer.body)
    return answer.status, json.loads(answer.body)


async def stored(client, *targets, **named):
    for target in targets:
        assert "stored" in (await client(target, **named)).handling


# Who may


@pytest.mark.parametrize(
    ("address", "fields", "may"),
    [
        ("127.0.0.1", [], True),
        ("127.9.9.9", [], True),
        ("::1", [], True),
        ("::ffff:127.0.0.1", [], True),
        ("198.51.100.7", [], False),
        ("198.51.100.7", [("authorization", "Bearer open sesame")], True),
        ("198.51.100.7", [("authorization", "bearer open sesame")], True),
        ("198.51.100.7", [("authorization", "Bearer open")], False),
        ("198.51.100.7", [("authorization", "Bearer ")], False),
        ("198.51.100.7", [("authorization", "Basic open sesame")], False),
        ("198.51.100.7", [("authorization", "Bearer open sesame"), ("authorization", "Bearer x")], False),
        ("198.51.100.7", [("x-forwarded-for", "127.0.0.1")], False),
        ("198.51.100.7", [("forwarded", "for=127.0.0.1")], False),
        ("198.51.100.7", [("x-real-ip", "127.0.0.1")], False),
        ("testclient", [], False),
    ],
)
async def test_who_may_purge(cached, address, fields, may):
    client = cached(purge_token="open sesame")
    await stored(client, "/a")
    answer = await client("/a", "PURGE", fields, client=(address, 4711))
    if may:
        assert told(answer) == (200, {"purged": 1, "key": "http://en.example/a"})
    else:
        assert (answer.status, answer.problem["reason"]) == (403, "purge-forbidden")
        assert "hit" in (await client("/a")).handling


@pytest.mark.parametrize("value", ["Bearer ", "Bearer", "", "Bearer None"])
async def test_without_a_token_none_opens(cached, value):
    client = cached()
    assert (await client("/a", "PURGE", [("authorization", value)], client=STRANGER)).status == 403


@pytest.mark.parametrize("client", [None])
async def test_a_client_without_an_address_needs_the_token(cached, client):
    assert (await cached()("/a", "PURGE", client=client)).status == 403


@pytest.mark.parametrize(
    ("forwarded", "status"), [("198.51.100.7", 403), ("127.0.0.1, 198.51.100.7", 403), ("192.0.2.1", 200)]
)
async def test_behind_a_trusted_proxy_the_client_it_names_is_asked(cached, forwarded, status):
    client = cached(trusted_proxies=["127.0.0.1"], purge_allow=["192.0.2.0/24"])
    answer = await client("/a", "PURGE", [("x-forwarded-for", forwarded)])
    assert answer.status == status


async def test_networks_replace_the_loopback(cached):
    client = cached(purge_allow=["198.51.100.0/24"])
    assert (await client("/a", "PURGE")).status == 403
    assert (await client("/a", "PURGE", client=STRANGER)).status == 200


async def test_a_purge_never_reaches_the_application(cached, application):
    client = cached()
    await client("/a", "PURGE")
    await client("/a", "PURGE", client=STRANGER)
    assert application.count == 0


async def test_who_may_is_asked_before_anything_else(cached):
    answer = await cached()("/../%00", "PURGE", host=None, client=STRANGER)
    assert (answer.status, answer.problem["reasons"]) == (403, ["purge-forbidden"])


# What goes


@pytest.mark.parametrize(
    "spelling",
    [
        "/wiki/A/B(c)",
        "/wiki/A%2FB(c)",
        "/wiki/A%2fB%28c%29",
        "/%77iki/A%2FB%28c)",
        "/wiki/./A/x/../B(c)",
        "http://en.example/wiki/A/B(c)",
        "http://EN.example:80/wiki/A%2fB%28c%29",
        "https://en.example/wiki/A/B(c)",
    ],
)
async def test_a_purge_by_any_spelling_removes_the_one(cached, spelling):
    client = cached("mediawiki")
    await stored(client, "/wiki/A/B%28c%29")
    answer = await client(spelling, "PURGE")
    scheme = "https" if spelling.startswith("https") else "http"
    assert told(answer) == (200, {"purged": 1, "key": f"{scheme}://en.example/wiki/A/B(c)"})
    assert "fwd=uri-miss" in (await client("/wiki/A/B(c)")).handling


async def test_nothing_to_purge_is_no_error(cached):
    assert told(await cached()("/a", "PURGE")) == (200, {"purged": 0, "key": "http://en.example/a"})


async def test_every_variant_goes(cached, application):
    application.fields = [*OPEN, (b"vary", b"accept-language")]
    client = cached()
    for tongue in ("en", "ru", "de"):
        await stored(client, "/a", fields=[("accept-language", tongue)])
    assert told(await client("/a", "PURGE"))[1]["purged"] == 3


async def test_both_schemes_go(cached):
    client = cached()
    await stored(client, "/a", scheme="https")
    await stored(client, "/a")
    assert told(await client("/a", "PURGE"))[1]["purged"] == 2


async def test_other_queries_hosts_and_ports_stay(cached):
    client = cached()
    await stored(client, "/a?", "/a?b", "/a/", "/A")
    await stored(client, "/a", host="ru.example")
    await stored(client, "/a", host="en.example:8080")
    assert told(await client("/a", "PURGE"))[1]["purged"] == 0
    assert client.app.store.stats.responses == 6


async def test_all_members_of_a_no_vary_search_group_go(cached, application):
    application.fields = [*OPEN, (b"no-vary-search", b'params=("utm")')]
    client = cached()
    await stored(client, "/a?utm=1")
    assert told(await client("/a?utm=2", "PURGE"))[1]["purged"] == 1
    assert "hit" not in (await client("/a?utm=1")).handling


@pytest.mark.parametrize("field", ["soft-purge", "fastly-soft-purge"])
async def test_a_soft_purge_leaves_something_to_validate(cached, application, field):
    application.fields = [*OPEN, (b"etag", b'"v1"')]
    client = cached()
    await stored(client, "/a")
    answer = await client("/a", "PURGE", [(field, "1")])
    assert told(answer) == (200, {"softened": 1, "key": "http://en.example/a"})
    application.script = lambda scope: (304, OPEN, b"")
    renewed = await client("/a")
    assert (renewed.body, renewed.handling) == (b"answer 1", {"fwd=stale", "fwd-status=304"})


@pytest.mark.parametrize("named", ["xkey", "surrogate-key", "cache-tag"])
@pytest.mark.parametrize("asked", ["xkey-purge", "xkey", "surrogate-key", "cache-tag"])
async def test_tags_are_one_namespace_whichever_field_names_them(cached, application, named, asked):
    separator = ", " if named == "cache-tag" else " "
    application.fields = [*OPEN, (named.encode(), separator.join(["news", "sport"]).encode())]
    client = cached()
    await stored(client, "/a", "/b")
    await stored(client, "/a", host="ru.example")
    answer = await client("/elsewhere", "PURGE", [(asked, "sport")], host="unheard.of")
    assert told(answer) == (200, {"purged": 3, "by": "tag", "value": "sport"})


async def test_a_purge_by_tag_leaves_its_target_alone(cached, application):
    client = cached()
    await stored(client, "/a")
    assert told(await client("/a", "PURGE", [("surrogate-key", "news")]))[1]["purged"] == 0
    assert "hit" in (await client("/a")).handling


@pytest.mark.parametrize("target", ["/..%2f", "*", "no-slash", "/%00"])
async def test_a_purge_by_tag_asks_nothing_of_its_target(cached, target):
    assert (await cached()(target, "PURGE", [("surrogate-key", "news")], host=None)).status == 200


async def test_a_soft_purge_by_tag(cached, application):
    application.fields = [*OPEN, (b"surrogate-key", b"news")]
    client = cached()
    await stored(client, "/a")
    answer = await client("/", "PURGE", [("surrogate-key", "news"), ("soft-purge", "1")])
    assert told(answer) == (200, {"softened": 1, "by": "tag", "value": "news"})


# What is refused


@pytest.mark.parametrize(
    ("target", "host", "status", "reason"),
    [
        ("/a%00", "en.example", 400, "control-character"),
        ("/../a", "en.example", 400, "dot-segment"),
        ("/a#b", "en.example", 400, "fragment"),
        ("*", "en.example", 400, "bad-target"),
        ("ftp://en.example/a", "en.example", 400, "bad-target"),
        ("http://me@en.example/a", "en.example", 400, "bad-target"),
        ("a", "en.example", 400, "no-leading-slash"),
        ("/a", None, 400, "bad-host"),
        ("/a", "", 400, "bad-host"),
        ("/a", "en.example/b", 400, "bad-host"),
        ("http://en.example%2f/a", "en.example", 400, "bad-host"),
    ],
)
async def test_a_purge_is_refused_like_any_request(
    clock, application, client_of, target, host, status, reason
):
    client = client_of(CacheMiddleware(application, clock=clock))
    client.host = host
    answer = await client(target, "PURGE", host=host)
    assert (answer.status, answer.problem["reason"]) == (status, reason)


@pytest.fixture
def sited(application, clock, client_of):
    profile = builtin_profiles()["mediawiki"]
    site = Site(
        "wiki",
        ("en.example", "*.wiki.example"),
        (Route(b"/", profile, "origin"),),
        aliases=("www.en.example",),
    )
    moved = Site("moved", ("new.example",), (Route(b"/", profile, "origin"),), ("old.example",), 308)
    runtime = Runtime(Sites([site, moved]), {"wiki": Rules()}, Access(networks(["127.0.0.1"])))
    return client_of(CacheMiddleware(application, runtime=runtime, clock=clock))


async def test_a_host_that_is_not_ours_is_misdirected(sited):
    answer = await sited("/a", "PURGE", host="elsewhere.example")
    assert (answer.status, answer.problem["reason"]) == (421, "unknown-host")


async def test_an_alias_is_purged_as_the_host_it_stands_for(sited):
    await stored(sited, "/a", host="www.en.example")
    assert told(await sited("/a", "PURGE", host="www.en.example")) == (
        200,
        {"purged": 1, "key": "http://en.example/a"},
    )


async def test_an_alias_that_is_redirected_is_purged_all_the_same(sited):
    await stored(sited, "/a", host="new.example")
    assert told(await sited("/a", "PURGE", host="old.example"))[1]["purged"] == 1


async def test_hosts_of_one_pattern_are_purged_apart(sited):
    await stored(sited, "/a", host="x.wiki.example")
    await stored(sited, "/a", host="y.wiki.example")
    assert told(await sited("/a", "PURGE", host="x.wiki.example"))[1]["purged"] == 1


# By name, as the admin listener has it


def purge_selected(asked, runtime, store, now):
    order = order_by_name(asked, runtime)
    return Purged(order, store.purge(order.selector, now))


@pytest.fixture
async def filled(cached, application):
    application.script = lambda scope: (200, [*OPEN, (b"xkey", scope["path"][1:2].encode())], b"")
    client = cached("mediawiki")
    await stored(client, "/a(1)", "/a/2", "/b")
    await stored(client, "/a/2", host="ru.example")
    return client.app


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"url": "http://en.example/a%281%29"}, {"purged": 1, "key": "http://en.example/a(1)"}),
        ({"url": "https://EN.example/a%2f2"}, {"purged": 1, "key": "https://en.example/a/2"}),
        (
            {"url": "http://en.example/a/2", "soft": True},
            {"softened": 1, "key": "http://en.example/a/2"},
        ),
        (
            {"urls": ["http://en.example/b", "http://ru.example/a/2", "http://ru.example/no"]},
            {"purged": 2, "by": "urls", "value": "3"},
        ),
        (
            {"prefix": "http://en.example/%61"},
            {"purged": 2, "by": "prefix", "value": "http://en.example/a"},
        ),
        (
            {"prefix": "https://ru.example/"},
            {"purged": 1, "by": "prefix", "value": "https://ru.example/"},
        ),
        ({"tag": "a"}, {"purged": 3, "by": "tag", "value": "a"}),
        ({"tag": "a", "soft": True}, {"softened": 3, "by": "tag", "value": "a"}),
        ({"all": True}, {"purged": 4, "by": "all", "value": "*"}),
    ],
)
async def test_a_purge_by_name(filled, asked, answer):
    purged = purge_selected(asked, filled.gate.runtime, filled.store, 1_000_000)
    assert json.loads(purged.body()) == answer


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"soft": True},
        {"all": False},
        {"all": 1},
        {"url": 1},
        {"urls": []},
        {"urls": [1]},
        {"tag": ""},
        {"tag": "a", "url": "http://en.example/b"},
        {"unknown": "a"},
        {"tag": "a", "soft": "yes"},
        {"tag": "a", "soft": 1},
    ],
)
async def test_what_names_no_purge_removes_nothing(filled, asked):
    with pytest.raises(ValueError, match=r"soft|one of"):
        purge_selected(asked, filled.gate.runtime, filled.store, 1_000_000)
    assert filled.store.stats.responses == 4


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"url": "/a"}, "bad-target"),
        ({"url": "en.example/a"}, "bad-target"),
        ({"url": "ftp://en.example/a"}, "bad-target"),
        ({"url": "http://en.example/%00"}, "control-character"),
        ({"prefix": "a"}, "bad-target"),
        ({"url": "http://en.exa mple/"}, "bad-host"),
        ({"urls": ["http://en.example/b", "b"]}, "bad-target"),
    ],
)
async def test_a_url_that_is_refused_removes_nothing(filled, asked, reason):
    with pytest.raises(RefusedError) as raised:
        purge_selected(asked, filled.gate.runtime, filled.store, 1_000_000)
    assert raised.value.reason == reason
    assert filled.store.stats.responses == 4


async def test_a_store_may_be_shared_and_purged_through_either_door(clock, application, client_of):
    store = MemoryStore()
    clients = [client_of(CacheMiddleware(application, store=store, clock=clock)) for _ in range(2)]
    await stored(clients[0], "/a")
    assert "hit" in (await clients[1]("/a")).handling
    assert told(await clients[1]("/a", "PURGE"))[1]["purged"] == 1
    assert "hit" not in (await clients[0]("/a")).handling


# By prefix, with PURGE alone


PREFIX = [("x-purge-method", "prefix")]


@pytest.mark.parametrize(
    ("target", "gone"),
    [
        ("/b%6Cog/", {"/blog/1", "/blog/2(b)"}),
        ("/blog/2%28", {"/blog/2(b)"}),
        ("/./bl", {"/blog/1", "/blog/2(b)", "/blue"}),
        ("http://en.example/blog/1", {"/blog/1"}),
        ("https://en.example:443/blue", {"/blue"}),
        ("/", {"/blog/1", "/blog/2(b)", "/blue"}),
        ("/none", set()),
    ],
)
async def test_a_purge_by_prefix_takes_all_that_begins_so(cached, target, gone):
    client = cached("mediawiki")
    pages = ("/blog/1", "/blog/2(b)", "/blue")
    await stored(client, *pages)
    await stored(client, *pages, host="ru.example")
    status, answer = told(await client(target, "PURGE", PREFIX))
    assert (status, answer["by"], answer["purged"]) == (200, "prefix", len(gone))
    assert {page for page in pages if "hit" not in (await client(page)).handling} == gone
    for page in pages:
        assert "hit" in (await client(page, host="ru.example")).handling


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("*", "no-leading-slash"),
        ("/%00", "control-character"),
        ("/a/..", "dot-segment"),
        ("ftp://en.example/", "bad-target"),
    ],
)
async def test_a_prefix_that_is_none_purges_nothing(cached, target, reason):
    client = cached("mediawiki")
    await stored(client, "/blog/1")
    answer = await client(target, "PURGE", PREFIX)
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, reason)
    assert "hit" in (await client("/blog/1")).handling


# By pattern: a BAN, or a PURGE as WordPress's plugins send it


REGEX = [("x-purge-method", "regex")]


@pytest.fixture
async def shelf(cached):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = cached("rfc3986")
    for host in ("en.example", "en.example.com", "en.example:8080", "ru.example"):
        for target in ("/blog/1", "/blog/2", "/shop"):
            await stored(client, target, host=host)
    return client


async def left(client):
    """Which of the shelf's responses are still there."""
    asked = [("cache-control", "only-if-cached")]
    return {
        host + target
        for host in ("en.example", "en.example.com", "en.example:8080", "ru.example")
        for target in ("/blog/1", "/blog/2", "/shop")
        if (await client(target, fields=asked, host=host)).status == 200
    }


@pytest.mark.parametrize(
    ("pattern", "gone"),
    [
        ("/blog/.*", {"en.example/blog/1", "en.example/blog/2"}),
        ("/blog/1$", {"en.example/blog/1"}),
        ("/(shop|blog/2)", {"en.example/shop", "en.example/blog/2"}),
        ("/blog/1|/shop", {"en.example/blog/1", "en.example/shop"}),
        ("http://en.example/shop", {"en.example/shop"}),
        ("/%62log/%2e", set()),  # an escaped octet stands for itself
        ("/b%6cog/.*", {"en.example/blog/1", "en.example/blog/2"}),
        ("/nothing", set()),
    ],
)
@pytest.mark.parametrize(("method", "fields"), [("BAN", []), ("PURGE", REGEX)])
async def test_a_pattern_is_for_the_paths_of_its_host(shelf, method, fields, pattern, gone):
    before = await left(shelf)
    answer = await shelf(pattern, method, fields)
    assert told(answer)[1].items() >= {"banned": True, "by": "pattern"}.items()
    assert before - await left(shelf) == gone


@pytest.mark.parametrize(
    ("target", "pattern"),
    [
        ("/%D0%BF%D1%80/1", "/%d0%bf%d1%80/.*"),  # as WordPress spells what is not Latin
        ("/a(b)/1", "/a%28b%29/.*"),
        ("/a/b/1", "/a%2fb/.*"),
        ("/wiki/It's", "/wiki/It's"),
        ("/wiki/AT&T", "/wiki/AT&T"),
        ("/wiki/A=B/C", "/wiki/A=B.*"),
        ("/wiki/C++", "/wiki/C\\+{2}"),
        ("/w/index.php?title=It's&a=1", "/w/index.php\\?title=It's&"),
    ],
)
async def test_a_pattern_spells_octets_as_it_likes(cached, target, pattern):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client = cached("mediawiki")
    await stored(client, target, "/a%2Eb/1")
    await client(pattern, "PURGE", REGEX)
    assert "hit" not in (await client(target)).handling
    assert "hit" in (await client("/a.b/1")).handling


@pytest.mark.parametrize("pattern", ["/)|(", "/a)|(?:.*", "/[", "/(", "*", ".*", "|.*", "/" + "a" * 2000])
async def test_a_pattern_that_is_none_bans_nothing(shelf, pattern):
    before = await left(shelf)
    assert (await shelf(pattern, "BAN")).status == 400
    assert await left(shelf) == before


@pytest.mark.parametrize(("method", "fields"), [("BAN", []), ("PURGE", REGEX)])
async def test_who_may_not_purge_may_not_ban(shelf, method, fields):
    before = await left(shelf)
    assert (await shelf("/.*", method, fields, client=STRANGER)).status == 403
    assert await left(shelf) == before


async def test_what_was_asked_for_before_a_ban_is_not_stored(cached, application):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    client, application.gate = cached(), asyncio.Event()
    asking = asyncio.create_task(client("/a"))
    await application.reached(1)
    await client("/.*", "BAN")
    application.gate.set()
    await asking
    assert "hit" not in (await client("/a")).handling
