"""The store counts all bytes that it keeps, for responses of every shape (max_bytes is a promise)."""

import gc
import sys
import tracemalloc
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from examples import any_of, examples
from support import put, stored_response
from univocal.cache.stored import Stored
from univocal.store.memory import MemoryStore

COUNT = 30
# Octets of a store that are no response's: its tables before they grow, and the interpreter's own.
BASE = 16 << 10


@dataclass(frozen=True)
class Shape:
    """The numbers and lengths of a response's parts, by who may choose them."""

    key: int = 10
    query: bytes = b""  # what the query repeats
    variants: int = 1
    fields: int = 0
    value: int = 10
    etag: int = 0
    weak: bool = False
    language: int = 0
    tags: int = 0
    tag: int = 5
    shared: bool = False  # all have the same tags
    selecting: int = 0
    asked: int = 5
    parameters: int = -1  # that do not matter; -1: without No-Vary-Search
    but: bool = False  # those alone matter
    part: bool = False
    body: int = 0

    def name(self, number):
        page, query = number // self.variants, self.query * (2_000 // len(self.query)) if self.query else b""
        return b"0123456789abcdef http en.example /%b%d?%b%d" % (b"k" * self.key, page, query, page)

    def response(self, number):
        found = [(b"cache-control", b"max-age=60")]
        found += [(b"x-%d" % each, b"v" * self.value) for each in range(self.fields)]
        if self.etag:
            found.append((b"etag", b'%b"%d%b"' % (b"W/" if self.weak else b"", number, b"e" * self.etag)))
        if self.language:
            found.append((b"content-language", b"L%d" % number + b"l" * self.language))
        tagged = 0 if self.shared else number
        found.append(
            (b"xkey", b" ".join(b"%d-%d%b" % (tagged, n, b"t" * self.tag) for n in range(self.tags)))
        )
        vary = [b"h%d" % each for each in range(self.selecting)]
        if self.variants > 1:
            vary.append(b"variant")
        found.append((b"vary", b",".join(vary)))
        if self.parameters >= 0:
            names = b" ".join(b'"%d-%d"' % (number % 7, each) for each in range(self.parameters))
            form = b"key-order, params, except=(%b)" if self.but else b"key-order, params=(%b)"
            found.append((b"no-vary-search", form % names))
        if self.part:
            found.append((b"content-range", b"bytes 100000-%d/*" % (100_000 + self.body - 1)))
        return found

    def stored(self, number):
        # Each value is an object of its own, as if it came from a socket.
        fields = [(name, bytes(bytearray(value))) for name, value in self.response(number)]
        asked = [(b"h%d" % each, b"%d" % number + b"a" * self.asked) for each in range(self.selecting)]
        asked.append((b"variant", b"%d" % (number % self.variants)))
        of = {"request": asked, "status": 206 if self.part else 200, "body": b"b" * self.body}
        return stored_response(*fields, name=self.name(number), **of)

    def fill(self, store, numbers):
        for number in numbers:
            put(store, self.stored(number))


few, many = st.integers(0, 4), st.integers(0, 60)
short, long = st.integers(0, 60), st.integers(0, 3_000)
shapes = st.builds(
    Shape,
    key=short | long,
    query=any_of(b"", b"a&", b"=&", b"%20=+&", b"name=value&"),
    variants=any_of(1, 2, 30),
    fields=few | many,
    value=short | long,
    etag=short | long,
    weak=st.booleans(),
    language=short | long,
    tags=few | many,
    tag=short | long,
    shared=st.booleans(),
    selecting=few | st.integers(20, 60),  # with more no response is stored
    asked=short | long,
    parameters=st.just(-1) | few | many,
    but=st.booleans(),
    body=short | long,
)


def measured(shape, store):
    """Octets asked of the allocator over those counted: full, and half of it anew with as many others."""
    rounds = [range(COUNT), range(COUNT // 2, COUNT * 3 // 2)]
    shape.fill(MemoryStore(1 << 40, 1 << 30), range(3))  # what is made once is not to be counted
    gc.collect()
    tracemalloc.start()
    try:
        before, found = tracemalloc.get_traced_memory()[0], []
        for numbers in rounds:
            shape.fill(store, numbers)
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0] - before - BASE
            found.append(kept / store.stats.bytes)
        return found
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.usefixtures("all_frozen")
@settings(max_examples=examples(40, part=6), suppress_health_check=[HealthCheck.too_slow])
@given(shapes, st.booleans())
@example(Shape(parameters=150), False)
@example(Shape(parameters=150, but=True), False)
@example(Shape(parameters=0, query=b"a&"), False)
@example(Shape(parameters=0, key=8_000), False)
@example(Shape(etag=30_000), False)
@example(Shape(etag=30_000, weak=True), False)
@example(Shape(language=30_000), False)
@example(Shape(tags=307), False)
@example(Shape(tags=1, tag=30_000), True)
@example(Shape(tags=5, variants=30, key=8_000), True)
@example(Shape(selecting=60, asked=0), False)
@example(Shape(selecting=1, asked=8_000), False)
@example(Shape(key=8_000), False)
@example(Shape(part=True, body=1), False)
def test_no_shape_keeps_more_than_1_5_times_its_count(shape, crowded):
    room = COUNT * max(shape.stored(1).cost, 1_500) if crowded else 1 << 40
    assert max(measured(shape, MemoryStore(room, room))) <= 1.5


@pytest.mark.usefixtures("all_frozen")
def test_the_garbage_collector_looks_at_few_objects_for_each_response():
    """The entry is in a queue, a circle. Nothing else is, and compiled code tells the collector so."""
    compiled = not str(sys.modules[Stored.__module__].__file__).endswith(".py")
    store, shape = MemoryStore(1 << 40, 1 << 30), Shape(etag=10, body=10)
    shape.fill(store, range(COUNT))
    gc.collect()
    before = len(gc.get_objects())
    shape.fill(store, range(COUNT, COUNT + 1_000))
    gc.collect()
    assert len(gc.get_objects()) - before <= (1 if compiled else 3) * 1_000 + COUNT
