"""Commands to Redis, which end in time, to one run of one server and in one namespace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from hashlib import sha1
from typing import Any, Final

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError

from univocal.store.redis.bell import UnavailableError
from univocal.store.redis.key_names import MARKER, Names
from univocal.store.redis.scripts import MOVED

__all__ = ["Link", "run_id_of", "settings"]

_RUN_ID: Final = re.compile(rb"^run_id:([0-9a-f]{8,64})\r?$", re.MULTILINE)


class _ElsewhereError(redis.ConnectionError):
    """The address leads to another server than the one that is tracked, or to another run of it."""


async def run_id_of(connection: redis.Connection) -> str:
    """The run of the server that a connection leads to."""
    await connection.send_command("INFO", "server")
    run_id = _RUN_ID.search(await connection.read_response())
    if run_id is None:
        raise redis.ConnectionError("no run_id in the server's INFO")
    return run_id[1].decode()


# The errors of a Redis that is not to be had.
_AWAY: Final = (RedisError, OSError, TimeoutError, RuntimeError)


@cache
def _digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()  # noqa: S324  (the name that Redis gives a script)


def _is_cancelled() -> bool:
    """Tell whether this task is to end; else another task cancelled what redis-py awaits in both."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_doubtful(error: BaseException) -> bool:
    """Tell whether an error means that no other command is likely to fare better."""
    if isinstance(error, TimeoutError | redis.TimeoutError | ReadOnlyError | _ElsewhereError):
        return True
    return isinstance(error, RedisError) and str(error).startswith(MOVED)


def settings(timeout: float) -> dict[str, Any]:
    """The settings of every connection to Redis: it speaks octets of RESP2 and tries nothing twice."""
    return {
        "protocol": 2,
        "decode_responses": False,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
    }


class Link:
    """Commands to one run of one server: a connection that finds another run there is not used.

    `doubt` is called if a command fails in a way that suggests that all will.
    """

    def __init__(
        self, url: str, timeout: float, connections: int, names: Names, doubt: Callable[[Link, str], None]
    ) -> None:
        self.names = names
        self._doubt = doubt
        self._timeout = timeout
        self._pool = redis.BlockingConnectionPool.from_url(
            url,
            **settings(timeout),
            max_connections=connections,
            timeout=timeout,
            socket_timeout=timeout,
            redis_connect_func=self._greet,
        )
        self._client = redis.Redis(connection_pool=self._pool)
        self._closed = False

    async def _greet(self, connection: redis.Connection) -> None:
        await connection.on_connect()
        if await run_id_of(connection) != self.names.run_id:
            raise _ElsewhereError("another run of the server than the one that is tracked")

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[bytes | int | str]) -> Any:
        """Run a script, if the namespace is still this one; returns its result. Raises UnavailableError."""
        return await self._bounded(
            self._evaluated(script, [len(keys) + 1, MARKER, *keys, self.names.root, *args])
        )

    async def _evaluated(self, script: str, arguments: list[Any]) -> Any:
        try:
            return await self._client.evalsha(_digest(script), *arguments)
        except NoScriptError:
            return await self._client.eval(script, *arguments)

    async def scan(self, pattern: bytes, batch: int) -> AsyncIterator[list[bytes]]:
        """The names that match, a batch of steps at a time. Raises UnavailableError."""
        cursor: Any = 0
        while True:
            cursor, names = await self._bounded(self._client.scan(cursor, match=pattern, count=batch))
            yield names
            if not int(cursor):
                return

    async def members(self, name: bytes, batch: int) -> AsyncIterator[list[bytes]]:
        """The members of a sorted set, likewise. Raises UnavailableError."""
        cursor: Any = 0
        while True:
            cursor, scored = await self._bounded(self._client.zscan(name, cursor, count=batch))
            yield [member for member, _ in scored]
            if not int(cursor):
                return

    async def _bounded(self, command: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await command
        except Exception as error:
            said = str(error) or "no answer in time"
            if not self._closed and _is_doubtful(error):
                self._doubt(self, f"a command failed: {said}")
            # redis-py stumbles in its own ways over a connection that is closed while it is used, and uvloop
            # raises a RuntimeError where something is written to one.
            if self._closed or isinstance(error, _AWAY):
                raise UnavailableError(said) from error
            raise
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise UnavailableError("its connection was closed") from None
        finally:
            if self._closed:  # meanwhile: nobody else would close this command's connection
                await self._disconnect()

    async def aclose(self) -> None:
        """Close every connection, those in use included."""
        self._closed = True
        await self._disconnect()

    async def _disconnect(self) -> None:
        try:
            await self._pool.disconnect()
        except (RedisError, OSError):
            pass  # what cannot be closed is not used again
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
