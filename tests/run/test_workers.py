"""What the parent says to its workers and believes of them; the test plays the workers' processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import validate
from univocal_app.processes.channel import MOST_WAITING, Channel, connect
from univocal_app.processes.messages import (
    Alive,
    Ask,
    Done,
    Drop,
    EventBatch,
    Follow,
    Prepare,
    Reopen,
    Rows,
    Unfollow,
    frame,
    from_parent,
)
from univocal_app.run import workers as module
from univocal_app.run.workers import Workers

SITE = {"hosts": ["*"], "upstream": "http://h"}
CONFIGURATION = validate({"cache": {"store": "redis://u:password@h/0"}, "sites": [SITE]}, "test")


class Played:
    """A process of a worker, which the test plays."""

    channel: Channel[Any]

    def __init__(self, name: str, bound: socket.socket) -> None:
        self.name, self.socket = name, bound.dup()
        self.heard: list[Any] = []
        self.exitcode: int | None = None

    def start(self) -> None:
        pass

    async def begin(self) -> None:
        self.channel = await connect(self.socket, from_parent, self.heard.append, lambda _: None)
        self.channel.say(Alive())

    def kill(self) -> None:
        if self.exitcode is None:
            self.exitcode = -signal.SIGKILL
            if hasattr(self, "channel"):
                self.channel.close()
            else:
                self.socket.close()

    def join(self, _: float = 0) -> None:
        self.exitcode = 0 if self.exitcode is None else self.exitcode

    def close(self) -> None:
        pass

    async def hears(self, kind: type[Any]) -> Any:
        """The last message of a kind, as soon as there is one that was not asked for before."""
        await until(lambda: any(isinstance(message, kind) for message in self.heard))
        found = next(message for message in reversed(self.heard) if isinstance(message, kind))
        self.heard.remove(found)
        return found


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (another task does it)
            await asyncio.sleep(0.001)


class Stage:
    """Two workers, those that took their places, and what they reported."""

    def __init__(self) -> None:
        self.processes: list[Played] = []
        self.batches: list[EventBatch] = []
        self.ended: list[str] = []
        self.workers = Workers(2, lambda: lambda *_: None, self.ended.append, self.batches.append)

    def process(self, *, args: tuple[str, socket.socket], **_: Any) -> Played:
        self.processes.append(Played(*args))
        return self.processes[-1]

    async def start(self) -> tuple[Played, Played]:
        starting = asyncio.create_task(self.workers.start())
        await until(lambda: len(self.processes) == 2)
        for process in self.processes:
            await process.begin()
        await starting
        first, second = self.processes
        return first, second


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    played = Stage()
    monkeypatch.setattr(module, "_NEW", SimpleNamespace(Process=played.process))
    monkeypatch.setattr(module, "PAUSE", 0.01)
    yield played
    played.workers.end(at_once=True)
    await played.workers.aclose()


async def test_rows_of_all_workers_are_one_answer(stage: Stage) -> None:
    first, second = await stage.start()
    rows = asyncio.create_task(stage.workers.rows("requests"))
    for process, row in ((first, (b"a", 1)), (second, (b"b", 2))):
        asked = await process.hears(Ask)
        assert asked.about == "requests"
        process.channel.say(Rows.of(asked.number, [row]))
        process.channel.say(Done(number=asked.number))
    assert sorted(await rows) == [(b"a", 1), (b"b", 2)]


async def test_a_worker_that_is_killed_loses_no_message_of_another(stage: Stage) -> None:
    first, second = await stage.start()
    rows = asyncio.create_task(stage.workers.rows("requests"))
    asked = await second.hears(Ask)
    await first.hears(Ask)
    second.channel.say(Rows.of(asked.number, [(b"b", 1)]))
    first.socket.sendall(b"\0\0\0\x40{")  # a part of a message
    first.kill()
    second.channel.say(Rows.of(asked.number, [(b"b", 2)]))
    second.channel.say(Done(number=asked.number))
    assert await rows == [(b"b", 1), (b"b", 2)]


async def test_a_worker_that_does_not_answer_is_left_out(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    first, _ = await stage.start()
    rows = asyncio.create_task(stage.workers.rows("requests"))
    asked = await first.hears(Ask)
    first.channel.say(Rows.of(asked.number, [(b"a", 1)]))
    first.channel.say(Done(number=asked.number))
    assert await rows == [(b"a", 1)]


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x95N.",  # as a pickle begins
        b'{"name": "alive/0"}',
        b'{"name": "adopt/1", "number": 1}',
        b'{"name": "events/1", "events": [["s", "200", "hit", "{}\\n"]]}',
    ],
)
async def test_a_worker_sending_garbage_is_killed_and_replaced(
    stage: Stage, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await stage.start()
    first.socket.sendall(len(content).to_bytes(4, "big") + content)
    await until(lambda: len(stage.processes) == 3)
    assert (stage.ended, stage.batches) == ([first.name], [])
    assert first.exitcode == -signal.SIGKILL
    assert f"worker {first.name} sent an invalid message" in caplog.text
    await stage.processes[2].begin()
    await until(lambda: stage.workers.accepting == 2)
    assert second.exitcode is None


async def test_who_follows_hears_of_workers_that_come_later_too(stage: Stage) -> None:
    first, second = await stage.start()
    following = asyncio.create_task(stage.workers.follow())
    for process in (first, second):
        process.channel.say(Done(number=(await process.hears(Follow)).number))
    await following
    batch = EventBatch(lost=1, events=[("s", "200", "hit", "{}")])
    second.channel.say(batch)
    await until(lambda: stage.batches)
    assert stage.batches == [batch]
    first.kill()
    await until(lambda: len(stage.processes) == 3)
    third = stage.processes[2]
    await third.begin()
    await third.hears(Follow)
    stage.workers.unfollow()
    for process in (second, third):
        await process.hears(Unfollow)


async def test_all_workers_are_told_to_open_their_logs_again(stage: Stage) -> None:
    processes = await stage.start()
    stage.workers.reopen()
    for process in processes:
        await process.hears(Reopen)


async def test_what_one_worker_objects_to_is_prepared_by_none(stage: Stage) -> None:
    first, second = await stage.start()
    preparing = asyncio.create_task(stage.workers.prepare(CONFIGURATION))
    wanted = await first.hears(Prepare)
    assert validate(wanted.configuration, "test") == CONFIGURATION  # with the password
    first.channel.say(Done(number=wanted.number))
    objection = ConfigurationError("test", "profiles", "x", "a directory")
    second.channel.say(Done.but_for((await second.hears(Prepare)).number, objection))
    with pytest.raises(ConfigurationError) as refused:
        await preparing
    assert str(refused.value) == str(objection)
    for process in (first, second):
        await process.hears(Drop)


async def test_messages_to_a_worker_that_hangs_are_bounded(stage: Stage) -> None:
    first, _ = await stage.start()
    first.channel._transport.pause_reading()
    for _ in range(100_000):
        stage.workers.unfollow()
    waiting = stage.workers._there[first.name].channel.waiting
    assert waiting <= MOST_WAITING + len(frame(Unfollow()))


def test_a_worker_that_ended_meanwhile_is_not_killed_again() -> None:
    """A worker that is killed during a reload: the others take the configuration, without a traceback."""
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()
    process.close()
    module._Worker("1", process, lambda _: None, lambda *_: None).end(at_once=True)
