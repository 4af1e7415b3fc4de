"""Commands to the servers behind a URL: each ends in time, and is reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

import redis.asyncio as redis
from redis.exceptions import (
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from univocal.store.redis.pipe import Pipe, Word
from univocal.store.redis.servers import Place, Servers
from univocal.store.roles import StoreReport, StoreUnavailableError, unreported

ROOT: Final = b"univocal:3:"
JOURNAL: Final = tuple(b"%b%b:{journal}" % (ROOT, name) for name in (b"head", b"log", b"last", b"how"))
# Descriptions and contents of all responses of one key together: what one reading moves at most.
MOST_OCTETS: Final = 16 << 20

_Part: TypeAlias = Literal["complete", "responses", "take"]
_FILES: Final = files("univocal.store.redis") / "lua"


def entry_name(key: bytes) -> bytes:
    """The stored responses of a cache key."""
    return b"%be:{%b}" % (ROOT, key)


def lock_name(key: bytes) -> bytes:
    """The key that says which process fetches a cache key."""
    return b"%bt:{%b}" % (ROOT, key)


def key_of(name: bytes) -> bytes | None:
    """The cache key of an entry's name; None for any other name."""
    begin = ROOT + b"e:{"
    return name[len(begin) : -1] if name.startswith(begin) and name.endswith(b"}") else None


def _file(name: str) -> str:
    return (_FILES / f"{name}.lua").read_text("utf-8")


def _script(name: str, *parts: _Part) -> str:
    """A script behind the parts that it uses; a line of flags stays the first."""
    text = _file(name)
    flags, rest = text.split("\n", 1) if text.startswith("#!") else ("#!lua", text)
    return "\n".join((flags, *map(_file, parts), rest))


LOOKUP: Final = _script("lookup", "responses", "take")
BEGIN: Final = _script("begin", "take")
COMMIT: Final = _script("commit", "responses")
FINISH: Final = _script("finish")
REMOVE: Final = _script("remove", "responses")
DESCRIBE: Final = _script("describe", "responses")
TIDY: Final = _script("tidy")
UNLINK: Final = _script("unlink")
ATTACH: Final = _script("attach", "complete")
PUBLISH: Final = _script("publish", "complete")
CATCH_UP: Final = _script("catch_up", "complete")


# The errors of a Redis that is not to be had.
AWAY: Final = (RedisError, OSError, RuntimeError)
# A server that answers so is not the one to ask any longer, or is not ready.
_ELSEWHERE: Final = (MovedError, ReadOnlyError, ClusterDownError)
# A connection with so many commands under way has another opened beside it.
_BUSY: Final = 16
# Seconds between two questions where the servers are.
_REFRESH: Final = 0.2


class FullError(StoreUnavailableError):
    """Redis has no memory left for what it was given."""


@cache
def _digest(script: str) -> str:
    return sha1(script.encode()).hexdigest()  # noqa: S324  (the name that Redis gives a script)


class Commands:
    """Runs scripts where their first key is kept, by at most so many connections to each server."""

    def __init__(
        self, servers: Servers, timeout: float, connections: int, report: StoreReport = unreported
    ) -> None:
        self.servers: Final = servers
        self.timeout: Final = timeout
        self.report = report
        self._connections: Final = connections
        self._pipes: dict[Place, list[Pipe]] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed = -_REFRESH
        self._is_closed = False
        self._late_since: float | None = None
        self._late_reply = 0.0  # when the last reply came that was not waited for any longer

    async def run(self, name: str, script: str, keys: Sequence[bytes], args: Sequence[Word]) -> Any:
        """Run a script that is reported by `name`; returns its result.

        Raises StoreUnavailableError, and FullError where Redis has no room for it.
        """
        began = time.perf_counter()
        result = "ok"
        try:
            if self._is_late(began):
                raise TimeoutError("an earlier command is late")
            reply = await self._run(script, keys, args, began + self.timeout)
            self._late_since = None
            return reply
        except AWAY as error:
            result = result_of(error)
            if result == "late" and self._late_since is None and self._late_reply < began:
                self._late_since = time.perf_counter()
            kind = FullError if result == "full" else StoreUnavailableError
            raise kind(str(error) or "no answer in time") from None
        finally:
            self.report(name, result, time.perf_counter() - began)

    async def ask(self, place: Place, words: Sequence[Word]) -> Any:
        """The reply of one server to a command. Raises StoreUnavailableError."""
        try:
            return await self._pipe(place).call(*words)
        except AWAY as error:
            raise StoreUnavailableError(str(error) or "no answer in time") from None

    def _is_late(self, now: float) -> bool:
        """Tell whether to wait for no reply: one is late, and only now and then another is tried."""
        if self._late_since is None or now - self._late_since >= self.timeout:
            self._late_since = None if self._late_since is None else now
            return False
        return True

    def _answers_again(self) -> None:
        """Ask again at once: the replies were late, perhaps since this process stood still."""
        self._late_since = None
        self._late_reply = time.perf_counter()

    async def _run(self, script: str, keys: Sequence[bytes], args: Sequence[Word], until: float) -> Any:
        words = (len(keys), *keys, *args)
        is_elsewhere = bool(self.servers.address.kind)
        try:
            return await self._pipe(self.servers.place(keys[0])).call("EVALSHA", _digest(script), *words)
        except TimeoutError:
            raise
        except NoScriptError:
            is_elsewhere = False
        except _ELSEWHERE:
            is_elsewhere = True
        except ResponseError:
            raise
        except (RedisError, OSError):
            pass
        # To run any of the scripts twice is as good as once, but for a number that nothing has.
        async with asyncio.timeout(until - time.perf_counter()):
            if is_elsewhere:
                await self.refresh()
            return await self._pipe(self.servers.place(keys[0])).call("EVAL", script, *words)

    def _pipe(self, place: Place) -> Pipe:
        """The connection to a server with the fewest commands under way."""
        if self._is_closed:
            raise redis.ConnectionError("the store was closed")
        pipes = self._pipes.setdefault(place, [])
        best: Pipe | None = None
        for pipe in tuple(pipes):
            if pipe.broken:
                pipes.remove(pipe)
            elif best is None or pipe.load < best.load:
                best = pipe
        if best is None or (best.load >= _BUSY and len(pipes) < self._connections):
            best = Pipe(self.servers.connection(place), self.timeout, self._answers_again)
            pipes.append(best)
        return best

    async def refresh(self) -> None:
        """Ask where the servers are, a few times a second at most. Raises redis.RedisError."""
        async with self._refreshing:
            if time.monotonic() - self._refreshed < _REFRESH:
                return
            await self.servers.refresh()
            self._refreshed = time.monotonic()

    async def aclose(self) -> None:
        """Disconnect; later commands fail."""
        self._is_closed = True
        await self.reset()
        await self.servers.aclose()

    async def reset(self) -> None:
        """Close every connection: a server that was left must not be asked any longer."""
        pipes = [pipe for held in self._pipes.values() for pipe in held]
        self._pipes.clear()
        await asyncio.gather(*(pipe.aclose() for pipe in pipes))


def result_of(error: BaseException) -> str:
    """The word for what became of a command."""
    if isinstance(error, OutOfMemoryError) or str(error).startswith("OOM "):
        return "full"
    return "late" if isinstance(error, TimeoutError | redis.TimeoutError) else "error"
