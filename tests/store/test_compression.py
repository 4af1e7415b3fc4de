"""Forms of stored responses: what memory counts, and what others wait for."""

import asyncio
import gzip
import threading

import pytest

from examples import cases
from support import NOW, eventually, put, stored_response
from univocal.cache.forms import codings_among, forms_of
from univocal.cache.rules import Rules
from univocal.store import compression
from univocal.store.compression import Compression, missing_library
from univocal.store.memory import MemoryStore
from univocal.store.purge_selectors import Everything, Keys

TEXT = b"The same words again and again. " * 300
KEY = b"profile http a.example /"


def stored(memory, key=KEY, content=TEXT):
    fields = [(b"content-type", b"text/plain"), (b"cache-control", b"max-age=60"), (b"etag", b'"1"')]
    kept = stored_response(*fields, name=key, body=content)
    assert put(memory, kept)
    return kept


def test_a_form_is_made_once_and_counted():
    memory = MemoryStore()
    compression, response = Compression(memory), stored(memory)
    before = memory.stats.bytes
    form = compression.choose(response, (b"gzip",))
    assert gzip.decompress(form.body) == TEXT
    assert memory.stats.bytes == before + form.cost
    assert len(form.body) < form.cost
    assert compression.choose(response, (b"gzip",)) is form
    assert memory.stats.bytes == before + form.cost
    assert memory.stats.responses == 1


@pytest.mark.parametrize("selector", [Keys(frozenset([KEY])), Everything()])
def test_a_purge_gives_back_all_that_forms_took(selector):
    memory = MemoryStore()
    compression, response = Compression(memory), stored(memory)
    for coding in (b"gzip", b"br", b"zstd"):
        assert compression.choose(response, (coding,)) is not response
    assert memory.purge(selector, NOW) == 1
    assert memory.stats.bytes == memory._small == 0


def test_a_soft_purge_keeps_forms_and_their_count():
    memory = MemoryStore()
    compression, response = Compression(memory), stored(memory)
    form = compression.choose(response, (b"gzip",))
    before = memory.stats.bytes
    memory.purge(Keys(frozenset([KEY]), soft=True), NOW)
    (stale,) = memory.lookup(KEY)
    assert stale is not response
    assert compression.choose(stale, (b"gzip",)) is form
    assert memory.stats.bytes == before
    memory.purge(Everything(), NOW)
    assert memory.stats.bytes == 0


def test_forms_evict_others_and_never_exceed_the_bound():
    memory = MemoryStore(max_bytes=60_000, max_object_bytes=20_000)
    compression = Compression(memory)
    responses = [stored(memory, KEY + b"%d" % number) for number in range(5)]
    for response in responses:
        for coding in (b"gzip", b"br", b"zstd"):
            compression.choose(response, (coding,))
            assert memory.stats.bytes <= 60_000


def test_content_that_does_not_shrink_is_sent_as_it_is():
    memory, noise = MemoryStore(), bytes(hash((number, 7)) & 255 for number in range(5000))
    compression, response = Compression(memory), stored(memory, content=gzip.compress(noise * 3))
    before = memory.stats.bytes
    assert compression.choose(response, (b"gzip",)) is response
    assert memory.stats.bytes == before


async def test_large_content_keeps_no_other_waiting(monkeypatch):
    memory, threads = MemoryStore(), set[int]()
    compress = compression._COMPRESS[b"br"]

    def compress_here(content):
        threads.add(threading.get_ident())
        return compress(content)

    monkeypatch.setitem(compression._COMPRESS, b"br", compress_here)
    forms, response = Compression(memory), stored(memory, content=TEXT * 800)
    assert forms.choose(response, (b"br",)) is response
    await eventually(lambda: forms_of(response).coded)
    assert threads
    assert threading.get_ident() not in threads
    assert forms.choose(response, (b"br",)) is not response


async def test_a_form_of_a_purged_response_is_not_counted():
    memory = MemoryStore()
    compression, response = Compression(memory), stored(memory, content=TEXT * 800)
    compression.prepare(response, (b"gzip",))
    memory.purge(Everything(), NOW)
    await eventually(lambda: forms_of(response).coded)
    assert memory.stats.bytes == 0


@cases(
    "value, codings",
    (b"gzip, br", (b"br", b"gzip")),
    (b"x-gzip", (b"gzip",)),
    (b"gzip;q=0, *", (b"zstd", b"br")),
    (b"identity", ()),
    (b"gzip;q=2", ()),
    (b"br" + b", deflate" * 40, ()),
    (b"", ()),
)
def test_the_order_is_that_of_the_operator(value, codings):
    assert codings_among(value, Rules(compress=["zstd", "br", "gzip"])) == codings


def test_a_library_that_is_missing_is_named(monkeypatch):
    assert missing_library(b"gzip") == missing_library(b"br") == ""
    monkeypatch.setattr("univocal.store.compression.find_spec", lambda name: None)
    assert (missing_library(b"gzip"), missing_library(b"br")) == ("", "brotli")


@pytest.mark.pure("a function is replaced")
async def test_a_compression_that_fails_ends_no_other(monkeypatch):
    """Compression fails in this way without memory."""
    compress, failures = compression._COMPRESS[b"gzip"], [MemoryError()]

    def compressed(content):
        if failures:
            raise failures.pop()
        return compress(content)

    monkeypatch.setitem(compression._COMPRESS, b"gzip", compressed)
    memory = MemoryStore()
    forms, large = Compression(memory), TEXT * 20
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    responses = [stored(memory, KEY + b"%d" % number, large) for number in range(3)]
    for each in responses:
        assert forms.choose(each, (b"gzip",)) is each
    await eventually(lambda: all(forms.choose(each, (b"gzip",)) is not each for each in responses[1:]))
