"""A worker does what its parent says, which the test plays over a socket pair."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from univocal import Outcome
from univocal.engine.outcome import Times
from univocal.http.messages import Received
from univocal.judge.cache_status import Handling
from univocal_app.config.tables import settings_of, validate
from univocal_app.observe.accesslog import open_log
from univocal_app.observe.families import EVICTIONS
from univocal_app.processes.channel import connect
from univocal_app.processes.commons import Commons
from univocal_app.processes.messages import (
    Adopt,
    Alive,
    Ask,
    Done,
    Drop,
    EventBatch,
    Follow,
    Look,
    Message,
    Prepare,
    Reopen,
    Rows,
    Unfollow,
    from_worker,
)
from univocal_app.run import worker as module
from univocal_app.run.assemble import House, assemble
from univocal_app.run.worker import Worker

Kind = TypeVar("Kind", bound=Message)

SITE = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:9"}
SETTINGS = {"server": {"access_log": "off"}, "sites": [SITE]}
CONFIGURATION = validate(SETTINGS, "test")
OTHER = validate({**SETTINGS, "cache": {"max_bytes": 1 << 20}}, "test")


class Parent:
    """The parent, and a worker that listens to it."""

    def __init__(self, directory: Path) -> None:
        self.house: House = assemble(CONFIGURATION, "test", Commons(directory, "1"))
        self.ended = 0
        self.heard: list[Any] = []
        serving: Any = SimpleNamespace(end=self._end)
        self.worker = Worker(self.house, serving)

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        self.channel = await connect(ours, from_worker, self.heard.append, lambda _: None)
        await self.worker.listen(theirs)

    def _end(self) -> None:
        self.ended += 1

    def say(self, *messages: Message) -> None:
        for message in messages:
            assert self.channel.say(message)

    async def hears(self, kind: type[Kind], number: int | None = None) -> Kind:
        """The first message of a kind that has not been looked at yet."""

        def found() -> list[Any]:
            known = (each for each in self.heard if isinstance(each, kind))
            return [each for each in known if number is None or getattr(each, "number", None) == number]

        await until(found)
        message: Kind = found()[0]
        self.heard.remove(message)
        return message


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  (the other end does it)
            await asyncio.sleep(0.001)


@pytest.fixture
async def parent(tmp_path: Path) -> AsyncIterator[Parent]:
    parent = Parent(tmp_path)
    await parent.start()
    yield parent
    parent.channel.close()
    await until(lambda: parent.ended)
    parent.worker._channel.close()
    await parent.house.aclose()


def outcome(number: int = 0) -> Outcome:
    return Outcome(
        site="en.example",
        received=Received(b"GET", b"/%d" % number),
        canonical=None,
        decision=None,
        status=200,
        bytes=1,
        times=Times(1_700_000_000.0, 0.0, 0.1),
        client=None,
        handling=Handling(hit=True),
    )


async def test_it_ends_with_its_parent(parent: Parent) -> None:
    parent.channel.end()
    await until(lambda: parent.ended)
    parent.worker.live()
    await parent.hears(Alive)  # it says so until it has ended
    parent.worker._living.end()
    assert parent.ended == 1


async def test_it_ends_if_its_parent_says_what_is_no_message(
    parent: Parent, caplog: pytest.LogCaptureFixture
) -> None:
    parent.say(Done(number=1))
    await until(lambda: parent.ended)
    assert "invalid message from the parent process" in caplog.text


async def test_its_figures_are_written_before_it_reports(parent: Parent) -> None:
    parent.house.proxy.engine.audience.announce(outcome())
    parent.say(Look(number=7))
    await parent.hears(Done, 7)
    (numbers,) = parent.house.metrics.figures.each()
    assert numbers[EVICTIONS,] == [0]
    assert "univocal_sent_bytes" in {name for name, *_ in numbers}


async def test_a_long_answer_comes_in_parts(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 10)
    rows = [(b"key %d" % number, number) for number in range(35)]
    parent.house.survey.add("keys", lambda: rows)
    parent.say(Ask(number=1, about="keys"), Ask(number=2, about="unknown"))
    await parent.hears(Done, 1)
    await parent.hears(Done, 2)
    pages = [message for message in parent.heard if isinstance(message, Rows)]
    assert [len(page.rows) for page in pages] == [10, 10, 10, 5]
    assert [row for page in pages for row in page.read()] == rows


async def test_a_change_that_takes_long_holds_up_no_answer(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepares, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly(*_: Any) -> None:
        prepares.set()
        await goes_on.wait()

    with monkeypatch.context() as patch:
        patch.setattr(module.asyncio, "to_thread", slowly)
        parent.say(Prepare(number=1, configuration=settings_of(OTHER)), Ask(number=2, about="requests"))
        await prepares.wait()
        await parent.hears(Done, 2)
        goes_on.set()
        await parent.hears(Done, 1)
    parent.worker._prepared = None


async def test_it_reports_exchanges_while_they_are_followed(parent: Parent) -> None:
    audience = parent.house.proxy.engine.audience
    audience.announce(outcome(1))
    parent.say(Follow(number=1))
    await parent.hears(Done, 1)
    audience.announce(outcome(2))
    batch = await parent.hears(EventBatch)
    assert [event[1] for event in batch.events] == ["200"]
    parent.say(Unfollow(), Look(number=2))
    await parent.hears(Done, 2)
    audience.announce(outcome(3))
    await asyncio.sleep(0)
    assert not [message for message in parent.heard if isinstance(message, EventBatch)]


async def test_what_is_prepared_is_in_force_once_it_is_adopted(parent: Parent) -> None:
    parent.say(Prepare(number=1, configuration=settings_of(OTHER)))
    assert (await parent.hears(Done, 1)).errors == []
    assert parent.house.configuration == CONFIGURATION
    parent.say(Adopt(number=2))
    assert (await parent.hears(Done, 2)).errors == []
    assert parent.house.configuration == OTHER


async def test_what_cannot_be_prepared_is_told(parent: Parent) -> None:
    settings = {**SETTINGS, "profiles": ["/nowhere"]}
    parent.say(Prepare(number=1, configuration=settings_of(validate(settings, "test"))))
    (error,) = (await parent.hears(Done, 1)).errors
    assert "/nowhere" in str(error)


@pytest.mark.parametrize("before", [[], [Prepare(number=1, configuration=settings_of(OTHER)), Drop()]])
async def test_nothing_is_adopted_that_is_not_prepared(parent: Parent, before: list[Message]) -> None:
    parent.say(*before, Adopt(number=2))
    (error,) = (await parent.hears(Done, 2)).errors
    assert "a configuration that is prepared" in str(error)
    assert parent.house.configuration == CONFIGURATION


async def test_the_log_is_opened_again(parent: Parent, tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    parent.house.log = open_log(str(file), "json", "test")
    file.rename(tmp_path / "access.log.1")
    parent.say(Reopen(), Look(number=1))
    await parent.hears(Done, 1)
    parent.house.log._stream.close()
    assert file.exists()
