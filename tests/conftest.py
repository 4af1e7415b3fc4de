"""Before all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Others may have the processor: speed is measured in `make bench`.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# What tests share, and the checkout's programs that they run: pytest's own setting has the sources alone.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

# Who runs the tests in the background has them ignore it, and so would the programs that they interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of interpreters, each of which would compile every module anew, and so would pytest.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_xdist_auto_num_workers() -> int:
    """Three processes for two processors: some tests wait while others compute."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return processors + (processors + 1) // 2


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over the thousands of tests, whatever is searched later."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Have the garbage collector free nothing, so that what is freed is in no circle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
