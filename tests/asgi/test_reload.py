"""A reload swaps the runtime; what is under way keeps its own. And nothing stays behind of what is over."""

import asyncio


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
