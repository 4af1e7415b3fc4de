"""A name with several addresses: each gets its turn, and the first that connects serves (RFC 8305)."""

import contextlib
import socket

import httpx
import pytest

from examples import cases
from support import hello, open_files, silent
from univocal.origin.addresses import resolved
from univocal.origin.failures import origin_failure
from univocal.origin.pool import Endpoint

NO_LIMIT = {"connect": None, "read": 20.0, "write": 20.0, "pool": 20.0}


def names(*addresses):
    """A resolver for which every name has these addresses."""

    async def resolve(host, port):
        return [found for address in addresses for found in await resolved(address, port)]

    return resolve


@cases(
    "addresses",
    ("::1", "127.0.0.1"),
    ("127.0.0.1", "::1"),
    ("127.0.0.2", "127.0.0.1"),
    ("127.0.0.2", "127.0.0.3", "::1", "127.0.0.1"),
)
async def test_an_address_that_refuses_gives_way(serve, answered, make_transport, addresses):
    origin = await serve(hello)  # at 127.0.0.1 alone
    transport = make_transport(resolve=names(*addresses))
    assert await answered(origin, by=transport) == (200, b"hello")
    assert (
        transport.origin_connections.tried(Endpoint("http", b"127.0.0.1", origin.port))
        == f"127.0.0.1:{origin.port}"
    )


@pytest.mark.parametrize("address", ["::1", "127.0.0.2"])
async def test_a_silent_address_gives_way_too(serve, answered, make_transport, eventually, address):
    origin = await serve(hello)
    with silent(address, origin.port):
        before = open_files()
        transport = make_transport(resolve=names(address, "127.0.0.1"))
        # Only the other address can end this: there is no time after which it would fail.
        assert await answered(origin, by=transport, timeout=NO_LIMIT) == (200, b"hello")
        await transport.aclose()
        await eventually(lambda: open_files() <= before)


async def test_the_families_take_turns(serve, answered, make_transport):
    """Six addresses of one family do not hold up the other: its first is the second that is tried."""
    origin = await serve(hello)
    with contextlib.ExitStack() as stack:
        for last in range(2, 8):
            stack.enter_context(silent(f"127.0.0.{last}", origin.port))
        late = names(*(f"127.0.0.{last}" for last in range(2, 8)), "::1")
        transport = make_transport(resolve=late)
        with (
            socket.create_server(("::1", origin.port), family=socket.AF_INET6),
            pytest.raises(httpx.ReadTimeout),
        ):
            await answered(origin, by=transport, timeout=NO_LIMIT | {"read": 0.01})
        tried = transport.origin_connections.tried(Endpoint("http", b"127.0.0.1", origin.port))
        assert tried == f"[::1]:{origin.port}"


async def test_where_all_refuse_that_is_told(serve, answered, make_transport):
    origin = await serve(hello)
    transport = make_transport(resolve=names("::1", "127.0.0.2"))
    with pytest.raises(httpx.ConnectError) as caught:
        await answered(origin, by=transport)
    failure = origin_failure(caught.value.__cause__, "http://origin.example").failure
    assert failure.reason == "refused"
    assert f"'127.0.0.2', {origin.port}" in failure.error
    assert "::1" in failure.error


async def test_an_address_is_its_own_only_one():
    assert [found[4] for found in await resolved("192.0.2.7", 80)] == [("192.0.2.7", 80)]
    assert [found[:2] for found in await resolved("2001:db8::7", 80)] == [
        (socket.AF_INET6, socket.SOCK_STREAM)
    ]


async def test_a_name_that_has_no_address():
    with pytest.raises(socket.gaierror):
        await resolved("nowhere.invalid", 80)
