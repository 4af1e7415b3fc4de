"""A second reader of heads, for those that are ordinary: no field costs a call of Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httptools

from univocal.server.http1.llhttp import new_parser

__all__ = ["CertifiedGlance", "Glance"]

_METHOD: Final = b"GET "
_VERSION: Final = b" HTTP/1.1\r\n"


class Glance:
    """Reads the head of a GET with llhttp, whose callbacks are methods of a dictionary and a list.

    A dictionary forgets repeated field lines: a head that has any, or is folded, or is not alone, has another
    number of lines than names, and is not read here.
    """

    __slots__ = ("_fields", "_parser", "_targets", "on_header", "on_url")

    def __init__(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._targets: list[bytes] = []
        self.on_header = self._fields.__setitem__
        self.on_url = self._targets.append
        self._parser = new_parser(self)

    def read(self, data: bytes) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]] | None:
        """The target, the field names as they came, and their values; None if `data` is no such head.

        After None the reader must not be used again.
        """
        fields, targets = self._fields, self._targets
        if not data.startswith(b"GET /"):
            return None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return None
        if len(targets) != 1 or data.count(b"\n") != len(fields) + 2:
            return None
        target = targets[0]
        if not data.startswith(_VERSION, len(_METHOD) + len(target)):
            return None
        read = target, tuple(fields), tuple(fields.values())
        targets.clear()
        fields.clear()
        return read


class CertifiedGlance(Glance):
    """Reads heads whose Host is one that the connection's certificate `suits`, and no others."""

    __slots__ = ("_suited", "_suits")

    def __init__(self, suits: Callable[[bytes], bool]) -> None:
        super().__init__()
        self._suits = suits
        self._suited: bytes | None = None  # the last that did

    def read(self, data: bytes) -> tuple[bytes, tuple[bytes, ...], tuple[bytes, ...]] | None:
        read = super().read(data)
        if read is not None:
            named = dict(zip(read[1], read[2], strict=True))
            host = named.get(b"Host") or named.get(b"host")
            if host is None or not (host == self._suited or self._suits(host)):
                return None
            self._suited = host
        return read
