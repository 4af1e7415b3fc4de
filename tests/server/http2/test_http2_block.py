"""Fields of responses are encoded so that any decoder reads them, whatever table it allows."""

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from univocal.cache.stored import render_head
from univocal.server.http2.block import NO_TABLE, block_of, block_of_head, block_of_hit, block_of_status

FIELDS = st.lists(
    st.tuples(st.sampled_from([b"etag", b"x", b"set-cookie", b"date"]), st.binary(max_size=300))
)


@given(st.integers(200, 599), st.lists(FIELDS, max_size=4), st.sampled_from([0, 100, 4096]))
def test_any_decoder_reads_the_fields(status, sections, table):
    decoder = hpack.Decoder()
    decoder.max_allowed_table_size = table
    for number, fields in enumerate(sections):
        octets = block_of_status(status) + block_of(fields)
        read = decoder.decode(octets if number else NO_TABLE + octets, raw=True)
        assert [tuple(field) for field in read] == [(b":status", b"%d" % status), *fields]
    assert decoder.header_table_size == (0 if sections else 4096)


@pytest.mark.parametrize("fields", [[], [(b"etag", b'"a"'), (b"x", b"y" * 500), (b"x", b"")]])
def test_a_stored_head_is_encoded_without_its_status_line(fields):
    decoder = hpack.Decoder()
    octets = block_of_head(render_head(200, fields))
    assert [tuple(field) for field in decoder.decode(octets, raw=True)] == fields


@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("lines", [[], [(b"cache-status", b"univocal; hit; ttl=60"), (b"x", b"y")]])
def test_a_hit_has_its_head_its_age_and_its_lines(size, lines):
    head = [(b"etag", b'"a"'), (b"x", b"y" * size)]
    lines = [*lines, *[(b"cache-status", b"z" * size)] * bool(lines)]
    octets = block_of_hit(render_head(200, head), 7, b"".join([b"%b: %b\r\n" % field for field in lines]))
    read = hpack.Decoder().decode(octets, raw=True)
    assert [tuple(field) for field in read] == [*head, (b"age", b"7"), *lines]
