"""The connection on which Redis tells of changes.

Redis's client-side caching is used in broadcast mode, by a RESP2
connection that redirects to itself: should something be told to nobody, then because this connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NoReturn, Protocol

import redis.asyncio as redis

from univocal.store.redis.commands import run_id_of, settings
from univocal.store.redis.key_names import MARKER, Names
from univocal.store.redis.scripts import ATTACH

__all__ = ["Informed", "Tracking"]

logger: Final = logging.getLogger("univocal")

_INVALIDATE: Final = b"__redis__:invalidate"
# Seconds before a lost connection is tried again: the first time, and at most.
_PAUSE: Final = (0.05, 1.0)
# Seconds that this clock and Redis's may differ without a word about it.
_SKEW: Final = 1.0
# How many namespaces that were left are remembered.
_LEFT: Final = 100


class Informed(Protocol):
    """The one who hears the news of the tracking connection."""

    async def attached(self, names: Names) -> None:
        """Take note that changes of these names are told from now on."""

    async def heard(self, changed: Iterable[bytes] | None) -> None:
        """Take note of keys that have changed; None: any may have."""

    def confirmed(self, since: float) -> None:
        """Take note that every change before this time has been told."""

    def lost(self) -> None:
        """Take note that changes are told no more."""


class Tracking:
    """Keeps the tracking connection up, and asks every `heartbeat` seconds whether it still is.

    `attached` is called once changes are told, before anything may rely on it; `confirmed` when whatever
    changed before a time has been told; `lost` when that no longer holds.
    """

    def __init__(
        self, url: str, listener: Informed, clock: Callable[[], float], heartbeat: float, timeout: float
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._pool = redis.ConnectionPool.from_url(url, **settings(timeout), socket_timeout=None)
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._doubt = asyncio.Event()
        self._why = ""
        self._answers: asyncio.Queue[None] = asyncio.Queue()
        self._names: Names | None = None
        self._left: deque[Names] = deque(maxlen=_LEFT)

    def doubt(self, why: str) -> None:
        """Begin anew: something suggests that the connection cannot be relied on."""
        self._why = why
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
        pause, logged = _PAUSE[0], ""
        while True:
            began = self._clock()
            try:
                await self._session()
            except* Exception as errors:  # whatever it was, memory alone would go on for ever
                error = errors.exceptions[0]
                reason = f"{type(error).__name__}: {str(error) or 'no answer in time'}"
                logger.log(
                    logging.DEBUG if reason == logged else logging.WARNING, "no shared store: %s", reason
                )
                logged = reason
            finally:
                self._listener.lost()
            if self._closed:
                return  # a task group that fails at the same time swallows the cancellation
            # A connection that held for a while is tried again at once, one that fails ever more rarely.
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
        names = await self._attach(connection)
        await connection.send_command("CLIENT", "ID")
        own = await connection.read_response()
        prefixes = [word for prefix in names.tracked for word in (b"PREFIX", prefix)]
        await connection.send_command("CLIENT", "TRACKING", "ON", "REDIRECT", own, "BCAST", *prefixes)
        await connection.read_response()
        await connection.send_command("SUBSCRIBE", _INVALIDATE)
        await connection.read_response()
        return names

    async def _attach(self, connection: Any) -> Names:
        """Find the namespace that all nodes work in; every script of theirs fails if it has changed."""
        run_id, refused = await run_id_of(connection), ""
        while True:
            begun = self._clock()
            begin, new = Names.begin(run_id), secrets.token_hex(8)
            await connection.send_command("EVAL", ATTACH, 1, MARKER, begin, new, refused)
            token, *time = await connection.read_response()
            names = Names(run_id, token.decode())
            # Responses purged elsewhere since this node left a namespace may still be in it.
            if names not in self._left:
                break
            refused = names.token
        self._compare(begun, int(time[0]) + int(time[1]) / 1e6, self._clock())
        if self._names not in {None, names}:
            self._left.append(self._names)
        self._names = names
        return names

    def _compare(self, before: float, theirs: float, after: float) -> None:
        """Say so if the clocks differ: freshness is judged by each node's own."""
        off = max(before - theirs, theirs - after)
        if off > _SKEW:
            logger.warning("this machine's clock and that of Redis's differ by %.1f seconds", off)

    async def _listen(self, connection: Any) -> None:
        while True:
            match await connection.read_response():
                case [b"message", channel, changed] if channel == _INVALIDATE:
                    # All that comes behind it, answers to heartbeats too, waits until it is carried out.
                    await self._listener.heard(changed)
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
        raise redis.ConnectionError(self._why)
