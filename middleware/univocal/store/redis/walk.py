"""A walk in the background: what a purge means is removed from Redis, and what older versions left there."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

from univocal.store.codec import decode, encode_softened
from univocal.store.redis.commands import Commands
from univocal.store.redis.names import JOURNAL, ROOT, key_of
from univocal.store.redis.pipe import Word
from univocal.store.redis.scripts import BEGIN, DESCRIBE, TIDY, UNLINK
from univocal.store.roles import Judge, Numbered, StoreUnavailableError

# Names that one step looks at, seconds between two steps, and between two walks.
_STEP: Final = 200
_PACE: Final = 0.05
_IDLE: Final = 60.0
# Milliseconds for which one node walks and others do not.
_TURN: Final = 60_000
_WALKER: Final = b"%bwalk:{journal}" % ROOT
_NUMBER: Final = re.compile(rb"([0-9]{1,16}) ")


async def walk(commands: Commands, judge: Judge, followed: Callable[[], int]) -> None:
    """Walk again and again, if a purge came since the last time. Ends when it is cancelled."""
    token, done = secrets.token_bytes(8), 0
    while True:
        with suppress(StoreUnavailableError):
            if followed() > done:
                wait, holder = await commands.run("walk", BEGIN, [_WALKER], [token, _TURN])
                if wait == 0 or holder == token:
                    until = followed()
                    await _walk(commands, judge, until)
                    done = until
        await asyncio.sleep(_IDLE)


async def _walk(commands: Commands, judge: Judge, number: int) -> None:
    async for names in _steps(commands):
        for name in names:
            if not name.startswith(ROOT):
                await commands.run("walk", UNLINK, [name], [])
            elif (key := key_of(name)) is not None:
                await _tidy(commands, name, key, judge, number)
        await asyncio.sleep(_PACE)


async def _steps(commands: Commands) -> AsyncIterator[Sequence[bytes]]:
    """The names of this program's keys on every server, some at a time."""
    for place in commands.servers.places():
        cursor: Word = 0
        while True:
            words: list[Word] = ["SCAN", cursor, "MATCH", b"univocal:*", "COUNT", _STEP]
            cursor, names = await commands.ask(place, words)
            yield [name for name in names if name not in JOURNAL]
            if int(cursor) == 0:
                break


async def _tidy(commands: Commands, name: bytes, key: bytes, judge: Judge, number: int) -> None:
    """Remove what is no longer valid of one entry.

    A valid response, fresh or softened, gets the number, to outlive the horizon.
    """
    replies = await commands.run("walk", DESCRIBE, [name], [])
    words: list[Word] = []
    for variant, text in zip(replies[::2], replies[1::2], strict=True):
        begin, line = _NUMBER.match(text), text.find(b"\n")
        stored = decode(key, text[line + 1 :], None)
        left = None
        if begin is not None and stored is not None:
            (left,) = judge([Numbered(int(begin[1]), stored, has_content=False)])
        if begin is None or left is None:
            words += [variant, text, b""]
        elif int(begin[1]) < number:
            described = text[line + 1 :] if left is stored else encode_softened(text[line + 1 :], left)
            words += [variant, text, b"%d %b%b" % (number, text[begin.end() : line + 1], described)]
    if words:
        await commands.run("walk", TIDY, [name], words)
