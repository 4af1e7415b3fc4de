"""A primary that Sentinels name, a cluster of three masters: nothing purged is served, whatever is killed."""

import asyncio
import os
import signal
import time

import pytest

from examples import cases
from tests.integration.shared.servers import AT_ONCE, Cluster, Sentinels, Started, replica_of, started, wait
from tests.ports import free_port
from univocal.http.errors import RefusedError
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags

RED = [(b"xkey", b"red")]
FAILOVER = 90.0  # seconds: Sentinels that stood still do nothing for thirty ("TILT")


@pytest.fixture
def sentinels(tmp_path):
    servers = Sentinels(tmp_path)
    yield servers
    servers.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    servers = Cluster(tmp_path_factory.mktemp("cluster"))
    yield servers
    servers.kill()


async def test_a_cluster_spreads_entries_and_purges_reach_all_of_them(cluster, join, made, named, until):
    first, second = await join(url=cluster.url), await join(url=cluster.url)
    names = [named(f"/{number}") for number in range(60)]
    for name in names:
        assert await first.put(made(name, more=RED if name in names[:20] else None))
        assert await second.read(name) == [b"content"]
    held = [sum(1 for _ in node.client.scan_iter("univocal:3:e:*")) for node in cluster.nodes]
    assert sum(held) == 60
    assert min(held) > 5
    assert await first.store.purge(Tags(frozenset((b"red",)))) == 20
    await until(lambda: not any(second.bodies(name) for name in names[:20]))
    assert [await second.read(name) for name in names[:20]] == [[]] * 20
    assert await second.store.purge(Keys(frozenset(names[20:40]))) == 20
    assert [await first.read(name) for name in names[20:40]] == [[]] * 20
    await second.store.purge(Prefix(frozenset((b"http en.example /4",))))
    assert await first.read(named("/41")) == []
    assert await first.read(named("/50")) == [b"content"]


async def test_nodes_of_a_cluster_fetch_a_key_once(cluster, join, made, named):
    nodes = [await join(url=cluster.url) for _ in range(2)]
    asked = []

    async def once(node, name):
        async def origin():
            asked.append(name)
            await asyncio.sleep(0.02)
            return made(name)

        assert await node.get(name, origin) == b"content"

    names = [named(f"/{number}") for number in range(30)]
    await asyncio.gather(*(once(node, name) for name in names for node in nodes))
    assert sorted(asked) == sorted(names)


async def test_a_killed_master_of_a_cluster_loses_only_its_part(cluster, join, made, named, until):
    """The last test with this cluster."""
    first, second = await join(url=cluster.url), await join(url=cluster.url)
    for node in cluster.nodes:
        node.client.config_set("cluster-require-full-coverage", "no")
    names = [named(f"/{number}") for number in range(30)]
    for name in names:
        await first.put(made(name))
    journal = next(node for node in cluster.nodes if [*node.client.scan_iter("univocal:3:head:*")])
    (gone, *_) = [node for node in cluster.nodes if node is not journal]
    gone.kill()
    await until(lambda: journal.client.cluster("INFO")["cluster_slots_fail"] != "0")
    await until(lambda: first.store.connected and second.store.connected)
    read = [await second.read(name) for name in names]
    assert 0 < read.count([b"content"]) < 30
    await first.store.purge(Everything())
    await until(lambda: not any(second.bodies(name) for name in names))


async def test_the_primary_is_killed_under_load(sentinels, join, made, named, until):
    """Purges go on in parallel: none that was confirmed is undone by the failover."""
    times = {"command": 0.5, "heartbeat": 0.2}
    nodes = [await join(url=sentinels.url, times=times, detached_ttl=0.5) for _ in range(2)]
    version, confirmed = 0, [(0.0, 0)]
    name, going = named("/x"), True
    oldest = served = refused = 0.0

    async def origin():
        seen = version
        await asyncio.sleep(0.005)
        return made(name, b"%d" % seen, more=RED)

    async def reads(node):
        nonlocal oldest, served
        while going:
            began = time.time()
            body = int(await node.get(name, origin))
            served += 1
            missed = [at for at, purged in confirmed if purged > body and at < began]
            oldest = max([oldest, *(began - at for at in missed[:1])])
            await asyncio.sleep(0.008)

    async def purges(node):
        nonlocal version, refused
        while going:
            version += 1
            mine = version
            try:
                await node.store.purge(Tags(frozenset((b"red",))))
            except RefusedError:
                refused += 1
            else:
                confirmed.append((time.time(), mine))
            await asyncio.sleep(0.03)

    async with asyncio.TaskGroup() as tasks:
        for node in nodes:
            tasks.create_task(reads(node))
            tasks.create_task(purges(node))
        try:
            await until(lambda: len(confirmed) > 10)
            sentinels.primary.kill()
            await until(lambda: not nodes[0].store.connected)
            await until(lambda: all(node.store.connected for node in nodes), FAILOVER)
            back = len(confirmed)
            await until(lambda: len(confirmed) > back + 10 and served > 100)
        finally:
            going = False
    assert oldest <= 1.5
    assert refused


async def test_a_purge_confirmed_before_a_failover_is_published_again(sentinels, join, made, until):
    """The replica is cut off from the primary: it never hears of the purge."""
    entry = b"univocal:3:e:{0123456789abcdef http en.example /wiki/A}"
    first = await join(url=sentinels.url)
    await first.put(made(more=RED))
    await until(lambda: sentinels.replica.client.exists(entry))
    os.kill(sentinels.replica.process.pid, signal.SIGSTOP)
    assert await first.store.purge(Tags(frozenset((b"red",)))) == 1
    sentinels.primary.kill()
    await asyncio.sleep(0.1)
    os.kill(sentinels.replica.process.pid, signal.SIGCONT)
    await until(lambda: not first.store.connected)
    await until(lambda: first.store.connected, FAILOVER)
    assert sentinels.replica.client.exists(entry)
    assert await (await join(url=sentinels.url)).read() == await first.read() == []
    assert await first.put(made(body=b"new"))


async def test_an_old_snapshot_is_known_under_another_server_name(tmp_path, join, made):
    """A primary with a replica writes its history into snapshots: it seems to have followed itself."""
    primary = started(tmp_path / "primary", *AT_ONCE)
    replica = replica_of(primary, tmp_path / "replica")
    try:
        first = await join(url=f"redis://127.0.0.1:{primary.port}")
        await first.put(made(more=RED))
        wait(primary.client.save)  # refused while a child still writes the replica's copy
        assert await first.store.purge(Tags(frozenset((b"red",)))) == 1
        await first.store.aclose()
        primary.kill()
        primary = Started(tmp_path / "primary", primary.port, "--save", "")
        wait(primary.client.ping)
        second = await join(url=f"redis://localhost:{primary.port}")
        assert await second.read() == []
    finally:
        primary.kill()
        replica.kill()


@cases(
    "kind, options, expected",
    ("cluster", ["--cluster-enabled", "yes"], "redis+cluster://127.0.0.1:{port}"),
    ("replica", ["--replicaof", "127.0.0.1", "9"], "redis://127.0.0.1:9"),
    ("sentinel", ["sentinel.conf"], "redis+sentinel://127.0.0.1:{port}/NAME"),
)
async def test_another_kind_of_server_is_named_with_its_url(
    kind, options, expected, tmp_path, join, until, caplog
):
    (tmp_path / "sentinel.conf").touch()
    server = Started(tmp_path, free_port(), *options, sentinel=kind == "sentinel")
    try:
        wait(server.client.ping)
        await join(url=f"redis://127.0.0.1:{server.port}/0", connected=False)
        await until(lambda: expected.format(port=server.port) in caplog.text)
    finally:
        server.kill()
