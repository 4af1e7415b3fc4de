"""A worker does what its parent says, which the test plays."""

import asyncio
import socket

import httpx
import pytest

from support import an_outcome, eventually
from univocal_app.config.tables import settings_of, validate
from univocal_app.observe.accesslog import AccessLog, outlet_of
from univocal_app.observe.families import EVICTIONS
from univocal_app.processes.commons import Commons
from univocal_app.run import worker as module
from univocal_app.run.assemble import Proxy
from univocal_app.run.listeners import Bound
from univocal_app.run.worker import Worker, hold
from univocal_app.run.worker_client import read_objections, read_row

SITE = {"hosts": ["en.example"], "upstream": "http://127.0.0.1:9"}
SETTINGS = {"server": {"access_log": "off"}, "sites": [SITE]}
CONFIGURATION = validate(SETTINGS, "test")
MOVED = {**SITE, "redirect": "https://en.example{path}", "access": {"forward": "http://127.0.0.1:9/verify"}}
OTHER = validate({**SETTINGS, "cache": {"max_bytes": 1 << 20}, "sites": [MOVED]}, "test")


class Parent:
    """The parent, and a worker that listens to it."""

    def __init__(self, directory):
        self.proxy = Proxy(CONFIGURATION, Commons(directory, "1"))
        self.ended = self.beats = 0
        self.worker = Worker(self.proxy, self._end)
        with socket.socket(socket.AF_UNIX) as unused:
            application = self.proxy.back(Bound(unused), orders=self.worker.orders()).app
        transport = httpx.ASGITransport(app=application)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://worker")

    async def start(self):
        ours, theirs = socket.socketpair()
        self.lifeline = await hold(ours, self._hear, lambda: None)
        await self.worker.listen(theirs)

    def _end(self):
        self.ended += 1

    def _hear(self):
        self.beats += 1

    async def orders(self, target, **content):
        """The objections to an order."""
        answer = await self.client.post(target, **content)
        if answer.status_code == 200:
            assert not answer.content
            return []
        assert answer.status_code == 422
        return list(map(str, read_objections(answer.content)))

    async def prepares(self, configuration, number=1):
        document = {"configuration": settings_of(configuration), "as_written": []}
        return await self.orders(f"/-/prepare?number={number}", json=document)


@pytest.fixture
async def parent(tmp_path):
    parent = Parent(tmp_path)
    await parent.start()
    yield parent
    parent.worker._living.end()
    parent.lifeline.close()
    await eventually(lambda: parent.ended)
    parent.worker._lifeline.close()
    await parent.proxy.aclose()


def outcome(number=0):
    return an_outcome(b"/%d" % number)


async def test_it_ends_with_its_parent(parent):
    parent.lifeline.end()
    await eventually(lambda: parent.ended)
    parent.worker.live()
    await eventually(lambda: parent.beats)  # it gives signs of life until it has ended


async def test_its_figures_are_written_before_it_reports(parent):
    parent.proxy.cache.engine.audience.announce(outcome())
    assert await parent.orders("/-/look") == []
    (numbers,) = parent.proxy.figures.each()
    assert numbers[EVICTIONS,] == [0]
    assert "univocal_sent_bytes" in {name for name, *_ in numbers}


async def test_its_socket_is_an_admin_listener_without_orders_to_all(parent):
    for path in ("/-/health", "/-/config", "/-/top", "/-/stats", "/metrics"):
        assert (await parent.client.get(path)).status_code == 200
    for path in ("/-/reload", "/-/origins/drain", "/-/origins/enable"):
        assert (await parent.client.post(path)).status_code == 404


async def test_clients_are_served_between_parts_of_a_long_answer(parent, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 10)
    rows = [(b"key %d" % number, number) for number in range(35)]
    parts = [part async for part in module._paged(rows)]
    assert [part.count(b"\n") for part in parts] == [10, 10, 10, 5]
    parent.proxy.survey.add("keys", "bn", lambda: rows)
    answer = await parent.client.get("/-/rows?about=keys")
    assert [read_row(line, "bn") for line in answer.content.splitlines()] == rows
    assert (await parent.client.get("/-/rows?about=unknown")).content == b""


async def test_a_change_that_takes_long_holds_up_no_answer(parent, monkeypatch):
    prepares, goes_on = asyncio.Event(), asyncio.Event()

    async def slowly(*_):
        prepares.set()
        await goes_on.wait()

    with monkeypatch.context() as patch:
        patch.setattr(module.asyncio, "to_thread", slowly)
        preparing = asyncio.create_task(parent.prepares(OTHER))
        await prepares.wait()
        assert (await parent.client.get("/-/rows?about=requests")).status_code == 200
        goes_on.set()
        assert await preparing == []
    parent.worker._prepared = None


async def test_a_prepared_configuration_is_in_force_once_adopted(parent):
    assert await parent.prepares(OTHER) == []
    assert parent.proxy.configuration == CONFIGURATION
    assert await parent.orders("/-/adopt?number=1") == []
    assert parent.proxy.configuration == OTHER


async def test_errors_of_preparing_a_configuration_are_told(parent):
    (error,) = await parent.prepares(validate({**SETTINGS, "profiles": ["/nowhere"]}, "test"))
    assert "/nowhere" in error


@pytest.mark.parametrize("dropped", [False, True])
async def test_nothing_is_adopted_that_is_not_prepared(parent, dropped):
    if dropped:
        await parent.prepares(OTHER)
        await parent.orders("/-/drop?number=1")
    (error,) = await parent.orders("/-/adopt?number=1")
    assert "a configuration that is prepared" in error
    assert parent.proxy.configuration == CONFIGURATION


async def test_orders_about_an_older_configuration_come_too_late(parent):
    assert await parent.prepares(OTHER, 2) == []
    assert await parent.orders("/-/drop?number=1") == []
    for late in (await parent.prepares(CONFIGURATION, 1), await parent.orders("/-/adopt?number=1")):
        assert "a configuration that is prepared" in late[0]
    assert await parent.orders("/-/adopt?number=2") == []
    assert parent.proxy.configuration == OTHER


async def test_the_log_is_opened_again(parent, tmp_path):
    file = tmp_path / "access.log"
    logging = validate({**SETTINGS, "server": {"access_log": str(file)}}, "test")
    parent.proxy.log = AccessLog(outlet_of(logging))
    file.rename(tmp_path / "access.log.1")
    await parent.orders("/-/reopen")
    parent.proxy.log._stream.close()
    assert file.exists()
