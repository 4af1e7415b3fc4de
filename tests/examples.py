"""How many examples a property is tried with."""

import os

LONG = "LONG" in os.environ  # as `make laws` and .ci/run have it


def examples(number: int) -> int:
    """All of them in `make laws`, a third in `make test`."""
    return number if LONG else number // 3
