"""A worker: it serves clients until its parent says so, or is gone, and does what it is told meanwhile."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import Configuration, validate
from univocal_app.observe.admin import refused
from univocal_app.observe.survey import Row
from univocal_app.processes.commons import Commons
from univocal_app.run.assemble import Made, Proxy
from univocal_app.run.listeners import Bound, https_port
from univocal_app.run.serve import Repeating, Serving, run
from univocal_app.run.worker_client import row_line


class Lifeline(asyncio.Protocol):
    """One end; `hear` is called at each sign of life, `over` when no more will come.

    The parent's end of it tells the worker to end. The worker gives signs of life until it has ended.
    """

    def __init__(self, hear: Callable[[], None], over: Callable[[], None]) -> None:
        self._hear, self._over = hear, over

    def beat(self) -> None:
        """Give a sign of life, unless the other end has not taken the last."""
        if not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            self._transport.write(b".")

    def end(self) -> None:
        """Give no more signs of life; to a worker this is the order to end."""
        if not self._transport.is_closing():
            self._transport.write_eof()

    def close(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, _: bytes) -> None:
        self._hear()

    def eof_received(self) -> bool:
        self._over()
        return True  # a worker that is to end gives signs of life until it has

    def connection_lost(self, _: Exception | None) -> None:
        self._over()


async def hold(bound: socket.socket, hear: Callable[[], None], over: Callable[[], None]) -> Lifeline:
    """Hold one socket of a pair from now on."""
    lifeline = Lifeline(hear, over)
    await asyncio.get_running_loop().create_connection(lambda: lifeline, sock=bound)
    return lifeline


BEAT: Final = 1.0  # seconds between two signs of life
PAGE: Final = 250  # rows of an answer that are sent together, a millisecond's work

_NOTHING_PREPARED: Final = ConfigurationError("worker", "", None, "a configuration that is prepared")


@dataclass(frozen=True)
class Task:
    """A worker's task: the target of `Workers`, sent to another process."""

    configuration: Configuration
    front: tuple[Bound, ...]
    directory: Path
    store: Path | None = None

    def __call__(self, name: str, lifeline: socket.socket, asked: socket.socket) -> None:
        """Serve until the parent says so, or is gone; it asks at the listening socket `asked`."""
        _call_itself(f"univocal: worker {name}")
        commons = Commons(self.directory, name, self.store)
        proxy = Proxy(self.configuration, commons, https_port(self.front))
        serving = proxy.serving_of(self.front)
        worker = Worker(proxy, serving.end)
        back = proxy.back(Bound(asked), orders=worker.orders())
        serving.listen([back], partial(worker.listen, lifeline))

        def attend(serving: Serving) -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.leave)

        run(serving, worker.live, attend, {signal.SIGUSR1: proxy.log.reopen})


def _call_itself(title: str) -> None:
    """Show a title in the list of processes."""
    try:
        from setproctitle import setproctitle  # noqa: PLC0415 - absent on PyPy
    except ImportError:
        return
    setproctitle(title)


class Worker:
    """Answers the parent, see run.worker_client; calls `end` when the parent has ended, or says so."""

    def __init__(self, proxy: Proxy, end: Callable[[], None]) -> None:
        self._proxy, self._end = proxy, end
        self._prepared: Made | None = None
        self._number = 0  # of the last configuration that was to be prepared
        self._changing = asyncio.Lock()
        self._living = Repeating(BEAT, self._beat)

    def orders(self) -> list[Route]:
        """The routes of what the parent asks for, beside those of every admin listener."""
        return [
            Route("/-/reopen", self._reopen, methods=["POST"]),
            Route("/-/look", self._look, methods=["POST"]),
            Route("/-/rows", self._rows),
            Route("/-/prepare", self._prepare, methods=["POST"]),
            Route("/-/adopt", self._adopt, methods=["POST"]),
            Route("/-/drop", self._drop, methods=["POST"]),
        ]

    async def listen(self, bound: socket.socket) -> None:
        """End when the parent says so, or is gone."""
        self._lifeline = await hold(bound, lambda: None, self._end)

    def live(self) -> None:
        """Give signs of life from now on, and write down what is counted."""
        self._beat()
        self._living.begin()

    def _beat(self) -> None:
        self._proxy.look()
        self._lifeline.beat()

    async def _reopen(self, _: Request) -> Response:
        self._proxy.log.reopen()
        return Response()

    async def _look(self, _: Request) -> Response:
        self._proxy.look()
        return Response()

    async def _rows(self, request: Request) -> Response:
        return StreamingResponse(_paged(self._proxy.survey.own(request.query_params["about"])))

    async def _prepare(self, request: Request) -> Response:
        asked = await request.json()
        written = [(tuple(path), text) for path, text in asked["as_written"]]

        def prepared() -> Made:
            configuration = validate(asked["configuration"], self._proxy.configuration.source)
            return self._proxy.prepared(configuration.with_written(written))

        async with self._changing:
            if _number(request) < self._number:  # it has overtaken this one
                return refused(_NOTHING_PREPARED, request)
            self._number = _number(request)
            self._forget()
            try:
                self._prepared = await asyncio.to_thread(prepared)
            except ConfigurationError as error:
                return refused(error, request)
        return Response()

    async def _adopt(self, request: Request) -> Response:
        async with self._changing:
            prepared = self._prepared
            # It may have begun after the others were asked, by what was in force then.
            if prepared is None or _number(request) != self._number:
                return refused(_NOTHING_PREPARED, request)
            self._prepared = None
            await self._proxy.adopt(prepared)
        return Response()

    async def _drop(self, request: Request) -> Response:
        async with self._changing:
            if _number(request) == self._number:
                self._forget()
        return Response()

    def _forget(self) -> None:
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None


def _number(request: Request) -> int:
    return int(request.query_params["number"])


async def _paged(rows: Iterable[Row]) -> AsyncIterator[bytes]:
    """The lines of rows, some at once, so that clients are served between."""
    lines = list(rows)
    for first in range(0, len(lines), PAGE):
        yield b"".join(map(row_line, lines[first : first + PAGE]))
        await asyncio.sleep(0)
