"""The marks by which classes tell mypyc how to compile them. Nothing needs `mypy_extensions` to run.

- `allow_interpreted_subclasses`: Python code may subclass the class.
- `acyclic`: no object of the class is part of a circle, so the garbage collector need not look at them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["mypyc_attr"]

C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**marks: bool) -> Callable[[C], C]:  # noqa: ARG001
        """Return the class as it is: it is not compiled."""
        return lambda marked: marked
