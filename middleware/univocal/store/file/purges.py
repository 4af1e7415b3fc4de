"""Purges of a file store: in force in all processes of the machine with one number in mapped memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from univocal.store.codec import PatternCompiler, decode_purge, encode_purge
from univocal.store.file.lasting_thread import LastingThread
from univocal.store.file.ring import Ring
from univocal.store.journal import Purge
from univocal.store.purge_selectors import Selector
from univocal.store.roles import Purges, Settled, StoreReport, StoreUnavailableError, Watcher, unreported

# Seconds between two looks whether the journal is where it was.
_LOOK: Final = 0.5
# Bytes of the ring that a name takes at least, so that the names of a full one fit into `Journal`.
_NAME: Final = 160
# Seconds for which a purge waits until the walk has looked at the entries that others would be lost for.
_PACED: Final = 10.0


class FilePurges(Purges):
    """The journal in a ring: no lag, no heartbeat. It is away once somebody has removed its directory."""

    def __init__(
        self,
        ring: Ring,
        compiler: PatternCompiler | None = None,
        report: StoreReport = unreported,
        is_in_place: Callable[[], bool] | None = None,
    ) -> None:
        self._ring: Final = ring
        self._is_in_place: Final = is_in_place or (lambda: ring.is_in_place)
        self._compiler, self._report = compiler, report
        self._appender: Final = LastingThread("purging", ring.path)
        self._watch: asyncio.Task[None] | None = None

    async def start(self, watcher: Watcher) -> None:
        if self._is_in_place():
            watcher.returned()
        self._watch = asyncio.get_running_loop().create_task(self._look_after(watcher))

    async def _look_after(self, watcher: Watcher) -> None:
        """Another process makes the directory anew, with a journal of its own: of that nothing is heard."""
        while self._is_in_place():
            await asyncio.sleep(_LOOK)
            watcher.heard()  # who looks nothing up must not fall behind
        watcher.lost("its directory was removed: start the program again")

    def _append(self, payload: bytes, names: int) -> int:
        number = self._ring.append(payload, names * _NAME, _PACED)
        if not self._is_in_place():
            raise StoreUnavailableError("its directory was removed")
        return number

    async def publish(self, selector: Selector, now: float, cause: bytes = b"") -> int:
        begun, result = time.perf_counter(), "ok"
        payload = encode_purge(selector, now, cause)
        try:
            return await self._appender.do(self._append, payload, len(selector.names()))
        except StoreUnavailableError:
            result = "late"
            raise
        except (OSError, RuntimeError) as error:
            result = "error"
            raise StoreUnavailableError(str(error)) from error
        finally:
            self._report("publish", result, time.perf_counter() - begun)

    def last(self) -> int:
        return self._ring.last

    def follow(self, number: int) -> Sequence[Purge]:
        return [decode_purge(each, payload, self._compiler) for each, payload in self._ring.follow(number)]

    def horizon(self) -> int:
        return self._ring.first

    def settled(self) -> Settled:
        first = self._ring.first  # before what may be lost with more of them
        return Settled(first, self._ring.lost)

    def trusted_until(self) -> float:
        return inf

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._appender.close()
