"""What is told of purges: to listeners who, what, how many; to clients no tags where those are stripped."""

import json

import pytest

from univocal import MemoryStore, RefusedError, Rules
from univocal.store.purge_selectors import Keys
from univocal.store.tiers import MemoryTier

OPEN = [(b"cache-control", b"max-age=60")]
TAGGED = [
    *OPEN,
    (b"etag", b'"v1"'),
    (b"surrogate-key", b"news sport"),
    (b"xkey", b"a"),
    (b"cache-tag", b"b, c"),
    (b"cache-groups", b'"scripts", "two words"'),
]
TAGGING = {"surrogate-key", "xkey", "cache-tag", "cache-groups"}
STRANGER = ("198.51.100.7", 4711)


@pytest.fixture
def told():
    return []


@pytest.fixture
def client(cached, told):
    return cached(listeners=[told.append], purge_token="s3cret", trusted_proxies=["192.0.2.1"])


# The audit


async def test_a_purge_by_url(client, told):
    await client("/a%28b%29")
    await client("/a(b)", "PURGE")
    outcome = told[1]
    order = outcome.purged.order
    assert (order.by, order.names, outcome.purged.count) == ("key", ("http://en.example/a(b)",), 1)
    assert isinstance(order.selector, Keys)
    assert (outcome.canonical.url, outcome.site) == (b"http://en.example/a(b)", "*")
    assert (outcome.decision, outcome.status, outcome.client) == (None, 200, "127.0.0.1")


async def test_a_soft_purge_by_tags(client, told):
    await client("/", "PURGE", [("surrogate-key", "news sport"), ("soft-purge", "1")])
    (outcome,) = told
    order = outcome.purged.order
    assert (order.by, order.names, order.selector.soft) == ("tag", ("news", "sport"), True)
    assert (outcome.purged.count, outcome.canonical, outcome.site) == (0, None, "")


async def test_a_ban_is_told_with_its_pattern(client, told):
    pytest.importorskip("re2", reason="patterns need google-re2 (univocal[re2])")
    await client("/blog/.*", "BAN")
    order = told[0].purged.order
    assert (order.by, order.names) == ("pattern", (r"^https?://en\.example(?:/blog/.*)",))


@pytest.mark.parametrize("target", ["/a", "/../%00", "*"])
async def test_a_purge_that_is_refused(client, told, target):
    await client(target, "PURGE", client=STRANGER)
    (outcome,) = told
    assert (outcome.status, outcome.reasons) == (403, ("purge-forbidden",))
    assert (outcome.purged, outcome.client, outcome.received.target) == (
        None,
        STRANGER[0],
        target.encode(),
    )


async def test_who_purged_is_whom_a_trusted_proxy_names(client, told):
    said = [("authorization", "Bearer s3cret"), ("x-forwarded-for", "127.0.0.1, 203.0.113.9")]
    await client("/a", "PURGE", said, client=("192.0.2.1", 1))
    await client("/a", "PURGE", said, client=STRANGER)  # whose word counts for nothing
    assert [outcome.client for outcome in told] == ["203.0.113.9", STRANGER[0]]


class Unconfirmed(MemoryTier):
    """The tiers of a store that confirms no purge."""

    async def _purge(self, selector, now):
        raise RefusedError("shared-store-unavailable")


async def test_a_store_that_does_not_confirm(cached, told):
    client = cached(listeners=[told.append], store=Unconfirmed(MemoryStore()))
    answer = await client("/a", "PURGE")
    (outcome,) = told
    assert (answer.status, outcome.status) == (503, 503)
    assert (outcome.purged.count, outcome.purged.order.names) == (None, ("http://en.example/a",))


# Whose page


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([("origin", "http://evil.example")], 403),
        ([("origin", "http://en.example")], 403),  # a name may be pointed here (DNS rebinding)
        ([("origin", "null")], 403),
        ([("origin", "http://evil.example"), ("authorization", "Bearer s3cret")], 200),
    ],
)
async def test_a_browsers_address_lets_no_page_purge(client, fields, status):
    assert (await client("/a", "PURGE", fields)).status == status


# The fields


async def test_a_soft_purge_as_fos_http_cache_asks_for_it(cached, application):
    application.fields = TAGGED
    client = cached()
    await client("/a")
    answer = await client("/", "PURGE", [("xkey-softpurge", "news")])
    assert json.loads(answer.body) == {"softened": 1, "by": "tag", "value": "news"}
    assert {"fwd=stale"} <= (await client("/a")).handling


@pytest.mark.parametrize(
    ("directive", "status", "said"),
    [
        ("stale-while-revalidate=60", 200, {"hit"}),
        ("stale-if-error=60", 500, {"fwd=stale", "fwd-status=500"}),
    ],
)
async def test_what_is_purged_softly_is_still_of_use(cached, application, idle, directive, status, said):
    application.fields = [(b"cache-control", b"max-age=60, " + directive.encode())]
    client = cached()
    await client("/a")
    await client("/a", "PURGE", [("soft-purge", "1")])
    application.script = lambda scope: (status, application.fields, b"new")
    answer = await client("/a")
    assert (answer.status, answer.body) == (200, b"answer 1")
    assert said <= answer.handling
    await idle()
    if status == 200:  # it was fetched again meanwhile
        assert (await client("/a")).body == b"new"


async def test_a_group_is_a_tag(cached, application):
    application.fields = TAGGED
    client = cached()
    await client("/a")
    answer = await client("/", "PURGE", [("surrogate-key", "scripts")])
    assert json.loads(answer.body)["purged"] == 1


@pytest.mark.parametrize(("method", "gone"), [("POST", True), ("DELETE", True), ("GET", False)])
async def test_an_unsafe_response_invalidates_the_groups_that_it_names(cached, application, method, gone):
    """RFC 9875 §3: of the same origin alone, and only for an unsafe method."""
    application.fields = TAGGED
    client = cached()
    await client("/a")
    await client("/a", host="ru.example")
    application.fields = [(b"cache-group-invalidation", b'"two words"'), (b"cache-control", b"no-store")]
    await client("/b", method)
    assert ("hit" not in (await client("/a")).handling) is gone
    assert "hit" in (await client("/a", host="ru.example")).handling


# Stripped


async def names(client, target="/a", method="GET", fields=()):
    answer = await client(target, method, fields)
    return answer.status, {name.decode() for name, _ in answer.fields} & TAGGING


@pytest.mark.parametrize(("strip", "shown"), [(False, TAGGING), (True, set())])
async def test_tags_are_stripped_only_where_the_rules_say(cached, application, clock, strip, shown):
    application.fields = TAGGED
    client = cached(rules=Rules(strip_tags=strip))
    assert await names(client) == (200, shown)  # a miss, as it comes
    assert await names(client) == (200, shown)  # a hit
    assert await names(client, method="HEAD") == (200, shown)
    assert await names(client, fields=[("range", "bytes=0-1")]) == (206, shown)
    assert await names(client, fields=[("if-none-match", '"v1"')]) == (304, shown)
    assert await names(client, "/b", fields=[("if-none-match", '"v1"')]) == (304, shown)  # from the origin
    assert await names(client, "/c", method="POST") == (200, shown)
    clock.now += 100
    application.script = lambda scope: (304, OPEN, b"")
    assert await names(client) == (200, shown)  # freshened


@pytest.mark.parametrize("tag", ["news", "a", "c", "scripts"])
async def test_stripped_tags_are_stored_and_survive_a_304(cached, application, clock, tag):
    application.fields = TAGGED
    client = cached(rules=Rules(strip_tags=True))
    await client("/a")
    clock.now += 100
    application.script = lambda scope: (304, OPEN, b"")
    assert "fwd-status=304" in (await client("/a")).handling
    answer = await client("/", "PURGE", [("surrogate-key", tag)])
    assert json.loads(answer.body)["purged"] == 1
