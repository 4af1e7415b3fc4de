"""Names are resolved again, and former addresses retire."""

import asyncio
import socket

import pytest

from examples import cases
from tests.origin.conftest import turns
from univocal.origin.addresses import NameWatch, address_text, resolved


class Names:
    """A resolver that gives `addresses`, fails if there are none, and waits while `holds`."""

    def __init__(self, clock):
        self.clock, self.addresses, self.times, self.holds = clock, ["192.0.2.1"], [], None

    async def __call__(self, host, port):
        assert (host, port) == ("origin.example", 8080)
        self.times.append(self.clock.now)
        if self.holds is not None:
            await self.holds.wait()
        if not self.addresses:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [found for address in self.addresses for found in await resolved(address, port)]


@pytest.fixture
def names(clock):
    return Names(clock)


@pytest.fixture
def found():
    return []


@pytest.fixture
def watch(clock, names, found):
    return NameWatch("origin.example", 8080, found.append, names, clock)


async def at(clock, *times):
    for time in times:
        clock.pass_to(time)
        await turns(10)


async def test_every_thirty_seconds(watch, names, clock, found):
    watch.begin()
    await at(clock, *range(0, 95, 5))
    assert names.times == [0, 30, 60, 90]
    assert found == [("192.0.2.1",)]


async def test_a_silent_resolver_is_not_asked_again_until_it_answers(watch, names, clock, found):
    names.holds = asyncio.Event()
    watch.begin()
    await at(clock, 0, 30, 60, 70)
    assert (names.times, found) == ([0], [])
    names.holds.set()
    await turns(10)
    assert found == [("192.0.2.1",)]
    await at(clock, 90)
    assert names.times == [0, 90]


async def test_unreached_names_are_resolved_soon_but_once_a_second(watch, names, clock):
    watch.begin()
    await at(clock, 0, 10)
    for tenth in range(100, 131):
        watch.hurry()
        await at(clock, tenth / 10)
    assert names.times == [0, 10, 11, 12, 13]
    await at(clock, 42, 43)
    assert names.times[5:] == [43]


async def test_a_name_is_resolved_no_more_at_the_end(watch, names, clock, found):
    names.holds = asyncio.Event()
    watch.begin()
    await turns(10)
    watch.close()
    names.holds.set()
    await turns(10)
    watch.hurry()
    await at(clock, 100)
    assert (names.times, found, clock.timers) == ([0], [], [])


async def test_so_many_addresses_at_most(watch, names, found):
    names.addresses = [f"192.0.2.{last}" for last in range(100)]
    watch.begin()
    await turns(10)
    assert [len(addresses) for addresses in found] == [64]


@cases("address, written", ("192.0.2.7", "192.0.2.7:80"), ("2001:db8::7", "[2001:db8::7]:80"))
async def test_an_address_is_its_own_only_one(address, written):
    assert [address_text(found) for found in await resolved(address, 80)] == [written]


async def test_a_name_that_has_no_address():
    with pytest.raises(socket.gaierror):
        await resolved("nowhere.invalid", 80)
