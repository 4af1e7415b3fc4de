"""Workers, watched by their parent: those that hang, and those that never begin."""

import asyncio
import multiprocessing
import operator
import os
import resource
import signal
import socket
import tempfile
import time
from functools import partial
from multiprocessing import util
from pathlib import Path

import pytest

import forking
from univocal.http.errors import ConfigurationError
from univocal_app.config.tables import validate
from univocal_app.observe.admin import ReloadError
from univocal_app.run import workers as module
from univocal_app.run.listeners import Bound
from univocal_app.run.program import WorkersError
from univocal_app.run.worker import Task
from univocal_app.run.workers import Workers

CONFIGURATION = validate(
    {"server": {"access_log": "off"}, "sites": [{"hosts": ["en.example"], "upstream": "http://127.0.0.1:9"}]},
    "test",
)


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Workers are forked from a process that has imported the program, and replaced without a pause."""
    monkeypatch.setattr(module, "PAUSE", 0.01)
    if forking.POSSIBLE:
        monkeypatch.setattr(util, "spawnv_passfds", partial(forking.helper().spawn, util.spawnv_passfds))


@pytest.fixture
def tmp_path():
    """A directory whose name is short enough for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="univocal-") as name:
        yield Path(name)


@pytest.fixture
async def watched(tmp_path):
    """One worker that is taken for hung after three seconds, and the names of those that ended."""
    ended = []
    with socket.create_server(("127.0.0.1", 0)) as front:
        task = Task(CONFIGURATION, (Bound(front),), tmp_path)
        workers = Workers(1, lambda: task, tmp_path, ended.append, silence=3.0)
        await workers.start()
        yield workers, ended
        await workers.aclose()
    assert multiprocessing.active_children() == []


async def test_a_worker_that_hangs_is_replaced(watched, caplog):
    workers, ended = watched
    (process,) = multiprocessing.active_children()
    before = process.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    async with asyncio.timeout(60):
        while not ended or not workers.accepting:  # noqa: ASYNC110  (another process does it)
            await asyncio.sleep(0.05)
    (other,) = multiprocessing.active_children()
    assert ended == ["1"]
    assert other.pid != before
    assert "worker 1 does not answer for 3 seconds: it is killed" in caplog.text
    assert "worker 1 was killed by SIGKILL: a new worker replaces it" in caplog.text


async def test_without_a_free_process_starting_is_retried(watched, caplog):
    workers, ended = watched
    (process,) = multiprocessing.active_children()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        process.kill()
        async with asyncio.timeout(60):
            while "cannot be started" not in caplog.text:  # noqa: ASYNC110  (another process does it)
                await asyncio.sleep(0.05)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    async with asyncio.timeout(60):
        while not workers.accepting:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert set(ended) == {"1"}


async def test_a_worker_that_gives_signs_of_life_stays(watched):
    workers, ended = watched
    await asyncio.sleep(4)  # longer than it may be silent
    assert (workers.accepting, ended) == (1, [])


def test_a_parent_that_stood_still_kills_nobody(tmp_path):
    """In the event loop that it has: uvloop looks at what is due before what has come."""
    ended = []

    async def stand_still(front):
        workers = Workers(
            1, lambda: Task(CONFIGURATION, (Bound(front),), tmp_path), tmp_path, ended.append, silence=3.0
        )
        await workers.start()
        time.sleep(5)  # noqa: ASYNC251
        await asyncio.sleep(1.5)
        accepting = workers.accepting
        died = list(ended)
        await workers.aclose()
        assert died == []
        return accepting

    uvloop = pytest.importorskip("uvloop")
    with (
        socket.create_server(("127.0.0.1", 0)) as front,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        assert runner.run(stand_still(front)) == 1


async def test_workers_that_end_at_once_are_not_started_again(tmp_path):
    ended = []
    workers = Workers(2, lambda: operator.is_, tmp_path, ended.append)
    with pytest.raises(WorkersError):
        await workers.start()
    await workers.aclose()
    assert len(ended) <= 2
    assert multiprocessing.active_children() == []


async def test_all_workers_prepare_a_configuration_and_take_it(watched):
    workers, ended = watched
    await workers.prepare(CONFIGURATION)
    await workers.adopt()
    broken = CONFIGURATION.model_copy(update={"profiles": ["/nowhere"]})
    with pytest.raises(ConfigurationError) as refused:
        await workers.prepare(broken)
    assert "/nowhere" in str(refused.value)
    await workers.prepare(CONFIGURATION)
    await workers.adopt()
    assert (workers.accepting, ended) == (1, [])


async def test_a_worker_that_does_not_answer_is_named(watched, monkeypatch):
    workers, ended = watched
    monkeypatch.setattr(module, "ANSWER", 0.5)
    (process,) = multiprocessing.active_children()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(ReloadError, match=r"^not reloaded: .*worker 1$"):
        await workers.prepare(CONFIGURATION)
    with pytest.raises(ReloadError, match=r"^reloaded; .*worker 1$"):
        await workers.adopt()
    async with asyncio.timeout(60):
        while not ended or not workers.accepting:  # noqa: ASYNC110  (another process does it)
            await asyncio.sleep(0.05)
    monkeypatch.undo()
    await workers.prepare(CONFIGURATION)
    await workers.adopt()
