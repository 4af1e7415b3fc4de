"""The memory that a million small objects take, against `max_bytes`.

    python benchmarks/memory.py [--objects 1000000] [--churn 0.5] [--largest 6000]

Each kind is stored in a process of its own, the way the proxy stores a response: judged by its head,
completed, committed under a lease; `max_bytes` is what so many cost. Then as many again as --churn says are
stored, with up to --largest bytes more, so that the store evicts and the allocator is left with holes.
Printed are MiB: the resident size before the first (the base), when the store is full, and after the churn;
and the larger of the two, the base left out, over `max_bytes`. The promise is at most 1.5.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.cache.storing import Fetched, complete, may_store
from univocal.http.messages import Fields, Request, Response
from univocal.store.memory import MemoryStore

NOW = 1_790_000_000.0
PROMISE = 1.5
RULES = Rules()
PLAIN: Fields = [
    (b"date", b"Mon, 21 Sep 2026 13:33:20 GMT"),
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"s-maxage=3600"),
]


def plain(_: int) -> tuple[Fields, Fields, bytes]:
    return PLAIN, [], bytes(100)


def empty(_: int) -> tuple[Fields, Fields, bytes]:
    return [(b"cache-control", b"s-maxage=3600")], [], b""


def tagged(number: int) -> tuple[Fields, Fields, bytes]:
    tags = b"article-%d author-%d all" % (number, number % 1000)
    return [*PLAIN, (b"etag", b'"%d"' % number), (b"surrogate-key", tags)], [], bytes(200)


def varied(number: int) -> tuple[Fields, Fields, bytes]:
    asked = [(b"accept-language", b"en-%d" % (number % 7)), (b"accept-encoding", b"gzip")]
    return [*PLAIN, (b"vary", b"accept-language, accept-encoding")], asked, bytes(200)


def alike(number: int) -> tuple[Fields, Fields, bytes]:
    ignored = b'params=("utm_source" "utm_medium" "fbclid")'
    return [*PLAIN, (b"etag", b'"%d"' % number), (b"no-vary-search", ignored)], [], bytes(200)


KINDS: dict[str, Callable[[int], tuple[Fields, Fields, bytes]]] = {
    "no content": empty,
    "100 octets": plain,
    "three tags": tagged,
    "Vary": varied,
    "No-Vary-Search": alike,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--churn", type=float, default=0.5)
    parser.add_argument("--largest", type=int, default=6000)
    parser.add_argument("--kind", choices=KINDS, help="only this, in this process")
    told = parser.parse_args()
    if told.kind:
        measure(told.kind, told.objects, told.churn, told.largest)
        return
    print(f"{'':14} {'objects':>9} {'max_bytes':>10} {'base':>7} {'full':>7} {'churned':>8} {'ratio':>6}  s")
    numbers = [f"--objects={told.objects}", f"--churn={told.churn}", f"--largest={told.largest}"]
    failed = [
        kind
        for kind in KINDS
        if subprocess.run([sys.executable, __file__, "--kind", kind, *numbers], check=False).returncode
    ]
    sys.exit(f"more than {PROMISE} times max_bytes: {', '.join(failed)}" if failed else 0)


def measure(kind: str, objects: int, churn: float, largest: int) -> None:
    """One line of the table; exit status 1 if the promise is broken."""
    make = KINDS[kind]
    probe = MemoryStore(1 << 40)
    for number in range(1000):
        put(probe, make, 1_000_000 + number, 0)
    store = MemoryStore(probe.stats.bytes * objects // 1000)
    del probe
    base, begun = resident(), time.perf_counter()
    for number in range(objects):
        put(store, make, number, 0)
    held, full = store.stats.entries, resident()
    sizes = random.Random(1)
    for number in range(objects, objects + int(objects * churn)):
        put(store, make, number, sizes.randrange(largest))
    churned = resident()
    ratio = (max(full, churned) - base) / store.max_bytes
    seconds = time.perf_counter() - begun
    sizes_told = f"{mib(base):7.0f} {mib(full):7.0f} {mib(churned):8.0f}"
    print(
        f"{kind:14} {held:9} {mib(store.max_bytes):10.0f} {sizes_told} {ratio:6.2f} {seconds:4.0f}",
        flush=True,
    )
    sys.exit(ratio > PROMISE)


def put(
    store: MemoryStore, make: Callable[[int], tuple[Fields, Fields, bytes]], number: int, more: int
) -> None:
    key = b"0123456789abcdef http en.example /wiki/Page_%d" % number
    fields, asked, body = make(number)
    # Each value is an object of its own, as if it came from a socket.
    fields = [(name, bytes(bytearray(value))) for name, value in fields]
    begun = may_store(key, Fetched(Request(b"GET", b"/", asked), Response(200, fields), NOW, NOW), RULES)
    assert isinstance(begun, Stored)
    lease = store.leases.begin(key, NOW)
    stored = complete(begun, body + bytes(more))
    assert stored is not None
    store.commit(lease, stored)
    store.leases.release(lease)


def resident() -> int:
    """The process's resident size in bytes, as Linux tells it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise SystemExit("no /proc: this needs Linux")


def mib(octets: int) -> float:
    return octets / 2**20


if __name__ == "__main__":
    main()
