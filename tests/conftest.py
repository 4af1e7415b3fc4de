"""Before all tests."""

import faulthandler
import gc
import os
import random
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from packaging.requirements import Requirement
from xdist import is_xdist_controller

# Shared modules of the tests, and the checkout's tools: pytest's own setting has the sources alone.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from examples import examples  # noqa: E402

# Others may have the processor: speed is measured in `make bench`. `make laws` draws more examples.
settings.register_profile("unhurried", deadline=None, max_examples=examples(100))
settings.load_profile("unhurried")

# Started in the background, the tests would ignore it, and so would the programs that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of interpreters, each of which would compile every module anew, and so would pytest.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_xdist_auto_num_workers() -> int:
    """Two processes for each processor: tests wait for other programs about as long as they compute."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * processors


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Kill what a process left behind that ended within a test: it would hold pytest's output open."""
    names = {"PYTEST_XDIST_WORKER": "workerid", "PYTEST_XDIST_TESTRUNUID": "testrunuid"}
    theirs = {f"{name}={node.workerinput[key]}".encode() for name, key in names.items()}
    for environment in Path("/proc").glob("[0-9]*/environ") if error else ():
        with suppress(OSError):  # it has ended, or is another user's
            if theirs <= {*environment.read_bytes().split(b"\0")}:
                os.kill(int(environment.parent.name), signal.SIGKILL)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Know how long a test may take: the slowest need 300 s with all examples, and ten others at once."""
    parser.addini("alarm", "seconds after which a test that has not ended ends its process", default="600")


def pytest_configure(config: pytest.Config) -> None:
    """Know the markers of tests, and have a process that an alarm ends print where each thread waits."""
    faulthandler.register(signal.SIGALRM, os.dup(2), chain=True)  # tests have what they write to 2 captured
    config.addinivalue_line("markers", "pure(reason): for the sources as they are; not for a compiled wheel")
    config.addinivalue_line(
        "markers", "needs(requirement): another framework than the lowest, as in `fastapi>=0.121`"
    )
    config.addinivalue_line(
        "markers", "long: takes many seconds, or starts servers for the whole file; begins before others"
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Set an alarm, which is a system call: pytest's `faulthandler_timeout` starts a thread for each test."""
    signal.alarm(int(item.config.getini("alarm")))
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_enter_pdb() -> None:
    """Wait without a limit under a debugger."""
    signal.alarm(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests of the sources as they are, where these are compiled, and of newer frameworks."""
    from univocal.http import errors  # pytest has the sources on its path by now

    if not errors.__file__.endswith(".py"):
        for item in items:
            if (marker := item.get_closest_marker("pure")) is not None:
                item.add_marker(pytest.mark.skip(reason=f"not for a compiled wheel: {marker.args[0]}"))
    for item in items:
        for marker in item.iter_markers("needs"):
            needed = Requirement(marker.args[0])
            if not needed.specifier.contains(version(needed.name), prereleases=True):
                item.add_marker(pytest.mark.skip(reason=f"needs {needed}"))
    items[:] = long_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@cache
def _room(file: Path) -> Path:
    """The folder of an integration's file, whose files share servers; another file is for itself."""
    return file.parent if "integration" in file.parent.parent.parts else file


def long_first(items: list[pytest.Item], processes: int) -> list[pytest.Item]:
    """The tests in such an order that each process, which gets an equal part, begins with its long ones.

    Those of one file stay together, for the fixtures that they share. Several processes have the files of all
    rooms in a mixed order, always the same: so while some of them wait for other programs, others compute.
    """
    files: dict[Path, list[pytest.Item]] = {}
    rooms: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long"):
            files.setdefault(item.path, []).append(item)
        else:
            rooms.setdefault(_room(item.path), []).append(item)
    mixed = [*rooms.values()]
    if processes > 1:
        random.Random(len(mixed)).shuffle(mixed)
    others = [item for room in mixed for item in room]
    ordered = list[pytest.Item]()
    for process in range(processes):
        part = (len(items) - len(ordered)) // (processes - process)
        mine = [item for file in [*files.values()][process::processes] for item in file]
        count = max(part - len(mine), 0)
        ordered += [*mine, *others[:count]]
        del others[:count]
    return ordered + others


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Run the garbage collector neither while the thousands of tests are made, nor over them later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # with the usual 700 it takes a fiftieth of the time
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Have pytest's last collections pass over the reports of all tests, where other processes ran them."""
    if is_xdist_controller(session):
        gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return Path(__file__).parents[1]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Have the garbage collector free nothing, so that what is freed is in no circle."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def all_frozen() -> None:
    """Have the collector pass over all that other tests have left, for tests that run it often."""
    gc.collect()
    gc.freeze()
