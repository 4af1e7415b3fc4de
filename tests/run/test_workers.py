"""The parent speaks with its workers; the test plays the workers' processes."""

import asyncio
import json
import multiprocessing
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from support import eventually
from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import validate
from univocal_app.observe.events import Event
from univocal_app.run import workers as module
from univocal_app.run.worker import Lifeline, hold
from univocal_app.run.worker_client import WorkerClient
from univocal_app.run.workers import Workers

SITE = {"hosts": ["*"], "upstream": "http://h"}
CONFIGURATION = validate({"cache": {"store": "redis://u:password@h/0"}, "sites": [SITE]}, "test")


class Played:
    """A process of a worker, which the test plays: its answers by their targets, others are empty."""

    lifeline: Lifeline

    def __init__(self, name, bound, asked):
        self.name, self.bound, self.listening = name, bound.dup(), asked.dup()
        self.answers = {}  # None: it does not answer
        self.refusals = {}
        self.heard = []
        self.exitcode = None
        self.connections = []

    def start(self):
        pass

    async def begin(self):
        self.server = await asyncio.start_unix_server(self._answer, sock=self.listening)
        self.lifeline = await hold(self.bound, lambda: None, lambda: None)
        self.lifeline.beat()

    async def _answer(self, reader, writer):
        self.connections.append(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.lower().split(b"\r\n") if b"content-length" in line), b":0")
        content = await reader.readexactly(int(length.partition(b":")[2]))
        target = head.split(b" ")[1].decode()
        self.heard.append((target, content))
        answer = self.answers.get(target, b"")
        if refusal := self.refusals.get(target):
            writer.write(b"HTTP/1.1 422 Unprocessable Content\r\nConnection: close\r\n\r\n" + refusal)
        elif answer is not None:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + answer)
        if target != "/-/events" and answer is not None:
            writer.close()
        else:
            with suppress(ConnectionResetError):  # by one that leaves with something unread
                await reader.read()
            writer.close()
            self.heard.append((f"no more {target}", b""))

    def kill(self):
        if self.exitcode is None:
            self.exitcode = -signal.SIGKILL
            if hasattr(self, "lifeline"):
                self.lifeline.close()
                self.server.close()
                for each in self.connections:
                    each.close()
            else:
                self.bound.close()
                self.listening.close()

    def join(self, _=0):
        self.exitcode = 0 if self.exitcode is None else self.exitcode

    def close(self):
        pass

    async def hears(self, target):
        """The content of a request, as soon as there is one that was not asked for before."""
        await eventually(lambda: any(each == target for each, _ in self.heard))
        found = next(each for each in reversed(self.heard) if each[0] == target)
        self.heard.remove(found)
        return found[1]


class Stage:
    """Two workers, those that took their places, and what they reported."""

    def __init__(self, directory):
        self.processes = []
        self.events = []
        self.ended = []
        self.workers = Workers(2, lambda: lambda *_: None, directory, self.ended.append, self.events.append)

    def process(self, *, args, **_):
        self.processes.append(Played(*args))
        return self.processes[-1]

    async def start(self):
        starting = asyncio.create_task(self.workers.start())
        await eventually(lambda: len(self.processes) == 2)
        for process in self.processes:
            await process.begin()
        await starting
        first, second = self.processes
        return first, second


@pytest.fixture
async def stage(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        played = Stage(Path(name))
        monkeypatch.setattr(module, "_NEW", SimpleNamespace(Process=played.process))
        monkeypatch.setattr(module, "PAUSE", 0.01)
        yield played
        played.workers.end(at_once=True)
        await played.workers.aclose()


async def test_rows_of_all_workers_are_one_answer(stage):
    for process, row in zip(await stage.start(), (b'["a",1]\n', b'["b",1]\n'), strict=True):
        process.answers["/-/rows?about=requests"] = row
    assert sorted(await stage.workers.rows("requests", "bn")) == [(b"a", 1), (b"b", 1)]


async def test_a_worker_that_is_killed_loses_no_answer_of_another(stage):
    first, second = await stage.start()
    first.answers["/-/rows?about=requests"], second.answers["/-/rows?about=requests"] = None, b'["b",1]\n'
    rows = asyncio.create_task(stage.workers.rows("requests", "bn"))
    await first.hears("/-/rows?about=requests")
    first.kill()
    assert await rows == [(b"b", 1)]


async def test_a_worker_that_does_not_answer_is_left_out(stage, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    first, second = await stage.start()
    first.answers["/-/rows?about=requests"], second.answers["/-/rows?about=requests"] = b'["a",1]\n', None
    assert await stage.workers.rows("requests", "bn") == [(b"a", 1)]


@pytest.mark.parametrize("target", ["/-/rows?about=requests", "/-/events"])
async def test_a_worker_sending_garbage_is_killed_and_replaced(stage, target, caplog):
    first, second = await stage.start()
    first.answers[target] = b"data: \x80\x04N.\n"
    await (stage.workers.follow() if target == "/-/events" else stage.workers.rows("requests", "bn"))
    await eventually(lambda: len(stage.processes) == 3)
    assert (stage.ended, stage.events) == ([first.name], [])
    assert first.exitcode == -signal.SIGKILL
    assert f"worker {first.name} sent an invalid answer" in caplog.text
    await stage.processes[2].begin()
    await eventually(lambda: stage.workers.accepting == 2)
    assert second.exitcode is None


async def test_workers_that_start_later_are_followed_too(stage):
    first, second = await stage.start()
    second.answers["/-/events"] = b'data: {"site":"s","status":200,"cache":"hit"}\n\n'
    await stage.workers.follow()
    await eventually(lambda: stage.events)
    assert stage.events == [Event("s", "200", "hit", b'{"site":"s","status":200,"cache":"hit"}')]
    first.kill()
    await eventually(lambda: len(stage.processes) == 3)
    third = stage.processes[2]
    await third.begin()
    await third.hears("/-/events")
    stage.workers.unfollow()
    for process in (second, third):
        await process.hears("no more /-/events")


async def test_all_workers_are_told_to_open_their_logs_again(stage):
    processes = await stage.start()
    stage.workers.reopen()
    for process in processes:
        await process.hears("/-/reopen")


async def test_a_configuration_that_one_worker_refuses_is_dropped(stage):
    first, second = await stage.start()
    error = {"detail": "test: profiles: no directory", "key": "profiles", "file": "test", "line": 0}
    second.refusals["/-/prepare?number=1"] = json.dumps({"errors": [error]}).encode() + b"\n"
    with pytest.raises(ConfigurationError) as refused:
        await stage.workers.prepare(CONFIGURATION)
    assert str(refused.value) == error["detail"]
    wanted = json.loads(await first.hears("/-/prepare?number=1"))
    assert validate(wanted["configuration"], "test") == CONFIGURATION  # with the password
    for process in (first, second):
        await process.hears("/-/drop?number=1")


def test_a_worker_that_ended_meanwhile_is_not_killed_again():
    """A worker that is killed during a reload: the others take the configuration, without a traceback."""
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()
    process.close()
    module._Worker("1", process, WorkerClient(Path("/nowhere"))).end(at_once=True)
