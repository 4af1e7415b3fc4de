"""Two ends of a channel over a real socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from univocal_app.processes import channel as module
from univocal_app.processes.channel import Channel, WorkerAnswers, connect
from univocal_app.processes.messages import (
    Alive,
    Ask,
    Done,
    FromParent,
    Look,
    Message,
    MessageError,
    Reopen,
    Rows,
    frame,
    from_parent,
    from_worker,
)


class End:
    """One end, what it has heard, and how it ended."""

    channel: Channel[Any]

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.ends: list[MessageError | None] = []

    async def connect(self, bound: socket.socket, read: Callable[[bytes], Any]) -> None:
        self.channel = await connect(bound, read, self.hear, self.ends.append)

    def hear(self, message: Any) -> None:
        self.heard.append(message)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (the other end does it)
            await asyncio.sleep(0.001)


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    """The parent's end, and the worker's."""
    parent, worker = End(), End()
    ours, theirs = socket.socketpair()
    await parent.connect(ours, from_worker)
    await worker.connect(theirs, from_parent)
    yield parent, worker
    parent.channel.close()
    worker.channel.close()
    await until(lambda: parent.ends and worker.ends)


async def test_each_end_hears_the_other_in_order(ends: tuple[End, End]) -> None:
    parent, worker = ends
    told: list[FromParent] = [Look(number=number) for number in range(1000)]
    assert all(parent.channel.say(message) for message in told)
    worker.channel.say(Alive())
    await until(lambda: len(worker.heard) == 1000 and parent.heard)
    assert (worker.heard, parent.heard) == (told, [Alive()])


async def test_an_ending_worker_still_reports_itself_alive(ends: tuple[End, End]) -> None:
    parent, worker = ends
    parent.channel.end()
    await until(lambda: worker.ends)
    assert worker.ends == [None]
    assert worker.channel.say(Alive())
    await until(lambda: parent.heard)
    assert parent.ends == []
    assert not parent.channel.say(Reopen())


async def test_an_end_that_is_gone_is_noticed_once(ends: tuple[End, End]) -> None:
    parent, worker = ends
    worker.channel.close()
    await until(lambda: parent.ends)
    worker.channel.close()
    parent.channel.close()
    await asyncio.sleep(0.01)
    assert (parent.ends, worker.ends) == ([None], [None])
    assert not parent.channel.say(Reopen())


async def test_bytes_that_are_no_message_end_the_channel() -> None:
    parent = End()
    ours, theirs = socket.socketpair()
    with theirs:
        await parent.connect(ours, from_worker)
        theirs.sendall(frame(Alive()) + (5).to_bytes(4, "big") + b"\x80\x04N. " + frame(Alive()))
        await until(lambda: parent.ends)
        assert parent.heard == [Alive()]
        assert isinstance(parent.ends[0], MessageError)
        assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_what_a_hanging_end_does_not_take_is_bounded() -> None:
    parent = End()
    ours, theirs = socket.socketpair()
    with theirs:
        await parent.connect(ours, from_worker)
        large = Ask(number=1, about="x" * 100_000)
        said = 0
        while parent.channel.say(large):
            said += 1
            assert said < 1000
        assert parent.channel.waiting <= module.MOST_WAITING + len(frame(large))
        parent.channel.close()
        await until(lambda: parent.ends)


async def test_large_answers_wait_until_the_other_end_has_taken_them(ends: tuple[End, End]) -> None:
    parent, worker = ends
    page = Rows.of(1, [(b"x" * 100, number) for number in range(1000)])
    for _ in range(50):
        await worker.channel.taken()
        assert worker.channel.say(page)
        assert worker.channel.waiting < 2 * len(frame(page))
    await until(lambda: len(parent.heard) == 50)


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────


class Asked(End):
    """An end that takes answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = WorkerAnswers()

    def hear(self, message: Rows | Done) -> None:
        self.answers.hear(message)


@pytest.fixture
async def asking() -> AsyncIterator[tuple[Asked, End]]:
    parent, worker = Asked(), End()
    ours, theirs = socket.socketpair()
    await parent.connect(ours, from_worker)
    await worker.connect(theirs, from_parent)
    yield parent, worker
    parent.channel.close()
    worker.channel.close()
    await until(lambda: parent.ends and worker.ends)


async def answered(asking: tuple[Asked, End], number: int, *messages: Message, seconds: float = 10) -> Any:
    parent, worker = asking
    question = Ask(number=number, about="requests")
    task = asyncio.create_task(parent.answers.to(question, parent.channel, seconds))
    await until(lambda: question in worker.heard)
    for message in messages:
        worker.channel.say(message)
    return await task


async def test_an_answer_is_all_rows_before_its_end(asking: tuple[Asked, End]) -> None:
    parts = [Rows.of(1, [(b"a", 1)]), Rows.of(2, [(b"other", 1)]), Rows.of(1, [(b"b", 2)]), Done(number=1)]
    answer = await answered(asking, 1, *parts)
    assert (answer.rows, answer.done) == ([(b"a", 1), (b"b", 2)], Done(number=1))


async def test_answers_come_in_any_order(asking: tuple[Asked, End]) -> None:
    parent, worker = asking
    tasks = [
        asyncio.create_task(parent.answers.to(Look(number=number), parent.channel, 10)) for number in (1, 2)
    ]
    await until(lambda: len(worker.heard) == 2)
    for number in (2, 1):
        worker.channel.say(Done(number=number))
    assert [(await task).done.number for task in tasks] == [1, 2]


async def test_an_answer_that_comes_too_late_is_let_go(asking: tuple[Asked, End]) -> None:
    with pytest.raises(TimeoutError):
        await answered(asking, 1, seconds=0.05)
    late = [Rows.of(1, [(b"late", 1)]), Done(number=1), Rows.of(2, [(b"now", 1)]), Done(number=2)]
    assert (await answered(asking, 2, *late)).rows == [(b"now", 1)]
    assert asking[0].ends == []


async def test_an_answer_without_end_ends_the_channel(
    asking: tuple[Asked, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    page = Rows.of(1, [(b"a", 1)] * 4)
    with pytest.raises(TimeoutError):
        await answered(asking, 1, page, page, page, seconds=0.3)
    assert "more than 10 rows" in str(asking[0].ends[0])


async def test_who_has_ended_is_waited_for_no_longer(asking: tuple[Asked, End]) -> None:
    parent, worker = asking
    task = asyncio.create_task(parent.answers.to(Look(number=1), parent.channel, 600))
    await until(lambda: worker.heard)
    parent.answers.end()
    with pytest.raises(TimeoutError, match="ended"):
        await task
    with pytest.raises(TimeoutError, match="no more messages"):
        await parent.answers.to(Look(number=2), parent.channel, 600)
