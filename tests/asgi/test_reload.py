"""A reload swaps the runtime; what is under way keeps its own. And nothing stays behind of what is over."""

import asyncio

from univocal import Rules, Runtime
from univocal.judge.profiles import builtin_profiles

KNOWN = builtin_profiles()


def runtime(profile, rules=None):
    return Runtime.everywhere(KNOWN[profile], rules or Rules())


async def test_a_request_under_way_keeps_its_configuration(cached, application):
    client = cached("rfc3986", rules=Rules(ttl=60))
    application.gate, application.fields = asyncio.Event(), []
    asking = asyncio.create_task(client("/a"))
    await application.reached(1)
    client.app.gate.runtime = runtime("rfc3986", Rules(set_cookie="never"))
    application.gate.set()
    assert "stored" in (await asking).handling
    assert "hit" in (await client("/a")).handling


async def test_nothing_stays_behind_of_what_is_over(cached, application, idle):
    client = cached()
    await client("/stored")
    await client("/stored", fields=[("range", "bytes=0-1")])
    await client("/a", "HEAD")
    await client("/a", "POST")
    await client("/a", fields=[("if-none-match", "*")])
    application.fields = [(b"cache-control", b"no-store")]
    await client("/uncacheable")
    await client("/%00")
    await client("/stored", "PURGE")
    await idle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert client.app.store.stats.reserved == 0
