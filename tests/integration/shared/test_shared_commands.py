"""A command that fails for whatever becomes of its connection is a store that is not to be had."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from univocal.store.redis.bell import UnavailableError
from univocal.store.redis.commands import Link
from univocal.store.redis.key_names import Names


def link_that_fails(monkeypatch, error):
    link = Link("redis://127.0.0.1:1/0", 1.0, 1, Names("run", "0123456789abcdef"), doubt=lambda *_: None)

    async def evalsha(*_arguments):
        raise error

    monkeypatch.setattr(link._client, "evalsha", evalsha)
    return link


@pytest.mark.parametrize(
    "error",
    [
        OSError("reset"),
        ResponseError("LOADING"),
        RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
    ],
    ids=["the system's", "Redis's", "uvloop's"],
)
async def test_the_store_is_away(monkeypatch, error):
    with pytest.raises(UnavailableError):
        await link_that_fails(monkeypatch, error).run("return 1", [], [])


async def test_a_fault_of_our_own_is_none_of_the_store(monkeypatch):
    with pytest.raises(LookupError):
        await link_that_fails(monkeypatch, LookupError("ours")).run("return 1", [], [])
