"""How many examples a property is tried with, and tables of a test's rows."""

import os
from typing import Any

import pytest

LONG = "LONG" in os.environ  # as `make laws` and .ci/run have it


def examples(number: int, part: int = 5) -> int:
    """All of them in `make laws`, a fifth or another part in `make test`."""
    return number if LONG else number // part


def cases(names: str, *rows: Any) -> pytest.MarkDecorator:
    """Run a test once for each row: its cells are what these names stand for, in order."""
    return pytest.mark.parametrize(names, rows)
