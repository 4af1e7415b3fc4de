"""The name under which a client counts, and what is counted under it."""

import sys

from examples import cases
from univocal.judge.trust import ClientCounts, client_name


@cases(
    "address, name",
    ("192.0.2.1", "192.0.2.1"),
    ("::ffff:192.0.2.1", "192.0.2.1"),
    ("2001:db8::1", "2001:db8::/64"),
    ("2001:db8::ffff:1", "2001:db8::/64"),
    ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
    ("fe80::1%eth0", "fe80::/64"),
    ("/run/socket", ""),
    (None, ""),
)
def test_a_client_counts_by_address_or_ipv6_network(address, name):
    assert client_name(address) == name


def test_a_client_at_its_limit_stays_until_one_ends():
    counts = ClientCounts()
    assert counts.add_below(2, "a")
    assert counts.add_below(2, "a")
    assert not counts.add_below(2, "a")
    assert counts.add_below(2, "b")
    counts.remove("a")
    assert counts.add_below(2, "a")
    assert (counts.of("a"), counts.of("b"), counts.of("c"), len(counts)) == (2, 1, 0, 3)


def test_counts_without_a_bound_count_against_one():
    counts = ClientCounts()
    for _ in range(3):
        counts.add("a")
    assert counts.of("a") == 3
    assert not counts.add_below(3, "a")


def test_clients_that_have_gone_take_no_memory():
    counts = ClientCounts()
    before = sys.getsizeof(counts._of)
    for number in range(10_000):
        name = f"192.0.2.{number}"
        counts.add(name)
        assert counts.of("never seen") == 0
        counts.remove(name)
    assert len(counts) == 0
    assert sys.getsizeof(counts._of) <= before + 1000
