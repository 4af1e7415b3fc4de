"""The marker that names the namespace: no node works in one that others left, or where it may not write."""

from __future__ import annotations

import asyncio
import time

import pytest

from univocal.http.errors import RefusedError
from univocal.store.purge_selectors import Everything

KEY = b"0123456789abcdef http en.example /wiki/A"
MARKER = "univocal:2:marker"


class Address:
    """A port that leads to one server or to another, and whose connections can be cut."""

    def __init__(self, target):
        self.target = target
        self.writers = set()
        self.tasks = set()

    async def open(self):
        self.server = await asyncio.start_server(self.tunnel, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/0"

    async def tunnel(self, reader, writer):
        onward, back = await asyncio.open_connection("127.0.0.1", self.target)
        self.writers |= {writer, back}
        for pair in ((reader, back), (onward, writer)):
            task = asyncio.create_task(self.pump(*pair))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def pump(self, reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    def turn(self, target):
        self.target = target
        for writer in self.writers:
            writer.close()
        self.writers.clear()

    async def close(self):
        self.turn(self.target)
        self.server.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def pair(server, tmp_path):
    """Another server of the same kind, and an address that leads to the first."""
    (tmp_path / "other").mkdir()
    other = type(server)(tmp_path / "other", server.engine)
    other.start()
    address = Address(server.port)
    yield other, address, await address.open()
    await address.close()
    other.kill()


def hand_over(old, new):
    """A failover in which nobody restarts: the replica is promoted, the old primary follows it."""
    new.client.replicaof("NO", "ONE")
    new.client.config_set("repl-diskless-sync-delay", 0)
    old.client.replicaof("127.0.0.1", str(new.port))
    deadline = time.monotonic() + 10
    while old.client.info("replication").get("master_link_status") != "up":
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def reattached(until, *nodes):
    await until(lambda: not any(node.store.connected for node in nodes))
    await until(lambda: all(node.store.connected for node in nodes), 15.0)


async def test_what_was_purged_after_a_failover_is_gone_after_the_failback(join, made, server, pair, until):
    other, address, url = pair
    await asyncio.to_thread(hand_over, other, server)  # the other is the replica
    first, second = await join(url=url), await join(url=url)
    await first.put(made(body=b"old"))
    assert await second.read() == [b"old"]
    await asyncio.to_thread(hand_over, server, other)
    address.turn(other.port)
    await reattached(until, first, second)
    assert await first.read() == []
    await first.purge()
    await asyncio.to_thread(hand_over, other, server)
    address.turn(server.port)
    await reattached(until, first, second)
    assert await first.read() == await second.read() == []
    assert await first.put(made(body=b"new"))
    assert await second.read() == [b"new"]


async def test_nor_does_it_come_back_from_a_server_that_knows_nothing_of_the_purge(
    join, made, server, pair, until
):
    other, address, url = pair
    first, second = await join(url=url), await join(url=url)
    await first.put(made(body=b"old"))
    address.turn(other.port)
    await reattached(until, first, second)
    await first.purge()
    address.turn(server.port)
    await reattached(until, first, second)
    assert await first.read() == await second.read() == []
    assert await first.put(made(body=b"new"))
    await until(lambda: second.store.connected)
    assert await second.read() == [b"new"]


async def test_a_purge_that_is_owed_is_paid_to_whoever_comes(join, made, server, pair, until):
    """Between two runs the entries can have been copied: what is owed is forgotten by nobody."""
    other, address, url = pair
    first, second = await join(url=url), await join(url=other.url)
    await second.put(made())
    address.server.close()
    address.turn(0)
    await until(lambda: not first.store.connected)
    with pytest.raises(RefusedError):
        await first.purge()
    address.target = other.port
    port = int(url.split(":")[2].split("/")[0])
    address.server = await asyncio.start_server(address.tunnel, "127.0.0.1", port)
    await until(lambda: first.store.connected)
    assert await second.read() == []


@pytest.mark.parametrize("lose", ["delete", "flushall", "flushdb", "overwrite"])
async def test_nodes_that_lost_the_marker_meet_in_a_new_namespace(join, made, server, until, lose):
    first, second = await join(), await join()
    old = server.client.get(MARKER)
    await first.put(made(body=b"old"))
    assert await second.read() == [b"old"]
    match lose:
        case "delete":
            server.client.delete(MARKER)
        case "overwrite":
            server.client.delete(MARKER)
            server.client.rpush(MARKER, "of another kind")
        case command:
            getattr(server.client, command)()
    await reattached(until, first, second)
    assert old != server.client.get(MARKER)
    assert first.bodies() == second.bodies() == []
    assert await first.put(made(body=b"new"))
    assert await second.read() == [b"new"]
    assert await second.purge() == 1
    await until(lambda: first.bodies() == [])


async def test_nothing_is_stored_where_the_marker_does_not_lead(join, made, server, until):
    node = await join()
    lease = await node.store.begin(KEY)
    server.client.set(MARKER, "univocal:2:abcdef:1234:")
    await node.store.commit(lease, made())  # before the change of the marker was heard
    assert server.names("*:e:*") == []
    await until(lambda: node.store.connected)
    assert await node.put(made())
    assert server.names("*:e:*") == [server.entry()]


@pytest.mark.parametrize(
    ("rights", "missing"),
    [
        (["~*", "&*", "+@all", "-eval", "-evalsha"], "'eval'"),
        (["~*", "&*", "+@all", "-evalsha"], "'evalsha'"),
        (["~other:*", "&*", "+@all"], "key"),
        (["~*", "resetchannels", "+@all"], "channel"),
        (["~*", "&*", "+@all", "-client"], "'client"),
    ],
)
async def test_a_user_who_lacks_a_right_never_attaches(server, join, made, caplog, until, rights, missing):
    server.client.execute_command("ACL", "SETUSER", "cache", "on", ">pw", *rights)
    node = await join(url=server.url.replace("://", "://cache:pw@"), connected=False)
    await until(lambda: missing in caplog.text)
    await asyncio.sleep(0.5)
    assert not node.store.connected
    assert caplog.text.count("no shared store") == 1
    assert await node.put(made())
    with pytest.raises(RefusedError):
        await node.store.purge(Everything(), time.time())


async def test_a_cluster_is_refused(server, join, caplog, until):
    server.kill()
    server.start("--cluster-enabled", "yes", "--cluster-port", str(server.tls_port))
    server.client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    node = await join(connected=False)
    await until(lambda: "no-cluster" in caplog.text)
    assert not node.store.connected


async def test_a_replica_that_must_not_be_written_is_refused(join, server, pair, caplog, until):
    other, _, _ = pair
    await asyncio.to_thread(hand_over, other, server)
    node = await join(url=other.url, connected=False)
    await until(lambda: "read only replica" in caplog.text)
    assert not node.store.connected


async def test_a_primary_that_becomes_a_replica_is_left(join, made, server, pair, until):
    other, _, _ = pair
    node = await join()
    await node.put(made())
    await asyncio.to_thread(hand_over, server, other)
    with pytest.raises(RefusedError):
        await node.purge()
    await until(lambda: not node.store.connected)
    await asyncio.sleep(0.3)
    assert not node.store.connected


@pytest.mark.parametrize(("off", "said"), [(0.0, False), (3.0, True), (-3.0, True)])
async def test_clocks_that_differ_are_told_of(join, monkeypatch, caplog, off, said):
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + off)
    await join()
    assert ("this machine's clock and that of Redis's differ by" in caplog.text) is said
