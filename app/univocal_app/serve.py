"""Several uvicorn servers in one event loop: the proxy, its admin listener and, in the demo, the origins."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import uvicorn

from univocal.errors import ConfigurationError

from .values import Address

__all__ = ["Listener", "address_of", "bind", "run"]

BACKLOG: Final = 2048
GRACE: Final = 10  # seconds that responses under way have to end after the first signal

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Listener:
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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(address: Address, source: str, key: str) -> socket.socket:
    """A listening socket. Raises ConfigurationError, which names the setting `key`, if there is none."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        allowed = f"an address of this machine with a free port ({error.strerror or error})"
        raise ConfigurationError(source, key, str(address), allowed) from None
    listening.setblocking(False)
    return listening


def address_of(listening: socket.socket) -> Address:
    """Where a socket really is bound: port 0 was replaced by the system's choice."""
    return Address(*listening.getsockname()[:2])


def run(
    listeners: Sequence[Listener],
    ready: Callable[[], None] = lambda: None,
    start: Callable[[], Awaitable[None]] | None = None,
    close: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then end what is under way; a second signal ends at once.

    `start` is awaited before any listener accepts connections, `ready` called once every one does, `close`
    awaited after the last of them has ended.
    """
    logging.basicConfig(level=logging.WARNING, format="univocal: %(levelname)s: %(message)s")
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(listeners, ready, start, close))


def _is_news(record: logging.LogRecord) -> bool:
    # uvicorn logs the cancellation of each response that outlasts the grace as if it were a fault.
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


async def _serve(
    listeners: Sequence[Listener],
    ready: Callable[[], None],
    start: Callable[[], Awaitable[None]] | None,
    close: Callable[[], Awaitable[None]] | None,
) -> None:
    servers = [_Server(_settings(listener)) for listener in listeners]

    def end() -> None:
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, end)
    try:
        if start is not None:
            await start()
        async with asyncio.TaskGroup() as group:
            for server, listener in zip(servers, listeners, strict=True):
                group.create_task(server.serve([listener.socket]))
            for server in servers:
                await server.accepting.wait()
            ready()
    finally:
        if close is not None:
            await close()


def _settings(listener: Listener) -> uvicorn.Config:
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
        timeout_graceful_shutdown=GRACE,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - absent on PyPy and Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
