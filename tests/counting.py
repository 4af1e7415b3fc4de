"""What the guards that count Python's calls leave out."""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType


@cache
def only_assigns(code: CodeType) -> bool:
    """Tell whether a function is an `__init__` such as dataclasses write, which are not counted either."""
    return code.co_name == "__init__" and not any(
        step.opname.startswith("CALL") for step in dis.get_instructions(code)
    )
