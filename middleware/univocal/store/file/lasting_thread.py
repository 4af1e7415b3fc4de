"""A thread that does one thing after the other; another is begun in its place if it ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

logger: Final = logging.getLogger("univocal")

# Seconds between two looks whether it has ended, as by an error outside what it does: of memory, for one.
_LOOK: Final = 1.0
_numbers: Final = itertools.count()


class LastingThread:
    """A thread for one kind of work; `whose` begins the log line that says that it ended."""

    def __init__(self, kind: str, whose: object) -> None:
        self._kind, self._whose = kind, whose
        self._begin()

    def _begin(self) -> None:
        self._name = f"univocal-{self._kind}-{next(_numbers)}"
        self._pool = ThreadPoolExecutor(1, self._name)

    async def do(self, run: Callable[..., T], *arguments: Any) -> T:
        """Have it do something. Raises RuntimeError if it ends before."""
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._pool, partial(run, *arguments))
        look = loop.call_later(_LOOK, self._look, done, self._name)
        try:
            return await done
        finally:
            look.cancel()

    def _look(self, done: asyncio.Future[Any], name: str) -> None:
        """Fail what a thread that has ended did not do; what follows is another's."""
        if done.done():
            return
        if any(thread.name.startswith(f"{name}_") for thread in threading.enumerate()):
            done.get_loop().call_later(_LOOK, self._look, done, name)
            return
        if name == self._name:
            logger.warning("%s: the %s thread ended, another begins", self._whose, self._kind)
            self._begin()
        done.set_exception(RuntimeError(f"the {self._kind} thread ended"))

    def close(self) -> None:
        """Wait until all is done."""
        self._pool.shutdown()
