"""Redis goes, comes back, hangs, or is another: memory serves nothing that a purge may have meant."""

import asyncio
import re
import socket
import time
from collections import Counter
from contextlib import suppress

import pytest

from support import Stopwatch
from univocal.http.errors import RefusedError
from univocal.store.leases import Lease
from univocal.store.purge_selectors import Everything, Tags
from univocal.store.redis import purges
from univocal.store.redis.commands import ATTACH, CATCH_UP
from univocal.store.roles import StoreUnavailableError

KEY = b"0123456789abcdef http en.example /wiki/A"


def nothing(variants):
    return variants[0] if variants else None


def drop_connections(server):
    """Cut every connection to the server but this one."""
    server.client.client_kill_filter(_type="normal", skipme=True)


async def test_a_short_loss_of_the_connection_costs_nothing(join, made, server, until, caplog):
    times = {"command": 20.0}
    first, second = await join(times=times), await join(times=times)
    await first.put(made())
    assert await second.read() == [b"content"]
    drop_connections(server)
    assert second.bodies() == [b"content"]
    await asyncio.sleep(0.5)
    assert second.bodies() == [b"content"]
    await first.purge()
    await until(lambda: not second.bodies())
    assert not [line for line in caplog.messages if "away" in line or "back" in line]


async def test_a_purge_during_a_lost_connection_is_known_afterwards(join, made, server, until, named):
    first, second = await join(), await join()
    await first.put(made(more=[(b"xkey", b"red")]))
    await second.read()
    kept = await second.store.begin(named("/kept"))
    drop_connections(server)
    await first.store.purge(Tags(frozenset((b"red",))))
    await until(lambda: not second.bodies())
    assert await second.read() == []
    assert await second.store.commit(kept, made(named("/kept")))


async def test_responses_restored_from_an_old_file_count_as_purged(join, made, server, until):
    node = await join()
    await node.put(made())
    server.client.save()  # what is on disk comes back, without the purges that followed
    await node.purge()
    server.kill()
    await node.loses_redis()
    server.start()
    assert server.client.exists(server.entry())
    await until(lambda: node.store.connected)
    assert await node.read() == []
    assert await (await join()).read() == []


async def test_loss_and_return_are_each_logged_once_with_reason(join, server, until, caplog):
    node = await join()
    server.kill()
    await node.loses_redis()
    await asyncio.sleep(0.5)
    server.start()
    await until(lambda: node.store.connected)
    said = [line for line in caplog.messages if line.startswith(("lost Redis", "Redis is"))]
    assert len(said) == 2
    assert re.fullmatch(
        r"lost Redis \(ConnectionError: .+\): this node caches alone until it is back", said[0]
    )
    assert re.fullmatch(r"Redis is back, after [0-9]+\.[0-9] seconds", said[1])


async def test_a_journal_that_goes_back_empties_memory(join, made, server, until):
    node, other = await join(), await join()
    await node.put(made())
    await other.put(made(KEY + b"2"))
    server.client.hincrby("univocal:3:head:{journal}", "number", -5)
    await until(lambda: not node.bodies() and not other.bodies(KEY + b"2"))
    assert await other.read() == []
    assert await other.purge() == 0


@pytest.mark.parametrize("name", ["head", "log", "last", "how"])
async def test_eviction_of_the_journal_brings_nothing_purged_back(join, made, server, until, name):
    first, second = await join(), await join()
    await first.put(made(more=[(b"xkey", b"red")]))
    await second.read()
    server.client.delete(f"univocal:3:{name}:{{journal}}")
    with suppress(RefusedError):
        await first.store.purge(Tags(frozenset((b"red",))))
    await until(lambda: not second.bodies())
    assert await (await join()).read() == await second.read() == []
    await until(lambda: first.store.connected)
    assert await first.put(made(body=b"new"))
    assert await second.read() == [b"new"]


@pytest.mark.parametrize("names", [["last"], ["how"], ["last", "how"]])
@pytest.mark.parametrize("script", [ATTACH, CATCH_UP])
async def test_eviction_before_a_node_joins_hides_no_purge(join, made, server, monkeypatch, names, script):
    """The node reads the journal in two steps; Redis may evict some of it before each of them."""
    first = await join()
    first.store.tier._walk.cancel()  # it would remove what is purged
    await first.put(made(more=[(b"xkey", b"red")]))
    await first.store.purge(Tags(frozenset((b"red",))))
    evicted = [f"univocal:3:{name}:{{journal}}" for name in names]

    async def evaluate(pipe, text, *rest):
        if text == script and evicted:
            server.client.delete(*evicted)
            evicted.clear()
        return await real(pipe, text, *rest)

    real = purges._evaluate
    monkeypatch.setattr(purges, "_evaluate", evaluate)
    assert await (await join()).read() == []
    assert not evicted
    assert await first.put(made(body=b"new"))


async def test_a_node_far_behind_reads_each_names_last_purge(join, made, server, until):
    first, second = await join(), await join()
    await first.put(made(more=[(b"xkey", b"red")]))
    await second.read()
    await first.store.purge(Tags(frozenset((b"red",))))
    server.client.xtrim("univocal:3:log:{journal}", maxlen=0)
    await until(lambda: not second.bodies())
    third = await join()
    assert await third.read() == await second.read() == []
    assert await third.put(made(body=b"new"))
    assert await (await join()).read() == [b"new"]


async def test_without_redis_a_node_serves_from_memory_briefly(join, made, server):
    server.kill()
    node = await join(connected=False, detached_ttl=0.3)
    assert await node.put(made())
    (one,) = node.memory.lookup(KEY)
    assert one.fresh_until <= time.time() + 0.3
    assert not one.stale_usable
    with pytest.raises(RefusedError, match="shared-store-unavailable"):
        await node.purge()
    assert node.bodies() == []
    assert await node.read() == []


async def test_redis_killed_and_started_again(join, made, server, until):
    first, second = await join(), await join()
    for node in (first, second):
        await node.put(made())
        assert await node.read()
    server.kill()
    await until(lambda: not first.store.connected and not second.store.connected)
    assert first.bodies() == second.bodies() == []
    assert await first.put(made(body=b"detached"))
    assert first.bodies() == [b"detached"]
    server.start()
    await until(lambda: first.store.connected and second.store.connected)
    assert first.bodies() == []
    assert await first.put(made(body=b"anew"))
    assert await second.read() == [b"anew"]


async def test_a_lease_of_another_run_stores_nothing(join, made, server):
    node = await join()
    lease = await node.store.begin(KEY)
    await node.outlives(server)
    assert not await node.store.commit(lease, made())
    assert node.bodies() == []


async def test_a_redis_that_hangs_holds_nobody_up(join, made, server, until, named):
    node = await join(times={"command": 0.6})
    await node.put(made())
    with server.standing_still():
        with Stopwatch() as watch:
            assert await node.read(named("/another")) == []
            assert isinstance(await node.store.obtain(named("/another"), nothing), Lease)
            assert await node.put(made(named("/another")))
            with pytest.raises(RefusedError):
                await node.purge()
        assert watch.seconds < 4
        await until(lambda: not node.store.connected)
        with Stopwatch() as watch:
            assert await node.put(made(named("/more")))
            assert await node.read(named("/third")) == []
        assert watch.seconds < 0.5  # one command would wait longer
    await until(lambda: node.store.connected)


async def test_memory_is_not_trusted_beyond_what_was_confirmed(join, made, server):
    node = await join(times={"heartbeat": 0.1, "command": 1.0})
    await node.put(made())
    assert node.bodies() == [b"content"]
    with server.standing_still():
        stopped = time.time()
        time.sleep(1.15)  # noqa: ASYNC251  (the whole process stalls: nothing can be noticed)
        assert node.store.connected
        assert node.memory.lookup(KEY)
        assert node.bodies() == []
        assert node.store.trusted_until <= stopped + node.store.bound


async def test_a_clock_that_is_set_back_prolongs_no_trust(join, made, server, until):
    set_back = [0.0]
    node = await join(times={"heartbeat": 0.1, "command": 0.2}, clock=lambda: time.time() - set_back[0])
    await node.put(made())
    with server.standing_still():
        set_back[0] = 60.0
        await until(lambda: not node.store.connected)
        assert not node.memory.lookup(KEY)


async def test_a_failed_republication_is_tried_again(join, server, monkeypatch, caplog):
    node = await join()
    await node.store.purge(Tags(frozenset((b"red",))))
    commands, failures = node.store.tier._purges._commands, [1]
    run = commands.run

    async def fails_once(name, *rest):
        if name == "publish" and failures:
            failures.pop()
            raise StoreUnavailableError("the connection was closed")
        return await run(name, *rest)

    monkeypatch.setattr(commands, "run", fails_once)
    await node.outlives(server)
    assert not failures
    assert server.client.xlen("univocal:3:log:{journal}") == 1
    assert not [line for line in caplog.messages if "cannot be followed" in line]


async def test_a_purge_that_was_not_confirmed_is_made_up_for(join, made, server, until):
    first, second = await join(times={"command": 0.3}), await join()
    await first.put(made(more=[(b"xkey", b"red")]))
    await second.read()
    with server.standing_still(), pytest.raises(RefusedError):
        await first.store.purge(Tags(frozenset((b"red",))), time.time())
    await until(lambda: first.store.connected)
    await until(lambda: not second.bodies())
    assert await first.read() == await second.read() == []


async def test_another_server_behind_the_same_address_is_not_mistaken(join, made, server, tmp_path, until):
    """A failover that leaves old connections up: the address leads elsewhere, for a while for some."""
    other = type(server)(tmp_path)
    other.start()
    target = [server.port]
    tunnels = set()

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    async def tunnel(reader, writer):
        onward, back = await asyncio.open_connection("127.0.0.1", target[0])
        for pair in ((reader, back), (onward, writer)):
            task = asyncio.create_task(pump(*pair))
            tunnels.add(task)
            task.add_done_callback(tunnels.discard)

    gateway = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    try:
        port = gateway.sockets[0].getsockname()[1]
        node = await join(url=f"redis://127.0.0.1:{port}/0")
        await node.put(made())
        target[0] = other.port
        drop_connections(server)
        await until(lambda: not node.bodies())
        assert await node.read() == []
        assert await node.put(made(body=b"other"))
        assert other.client.exists(other.entry())
        # A new connection for commands that finds the old server is not used.
        target[0] = server.port
        await asyncio.gather(*(node.read() for _ in range(3)))
        server.client.client_kill_filter(_type="normal", skipme=True)
        other.client.client_kill_filter(_type="normal", skipme=True)
        with pytest.raises(RefusedError):
            await node.purge()
    finally:
        await node.store.aclose()
        gateway.close()
        await asyncio.gather(*tunnels)
        other.kill()


async def test_closing_leaves_a_memory_that_is_bounded(join, made):
    node = await join()
    await node.put(made())
    await node.store.aclose()
    assert not node.store.connected
    assert node.bodies() == []
    assert await node.put(made())
    assert node.memory.lookup(KEY)[0].fresh_until <= time.time() + 5


async def test_closing_ends_a_follower_that_lost_a_cancellation(join, monkeypatch):
    """`wait_for` of Python 3.11 loses a cancellation that comes together with an error."""
    node, follows, lost = await join(), asyncio.Event(), list[bool]()

    async def read(_):
        follows.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if lost:
                raise
            lost.append(True)
            raise OSError from None

    monkeypatch.setattr(node.tier._purges, "_read", read)
    await follows.wait()
    done, _ = await asyncio.wait([asyncio.ensure_future(node.store.aclose())], timeout=20)
    assert done
    assert lost


async def test_requests_waiting_for_another_node_wake_when_redis_goes(join, server):
    first, second = await join(times={"patience": 30}), await join(times={"patience": 30})
    assert isinstance(await first.store.obtain(KEY, nothing), Lease)
    waiting = asyncio.create_task(second.store.obtain(KEY, nothing))
    await asyncio.sleep(0.05)
    server.kill()
    assert isinstance(await asyncio.wait_for(waiting, 20.0), Lease)


async def test_no_socket_is_left(join, server, until):
    node = await join()
    await asyncio.gather(*(node.read(b"%d" % number) for number in range(20)))
    assert server.client.info("clients")["connected_clients"] > 2
    await node.store.aclose()
    await until(lambda: server.client.info("clients")["connected_clients"] == 1)


async def test_a_password_that_is_refused_leaves_the_node_detached(join, made, server):
    server.client.config_set("requirepass", "secret")
    node = await join(connected=False)
    assert await node.put(made())
    with pytest.raises(RefusedError):
        await node.store.purge(Everything(), time.time())


async def test_a_port_where_nothing_answers(join, made):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        node = await join(connected=False, url=f"redis://127.0.0.1:{port}/0")
        assert await node.put(made())
        assert node.bodies() == [b"content"]


async def test_commands_under_way_when_redis_is_lost_fail_as_such(join, server, named, until):
    a = await join(times={"heartbeat": 0.05})
    going, outcomes = True, Counter()

    async def purges(number):
        while going:
            try:
                await a.purge(named(f"/{number}"))
            except RefusedError as refused:
                outcomes[refused.reason] += 1
            else:
                outcomes["confirmed"] += 1
            await asyncio.sleep(0.001)

    async def reads(number):
        while going:
            assert await a.read(named(f"/{number}")) == []
            await a.store.release(await a.store.begin(named(f"/{number}")))
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as clients:
        for number in range(6):
            clients.create_task(purges(number))
            clients.create_task(reads(number))
        try:
            for _ in range(3):
                await asyncio.sleep(0.2)
                server.kill()
                server.start()
                await until(lambda: a.store.connected)
        finally:
            going = False
    assert set(outcomes) == {"confirmed", "shared-store-unavailable"}


async def test_a_redis_that_answered_late_is_asked_again_at_once(join, made, named, server):
    first, second = await join(), await join(times={"command": 1.0, "heartbeat": 5.0})
    await first.put(made(named("/late")))
    await first.put(made(named("/next")))
    with server.standing_still():
        assert await second.read(named("/late")) == []
    await asyncio.sleep(0.1)  # far less than the timeout
    assert await second.read(named("/next")) == [b"content"]


async def test_a_primary_without_its_replica_confirms_no_purge(join, made, server):
    """docs/how-to/several-nodes.md recommends this: its successor would not hear of that purge."""
    node = await join()
    await node.put(made())
    server.client.config_set("min-replicas-to-write", 1)
    with pytest.raises(RefusedError):
        await node.purge()
    assert node.bodies() == []
    assert node.store.connected
    server.client.config_set("min-replicas-to-write", 0)
    assert await node.purge() == 0
