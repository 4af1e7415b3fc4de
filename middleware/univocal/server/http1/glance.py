"""A second reader of heads, for those that are ordinary: no field costs a call of Python's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import httptools

from univocal.judge.admission import Plan
from univocal.server.http1.llhttp import new_parser

PlanOf: TypeAlias = Callable[[tuple[bytes, ...], tuple[bytes, ...]], Plan | None]
"""The plan for a GET with these field names and values; None where it is no ordinary one."""

BEGINNING: Final = b"GET /"
_METHOD: Final = b"GET "
_VERSION: Final = b" HTTP/1.1\r\n"
_AROUND_TARGET: Final = len(_METHOD) + len(_VERSION)
# Bytes that end no target and begin nothing new in one for any parser: a target of them alone needs none.
_PLAIN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/%?=&+,;:@!$()*'"
# Makes a letter of each of them, and of no other byte.
_LETTERS: Final = bytes([0x61 if octet in _PLAIN else 0 for octet in range(256)])
# Bytes of a header section that is remembered: an idle connection may keep it.
_LONGEST: Final = 2048


class Glimpse:
    """An ordinary head: its target, the plan for its field names, and the values of its fields."""

    __slots__ = ("plan", "target", "values")

    def __init__(self, target: bytes, plan: Plan, values: tuple[bytes, ...]) -> None:
        self.target = target
        self.plan = plan
        self.values = values


class Glance:
    """Reads the head of an ordinary GET with llhttp, whose callbacks are methods of a dictionary and a list.

    A dictionary forgets repeated field lines: a head that has any, or is folded, or is not alone, has another
    number of lines than names, and is not read here. `suits` tells whether a Host is one that the
    connection's certificate names; heads with another are not read either.

    Most clients repeat their header section to the byte. The last one is remembered if the section before it
    was as long. A head that ends with the same bytes is not parsed; another section takes their place.
    """

    def __init__(self, plan_of: PlanOf, suits: Callable[[bytes], bool] | None = None) -> None:
        self._plan_of = plan_of
        self._suits = suits
        self._suited: bytes | None = None  # the last host that did
        self._length = 0  # of the header section before
        self._section = b""  # the one that is remembered, and what was read of it
        self._plan: Plan | None = None
        self._values: tuple[bytes, ...] = ()
        self._fields: dict[bytes, bytes] = {}
        self._targets: list[bytes] = []
        self.on_header = self._fields.__setitem__
        self.on_url = self._targets.append
        self._parser = new_parser(self)

    def read(self, data: bytes) -> Glimpse | None:
        """The head, up to and with the first empty line, that all of `data` is; None if it is not ordinary.

        After None the reader must not be used again.
        """
        return self.recall(data) or self._parse(data)

    def recall(self, data: bytes) -> Glimpse | None:
        """A head whose header section is remembered; None if it is to be parsed.

        Nothing else needs to be known of `data`: no empty line stands in a request line or a section before
        their end.
        """
        plan, length = self._plan, len(data) - len(self._section)
        if plan is None or length <= _AROUND_TARGET or not data.endswith(self._section):
            return None
        version = length - len(_VERSION)
        if not (data.startswith(BEGINNING) and data.startswith(_VERSION, version)):
            return None
        target = data[len(_METHOD) : version]
        return Glimpse(target, plan, self._values) if target.translate(_LETTERS).isalpha() else None

    def _parse(self, data: bytes) -> Glimpse | None:
        fields, targets = self._fields, self._targets
        if not data.startswith(BEGINNING):
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
        values = tuple(fields.values())
        plan = self._plan_of(tuple(fields), values)
        if plan is None or not self._is_certified(values[plan.host]):
            return None
        targets.clear()
        fields.clear()
        self._remember(data, _AROUND_TARGET + len(target), plan, values)
        return Glimpse(target, plan, values)

    def _is_certified(self, host: bytes) -> bool:
        if self._suits is None or host == self._suited:
            return True
        self._suited = host if self._suits(host) else None
        return self._suited is not None

    def _remember(self, data: bytes, start: int, plan: Plan, values: tuple[bytes, ...]) -> None:
        """Remember the header section that starts there, if the one before was as long."""
        length = len(data) - start
        if length == self._length <= _LONGEST:
            self._section, self._plan, self._values = data[start:], plan, values
        elif self._plan is not None:
            self._section, self._plan, self._values = b"", None, ()
        self._length = length
