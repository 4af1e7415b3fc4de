"""A validated configuration becomes the store that it names."""

from __future__ import annotations

import time
from typing import Final

from univocal.http.errors import ConfigurationError
from univocal.store.address import RedisSettings, file_tier, store_at
from univocal.store.memory import MemoryStore
from univocal.store.roles import StoreReport, unreported
from univocal.store.shared import SharedTier
from univocal_app.config.tables import Configuration
from univocal_app.config.values import masked
from univocal_app.processes.commons import Commons

# The part of what all processes keep together that each may have in its own memory, too: 1 of so many,
# and at least so many bytes.
_OWN: Final = 8
_LEAST: Final = 4 << 20


def memory_bounds(configuration: Configuration) -> tuple[int, int]:
    """The bytes of memory that each process has for responses, and those of one response at most.

    Where several processes keep what they store together in memory, each has a part of it in its own.
    """
    table = configuration.cache
    if not _is_together(configuration):
        return table.max_bytes, table.max_object_bytes
    own = max(table.max_bytes // (_OWN * configuration.server.workers), _LEAST)
    return min(own, table.max_bytes), min(table.max_object_bytes, table.max_bytes)


def _is_together(configuration: Configuration) -> bool:
    return configuration.cache.store == "memory" and configuration.server.workers > 1


def store_of(
    configuration: Configuration, commons: Commons | None = None, report: StoreReport = unreported
) -> MemoryStore | SharedTier:
    """Make the store of the configuration; nothing is connected yet. Raises ConfigurationError."""
    table = configuration.cache
    memory = MemoryStore(*memory_bounds(configuration), is_part=_is_together(configuration))
    program, in_force = (None, None) if commons is None else ((commons.name, commons.leads), commons.in_force)
    clock, url = time.time, table.store
    try:
        if url == "memory":
            if commons is None or commons.store is None:
                return memory
            most = table.max_bytes
            return file_tier(commons.store, memory, clock, most, report, is_durable=False, program=program)
        redis = RedisSettings(**table.redis.model_dump())
        ttl, most = table.detached_ttl, table.disk_bytes
        return store_at(url, memory, clock, ttl, most, report, redis, in_force, program)
    except ConfigurationError as error:
        raise configuration.error("cache.store", masked(table.store), error.allowed) from None


def check_store(configuration: Configuration) -> None:
    """Raise ConfigurationError if there can be no such store; nothing is opened or made."""
    if not configuration.cache.store.startswith("file:"):
        store_of(configuration)
