"""Households: the name under which a client counts, and the requests that it has under way."""

from __future__ import annotations

import pytest

from univocal.engine.households import UnderWay, household


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/run/socket", ""),
        (None, ""),
    ],
)
def test_a_client_counts_by_its_address_or_by_its_site_of_ipv6(address: str | None, name: str) -> None:
    assert household(address) == name


def test_requests_under_way_are_counted_by_household() -> None:
    counted = UnderWay()
    assert counted.begin("a", 2)
    assert counted.begin("a", 2)
    assert not counted.begin("a", 2)
    assert counted.begin("b", 2)
    counted.end("a")
    assert counted.begin("a", 2)
    for name in "aab":
        counted.end(name)
    assert len(counted) == 0
