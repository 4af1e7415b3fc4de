"""The servers behind a URL, connections to them, and commands: each ends in time, and is reported.

redis-py finds the servers, opens connections and reads from them. Many callers share a connection: commands
of one iteration of the loop leave in one write, and replies come in the order of their commands.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

import hiredis
import redis.asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    MovedError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
)

from univocal.store.redis.url import RedisAddress, read
from univocal.store.roles import StoreReport, StoreUnavailableError, unreported

RedisPlace: TypeAlias = tuple[str, int]
"""A host and a port; a socket's path and 0."""


class Servers(ABC):
    """Where names are kept. `refresh` finds out again; before its first call nothing is known."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        self.address: Final = address
        self._timeout: Final = timeout

    @abstractmethod
    def place(self, name: bytes) -> RedisPlace:
        """The server that has a name. Raises redis.ConnectionError where that is not known."""

    def places(self) -> list[RedisPlace]:
        """Every server that has names. Raises redis.ConnectionError likewise."""
        return [self.place(b"")]

    async def refresh(self) -> None:  # noqa: B027
        """Ask where the servers are. Raises redis.RedisError."""

    async def aclose(self) -> None:  # noqa: B027
        """Disconnect from whom `refresh` asks."""

    def connection(self, place: RedisPlace) -> Any:
        """A connection, not opened yet, of redis-py: it speaks RESP2, and tries nothing twice."""
        settings = {
            "protocol": 2,
            "decode_responses": False,
            "socket_timeout": None,
            "socket_connect_timeout": self._timeout,
            "retry": Retry(NoBackoff(), 0),
            **self.address.login,
        }
        host, port = place
        if not port:
            return redis.UnixDomainSocketConnection(path=host, **settings)
        if self.address.tls:
            return redis.SSLConnection(host=host, port=port, **settings, **self.address.tls_options)
        return redis.Connection(host=host, port=port, **settings)


class _OneServer(Servers):
    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        self._place: RedisPlace = address.hosts[0] if address.hosts else (address.path, 0)

    def place(self, name: bytes) -> RedisPlace:  # noqa: ARG002
        return self._place


class _Primary(Servers):
    """The primary of a name that Sentinels watch."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        limits = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
        tls = {"ssl": True, **address.tls_options} if address.tls else {}
        self._sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
            list(address.hosts), sentinel_kwargs={**limits, **tls, **address.sentinel_login}
        )
        self._place: RedisPlace | None = None

    def place(self, name: bytes) -> RedisPlace:  # noqa: ARG002
        if self._place is None:
            raise redis.ConnectionError("no Sentinel has named a primary")
        return self._place

    async def refresh(self) -> None:
        self._place = await self._sentinel.discover_master(self.address.primary)

    async def aclose(self) -> None:
        for each in self._sentinel.sentinels:
            await each.aclose()


class _Cluster(Servers):
    """The masters of a cluster, each with a part of the slots."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        super().__init__(address, timeout)
        tls = {"ssl": True, **address.tls_options} if address.tls else {}
        self._client: RedisCluster = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts],
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 1),
            require_full_coverage=False,
            **address.login,
            **tls,
        )
        self._asked = False

    def place(self, name: bytes) -> RedisPlace:
        if not self._asked:
            raise redis.ConnectionError("no node of the cluster has told who has which slots")
        try:
            node: Any = self._client.get_node_from_key(name)  # type: ignore[arg-type]
        except (SlotNotCoveredError, RedisClusterException) as error:
            raise redis.ConnectionError(str(error)) from None
        return node.host, node.port

    def places(self) -> list[RedisPlace]:
        primaries: list[Any] = self._client.get_primaries()
        return [(node.host, node.port) for node in primaries]

    async def refresh(self) -> None:
        self._asked = False
        await self._client.aclose()
        await self._client.initialize()
        self._asked = True

    async def aclose(self) -> None:
        await self._client.aclose()


def servers_at(url: str, timeout: float) -> Servers:
    """The servers that a URL leads to. Raises ValueError."""
    address = read(url)
    kinds: dict[str, type[Servers]] = {"": _OneServer, "sentinel": _Primary, "cluster": _Cluster}
    return kinds[address.kind](address, timeout)


Word: TypeAlias = bytes | int | str
"""One of the words of a command."""

_Reply: TypeAlias = "asyncio.Future[Any]"


class CommandPipe:
    """Commands over one connection, which is opened by the first of them. Use it in one event loop.

    A reply that does not come within `timeout` seconds raises TimeoutError; without one, callers give up by
    themselves. They leave their place: the reply is read and dropped, and `late_reply` is called. An error of
    the connection fails all callers that wait for a reply.
    """

    def __init__(
        self, connection: Any, timeout: float | None = None, late_reply: Callable[[], None] | None = None
    ) -> None:
        self._connection, self._timeout, self._late_reply = connection, timeout, late_reply
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[_Reply, float]] = deque()  # each with its last moment
        self._due: list[bytes] = []  # commands that are not written yet
        self._timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[None] | None = None
        self.broken = False

    @property
    def load(self) -> int:
        """The number of replies that are waited for."""
        return len(self._waiting)

    def call(self, *words: Word) -> Awaitable[Any]:
        """The reply to a command.

        Raises RedisError or OSError: Redis says so, or the connection breaks or is too late.
        """
        return self._send_once_open(words) if self._reading is None else self._send(words)

    def _send(self, words: tuple[Word, ...]) -> _Reply:
        if self.broken or not self._connection.is_connected:
            raise redis.ConnectionError("the connection was closed")
        self._due.append(hiredis.pack_command(words))  # type: ignore[arg-type]
        if self._writing is None:
            self._write()
        reply: _Reply = self._loop.create_future()
        until = 0.0
        if self._timeout is not None:
            until = self._loop.time() + self._timeout
            if self._timer is None:
                self._timer = self._loop.call_at(until, self._expire)
        self._waiting.append((reply, until))
        return reply

    def _write(self) -> None:
        """Write what is due in the next iteration, or when the connection takes more."""
        self._writing = self._loop.create_task(self._write_due())
        self._writing.add_done_callback(self._written)

    async def _write_due(self) -> None:
        due, self._due = self._due, []
        # redis-py would open a connection that is closed meanwhile again, without a reader.
        if not self.broken and self._connection.is_connected:
            await self._connection.send_packed_command(due, check_health=False)

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if writing.cancelled() or writing.exception() is not None:
            self.broken = True  # the reader fails all callers: redis-py has closed the connection
        elif self._due:
            self._write()

    def _expire(self) -> None:
        """Fail the callers whose time is over; their places stay."""
        self._timer, now = None, self._loop.time()
        for reply, until in self._waiting:
            if reply.done():
                continue
            if until > now:
                self._timer = self._loop.call_at(until, self._expire)
                return
            reply.set_exception(TimeoutError("no answer in time"))

    # Opening and closing

    async def _send_once_open(self, words: tuple[Word, ...]) -> Any:
        async with asyncio.timeout(self._timeout):
            if self._opening is None:
                self._opening = self._loop.create_task(self._open())
                self._opening.add_done_callback(_note)
            await asyncio.shield(self._opening)
            return await self._send(words)

    async def _open(self) -> None:
        # One that is cancelled before TCP is connected may be left open: redis-py bounds that by itself. A
        # server that takes a connection and says nothing has as long again.
        limit = 2 * self._connection.socket_connect_timeout
        try:
            async with asyncio.timeout(limit):
                await self._connection.connect()
        except BaseException:
            self.broken = True
            await self._connection.disconnect(nowait=True)
            raise
        if self.broken:  # closed meanwhile
            await self._connection.disconnect(nowait=True)
        else:
            self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        reason: BaseException = redis.ConnectionError("the connection was closed")
        try:
            while True:
                try:
                    reply = await self._connection.read_response(
                        disable_decoding=True, disconnect_on_error=False
                    )
                except redis.ResponseError as error:
                    self._answer(error)
                else:
                    self._answer(reply)
        except (RedisError, OSError, RuntimeError, IndexError) as error:
            reason = redis.ConnectionError(str(error) or type(error).__name__)
            await self._connection.disconnect(nowait=True)
        finally:
            self._break(reason)

    def _break(self, reason: BaseException) -> None:
        self.broken = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for waiting, _ in self._waiting:
            if not waiting.done():
                waiting.set_exception(reason)
                waiting.exception()  # it may not be waited for any longer
        self._waiting.clear()

    def _answer(self, reply: Any) -> None:
        waiting, _ = self._waiting.popleft()
        if waiting.done():
            if self._late_reply is not None:  # its caller gave up
                self._late_reply()
        elif isinstance(reply, Exception):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    async def aclose(self) -> None:
        """Close the connection, even if this is cancelled; callers that wait for a reply get none."""
        self.broken = True
        if self._opening is not None and not self._opening.done():
            # It ends by its own timeout: a connection that is cancelled while it opens may be left open.
            await asyncio.wait([self._opening])
        tasks = [task for task in (self._writing, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        with suppress(RedisError, OSError):  # one that takes nothing more is left to itself
            await self._connection.disconnect()
        await asyncio.gather(*tasks, return_exceptions=True)


def _note(opening: asyncio.Task[None]) -> None:
    """Record the result of the opening: callers that gave up do not."""
    if not opening.cancelled():
        opening.exception()


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


# The errors of a Redis that is unavailable.
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
        self._pipes: dict[RedisPlace, list[CommandPipe]] = {}
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

    async def ask(self, place: RedisPlace, words: Sequence[Word]) -> Any:
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

    def _pipe(self, place: RedisPlace) -> CommandPipe:
        """The connection to a server with the fewest commands under way."""
        if self._is_closed:
            raise redis.ConnectionError("the store was closed")
        pipes = self._pipes.setdefault(place, [])
        best: CommandPipe | None = None
        for pipe in tuple(pipes):
            if pipe.broken:
                pipes.remove(pipe)
            elif best is None or pipe.load < best.load:
                best = pipe
        if best is None or (best.load >= _BUSY and len(pipes) < self._connections):
            best = CommandPipe(self.servers.connection(place), self.timeout, self._answers_again)
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
