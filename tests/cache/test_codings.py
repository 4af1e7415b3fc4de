"""Accept-Encoding is reduced to the codings that are common."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.messages import LONGEST, reduce_codings, weights

NAME = b"accept-encoding"

# As clients write it: Chrome and Firefox, Safari and older ones, curl --compressed, Python, wget, Go, Java.
CLIENTS = {
    b"gzip, deflate, br, zstd": b"zstd, br, gzip",
    b"zstd,br , gzip;q=1.0": b"zstd, br, gzip",
    b"gzip, deflate, br": b"br, gzip",
    b"gzip,deflate": b"gzip",
    b"gzip": b"gzip",
    b"x-gzip": b"gzip",
    b"identity": b"identity",
    b"": b"identity",
    b"deflate, compress": b"identity",
    b"*": b"zstd, br, gzip",
    b"*;q=0": b"identity",
    b"*;q=0.1, br;q=0": b"zstd, gzip",
    b"gzip;q=0": b"identity",
    b"br;q=0.001, GZIP;q=0.000": b"br",
    b"br;q=1.0, gzip;q=0.8, *;q=0": b"br, gzip",
    b"dcb, dcz, gzip": b"gzip",
}


@pytest.mark.parametrize(("value", "reduced"), CLIENTS.items())
def test_what_clients_write(value, reduced):
    fields = [(b"a", b"1"), (NAME, value), (b"b", b"2")]
    assert sorted(reduce_codings(fields)) == sorted([(b"a", b"1"), (NAME, reduced), (b"b", b"2")])


def test_several_lines_are_one_list():
    assert reduce_codings([(NAME, b"gzip"), (b"a", b"1"), (NAME, b"br")]) == [
        (b"a", b"1"),
        (NAME, b"br, gzip"),
    ]


@cases(
    "fields",
    [],
    [(b"a", b"1")],
    [(NAME, b"br, gzip")],
    [(NAME, b"gzip;q=2")],
    [(NAME, b"gzip; q=high")],
    [(NAME, b"gzip" + b",a" * LONGEST)],
)
def test_what_is_reduced_malformed_or_very_long_stays(fields):
    assert reduce_codings(fields) is fields


CODINGS = st.sampled_from([b"gzip", b"x-gzip", b"br", b"zstd", b"identity", b"deflate", b"*", b"GZip"])
QVALUES = st.sampled_from([b"", b";q=0", b";q=0.0", b"; q=0.5", b";Q=1"])
MEMBERS = st.lists(st.builds(lambda coding, weight: coding + weight, CODINGS, QVALUES), max_size=6)


@given(st.one_of(MEMBERS.map(b", ".join), st.binary(max_size=40)))
def test_reducing_is_idempotent_and_names_nothing_that_is_refused(value):
    once = reduce_codings([(NAME, value)])
    assert reduce_codings(once) is once
    read = weights(value)
    if read is not None:
        refused = {coding for coding, weight in read if weight == b"0"} - {b"identity"}
        assert refused.isdisjoint(once[0][1].split(b", "))
