"""Compression of what is stored: once for each coding, when the first client takes it; coders for streams.

Small content is compressed within the call, larger content by a thread, one at a time. Until that has ended
clients get the identity form.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Final

from univocal.cache.forms import coded_form, forms_of
from univocal.cache.rules import Rules
from univocal.cache.stored import Stored
from univocal.store.memory import MemoryStore

# Bytes that are compressed within the call: a millisecond or two.
_AT_ONCE: Final = 32 * 1024
_MOST: Final = 64  # that wait for the thread, of as much as one object at most: later requests ask again
_SHARE: Final = 0.95  # of the content, that a form has at most: else it is not worth it

LIBRARIES: Final = {b"zstd": "zstandard", b"br": "brotli"}
"""The libraries of codings that Python has none for; extra univocal[compress]."""


def missing_library(coding: bytes) -> str:
    """The name of the library that this coding needs and that is not installed; "" if none is missing."""
    name = LIBRARIES.get(coding, "")
    return name if name and find_spec(name) is None else ""


def uncodable(every: Iterable[Rules]) -> list[tuple[str, str]]:
    """The codings of these rules whose library is not installed, each once, with the library's name.

    With one of them, a hit would fail.
    """
    codings = dict.fromkeys(coding for rules in every for coding in rules.compress)
    return [(coding.decode(), library) for coding in codings if (library := missing_library(coding))]


def _gzip(content: bytes) -> bytes:
    return zlib.compress(content, 6, 31)


def _br(content: bytes) -> bytes:
    import brotli  # noqa: PLC0415 - an extra

    return bytes(brotli.compress(content, quality=5))


def _zstd(content: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 - an extra

    return zstandard.ZstdCompressor(level=6).compress(content)


_COMPRESS: Final[dict[bytes, Callable[[bytes], bytes]]] = {b"gzip": _gzip, b"br": _br, b"zstd": _zstd}


class Coder:
    """Encodes content that comes in pieces; `flush` returns what is held back, `finish` also ends it."""

    __slots__ = ("encode", "finish", "flush")

    def __init__(
        self, encode: Callable[[memoryview], bytes], flush: Callable[[], bytes], finish: Callable[[], bytes]
    ) -> None:
        self.encode = encode
        self.flush = flush
        self.finish = finish


def coder_of(coding: bytes) -> Coder:
    """A coder for a stream. It takes a MiB at most: windows are small, and so is the work."""
    if coding == b"gzip":
        stream = zlib.compressobj(6, zlib.DEFLATED, 31)
        return Coder(stream.compress, lambda: stream.flush(zlib.Z_SYNC_FLUSH), stream.flush)
    if coding == b"br":
        import brotli  # noqa: PLC0415 - an extra

        maker = brotli.Compressor(quality=4, lgwin=18)
        return Coder(maker.process, maker.flush, maker.finish)
    import zstandard  # noqa: PLC0415 - an extra

    settings = zstandard.ZstdCompressionParameters.from_level(3, window_log=17)
    frame = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    return Coder(frame.compress, lambda: frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), frame.flush)


class Compression:
    """Chooses the form in which a stored response is sent, and has forms made."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self._waiting: deque[tuple[Stored, bytes]] = deque()
        self._under_way: tuple[Stored, bytes] | None = None

    def choose(self, stored: Stored, codings: tuple[bytes, ...]) -> Stored:
        """The form for a client that takes these codings, the first best; else the stored response itself."""
        forms = forms_of(stored)
        if not forms.compressible:
            return stored
        for coding in codings:
            if coding not in forms.coded:
                self._ask(stored, coding)
            form = forms.coded.get(coding)
            if form is not None:
                return form
        return stored

    def prepare(self, stored: Stored, codings: tuple[bytes, ...]) -> None:
        """Begin to compress large content that has just been stored, by the first of these codings."""
        if codings and len(stored.body) > _AT_ONCE and forms_of(stored).compressible:
            self._ask(stored, codings[0])

    def _ask(self, stored: Stored, coding: bytes) -> None:
        if len(stored.body) <= _AT_ONCE:
            self._take(stored, coding, _COMPRESS[coding](stored.body))
            return
        form = stored, coding
        known = self._under_way is not None and self._under_way == form
        held = len(stored.body) + sum(len(each.body) for each, _ in self._waiting)
        has_room = len(self._waiting) < _MOST and held <= self._memory.max_object_bytes
        if has_room and not known and form not in self._waiting:
            self._waiting.append(form)
            self._compress_next()

    def _compress_next(self) -> None:
        if self._under_way is not None or not self._waiting:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # there is no loop that a thread could tell
            self._waiting.clear()
            return
        stored, coding = self._under_way = self._waiting.popleft()
        task = loop.run_in_executor(None, _COMPRESS[coding], stored.body)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[bytes]) -> None:
        assert self._under_way is not None
        (stored, coding), self._under_way = self._under_way, None
        try:
            if not task.cancelled():
                self._take(stored, coding, task.result())
        finally:
            self._compress_next()

    def _take(self, stored: Stored, coding: bytes, content: bytes) -> None:
        shorter = len(content) < len(stored.body) * _SHARE
        form = coded_form(stored, coding, content) if shorter else None
        if not self._memory.keep_form(stored, coding, form):
            forms_of(stored).coded[coding] = None
