"""The connections to Redis: commands that end in time, and the one by which it tells what changed.

The only module that knows redis-py. Redis's client-side caching is used in broadcast mode, by a RESP2
connection that redirects to itself: should something be told to nobody, then because this connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from univocal.cache.names import Names
from univocal.cache.waiting import UnavailableError

__all__ = ["Link", "Listener", "Tracking", "check_url"]

logger: Final = logging.getLogger("univocal")

_RUN_ID: Final = re.compile(rb"^run_id:([0-9a-f]{8,64})\r?$", re.MULTILINE)
_INVALIDATE: Final = b"__redis__:invalidate"
# Seconds before a lost connection is tried again: the first time, and at most.
_PAUSE: Final = (0.05, 1.0)


def check_url(url: str) -> None:
    """Raise ValueError for what is no URL of a Redis."""
    redis.ConnectionPool.from_url(url)


async def _run_id(connection: redis.Connection) -> str:
    await connection.send_command("INFO", "server")
    found = _RUN_ID.search(await connection.read_response())
    if found is None:
        raise redis.ConnectionError("no run_id in the server's INFO")
    return found[1].decode()


def _is_cancelled() -> bool:
    """Whether this task is to end: what redis-py awaits may have been cancelled by another that awaits it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Link:
    """Commands to one run of one server: a connection that finds another run there is not used."""

    def __init__(self, url: str, timeout: float, connections: int, names: Names) -> None:
        self.names = names
        self._timeout = timeout
        self._pool = redis.BlockingConnectionPool.from_url(
            url,
            protocol=2,
            decode_responses=False,
            max_connections=connections,
            timeout=timeout,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=self._greet,
        )
        self._client = redis.Redis(connection_pool=self._pool)
        self._scripts: dict[str, Any] = {}
        self._closed = False

    async def _greet(self, connection: redis.Connection) -> None:
        await connection.on_connect()
        if await _run_id(connection) != self.names.run_id:
            raise redis.ConnectionError("another run of the server than the one that is tracked")

    async def run(self, script: str, keys: Sequence[bytes], args: Sequence[bytes | int | str]) -> Any:
        """What a script gives. Raises UnavailableError."""
        if script not in self._scripts:
            self._scripts[script] = self._client.register_script(script)
        return await self._bounded(self._scripts[script](keys, args))

    async def description(self, entry: bytes, variant: bytes) -> bytes | None:
        """The description of one variant. Raises UnavailableError."""
        found: bytes | None = await self._bounded(self._client.hget(entry, b"m" + variant))
        return found

    async def scan(self, pattern: bytes, batch: int) -> AsyncIterator[list[bytes]]:
        """The names that match, a batch of steps at a time. Raises UnavailableError."""
        cursor: Any = 0
        while True:
            cursor, found = await self._bounded(self._client.scan(cursor, match=pattern, count=batch))
            yield found
            if not int(cursor):
                return

    async def members(self, name: bytes, batch: int) -> AsyncIterator[list[bytes]]:
        """The members of a sorted set, likewise. Raises UnavailableError."""
        cursor: Any = 0
        while True:
            cursor, found = await self._bounded(self._client.zscan(name, cursor, count=batch))
            yield [member for member, _ in found]
            if not int(cursor):
                return

    async def _bounded(self, command: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await command
        except Exception as error:
            # redis-py stumbles in its own ways over a connection that is closed while it is used.
            if self._closed or isinstance(error, RedisError | OSError | TimeoutError):
                raise UnavailableError(str(error)) from error
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


class Listener(Protocol):
    """Who is told what the tracking connection says."""

    async def attached(self, names: Names) -> None: ...
    def heard(self, changed: Iterable[bytes] | None) -> None: ...
    def confirmed(self, since: float) -> None: ...
    def lost(self) -> None: ...


class Tracking:
    """Keeps the tracking connection up, and asks every `heartbeat` seconds whether it still is.

    `attached` is called once changes are told, before anything may rely on it; `confirmed` when whatever
    changed before a time has been told; `lost` when that no longer holds.
    """

    def __init__(
        self, url: str, listener: Listener, clock: Callable[[], float], heartbeat: float, timeout: float
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._pool = redis.ConnectionPool.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_timeout=None,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
        )
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._doubt = asyncio.Event()
        self._answers: asyncio.Queue[None] = asyncio.Queue()

    def doubt(self) -> None:
        """Begin anew: something suggests that the connection cannot be relied on."""
        self._doubt.set()

    def start(self) -> None:
        """Connect and listen, again and again, until it is closed."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        """Disconnect for good."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause, told = _PAUSE[0], ""
        while True:
            began = self._clock()
            try:
                await self._session()
            except* Exception as errors:  # whatever it was, memory alone would go on for ever
                reason = f"{type(errors.exceptions[0]).__name__}: {errors.exceptions[0]}"
                logger.log(
                    logging.DEBUG if reason == told else logging.WARNING, "no shared store: %s", reason
                )
                told = reason
            finally:
                self._listener.lost()
            if self._closed:
                return  # a task group that fails at the same time swallows the cancellation
            # What held for a while is tried again at once, what fails at once ever more rarely.
            pause = _PAUSE[0] if self._clock() - began > _PAUSE[1] else min(2 * pause, _PAUSE[1])
            await asyncio.sleep(pause)

    async def _session(self) -> None:
        connection: Any = self._pool.make_connection()  # type: ignore[no-untyped-call]
        self._doubt.clear()
        self._answers = asyncio.Queue()
        try:
            async with asyncio.timeout(4 * self._timeout):
                names = await self._subscribe(connection)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(connection))
                tasks.create_task(self._attend(connection, names))
                tasks.create_task(self._until_doubted())
        finally:
            await connection.disconnect(nowait=True)

    async def _subscribe(self, connection: Any) -> Names:
        await connection.connect()
        names = Names(await _run_id(connection))
        await connection.send_command("CLIENT", "ID")
        own = await connection.read_response()
        prefixes = [word for prefix in names.tracked for word in (b"PREFIX", prefix)]
        await connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", own, "BCAST", *prefixes)
        await connection.read_response()
        await connection.send_command("SUBSCRIBE", _INVALIDATE)
        await connection.read_response()
        return names

    async def _listen(self, connection: Any) -> None:
        while True:
            match await connection.read_response():
                case [b"message", channel, changed] if channel == _INVALIDATE:
                    self._listener.heard(changed)
                case [b"pong", _]:
                    self._answers.put_nowait(None)
                case _:
                    raise redis.ConnectionError("an answer to nothing that was asked")

    async def _attend(self, connection: Any, names: Names) -> None:
        await self._listener.attached(names)
        while True:
            since = self._clock()
            await connection.send_command("PING")
            async with asyncio.timeout(self._timeout):
                await self._answers.get()
            self._listener.confirmed(since)
            await asyncio.sleep(self._heartbeat)

    async def _until_doubted(self) -> NoReturn:
        await self._doubt.wait()
        raise redis.ConnectionError("a command failed: the connection is begun anew")
