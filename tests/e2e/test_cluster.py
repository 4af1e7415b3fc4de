"""Three nodes and one Redis under traffic: no answer is older than the last confirmed purge allows.

The origin's answers carry a number that grows before each purge. Redis is killed and started again, and a
node is killed, while clients ask for every spelling of every URL at all nodes.
"""

import asyncio
import os
import random
import signal
import time
from bisect import bisect_right
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from examples import LONG
from support import eventually, origin_server, response_with

# A longer run, as docs/how-to/several-nodes.md describes it.
IS_LONG = LONG or "UNIVOCAL_CLUSTER_URLS" in os.environ
URLS = int(os.environ.get("UNIVOCAL_CLUSTER_URLS", "300" if IS_LONG else "60"))
PHASE = float(os.environ.get("UNIVOCAL_CLUSTER_SECONDS", "4" if IS_LONG else "1"))  # between two events

DETACHED = 2.0
# Seconds for which a node may serve a page that another node has purged
BOUND = max(1.5, DETACHED)
SPELLINGS = (
    "/wiki/P(%d)",
    "/wiki/P%%28%d%%29",
    "/wiki/./%%50(%d%%29",
    "/x/../wiki/P%%28%d)",
    "/wiki%%2FP(%d)",
)
SEED = 20
# Seconds between a client's requests: two thousand a second are enough, and in `make test` four hundred.
BETWEEN = 0.001 if IS_LONG else 0.01


async def read(reader):
    """A message's head and its content."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, found, length = head.lower().partition(b"\r\ncontent-length:")
    return head, await reader.readexactly(int(length.split(b"\r\n")[0])) if found else b""


@dataclass
class Origin:
    """Answers with the version of what is asked for."""

    versions: list[int]
    asked: int = 0

    def answer(self, head, _):
        self.asked += 1
        number = int(head.split(b"(", 1)[1].split(b")")[0])
        body = b"%d" % self.versions[number]
        if self.asked % 7 == 0:  # what is purged while it is under way is as old as when it was read
            time.sleep(0.02)
        return response_with(body, b"Cache-Control: max-age=600\r\nSurrogate-Key: page-%d\r\n" % number)


@pytest.fixture
def origin():
    made = Origin([1] * URLS)
    with origin_server(made.answer) as url:
        yield made, url


@dataclass
class Connection:
    """A client's connection to one node, opened when it is needed."""

    address: tuple[str, int]
    host: str = "en.example"
    pair: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method, target, fields=""):
        """Status and content. Raises OSError or EOFError if the node is gone."""
        if self.pair is None:
            self.pair = await asyncio.open_connection(*self.address)
        reader, writer = self.pair
        try:
            writer.write(f"{method} {target} HTTP/1.1\r\nHost: {self.host}\r\n{fields}\r\n".encode())
            # `wait_for` of Python 3.11 may lose the cancellation by which a TaskGroup ends who asks.
            async with asyncio.timeout(20):
                head, body = await read(reader)
        except BaseException:
            self.close()
            raise
        return int(head.split(b" ", 2)[1]), body

    def close(self):
        if self.pair is not None:
            self.pair[1].close()
        self.pair = None


@dataclass
class Record:
    """The times of confirmed purges, and the answers compared with them."""

    confirmed: list[
        list[tuple[float, int]]
    ]  # of each URL: when, and the version that is the oldest from then on
    answers: Counter[int] = field(default_factory=Counter)
    purges: Counter[int] = field(default_factory=Counter)
    too_old: list[str] = field(default_factory=list)
    oldest: float = 0.0  # seconds after a purge was confirmed that a client asked and got what was purged

    def compare(self, number, version, asked, where):
        """Compare an answer with the purges that were confirmed before."""
        confirmed = self.confirmed[number]
        newer = bisect_right(confirmed, version, key=lambda one: one[1])
        if newer == len(confirmed):
            return
        age = asked - confirmed[newer][0]
        self.oldest = max(self.oldest, age)
        if age > BOUND:
            self.too_old.append(f"{where}: {number} in version {version}, {age:.3f} s after its purge")


class Cluster:
    """The nodes that are there, and the clients that ask and purge."""

    def __init__(self, nodes, origin):
        self.nodes, self.origin = nodes, origin
        self.alive = list(range(len(nodes)))
        self.record = Record([[] for _ in range(URLS)])
        self.going = True
        self.random = random.Random(SEED)
        self.recent = deque(maxlen=50)  # just purged: where an old answer would be seen

    def connections(self):
        return [Connection(node.proxy) for node in self.nodes]

    async def reads(self):
        connections = self.connections()
        while self.going:
            node, number = self.random.choice(self.alive), self.random.randrange(URLS)
            if self.recent and self.random.random() < 0.5:
                number = self.random.choice(self.recent)
            await self.compare(connections[node], number, self.random.choice(SPELLINGS), f"node {node}")
            await asyncio.sleep(BETWEEN)
        for connection in connections:
            connection.close()

    async def compare(self, connection, number, spelling, where):
        asked = time.monotonic()
        try:
            status, body = await connection.ask("GET", spelling % number)
        except (OSError, EOFError):
            self.record.answers[0] += 1
            return
        self.record.answers[status] += 1
        if status == 200:
            self.record.compare(number, int(body), asked, where)

    async def purges(self, share, of):
        """Change what the origin has, and purge it, by one spelling or by tag."""
        connections = self.connections()
        while self.going:
            node, number = self.random.choice(self.alive), self.random.randrange(share, URLS, of)
            self.origin.versions[number] += 1
            version = self.origin.versions[number]
            fields = f"Surrogate-Key: page-{number}\r\n" if self.random.random() < 0.3 else ""
            try:
                status, _ = await connections[node].ask(
                    "PURGE", self.random.choice(SPELLINGS) % number, fields
                )
            except (OSError, EOFError):
                status = 0
            self.record.purges[status] += 1
            if status == 200:
                self.record.confirmed[number].append((time.monotonic(), version))
                self.recent.append(number)
            await asyncio.sleep(0.01 if IS_LONG else 0.02)
        for connection in connections:
            connection.close()

    async def attached(self):
        """Wait until every node is told again what changes."""
        for node in self.alive:
            admin = Connection(self.nodes[node].admin, "localhost")
            async with asyncio.timeout(40):
                while await admin.ask("GET", "/-/ready") != (200, b"ready\n"):  # noqa: ASYNC110  (it is elsewhere)
                    await asyncio.sleep(0.05)
            admin.close()

    async def sweep(self):
        """Ask every node for every spelling of every URL."""
        for node in self.alive:
            connection = Connection(self.nodes[node].proxy)
            for number in range(URLS):
                for spelling in SPELLINGS:
                    await self.compare(connection, number, spelling, f"node {node} at the end")
            connection.close()


def written(folder, name, store, upstream):
    """A node's univocal.toml."""
    file = folder / f"{name}.toml"
    file.write_text(
        f'[server]\nlisten = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\naccess_log = "{folder / name}.log"\n'
        f'[cache]\nstore = "{store}"\ndetached_ttl = {DETACHED}\n'
        f'[[sites]]\nhosts = ["en.example"]\nprofile = "mediawiki"\nupstream = "{upstream}"\n'
    )
    return file


@pytest.fixture
def cluster(start, redis, origin, tmp_path):
    files = [written(tmp_path, f"node{number}", redis.url, origin[1]) for number in range(3)]
    return Cluster([start("serve", "--config", str(file)) for file in files], origin[0])


@pytest.mark.long
async def test_no_answer_is_older_than_the_last_purge_allows(cluster, redis):
    await cluster.attached()
    async with asyncio.TaskGroup() as clients:
        for share in range(4):
            clients.create_task(cluster.reads())
            clients.create_task(cluster.purges(share, 4))
        try:
            await asyncio.sleep(PHASE)
            redis.kill()
            await asyncio.sleep(PHASE / 2)
            redis.start()
            await cluster.attached()
            await asyncio.sleep(PHASE / 2)
            assert cluster.nodes[cluster.alive.pop()].end(signal.SIGKILL) == -signal.SIGKILL
            await asyncio.sleep(PHASE)
            await eventually(lambda: cluster.record.purges[200] > 100)
        finally:
            cluster.going = False
    await asyncio.sleep(BOUND)
    await cluster.sweep()
    record = cluster.record
    print(
        f"{URLS} URLs, {record.answers.total()} answers, {record.purges.total()} purges "
        f"({record.purges[503]} not confirmed), {cluster.origin.asked} asked of the origin; "
        f"oldest: {record.oldest:.3f} s after a purge, bound: {BOUND} s"
    )
    assert record.too_old == []
    # The killed node's connections ended; nothing else was lost. Purges failed for as long as Redis was away.
    assert set(record.answers) <= {0, 200}
    assert record.answers[0] <= 8
    assert set(record.purges) <= {0, 200, 503}
    assert record.purges[503] > 0
    assert record.answers[200] > 4 * cluster.origin.asked / 3


async def test_a_node_that_starts_without_redis_goes_on_alone(start, redis, origin, tmp_path):
    redis.kill()
    node = start("serve", "--config", str(written(tmp_path, "alone", redis.url, origin[1])))
    client, admin = Connection(node.proxy), Connection(node.admin, "localhost")
    told = b"ready, without the shared store: memory alone, 2 seconds a response\n"
    assert await admin.ask("GET", "/-/ready") == (200, told)
    assert b"\nunivocal_store_connected 0.0\n" in (await admin.ask("GET", "/metrics"))[1]
    assert [await client.ask("GET", SPELLINGS[0] % 1) for _ in range(2)] == [(200, b"1")] * 2
    assert origin[0].asked == 1
    status, body = await client.ask("PURGE", SPELLINGS[1] % 1)
    assert (status, b'"shared-store-unavailable"' in body) == (503, True)
    redis.start()
    await Cluster([node], origin[0]).attached()
    assert b"\nunivocal_store_connected 1.0\n" in (await admin.ask("GET", "/metrics"))[1]
    assert (await client.ask("PURGE", SPELLINGS[1] % 1))[0] == 200
    client.close()
    admin.close()
