"""What is told of purges: to listeners who, what, how many; to clients no tags where those are stripped."""

import json

import pytest

from univocal import MemoryStore, RefusedError
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


# Stripped


async def names(client, target="/a", method="GET", fields=()):
    answer = await client(target, method, fields)
    return answer.status, {name.decode() for name, _ in answer.fields} & TAGGING
