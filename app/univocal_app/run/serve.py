"""uvicorn servers in one event loop: the proxy, its admin listener and, in the demo, the origins."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import uvicorn

from univocal.engine.exchange import call_later
from univocal.http.errors import lacks_memory
from univocal.http.roles import CallLater, Due
from univocal_app.terminal import StampedFormatter, stamped


class Repeating:
    """Calls `action` every `seconds`, for the first time so long after `begin`, until `end`.

    `call_later` calls after so many seconds; without it the running event loop does.
    """

    def __init__(
        self, seconds: float, action: Callable[[], object], call_later: CallLater = call_later
    ) -> None:
        self._seconds, self._action, self._call_later = seconds, action, call_later
        self._next: Due | None = None

    def begin(self) -> None:
        """Call from now on."""
        self.end()
        self._next = self._call_later(self._seconds, self._call)

    def end(self) -> None:
        """Call no more."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _call(self) -> None:
        self.begin()  # first, so that an action that fails is not the last
        self._action()


logger: Final = logging.getLogger("univocal")

# After how many more objects, and how many rounds of each, the garbage collector looks for circles. It looks
# at a thousand of them in a millisecond or less, and all clients wait meanwhile: so at few and often. What
# is stored is looked at rarely. What a connection or a request leaves behind is no circle.
COLLECTED: Final = (5_000, 2, 5_000)

_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)  # as many as there would be at most
_HEAPS: Final = -8  # M_ARENA_MAX
_STACK: Final = 1 << 20  # bytes of each, of the 8 MiB that Linux sets aside

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Signals that would end a process which does not hear them yet: they are blocked until it does.
HELD: Final = frozenset((signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM))


class Patience(NamedTuple):
    """The seconds in which clients are served on after the first signal, and those for what is left then."""

    drain: float = 0.0
    timeout: float = 10.0


@dataclass(frozen=True)
class Served:
    """An ASGI application and the bound socket it is served on."""

    app: Any
    socket: socket.socket
    protocol: type[asyncio.Protocol] | Literal["h11"] = "h11"  # uvicorn's `http` setting


class _Server(uvicorn.Server):
    """A server that leaves signals to `run`: one Ctrl-C is for all. It says when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        left = list(self.server_state.connections)
        if left:
            logger.warning("%d connections were cut at the end of shutdown_timeout", len(left))
        for connection in left:
            if hasattr(connection, "transport"):
                connection.transport.abort()
            else:  # it still shakes hands
                connection.shutdown()
        await asyncio.sleep(0)  # in which each hears that it is lost

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """Listeners that are served together, until `end`.

    The `starts` are awaited before any of them accepts connections, the `closes` after the last has ended.
    `ending` hears of every `end`, `leaving` of the first `leave`. `relieve` frees memory.
    """

    def __init__(
        self,
        listeners: Sequence[Served],
        starts: Sequence[Callable[[], Awaitable[None]]] = (),
        closes: Sequence[Callable[[], Awaitable[None]]] = (),
        ending: Callable[[bool], None] = lambda _: None,
        *,
        patience: Callable[[], Patience] = Patience,
        leaving: Callable[[], None] = lambda: None,
        relieve: Callable[[], None] = lambda: None,
    ) -> None:
        self._servers, self._starts = list[tuple[_Server, socket.socket]](), starts
        self.listen(listeners)
        self._closes, self._ending = closes, ending
        self._patience, self._leaving, self.relieve = patience, leaving, relieve
        self.is_leaving = self._has_ended = False

    def listen(self, listeners: Iterable[Served], *first: Callable[[], Awaitable[None]]) -> None:
        """Serve these, too, which may ask whether this ends; `first` goes before all other starts."""
        self._servers += ((_Server(_settings(listener)), listener.socket) for listener in listeners)
        self._starts = *first, *self._starts

    @property
    def longest(self) -> float:
        """The seconds after which it has ended, whatever clients do."""
        patience = self._patience()
        return patience.drain + patience.timeout

    def leave(self) -> None:
        """Serve on for as long as clients may take to go elsewhere, then end; a second time, end at once."""
        if self.is_leaving:
            self.end(at_once=True)
            return
        self.is_leaving = True
        self._leaving()
        drain = self._patience().drain
        if drain:
            asyncio.get_running_loop().call_later(drain, self.end)
        else:
            self.end()

    def end(self, *, at_once: bool = False) -> None:
        """Accept no more; what is under way has its time, or none."""
        self.is_leaving = self._has_ended = True
        for server, _ in self._servers:
            server.config.timeout_graceful_shutdown = self._patience().timeout  # type: ignore[assignment]
            server.should_exit = True
            server.force_exit = server.force_exit or at_once
        self._ending(at_once)

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until the end; `ready` is called once every listener accepts connections, if not after it."""
        try:
            for start in self._starts:
                await start()
            async with asyncio.TaskGroup() as group:
                for server, bound in self._servers:
                    group.create_task(server.serve([bound]))
                for server, _ in self._servers:
                    await server.accepting.wait()
                if not self._has_ended:
                    ready()
        finally:
            for close in self._closes:
                await close()


def obey_signals(serving: Serving) -> None:
    """End the program at SIGINT or SIGTERM; at a second one, end it at once."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _leave, serving, signal.Signals(number).name)


def _leave(serving: Serving, name: str) -> None:
    when = "at once" if serving.is_leaving else f"in {serving.longest:g} s at most"
    sys.stderr.write(stamped("INFO", f"{name}: ends {when}") + "\n")
    serving.leave()


def run(
    serving: Serving,
    ready: Callable[[], None] = lambda: None,
    attend: Callable[[Serving], None] = obey_signals,
    hears: Mapping[int, Callable[[], None]] = MappingProxyType({}),
) -> None:
    """Serve until the end. `attend` is called in the event loop first: it sees to it that there is one.

    `hears` has what each of other signals calls; one of `HELD` that came before is heard then.
    """

    # All objects loaded by now stay, and stored responses are many and refer to nothing in circles: the
    # collector need not look at them all the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)

    async def attended() -> None:
        attend(serving)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_threads())
        for number, call in hears.items():
            loop.add_signal_handler(number, call)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD & {*hears, *SIGNALS})
        loop.set_exception_handler(_Complaints(serving.relieve))
        await serving.serve(ready)
        served.append(True)

    served = list[bool]()
    sys.unraisablehook = _but_for_names(sys.unraisablehook)
    handler = logging.StreamHandler()
    handler.setFormatter(StampedFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(attended())
    except RuntimeError as error:
        # The end of the loop begins a thread to wait for the others.
        if not (served and lacks_memory(error)):
            raise


def _threads() -> ThreadPoolExecutor:
    """Threads that are there from the beginning: where memory has run out none could begin.

    All allocate from one heap: of the GNU C library each would set 64 MiB of addresses aside for its own.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_HEAPS, 1)
    threading.stack_size(_STACK)
    threads, there = ThreadPoolExecutor(_THREADS), threading.Barrier(_THREADS + 1)
    try:
        for _ in range(_THREADS):
            threads.submit(there.wait)
        there.wait()
    except RuntimeError:  # there can be no more of them
        there.abort()
    return threads


class _Complaints:
    """asyncio's exception handler, but for an `accept` that finds no descriptor: that is said once.

    Where memory has run out it calls `relieve`.
    """

    def __init__(self, relieve: Callable[[], None]) -> None:
        self._said = False
        self._relieve = relieve

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if lacks_memory(error):
            self._relieve()
        elif not isinstance(error, OSError) or error.errno not in {errno.EMFILE, errno.ENFILE}:
            loop.default_exception_handler(context)
        elif not self._said:
            self._said = True
            why = "no file descriptor is free: new clients wait or are refused"
            logger.warning("%s. Raise ulimit -n (logged once)", why)


def _but_for_names(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """An unraisablehook that is silent where a client's server name is no ASCII.

    The `ssl` module ends such a handshake, and has no caller to raise its UnicodeDecodeError to.
    """

    def report(unraisable: Any) -> None:
        error, of = unraisable.exc_value, unraisable.object
        if not (isinstance(error, UnicodeDecodeError) and isinstance(of, bytes)):
            hook(unraisable)

    return report


def _is_news(record: logging.LogRecord) -> bool:
    # uvicorn logs the cancellation of each response that outlasts its time as if it were a fault, and counts
    # tasks, of which most requests have none.
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not str(record.msg).startswith("Cancel ")


def _settings(listener: Served) -> uvicorn.Config:
    return uvicorn.Config(
        listener.app,
        http=listener.protocol,
        ws="none",
        lifespan="off",  # `run` closes what is to be closed, after a forced end too
        access_log=False,
        log_config=None,
        # One reader and one writer of each: univocal's own.
        proxy_headers=False,
        date_header=True,  # only where an answer of our own has none
        server_header=False,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - absent on PyPy and Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
