"""A purge: who may order it, what it names, and what is done when the store does not confirm it."""

import asyncio
import json

import pytest

from examples import cases
from neighbours import HOST, PlayedClient, everywhere
from univocal.engine.outcome import carry_out
from univocal.http.errors import RefusedError
from univocal.http.messages import Received
from univocal.judge.orders import Order, may_purge, order_by_name, order_of, ordered
from univocal.judge.runtime import Right
from univocal.judge.trust import LOOPBACK, Peer, networks
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys, Pattern, Prefix, Tags
from univocal.store.tiers import MemoryTier

RUNTIME = everywhere(purging=Right(networks(LOOPBACK), b"secret"))
NEAR, FAR = "127.0.0.1", "192.0.2.1"


def peer(client=NEAR):
    return Peer([HOST], b"http", client)


@cases(
    "client, fields, may",
    (NEAR, [], True),
    (FAR, [], False),
    ("127.9.9.9", [], True),
    ("::1", [], True),
    ("::ffff:127.0.0.1", [], True),
    ("testclient", [], False),
    (FAR, [(b"authorization", b"Bearer secret")], True),
    (FAR, [(b"authorization", b"bearer secret")], True),
    (FAR, [(b"authorization", b"Bearer ")], False),
    (FAR, [(b"authorization", b"Basic secret")], False),
    (FAR, [(b"authorization", b"Bearer secret"), (b"authorization", b"Bearer x")], False),
    (FAR, [(b"x-forwarded-for", b"127.0.0.1")], False),
    (FAR, [(b"forwarded", b"for=127.0.0.1")], False),
    (FAR, [(b"x-real-ip", b"127.0.0.1")], False),
    (FAR, [(b"authorization", b"Bearer other")], False),
    (FAR, [(b"authorization", b"Bearer secret")] * 2, False),
    (NEAR, [(b"origin", b"http://evil.example"), (b"host", b"evil.example")], False),
    (NEAR, [(b"origin", b"http://127.0.0.1:8080"), (b"host", b"127.0.0.1:8080")], True),
    (NEAR, [(b"origin", b"http://localhost"), (b"host", b"localhost")], True),
    (NEAR, [(b"origin", b"http://localhost"), (b"host", b"other")], False),
)
def test_purge_rights_come_from_the_address_or_the_token(client, fields, may):
    assert may_purge(peer(client), fields, RUNTIME.purging) is may


@cases("value", b"Bearer ", b"Bearer  ", b"bearer \t")
def test_where_there_is_no_token_none_opens(value):
    assert not may_purge(peer(FAR), [(b"authorization", value)], Right(networks(LOOPBACK)))


@cases(
    "method, fields, kind, by, soft",
    (b"PURGE", [], Keys, "key", False),
    (b"PURGE", [(b"soft-purge", b"1")], Keys, "key", True),
    (b"PURGE", [(b"xkey", b"a b")], Tags, "tag", False),
    (b"PURGE", [(b"xkey-softpurge", b"a")], Tags, "tag", True),
    (b"PURGE", [(b"cache-tag", b"a, b")], Tags, "tag", False),
    (b"PURGE", [(b"x-purge-method", b"regex")], Pattern, "pattern", False),
    (b"PURGE", [(b"x-purge-method", b"prefix")], Prefix, "prefix", False),
    (b"PURGE", [(b"x-purge-method", b"Prefix"), (b"soft-purge", b"1")], Prefix, "prefix", True),
    (b"PURGE", [(b"x-purge-method", b"default")], Keys, "key", False),
    (b"BAN", [], Pattern, "pattern", False),
)
def test_method_and_fields_of_a_request_select_the_purge(method, fields, kind, by, soft):
    order = order_of(Received(method, b"/a", b"http", NEAR), fields, peer(), RUNTIME)
    assert isinstance(order.selector, kind)
    assert (order.by, order.selector.soft) == (by, soft)


@cases(
    "asked, kind",
    ({"url": "http://en.example/a"}, Keys),
    ({"urls": ["http://en.example/a", "http://en.example/b"], "soft": True}, Keys),
    ({"prefix": "http://en.example/a"}, Prefix),
    ({"tag": "a"}, Tags),
    ({"pattern": "a+"}, Pattern),
    ({"all": True}, Everything),
)
def test_an_order_by_name_has_its_selector(asked, kind):
    order = order_by_name(asked, RUNTIME)
    assert isinstance(order.selector, kind)
    assert order.selector.soft is bool(asked.get("soft"))


@cases(
    "asked", {}, {"url": 1}, {"urls": []}, {"tag": ""}, {"all": False}, {"tag": "a", "all": True}, {"soft": 1}
)
def test_an_invalid_order_by_name_is_refused(asked):
    with pytest.raises(ValueError, match=r"one of url|soft must"):
        order_by_name(asked, RUNTIME)


async def test_many_urls_come_in_slices_and_count_once():
    urls = [f"http://en.example/{number % 150}" for number in range(250)]
    order = await ordered({"urls": urls}, RUNTIME)
    keys = [key for each in (order.selector, *order.also) if isinstance(each, Keys) for key in each.parts]
    assert len(keys) == len({*keys}) == 300
    assert order.value == "250"


class Unsure(MemoryTier):
    """Confirms nothing."""

    def __init__(self):
        super().__init__(MemoryStore())
        self.purges = []

    async def _purge(self, selector, now):
        self.purges.append(selector)
        raise RefusedError("shared-store-unavailable")


@pytest.mark.parametrize(("count", "purged"), [(1, 1), (10, 10), (12, 11), (400, 11)])
async def test_unconfirmed_purges_are_refused_and_many_become_everything(count, purged):
    tiers = Unsure()
    also = tuple(Tags(frozenset((b"%d" % number,))) for number in range(count - 1))
    order = Order(Tags(frozenset((b"a",))), "tag", ("a",), also=also)
    with pytest.raises(RefusedError, match="shared-store-unavailable"):
        await carry_out(order, tiers, 0.0)
    assert len(tiers.purges) == purged
    assert isinstance(tiers.purges[-1], Everything) is (count > 10)


async def test_a_purge_of_nothing_stored_counts_zero():
    tiers = MemoryTier(MemoryStore())
    empty = Order(Keys(frozenset()), "urls", ("a", "b"), also=(Tags(frozenset((b"a",))),))
    purged = await carry_out(empty, tiers, 0.0)
    assert json.loads(purged.body()) == {"purged": 0, "by": "urls", "value": "2"}


class Elsewhere(MemoryTier):
    """Other nodes may hold more responses than it counts, but for URLs."""

    def counts(self, selector):
        return isinstance(selector, Keys)


@cases(
    "tier, order, exact",
    (Elsewhere, Order(Tags(frozenset((b"a",))), "tag", ("a",)), {"exact": False}),
    (Elsewhere, Order(Keys(frozenset((b"a",))), "urls", ("a",)), {}),
    (MemoryTier, Order(Tags(frozenset((b"a",))), "tag", ("a",)), {}),
)
async def test_a_count_that_may_be_too_small_says_so(tier, order, exact):
    answer = json.loads((await carry_out(order, tier(MemoryStore()), 0.0)).body())
    assert {name: value for name, value in answer.items() if name == "exact"} == exact


# A purge as an exchange


@pytest.mark.parametrize(("stays", "status"), [(True, 200), (False, 0)])
async def test_a_purge_is_an_exchange_like_any_other(proxy, stays, status):
    proxy.store_away(b"one")
    client = proxy.ask(b"/a", b"PURGE", client=PlayedClient())
    assert client.state == ""
    if not stays:
        client.leave()
    await asyncio.gather(*proxy.engine.tasks)
    assert (client.status, proxy.stored()) == (status, [])
    outcome = proxy.outcomes[-1]
    assert outcome.purged is not None
    assert (outcome.decision, outcome.purged.count) == (None, 1 if stays else None)


class Exhausted(Unsure):
    """A tier that has no memory for a purge."""

    async def _purge(self, selector, now):
        raise MemoryError


class Broken(Unsure):
    """A tier with a mistake."""

    async def _purge(self, selector, now):
        raise ZeroDivisionError


async def test_a_purge_that_fails_is_logged_though_its_client_left(proxy_of, caplog):
    proxy = proxy_of(Broken())
    proxy.ask(b"/a", b"PURGE", client=PlayedClient()).leave()
    await asyncio.gather(*proxy.engine.tasks)
    assert caplog.records[-1].exc_info[0] is ZeroDivisionError


@cases("tier, reason", (Unsure, "shared-store-unavailable"), (Exhausted, "overloaded"))
async def test_a_purge_that_is_not_carried_out_is_a_503(proxy_of, tier, reason):
    proxy = proxy_of(tier())
    client = proxy.ask(b"/a", b"PURGE")
    await asyncio.gather(*proxy.engine.tasks)
    assert (client.status, proxy.outcomes[0].reasons) == (503, (reason,))


@cases("host", "b\u00fccher..example", "\u00fc" * 64, "a\u00fc b", "\u00e9@b\u00fccher.example")
def test_a_host_that_cannot_be_is_no_purge(host):
    for named in ("url", "prefix"):
        with pytest.raises(RefusedError):
            order_by_name({named: f"http://{host}/"}, RUNTIME)
