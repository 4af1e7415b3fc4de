"""Proxies of which nothing is left when their test has ended."""

import pytest

from neighbours import Proxy


@pytest.fixture
def proxy_of():
    """Makes proxies: proxy_of(tiers, rules, store)."""
    made = []

    def make(*parts, **settings):
        made.append(Proxy(*parts, **settings))
        return made[-1]

    yield make
    for each in made:
        each.assert_nothing_is_left()


@pytest.fixture
def proxy(proxy_of):
    return proxy_of()
