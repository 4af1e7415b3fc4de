"""The number and the values of a property's examples, and tables of a test's rows."""

import os
from typing import Any

import pytest
from hypothesis import strategies as st

LONG = "LONG" in os.environ  # as `make laws` and .ci/run have it


def examples(number: int, part: int = 5) -> int:
    """All of them in `make laws`, a fifth or another part in `make test`."""
    return number if LONG else number // part


def any_of(*values: Any) -> st.SearchStrategy[Any]:
    """A strategy that gives one of these values, and shrinks to the first."""
    return st.sampled_from(values)


def cases(names: str, *rows: Any) -> pytest.MarkDecorator:
    """Run a test once for each row: its cells are what these names stand for, in order."""
    return pytest.mark.parametrize(names, rows)
