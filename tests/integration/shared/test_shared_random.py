"""At random, with faults in between: nothing older than the last acknowledged purge and a stated bound."""

import asyncio
import os
import random
import signal
import time

import pytest

from univocal.http.errors import RefusedError
from univocal.store.purge_selectors import Everything, Keys, Prefix, Tags

KEYS = [
    b"0123456789abcdef http en.example /%b/%d" % (part, number)
    for part in (b"a", b"b")
    for number in range(6)
]
DETACHED = 0.5


class Origin:
    """An origin server that knows the current versions, and when each purge was confirmed."""

    def __init__(self, made, chance):
        self.made = made
        self.chance = chance
        self.versions = dict.fromkeys(KEYS, 0)
        self.acknowledged = {key: [(0.0, 0, None)] for key in KEYS}
        self.asked = self.served = self.refused = 0
        self.oldest = 0.0  # seconds for which something purged was still served
        self.forgot = 0  # responses that were older than a purge of the same node

    async def answer(self, key):
        self.asked += 1
        version = self.versions[key]
        await asyncio.sleep(self.chance.expovariate(100))
        more = [(b"xkey", b"all " + key.rpartition(b"/")[2])]
        return self.made(key, b"%d" % version, more)

    async def purge(self, node):
        key = self.chance.choice(KEYS)
        directory, _, last = key.rpartition(b"/")
        selector, meant = self.chance.choices(
            [
                (Keys(frozenset((key,))), [key]),
                (Tags(frozenset((last,))), [each for each in KEYS if each.endswith(b"/" + last)]),
                (Prefix(frozenset((directory[17:],))), [each for each in KEYS if each.startswith(directory)]),
                (Everything(), KEYS),
            ],
            [20, 4, 2, 1],
        )[0]
        for each in meant:
            self.versions[each] += 1
        now = {each: self.versions[each] for each in meant}
        try:
            await node.store.purge(selector, time.time())
        except RefusedError:
            self.refused += 1
            return
        for each, version in now.items():
            self.acknowledged[each].append((time.time(), version, node))

    async def get(self, node):
        key = self.chance.choice(KEYS)
        began, known = time.time(), tuple(self.acknowledged[key])
        version = int(await node.get(key, lambda: self.answer(key)))
        self.served += 1
        missed = [(at, by) for at, purged, by in known if purged > version]
        if missed:
            self.oldest = max(self.oldest, began - min(missed)[0])
            self.forgot += any(by is node for _, by in missed)

    def is_behind(self, node):
        """True while a node's memory has what was purged."""
        latest = {key: known[-1][1] for key, known in self.acknowledged.items()}
        return any(int(body) < version for key, version in latest.items() for body in node.bodies(key))


async def read_on(origin, node, goes_on):
    while goes_on():
        await origin.get(node)
        await asyncio.sleep(origin.chance.expovariate(150))


async def purge_on(origin, node, goes_on):
    """Purge once in 90 answers: as often on a slow machine."""
    while goes_on():
        await origin.purge(node)
        due = origin.served + origin.chance.expovariate(1 / 90)
        while goes_on() and origin.served < due:  # noqa: ASYNC110  (others are served)
            await asyncio.sleep(0.002)


async def disturb(server, seconds):
    """Every fault once, with time to come back."""
    part = seconds / 5
    await asyncio.sleep(part)
    server.client.client_kill_filter(_type="normal", skipme=True)
    await asyncio.sleep(part)
    os.kill(server.process.pid, signal.SIGSTOP)
    await asyncio.sleep(part / 2)
    os.kill(server.process.pid, signal.SIGCONT)
    await asyncio.sleep(part / 2)
    server.kill()
    await asyncio.sleep(part / 2)
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("faults", [False, True])
async def test_nothing_purged_is_served_beyond_the_bound(join, made, server, until, faults, record_property):
    """Without faults nothing hangs on how fast the machine is: on the order of what is told, alone."""
    chance = random.Random(7)
    times = {"heartbeat": 0.2, "command": 0.4 if faults else 30.0, "patience": 1.0}
    nodes = [await join(times=times, detached_ttl=DETACHED) for _ in range(3)]
    origin = Origin(made, chance)
    seconds, began = 6.0, time.time()

    def goes_on():
        return time.time() < began + seconds if faults else origin.served < 2_000

    readers = [read_on(origin, node, goes_on) for node in nodes * 3]
    purgers = [purge_on(origin, node, goes_on) for node in nodes]
    await asyncio.gather(*readers, *purgers, *([disturb(server, seconds)] if faults else []))
    record_property("oldest", origin.oldest)
    if faults:
        assert origin.oldest <= max(nodes[0].store.bound, DETACHED)
    else:
        assert origin.forgot == 0
        await until(lambda: not any(map(origin.is_behind, nodes)))
    assert origin.served > 5 * origin.asked / 4
    assert sum(len(each) for each in origin.acknowledged.values()) > 40
    assert bool(origin.refused) == faults
