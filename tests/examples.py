"""How many examples a property is tried with."""

import os

LONG = "LONG" in os.environ  # as `make laws` and .ci/run have it


def examples(number: int, part: int = 3) -> int:
    """All of them in `make laws`, a third or another part in `make test`."""
    return number if LONG else number // part
