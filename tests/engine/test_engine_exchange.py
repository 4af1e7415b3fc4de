"""One exchange from its admission to its Outcome: what its client gets, and when it leaves."""

from __future__ import annotations

import pytest

from neighbours import House, PlayedClient
from univocal.engine.broadcast import WINDOW

LONG = bytes(5 * WINDOW // 2)


# Clients that leave, or are refused, in the middle


@pytest.mark.parametrize("leaves", [1, 2, 3, 4, 5])
def test_a_client_that_leaves_within_a_call_hears_no_more_of_a_stored_response(leaves: int) -> None:
    house = House()
    house.store_away(LONG)
    client = house.ask(client=PlayedClient(leaves=leaves))
    assert (len(client.chunks), client.state) == (min(leaves - 1, 3), "left" if leaves < 5 else "finished")
    client.exchange.resume()
    assert len(client.chunks) == min(leaves - 1, 3)
    house.assert_nothing_is_left()


def test_a_client_that_is_refused_in_the_middle_of_a_stored_response_hears_no_more() -> None:
    house = House()
    house.store_away(LONG)
    client = house.ask(client=PlayedClient(takes=1))
    client.exchange.refuse(("body-too-large",))
    client.resume()
    assert (len(client.chunks), client.state) == (1, "cut")
    house.assert_nothing_is_left()


@pytest.mark.parametrize("takes", [1, 2, 3])
def test_a_client_that_takes_no_more_gets_the_rest_of_a_stored_response_later(takes: int) -> None:
    house = House()
    house.store_away(LONG)
    client = house.ask(client=PlayedClient(takes=takes))
    assert len(client.chunks) == takes
    assert client.state == ("finished" if takes == 3 else "")
    while not client.state:
        client.resume()
    assert client.body == LONG
    house.assert_nothing_is_left()
