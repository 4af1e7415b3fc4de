"""The stored responses of a URL, as people and programs are shown them."""

from __future__ import annotations

from typing import Any

from univocal.cache.stored import Stored
from univocal.cache.vary import vary_names
from univocal.judge.orders import keys_of
from univocal.judge.runtime import Runtime
from univocal.store.memory import MemoryStore


def entries_of(url: str, runtime: Runtime, memory: MemoryStore, now: float) -> list[dict[str, Any]]:
    """The responses that memory has of a URL under both schemes, newest first.

    Raises RefusedError for a URL that is refused, ValueError for half of a surrogate pair.
    """
    stored = {id(one): one for key in keys_of(url, runtime) for one in memory.lookup(key)}
    newest = sorted(stored.values(), key=lambda one: one.response_time, reverse=True)
    return [_entry(one, now) for one in newest]


def _entry(stored: Stored, now: float) -> dict[str, Any]:
    """One response: sizes are bytes, times are seconds."""
    validator = stored.etag or stored.last_modified
    named = vary_names(stored.fields) or ()
    return {
        "status": stored.status,
        # Fields that it was asked for without are told where its Vary names them: others are our own doing.
        "variant": {
            name.decode("latin-1"): None if value is None else value.decode("latin-1")
            for name, value in stored.vary
            if value is not None or name in named
        },
        "bytes": len(stored.body),
        "age": stored.age(now),
        "ttl": int(stored.fresh_until - now),
        "validator": None if validator is None else validator.decode("latin-1"),
        "store": "memory",
        "blocks": None,
    }
