"""The stated cost of a stored response is the memory that it takes (max_bytes is a promise about memory)."""

import dataclasses
import gc
import sys
import tracemalloc

import pytest

from examples import cases
from support import put, stored_response
from univocal.cache.stored import Stored, filled
from univocal.store.memory import MemoryStore

COUNT = 500


def fill(store, more, asked, body):
    for number in range(COUNT):
        name = b"0123456789abcdef http en.example /wiki/Page_%d?x=%d" % (number, number)
        fields = [(b"cache-control", b"max-age=60"), (b"etag", b'"%d"' % number), *more]
        fields = [(key, value.replace(b"#", b"%d" % number)) for key, value in fields]
        request = [(key, b"%b%d" % (value, number)) for key, value in asked]
        assert put(store, stored_response(*fields, name=name, request=request, body=bytes(body)))


@pytest.mark.usefixtures("all_frozen")
@cases(
    "more, asked, body",
    ([], [], 0),
    ([], [], 5_000),
    ([(b"server", b"x" * 300)], [], 100),
    ([(b"vary", b"foo, bar")], [(b"foo", b"foo-"), (b"bar", b"bar-")], 100),
    ([(b"xkey", b"tag-# other-# third-#")], [], 100),
    ([(b"no-vary-search", b'params=("utm")')], [], 100),
)
def test_the_estimate_is_what_the_allocator_was_asked_for(more, asked, body):
    store = MemoryStore()
    fill(MemoryStore(), more, asked, body)  # what is made once is not to be counted
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fill(store, more, asked, body)
    gc.collect()
    resident = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 0.7 < resident / store.stats.bytes < 1.1


def test_head_and_body_are_counted_whole():
    store = MemoryStore()
    fill(store, [], [], 10_000)
    (one,) = store.lookup(b"0123456789abcdef http en.example /wiki/Page_7?x=7")
    assert one.cost > sys.getsizeof(one.head) + sys.getsizeof(one.body) + sys.getsizeof(
        one.key
    ) + sys.getsizeof(one)


def test_a_response_with_content_keeps_all_else():
    one = stored_response((b"etag", b'"a"'), name=b"0123456789abcdef http en.example /", body=b"")
    other = filled(one, b"content")
    for each in dataclasses.fields(Stored):
        expected = {"body": b"content", "used": 0.0, "forms": None}.get(each.name, getattr(one, each.name))
        assert getattr(other, each.name) == expected
